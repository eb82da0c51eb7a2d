//! Rollback detection: what servers have promised each other, as the others remember it.
//!
//! *Owns* `Promises`, which each server keeps in memory of all others, and `Asking`, by which one that
//! was started finds out whether its disk has all that it promised. *Invariants*: a promise is remembered
//! from a message only that Raft took in its own term: an acknowledgement by the leader, a vote by the
//! candidate that got it, an office by those who follow; a server asks before it says anything else on a
//! link, and an answer holds only what was promised before the question, so that the promises of this
//! process cannot be taken for those of an earlier one; until it is clear what the others remember it votes
//! for no one and does not stand. *Never* takes a message for a proof that was not asked for: an answer
//! repeats a random number that was sent to the address of the one who gives it.
//!
//! A data directory that was put back to an older copy (a virtual machine's snapshot, a restored backup) has
//! forgotten votes and entries that others have counted. Where no server is up that remembers, it cannot be
//! told from one that was never given them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tail::EntryTerms;
use crate::replica::messages::{Promise, server_of};

/// How long all voters are waited for, microseconds; after that, a majority is enough.
pub const ASKING_US: u64 = 1_000_000;
/// Servers that are remembered, in all their lives; those that promised something in the lowest term are
/// forgotten first.
const SERVERS_MAX: usize = 1024;
/// Questions of one server that are answered as they were first.
const QUESTIONS_MAX: usize = 4;

/// What a server remembers of all others.
#[derive(Debug, Default)]
pub(in crate::replica) struct Promises {
    of: BTreeMap<u64, Promise>,
    /// By server: its last questions, and what was remembered when each was asked first.
    answers: BTreeMap<u64, VecDeque<(u64, Option<Promise>)>>,
}

impl Promises {
    /// A server has acknowledged an entry, or has shown that it has it.
    pub(in crate::replica) fn acknowledged(
        &mut self,
        id: u64,
        term: u64,
        (index, log_term): (u64, u64),
    ) {
        if mutant!("remembers-no-acknowledgements") {
            return;
        }
        if let Some(promise) = self.promise(id, term)
            && promise.index < index
        {
            (promise.index, promise.log_term) = (index, log_term);
        }
    }

    /// A server has voted.
    pub(in crate::replica) fn voted(&mut self, id: u64, term: u64, vote: u64) {
        if mutant!("remembers-no-votes") {
            return;
        }
        if let Some(promise) = self.promise(id, term) {
            promise.vote = vote;
        }
    }

    /// That of this term; `None` if the server has promised something in a later one.
    fn promise(&mut self, id: u64, term: u64) -> Option<&mut Promise> {
        if !self.of.contains_key(&id) && self.of.len() >= SERVERS_MAX {
            let oldest = self.of.iter().min_by_key(|(_, promise)| promise.term);
            let oldest = oldest.map(|(id, _)| *id)?;
            self.of.remove(&oldest);
        }
        let known = self.of.entry(id).or_default();
        if known.term < term {
            *known = Promise { term, ..Promise::default() };
        }
        (known.term == term).then_some(known)
    }

    /// A server asks: what it had promised before it did so the first time.
    pub(super) fn answer(&mut self, id: u64, question: u64) -> Option<Promise> {
        let promise = self.of.get(&id).copied();
        if !self.answers.contains_key(&id) && self.answers.len() >= SERVERS_MAX {
            self.answers.pop_first();
        }
        let answers = self.answers.entry(id).or_default();
        let known = answers.iter().find(|(known, _)| *known == question);
        if let Some((_, known)) = known.filter(|_| !mutant!("answer-counts-what-came-later")) {
            return *known;
        }
        if answers.len() >= QUESTIONS_MAX {
            answers.pop_front();
        }
        answers.push_back((question, promise));
        promise
    }

    /// What it was answered last.
    pub(super) fn last_answer(&self, id: u64) -> Option<(u64, Option<Promise>)> {
        self.answers.get(&id)?.back().copied()
    }
}

/// What the disk of a server held when it was started.
#[derive(Debug)]
pub(in crate::replica) struct Held {
    pub(in crate::replica) term: u64,
    pub(in crate::replica) vote: u64,
    pub(in crate::replica) log: EntryTerms,
}

impl Held {
    /// What is missing of a promise, in words.
    fn lacks(&self, promise: &Promise) -> Option<String> {
        let Promise { term, index, log_term, vote } = *promise;
        if mutant!("rollback-unnoticed") {
            return None;
        }
        let own = self.term;
        if own < term {
            return Some(format!(
                "a promise of term {term}, but the data has come to term {own} only"
            ));
        }
        // A later leader may have cut the entry off, and a vote counts in its own term.
        let is_over = own > term;
        if is_over && !mutant!("cut-entry-counts-as-lost") {
            return None;
        }
        if !self.log.holds(index, log_term) {
            let last = self.log.last;
            return Some(format!(
                "entry {index}, acknowledged in term {term}, but the log of the data ends with {last}"
            ));
        }
        let is_another = !is_over && vote != 0 && self.vote != vote;
        is_another.then(|| {
            let server = server_of(vote);
            format!("a vote for server {server} in term {term}, but the data does not have it")
        })
    }
}

/// A server that does not know yet what the others remember of it.
#[derive(Debug)]
pub(in crate::replica) struct Asking {
    question: u64,
    since_us: Option<u64>,
    answered: BTreeSet<u64>,
    held: Held,
}

canonical! {
    Asking: question, answered, held;
    |out, since_us| out.maybe_time_up_to(*since_us, ASKING_US)
}

impl Asking {
    /// `question` is a random number.
    pub(in crate::replica) fn new(question: u64, held: Held) -> Self {
        Self { question, since_us: None, answered: BTreeSet::new(), held }
    }

    /// It is this late.
    pub(super) fn tick(&mut self, now_us: u64) {
        self.since_us.get_or_insert(now_us);
    }

    pub(super) fn question(&self) -> u64 {
        self.question
    }

    /// Since when answers are waited for.
    pub(super) fn since_us(&self) -> Option<u64> {
        self.since_us
    }

    pub(super) fn has_answered(&self, id: u64) -> bool {
        self.answered.contains(&id)
    }

    /// A server has answered. Says what is missing here of the promise that it remembers, in words.
    pub(super) fn answered(&mut self, id: u64, promise: Option<&Promise>) -> Option<String> {
        self.answered.insert(id);
        promise.and_then(|promise| self.held.lacks(promise))
    }
}

/// Why a server must not take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, and what to do.
    pub words: String,
    /// Defect of the data.
    pub kind: RefusalKind,
}

/// Defect of the data of a server that must not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Term too far ahead of the others'.
    FarAhead,
    /// Data that lacks what the server has promised. That stays so when the servers that remember it are gone, and is
    /// to be written to its directory (`storage::mark_unusable`).
    RolledBack,
    /// The memory of a server on its own changed under its state.
    MemoryChanged,
    /// No majority has the same state: an operator decides which one is right.
    NoMajority,
    /// Its state is not that of the majority. That is to be written to its directory, too:
    /// its log is right, its copies of the state are not.
    Diverged,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        // Entries 11 to 20 of term 3, 21 to 30 of term 5, behind an image.
        let runs = vec![(11, 3), (21, 5)];
        Held { term: 5, vote: 2, log: EntryTerms { begins_after: 10, runs, last: 30 } }
    }

    #[test]
    fn a_promise_is_kept_by_its_term_its_entry_and_its_vote() {
        let lacks = |term, index, log_term, vote| {
            held().lacks(&Promise { term, index, log_term, vote }).is_some()
        };
        assert!(lacks(6, 0, 0, 0), "a later term");
        assert!(!lacks(4, 99, 4, 9), "in an earlier one, a later leader may have cut it off");
        assert!(!lacks(5, 30, 5, 2) && !lacks(5, 30, 5, 0) && !lacks(5, 0, 0, 0));
        assert!(lacks(5, 31, 5, 2), "an entry behind the end");
        assert!(lacks(5, 20, 5, 2), "another entry is in its place");
        assert!(!lacks(5, 20, 3, 2) && !lacks(5, 20, 0, 2) && !lacks(5, 9, 1, 2));
        assert!(lacks(5, 30, 5, 3), "another vote");
    }

    #[test]
    fn the_newest_term_counts_and_in_it_the_highest_entry_and_the_vote() {
        let mut promises = Promises::default();
        promises.acknowledged(7, 3, (20, 3));
        promises.acknowledged(7, 3, (12, 2));
        promises.voted(7, 3, 9);
        assert_eq!(
            promises.answer(7, 1),
            Some(Promise { term: 3, index: 20, log_term: 3, vote: 9 })
        );
        promises.voted(7, 4, 8);
        promises.acknowledged(7, 3, (40, 3));
        assert_eq!(promises.answer(7, 2), Some(Promise { term: 4, vote: 8, ..Promise::default() }));
        assert_eq!(promises.answer(8, 1), None);
    }

    #[test]
    fn an_answer_holds_what_was_promised_before_the_question() {
        let mut promises = Promises::default();
        promises.voted(7, 3, 9);
        let before = promises.answer(7, 1);
        promises.acknowledged(7, 5, (40, 5));
        assert_eq!(promises.answer(7, 1), before, "it is asked again after the answer was lost");
        assert_eq!(
            promises.answer(7, 2).map(|promise| promise.term),
            Some(5),
            "by its next process"
        );
        assert_eq!(promises.last_answer(7).map(|(question, _)| question), Some(2));
    }
}
