//! The null server's tree: a hash map from full path to node, and the six requests on it.
//!
//! Versions, zxids and error codes are right for what the load generator checks; names of children
//! are not kept, only their number.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use lockkeeper::internals::bench::wire;

/// Operation: is there a znode. The load generator never asks.
const EXISTS: i32 = 3;
/// Nodes that fit before the map grows, which stops the server for a fifth of a second.
const ROOM: usize = 1 << 20;

pub struct Tree {
    nodes: HashMap<Box<[u8]>, Node>,
    zxid: i64,
    now_ms: i64,
}

#[derive(Default)]
struct Node {
    data: Box<[u8]>,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    cversion: i32,
    children: i32,
}

/// What the server has to know about a request beyond its reply.
pub struct Done {
    /// It changed the tree and belongs in the log.
    pub wrote: bool,
    /// The connection ends after its reply.
    pub last: bool,
}

/// Error code of a refused request.
type Refusal = i32;

/// Answer to bytes that cannot be read as the request they claim to be.
const MARSHALLING: Refusal = -5;

impl Tree {
    pub fn new() -> Self {
        let mut nodes: HashMap<Box<[u8]>, Node> = HashMap::with_capacity(ROOM);
        nodes.insert(b"/".as_slice().into(), Node::default());
        Tree { nodes, zxid: 0, now_ms: 0 }
    }

    /// Takes the time that the writes from now on happen at.
    pub fn look_at_clock(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.now_ms = since.as_millis() as i64;
    }

    /// Applies one request frame and appends its reply frame.
    pub fn request(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Done {
        let (Some(xid), Some(op)) = (wire::int_at(frame, 0), wire::int_at(frame, 4)) else {
            return Done { wrote: false, last: true };
        };
        let start = out.len();
        // Length and header are filled in when the body and the outcome are known.
        out.extend_from_slice(&[0; 4 + wire::REPLY_HEADER]);
        let before = self.zxid;
        let err = match self.apply(op, &frame[8..], out) {
            Ok(()) => 0,
            Err(code) => {
                out.truncate(start + 4 + wire::REPLY_HEADER);
                code
            }
        };
        let length = (out.len() - start - 4) as i32;
        let xid = if op == wire::PING { -2 } else { xid };
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        out[start + 4..start + 8].copy_from_slice(&xid.to_be_bytes());
        out[start + 8..start + 16].copy_from_slice(&self.zxid.to_be_bytes());
        out[start + 16..start + 20].copy_from_slice(&err.to_be_bytes());
        Done {
            wrote: self.zxid != before,
            last: op == wire::CLOSE || err == wire::UNIMPLEMENTED || err == MARSHALLING,
        }
    }

    fn apply(&mut self, op: i32, body: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        if matches!(op, wire::PING | wire::CLOSE) {
            return Ok(());
        }
        let path = wire::buffer_at(body, 0).ok_or(MARSHALLING)?;
        let rest = &body[4 + path.len()..];
        match op {
            wire::GET => {
                let node = self.nodes.get(path).ok_or(wire::NO_NODE)?;
                wire::buffer(out, &node.data);
                node.stat(out);
            }
            EXISTS => self.nodes.get(path).ok_or(wire::NO_NODE)?.stat(out),
            wire::SET => {
                let data = wire::buffer_at(rest, 0).ok_or(MARSHALLING)?;
                let version = wire::int_at(rest, 4 + data.len()).ok_or(MARSHALLING)?;
                self.set(path, data, version)?.stat(out);
            }
            wire::CREATE => {
                let data = wire::buffer_at(rest, 0).ok_or(MARSHALLING)?;
                self.create(path, data)?;
                wire::buffer(out, path);
            }
            wire::DELETE => self.delete(path)?,
            _ => return Err(wire::UNIMPLEMENTED),
        }
        Ok(())
    }

    fn set(&mut self, path: &[u8], data: &[u8], version: i32) -> Result<&Node, Refusal> {
        let node = self.nodes.get_mut(path).ok_or(wire::NO_NODE)?;
        if version != -1 && version != node.version {
            return Err(wire::BAD_VERSION);
        }
        if node.data.len() == data.len() {
            node.data.copy_from_slice(data);
        } else {
            node.data = data.into();
        }
        self.zxid += 1;
        node.mzxid = self.zxid;
        node.mtime = self.now_ms;
        node.version = node.version.wrapping_add(1);
        Ok(node)
    }

    fn create(&mut self, path: &[u8], data: &[u8]) -> Result<(), Refusal> {
        if self.nodes.contains_key(path) {
            return Err(wire::NODE_EXISTS);
        }
        let parent = self.nodes.get_mut(parent_of(path)).ok_or(wire::NO_NODE)?;
        self.zxid += 1;
        parent.children += 1;
        parent.cversion = parent.cversion.wrapping_add(1);
        parent.pzxid = self.zxid;
        let node = Node {
            data: data.into(),
            czxid: self.zxid,
            mzxid: self.zxid,
            pzxid: self.zxid,
            ctime: self.now_ms,
            mtime: self.now_ms,
            ..Node::default()
        };
        self.nodes.insert(path.into(), node);
        Ok(())
    }

    fn delete(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let node = self.nodes.get(path).ok_or(wire::NO_NODE)?;
        if node.children > 0 {
            return Err(wire::NOT_EMPTY);
        }
        self.zxid += 1;
        self.nodes.remove(path);
        if let Some(parent) = self.nodes.get_mut(parent_of(path)) {
            parent.children -= 1;
            parent.cversion = parent.cversion.wrapping_add(1);
            parent.pzxid = self.zxid;
        }
        Ok(())
    }
}

impl Node {
    fn stat(&self, out: &mut Vec<u8>) {
        wire::long(out, self.czxid);
        wire::long(out, self.mzxid);
        wire::long(out, self.ctime);
        wire::long(out, self.mtime);
        wire::int(out, self.version);
        wire::int(out, self.cversion);
        wire::int(out, 0);
        wire::long(out, 0);
        wire::int(out, self.data.len() as i32);
        wire::int(out, self.children);
        wire::long(out, self.pzxid);
    }
}

fn parent_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}
