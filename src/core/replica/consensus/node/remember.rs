//! What the consensus learns of the promises of others from the messages that it takes.
//!
//! *Owns* which message shows which promise. *Invariant*: a message counts only in the term in which this
//! server is when Raft has taken it, and in the role in which Raft counts it.

use std::collections::BTreeSet;

use raft::StateRole;
use raft::eraftpb::{ConfChangeType, Message, MessageType};

use super::Consensus;
use crate::replica::consensus::conf_change;

/// What counts of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    from: u64,
    kind: MessageType,
    term: u64,
    index: u64,
    reject: bool,
    durable: u64,
}

impl Said {
    pub(super) fn of(message: &Message) -> Self {
        let kind = message.get_msg_type();
        let Message { from, term, index, reject, reject_hint: durable, .. } = *message;
        Self { from, kind, term, index, reject, durable }
    }
}

impl Consensus {
    /// Raft has taken a message.
    pub(super) fn remember(&mut self, said: &Said) {
        let raft = &self.node.raft;
        let Said { from, term, .. } = *said;
        if term != raft.term {
            return;
        }
        let is_leader = raft.state == StateRole::Leader;
        match said.kind {
            MessageType::MsgAppendResponse if is_leader && !said.reject => {
                let log_term = raft.raft_log.term(said.index).unwrap_or_default();
                self.rollback.promises().acknowledged(from, term, (said.index, log_term));
            }
            MessageType::MsgRequestVoteResponse
                if !said.reject && raft.state != StateRole::Follower =>
            {
                self.rollback.promises().voted(from, term, raft.id);
            }
            // Who stands has voted for itself.
            MessageType::MsgRequestVote => self.rollback.promises().voted(from, term, from),
            // So has who leads. Of its log no more is believed than is here as well.
            MessageType::MsgAppend | MessageType::MsgHeartbeat if raft.leader_id == from => {
                let durable = said.durable.min(raft.raft_log.last_index());
                self.rollback.promises().voted(from, term, from);
                self.rollback.promises().acknowledged(from, term, (durable, 0));
            }
            _ => {}
        }
    }

    /// The leader's: shows up to where its own log is durable, which it acknowledges to itself alone. Raft
    /// has no use for the number in these messages.
    pub(super) fn show_durable(&self, message: &mut Message) {
        let kind = message.get_msg_type();
        if self.is_leader() && matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat) {
            message.reject_hint = self.durable_index();
        }
    }

    /// Everybody who votes, also in the middle of a change.
    pub(in crate::replica) fn all_voters(&self) -> Vec<u64> {
        let members = self.node.store().membership();
        let both = [members.get_voters(), members.get_voters_outgoing()].concat();
        let mut ids = both;
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Whether these are a majority of those who vote; in the middle of a change, before and after it.
    pub(in crate::replica) fn is_majority(&self, is_one: impl Fn(u64) -> bool) -> bool {
        let members = self.node.store().membership();
        let of = |ids: &[u64]| ids.iter().filter(|id| is_one(**id)).count() > ids.len() / 2;
        let outgoing = members.get_voters_outgoing();
        of(members.get_voters()) && (outgoing.is_empty() || of(outgoing))
    }

    /// The same, of those who vote behind some change that is in the log here and not applied: it may be
    /// committed, and this disk may not have been told. Those who voted before may be gone for good then.
    pub(in crate::replica) fn is_majority_by_log(&self, is_one: impl Fn(u64) -> bool) -> bool {
        let tail = self.node.store();
        let mut voters: BTreeSet<u64> = tail.membership().get_voters().iter().copied().collect();
        for entry in tail.changes_behind(self.node.raft.raft_log.applied) {
            let Ok(change) = conf_change::decode(&entry.data) else { return false };
            for one in change.get_changes() {
                match one.get_change_type() {
                    ConfChangeType::AddNode => voters.insert(one.node_id),
                    ConfChangeType::RemoveNode | ConfChangeType::AddLearnerNode => {
                        voters.remove(&one.node_id)
                    }
                };
            }
            if voters.iter().filter(|id| is_one(**id)).count() > voters.len() / 2 {
                return true;
            }
        }
        false
    }
}
