//! A message of another server, and where it goes.
//!
//! *Owns* nothing: hands each message to the owner that it is for. *Invariants*: what another server forwards is
//! taken only in the term in which it took this server for the leader; a server that must not take part takes none.
//! *Never* answers a message of Raft by itself.
//!
//! Takes the place of `Learner` and `LearnerHandler`.

use raft::eraftpb::{Message, MessageType};

use crate::replica::Replica;
use crate::replica::consensus::{Refusal, Verdict};
use crate::replica::machine::{Txn, TxnOp};
use crate::replica::messages::{PeerMessage, server_of};
use crate::replica::sessions::Ping;

impl Replica {
    /// A message of another server.
    pub(in crate::replica) fn peer(&mut self, from: u64, message: PeerMessage) {
        if self.consensus.refusal().is_some() {
            return;
        }
        let makes_sense = match message {
            PeerMessage::Ask { question } => {
                let answer = self.consensus.answer(from, question);
                self.output.send(from, answer);
                if let Some((index, voters)) = self.consensus.settled_voters() {
                    self.output.send(from, PeerMessage::Voters { question, index, voters });
                }
                true
            }
            PeerMessage::Voters { question, index, voters } => {
                let now_us = self.clocks.now_us();
                self.consensus.told_voters(from, (question, index), voters, now_us)
            }
            PeerMessage::Recall { question, promise } => {
                let said = (question, promise.as_ref());
                let is_asked = self.consensus.recalled(from, said, self.clocks.now_us());
                self.stop_if_refused();
                is_asked
            }
            PeerMessage::Raft(message) => message.from == from && self.raft_message(*message),
            PeerMessage::Forward { term, batch } => {
                // A server that takes this one for the leader of another term learns better, and then
                // knows that this was lost.
                let known = self.state.machine().sessions();
                let tracker = &mut self.sessions;
                let heard = |txn: &Txn| {
                    let TxnOp::AttachSession { password, .. } = &txn.op else { return };
                    let found = known.find(txn.session);
                    let is_heard = found.is_some_and(|known| known.password == *password);
                    tracker.moving(term, txn.session, is_heard);
                };
                !self.consensus.is_leader()
                    || term != self.consensus.term()
                    || self.forwarding.take_foreign((from, term), &batch, heard)
            }
            PeerMessage::Return { term, batch } => self.forwarding.take_returned(term, &batch),
            PeerMessage::Ping { term, at_us, steady_ms, heard } => {
                self.pinged(from, Ping { term, at_us, heard }, steady_ms);
                true
            }
            PeerMessage::Compare { term, window } => self.asked_to_compare(from, term, window),
            PeerMessage::Digests { report } => self.digests(from, report),
            PeerMessage::Touch { term, at_us, wall_ms, stamp, base, sessions } => {
                self.touched(from, (term, at_us), wall_ms, (stamp, base), &sessions)
            }
        };
        if !makes_sense {
            self.figures.counts.peer_messages_dropped += 1;
        }
    }

    fn raft_message(&mut self, message: Message) -> bool {
        let (from, kind) = (message.from, message.get_msg_type());
        if kind == MessageType::MsgSnapshot {
            // It comes with its image only.
            return false;
        }
        if kind == MessageType::MsgRequestPreVote {
            self.rival(message.index, message.log_term);
        }
        let acknowledged = (kind == MessageType::MsgAppendResponse && !message.reject)
            .then_some(message.index)
            .filter(|_| self.consensus.is_leader());
        let verdict = self.consensus.step(message);
        if verdict == Verdict::Taken
            && let Some(index) = acknowledged
        {
            self.figures.acknowledged(server_of(from), index, self.clocks.now_us());
        }
        if verdict == Verdict::Refused {
            self.output.cut(from);
        }
        if verdict == Verdict::Taken && self.consensus.leader() == Some(from) {
            self.leader_heard();
        }
        verdict == Verdict::Taken
    }

    /// Another server, that this one has connected to, has said in which term it is.
    pub(in crate::replica) fn introduced(&mut self, peer: u64, term: u64) {
        self.consensus.introduced(peer, term);
        self.stop_if_refused();
    }

    pub(super) fn stop_if_refused(&mut self) {
        if self.consensus.refusal().is_some() {
            self.stop_serving();
        }
    }

    /// Why this server must not take part: its data is older than what it has promised, or too far ahead of
    /// the others. It says nothing to other servers any more; [`Replica::ready`] has nothing to be done.
    #[must_use]
    pub fn refused(&self) -> Option<&Refusal> {
        self.consensus.refusal()
    }
}
