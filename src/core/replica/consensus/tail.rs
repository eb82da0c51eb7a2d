//! The log's bounded tail in memory: what `raft` reads its entries from.
//!
//! *Owns* the newest entries, the hard state and the membership as `raft` knows them.
//! *Invariants*: entries are contiguous; an entry that is not applied or not durable is never
//! trimmed; the term of every entry that is on the disk is known. *Never* touches a disk: older entries
//! are on it, and are asked for when a server that is behind needs them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use raft::eraftpb::{
    ConfState, Entry as RaftEntry, EntryType, HardState as RaftHardState, Snapshot,
};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::replica::durable::{Entry, EntryKind, HardState, Mark, Membership};
use crate::replica::ready::Fetch;

/// Applied entries kept for followers that are a little behind.
const ENTRIES_KEPT_MAX: usize = 1024;
/// Payload bytes of applied entries kept.
const BYTES_KEPT_MAX: usize = 8 << 20;

/// Fetches from the disk that may be under way at once.
const FETCHES_MAX: usize = 64;
/// Who may wait for one fetch: each server that is behind asks again for every entry that is
/// proposed meanwhile. A follower that is one too many asks with its next heartbeat.
const ASKERS_MAX: usize = 8;

/// The tail. Implements `raft::Storage`.
#[derive(Debug, Default)]
pub(in crate::replica) struct Tail {
    /// Index and term of the entry in front of the first one that the disk still gives back.
    disk_before: (u64, u64),
    /// Index and term of the entry in front of `entries`.
    before: (u64, u64),
    /// First index and term of each term behind `disk_before`.
    runs: VecDeque<(u64, u64)>,
    entries: VecDeque<RaftEntry>,
    bytes: usize,
    hard_state: RaftHardState,
    membership: ConfState,
    /// The newest image that others can be sent.
    image: Option<Mark>,
    /// `raft` asks through a shared reference.
    fetches: RefCell<Fetches>,
}

/// Entries that are wanted from the disk, and those that came.
#[derive(Debug, Default)]
struct Fetches {
    next: u64,
    wanted: Vec<Fetch>,
    /// By token: where it begins, and for whom it is.
    waiting: BTreeMap<u64, (u64, Vec<GetEntriesContext>)>,
    fetched: BTreeMap<u64, Vec<RaftEntry>>,
}

/// The terms of the entries of a log.
#[derive(Clone, Debug)]
pub(in crate::replica) struct EntryTerms {
    /// Index of the last entry in front of those whose terms are known. It is committed.
    pub(in crate::replica) begins_after: u64,
    /// First index and term of each term behind it.
    pub(in crate::replica) runs: Vec<(u64, u64)>,
    /// The last index.
    pub(in crate::replica) last: u64,
}

impl EntryTerms {
    /// Whether there is an entry of this term (0: of any) at an index. What is committed is there.
    pub(in crate::replica) fn holds(&self, index: u64, term: u64) -> bool {
        if index <= self.begins_after {
            return true;
        }
        let run = self.runs.partition_point(|(from, _)| *from <= index).checked_sub(1);
        let known = run.and_then(|run| self.runs.get(run));
        index <= self.last && (term == 0 || known.is_some_and(|(_, of)| *of == term))
    }
}

canonical! {
    // The bytes follow from the entries. Questions to the disk are numbered; it has answered them all where dumps are
    // compared.
    Tail: disk_before, before, runs, membership, image; without bytes;
    |out, entries, hard_state, fetches| {
        for entry in entries {
            out.value(&(entry.index, entry.term, entry.get_entry_type()));
            out.entry(&entry.data);
        }
        out.value(&(hard_state.term, hard_state.vote, hard_state.commit));
        let Fetches { next: _, wanted, waiting, fetched } = &*fetches.borrow();
        out.value(&(wanted, waiting, fetched));
    }
}

impl Tail {
    /// A tail that begins behind an entry already applied. `disk_before`: what the log on the disk
    /// begins after, and `runs` the terms between the two.
    pub(in crate::replica) fn new(
        hard_state: HardState,
        membership: &Membership,
        applied: (u64, u64),
        disk_before: (u64, u64),
        runs: Vec<(u64, u64)>,
        entries: Vec<Entry>,
    ) -> Self {
        let mut tail = Self { before: applied, disk_before, runs: runs.into(), ..Self::default() };
        tail.hard_state.set_term(hard_state.term);
        let vote = if mutant!("vote-forgotten-at-restart") { 0 } else { hard_state.vote };
        tail.hard_state.set_vote(vote);
        tail.hard_state.set_commit(hard_state.commit.max(applied.0));
        tail.membership.set_voters(membership.voters.clone());
        tail.membership.set_learners(membership.learners.clone());
        tail.append(&entries.into_iter().map(to_raft).collect::<Vec<_>>());
        tail
    }

    /// Adds entries; the first may overwrite a suffix.
    pub(in crate::replica) fn append(&mut self, entries: &[RaftEntry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.before.0, "an applied entry is never overwritten");
        let keep = usize::try_from(first.index - self.before.0 - 1).expect("fits in memory");
        assert!(keep <= self.entries.len(), "the log has no gaps");
        for dropped in self.entries.drain(keep..) {
            self.bytes -= dropped.data.len();
        }
        while self.runs.back().is_some_and(|(from, _)| *from >= first.index) {
            self.runs.pop_back();
        }
        for entry in entries {
            self.bytes += entry.data.len();
            if self.runs.back().is_none_or(|(_, term)| *term != entry.term) {
                self.runs.push_back((entry.index, entry.term));
            }
            self.entries.push_back(entry.clone());
        }
    }

    /// Begins anew behind an image that was installed.
    pub(in crate::replica) fn install(&mut self, index: u64, term: u64, membership: ConfState) {
        // An answer to a question of before must not be taken for one to a question of after.
        let fetches = Fetches { next: self.fetches.get_mut().next, ..Fetches::default() };
        *self = Self {
            disk_before: (index, term),
            before: (index, term),
            hard_state: self.hard_state.clone(),
            membership,
            fetches: RefCell::new(fetches),
            ..Self::default()
        };
        self.hard_state.commit = self.hard_state.commit.max(index);
    }

    /// The terms of all entries, as they are now.
    pub(in crate::replica) fn terms(&self) -> EntryTerms {
        let runs = self.runs.iter().copied().collect();
        EntryTerms { begins_after: self.disk_before.0, runs, last: self.last() }
    }

    /// For whom this server has voted in its term.
    pub(in crate::replica) fn vote_known(&self) -> u64 {
        self.hard_state.vote
    }

    /// The term in which this server is.
    pub(in crate::replica) fn term_known(&self) -> u64 {
        self.hard_state.term
    }

    pub(in crate::replica) fn set_hard_state(&mut self, hard_state: &RaftHardState) {
        self.hard_state = hard_state.clone();
    }

    /// Whether this says more than up to where the log is committed.
    pub(in crate::replica) fn is_promise(&self, hard_state: &RaftHardState) -> bool {
        (hard_state.term, hard_state.vote) != (self.hard_state.term, self.hard_state.vote)
    }

    /// Whether a change of membership is among the entries that are known to be committed only now.
    pub(in crate::replica) fn changes_members_up_to(&self, commit: u64) -> bool {
        let known = self.hard_state.commit.max(self.before.0);
        let new = known.min(self.last())..commit.min(self.last());
        let mut new = new.map(|before| &self.entries[self.position(before + 1)]);
        new.any(|entry| entry.get_entry_type() != EntryType::EntryNormal)
    }

    /// The changes of membership behind an index, committed or not.
    pub(in crate::replica) fn changes_behind(
        &self,
        index: u64,
    ) -> impl Iterator<Item = &RaftEntry> {
        let is_change = move |entry: &&RaftEntry| {
            entry.index > index && entry.get_entry_type() != EntryType::EntryNormal
        };
        self.entries.iter().filter(is_change)
    }

    pub(in crate::replica) fn set_membership(&mut self, membership: ConfState) {
        self.membership = membership;
    }

    pub(in crate::replica) fn set_image(&mut self, mark: Mark) {
        // One of before an image was installed may be told of after it.
        if mark.index > 0 && self.image.as_ref().is_none_or(|image| image.index < mark.index) {
            self.image = Some(mark);
        }
    }

    pub(in crate::replica) fn membership(&self) -> &ConfState {
        &self.membership
    }

    /// The log on the disk begins later.
    pub(in crate::replica) fn disk_cut(&mut self, before: (u64, u64)) {
        if before.0 <= self.disk_before.0 {
            return;
        }
        self.disk_before = before;
        while self.runs.get(1).is_some_and(|(from, _)| *from <= before.0 + 1) {
            self.runs.pop_front();
        }
    }

    /// What `raft` wants to read from the disk since the last call.
    pub(in crate::replica) fn take_wanted(&mut self) -> Vec<Fetch> {
        std::mem::take(&mut self.fetches.get_mut().wanted)
    }

    /// Entries came from the disk: gives back for whom, and [`Tail::forget_fetched`] is to be called
    /// when these have looked. Those that the disk does not give back, cut
    /// off or damaged, are as good as cut: a follower that needs them needs an image.
    pub(in crate::replica) fn fetched(
        &mut self,
        fetch: &Fetch,
        entries: Vec<Entry>,
    ) -> Vec<GetEntriesContext> {
        let Some((_, askers)) = self.fetches.get_mut().waiting.remove(&fetch.token) else {
            return Vec::new();
        };
        if entries.first().is_none_or(|first| first.index != fetch.from) {
            if let Ok(term) = self.term(fetch.from) {
                self.disk_cut((fetch.from, term));
            }
            return Vec::new();
        }
        let fetches = self.fetches.get_mut();
        fetches.fetched.insert(fetch.from, entries.into_iter().map(to_raft).collect());
        askers
    }

    /// What was fetched is not wanted any more.
    pub(in crate::replica) fn forget_fetched(&mut self) {
        self.fetches.get_mut().fetched.clear();
    }

    /// Forgets old entries, none of them after `applied`.
    pub(in crate::replica) fn trim(&mut self, applied: u64) {
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

    /// The data of an entry, unless it must be read from the disk.
    pub(in crate::replica) fn in_memory(&self, index: u64) -> Option<Bytes> {
        let position = usize::try_from(index.checked_sub(self.before.0 + 1)?).ok()?;
        self.entries.get(position).map(|entry| entry.data.clone())
    }

    /// Index of the last entry.
    pub(in crate::replica) fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    fn position(&self, index: u64) -> usize {
        usize::try_from(index - self.before.0 - 1).expect("fits in memory")
    }

    /// Entries that are on the disk only.
    fn ask_disk(
        &self,
        low: u64,
        high: u64,
        bytes_max: u64,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        let fetches = &mut *self.fetches.borrow_mut();
        if let Some(mut entries) = fetches.fetched.remove(&low) {
            entries.retain(|entry| entry.index < high);
            return Ok(entries);
        }
        if !context.can_async() {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        // Reading them again for everyone who asks would take longer than sending them.
        if let Some((_, askers)) = fetches.waiting.values_mut().find(|(from, _)| *from == low) {
            if askers.len() < ASKERS_MAX {
                askers.push(context);
            }
        } else if fetches.waiting.len() < FETCHES_MAX {
            fetches.next += 1;
            fetches.wanted.push(Fetch {
                from: low,
                to: (high - 1).min(self.before.0),
                bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
                token: fetches.next,
            });
            fetches.waiting.insert(fetches.next, (low, vec![context]));
        }
        Err(raft::Error::Store(StorageError::LogTemporarilyUnavailable))
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
        context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.disk_before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        if low <= self.before.0 {
            return self.ask_disk(low, high, bytes_max, context);
        }
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
        if index == self.disk_before.0 {
            return Ok(self.disk_before.1);
        }
        if index < self.disk_before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if index > self.last() {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let run = self.runs.partition_point(|(from, _)| *from <= index);
        match run.checked_sub(1).and_then(|run| self.runs.get(run)) {
            Some((_, term)) => Ok(*term),
            None => Err(raft::Error::Store(StorageError::Compacted)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.disk_before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Only announces the image: its records travel on a connection of their own.
    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let unavailable = raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable);
        let Some(image) = self
            .image
            .as_ref()
            .filter(|image| image.index >= request_index && image.index >= self.disk_before.0)
        else {
            return Err(unavailable);
        };
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = image.index;
        metadata.term = image.term;
        metadata.mut_conf_state().set_voters(image.membership.voters.clone());
        metadata.mut_conf_state().set_learners(image.membership.learners.clone());
        Ok(snapshot)
    }
}

/// An entry as `raft` has it.
pub(in crate::replica) fn to_raft(entry: Entry) -> RaftEntry {
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
pub(in crate::replica) fn from_raft(entry: &RaftEntry) -> Entry {
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
        assert_eq!(tail.before, (999, 1));
        tail.trim(2999);
        assert_eq!(tail.before, (2999 - ENTRIES_KEPT_MAX as u64, 1));
    }

    #[test]
    fn old_entries_are_asked_for_from_the_disk_until_it_is_cut() {
        let mut tail = tail(1..3000);
        tail.append(&entries(3000..3010, 2));
        tail.trim(3009);
        let can_wait = || GetEntriesContext::empty(true);
        let later = Err(raft::Error::Store(StorageError::LogTemporarilyUnavailable));
        assert_eq!(tail.entries(5, 20, 100, can_wait()), later);
        let wanted = tail.take_wanted();
        assert_eq!(wanted, [Fetch { from: 5, to: 19, bytes_max: 100, token: 1 }]);
        let entry = |index| Entry { term: 1, index, kind: EntryKind::Normal, data: Bytes::new() };
        assert_eq!(tail.fetched(&wanted[0], vec![entry(5), entry(6)]).len(), 1);
        assert_eq!(tail.entries(5, 20, 100, can_wait()).unwrap().len(), 2);
        assert_eq!((tail.term(5).unwrap(), tail.term(3000).unwrap()), (1, 2));
        tail.disk_cut((1000, 1));
        assert!(tail.term(999).is_err() && tail.entries(999, 1000, 9, can_wait()).is_err());
        assert_eq!((tail.term(1000).unwrap(), tail.first_index().unwrap()), (1, 1001));
    }

    /// What is asked of the disk for a server that needs everything from `low` on.
    fn asked(tail: &mut Tail, low: u64) -> Fetch {
        let later = Err(raft::Error::Store(StorageError::LogTemporarilyUnavailable));
        assert_eq!(tail.entries(low, low + 10, 100, GetEntriesContext::empty(true)), later);
        tail.take_wanted().pop().unwrap()
    }

    #[test]
    fn a_server_that_needs_what_the_disk_does_not_give_back_is_sent_an_image() {
        let mut tail = tail(1..3000);
        tail.trim(2999);
        tail.set_image(Mark { index: 1500, term: 1, ..Mark::default() });
        let fetch = asked(&mut tail, 700);
        assert!(tail.fetched(&fetch, Vec::new()).is_empty());
        let compacted = Err(raft::Error::Store(StorageError::Compacted));
        assert_eq!(tail.entries(700, 710, 100, GetEntriesContext::empty(true)), compacted);
        assert_eq!(tail.snapshot(0, 2).unwrap().get_metadata().index, 1500);
        assert_eq!(tail.term(700).unwrap(), 1);
        // An image that ends before them would not help.
        let fetch = asked(&mut tail, 1600);
        assert!(tail.fetched(&fetch, Vec::new()).is_empty());
        assert!(tail.snapshot(0, 2).is_err());
        tail.set_image(Mark { index: 2900, term: 1, ..Mark::default() });
        assert_eq!(tail.snapshot(0, 2).unwrap().get_metadata().index, 2900);
    }

    #[test]
    fn an_answer_from_before_an_image_is_none_to_a_question_after_it() {
        let mut tail = tail(1..3000);
        tail.trim(2999);
        let before = asked(&mut tail, 700);
        tail.install(5000, 2, ConfState::default());
        tail.append(&entries(5001..8000, 2));
        tail.trim(7999);
        let after = asked(&mut tail, 5100);
        let entry = |index| Entry { term: 2, index, kind: EntryKind::Normal, data: Bytes::new() };
        assert!(tail.fetched(&before, vec![entry(700)]).is_empty());
        assert_eq!(tail.fetched(&after, vec![entry(5100)]).len(), 1);
    }

    #[test]
    fn entries_that_several_wait_for_are_read_once() {
        let mut tail = tail(1..3000);
        tail.trim(2999);
        let ask = |tail: &mut Tail| tail.entries(700, 710, 100, GetEntriesContext::empty(true));
        let fetch = asked(&mut tail, 700);
        for _ in 0..2 * ASKERS_MAX {
            ask(&mut tail).unwrap_err();
        }
        asked(&mut tail, 701);
        assert!(tail.take_wanted().is_empty());
        let entry = Entry { term: 1, index: 700, kind: EntryKind::Normal, data: Bytes::new() };
        assert_eq!(tail.fetched(&fetch, vec![entry]).len(), ASKERS_MAX);
        assert_eq!(ask(&mut tail).unwrap().len(), 1);
        // A follower that comes later has them read again.
        tail.forget_fetched();
        asked(&mut tail, 700);
    }
}
