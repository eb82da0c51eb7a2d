//! One record of the log: a group of entries and the hard state, made durable by one sync.
//!
//! *Owns* the encoding. All numbers are little-endian; a record is a multiple of 8 bytes:
//!
//! ```text
//! 0  tag       u32  of the segment: bytes of another file, or of a client, are never taken for ours
//! 4  length    u32  of the payload, a multiple of 8
//! 8  crc32c    u32  of all other bytes of the record
//! 12 chain     u32  crc32c of the record before (of the segment's header for the first)
//! 16 sequence  u64  of this record; one more than the record before, over all segments
//! 24 synced    u64  the sequence number up to which all was durable when this one was written
//! 32 payload        term u64, vote u64, commit u64 (the hard state), first index u64, count u32,
//!                   then per entry: term u64, kind u8, length u32, data; then zeros
//! ```
//!
//! *Invariant*: whatever byte of a record is changed, [`Record::decode`] refuses it.
//! *Never* copies the data of an entry that it decodes.

use bytes::Bytes;

use crate::mark::take;
use lockkeeper_core::replica::{Entry, EntryKind, HardState};

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 32;
/// Bytes of a payload without entries.
const FIXED_BYTES: usize = 36;
/// Bytes of an entry besides its data.
const ENTRY_BYTES: usize = 13;
/// Most bytes one entry's data may have. Requests are limited far below; this bounds what a damaged
/// length can make us allocate.
pub(crate) const ENTRY_BYTES_MAX: usize = 256 << 20;

/// Numbers of segments and records, and indexes of entries, are below this: one can be added to each.
pub(crate) const NUMBERS_MAX: u64 = 1 << 62;

/// Where a record stands in the log: what it must say of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) tag: u32,
    pub(crate) chain: u32,
    pub(crate) sequence: u64,
}

/// A record that was read and found intact.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) chain: u32,
    pub(crate) sequence: u64,
    pub(crate) synced: u64,
    pub(crate) crc: u32,
    pub(crate) hard_state: HardState,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Term of the last entry, 0 without entries.
    pub(crate) last_term: u64,
    /// The entries, encoded.
    entries: Bytes,
    /// Bytes of the whole record.
    pub(crate) len: usize,
}

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRecord {
    #[error("no record begins here (found {found:#010x}, expected {expected:#010x})")]
    Tag { expected: u32, found: u32 },
    #[error("a record of {length} bytes does not fit into the {room} bytes that are left")]
    Length { length: u64, room: u64 },
    #[error("checksum mismatch (crc32c expected {expected:#010x}, actual {actual:#010x})")]
    Crc { expected: u32, actual: u32 },
    #[error("its contents cannot be decoded ({0})")]
    Contents(&'static str),
}

impl BadRecord {
    /// Whether a write that was cut off can leave this behind.
    pub(crate) fn may_be_torn(&self) -> bool {
        match self {
            Self::Tag { .. } | Self::Length { .. } | Self::Crc { .. } => true,
            Self::Contents(_) => false,
        }
    }
}

/// Bytes of a record that holds `entries`.
pub(crate) fn encoded_len(entries: &[&Entry]) -> usize {
    let data: usize = entries.iter().map(|e| ENTRY_BYTES + e.data.len()).sum();
    HEADER_BYTES + (FIXED_BYTES + data).next_multiple_of(8)
}

/// Replaces the contents of `out` with a record; returns its crc.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    place: Place,
    synced: u64,
    hard_state: HardState,
    entries: &[&Entry],
) -> u32 {
    out.clear();
    let len = encoded_len(entries);
    out.reserve(len);
    out.extend_from_slice(&place.tag.to_le_bytes());
    let payload = u32::try_from(len - HEADER_BYTES).expect("groups are bounded by RECORD_BYTES");
    out.extend_from_slice(&payload.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&place.chain.to_le_bytes());
    out.extend_from_slice(&place.sequence.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(&hard_state.term.to_le_bytes());
    out.extend_from_slice(&hard_state.vote.to_le_bytes());
    out.extend_from_slice(&hard_state.commit.to_le_bytes());
    out.extend_from_slice(&entries.first().map_or(0, |e| e.index).to_le_bytes());
    let count = u32::try_from(entries.len()).expect("groups are bounded by RECORD_BYTES");
    out.extend_from_slice(&count.to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.term.to_le_bytes());
        out.push(match entry.kind {
            EntryKind::Normal => 0,
            EntryKind::ConfChange => 1,
        });
        let data = u32::try_from(entry.data.len()).expect("bounded by ENTRY_BYTES_MAX");
        out.extend_from_slice(&data.to_le_bytes());
        out.extend_from_slice(&entry.data);
    }
    out.resize(len, 0);
    let crc = checksum(out);
    out[8..12].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Bytes of the record that begins with `header`, if that is plausible.
pub(crate) fn len_of(header: &[u8; HEADER_BYTES], tag: u32, room: u64) -> Result<usize, BadRecord> {
    let mut bytes = &header[..];
    let found = u32::from_le_bytes(take(&mut bytes).expect("4 of 32 bytes"));
    let payload = u32::from_le_bytes(take(&mut bytes).expect("4 of 32 bytes")) as usize;
    if found != tag {
        return Err(BadRecord::Tag { expected: tag, found });
    }
    let length = (HEADER_BYTES + payload) as u64;
    if payload < FIXED_BYTES || !payload.is_multiple_of(8) || length > room {
        return Err(BadRecord::Length { length, room });
    }
    Ok(HEADER_BYTES + payload)
}

impl Record {
    /// Reads the record that is exactly `bytes` (as [`len_of`] says).
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, BadRecord> {
        let mut reader = &bytes[8..];
        let expected = u32::from_le_bytes(take(&mut reader).expect("a whole header"));
        let actual = checksum(&bytes);
        if expected != actual && !mutant!("log-checksum-unchecked") {
            return Err(BadRecord::Crc { expected, actual });
        }
        let mut record = Self::fields(&mut reader, expected, &bytes)
            .ok_or(BadRecord::Contents("it is too short"))?;
        record.last_term = record.check()?;
        Ok(record)
    }

    fn fields(reader: &mut &[u8], crc: u32, bytes: &Bytes) -> Option<Self> {
        let chain = u32::from_le_bytes(take(reader)?);
        let sequence = u64::from_le_bytes(take(reader)?);
        let synced = u64::from_le_bytes(take(reader)?);
        let term = u64::from_le_bytes(take(reader)?);
        let vote = u64::from_le_bytes(take(reader)?);
        let commit = u64::from_le_bytes(take(reader)?);
        let first = u64::from_le_bytes(take(reader)?);
        let count = u32::from_le_bytes(take(reader)?);
        let entries = bytes.slice_ref(reader);
        let hard_state = HardState { term, vote, commit };
        let len = bytes.len();
        let last_term = 0;
        Some(Self {
            chain,
            sequence,
            synced,
            crc,
            hard_state,
            first,
            count,
            last_term,
            entries,
            len,
        })
    }

    /// Walks over the entries, so that [`Record::entries`] cannot fail; returns the last term.
    fn check(&self) -> Result<u64, BadRecord> {
        let mut reader = &self.entries[..];
        let mut last_term = 0;
        for _ in 0..self.count {
            let entry = next_entry(&mut reader);
            last_term = entry.ok_or(BadRecord::Contents("an entry is cut off"))?.0;
        }
        if reader.len() >= 8 || reader.iter().any(|b| *b != 0) {
            return Err(BadRecord::Contents("there are bytes behind its entries"));
        }
        if self.count > 0 && !(1..NUMBERS_MAX).contains(&self.first) {
            return Err(BadRecord::Contents("its first index is impossible"));
        }
        Ok(last_term)
    }

    /// Index of the last entry, 0 without entries.
    pub(crate) fn last(&self) -> u64 {
        (self.first + u64::from(self.count)).saturating_sub(1)
    }

    /// The entries in index order, sharing the record's memory.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let mut rest = &self.entries[..];
        (0..u64::from(self.count)).map(move |i| {
            let (term, kind, data) = next_entry(&mut rest).expect("decode walked over all entries");
            Entry { term, index: self.first + i, kind, data: self.entries.slice_ref(data) }
        })
    }
}

fn next_entry<'a>(reader: &mut &'a [u8]) -> Option<(u64, EntryKind, &'a [u8])> {
    let term = u64::from_le_bytes(take(reader)?);
    let kind = match u8::from_le_bytes(take(reader)?) {
        0 => EntryKind::Normal,
        1 => EntryKind::ConfChange,
        2.. => return None,
    };
    let len = u32::from_le_bytes(take(reader)?) as usize;
    let (data, rest) = reader.split_at_checked(len)?;
    *reader = rest;
    Some((term, kind, data))
}

/// crc32c of a record without the four bytes that hold it.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { tag: 0x1234_5679, chain: 3, sequence: 4 };

    fn entry(index: u64, data: &'static [u8]) -> Entry {
        Entry { term: 2, index, kind: EntryKind::Normal, data: Bytes::from_static(data) }
    }

    fn encoded(entries: &[&Entry]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, PLACE, 3, HardState { term: 2, vote: 1, commit: 5 }, entries);
        assert_eq!(out.len(), encoded_len(entries));
        out
    }

    fn parse(bytes: &[u8]) -> Result<Record, BadRecord> {
        let header = bytes.first_chunk().ok_or(BadRecord::Contents("short"))?;
        let len = len_of(header, PLACE.tag, bytes.len() as u64)?;
        Record::decode(Bytes::copy_from_slice(&bytes[..len]))
    }

    #[test]
    fn a_record_gives_back_what_was_put_in() {
        let conf = Entry { kind: EntryKind::ConfChange, ..entry(8, b"") };
        let bytes = encoded(&[&entry(7, b"hello"), &conf]);
        let record = parse(&bytes).unwrap();
        assert_eq!(record.entries().collect::<Vec<_>>(), [entry(7, b"hello"), conf]);
        assert_eq!(record.hard_state, HardState { term: 2, vote: 1, commit: 5 });
        assert_eq!((record.chain, record.sequence, record.synced), (3, 4, 3));
        assert_eq!((record.last(), record.last_term), (8, 2));
    }

    #[test]
    fn a_record_may_hold_the_hard_state_alone() {
        let record = parse(&encoded(&[])).unwrap();
        assert_eq!((record.entries().count(), record.last(), record.last_term), (0, 0, 0));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let bytes = encoded(&[&entry(7, b"hello"), &entry(8, b"world!!!")]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(parse(&bad).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn every_cut_is_noticed() {
        let bytes = encoded(&[&entry(7, b"hello")]);
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "length {len}");
        }
    }
}
