//! Rollback detection of one server: what it remembers of the others, and whether it may vote itself.
//!
//! *Owns* the promises of the others, the question that a server asks when it was started, the reason why it must not
//! take part, and its right to vote. *Invariants*: a server asks before it says anything else on a link, and votes
//! only when it knows what the others remember; a refusal is for the life of the process. *Never* sends a message.

use std::collections::BTreeSet;

use super::promises::{Asking, Promises, Refusal, RefusalKind};
use crate::replica::messages::{PeerMessage, Promise, server_of};

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct Rollback {
    /// What the others have promised.
    promises: Promises,
    /// Question to the others: what they remember of this server.
    asking: Option<Asking>,
    /// Enough of them have answered.
    is_concluded: bool,
    /// Voters behind an entry, as the one of them says whose log has come furthest.
    told: Option<(u64, Vec<u64>)>,
    /// Why this server must not take part.
    refusal: Option<Refusal>,
    /// Servers that are far behind the term of this one.
    ahead_of: BTreeSet<u64>,
    /// Whether it may vote, and stand for election: not before it is known what others remember of it.
    may_vote: bool,
}

impl Default for Rollback {
    fn default() -> Self {
        Self {
            promises: Promises::default(),
            asking: None,
            is_concluded: false,
            told: None,
            refusal: None,
            ahead_of: BTreeSet::new(),
            may_vote: true,
        }
    }
}

canonical! {
    Rollback: promises, is_concluded, told, refusal, ahead_of, may_vote;
    |out, asking| if let Some(asking) = asking {
        asking.canonical(out);
    }
}

impl Rollback {
    /// Whether this server votes, and stands for election.
    pub(super) fn may_vote(&self) -> bool {
        self.may_vote
    }

    pub(super) fn let_vote(&mut self, may: bool) {
        self.may_vote = may;
    }

    /// This server was started, and has promised something perhaps.
    pub(super) fn begin_to_ask(&mut self, asking: Asking) {
        self.asking = Some(asking);
    }

    /// Where what the others promise is kept.
    pub(super) fn promises(&mut self) -> &mut Promises {
        &mut self.promises
    }

    /// Why this server must not take part.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// It is this late.
    pub(super) fn tick(&mut self, now_us: u64) {
        if let Some(asking) = &mut self.asking {
            asking.tick(now_us);
        }
    }

    /// What is said first on a link to this server: what is to be known is asked, and the answer given again, which
    /// may have been lost with the link before.
    pub(super) fn greeting(&self, peer: u64) -> Vec<PeerMessage> {
        let question = self.asking.as_ref().map(Asking::question);
        let answer = self.promises.last_answer(peer);
        let answer = answer.map(|(question, promise)| PeerMessage::Recall { question, promise });
        let question = question.map(|question| PeerMessage::Ask { question });
        question.into_iter().chain(answer).collect()
    }

    /// The question, for those who have not answered it; as long as that is not enough, for all: they may know more.
    pub(super) fn questions(&self, servers: Vec<u64>) -> Vec<(u64, PeerMessage)> {
        let Some(asking) = &self.asking else { return Vec::new() };
        let silent =
            servers.into_iter().filter(|id| !self.is_concluded || !asking.has_answered(*id));
        silent.map(|id| (id, PeerMessage::Ask { question: asking.question() })).collect()
    }

    /// Another server asks what is remembered of it.
    pub(super) fn answer(&mut self, from: u64, question: u64) -> PeerMessage {
        let promise = self.promises.answer(from, question);
        PeerMessage::Recall { question, promise }
    }

    /// Another server says what it remembers of this one. False: it was not asked.
    pub(super) fn recalled(&mut self, from: u64, question: u64, promise: Option<&Promise>) -> bool {
        let asking = self.asking.as_mut().filter(|asking| asking.question() == question);
        let Some(asking) = asking else { return false };
        if let Some(lacks) = asking.answered(from, promise) {
            let by = server_of(from);
            let reason = format!(
                "the data directory is an older copy of what this server had: server {by} remembers \
                 {lacks}"
            );
            self.refuse(&reason, RefusalKind::RolledBack);
        }
        true
    }

    /// One of these voters says that they vote behind an entry. False: it was not asked.
    pub(super) fn told(&mut self, question: u64, index: u64, voters: Vec<u64>) -> bool {
        let is_asked = self.asking.as_ref().is_some_and(|asking| asking.question() == question);
        if is_asked && self.told.as_ref().is_none_or(|(known, _)| *known < index) {
            self.told = Some((index, voters));
        }
        is_asked
    }

    /// Voters behind an entry that this server has not applied, if another one has said so.
    pub(super) fn later_voters(&self, applied: u64, last_change: u64) -> Option<&[u64]> {
        let (index, voters) = self.told.as_ref()?;
        (*index > applied && *index >= last_change).then_some(voters)
    }

    /// The question that waits for enough answers.
    pub(super) fn asking(&self) -> Option<&Asking> {
        self.asking.as_ref().filter(|_| !self.is_concluded)
    }

    /// Enough is known: this server votes from now on. What a server answers that is linked later, or that votes only
    /// behind a change of members, counts all the same.
    pub(super) fn conclude(&mut self) {
        self.is_concluded = true;
        self.may_vote = true;
    }

    /// Whether a server is far behind the term of this one.
    pub(super) fn set_behind(&mut self, peer: u64, is_behind: bool) {
        if is_behind {
            self.ahead_of.insert(peer);
        } else {
            self.ahead_of.remove(&peer);
        }
    }

    /// See [`Rollback::set_behind`].
    pub(super) fn is_behind(&self, peer: u64) -> bool {
        self.ahead_of.contains(&peer)
    }

    /// This server must not take part.
    pub(super) fn refuse(&mut self, reason: &str, kind: RefusalKind) {
        let words = format!(
            "{reason}. It must not vote or acknowledge anything with it. Start the server with \
             --rejoin: that sets the data aside and fetches everything from the others"
        );
        self.refuse_with(Refusal { words, kind });
    }

    /// Refuses to take part, in these words.
    pub(super) fn refuse_with(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
        self.may_vote = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::promises::Held;
    use super::super::tail::EntryTerms;
    use super::*;

    fn asking(question: u64) -> Rollback {
        let log = EntryTerms { begins_after: 0, runs: Vec::new(), last: 0 };
        let mut rollback = Rollback::default();
        rollback.let_vote(false);
        rollback.begin_to_ask(Asking::new(question, Held { term: 5, vote: 2, log }));
        rollback
    }

    #[test]
    fn an_answer_counts_only_with_the_question_that_was_asked() {
        let mut rollback = asking(7);
        let later = Promise { term: 6, ..Promise::default() };
        assert!(!rollback.recalled(1, 8, Some(&later)), "nothing was asked like that");
        assert_eq!(rollback.refusal(), None);
        assert!(rollback.recalled(1, 7, Some(&later)));
        assert!(rollback.refusal().is_some_and(|refusal| refusal.kind == RefusalKind::RolledBack));
        assert!(!rollback.may_vote());
    }

    #[test]
    fn only_those_who_are_silent_are_asked_again_and_the_first_refusal_stays() {
        let mut rollback = asking(7);
        assert!(rollback.recalled(1, 7, None));
        let asked = |rollback: &Rollback| -> Vec<u64> {
            rollback.questions(vec![1, 3]).iter().map(|(to, _)| *to).collect()
        };
        assert_eq!(asked(&rollback), [1, 3], "it is not enough yet");
        rollback.conclude();
        assert_eq!(asked(&rollback), [3]);
        rollback.refuse("first", RefusalKind::FarAhead);
        rollback.refuse("second", RefusalKind::RolledBack);
        assert!(rollback.refusal().is_some_and(|refusal| refusal.words.starts_with("first")));
    }

    #[test]
    fn a_link_begins_with_the_question_and_the_last_answer() {
        let mut rollback = asking(7);
        assert_eq!(rollback.greeting(1), [PeerMessage::Ask { question: 7 }]);
        let answer = rollback.answer(1, 4);
        rollback.conclude();
        assert!(rollback.may_vote());
        // Who is linked only now may remember what the others did not.
        assert_eq!(rollback.greeting(1), [PeerMessage::Ask { question: 7 }, answer]);
    }
}
