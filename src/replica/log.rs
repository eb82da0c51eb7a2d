//! The log's bounded tail in memory: what `raft` reads its entries from.
//!
//! *Owns* the newest entries, the hard state and the membership as `raft` knows them.
//! *Invariants*: entries are contiguous; an entry that is not applied or not durable is never
//! trimmed. *Never* touches a disk: older entries are on it, and are not needed to serve.

use std::collections::VecDeque;

use raft::eraftpb::{
    ConfState, Entry as RaftEntry, EntryType, HardState as RaftHardState, Snapshot,
};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::durable::{Entry, EntryKind, HardState, Membership};

/// Applied entries kept for followers that are a little behind.
const ENTRIES_KEPT_MAX: usize = 1024;
/// Payload bytes of applied entries kept.
const BYTES_KEPT_MAX: usize = 8 << 20;

/// The tail. Implements `raft::Storage`.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Index and term of the entry in front of `entries`.
    before: (u64, u64),
    entries: VecDeque<RaftEntry>,
    bytes: usize,
    hard_state: RaftHardState,
    membership: ConfState,
}

impl Tail {
    /// A tail that begins behind an entry already applied.
    pub(super) fn new(
        hard_state: HardState,
        membership: &Membership,
        applied: (u64, u64),
        entries: Vec<Entry>,
    ) -> Self {
        let mut tail = Self { before: applied, ..Self::default() };
        tail.hard_state.set_term(hard_state.term);
        tail.hard_state.set_vote(hard_state.vote);
        tail.hard_state.set_commit(hard_state.commit.max(applied.0));
        tail.membership.set_voters(membership.voters.clone());
        tail.membership.set_learners(membership.learners.clone());
        tail.append(&entries.into_iter().map(to_raft).collect::<Vec<_>>());
        tail
    }

    /// Adds entries; the first may overwrite a suffix.
    pub(super) fn append(&mut self, entries: &[RaftEntry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.before.0, "an applied entry is never overwritten");
        let keep = usize::try_from(first.index - self.before.0 - 1).expect("fits in memory");
        assert!(keep <= self.entries.len(), "the log has no gaps");
        for dropped in self.entries.drain(keep..) {
            self.bytes -= dropped.data.len();
        }
        for entry in entries {
            self.bytes += entry.data.len();
            self.entries.push_back(entry.clone());
        }
    }

    pub(super) fn set_hard_state(&mut self, hard_state: &RaftHardState) {
        self.hard_state = hard_state.clone();
    }

    pub(super) fn membership(&self) -> Membership {
        Membership {
            voters: self.membership.get_voters().to_vec(),
            learners: self.membership.get_learners().to_vec(),
        }
    }

    /// Forgets old entries, none of them after `applied`.
    pub(super) fn trim(&mut self, applied: u64) {
        while self.entries.len() > ENTRIES_KEPT_MAX || self.bytes > BYTES_KEPT_MAX {
            match self.entries.front() {
                Some(entry) if entry.index < applied => {
                    self.before = (entry.index, entry.term);
                    self.bytes -= entry.data.len();
                    self.entries.pop_front();
                }
                _ => return,
            }
        }
    }

    fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    fn position(&self, index: u64) -> usize {
        usize::try_from(index - self.before.0 - 1).expect("fits in memory")
    }
}

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState { hard_state: self.hard_state.clone(), conf_state: self.membership.clone() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let mut taken = Vec::new();
        for entry in self.entries.range(self.position(low)..self.position(high)) {
            bytes += entry.data.len() as u64 + 16;
            if bytes > bytes_max && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        Ok(taken)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        if index < self.before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        match self.entries.get(self.position(index)) {
            Some(entry) => Ok(entry.term),
            None => Err(raft::Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // Images travel on a connection of their own, never inside a raft message.
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

/// An entry as `raft` has it.
pub(super) fn to_raft(entry: Entry) -> RaftEntry {
    let mut raft_entry = RaftEntry {
        term: entry.term,
        index: entry.index,
        data: entry.data,
        ..RaftEntry::default()
    };
    raft_entry.set_entry_type(match entry.kind {
        EntryKind::Normal => EntryType::EntryNormal,
        EntryKind::ConfChange => EntryType::EntryConfChangeV2,
    });
    raft_entry
}

/// An entry as the disk has it.
pub(super) fn from_raft(entry: &RaftEntry) -> Entry {
    Entry {
        term: entry.term,
        index: entry.index,
        kind: match entry.get_entry_type() {
            EntryType::EntryNormal => EntryKind::Normal,
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::ConfChange,
        },
        data: entry.data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entries(range: std::ops::Range<u64>, term: u64) -> Vec<RaftEntry> {
        range
            .map(|index| {
                let data = Bytes::from_static(b"x");
                to_raft(Entry { term, index, kind: EntryKind::Normal, data })
            })
            .collect()
    }

    fn tail(range: std::ops::Range<u64>) -> Tail {
        let mut tail = Tail::default();
        tail.append(&entries(range, 1));
        tail
    }

    #[test]
    fn a_later_term_overwrites_the_suffix() {
        let mut tail = tail(1..10);
        tail.append(&entries(5..7, 2));
        assert_eq!(tail.last_index().unwrap(), 6);
        assert_eq!((tail.term(4).unwrap(), tail.term(5).unwrap()), (1, 2));
        assert_eq!(tail.bytes, 6);
    }

    #[test]
    fn trimming_never_takes_an_entry_that_is_not_applied() {
        let mut tail = tail(1..3000);
        tail.trim(1000);
        assert_eq!(tail.first_index().unwrap(), 1000);
        tail.trim(2999);
        assert_eq!(tail.first_index().unwrap(), 3000 - ENTRIES_KEPT_MAX as u64);
        assert_eq!(tail.term(tail.first_index().unwrap() - 1).unwrap(), 1);
        assert!(tail.term(5).is_err());
    }
}
