//! Rollback detection, as far as it needs to know who votes and in which term this server is.
//!
//! *Owns* nothing: joins `consensus/rollback.rs` with Raft's configuration. *Invariant*: a server votes once all
//! voters have answered, or a majority has and the others have had their time.

use super::Consensus;
use crate::replica::bounds::TERM_STEP_MAX;
use crate::replica::consensus::promises::{ASKING_US, Asking, Held, Refusal, RefusalKind};
use crate::replica::messages::{PeerMessage, Promise, server_of};

impl Consensus {
    /// Whether this server votes, and stands for election, from now on.
    pub(in crate::replica) fn let_vote(&mut self, may: bool) {
        self.rollback.let_vote(may);
    }

    /// What the disk holds, at the start.
    fn held(&self) -> Held {
        let tail = self.node.store();
        Held { term: tail.term_known(), vote: tail.vote_known(), log: tail.terms() }
    }

    /// This server was started: the others are to be asked this random number.
    pub(in crate::replica) fn begin_to_ask(&mut self, question: u64) {
        let asking = Asking::new(question, self.held());
        self.rollback.begin_to_ask(asking);
    }

    /// Why this server must not take part.
    pub(in crate::replica) fn refusal(&self) -> Option<&Refusal> {
        self.rollback.refusal()
    }

    /// This server must not take part.
    pub(in crate::replica) fn refuse(&mut self, refusal: Refusal) {
        self.rollback.refuse_with(refusal);
    }

    /// Time has passed.
    pub(in crate::replica) fn await_answers(&mut self, now_us: u64) {
        self.rollback.tick(now_us);
    }

    /// There is a link: that is said before anything else.
    pub(in crate::replica) fn greeting(&self, peer: u64) -> Vec<PeerMessage> {
        self.rollback.greeting(peer)
    }

    /// Those who have not answered are asked again.
    pub(in crate::replica) fn ask_again(&mut self, now_us: u64) -> Vec<(u64, PeerMessage)> {
        let own = self.id();
        let others = self.taking_part().into_iter().filter(|id| *id != own).collect();
        let questions = self.rollback.questions(others);
        self.conclude(now_us);
        questions
    }

    /// Another server asks what is remembered of it.
    pub(in crate::replica) fn answer(&mut self, from: u64, question: u64) -> PeerMessage {
        self.rollback.answer(from, question)
    }

    /// Another server says what it remembers of this one. False: it was not asked.
    pub(in crate::replica) fn recalled(
        &mut self,
        from: u64,
        (question, promise): (u64, Option<&Promise>),
        now_us: u64,
    ) -> bool {
        let is_asked = self.rollback.recalled(from, question, promise);
        if is_asked {
            self.conclude(now_us);
        }
        is_asked
    }

    /// Voters by what is applied here, unless a change of them is half done, and the index of the last entry of that.
    pub(in crate::replica) fn settled_voters(&self) -> Option<(u64, Vec<u64>)> {
        let voters = self.staying_voters().to_vec();
        let is_settled =
            !self.is_joint() && !voters.is_empty() && !mutant!("later-voters-not-told");
        is_settled.then_some((self.node.raft.raft_log.applied, voters))
    }

    /// Another server says who votes behind an entry, itself and this one among them. False: they are not, or it was
    /// not asked.
    pub(in crate::replica) fn told_voters(
        &mut self,
        from: u64,
        (question, index): (u64, u64),
        mut voters: Vec<u64>,
        now_us: u64,
    ) -> bool {
        voters.sort_unstable();
        voters.dedup();
        let are_both = [from, self.id()].iter().all(|id| voters.contains(id));
        let is_asked = are_both && self.rollback.told(question, index, voters);
        if is_asked {
            self.conclude(now_us);
        }
        is_asked
    }

    /// Votes from now on, if enough is known.
    fn conclude(&mut self, now_us: u64) {
        let Some(asking) = self.rollback.asking() else { return };
        let own = self.id();
        let has_answered = |id: u64| id == own || asking.has_answered(id);
        let all = self.counting().into_iter().all(has_answered);
        let is_over = asking.since_us().is_some_and(|since_us| now_us >= since_us + ASKING_US)
            || mutant!("silent-voters-not-awaited");
        let later = self.rollback.later_voters(self.node.raft.raft_log.applied, self.last_change());
        let is_later_majority = later.is_some_and(|voters| {
            voters.iter().filter(|id| has_answered(**id)).count() > voters.len() / 2
        });
        let is_majority = self.is_majority(has_answered)
            || self.is_majority_by_log(has_answered)
            || is_later_majority;
        if all || is_over && is_majority {
            self.rollback.conclude();
        }
    }

    /// Another server has said in which term it is, when this one connected to it.
    pub(in crate::replica) fn introduced(&mut self, peer: u64, term: u64) {
        self.terms.introduced(self.term(), term);
        let own = self.term();
        let is_behind = term != 0 && own > term + TERM_STEP_MAX;
        self.rollback.set_behind(peer, is_behind);
        if is_behind && self.is_majority(|id| self.rollback.is_behind(id)) {
            let reason = format!(
                "the data has come to term {own}, and a majority of the others is more than \
                 {TERM_STEP_MAX} terms behind it (server {} in term {term}): they do not hear this server",
                server_of(peer)
            );
            // It is theirs that may be wrong.
            self.rollback.refuse(&reason, RefusalKind::FarAhead);
        }
    }
}
