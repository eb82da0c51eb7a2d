//! The parts of messages between servers <-> bytes: numbers within their bounds, byte strings, counts.
//!
//! *Owns* what both codecs of this room are made of. *Invariant*: a number is compared with its bound where it
//! is decoded. *Never* allocates from a count.

use bytes::Bytes;

use crate::proto::{Malformed, Reader};
use crate::replica::bounds::{INDEX_MAX, RAFT_ID_MAX, TERM_MAX};

/// Most entries in one message.
pub(in crate::replica) const MESSAGE_ENTRIES_MAX: usize = 1 << 20;
/// Most servers in one part of an announced membership.
pub(in crate::replica) const MEMBERS_MAX: usize = 1024;
/// Longest context of a message or an entry, bytes.
pub(in crate::replica) const CONTEXT_BYTES_MAX: usize = 64 << 10;
/// Shortest entry: kind, term, index and two lengths.
pub(in crate::replica) const ENTRY_BYTES_MIN: usize = 1 + 8 + 8 + 4 + 4;

pub(in crate::replica) fn bytes(reader: &mut Reader) -> Result<Bytes, Malformed> {
    reader.buffer("data")?.ok_or(Malformed::new("data", "is null"))
}

/// An index, a time, or another number that is counted up.
pub(in crate::replica) fn number(
    reader: &mut Reader,
    field: &'static str,
) -> Result<u64, Malformed> {
    bounded(reader, field, INDEX_MAX)
}

pub(in crate::replica) fn term(reader: &mut Reader) -> Result<u64, Malformed> {
    bounded(reader, "term", TERM_MAX)
}

pub(in crate::replica) fn raft_id(
    reader: &mut Reader,
    field: &'static str,
) -> Result<u64, Malformed> {
    bounded(reader, field, RAFT_ID_MAX)
}

pub(in crate::replica) fn bounded(
    reader: &mut Reader,
    field: &'static str,
    most: u64,
) -> Result<u64, Malformed> {
    match u64::try_from(reader.long(field)?) {
        Ok(number) if number <= most => Ok(number),
        Ok(_) | Err(_) => Err(Malformed::new(field, "is out of range")),
    }
}

pub(in crate::replica) fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: i64) -> Reader {
        Reader::new(value.to_be_bytes().to_vec().into())
    }

    #[test]
    fn a_number_that_is_negative_or_above_its_bound_is_malformed() {
        let most = INDEX_MAX.cast_signed();
        assert_eq!(number(&mut read(most), "index").ok(), Some(INDEX_MAX));
        assert!(number(&mut read(most + 1), "index").is_err());
        assert!(number(&mut read(-1), "index").is_err());
        assert!(term(&mut read(TERM_MAX.cast_signed() + 1)).is_err());
        assert!(raft_id(&mut read(RAFT_ID_MAX.cast_signed() + 1), "vote").is_err());
    }
}
