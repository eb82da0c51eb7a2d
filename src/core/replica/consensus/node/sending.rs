//! Which messages of Raft may leave at once, and which need not leave at all.
//!
//! *Owns* the heartbeat that tells of a commit and needs no answer. *Invariant*: a message that promises something
//! is never among those that leave before the disk has it.

use raft::ProgressState;
use raft::eraftpb::{Message, MessageType};

use super::Consensus;

/// The context of a heartbeat that needs no answer. That of a read index is longer.
const NOTICE: &[u8] = b"n";

impl Consensus {
    /// Sends a message now, or once what it promises is durable.
    pub(super) fn send_or_hold(&mut self, message: Message, send: &mut Vec<Message>) {
        if answers_notice(&message) {
            return;
        }
        let says_little =
            self.synced >= self.members_append && promises_nothing(message.get_msg_type());
        let is_synced = self.synced >= self.to_sync || mutant!("acknowledge-before-sync");
        if is_synced || says_little {
            send.push(message);
            return;
        }
        // A leader that hears nothing of a disk that hangs says the same again and again.
        let is_said =
            |(of, before): &(u64, Message)| *of == self.to_sync && says_all_of(&message, before);
        if self.held.back().is_some_and(is_said) {
            self.held.pop_back();
        }
        self.held.push_back((self.to_sync, message));
    }

    /// Has those leave that waited for the append with this number.
    pub(super) fn release(&mut self, number: u64) {
        while self.held.front().is_some_and(|(of, _)| *of <= number) {
            let (_, message) = self.held.pop_front().expect("it was just seen");
            self.released.pop_if(|before| says_all_of(&message, before));
            self.released.push(message);
        }
    }

    /// An append without entries says up to where the log is committed. If the other one has acknowledged
    /// all of that, and may not know yet that it is committed, a heartbeat says the same, which needs no
    /// answer. One that knows is asked whether it has all that was sent to it: what was lost comes again
    /// when it denies that. Where its disk is needed for a majority, nothing else would find that out.
    pub(super) fn give_notice(&self, message: &mut Message) {
        let is_commit_only = message.get_msg_type() == MessageType::MsgAppend
            && message.entries.is_empty()
            && self.is_leader();
        let progress = self.node.raft.prs().get(message.to);
        let is_known = |progress: &raft::Progress| {
            progress.state == ProgressState::Replicate
                && progress.matched >= message.commit
                && (progress.committed_index < message.commit || mutant!("lost-entries-unnoticed"))
        };
        if is_commit_only && progress.is_some_and(is_known) {
            message.set_msg_type(MessageType::MsgHeartbeat);
            message.index = 0;
            message.log_term = 0;
            message.context = NOTICE.into();
        }
    }
}

/// Whether a message may leave before what was decided with it is durable.
fn promises_nothing(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgHeartbeatResponse
            | MessageType::MsgReadIndex
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
    )
}

/// Whether nothing is lost if only `message` is sent and not `before`: one acknowledges all of the other, or
/// they are the same.
fn says_all_of(message: &Message, before: &Message) -> bool {
    let is_ack = |of: &Message| of.get_msg_type() == MessageType::MsgAppendResponse && !of.reject;
    let says_more = is_ack(message)
        && is_ack(before)
        && (message.to, message.term) == (before.to, before.term)
        && message.index >= before.index;
    says_more || message == before
}

/// See [`Consensus::give_notice`].
fn answers_notice(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgHeartbeatResponse && message.get_context() == NOTICE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledgement(term: u64, index: u64) -> Message {
        let mut message = Message { to: 1, term, index, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppendResponse);
        message
    }

    #[test]
    fn an_acknowledgement_says_all_of_an_earlier_one_of_its_term() {
        assert!(says_all_of(&acknowledgement(2, 5), &acknowledgement(2, 4)));
        assert!(!says_all_of(&acknowledgement(2, 4), &acknowledgement(2, 5)));
        assert!(!says_all_of(&acknowledgement(3, 5), &acknowledgement(2, 4)));
        let denied = Message { reject: true, ..acknowledgement(2, 4) };
        assert!(!says_all_of(&acknowledgement(2, 5), &denied));
        assert!(says_all_of(&denied.clone(), &denied));
    }

    #[test]
    fn an_acknowledgement_and_a_vote_promise_something() {
        assert!(!promises_nothing(MessageType::MsgAppendResponse));
        assert!(!promises_nothing(MessageType::MsgRequestVoteResponse));
        assert!(promises_nothing(MessageType::MsgRequestPreVoteResponse));
    }
}
