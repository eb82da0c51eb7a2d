//! The hand-over of leadership to another server, also where this one's disk hangs.
//!
//! *Owns* nothing: joins what `disk_watch.rs` finds with Raft, and chooses among the voters that Raft's leader hears.
//! *Never* decides when: the steps do.

use raft::eraftpb::{Message, MessageType};

use super::Consensus;

impl Consensus {
    /// Hands leadership over to the server that has most of the log, of those that `may` lead. False: there is none.
    pub(in crate::replica) fn resign(&mut self, may: impl Fn(u64) -> bool) -> bool {
        if !self.is_leader() {
            return false;
        }
        if self.node.raft.lead_transferee.is_some() {
            // `raft` gives up by itself after an election timeout.
            return true;
        }
        let others = self.successors().into_iter().filter(|(id, _)| may(*id));
        // One that was asked last, and does not take it, is asked again only if there is no other.
        let key =
            |(id, matched): &(u64, u64)| (self.asked_last != Some(*id), *matched, u64::MAX - id);
        let Some((best, _)) = others.max_by_key(key) else { return false };
        self.asked_last = Some(best);
        self.node.transfer_leader(best);
        self.fix_timeout();
        true
    }

    /// The other voters that are heard and go on: each by its id and how much of the log it has.
    fn successors(&self) -> Vec<(u64, u64)> {
        let (own, stay) = (self.id(), self.staying_voters());
        let others = self.peers().into_iter();
        let others =
            others.filter(|peer| stay.contains(&peer.id) && peer.is_active && peer.id != own);
        others.map(|peer| (peer.id, peer.matched)).collect()
    }

    /// Asks that server to lead instead.
    #[cfg(test)]
    pub(in crate::replica) fn transfer_to(&mut self, id: u64) {
        self.node.transfer_leader(id);
    }

    /// Time passes for the disk, too.
    pub(super) fn watch_disk(&mut self) {
        let (committed, last) = self.log_ends();
        let ends = (committed, self.durable_index(), last);
        let leads = (self.is_leader() && !self.is_alone()).then_some(ends);
        let has_leader = self.leader().is_some();
        self.watch.tick(leads, has_leader);
    }

    /// Whether this server may stand for election now: one that yielded because of its disk leaves that to
    /// others for a while, if there are any.
    pub(in crate::replica) fn may_stand(&self) -> bool {
        self.watch.may_stand() || self.is_alone()
    }

    /// Asks the voters whose disks are sound, one after another, to lead instead. True if one was asked, for
    /// the first time in this leadership.
    pub(in crate::replica) fn yield_leadership(&mut self) -> bool {
        if !self.watch.yields() || self.node.raft.lead_transferee.is_some() {
            return false;
        }
        let (committed, _) = self.log_ends();
        let sound = self.successors().into_iter().filter(|(_, matched)| *matched >= committed);
        let Some(best) = self.watch.choose(sound) else { return false };
        self.node.transfer_leader(best);
        self.fix_timeout();
        self.watch.asks_first()
    }

    /// The leader of this term asks this server to lead. Whether it stands for election: not if another term has
    /// begun meanwhile, and then it does not count as asked either.
    pub(super) fn agrees_to_lead(&mut self, term: u64) -> bool {
        term >= self.term() && (self.may_stand() || self.watch.agrees_to_lead(term))
    }

    /// Has entries begin behind what is committed here. A new leader that this server's disk keeps from
    /// acknowledging anything sends all since its election again and again, and `raft` would look at
    /// nothing behind a beginning that is committed.
    pub(super) fn skip_committed(&self, message: &mut Message) {
        let log = &self.node.raft.raft_log;
        let is_meant = self.watch.is_slow()
            && message.get_msg_type() == MessageType::MsgAppend
            && message.index < log.committed;
        let known = log.committed.saturating_sub(message.index);
        let Some(last_known) = usize::try_from(known).ok().and_then(|known| known.checked_sub(1))
        else {
            return;
        };
        let Some(entry) = message.entries.get(last_known).filter(|_| is_meant) else { return };
        // What is committed is in the log of every later leader; any other message is none of a leader's.
        if entry.index == log.committed
            && log.term(entry.index).is_ok_and(|term| term == entry.term)
        {
            (message.index, message.log_term) = (entry.index, entry.term);
            let behind = message.take_entries().into_iter().skip(last_known + 1);
            message.set_entries(behind.collect());
        }
    }

    /// A tick of a server that may not stand for election: when it would, it only forgets the leader, so
    /// that it votes for others.
    pub(super) fn tick_without_standing(&mut self) {
        let raft = &self.node.raft;
        let is_due = raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        match raft.state {
            raft::StateRole::Leader => {}
            raft::StateRole::Follower if is_due => return self.end_lease(),
            raft::StateRole::Candidate | raft::StateRole::PreCandidate if is_due => {
                let term = self.term();
                return self.node.raft.become_follower(term, raft::INVALID_ID);
            }
            raft::StateRole::Follower
            | raft::StateRole::Candidate
            | raft::StateRole::PreCandidate => {}
        }
        self.node.tick();
    }
}
