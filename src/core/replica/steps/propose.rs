//! What is proposed: to the log where this server leads, else to the leader.
//!
//! *Owns* nothing: joins forwarding with the consensus. *Invariants*: batches go in their order, stamped with the
//! leader's clocks once; a change of members waits until the one before it is applied; a read index is asked for
//! again until it is confirmed. *Never* looks into a batch, but for one that asks for other members.
//!
//! Takes the place of ZooKeeper's request processors in front of the log.

use crate::replica::Replica;
use crate::replica::clients::WriteBatch;
use crate::replica::machine::{Decider, txn};
use crate::replica::messages::PeerMessage;
use crate::tree::Rules;

impl Replica {
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
        self.set_out_held();
        let term = self.consensus.term();
        if self.consensus.is_leader() {
            if self.may_propose() {
                self.propose_all(term);
            }
        } else if let Some(leader) = self.consensus.leader() {
            while let Some(mut write_batch) = self.forwarding.next_own(term) {
                self.figures.counts.forwards += write_batch.origins().len() as u64;
                self.forwarding.given(term, leader, write_batch.origins());
                let batch = std::mem::take(&mut write_batch.payload).into();
                self.output.send(leader, PeerMessage::Forward { term, batch });
            }
        }
        let wanted = self.clients.sync_asked();
        if self.reads.is_behind(wanted) && self.consensus.leader().is_some() {
            self.consensus.read_index(self.reads.ask(wanted));
        }
    }

    /// Whether a leader's proposals go to the log at once.
    fn may_propose(&self) -> bool {
        let awaits_upgrade = self.leadership.awaits_upgrade(self.state.at().0);
        self.consensus.takes_proposals()
            && !self.awaits_clocks()
            && !awaits_upgrade
            && !self.is_diverged()
    }

    /// Gives all that waits to who decides it: to the log, or to ZooKeeper.
    fn propose_all(&mut self, term: u64) {
        let decider = self.state.machine().decider();
        if decider == Decider::Ensemble {
            self.expire();
        }
        let is_settled = self.propose_followed();
        while is_settled && let Some(batch) = self.forwarding.next_to_propose(term) {
            match decider {
                Decider::ZooKeeper => self.divert(term, batch),
                Decider::Ensemble => {
                    if !self.propose_batch(term, batch) {
                        break;
                    }
                }
            }
        }
        self.propose_followed();
    }

    /// Proposes a batch. False: it has to wait, and is given back.
    fn propose_batch(&mut self, term: u64, mut write_batch: WriteBatch) -> bool {
        let mut asks_reconfig = false;
        if write_batch.asks_reconfig {
            let (committed, _) = self.consensus.log_ends();
            let is_unapplied = self.ensemble.is_reconfig_unapplied(committed);
            let votes_change = self.consensus.is_joint()
                || self.consensus.has_pending_change() && !self.voters_are_members();
            if self.leadership.leads() != Some(term) || is_unapplied || votes_change {
                // What was decided before is yet to be carried out: it waits for that.
                self.forwarding.give_back(write_batch);
                return false;
            }
            (write_batch.payload, asks_reconfig) =
                self.screen(std::mem::take(&mut write_batch.payload));
        }
        self.stamp(&mut write_batch.payload);
        let size = write_batch.payload.len() as u64;
        if let Err(payload) = self.consensus.propose(std::mem::take(&mut write_batch.payload)) {
            write_batch.payload = payload;
            self.forwarding.give_back(write_batch);
            return false;
        }
        let index = self.consensus.last_index();
        self.figures.proposed(size);
        if asks_reconfig {
            self.ensemble.reconfig_proposed(index);
        }
        self.forwarding.given(term, self.consensus.id(), write_batch.origins());
        true
    }

    /// Gives a batch this leader's clocks and rules.
    pub(in crate::replica) fn stamp(&mut self, payload: &mut [u8]) {
        let time = self.entry_time();
        txn::stamp(payload, &time, self.rules(), self.state.machine().written_version());
    }

    /// Rules that this server stamps into entries where it leads: those of its file.
    pub(in crate::replica) fn rules(&self) -> Rules {
        self.state.machine().tree().options().rules
    }

    /// Answers what waits for a read index that is confirmed and applied.
    pub(in crate::replica) fn release_reads(&mut self) {
        while let Some(sync) = self.reads.release(self.state.at().0) {
            self.reads_confirmed(sync);
        }
    }
}
