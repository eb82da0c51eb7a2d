//! The body of a snapshot: sessions, lists, znodes. The same in a file and in the quorum protocol's SNAP.
//!
//! *Owns* its bytes, in both directions. *Invariants*: the decoder is given bytes in any portions and hands out the
//! same items; it keeps no more than one item and what was fed last. *Never* checks that a parent comes before its
//! children, which is the business of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Adler32, FIELD_BYTES_MAX};
use crate::proto::jute::wire_len;
use crate::proto::{Acl, Malformed, Text, Writer};

/// The number of the list that gives everybody everything, which is never listed.
pub const OPEN_ACL_KEY: i64 = -1;
/// With this path the znodes end; that of the root is empty.
const END: &[u8] = b"/";
/// Most entries of one list.
const ACL_ENTRIES_MAX: usize = 1 << 20;

/// What ZooKeeper keeps of a znode besides its data and its list: the record `StatPersisted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatPersisted {
    /// zxid of its creation.
    pub czxid: i64,
    /// zxid of the last change of its data.
    pub mzxid: i64,
    /// Time of its creation, milliseconds since the epoch.
    pub ctime: i64,
    /// Time of the last change of its data.
    pub mtime: i64,
    /// Changes of its data.
    pub version: i32,
    /// Children that it ever had. (What clients see counts those that went, too.)
    pub cversion: i32,
    /// Changes of its list.
    pub aversion: i32,
    /// The session, container or time to live that it belongs to, in ZooKeeper's encoding.
    pub ephemeral_owner: i64,
    /// zxid of the last child that came or went.
    pub pzxid: i64,
}

/// A znode of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its path; `/` for the root.
    pub path: Text,
    /// Its data.
    pub data: Option<Bytes>,
    /// Its list. `None` if the snapshot does not have it: the list was new when the snapshot was being written, and
    /// the log that follows has it.
    pub acl: Option<Arc<Vec<Acl>>>,
    /// Its numbers.
    pub stat: StatPersisted,
}

/// What a decoder hands out, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An open session.
    Session {
        /// Its id.
        id: i64,
        /// Its timeout.
        timeout_ms: i32,
    },
    /// A znode.
    Node(Node),
    /// There is no more. What follows in the stream is not part of the body.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    SessionCount,
    Sessions(u32),
    AclCount,
    Acls(u32),
    Nodes,
    Ended,
}

/// Decodes a body that comes in portions.
#[derive(Debug)]
pub struct SnapshotDecoder {
    stage: Stage,
    buffer: Vec<u8>,
    /// Up to where of the buffer is decoded.
    at: usize,
    acls: BTreeMap<i64, Arc<Vec<Acl>>>,
    open_acl: Arc<Vec<Acl>>,
    /// Of what is decoded, and of what comes before it.
    adler: Adler32,
}

impl Default for SnapshotDecoder {
    fn default() -> Self {
        Self {
            stage: Stage::SessionCount,
            buffer: Vec::new(),
            at: 0,
            acls: BTreeMap::new(),
            open_acl: Arc::new(vec![Acl::open()]),
            adler: Adler32::default(),
        }
    }
}

/// Why a field cannot be read.
enum Stop {
    /// Its bytes are not there yet.
    More,
    /// It is none.
    Wrong(Malformed),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Wrong(malformed)
    }
}

impl SnapshotDecoder {
    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..std::mem::take(&mut self.at));
        self.buffer.extend_from_slice(bytes);
    }

    /// The next item; `None` until more bytes are fed, or behind the end.
    ///
    /// # Errors
    /// The bytes are no snapshot. The decoder is not to be used any more.
    pub fn next_item(&mut self) -> Result<Option<Item>, Malformed> {
        loop {
            let mut cursor = Cursor { bytes: &self.buffer[self.at..], at: 0 };
            let stepped = step(self.stage, &mut cursor, &mut self.acls, &self.open_acl);
            match stepped {
                Ok((stage, item)) => {
                    let decoded = cursor.at;
                    self.adler.add(&self.buffer[self.at..self.at + decoded]);
                    self.at += decoded;
                    self.stage = stage;
                    if item.is_some() || stage == Stage::Ended {
                        return Ok(item);
                    }
                }
                Err(Stop::More) => return Ok(None),
                Err(Stop::Wrong(malformed)) => return Err(malformed),
            }
        }
    }

    /// A decoder of a body that these bytes come before, which count for the checksum.
    pub(super) fn behind(bytes: &[u8]) -> Self {
        let mut decoder = Self::default();
        decoder.adler.add(bytes);
        decoder
    }

    /// The checksum of what is decoded, and of what comes before it.
    pub(super) fn adler(&self) -> Adler32 {
        self.adler
    }

    /// Whether the end was handed out.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Bytes that were fed and not decoded: behind the end, those that follow the body.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }
}

/// One step: the stage behind it, and what it gave.
fn step(
    stage: Stage,
    cursor: &mut Cursor<'_>,
    acls: &mut BTreeMap<i64, Arc<Vec<Acl>>>,
    open_acl: &Arc<Vec<Acl>>,
) -> Result<(Stage, Option<Item>), Stop> {
    Ok(match stage {
        Stage::SessionCount => (Stage::Sessions(cursor.count("count of sessions")?), None),
        Stage::Sessions(0) => (Stage::AclCount, None),
        Stage::Sessions(left) => {
            let (id, timeout_ms) = (cursor.long()?, cursor.int()?);
            (Stage::Sessions(left - 1), Some(Item::Session { id, timeout_ms }))
        }
        Stage::AclCount => (Stage::Acls(cursor.count("count of lists")?), None),
        Stage::Acls(0) => (Stage::Nodes, None),
        Stage::Acls(left) => {
            let key = cursor.long()?;
            acls.insert(key, Arc::new(cursor.acl()?));
            (Stage::Acls(left - 1), None)
        }
        Stage::Nodes => {
            let path = cursor.bytes("path")?.ok_or(Malformed::new("path", "is null"))?;
            if path == END {
                return Ok((Stage::Ended, Some(Item::End)));
            }
            let data = cursor.bytes("data")?;
            let key = cursor.long()?;
            let stat = cursor.stat()?;
            let path = if path.is_empty() { Text::from_static("/") } else { text(path) };
            let acl = if key == OPEN_ACL_KEY {
                Some(Arc::clone(open_acl))
            } else {
                acls.get(&key).map(Arc::clone)
            };
            let data = data.map(Bytes::copy_from_slice);
            (Stage::Nodes, Some(Item::Node(Node { path, data, acl, stat })))
        }
        Stage::Ended => (Stage::Ended, None),
    })
}

fn text(bytes: &[u8]) -> Text {
    Text::from(String::from_utf8_lossy(bytes).into_owned())
}

/// Reads fields from bytes that may end in the middle of one.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let taken = self.bytes[self.at..].get(..length).ok_or(Stop::More)?;
        self.at += length;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32, Stop> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes(bytes.try_into().expect("four were taken")))
    }

    fn long(&mut self) -> Result<i64, Stop> {
        let bytes = self.take(8)?;
        Ok(i64::from_be_bytes(bytes.try_into().expect("eight were taken")))
    }

    fn count(&mut self, field: &'static str) -> Result<u32, Stop> {
        let count = self.int()?;
        u32::try_from(count).map_err(|_| Malformed::new(field, "is negative").into())
    }

    fn bytes(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, Stop> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        match usize::try_from(length) {
            Ok(length) if length <= FIELD_BYTES_MAX => self.take(length).map(Some),
            Ok(_) => Err(Malformed::new(field, "is longer than anything that is believed").into()),
            Err(_) => Err(Malformed::new(field, "has a negative length").into()),
        }
    }

    fn acl(&mut self) -> Result<Vec<Acl>, Stop> {
        let count = self.int()?;
        let count = usize::try_from(count).unwrap_or(0);
        if count > ACL_ENTRIES_MAX {
            return Err(Malformed::new("acl", "has more entries than are believed").into());
        }
        let mut entries = Vec::new();
        for _ in 0..count {
            let perms = self.int()?;
            let scheme = text(self.bytes("scheme")?.unwrap_or_default());
            let id = text(self.bytes("id")?.unwrap_or_default());
            entries.push(Acl { perms, scheme, id });
        }
        Ok(entries)
    }

    fn stat(&mut self) -> Result<StatPersisted, Stop> {
        Ok(StatPersisted {
            czxid: self.long()?,
            mzxid: self.long()?,
            ctime: self.long()?,
            mtime: self.long()?,
            version: self.int()?,
            cversion: self.int()?,
            aversion: self.int()?,
            ephemeral_owner: self.long()?,
            pzxid: self.long()?,
        })
    }
}

/// Appends the sessions, with which a body begins.
pub fn put_sessions(sessions: &[(i64, i32)], out: &mut Vec<u8>) {
    out.put_int(wire_len(sessions.len()));
    for (id, timeout_ms) in sessions {
        out.put_long(*id);
        out.put_int(*timeout_ms);
    }
}

/// Appends the lists but the open one, each with its number.
pub fn put_acls<'a>(acls: impl ExactSizeIterator<Item = (i64, &'a [Acl])>, out: &mut Vec<u8>) {
    out.put_int(wire_len(acls.len()));
    for (key, entries) in acls {
        out.put_long(key);
        Acl::encode_list(entries, out);
    }
}

/// Appends a znode, whose parent was appended before.
pub fn put_node(
    path: &str,
    data: Option<&[u8]>,
    acl_key: i64,
    stat: &StatPersisted,
    out: &mut Vec<u8>,
) {
    out.put_string(if path == "/" { "" } else { path });
    out.put_buffer(data);
    out.put_long(acl_key);
    for long in [stat.czxid, stat.mzxid, stat.ctime, stat.mtime] {
        out.put_long(long);
    }
    for int in [stat.version, stat.cversion, stat.aversion] {
        out.put_int(int);
    }
    out.put_long(stat.ephemeral_owner);
    out.put_long(stat.pzxid);
}

/// Appends what znodes end with.
pub fn put_end(out: &mut Vec<u8>) {
    out.put_buffer(Some(END));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::zookeeper) fn body() -> Vec<u8> {
        let mut out = Vec::new();
        put_sessions(&[(7, 4000), (-9, 30_000)], &mut out);
        let list = [Acl { perms: 1, ..Acl::open() }];
        put_acls([(3, &list[..])].into_iter(), &mut out);
        let stat = StatPersisted { czxid: 1, mzxid: 2, pzxid: 3, ..StatPersisted::default() };
        put_node("/", Some(b""), OPEN_ACL_KEY, &stat, &mut out);
        put_node("/a", None, 3, &stat, &mut out);
        put_node("/a/b", Some(b"data"), 4, &stat, &mut out);
        put_end(&mut out);
        out
    }

    fn decoded(bytes: &[u8], portion: usize) -> Result<(Vec<Item>, Vec<u8>), Malformed> {
        let mut decoder = SnapshotDecoder::default();
        let mut items = Vec::new();
        for portion in bytes.chunks(portion) {
            decoder.feed(portion);
            while let Some(item) = decoder.next_item()? {
                items.push(item);
            }
        }
        Ok((items, decoder.rest().to_vec()))
    }

    #[test]
    fn a_body_in_any_portions_gives_the_same_items_and_leaves_what_follows() {
        let mut bytes = body();
        bytes.extend_from_slice(b"BenWasHere");
        let (whole, rest) = decoded(&bytes, bytes.len()).unwrap();
        assert_eq!(rest, b"BenWasHere");
        assert_eq!(whole.len(), 2 + 3 + 1);
        let Item::Node(second) = &whole[3] else { panic!("{whole:?}") };
        assert_eq!((second.path.as_str(), &second.data), ("/a", &None));
        assert_eq!(second.acl.as_ref().unwrap()[0].perms, 1);
        let Item::Node(third) = &whole[4] else { panic!("{whole:?}") };
        assert_eq!(third.acl, None, "its list is not there");
        for portion in [1, 2, 3, 5, 7, 11, 64] {
            assert_eq!(decoded(&bytes, portion).unwrap(), (whole.clone(), rest.clone()));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let bytes = body();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = decoded(&bytes, bytes.len());
        }
    }

    #[test]
    fn a_length_is_bounded_before_its_bytes_are_waited_for() {
        let mut bytes = vec![0; 8];
        bytes.put_int(wire_len(FIELD_BYTES_MAX + 1));
        assert!(decoded(&bytes, 3).is_err());
        bytes.truncate(8);
        bytes.put_int(wire_len(FIELD_BYTES_MAX));
        assert!(decoded(&bytes, 3).is_ok());
    }
}
