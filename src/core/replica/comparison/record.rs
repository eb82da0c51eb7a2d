//! Digests of the states that this server had, one for each entry that it applied lately.
//!
//! *Owns* the last [`POINTS_MAX`] of them. *Invariants*: the points are those of consecutive entries; the sum of a
//! point goes up with every entry, so that the difference of two sums is of the entries between them alone, wherever a
//! record begins. *Never* compares anything.

use std::collections::VecDeque;

/// Definition of the digest and of the sum. Servers whose releases define them differently do not judge each other.
pub const DEFINITION: u8 = 1;
/// Entries that are remembered: more than a leader writes between two reports.
const POINTS_MAX: usize = 1 << 14;

/// Entries that a report is about: those after index `from`, up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// Index of the last entry before them.
    pub from: u64,
    /// Index of the last one. Not less.
    pub to: u64,
}

/// Digests that a server reports of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestReport {
    /// See [`DEFINITION`].
    pub definition: u8,
    /// The entries.
    pub window: Window,
    /// Term of the last of them.
    pub term: u64,
    /// Values that servers with the same log have in common.
    pub value: Value,
}

/// Values of a report that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value {
    /// Digest of the state after the last entry.
    pub digest: u128,
    /// Sum over the digests after each entry: a difference that came and went is in it.
    pub sum: u128,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    term: u64,
    zxid: i64,
    digest: u128,
    sum: u128,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Record {
    /// Index of the first point.
    first: u64,
    points: VecDeque<Point>,
}

impl Record {
    /// The state is another one than that after the entry before: it was read from a disk, or received.
    pub(super) fn begin(&mut self, (index, term): (u64, u64), zxid: i64, digest: u128) {
        self.points.clear();
        self.first = index;
        self.points.push_back(Point { term, zxid, digest, sum: 0 });
    }

    /// An entry was applied. Its index is the next one, unless nothing is recorded yet.
    pub(super) fn applied(&mut self, (index, term): (u64, u64), zxid: i64, digest: u128) {
        let Some(last) = self.points.back().filter(|_| index == self.last_index() + 1) else {
            return self.begin((index, term), zxid, digest);
        };
        let sum = last.sum.wrapping_add(share(index, digest));
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
            self.first += 1;
        }
        self.points.push_back(Point { term, zxid, digest, sum });
    }

    /// Report of a window. `None`: some of it is not remembered, or not applied yet.
    pub(super) fn report(&self, window: Window) -> Option<DigestReport> {
        let (before, last) = (self.point(window.from)?, self.point(window.to)?);
        let sum = last.sum.wrapping_sub(before.sum);
        let value = Value { digest: last.digest, sum };
        Some(DigestReport { definition: DEFINITION, window, term: last.term, value })
    }

    /// First entry whose state is remembered.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// zxid of the last transaction up to an entry.
    pub(super) fn zxid(&self, index: u64) -> Option<i64> {
        self.point(index).map(|point| point.zxid)
    }

    fn point(&self, index: u64) -> Option<&Point> {
        self.points.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    fn last_index(&self) -> u64 {
        (self.first + self.points.len() as u64).saturating_sub(1)
    }
}

/// Summand of an entry: an odd factor loses no bit of the digest.
fn share(index: u64, digest: u128) -> u128 {
    digest.wrapping_mul(u128::from(index) << 1 | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first: u64, digests: &[u128]) -> Record {
        let mut record = Record::default();
        for (number, digest) in digests.iter().enumerate() {
            record.applied((first + number as u64, 3), number as i64, *digest);
        }
        record
    }

    fn value(record: &Record, from: u64, to: u64) -> Option<Value> {
        record.report(Window { from, to }).map(|report| report.value)
    }

    #[test]
    fn records_that_begin_at_other_entries_report_the_same_of_a_window() {
        let (long, short) = (record(1, &[9, 8, 7, 6]), record(2, &[8, 7, 6]));
        assert_eq!(value(&long, 2, 4), value(&short, 2, 4));
        assert!(value(&long, 2, 4).is_some() && value(&short, 1, 4).is_none());
        assert_eq!(value(&long, 2, 5), None, "it is not applied yet");
    }

    #[test]
    fn a_difference_that_came_and_went_is_in_the_sum_alone() {
        let (right, wrong) = (record(1, &[9, 8, 7]), record(1, &[9, 5, 7]));
        let (right, wrong) = (value(&right, 1, 3).unwrap(), value(&wrong, 1, 3).unwrap());
        assert_eq!(right.digest, wrong.digest);
        assert_ne!(right.sum, wrong.sum);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_a_received_state_begins_anew() {
        let mut record = record(1, &vec![1; POINTS_MAX + 5]);
        assert_eq!(record.points.len(), POINTS_MAX);
        assert!(value(&record, 5, 10).is_none() && value(&record, 6, 10).is_some());
        record.begin((1 << 20, 4), 77, 3);
        assert_eq!(value(&record, 1 << 20, 1 << 20), Some(Value { digest: 3, sum: 0 }));
        assert_eq!(record.zxid(1 << 20), Some(77));
    }
}
