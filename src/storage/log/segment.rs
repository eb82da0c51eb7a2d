//! One file of the log.
//!
//! *Owns* the header, how a segment comes to be, and how its records are read one after another.
//! *Invariants*: a segment has its final size from the start, zeros behind its last record; its
//! header is durable before its name is; every record begins at a multiple of 8 bytes. *Never*
//! decides what a bad record means: that is `log/replay.rs`.
//!
//! ```text
//! 0   magic     "LKLOGSEG"       64  base term      u64
//! 8   version   u32              72  first sequence u64
//! 12  flags     u32 (1: reset)   80  hard state     3 x u64
//! 16  cluster   u128             104 previous crc   u32
//! 32  node      u64              108 zeros
//! 40  number    u64              124 crc32c         u32 of the bytes before
//! 48  size      u64              128 records
//! 56  base index u64
//! ```

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::record::{self, BadRecord, NUMBERS_MAX, Record};
use crate::formats::KNOWN;
use crate::fs::{DiskFile, Fs, FsError, Reserved};
use crate::mark::take;
use lockkeeper_core::replica::HardState;

/// Size of a segment unless [`LogOptions::segment_bytes`] says otherwise.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest size of a segment that can be asked for.
const SEGMENT_BYTES_MIN: u64 = 512;
/// Bytes before the first record.
pub(crate) const HEADER_BYTES: u64 = 128;
const MAGIC: &[u8; 8] = b"LKLOGSEG";
const FLAG_RESET: u32 = 1;
/// Name of a segment that was made ahead of need and holds nothing yet.
pub(crate) const PREPARED: &str = "prepared";
const SUFFIX: &str = ".log";
/// How much is read at a time while records are read one after another.
const CHUNK_BYTES: usize = 1 << 20;
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// What is fixed for the life of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The ensemble it belongs to.
    pub cluster_id: u128,
    /// The server it belongs to, by its raft id.
    pub node_id: u64,
    /// Size of a new segment in bytes, at least `SEGMENT_BYTES_MIN`.
    pub segment_bytes: u64,
    /// Whether there are other servers that a damaged one can fetch its state from.
    pub ensemble: bool,
}

impl LogOptions {
    /// What an operator can do about a damaged log.
    pub(crate) fn advice(&self) -> &'static str {
        if self.ensemble {
            "nothing was changed; restore the file, or have this server fetch everything from \
             the others again: lockkeeper server --rejoin"
        } else {
            "nothing was changed; restore the file from a copy, or start on a new data directory \
             from a backup"
        }
    }

    /// Size of a new segment whose first record has `len` bytes.
    pub(super) fn segment_size(&self, len: u64) -> u64 {
        self.segment_bytes.max(SEGMENT_BYTES_MIN).max(HEADER_BYTES + len).next_multiple_of(8)
    }
}

/// An index and the term of the entry there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Index of an entry, 0 before the first.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// What a segment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Of the format: `storage/formats.rs`.
    pub(crate) version: u32,
    pub(crate) cluster_id: u128,
    pub(crate) node_id: u64,
    /// Place among the segments.
    pub(crate) number: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// The log goes back to here before the first record: all its entries come behind.
    pub(crate) base: Position,
    /// Whether the log before does not lead up to `base`: an image was installed there.
    pub(crate) reset: bool,
    /// Sequence number of the first record.
    pub(crate) sequence: u64,
    pub(crate) hard_state: HardState,
    /// crc32c of the record before the first one.
    pub(crate) previous_crc: u32,
}

/// Why a header is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHeader {
    #[error("it does not begin like a log segment")]
    Magic,
    #[error("its format version is {0}, this program knows up to {known}", known = KNOWN.segment)]
    Version(u32),
    #[error("header checksum mismatch (crc32c expected {expected:#010x}, actual {actual:#010x})")]
    Crc { expected: u32, actual: u32 },
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut out = Vec::with_capacity(HEADER_BYTES as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(if self.reset { FLAG_RESET } else { 0 }).to_le_bytes());
        out.extend_from_slice(&self.cluster_id.to_le_bytes());
        for number in [
            self.node_id,
            self.number,
            self.size,
            self.base.index,
            self.base.term,
            self.sequence,
            self.hard_state.term,
            self.hard_state.vote,
            self.hard_state.commit,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.previous_crc.to_le_bytes());
        out.resize(HEADER_BYTES as usize - 4, 0);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out.try_into().expect("filled up to its size")
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Self, BadHeader> {
        let mut reader = &bytes[..];
        if &field::<8>(&mut reader) != MAGIC {
            return Err(BadHeader::Magic);
        }
        let version = u32::from_le_bytes(field(&mut reader));
        let (head, tail) = bytes.split_last_chunk::<4>().expect("longer than 4 bytes");
        let (expected, actual) = (u32::from_le_bytes(*tail), crc32c::crc32c(head));
        // Before the version: one that is damaged must not be taken for a later one. The header has
        // this size, and its checksum this place, in every version.
        if expected != actual {
            return Err(BadHeader::Crc { expected, actual });
        }
        if version == 0 || version > KNOWN.segment {
            return Err(BadHeader::Version(version));
        }
        let reset = u32::from_le_bytes(field(&mut reader)) & FLAG_RESET != 0;
        let cluster_id = u128::from_le_bytes(field(&mut reader));
        let mut number = || u64::from_le_bytes(field(&mut reader));
        Ok(Self {
            version,
            cluster_id,
            reset,
            node_id: number(),
            number: number(),
            size: number(),
            base: Position { index: number(), term: number() },
            sequence: number(),
            hard_state: HardState { term: number(), vote: number(), commit: number() },
            previous_crc: u32::from_le_bytes(field(&mut reader)),
        })
    }

    /// Whether a log can have come to this.
    pub(crate) fn is_possible(&self) -> bool {
        let numbers = [self.number, self.base.index, self.sequence];
        self.size >= HEADER_BYTES
            && self.sequence > 0
            && numbers.iter().all(|number| *number < NUMBERS_MAX)
    }

    /// crc32c of the header: what the first record chains to.
    pub(crate) fn crc(&self) -> u32 {
        let bytes = self.encode();
        u32::from_le_bytes(*bytes.last_chunk().expect("longer than 4 bytes"))
    }

    /// What every record of this segment begins with. It depends on the random cluster id, so no
    /// client can put something into the log that looks like a record; and it is not zero.
    pub(crate) fn tag(&self) -> u32 {
        self.crc() | 1
    }
}

fn field<const N: usize>(reader: &mut &[u8]) -> [u8; N] {
    take(reader).expect("all fields lie within the header")
}

/// Name of the segment with this number.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

/// The number in a segment's name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

/// Makes an empty segment of `size` bytes under the name [`PREPARED`], replacing one that is there.
pub(crate) fn prepare(
    fs: &dyn Fs,
    dir: &Path,
    size: u64,
) -> Result<(PathBuf, Box<dyn DiskFile>), FsError> {
    let path = dir.join(PREPARED);
    if fs.has(dir, PREPARED)? {
        fs.remove(&path)?;
    }
    let mut file = fs.create(&path)?;
    file.write_past_cache();
    if file.preallocate(size)? == Reserved::No {
        tracing::debug!(
            target: crate::TARGET,
            file = %path.display(),
            "no space could be reserved: the file is sparse"
        );
    }
    file.sync()?;
    Ok((path, file))
}

/// Turns a prepared file into the segment that `header` describes; durable on return.
pub(crate) fn publish(
    fs: &dyn Fs,
    dir: &Path,
    prepared: &Path,
    file: &mut dyn DiskFile,
    header: &SegmentHeader,
) -> Result<PathBuf, FsError> {
    file.write_at(&header.encode(), 0)?;
    file.sync()?;
    let path = dir.join(file_name(header.number));
    fs.rename(prepared, &path)?;
    if !mutant!("segment-name-not-synced") {
        fs.sync_dir(dir)?;
    }
    Ok(path)
}

/// Reads the records of a segment one after another.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    file: &'a dyn DiskFile,
    tag: u32,
    size: u64,
    /// Where the next record begins.
    pub(crate) offset: u64,
    chunk: Bytes,
    chunk_offset: u64,
}

impl<'a> Records<'a> {
    /// Reads from `offset` on in a file of `size` bytes.
    pub(crate) fn new(file: &'a dyn DiskFile, tag: u32, size: u64, offset: u64) -> Self {
        Self { file, tag, size, offset, chunk: Bytes::new(), chunk_offset: 0 }
    }

    /// The record at `offset`, which moves behind it; `None` at the end of the file.
    pub(crate) fn read(&mut self) -> Result<Option<Result<Record, BadRecord>>, FsError> {
        let room = self.size - self.offset;
        if room < record::HEADER_BYTES as u64 {
            return Ok(None);
        }
        let header = self.bytes(record::HEADER_BYTES)?;
        let header = header.first_chunk().expect("as many bytes as were asked for");
        let len = match record::len_of(header, self.tag, room) {
            Ok(len) => len,
            Err(bad) => return Ok(Some(Err(bad))),
        };
        let record = Record::decode(self.bytes(len)?);
        if record.is_ok() {
            self.offset += len as u64;
        }
        Ok(Some(record))
    }

    /// Where anything but zeros begins and ends, from `offset` on.
    pub(crate) fn used(&mut self) -> Result<Option<(u64, u64)>, FsError> {
        let mut used: Option<(u64, u64)> = None;
        let mut at = self.offset;
        while at < self.size {
            let chunk = self.chunk_at(at)?;
            if chunk[..] != ZEROS[..chunk.len()] {
                let first = chunk.iter().position(|b| *b != 0).expect("one is not zero") as u64;
                let last = chunk.iter().rposition(|b| *b != 0).expect("one is not zero") as u64;
                used = Some((used.map_or(at + first, |u| u.0), at + last + 1));
            }
            at += chunk.len() as u64;
        }
        Ok(used)
    }

    /// The first intact record that begins between `offset` (exclusive) and `end`, and where.
    pub(crate) fn search(&mut self, end: u64) -> Result<Option<(u64, Record)>, FsError> {
        let bad = self.offset;
        let mut at = bad + 8;
        while at < end {
            let chunk = self.chunk_at(at)?;
            let found = chunk.chunks_exact(8).position(|c| c[..4] == self.tag.to_le_bytes());
            let Some(found) = found else {
                at += chunk.len().max(8) as u64;
                continue;
            };
            at += found as u64 * 8;
            self.offset = at;
            let record = self.read()?;
            self.offset = bad;
            if let Some(Ok(record)) = record {
                return Ok(Some((at, record)));
            }
            at += 8;
        }
        Ok(None)
    }

    /// Up to a chunk of bytes from `at` on, a multiple of 8 unless the file ends.
    fn chunk_at(&mut self, at: u64) -> Result<Bytes, FsError> {
        let len = usize::try_from(self.size - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut chunk = vec![0; len];
        self.file.read_at(&mut chunk, at)?;
        Ok(chunk.into())
    }

    /// `len` bytes from `offset` on, which the file has.
    fn bytes(&mut self, len: usize) -> Result<Bytes, FsError> {
        let start = self.offset.wrapping_sub(self.chunk_offset);
        let held = self.chunk.len() as u64;
        if start > held || held - start < len as u64 {
            let room = usize::try_from(self.size - self.offset).unwrap_or(usize::MAX);
            let mut chunk = vec![0; len.max(CHUNK_BYTES.min(room))];
            // What is missing of a file that ends early reads as zeros: no record.
            self.file.read_at(&mut chunk, self.offset)?;
            self.chunk = chunk.into();
            self.chunk_offset = self.offset;
        }
        let start = (self.offset - self.chunk_offset) as usize;
        Ok(self.chunk.slice(start..start + len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            version: 1,
            cluster_id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
            node_id: 1,
            number: 7,
            size: 4096,
            base: Position { index: 10, term: 2 },
            reset: false,
            sequence: 55,
            hard_state: HardState { term: 2, vote: 1, commit: 9 },
            previous_crc: 0xdead_beef,
        }
    }

    #[test]
    fn a_header_survives_encoding() {
        assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
        let reset = SegmentHeader { reset: true, ..header() };
        assert_eq!(SegmentHeader::decode(&reset.encode()), Ok(reset));
    }

    #[test]
    fn every_changed_bit_of_a_header_is_noticed() {
        for at in 0..HEADER_BYTES as usize {
            for bit in 0..8 {
                let mut bytes = header().encode();
                bytes[at] ^= 1 << bit;
                assert!(SegmentHeader::decode(&bytes).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_header_of_a_later_version_is_told_apart_from_a_damaged_one() {
        let mut bytes = header().encode();
        bytes[8] = u8::try_from(KNOWN.segment + 1).unwrap();
        assert!(matches!(SegmentHeader::decode(&bytes), Err(BadHeader::Crc { .. })));
        let (head, tail) = bytes.split_last_chunk_mut::<4>().unwrap();
        *tail = crc32c::crc32c(head).to_le_bytes();
        assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Version(KNOWN.segment + 1)));
    }

    #[test]
    fn only_our_own_names_are_segments() {
        assert_eq!(number_of(&file_name(0xab)), Some(0xab));
        for name in ["ab.log", "00000000000000AB.log", "00000000000000ab.bad", "prepared", ".log"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
