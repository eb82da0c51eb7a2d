//! What a writer knows of its znodes.
//!
//! *Owns* [`Write`], a request that a writer sends, and [`Nodes`], what its znodes are after some of
//! them. *Invariant*: every value ever written tells who wrote it and with which request, so a znode
//! that is found says where it comes from.

use std::collections::BTreeMap;

use lockkeeper::internals::proto::Stat;

/// Below which all writers make sequential znodes.
pub const SHARED: &str = "/q";

/// One request.
#[derive(Clone, Debug)]
pub enum Write {
    Create {
        path: String,
        flags: i32,
        bytes: usize,
    },
    Set {
        path: String,
        bytes: usize,
    },
    Delete {
        path: String,
    },
    /// All or nothing.
    Multi {
        create: String,
        set: String,
        delete: String,
    },
    CloseSession,
}

pub const EPHEMERAL: i32 = 1;
pub const SEQUENTIAL: i32 = 2;

/// Bytes of the values in a multi.
const MULTI_BYTES: usize = 100;

/// A request with its number, by which its values are told from all others.
#[derive(Clone, Debug)]
pub struct Sent {
    pub writer: usize,
    pub number: u64,
    pub write: Write,
}

impl Sent {
    pub fn is_sequential_create(&self) -> bool {
        matches!(self.write, Write::Create { flags, .. } if flags & SEQUENTIAL != 0)
    }

    pub fn is_ephemeral(&self) -> bool {
        matches!(self.write, Write::Create { flags, .. } if flags & EPHEMERAL != 0)
    }

    /// The value that this request writes.
    pub fn value(&self) -> Vec<u8> {
        let bytes = match self.write {
            Write::Create { bytes, .. } | Write::Set { bytes, .. } => bytes,
            Write::Multi { .. } => MULTI_BYTES,
            Write::Delete { .. } | Write::CloseSession => 0,
        };
        let mut value = format!("{}.{};", self.writer, self.number).into_bytes();
        let mut fill = self.number as u8;
        value.resize_with(value.len().max(bytes), || {
            fill = fill.wrapping_mul(5).wrapping_add(3);
            fill
        });
        value
    }
}

/// The writer of a value.
pub fn writer_of(value: &[u8]) -> Option<usize> {
    let end = value.iter().position(|byte| *byte == b'.')?;
    std::str::from_utf8(&value[..end]).ok()?.parse().ok()
}

/// A znode as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub value: Vec<u8>,
    pub version: i32,
    pub owner: i64,
    /// zxid of its creation and of its last change, where an answer has told it.
    pub czxid: Option<i64>,
    pub mzxid: Option<i64>,
}

impl Node {
    fn new(value: Vec<u8>, owner: i64, zxid: Option<i64>) -> Self {
        Self { value, version: 0, owner, czxid: zxid, mzxid: zxid }
    }

    fn set(&mut self, value: Vec<u8>, zxid: Option<i64>) {
        self.value = value;
        self.version += 1;
        self.mzxid = zxid;
    }

    /// Whether it is what was found.
    fn is(&self, found: &Found) -> bool {
        let (value, stat) = found;
        self.value == *value
            && self.version == stat.version
            && self.owner == stat.ephemeral_owner
            && self.czxid.is_none_or(|zxid| zxid == stat.czxid)
            && self.mzxid.is_none_or(|zxid| zxid == stat.mzxid)
    }
}

/// Value and Stat of a znode in the server.
pub type Found = (Vec<u8>, Stat);

/// The znodes of one writer by path.
#[derive(Clone, Debug, Default)]
pub struct Nodes(pub BTreeMap<String, Node>);

impl Nodes {
    /// What `sent` does. `name` is the path that a create was answered with, `zxid` that of the
    /// transaction, if it is known.
    pub fn apply(&mut self, sent: &Sent, session: i64, name: Option<&str>, zxid: Option<i64>) {
        let value = sent.value();
        match &sent.write {
            Write::Create { path, flags, .. } => {
                let owner = if flags & EPHEMERAL != 0 { session } else { 0 };
                let path = name.unwrap_or(path).to_string();
                self.0.insert(path, Node::new(value, owner, zxid));
            }
            Write::Set { path, .. } => {
                self.0.get_mut(path).expect("only what is there is set").set(value, zxid);
            }
            Write::Delete { path } => {
                self.0.remove(path).expect("only what is there is deleted");
            }
            Write::Multi { create, set, delete } => {
                self.0.insert(create.clone(), Node::new(value.clone(), 0, zxid));
                self.0.get_mut(set).expect("only what is there is set").set(value, zxid);
                self.0.remove(delete).expect("only what is there is deleted");
            }
            Write::CloseSession => self.0.retain(|_, node| node.owner != session),
        }
    }

    /// How what was found differs from this; `None` if it does not.
    pub fn difference(&self, found: &BTreeMap<String, Found>) -> Option<String> {
        for (path, node) in &self.0 {
            match found.get(path) {
                None => return Some(format!("{path} is missing: {}", node.text())),
                Some(there) if !node.is(there) => {
                    let (value, stat) = there;
                    let said = String::from_utf8_lossy(&value[..value.len().min(24)]).into_owned();
                    return Some(format!("{path} is {said} {stat:?}, not {}", node.text()));
                }
                Some(_) => {}
            }
        }
        let invented = found.keys().find(|path| !self.0.contains_key(*path))?;
        Some(format!("{invented} is there"))
    }
}

impl Node {
    fn text(&self) -> String {
        let value = String::from_utf8_lossy(&self.value[..self.value.len().min(24)]).into_owned();
        let Self { version, owner, czxid, mzxid, .. } = self;
        format!("{value} version {version} owner {owner:#x} czxid {czxid:?} mzxid {mzxid:?}")
    }
}
