//! Reads a log from its files when it is opened, and judges what it finds.
//!
//! *Owns* the rule that tells a write which was cut off from damage. The log is written one record
//! at a time, each synced before the next is written, so at most the very last record can be
//! incomplete after a crash, and no server was told that it is durable:
//!
//! - a bad record at the end of the last segment, with nothing valid behind it, is *torn*: dropped;
//! - a bad record with a valid one behind it was synced, so it is *damaged*: refused. So are a bad
//!   record in an earlier segment, a file of the wrong size, a record in the wrong place, a gap.
//!
//! One case cannot be told apart: the very last record, synced and acknowledged, whose bits rotted
//! afterwards, looks exactly like a torn one. A clean stop writes one more record, and images
//! beyond the end of the log are noticed by `mod.rs`; after a crash, nothing else could know.
//!
//! *Never* writes: a log that is refused stays as it is.

use std::path::{Path, PathBuf};

use super::error::LogError;
use super::record::{BadRecord, Record};
use super::segment::{self, BadHeader, HEADER_BYTES, LogOptions, Position, Records, SegmentHeader};
use super::spans::Spans;
use crate::formats::KNOWN;
use crate::fs::{DiskFile, Fs};
use lockkeeper_core::replica::HardState;

/// The end of a log that was being written when the server died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    /// Where the incomplete record begins.
    pub(crate) offset: u64,
    /// Behind the last byte of it.
    pub(crate) end: u64,
    /// For the log.
    pub(crate) message: String,
}

/// What the files of a log say.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Oldest first; at least one.
    pub(crate) segments: Vec<SegmentHeader>,
    pub(crate) spans: Spans,
    pub(crate) base: Position,
    pub(crate) last: Position,
    pub(crate) hard_state: HardState,
    /// Sequence number of the last record.
    pub(crate) sequence: u64,
    /// Its crc.
    pub(crate) crc: u32,
    /// Where the last record in the last segment begins, or would begin.
    pub(crate) last_record: u64,
    /// Behind the last record in the last segment.
    pub(crate) end: u64,
    pub(crate) torn: Option<Torn>,
}

/// Reads all segments in `dir`; returns the last one open.
pub(crate) fn replay(
    fs: &dyn Fs,
    dir: &Path,
    options: &LogOptions,
) -> Result<(Replayed, Box<dyn DiskFile>), LogError> {
    let names = fs.list(dir)?;
    let numbers: Vec<u64> = names.iter().filter_map(|n| segment::number_of(n)).collect();
    let Some(newest) = numbers.last() else {
        return Err(LogError::Missing { dir: dir.to_owned(), advice: options.advice() });
    };
    let mut replayed: Option<(Replayed, Box<dyn DiskFile>)> = None;
    for number in &numbers {
        let segment = Opened::open(fs, dir, *number, options)?;
        let mut state = segment.continue_after(replayed.map(|r| r.0))?;
        segment.records(&mut state, number == newest)?;
        replayed = Some((state, segment.file));
    }
    let (state, active) = replayed.expect("there is at least one segment");
    if state.hard_state.commit > state.last.index {
        return Err(LogError::Damaged {
            path: dir.join(segment::file_name(*newest)),
            offset: state.end,
            what: format!(
                "the log ends with entry {}, but says that {} entries are committed",
                state.last.index, state.hard_state.commit
            ),
            advice: options.advice(),
        });
    }
    Ok((state, active))
}

/// A segment whose header is intact.
struct Opened<'a> {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    header: SegmentHeader,
    options: &'a LogOptions,
}

impl<'a> Opened<'a> {
    fn open(
        fs: &dyn Fs,
        dir: &Path,
        number: u64,
        options: &'a LogOptions,
    ) -> Result<Self, LogError> {
        let path = dir.join(segment::file_name(number));
        let file = fs.open(&path)?;
        let mut bytes = [0; HEADER_BYTES as usize];
        file.read_at(&mut bytes, 0)?;
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) => header,
            Err(BadHeader::Version(version)) if version > KNOWN.segment => {
                return Err(LogError::Future { path, version });
            }
            Err(bad) => {
                let advice = options.advice();
                return Err(LogError::Damaged { path, offset: 0, what: bad.to_string(), advice });
            }
        };
        let len = file.len()?;
        let opened = Self { path, file, header, options };
        let header = &opened.header;
        if (header.cluster_id, header.node_id) != (options.cluster_id, options.node_id) {
            return Err(LogError::Foreign {
                cluster_id: header.cluster_id,
                node_id: header.node_id,
                expected_cluster_id: options.cluster_id,
                expected_node_id: options.node_id,
                path: opened.path,
            });
        }
        if header.size != len {
            let what = format!("it has {len} bytes, but was made with {}", header.size);
            return Err(opened.damaged(len.min(header.size), what));
        }
        if !header.is_possible() {
            return Err(opened.damaged(40, "its numbers are impossible".to_owned()));
        }
        if header.number != number {
            let what = format!("it is segment {}, by its header", header.number);
            return Err(opened.damaged(40, what));
        }
        Ok(opened)
    }

    /// The state before the first record of this segment.
    fn continue_after(&self, before: Option<Replayed>) -> Result<Replayed, LogError> {
        let header = self.header.clone();
        let base = header.base;
        let Some(mut state) = before else {
            return Ok(Replayed {
                spans: Spans::default(),
                base,
                last: base,
                hard_state: header.hard_state,
                sequence: header.sequence - 1,
                crc: header.crc(),
                last_record: HEADER_BYTES,
                end: HEADER_BYTES,
                torn: None,
                segments: vec![header],
            });
        };
        let newest = state.segments.last().expect("a state has a segment").number;
        if header.number != newest + 1 {
            let what = format!("segment {} before it is missing", segment::file_name(newest + 1));
            return Err(self.damaged(0, what));
        }
        if header.previous_crc != state.crc || header.sequence != state.sequence + 1 {
            let what = format!(
                "it does not continue the segment before it (record {} with crc32c {:#010x} \
                 expected there, actual {} with {:#010x}): the end of that one is missing",
                header.sequence - 1,
                header.previous_crc,
                state.sequence,
                state.crc
            );
            return Err(self.damaged(0, what));
        }
        let joins = if base.index == state.last.index {
            base.term == state.last.term
        } else {
            base.index < state.last.index
        };
        if !joins && !header.reset {
            let what = format!(
                "it continues entry {} of term {}, but the log before ends with {} of term {}",
                base.index, base.term, state.last.index, state.last.term
            );
            return Err(self.damaged(56, what));
        }
        state.spans.truncate(if header.reset { 0 } else { base.index + 1 });
        if header.reset || base.index < state.base.index {
            state.base = base;
        }
        state.last = base;
        state.hard_state = header.hard_state;
        state.crc = header.crc();
        state.last_record = HEADER_BYTES;
        state.end = HEADER_BYTES;
        state.segments.push(header);
        Ok(state)
    }

    /// Reads the records into `state`.
    fn records(&self, state: &mut Replayed, newest: bool) -> Result<(), LogError> {
        let header = &self.header;
        let mut records = Records::new(&*self.file, header.tag(), header.size, HEADER_BYTES);
        loop {
            let offset = records.offset;
            state.end = offset;
            match records.read()? {
                None => break,
                Some(Ok(record)) => self.take(state, offset, &record)?,
                Some(Err(bad)) => {
                    state.torn = self.judge(&mut records, &bad, state.sequence, newest)?;
                    return Ok(());
                }
            }
        }
        // Less than a record's header is left: it must be zeros as well.
        match records.used()? {
            None => Ok(()),
            Some((at, end)) if newest => {
                let message = self.torn_message(at, "bytes behind the last record");
                state.torn = Some(Torn { offset: state.end, end, message });
                Ok(())
            }
            Some((at, _)) => {
                Err(self.damaged(at, "there are bytes behind the last record".to_owned()))
            }
        }
    }

    fn take(&self, state: &mut Replayed, offset: u64, record: &Record) -> Result<(), LogError> {
        if record.sequence != state.sequence + 1 || record.chain != state.crc {
            let what = format!(
                "record {} (after crc32c {:#010x}) expected, actual {} (after {:#010x})",
                state.sequence + 1,
                state.crc,
                record.sequence,
                record.chain
            );
            return Err(self.damaged(offset, what));
        }
        if record.count > 0 {
            let (first, last) = (record.first, record.last());
            if first > state.last.index + 1 || first <= self.header.base.index {
                let what = format!(
                    "entry {first} cannot follow entry {} in a segment that begins after entry {}",
                    state.last.index, self.header.base.index
                );
                return Err(self.damaged(offset, what));
            }
            state.spans.add(first, last, self.header.number, offset, record.len as u64);
            state.last = Position { index: last, term: record.last_term };
        }
        state.last_record = offset;
        state.hard_state = record.hard_state;
        state.sequence = record.sequence;
        state.crc = record.crc;
        Ok(())
    }

    /// What a bad record after `sequence` means: nothing but zeros follow (`None`), it is torn, or
    /// the log is damaged.
    fn judge(
        &self,
        records: &mut Records<'_>,
        bad: &BadRecord,
        sequence: u64,
        newest: bool,
    ) -> Result<Option<Torn>, LogError> {
        let offset = records.offset;
        let Some((_, end)) = records.used()? else {
            return Ok(None);
        };
        if !newest || !bad.may_be_torn() {
            return Err(self.damaged(offset, bad.to_string()));
        }
        if let Some((at, later)) = records.search(end)? {
            let what = format!(
                "{bad}; record {} was synced here: record {} at offset {at} says that all up to \
                 {} is durable",
                sequence + 1,
                later.sequence,
                later.synced
            );
            return Err(self.damaged(offset, what));
        }
        let message = self.torn_message(offset, &bad.to_string());
        Ok(Some(Torn { offset, end, message }))
    }

    fn torn_message(&self, offset: u64, what: &str) -> String {
        format!("{}: offset {offset}: {what}", self.path.display())
    }

    fn damaged(&self, offset: u64, what: String) -> LogError {
        let advice = self.options.advice();
        LogError::Damaged { path: self.path.clone(), offset, what, advice }
    }
}
