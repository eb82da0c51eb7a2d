//! What the consensus learns of the promises of others from the messages that it takes.
//!
//! *Owns* which message shows which promise. *Invariant*: a message counts only in the term in which this
//! server is when Raft has taken it, and in the role in which Raft counts it.

use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use super::Consensus;

/// What counts of a message.
#[derive(Clone, Copy, Debug)]
struct Said {
    from: u64,
    kind: MessageType,
    term: u64,
    index: u64,
    reject: bool,
    durable: u64,
}

impl Said {
    fn of(message: &Message) -> Self {
        let kind = message.get_msg_type();
        let Message { from, term, index, reject, reject_hint: durable, .. } = *message;
        Self { from, kind, term, index, reject, durable }
    }
}

impl Consensus {
    /// Gives Raft a message, and remembers what it shows of promises. Whether Raft has taken it.
    pub(super) fn take(&mut self, message: Message) -> bool {
        let said = Said::of(&message);
        let is_taken = self.node.step(message).is_ok();
        if is_taken {
            self.remember(&said);
        }
        is_taken
    }

    /// Raft has taken a message.
    fn remember(&mut self, said: &Said) {
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
}
