//! The replicated log and the hard state on disk.
//!
//! *Owns* the segments and everything that is written to them. *Invariants*: a record is written
//! only after the one before was synced; what [`Log::append`] returned for is durable; the hard
//! state in a record never claims more commits than the log holds at that point; after one failed
//! write or sync the log is poisoned, since it is not known then what is on the disk. *Never* retries
//! a sync, changes a sealed segment, or returns an entry whose checksum it did not verify just now.
//!
//! One [`Log::append`] of many [`Append`]s costs one write and one sync. Segments have their final
//! size from the start (64 MiB unless told), so that appending changes no metadata;
//! [`Log::prepare`] makes the next one ahead of need.

mod read;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::blocks::Blocks;
use super::error::LogError;
use super::record::{self, ENTRY_BYTES_MAX, Place};
use super::replay::{self, Replayed};
use super::segment::{self, HEADER_BYTES, LogOptions, Position, SegmentHeader};
use crate::formats::Formats;
use crate::fs::{DiskFile, Fs, FsError};
use lockkeeper_core::replica::{Append, Entry, HardState, Mark, Urgency};

/// A batch is split into records of about this size, each with its own sync.
const RECORD_BYTES: usize = 16 << 20;

/// What [`Log::open`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecovery {
    /// What the log begins after.
    pub base: Position,
    /// First entry, `base.index + 1` also if there is none.
    pub first: u64,
    /// The last entry; `base` if there is none.
    pub last: Position,
    /// The last hard state that was written.
    pub hard_state: HardState,
    /// What was dropped at the end, if a write was cut off there.
    pub torn: Option<String>,
}

/// The log. One thread owns it.
pub struct Log {
    fs: Arc<dyn Fs>,
    formats: Formats,
    dir: PathBuf,
    options: LogOptions,
    active: Box<dyn DiskFile>,
    /// What the files have; the last segment is written to. Where the last record begins is as it was found.
    state: Replayed,
    /// Whether the hard state is newer than what is on disk.
    held: bool,
    prepared: Option<(PathBuf, Box<dyn DiskFile>)>,
    /// Whether making a segment ahead failed: then it is made when it is needed.
    prepare_failed: bool,
    buffer: Vec<u8>,
    blocks: Blocks,
    written: Arc<AtomicU64>,
    failed: Option<String>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("dir", &self.dir)
            .field("base", &self.state.base)
            .field("last", &self.state.last)
            .field("hard_state", &self.state.hard_state)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Whether there is a segment in `dir`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn exists(fs: &dyn Fs, dir: &Path) -> Result<bool, FsError> {
        Ok(fs.list(dir)?.iter().any(|n| segment::number_of(n).is_some()))
    }

    /// Creates an empty log in `dir`, which must exist; durable on return.
    ///
    /// # Errors
    /// The file system failed.
    pub fn create(fs: &dyn Fs, dir: &Path, options: &LogOptions) -> Result<(), LogError> {
        let header = SegmentHeader {
            version: Formats::default().numbers().segment,
            cluster_id: options.cluster_id,
            node_id: options.node_id,
            number: 1,
            size: options.segment_size(0),
            base: Position::default(),
            reset: false,
            sequence: 1,
            hard_state: HardState::default(),
            previous_crc: 0,
        };
        let (path, mut file) = segment::prepare(fs, dir, header.size)?;
        segment::publish(fs, dir, &path, &mut *file, &header)?;
        Ok(())
    }

    /// New segments are written as `formats` says.
    pub(crate) fn write_formats(&mut self, formats: &Formats) {
        self.formats = formats.clone();
    }

    /// Reads and verifies all that is in `dir`, and changes nothing: call [`Log::begin`] before
    /// relying on it or appending.
    ///
    /// # Errors
    /// There is no log, it is of another server or a later version, or damaged: see `log/replay.rs`.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: LogOptions,
    ) -> Result<(Self, LogRecovery), LogError> {
        let (state, mut active) = replay::replay(&*fs, dir, &options)?;
        active.write_past_cache();
        let recovery = LogRecovery {
            base: state.base,
            first: state.base.index + 1,
            last: state.last,
            hard_state: state.hard_state,
            torn: state.torn.as_ref().map(|t| t.message.clone()),
        };
        let log = Self {
            fs,
            formats: Formats::default(),
            dir: dir.to_owned(),
            options,
            active,
            state,
            held: false,
            prepared: None,
            prepare_failed: false,
            buffer: Vec::new(),
            blocks: Blocks::default(),
            written: Arc::default(),
            failed: None,
        };
        log.written.store(log.bytes(), Ordering::Relaxed);
        Ok((log, recovery))
    }

    /// Makes durable what was read (it may have been in the operating system's memory only), wipes
    /// a torn end, so that its bytes can never be taken for anything, and removes leftovers.
    ///
    /// The last record is written once more before that: if its sync failed and ended the server
    /// before, the pages that never reached the disk look clean by now, and a sync alone would
    /// pass over them.
    ///
    /// # Errors
    /// The file system failed; the log is poisoned.
    pub fn begin(&mut self) -> Result<(), LogError> {
        self.guarded(|log| {
            let last = log.state.last_record;
            let bytes = usize::try_from(log.state.end - last).unwrap_or(usize::MAX);
            let mut record = vec![0; bytes];
            log.active.read_at(&mut record, last)?;
            log.active.write_at(&record, last)?;
            if let Some(torn) = log.state.torn.take() {
                const ZEROS: &[u8] = &[0; 64 << 10];
                let mut at = torn.offset;
                while at < torn.end {
                    let len = (torn.end - at).min(ZEROS.len() as u64);
                    log.active.write_at(&ZEROS[..len as usize], at)?;
                    at += len;
                }
            }
            log.active.sync()?;
            log.fs.sync_dir(&log.dir)?;
            // The server died while it emptied the log.
            let keep = log.state.segments.iter().rposition(|s| s.reset).unwrap_or(0);
            for _ in 0..keep {
                log.remove_oldest()?;
            }
            if log.fs.has(&log.dir, segment::PREPARED)? {
                log.fs.remove(&log.dir.join(segment::PREPARED))?;
            }
            Ok(())
        })
    }

    /// Appends all entries and the last hard state of `appends`; durable on return. Entries that a
    /// later one overwrites are left out. If none of them has to be durable and there are no
    /// entries, the hard state is kept for the next record.
    ///
    /// # Errors
    /// After any error the log is poisoned: the server must end.
    pub fn append(&mut self, appends: &[Append]) -> Result<(), LogError> {
        self.guarded(|log| {
            let late = appends.iter().skip(1).any(|a| a.install.is_some());
            assert!(!late, "install.rs splits batches where an image is installed");
            let entries = merge(appends);
            log.check(&entries)?;
            let hard_state = appends.iter().rev().find_map(|a| a.hard_state);
            if let Some(hard_state) = hard_state {
                log.held |= hard_state != log.state.hard_state;
                log.state.hard_state = hard_state;
            }
            if entries.is_empty() && appends.iter().all(|a| a.urgency == Urgency::None) {
                return Ok(());
            }
            for group in groups(&entries) {
                log.write(group)?;
            }
            Ok(())
        })
    }

    /// Writes a hard state that was kept back, if there is one. For a clean stop: the record also
    /// proves that the one before was synced.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn close(&mut self) -> Result<(), LogError> {
        self.guarded(|log| if log.held { log.write(&[]) } else { Ok(()) })
    }

    /// Whether [`Log::prepare`] has something to do.
    #[must_use]
    pub fn wants_segment(&self) -> bool {
        self.state.end >= self.segment().size / 2
            && self.prepared.is_none()
            && !self.prepare_failed
            && self.failed.is_none()
    }

    /// Makes the next segment if this one is half full. For when there is nothing to append: it
    /// takes the time of a few syncs. Costs nothing if there is nothing to do; a failure is logged
    /// and becomes an error only when the segment is needed.
    pub fn prepare(&mut self) {
        if !self.wants_segment() {
            return;
        }
        match segment::prepare(&*self.fs, &self.dir, self.options.segment_size(0)) {
            Ok(prepared) => self.prepared = Some(prepared),
            Err(error) => {
                tracing::warn!(target: crate::TARGET, %error, "cannot make the next log segment ahead of need");
                self.prepare_failed = true;
            }
        }
    }

    /// Removes the oldest of the segments that hold nothing behind `index`: their entries must be covered
    /// by images. True if there are more. One at a time, so that appends need not wait for all: to remove
    /// a file takes as long as some of them.
    ///
    /// # Errors
    /// The file system failed; the log is poisoned.
    pub fn cut(&mut self, index: u64) -> Result<bool, LogError> {
        self.guarded(|log| {
            let removable = log.removable(index);
            if removable > 0 {
                log.remove_oldest()?;
            }
            Ok(removable > 1)
        })
    }

    /// Segments with nothing but entries up to `index`: entries that count and lie before a segment are
    /// not behind its base.
    fn removable(&self, index: u64) -> usize {
        self.state.segments.iter().rposition(|s| s.base.index <= index).unwrap_or(0)
    }

    /// Empties the log: an image of `mark` is there and durable. The next entry is
    /// `mark.index + 1`.
    ///
    /// # Errors
    /// The image holds less than what is known to be committed, or as [`Log::append`].
    pub fn reset(&mut self, mark: &Mark) -> Result<(), LogError> {
        self.guarded(|log| {
            if mark.index < log.state.hard_state.commit {
                let (index, commit) = (mark.index, log.state.hard_state.commit);
                return Err(LogError::WouldForget { index, commit });
            }
            log.state.hard_state.commit = mark.index;
            if mark.term > log.state.hard_state.term {
                // This server voted for no candidate in a term that it did not know of.
                (log.state.hard_state.term, log.state.hard_state.vote) = (mark.term, 0);
            }
            let base = Position { index: mark.index, term: mark.term };
            log.rotate(base, true, 0)?;
            log.held = false;
            log.state.spans.truncate(0);
            log.state.base = base;
            log.state.last = base;
            while log.state.segments.len() > 1 {
                log.remove_oldest()?;
            }
            Ok(())
        })
    }

    /// What the log begins after.
    #[must_use]
    pub fn base(&self) -> Position {
        self.state.base
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Position {
        self.state.last
    }

    /// Bytes in use: all segments, the last one as far as it is written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let sealed = &self.state.segments[..self.state.segments.len() - 1];
        sealed.iter().map(|s| s.size).sum::<u64>() + self.state.end
    }

    /// Bytes of log that hold entries behind `index`.
    #[must_use]
    pub fn bytes_after(&self, index: u64) -> u64 {
        self.state.spans.bytes_after(index)
    }

    /// A count of bytes that grows with every record, for callers that have to know how much was written
    /// since some moment. It does not shrink when the log is cut.
    #[must_use]
    pub fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    /// Runs `f` unless the log is poisoned, and poisons it if that fails.
    fn guarded<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        if let Some(first) = &self.failed {
            return Err(LogError::Poisoned(first.clone()));
        }
        let result = f(self);
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    fn segment(&self) -> &SegmentHeader {
        self.state.segments.last().expect("a log has at least one segment")
    }

    fn check(&self, entries: &[&Entry]) -> Result<(), LogError> {
        // What is committed is never overwritten.
        let first = self.state.base.index.max(self.state.hard_state.commit) + 1;
        let last = self.state.last.index;
        let mut next = None;
        for entry in entries {
            let fits = match next {
                None => (first..=last + 1).contains(&entry.index),
                Some(next) => entry.index == next,
            };
            if !fits {
                return Err(LogError::OutOfOrder { index: entry.index, first, last });
            }
            let bytes = entry.data.len();
            if bytes > ENTRY_BYTES_MAX {
                return Err(LogError::TooLarge { index: entry.index, bytes });
            }
            next = Some(entry.index + 1);
        }
        Ok(())
    }

    /// Writes one record and syncs it.
    fn write(&mut self, entries: &[&Entry]) -> Result<(), LogError> {
        let len = record::encoded_len(entries) as u64;
        let before = match entries.first() {
            None => self.state.last,
            Some(first) if first.index == self.state.last.index + 1 => self.state.last,
            Some(first) => {
                let index = first.index - 1;
                Position { index, term: self.term(index)? }
            }
        };
        // A conflict that reaches back behind this segment needs a new one: the base of a segment
        // is what its entries come after.
        let segment = self.segment();
        if self.state.end + len > segment.size || before.index < segment.base.index {
            self.rotate(before, false, len)?;
        }
        let last =
            entries.last().map_or(self.state.last, |e| Position { index: e.index, term: e.term });
        let hard_state = HardState {
            commit: self.state.hard_state.commit.min(last.index),
            ..self.state.hard_state
        };
        let sequence = self.state.sequence + 1;
        let place = Place { tag: self.segment().tag(), chain: self.state.crc, sequence };
        let mut buffer = std::mem::take(&mut self.buffer);
        let crc = record::encode(&mut buffer, place, self.state.sequence, hard_state, entries);
        let size = self.segment().size;
        let written = self
            .blocks
            .write(&mut *self.active, &buffer, self.state.end, size)
            .and_then(|()| if mutant!("log-not-synced") { Ok(()) } else { self.active.sync() });
        if buffer.capacity() <= RECORD_BYTES / 4 {
            self.buffer = buffer;
        }
        written?;
        if let Some(first) = entries.first() {
            let number = self.segment().number;
            self.state.spans.add(first.index, last.index, number, self.state.end, len);
        }
        self.state.last = last;
        self.state.sequence = sequence;
        self.state.crc = crc;
        self.state.end += len;
        self.held = hard_state != self.state.hard_state;
        self.written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// Continues in a new segment that begins after `base` and has room for a record of `len`.
    fn rotate(&mut self, base: Position, reset: bool, len: u64) -> Result<(), LogError> {
        let size = self.options.segment_size(len);
        let prepared = self.prepared.take();
        self.prepare_failed = false;
        let (path, mut file) = match prepared {
            Some(prepared) if size <= self.options.segment_size(0) => prepared,
            Some(_) | None => segment::prepare(&*self.fs, &self.dir, size)?,
        };
        let header = SegmentHeader {
            version: self.formats.numbers().segment,
            cluster_id: self.options.cluster_id,
            node_id: self.options.node_id,
            number: self.segment().number + 1,
            size,
            base,
            reset,
            sequence: self.state.sequence + 1,
            hard_state: HardState {
                commit: self.state.hard_state.commit.min(base.index),
                ..self.state.hard_state
            },
            previous_crc: self.state.crc,
        };
        segment::publish(&*self.fs, &self.dir, &path, &mut *file, &header)?;
        self.active = file;
        self.blocks.forget();
        self.state.crc = header.crc();
        self.state.end = HEADER_BYTES;
        self.state.segments.push(header);
        Ok(())
    }

    fn remove_oldest(&mut self) -> Result<(), LogError> {
        let number = self.state.segments[0].number;
        self.fs.remove(&self.dir.join(segment::file_name(number)))?;
        // One after another, so that a crash never leaves a hole.
        self.fs.sync_dir(&self.dir)?;
        self.state.segments.remove(0);
        // A segment that a conflict began lies before the one in front of it, and holds what counts from
        // there on: `log/replay.rs` begins there, too.
        let oldest = self.state.segments[0].number;
        for segment in &self.state.segments {
            if segment.number == oldest || segment.base.index < self.state.base.index {
                self.state.base = segment.base;
            }
        }
        self.state.spans.forget_before(oldest);
        Ok(())
    }
}

/// The entries of all batches in order, without those that a later one overwrites.
fn merge(appends: &[Append]) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> =
        Vec::with_capacity(appends.iter().map(|a| a.entries.len()).sum());
    for append in appends {
        if let (Some(first), Some(begin)) = (append.entries.first(), entries.first()) {
            let keep = first.index.saturating_sub(begin.index);
            entries.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        }
        entries.extend(&append.entries);
    }
    entries
}

/// Splits entries so that each part makes a record of about [`RECORD_BYTES`]; at least one part.
fn groups<'a, 'b>(entries: &'a [&'b Entry]) -> Vec<&'a [&'b Entry]> {
    let mut groups = Vec::with_capacity(1);
    let (mut begin, mut bytes) = (0, 0);
    for (i, entry) in entries.iter().enumerate() {
        if bytes > 0 && bytes + entry.data.len() > RECORD_BYTES {
            groups.push(&entries[begin..i]);
            (begin, bytes) = (i, 0);
        }
        bytes += entry.data.len();
    }
    groups.push(&entries[begin..]);
    groups
}
