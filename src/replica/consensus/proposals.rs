//! What comes from other servers, and what goes to them.
//!
//! *Owns* proposals and their forwarding, read indexes, and received images. *Invariants*: what
//! another server forwards is proposed only in the term in which it took this server for the leader;
//! a read index is asked for again until it is confirmed; a received state replaces this one only when
//! the consensus has accepted it, and after all clients were sent away.
//!
//! Takes the place of `Learner`, `LearnerHandler` and their request processors.

use raft::eraftpb::{Message, MessageType};

use super::Refusal;
use super::node::Verdict;
use crate::replica::Replica;
use crate::replica::durable::Mark;
use crate::replica::inspect::{Departures, ProposalSizes};
use crate::replica::machine::{Machine, Txn, TxnOp, txn};
use crate::replica::messages::PeerMessage;

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
                true
            }
            PeerMessage::Recall { question, promise } => {
                let said = (question, promise.as_ref());
                let is_asked = self.consensus.recalled(from, said, self.now_us);
                self.stop_if_refused();
                is_asked
            }
            PeerMessage::Raft(message) => message.from == from && self.raft_message(*message),
            PeerMessage::Forward { term, batch } => {
                // Whoever takes this server for the leader of another term learns better, and then
                // knows that this was lost.
                let (sessions, expiry) = (self.machine.sessions(), &mut self.expiry);
                let moves = &mut self.moves;
                // Who comes back just before the end is heard of now, not only when that is applied.
                let heard = |txn: &Txn| {
                    let TxnOp::AttachSession { password, .. } = &txn.op else { return };
                    moves.taken(term, txn.session);
                    let known = sessions.find(txn.session);
                    if known.is_some_and(|known| known.password == *password) {
                        expiry.touch(txn.session);
                    }
                };
                !self.consensus.is_leader()
                    || term != self.consensus.term()
                    || self.forwarding.take_foreign((from, term), &batch, heard)
            }
            PeerMessage::Return { term, batch } => {
                self.forwarding.take_returned(self.origin, term, &batch)
            }
            PeerMessage::Ping { term, at_us, steady_ms, heard } => {
                self.pinged(from, (term, at_us), steady_ms, heard);
                true
            }
            PeerMessage::Touch { term, at_us, wall_ms, stamp, base, sessions } => {
                self.touched(from, (term, at_us), wall_ms, (stamp, base), &sessions)
            }
        };
        if !makes_sense {
            self.figures.peer_messages_dropped += 1;
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
        let verdict = self.consensus.step(message);
        if verdict == Verdict::Refused {
            self.output.cut(from);
        }
        if verdict == Verdict::Taken && self.consensus.leader() == Some(from) {
            self.leader_heard();
        }
        verdict == Verdict::Taken
    }

    /// This server leads no longer: who gave it something that it has not proposed may give that to the
    /// next leader.
    pub(in crate::replica) fn give_back(&mut self) {
        for write_batch in self.forwarding.deposed() {
            let ((to, term), batch) = (write_batch.from, write_batch.payload.into());
            self.output.send(to, PeerMessage::Return { term, batch });
        }
    }

    /// Gives what was collected to the leader, or to the log if that is this server; and asks for a
    /// read index if something waits for one.
    pub(in crate::replica) fn propose(&mut self) {
        let term = self.consensus.term();
        if self.consensus.is_leader() {
            let is_clear = self.consensus.takes_proposals()
                && !self.awaits_clocks()
                && (self.consensus.is_alone()
                    || self.pace.is_clear(term, self.consensus.log_ends(), self.now_us));
            if is_clear {
                self.expire();
            }
            while is_clear && let Some(mut write_batch) = self.forwarding.next_to_propose(term) {
                let mut asks_reconfig = false;
                if write_batch.asks_reconfig {
                    if self.leading != Some(term) || self.is_reconfig_unapplied() {
                        // What was decided before is yet to be applied: it waits for that.
                        self.forwarding.give_back(write_batch);
                        break;
                    }
                    (write_batch.payload, asks_reconfig) =
                        self.screen(std::mem::take(&mut write_batch.payload));
                }
                txn::stamp(&mut write_batch.payload, &self.entry_time());
                let size = write_batch.payload.len() as u64;
                match self.consensus.propose(std::mem::take(&mut write_batch.payload)) {
                    Ok(()) => {
                        let index = self.consensus.last_index();
                        self.pace.proposed(term, index, size, self.now_us);
                        self.figures.proposals += 1;
                        if asks_reconfig {
                            self.reconfig_proposed = Some(self.consensus.last_index());
                        }
                        let sizes = self.figures.proposal_sizes.get_or_insert(ProposalSizes {
                            last: size,
                            min: size,
                            max: size,
                        });
                        sizes.last = size;
                        sizes.min = sizes.min.min(size);
                        sizes.max = sizes.max.max(size);
                        self.forwarding.given(term, self.consensus.id(), write_batch.origins());
                    }
                    Err(payload) => {
                        write_batch.payload = payload;
                        self.forwarding.give_back(write_batch);
                        break;
                    }
                }
            }
        } else if let Some(leader) = self.consensus.leader() {
            while let Some(mut write_batch) = self.forwarding.next_own(term) {
                self.figures.forwards += write_batch.origins().len() as u64;
                self.forwarding.given(term, leader, write_batch.origins());
                let batch = std::mem::take(&mut write_batch.payload).into();
                self.output.send(leader, PeerMessage::Forward { term, batch });
            }
        }
        if self.reads.is_behind(self.clients.sync_asked) && self.consensus.leader().is_some() {
            self.consensus.read_index(self.reads.ask(self.clients.sync_asked));
        }
    }

    /// Answers what waits for a read index that is confirmed and applied.
    pub(in crate::replica) fn release_reads(&mut self) {
        while let Some(sync) = self.reads.release(self.applied.0) {
            self.reads_confirmed(sync);
        }
    }

    /// Another server, that this one has connected to, has said in which term it is.
    pub(in crate::replica) fn introduced(&mut self, peer: u64, term: u64) {
        self.consensus.introduced(peer, term);
        self.stop_if_refused();
    }

    fn stop_if_refused(&mut self) {
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

    /// An image was received. The consensus decides whether it is wanted still.
    pub(in crate::replica) fn image_received(
        &mut self,
        mut message: Message,
        mark: Mark,
        machine: Box<Machine>,
    ) {
        let own = self.consensus.id();
        let metadata = message.mut_snapshot().mut_metadata();
        if (metadata.index, metadata.term) != (mark.index, mark.term) {
            self.figures.peer_messages_dropped += 1;
            return;
        }
        // The image may be older than the entry that let this server in, which comes behind it.
        let state = metadata.mut_conf_state();
        if !state.voters.contains(&own) && !state.learners.contains(&own) {
            state.mut_learners().push(own);
        }
        if self.consensus.step(message) == Verdict::Taken && self.consensus.awaits_image(mark.index)
        {
            self.incoming = Some((mark, machine));
        }
    }

    /// The consensus has accepted the image at this index and term.
    ///
    /// # Errors
    /// There is none.
    pub(in crate::replica) fn install(&mut self, at: (u64, u64)) -> Result<(), String> {
        let is_it = |(mark, _): &(Mark, Box<Machine>)| (mark.index, mark.term) == at;
        let Some((mark, machine)) = self.incoming.take().filter(is_it) else {
            return Err(format!(
                "an image at entry {} of term {} was accepted, but none came",
                at.0, at.1
            ));
        };
        self.stop_serving();
        self.expiry.clear();
        self.machine = *machine;
        self.departures = Departures::since(self.machine.last_time_ms());
        self.machine.take_replayed();
        self.machine.mark_all_changed();
        self.machine.keep_all_tombstones(true);
        self.applied = at;
        self.log_end_at_start = 0;
        self.reads.clear();
        self.members_changed = true;
        self.output.install(mark);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::Entry as RaftEntry;

    use super::*;
    use crate::config::ServerSpec;
    use crate::replica::Append;
    use crate::replica::Input;
    use crate::replica::Membership;
    use crate::replica::Restored;
    use crate::replica::Setup;
    use crate::replica::Urgency;
    use crate::replica::bounds::TICK_MS;
    use crate::tree::Options;

    /// Server 2 of three, that has heard nothing yet.
    fn replica() -> Replica {
        let spec = |id| ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id};20{id}")).unwrap();
        let setup = Setup {
            raft_id: 2,
            server_id: 2,
            ensemble: Some((1..=3).map(spec).collect()),
            ..Setup::default()
        };
        let membership = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
        let restored = Restored { membership, ..Restored::default() };
        Replica::new(setup, Machine::fresh(Options::default()), restored).unwrap()
    }

    fn from_leader(kind: MessageType) -> Message {
        let mut message = Message { from: 1, to: 2, term: 5, ..Message::default() };
        message.set_msg_type(kind);
        message
    }

    fn image(index: u64) -> Input {
        let membership = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
        let mark = Mark { index, term: 4, membership, ..Mark::default() };
        let mut message = from_leader(MessageType::MsgSnapshot);
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (index, 4);
        metadata.mut_conf_state().voters = vec![1, 2, 3];
        let machine = Box::new(Machine::fresh(Options::default()));
        Input::ImageReceived { message: Box::new(message), mark, machine }
    }

    fn entry_behind(index: u64, term: u64) -> Input {
        let mut message = from_leader(MessageType::MsgAppend);
        (message.index, message.log_term, message.commit) = (index, term, index + 1);
        let entry = RaftEntry { index: index + 1, term: 5, ..RaftEntry::default() };
        message.set_entries(vec![entry].into());
        Input::Peer { from: 1, message: PeerMessage::Raft(Box::new(message)) }
    }

    /// What is to be written, and what other servers are told.
    fn turn(replica: &mut Replica) -> (Vec<Append>, Vec<(MessageType, u64)>) {
        let (mut appends, mut said) = (Vec::new(), Vec::new());
        while let Some(ready) = replica.ready().unwrap() {
            appends.extend(ready.append);
            for (_, message) in ready.send {
                let PeerMessage::Raft(message) = message else { continue };
                // A question promises nothing.
                if message.get_msg_type() != MessageType::MsgReadIndex {
                    said.push((message.get_msg_type(), message.index));
                }
            }
        }
        (appends, said)
    }

    #[test]
    fn nothing_of_an_image_is_promised_before_it_is_durable() {
        let mut replica = replica();
        replica.step(image(50));
        let (install, said) = turn(&mut replica);
        let [install] = &install[..] else { panic!("{install:?}") };
        assert_eq!(install.install.as_ref().map(|mark| mark.index), Some(50));
        assert!(install.urgency == Urgency::High && install.entries.is_empty());
        assert_eq!(install.hard_state.map(|state| (state.term, state.commit)), Some((5, 50)));
        assert_eq!(said, []);
        // What comes behind it waits for it, and for itself; and no time makes it stand for election.
        replica.step(entry_behind(50, 4));
        let (behind, said) = turn(&mut replica);
        assert_eq!(behind[0].entries.iter().map(|entry| entry.index).collect::<Vec<_>>(), [51]);
        assert_eq!(said, []);
        for tick in 1..=40 {
            replica.step(Input::Tick { now_us: tick * TICK_MS * 1000, wall_ms: 1 });
        }
        assert_eq!(turn(&mut replica), (Vec::new(), Vec::new()));
        assert_eq!(replica.applied, (50, 4));
        replica.persisted(install.number);
        assert_eq!(turn(&mut replica).1, [(MessageType::MsgAppendResponse, 50)]);
        assert_eq!(replica.applied, (50, 4));
        replica.persisted(behind.last().unwrap().number);
        assert_eq!(turn(&mut replica).1, [(MessageType::MsgAppendResponse, 51)]);
        assert_eq!(replica.applied, (51, 5));
    }

    #[test]
    fn an_image_that_holds_no_more_than_the_log_replaces_nothing() {
        let mut replica = replica();
        replica.step(entry_behind(0, 0));
        let (appends, _) = turn(&mut replica);
        replica.persisted(appends.last().unwrap().number);
        turn(&mut replica);
        assert_eq!(replica.applied, (1, 5));
        let Input::ImageReceived { mut message, mark, machine } = image(1) else { panic!() };
        message.mut_snapshot().mut_metadata().term = 5;
        let mark = Mark { term: 5, ..mark };
        replica.step(Input::ImageReceived { message, mark, machine });
        let (appends, said) = turn(&mut replica);
        assert!(appends.iter().all(|append| append.install.is_none()), "{appends:?}");
        assert_eq!(said, [(MessageType::MsgAppendResponse, 1)]);
        assert!(replica.incoming.is_none());
    }
}
