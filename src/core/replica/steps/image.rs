//! A received image takes the place of the state.
//!
//! *Owns* nothing. *Invariant*: a received state replaces this one only when the consensus has accepted it, and after
//! all clients were sent away. *Never* reads the image: the shell has restored and verified it.

use raft::eraftpb::Message;

use crate::replica::Replica;
use crate::replica::consensus::Verdict;
use crate::replica::durable::Mark;
use crate::replica::machine::Machine;

impl Replica {
    /// An image was received. The consensus decides whether it is wanted still.
    pub(in crate::replica) fn image_received(
        &mut self,
        mut message: Message,
        mark: Mark,
        machine: Box<Machine>,
    ) {
        if self.is_diverged() {
            return;
        }
        let own = self.consensus.id();
        let metadata = message.mut_snapshot().mut_metadata();
        if (metadata.index, metadata.term) != (mark.index, mark.term) {
            self.figures.counts.peer_messages_dropped += 1;
            return;
        }
        // The image may be older than the entry that let this server in, which comes behind it.
        let state = metadata.mut_conf_state();
        if !state.voters.contains(&own) && !state.learners.contains(&own) {
            state.mut_learners().push(own);
        }
        if self.consensus.step(message) == Verdict::Taken && self.consensus.awaits_image(mark.index)
        {
            // The image has them.
            self.unapplied.clear();
            self.state.receive(mark, machine);
        }
    }

    /// The consensus has accepted the image at this index and term.
    ///
    /// # Errors
    /// There is none.
    pub(in crate::replica) fn install(&mut self, at: (u64, u64)) -> Result<(), String> {
        let (mark, replaced) = self.state.install(at)?;
        self.record_anew();
        self.keep_reports_of_members();
        if !mutant!("image-keeps-clients") {
            self.stop_serving();
        }
        self.sessions.end_to_lead();
        self.figures.forget_departures(self.state.machine().last_time_ms());
        self.reads.clear();
        self.ensemble.set_changed();
        self.output.install(mark);
        self.output.replaced(replaced);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry as RaftEntry, MessageType};

    use super::*;
    use crate::config::ServerSpec;
    use crate::replica::Append;
    use crate::replica::Input;
    use crate::replica::Membership;
    use crate::replica::PeerMessage;
    use crate::replica::Restored;
    use crate::replica::Setup;
    use crate::replica::Urgency;
    use crate::replica::timing::TICK_MS;
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
        assert_eq!(replica.state.at(), (50, 4));
        replica.persisted(install.number);
        assert_eq!(turn(&mut replica).1, [(MessageType::MsgAppendResponse, 50)]);
        assert_eq!(replica.state.at(), (50, 4));
        replica.persisted(behind.last().unwrap().number);
        assert_eq!(turn(&mut replica).1, [(MessageType::MsgAppendResponse, 51)]);
        assert_eq!(replica.state.at(), (51, 5));
    }

    #[test]
    fn an_image_that_holds_no_more_than_the_log_replaces_nothing() {
        let mut replica = replica();
        replica.step(entry_behind(0, 0));
        let (appends, _) = turn(&mut replica);
        replica.persisted(appends.last().unwrap().number);
        turn(&mut replica);
        assert_eq!(replica.state.at(), (1, 5));
        let Input::ImageReceived { mut message, mark, machine } = image(1) else { panic!() };
        message.mut_snapshot().mut_metadata().term = 5;
        let mark = Mark { term: 5, ..mark };
        replica.step(Input::ImageReceived { message, mark, machine });
        let (appends, said) = turn(&mut replica);
        assert!(appends.iter().all(|append| append.install.is_none()), "{appends:?}");
        assert_eq!(said, [(MessageType::MsgAppendResponse, 1)]);
        assert!(!replica.state.has_received());
    }
}
