//! Up to where the log is on the disk.
//!
//! *Owns* that index: `raft` is told another one (see [`super::Consensus::ready`]). *Invariant*: what is up
//! to there is on the disk as it is in memory now: what was overwritten since does not count.

use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(super) struct Durability {
    index: u64,
    /// Where the log ends with each append that is not durable yet, by its number.
    pending: VecDeque<(u64, u64)>,
}

canonical! {
    // Appends by their numbers from the last durable one on.
    Durability(synced: u64): index;
    |out, pending| for (number, end) in pending {
        out.value(&(number - synced, end));
    }
}

impl Durability {
    /// All up to `index` is there.
    pub(super) fn new(index: u64) -> Self {
        Self { index, pending: VecDeque::new() }
    }

    /// The last index.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// The append of this number holds these entries.
    pub(super) fn appended(&mut self, number: u64, first: u64, last: u64) {
        let kept = first - 1;
        self.index = self.index.min(kept);
        for (_, end) in &mut self.pending {
            *end = kept.min(*end);
        }
        self.pending.push_back((number, last));
    }

    /// The append of this number begins the log anew behind `index`.
    pub(super) fn begun_anew(&mut self, number: u64, index: u64) {
        self.index = 0;
        self.pending.clear();
        self.pending.push_back((number, index));
    }

    /// Everything up to the append of this number is durable.
    pub(super) fn persisted(&mut self, number: u64) {
        while let Some((of, end)) = self.pending.front()
            && *of <= number
        {
            self.index = *end;
            self.pending.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overwritten_does_not_count_when_it_becomes_durable() {
        let mut durability = Durability::new(100);
        durability.appended(1, 101, 105);
        durability.appended(2, 103, 110);
        durability.persisted(1);
        assert_eq!(durability.index(), 102, "103 to 105 on the disk are others");
        durability.persisted(2);
        assert_eq!(durability.index(), 110);
        durability.appended(3, 90, 91);
        assert_eq!(durability.index(), 89, "and so are those that are there already");
        durability.persisted(3);
        assert_eq!(durability.index(), 91);
    }

    #[test]
    fn behind_an_image_nothing_counts_before_it_is_installed() {
        let mut durability = Durability::new(100);
        durability.appended(1, 101, 105);
        durability.begun_anew(2, 500);
        durability.appended(3, 501, 502);
        durability.persisted(1);
        assert_eq!(durability.index(), 0);
        durability.persisted(2);
        assert_eq!(durability.index(), 500);
        durability.persisted(3);
        assert_eq!(durability.index(), 502);
    }
}
