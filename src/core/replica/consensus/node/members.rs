//! Who votes, who learns, and how that changes.
//!
//! *Owns* the way of a change through `raft`. *Invariants*: one change at a time; what is applied is known
//! to `raft` and to the tail of the log alike; where several votes change, two sets of voters count until the second
//! entry of the change is applied (it is *joint* as long), and each leader in between may propose that entry.

use std::collections::BTreeSet;

use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};

use super::Consensus;
use crate::replica::consensus::conf_change;
use crate::replica::durable::Membership;

/// One step of a change of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum Step {
    Vote(u64),
    Learn(u64),
    Remove(u64),
}

impl Consensus {
    /// Carries out the committed change of membership at this index.
    ///
    /// # Errors
    /// It cannot be understood, or makes no sense.
    pub(in crate::replica) fn apply_change(
        &mut self,
        index: u64,
        data: &[u8],
    ) -> Result<(), String> {
        let change = conf_change::decode(data)?;
        let membership = self
            .node
            .apply_conf_change(&change)
            .map_err(|error| format!("a change of membership cannot be applied: {error}"))?;
        self.node.mut_store().set_membership(membership);
        self.members_at = index;
        // Raft would go on to lead, and look in vain for itself.
        if self.is_leader() && self.node.raft.prs().get(self.id()).is_none() {
            let term = self.term();
            self.node.raft.become_follower(term, 0);
        }
        self.fix_timeout();
        Ok(())
    }

    /// Proposes a change of membership, or, with no step, the end of a joint one. Nothing happens if this server does
    /// not lead, or something else is under way.
    pub(in crate::replica) fn propose_change(&mut self, steps: &[Step]) {
        let raft = &self.node.raft;
        let is_busy = raft.has_pending_conf() || raft.lead_transferee.is_some();
        if !self.is_leader() || is_busy || self.is_joint() != steps.is_empty() {
            return;
        }
        let mut change = ConfChangeV2::default();
        for step in steps {
            let mut one = ConfChangeSingle::default();
            let (kind, id) = match step {
                Step::Vote(id) => (ConfChangeType::AddNode, *id),
                Step::Learn(id) => (ConfChangeType::AddLearnerNode, *id),
                Step::Remove(id) => (ConfChangeType::RemoveNode, *id),
            };
            one.set_change_type(kind);
            one.node_id = id;
            change.mut_changes().push(one);
        }
        // What is not taken now is proposed again with the next tick.
        let _not_now = self.node.propose_conf_change(Vec::new(), change);
        self.fix_timeout();
    }

    /// Whether a change of membership may be in the log that is not applied.
    pub(in crate::replica) fn has_pending_change(&self) -> bool {
        self.node.raft.has_pending_conf()
    }

    /// Whether two sets of voters count.
    pub(in crate::replica) fn is_joint(&self) -> bool {
        !self.node.store().membership().get_voters_outgoing().is_empty()
    }

    /// Whether a change gives a server its vote that is not over.
    pub(in crate::replica) fn gets_vote(&self, id: u64) -> bool {
        let state = self.node.store().membership();
        let is_old = state.get_voters_outgoing().contains(&id);
        self.is_joint() && state.get_voters().contains(&id) && !is_old
    }

    /// Who takes part; `None` while that is changing.
    pub(in crate::replica) fn settled_membership(&self) -> Option<Membership> {
        (!self.is_joint()).then(|| membership_of(self.node.store().membership()))
    }

    /// Raft ids of those whose votes count: in the middle of a change, before it or after it.
    pub(in crate::replica) fn counting(&self) -> Vec<u64> {
        let state = self.node.store().membership();
        let mut ids = [state.get_voters(), state.get_voters_outgoing()].concat();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Whether no other server votes.
    pub(in crate::replica) fn is_alone(&self) -> bool {
        let members = self.node.store().membership();
        let is_own = |id: &u64| *id == self.id();
        members.get_voters().iter().all(is_own) && members.get_voters_outgoing().is_empty()
    }

    /// Since when a majority has been heard, if each voter was as `heard` says of its id.
    pub(in crate::replica) fn majority_heard(&self, heard: impl Fn(u64) -> u64) -> u64 {
        let members = self.node.store().membership();
        let by_majority = |ids: &[u64]| {
            let mut times: Vec<u64> = ids.iter().map(|id| heard(*id)).collect();
            times.sort_unstable();
            times.len().checked_sub(1).map_or(u64::MAX, |last| times[last / 2])
        };
        // In the middle of a change, it takes one before it and one behind it.
        by_majority(members.get_voters()).min(by_majority(members.get_voters_outgoing()))
    }

    /// Whether these are a majority of those who vote; in the middle of a change, before and after it.
    pub(in crate::replica) fn is_majority(&self, is_one: impl Fn(u64) -> bool) -> bool {
        let members = self.node.store().membership();
        let of = |ids: &[u64]| ids.iter().filter(|id| is_one(**id)).count() > ids.len() / 2;
        let outgoing = members.get_voters_outgoing();
        of(members.get_voters()) && (outgoing.is_empty() || of(outgoing))
    }

    /// The same, of those who vote behind some change that is in the log here and not applied: it may be
    /// committed, and this disk may not have been told. Those who voted before may be gone for good then. In the middle
    /// of a change they are not: it takes a majority of both sets.
    pub(in crate::replica) fn is_majority_by_log(&self, is_one: impl Fn(u64) -> bool) -> bool {
        let tail = self.node.store();
        let set = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<u64>>();
        let state = tail.membership();
        let mut voters = set(state.get_voters());
        let of = |set: &BTreeSet<u64>| set.iter().filter(|id| is_one(**id)).count() > set.len() / 2;
        for entry in tail.changes_behind(self.node.raft.raft_log.applied) {
            let Ok(change) = conf_change::decode(&entry.data) else { return false };
            let is_joint = change.enter_joint().is_some() && !change.leave_joint();
            let outgoing = if is_joint { voters.clone() } else { BTreeSet::new() };
            for one in change.get_changes() {
                match one.get_change_type() {
                    ConfChangeType::AddNode => voters.insert(one.node_id),
                    ConfChangeType::RemoveNode | ConfChangeType::AddLearnerNode => {
                        voters.remove(&one.node_id)
                    }
                };
            }
            if of(&voters) && (outgoing.is_empty() || of(&outgoing)) {
                return true;
            }
        }
        false
    }

    /// Index of the last change of membership in the log here that is not applied; 0 if there is none.
    pub(super) fn last_change(&self) -> u64 {
        let changes = self.node.store().changes_behind(self.node.raft.raft_log.applied);
        changes.map(|entry| entry.index).max().unwrap_or(0)
    }

    /// Raft ids of the voters; in the middle of a change, of those before it as well: a majority of each
    /// set decides.
    pub(in crate::replica) fn voters_of_both(&self) -> Vec<Vec<u64>> {
        let state = self.node.store().membership();
        vec![state.get_voters().to_vec(), state.get_voters_outgoing().to_vec()]
    }

    /// Raft ids of the voters that go on, in the middle of a change as well.
    pub(in crate::replica) fn staying_voters(&self) -> &[u64] {
        self.node.store().membership().get_voters()
    }

    /// Whether a server is sent the log: it votes or learns, in the middle of a change before it or after it.
    pub(in crate::replica) fn takes_part(&self, id: u64) -> bool {
        self.node.raft.prs().get(id).is_some()
    }

    /// Raft ids that take part, in their order.
    pub(in crate::replica) fn taking_part(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.node.raft.prs().iter().map(|(id, _)| *id).collect();
        if mutant!("joint-change-cuts-links") {
            let Membership { voters, learners } = membership_of(self.node.store().membership());
            ids = [voters, learners].concat();
        }
        ids.sort_unstable();
        ids
    }

    /// Raft ids that vote and that learn, by their newest configuration.
    #[cfg(test)]
    pub(in crate::replica) fn membership(&self) -> Membership {
        membership_of(self.node.store().membership())
    }
}

fn membership_of(state: &ConfState) -> Membership {
    let sorted = |ids: &[u64]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    Membership { voters: sorted(state.get_voters()), learners: sorted(state.get_learners()) }
}
