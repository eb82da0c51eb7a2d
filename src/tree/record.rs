//! The persisted form of a znode: the value stored under its path.
//!
//! *Owns* the layout, which starts with a version. *Invariants*: decoding never panics, whatever
//! the bytes; decoding what was encoded gives the same znode.
//! *Never*: detects damage that leaves a well-formed record. Checksums and the digest of the tree
//! do that.
//!
//! Layout 1, integers big-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | 1: the version of the layout |
//! | 1 | flags: 1 has data (else null), 2 has an ACL (else the open one) |
//! | 5 x 8 | czxid, mzxid, pzxid, ctime, mtime |
//! | 8 | owner, as ZooKeeper encodes it |
//! | 3 x 4 | version, children ever created, aversion |
//! | .. | with flag 2: count, then perms, scheme, id of each entry, as on the wire |
//! | .. | the rest: data |

use bytes::Bytes;

use crate::proto::{Acl, Reader, Writer};

use super::acl::AclList;
use super::acls::AclId;
use super::znode::{Meta, Znode};

const LAYOUT: u8 = 1;
const HAS_DATA: u8 = 1;
const HAS_ACL: u8 = 2;
const FLAGS: u8 = HAS_DATA | HAS_ACL;

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its `acl` says nothing.
    pub(super) meta: Meta,
    /// `None` for the open list.
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) data: Option<Bytes>,
}

/// Appends the record of a znode.
pub(super) fn encode(znode: &Znode, acl: &AclList, out: &mut Vec<u8>) {
    let meta = &znode.meta;
    out.push(LAYOUT);
    let has_data = if znode.data().is_some() { HAS_DATA } else { 0 };
    out.push(has_data | if acl.is_open() { 0 } else { HAS_ACL });
    for long in [meta.czxid, meta.mzxid, meta.pzxid, meta.ctime, meta.mtime, meta.owner] {
        out.put_long(long);
    }
    for int in [meta.version, meta.creates, meta.aversion] {
        out.put_int(int);
    }
    if !acl.is_open() {
        Acl::encode_list(acl.entries(), out);
    }
    out.extend_from_slice(znode.data().unwrap_or_default());
}

/// Reads a record.
pub(super) fn decode(value: &[u8]) -> Result<Record, &'static str> {
    let [layout, flags, rest @ ..] = value else {
        return Err("is shorter than its head");
    };
    if *layout != LAYOUT {
        return Err("has an unknown layout");
    }
    if flags & !FLAGS != 0 {
        return Err("has unknown flags");
    }
    let mut reader = Reader::new(Bytes::copy_from_slice(rest));
    let fields = |reader: &mut Reader| {
        let mut long = || reader.long("record");
        let (czxid, mzxid, pzxid) = (long()?, long()?, long()?);
        let (ctime, mtime, owner) = (long()?, long()?, long()?);
        let mut int = || reader.int("record");
        let (version, creates, aversion) = (int()?, int()?, int()?);
        let acl = AclId::OPEN;
        let meta =
            Meta { czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, aversion, acl };
        let acl = if flags & HAS_ACL != 0 { Acl::decode_list(reader)? } else { None };
        Ok::<_, crate::proto::Malformed>((meta, acl))
    };
    let (meta, acl) = fields(&mut reader).map_err(|_| "is too short or has a malformed ACL")?;
    if flags & HAS_ACL != 0 && acl.as_ref().is_none_or(Vec::is_empty) {
        return Err("has no entry in its ACL");
    }
    let data = reader.rest();
    if flags & HAS_DATA == 0 && !data.is_empty() {
        return Err("has bytes behind its end");
    }
    Ok(Record { meta, acl, data: (flags & HAS_DATA != 0).then_some(data) })
}
