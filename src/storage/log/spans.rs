//! Where in the log's files which entries are.
//!
//! *Owns* a coarse index: one [`Span`] for every 64 KiB of log, so that a log of gigabytes costs
//! kilobytes. *Invariants*: spans are in index order and without gaps; what a conflict overwrote
//! belongs to no span. *Never* touches a file.

use std::collections::VecDeque;

/// A span ends once it covers this many bytes of a file.
const SPAN_BYTES: u64 = 64 << 10;

/// A run of records in one segment, with entries in index order. Entries behind `last` in its
/// records were overwritten later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Where its first record begins.
    pub(crate) offset: u64,
    /// From there to behind its last record.
    pub(crate) bytes: u64,
    /// Whether the end of it was overwritten: it cannot be continued.
    clipped: bool,
}

/// All spans of a log.
#[derive(Debug, Default)]
pub(crate) struct Spans(VecDeque<Span>);

impl Spans {
    /// A record with the entries `first..=last` was written; it overwrites what came behind.
    pub(crate) fn add(&mut self, first: u64, last: u64, segment: u64, offset: u64, len: u64) {
        let first_void = first + u64::from(mutant!("overwritten-entry-comes-back"));
        self.truncate(first_void - u64::from(mutant!("overwrites-one-too-many")));
        if let Some(span) = self.0.back_mut() {
            let follows = span.segment == segment && span.last + 1 == first && !span.clipped;
            if follows && span.bytes < SPAN_BYTES {
                span.last = last;
                span.bytes = offset + len - span.offset;
                return;
            }
        }
        self.0.push_back(Span { first, last, segment, offset, bytes: len, clipped: false });
    }

    /// Entries from `first` on are void.
    pub(crate) fn truncate(&mut self, first: u64) {
        while self.0.back().is_some_and(|s| s.first >= first) {
            self.0.pop_back();
        }
        if let Some(span) = self.0.back_mut()
            && span.last >= first
        {
            span.last = first - 1;
            span.clipped = true;
        }
    }

    /// Segments before this one are gone.
    pub(crate) fn forget_before(&mut self, segment: u64) {
        while self.0.front().is_some_and(|s| s.segment < segment) {
            self.0.pop_front();
        }
    }

    /// The spans that hold `from` and what follows.
    pub(crate) fn from(&self, from: u64) -> impl Iterator<Item = &Span> {
        self.0.range(self.0.partition_point(|s| s.last < from)..)
    }

    /// Bytes of the records that hold entries behind `index`.
    pub(crate) fn bytes_after(&self, index: u64) -> u64 {
        self.from(index + 1).map(|s| s.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(spans: &Spans, from: u64) -> Vec<(u64, u64, u64)> {
        spans.from(from).map(|s| (s.first, s.last, s.offset)).collect()
    }

    #[test]
    fn neighbours_share_a_span_until_it_is_large() {
        let mut spans = Spans::default();
        spans.add(1, 2, 1, 128, 100);
        spans.add(3, 3, 1, 300, 70_000);
        spans.add(4, 4, 1, 70_300, 10);
        assert_eq!(ranges(&spans, 1), [(1, 3, 128), (4, 4, 70_300)]);
        assert_eq!(ranges(&spans, 4), [(4, 4, 70_300)]);
        assert_eq!(spans.bytes_after(3), 10);
    }

    #[test]
    fn a_conflict_clips_what_it_overwrites() {
        let mut spans = Spans::default();
        spans.add(1, 10, 1, 128, 100);
        spans.add(6, 7, 1, 228, 50);
        spans.add(8, 8, 1, 278, 50);
        assert_eq!(ranges(&spans, 1), [(1, 5, 128), (6, 8, 228)]);
        spans.add(1, 1, 2, 128, 50);
        assert_eq!(ranges(&spans, 1), [(1, 1, 128)]);
    }

    #[test]
    fn a_clipped_span_is_not_continued() {
        let mut spans = Spans::default();
        spans.add(1, 10, 1, 128, 100);
        spans.truncate(6);
        spans.add(6, 6, 1, 228, 50);
        assert_eq!(ranges(&spans, 1), [(1, 5, 128), (6, 6, 228)]);
    }

    #[test]
    fn a_cut_forgets_whole_segments() {
        let mut spans = Spans::default();
        spans.add(1, 1, 1, 128, 100);
        spans.add(2, 2, 2, 128, 100);
        spans.forget_before(2);
        assert_eq!(ranges(&spans, 1), [(2, 2, 128)]);
    }
}
