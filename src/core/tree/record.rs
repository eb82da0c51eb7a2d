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
//! | 1 | flags: 1 has data (else null), 2 has an ACL (else the open one), 4 has a steady time |
//! | 5 x 8 | czxid, mzxid, pzxid, ctime, mtime |
//! | 8 | owner, as ZooKeeper encodes it |
//! | 3 x 4 | version, children ever created, aversion |
//! | 8 | with flag 4: when it was changed last, by the steady clock (else as mtime) |
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
const HAS_STEADY: u8 = 4;
const FLAGS: u8 = HAS_DATA | HAS_ACL | HAS_STEADY;

/// Six times eight and three times four.
const NUMBERS_BYTES: usize = 60;

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Its `acl` says nothing.
    pub(super) meta: Meta,
    /// `None` for the open list.
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) data: Option<&'a [u8]>,
}

/// Appends the record of a znode.
pub(super) fn encode(znode: &Znode, acl: &AclList, out: &mut Vec<u8>) {
    let meta = &znode.meta;
    out.push(LAYOUT);
    let has_data = if znode.data().is_some() { HAS_DATA } else { 0 };
    let has_acl = if acl.is_open() { 0 } else { HAS_ACL };
    let has_steady = if meta.steady_ms == meta.mtime { 0 } else { HAS_STEADY };
    out.push(has_data | has_acl | has_steady);
    for long in [meta.czxid, meta.mzxid, meta.pzxid, meta.ctime, meta.mtime, meta.owner] {
        out.put_long(long);
    }
    for int in [meta.version, meta.creates, meta.aversion] {
        out.put_int(int);
    }
    if meta.steady_ms != meta.mtime {
        out.put_long(meta.steady_ms);
    }
    if !acl.is_open() {
        Acl::encode_list(acl.entries(), out);
    }
    out.extend_from_slice(znode.data().unwrap_or_default());
}

/// Reads a record.
pub(super) fn decode(value: &[u8]) -> Result<Record<'_>, &'static str> {
    let [layout, flags, rest @ ..] = value else {
        return Err("is shorter than its head");
    };
    if *layout != LAYOUT {
        return Err("has an unknown layout");
    }
    if flags & !FLAGS != 0 {
        return Err("has unknown flags");
    }
    let Some((numbers, rest)) = rest.split_first_chunk::<NUMBERS_BYTES>() else {
        return Err("is too short");
    };
    let mut meta = decode_numbers(numbers);
    let mut rest = rest;
    if flags & HAS_STEADY != 0 {
        meta.steady_ms = take(&mut rest).map(i64::from_be_bytes).ok_or("is too short")?;
        if meta.steady_ms == meta.mtime {
            return Err("has a steady time that is left out");
        }
    }
    let (acl, data) = match flags & HAS_ACL {
        0 => (None, rest),
        _ => decode_acl(rest)?,
    };
    if flags & HAS_DATA == 0 && !data.is_empty() {
        return Err("has bytes behind its end");
    }
    let data = (flags & HAS_DATA != 0).then_some(data);
    Ok(Record { meta, acl, data })
}

fn decode_numbers(numbers: &[u8; NUMBERS_BYTES]) -> Meta {
    let mut left = &numbers[..];
    let mut long = || take(&mut left).map_or(0, i64::from_be_bytes);
    let [czxid, mzxid, pzxid, ctime, mtime, owner] = std::array::from_fn(|_| long());
    let mut int = || take(&mut left).map_or(0, i32::from_be_bytes);
    let [version, creates, aversion] = std::array::from_fn(|_| int());
    let (steady_ms, acl) = (mtime, AclId::OPEN);
    Meta { czxid, mzxid, pzxid, ctime, mtime, steady_ms, owner, version, creates, aversion, acl }
}

fn take<const N: usize>(left: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = left.split_first_chunk()?;
    *left = rest;
    Some(*field)
}

/// The list at the front, and what is behind it.
fn decode_acl(bytes: &[u8]) -> Result<(Option<Vec<Acl>>, &[u8]), &'static str> {
    let mut reader = Reader::new(Bytes::copy_from_slice(bytes));
    let acl = Acl::decode_list(&mut reader).map_err(|_| "has a malformed ACL")?;
    if acl.as_ref().is_none_or(Vec::is_empty) {
        return Err("has no entry in its ACL");
    }
    Ok((acl, &bytes[bytes.len() - reader.rest().len()..]))
}
