//! What the log gives back: entries, and their terms.
//!
//! *Invariant*: an entry that was overwritten is never given back, whatever segment holds it still.

use std::ops::ControlFlow;

use super::{Log, LogError};
use crate::log::record::{self, Record};
use crate::log::segment;
use crate::log::spans::Span;
use lockkeeper_core::replica::Entry;

impl Log {
    /// The entries `from..=to`, as many as fit into `bytes_max` bytes of data, but at least one.
    ///
    /// # Errors
    /// The log does not hold them, or a checksum does not match any more.
    pub fn read(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        self.each(from, to, &mut |entry| {
            bytes += entry.data.len();
            if bytes > bytes_max && !entries.is_empty() {
                return ControlFlow::Break(());
            }
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Gives the entries `from..=to` to `take` one after another, until it breaks. Memory is
    /// bounded by one record or 64 KiB, whichever is larger.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn each(
        &self,
        from: u64,
        to: u64,
        take: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        if from > to {
            return Ok(());
        }
        if from <= self.state.base.index || to > self.state.last.index {
            let (first, last) = (self.state.base.index + 1, self.state.last.index);
            return Err(LogError::NotHeld { from, to, first, last });
        }
        let mut next = from;
        for span in self.state.spans.from(from) {
            let done = self.each_of(span, &mut |entry| {
                if entry.index < next {
                    return ControlFlow::Continue(());
                }
                next += 1;
                take(entry)?;
                if next > to { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if done.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Term of an entry, also of the one that the log begins after.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn term(&self, index: u64) -> Result<u64, LogError> {
        if index == self.state.base.index {
            return Ok(self.state.base.term);
        }
        if index == self.state.last.index {
            return Ok(self.state.last.term);
        }
        let entries = self.read(index, index, 0)?;
        Ok(entries.first().expect("read gives at least one entry").term)
    }

    /// The entries of one span that were not overwritten.
    fn each_of(
        &self,
        span: &Span,
        take: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LogError> {
        let at = self.state.segments.partition_point(|s| s.number < span.segment);
        let header = &self.state.segments[at];
        let path = self.dir.join(segment::file_name(header.number));
        let mut buffer = vec![0; usize::try_from(span.bytes).unwrap_or(usize::MAX)];
        if at + 1 == self.state.segments.len() {
            self.active.read_at(&mut buffer, span.offset)?;
        } else {
            self.fs.open(&path)?.read_at(&mut buffer, span.offset)?;
        }
        let bytes = bytes::Bytes::from(buffer);
        let tag = header.tag();
        let mut offset = 0;
        while offset < bytes.len() {
            let rest = &bytes[offset..];
            let damaged = |what: String| LogError::Damaged {
                path: path.clone(),
                offset: span.offset + offset as u64,
                what,
                advice: self.options.advice(),
            };
            let header = rest.first_chunk().ok_or_else(|| damaged("a record is cut off".into()))?;
            let record = record::len_of(header, tag, rest.len() as u64)
                .and_then(|len| Record::decode(bytes.slice(offset..offset + len)))
                .map_err(|bad| damaged(bad.to_string()))?;
            for entry in record.entries() {
                if entry.index > span.last {
                    return Ok(ControlFlow::Continue(()));
                }
                if take(entry).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            offset += record.len;
        }
        Ok(ControlFlow::Continue(()))
    }
}
