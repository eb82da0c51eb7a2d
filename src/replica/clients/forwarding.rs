//! Transactions on their way to the leader.
//!
//! *Owns* what this server's clients asked for and no leader was given yet, what was given and is not
//! applied yet, and what other servers gave this one. *Invariants*: a connection's transactions are
//! given in order, and none is given in a later term before it is known what became of those of earlier
//! terms: so a connection never loses one in the middle. What is lost is found out exactly: once an
//! entry of a later term is applied, nothing that was given before can be applied any more.
//! *Never* gives anything twice.
//!
//! Takes the place of ZooKeeper's `FollowerRequestProcessor` and `CommitProcessor`.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::proto::OpCode;
use crate::replica::input::ConnId;
use crate::replica::machine::{Batch, BatchBuilder, Origin, Txn, TxnOp, is_current};
use crate::tree::acl::Identity;

/// A batch, and whose transactions are in it.
#[derive(Debug)]
pub(in crate::replica) struct Parcel {
    /// As `txn::Batch` reads it.
    pub(in crate::replica) payload: Vec<u8>,
    /// Connection and number of each of this server's transactions in it.
    origins: Vec<(ConnId, u64)>,
    /// Raft id of the server that gave it, 0 for none, and the term in which it did.
    pub(in crate::replica) from: (u64, u64),
    /// Whether one of them asks for other members, and must be looked at first.
    pub(in crate::replica) asks_reconfig: bool,
}

/// A transaction that was given to a leader.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    term: u64,
    /// Raft id of that leader.
    to: u64,
    conn: ConnId,
    sequence: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::replica) struct Handover {
    batch: BatchBuilder,
    origins: Vec<(ConnId, u64)>,
    asks_reconfig: bool,
    waiting: VecDeque<Parcel>,
    /// Given once, and given back without effect: before all that waits.
    returned: VecDeque<Parcel>,
    /// The leader's own: void once it leads no longer.
    chores: BatchBuilder,
    /// What other servers gave this one while it leads.
    foreign: VecDeque<Parcel>,
    in_flight: VecDeque<InFlight>,
    /// The link that something was given on broke.
    is_link_lost: bool,
}

impl Handover {
    /// Adds a client's transaction.
    pub(in crate::replica) fn push(
        &mut self,
        origin: Origin,
        session: i64,
        cxid: i32,
        ids: &[Identity],
        op: &TxnOp,
    ) {
        self.batch.push(origin, session, cxid, ids, op);
        self.origins.push((origin.conn, origin.sequence));
        self.asks_reconfig |= is_reconfig(op);
        if self.batch.is_full() {
            self.close_batch();
        }
    }

    /// Adds a transaction of the leader's own.
    pub(in crate::replica) fn push_chore(&mut self, session: i64, op: &TxnOp) {
        self.chores.push(Origin::default(), session, 0, &[], op);
    }

    /// Takes what another server gives, and shows each transaction to `heard`. False: it is no batch.
    pub(in crate::replica) fn take_foreign(
        &mut self,
        from: (u64, u64),
        batch: &Bytes,
        heard: impl FnMut(&Txn),
    ) -> bool {
        let Ok(decoded) = Batch::decode(batch) else { return false };
        if decoded.txns.is_empty() || !is_current(batch) {
            return false;
        }
        decoded.txns.iter().for_each(heard);
        let asks_reconfig = decoded.txns.iter().any(|txn| is_reconfig(&txn.op));
        let payload = batch.to_vec();
        self.foreign.push_back(Parcel { payload, origins: Vec::new(), from, asks_reconfig });
        true
    }

    /// A deposed leader gives back what this server gave it in `term`. False: it never did. What is
    /// lost by now stays lost.
    pub(in crate::replica) fn take_returned(&mut self, own: u64, term: u64, batch: &Bytes) -> bool {
        let Ok(decoded) = Batch::decode(batch) else { return false };
        if !is_current(batch) || decoded.txns.iter().any(|txn| txn.origin.server != own) {
            return false;
        }
        let origin = |txn: &Txn| (txn.origin.conn, txn.origin.sequence);
        let origins: Vec<(ConnId, u64)> = decoded.txns.iter().map(origin).collect();
        let is_of_batch = |known: &InFlight| {
            known.term == term && origins.contains(&(known.conn, known.sequence))
        };
        if self.in_flight.iter().filter(|known| is_of_batch(known)).count() != origins.len() {
            return true;
        }
        self.in_flight.retain(|known| !is_of_batch(known));
        let asks_reconfig = decoded.txns.iter().any(|txn| is_reconfig(&txn.op));
        self.returned.push_back(Parcel {
            payload: batch.to_vec(),
            origins,
            from: (0, 0),
            asks_reconfig,
        });
        true
    }

    fn close_batch(&mut self) {
        if !self.batch.is_empty() {
            self.waiting.push_back(Parcel {
                payload: self.batch.take(),
                origins: std::mem::take(&mut self.origins),
                from: (0, 0),
                asks_reconfig: std::mem::take(&mut self.asks_reconfig),
            });
        }
    }

    /// The next parcel for the log, if this server leads in `term`.
    pub(in crate::replica) fn next_to_propose(&mut self, term: u64) -> Option<Parcel> {
        if !self.chores.is_empty() {
            let payload = self.chores.take();
            return Some(Parcel {
                payload,
                origins: Vec::new(),
                from: (0, 0),
                asks_reconfig: false,
            });
        }
        self.foreign.pop_front().or_else(|| self.next_own(term))
    }

    /// The next parcel of this server's own clients, for the leader of `term`.
    pub(in crate::replica) fn next_own(&mut self, term: u64) -> Option<Parcel> {
        let is_clear = self.in_flight.front().is_none_or(|oldest| oldest.term == term)
            || mutant!("next-term-does-not-wait");
        if self.is_link_lost || !is_clear {
            return None;
        }
        if let Some(returned) = self.returned.pop_front() {
            return Some(returned);
        }
        self.close_batch();
        self.waiting.pop_front()
    }

    /// The consensus would not take it yet.
    pub(in crate::replica) fn give_back(&mut self, parcel: Parcel) {
        // Also what is the leader's own or another server's: they are proposed before the waiting.
        let queue = if parcel.origins.is_empty() { &mut self.foreign } else { &mut self.returned };
        queue.push_front(parcel);
    }

    /// A parcel was given to `to`, the leader of `term`.
    pub(in crate::replica) fn given(&mut self, term: u64, to: u64, origins: &[(ConnId, u64)]) {
        let in_flight = |&(conn, sequence): &(ConnId, u64)| InFlight { term, to, conn, sequence };
        self.in_flight.extend(origins.iter().map(in_flight));
    }

    /// A transaction of this server's clients was applied.
    pub(in crate::replica) fn applied(&mut self, conn: ConnId, sequence: u64) {
        let is_it = |known: &InFlight| (known.conn, known.sequence) == (conn, sequence);
        if self.in_flight.front().is_some_and(is_it) {
            self.in_flight.pop_front();
        } else if let Some(at) = self.in_flight.iter().position(is_it) {
            self.in_flight.remove(at);
        }
    }

    /// An entry of `term` is about to be applied: what was given in earlier terms is lost. Says of
    /// which connections.
    pub(in crate::replica) fn lost_before(&mut self, term: u64) -> Vec<ConnId> {
        self.is_link_lost = false;
        let mut lost = Vec::new();
        while let Some(oldest) = self.in_flight.front().filter(|oldest| oldest.term < term) {
            lost.push(oldest.conn);
            self.in_flight.pop_front();
        }
        self.withdraw(&lost);
        lost
    }

    /// Forgets what waits behind something lost: a connection's transactions are done in order, or not
    /// at all.
    fn withdraw(&mut self, lost: &[ConnId]) {
        if lost.is_empty() || mutant!("waiting-behind-lost-is-given") {
            return;
        }
        self.close_batch();
        let returned = std::mem::take(&mut self.returned);
        for parcel in returned.into_iter().chain(std::mem::take(&mut self.waiting)) {
            if !parcel.origins.iter().any(|(conn, _)| lost.contains(conn)) {
                self.waiting.push_back(parcel);
                continue;
            }
            let batch = Batch::decode(&parcel.payload.into()).expect("it was encoded here");
            for txn in batch.txns.iter().filter(|txn| !lost.contains(&txn.origin.conn)) {
                self.push(txn.origin, txn.session, txn.cxid, &txn.ids, &txn.op);
            }
            self.close_batch();
        }
    }

    /// A link to or from `peer` broke, or took the place of another one. If something was given to
    /// it, whoever leads by now, nothing more is given until it is known what became of that.
    pub(in crate::replica) fn link_lost(&mut self, peer: u64) {
        let is_lost = self.in_flight.iter().any(|known| known.to == peer);
        self.is_link_lost |= is_lost && !mutant!("broken-link-unnoticed");
    }

    /// The leader of `term` was heard from: if the link to it had broken, what was on it is lost.
    /// Says of which connections.
    pub(in crate::replica) fn heard_from_leader(&mut self, term: u64) -> Vec<ConnId> {
        if !std::mem::take(&mut self.is_link_lost) {
            return Vec::new();
        }
        if self.in_flight.front().is_none_or(|oldest| oldest.term != term) {
            return Vec::new();
        }
        let lost: Vec<ConnId> = self.in_flight.drain(..).map(|lost| lost.conn).collect();
        self.withdraw(&lost);
        lost
    }

    /// This server leads no longer: what it was given and has not proposed is to be given back.
    pub(in crate::replica) fn deposed(&mut self) -> Vec<Parcel> {
        self.chores = BatchBuilder::default();
        self.foreign.drain(..).filter(|parcel| parcel.from.0 != 0).collect()
    }

    /// All connections are closed. What is not of theirs stays.
    pub(in crate::replica) fn clear(&mut self) {
        let (chores, foreign) =
            (std::mem::take(&mut self.chores), std::mem::take(&mut self.foreign));
        *self = Self { chores, foreign, ..Self::default() };
    }
}

impl Parcel {
    /// Whose transactions are in it.
    pub(in crate::replica) fn origins(&self) -> &[(ConnId, u64)] {
        &self.origins
    }
}

fn is_reconfig(op: &TxnOp) -> bool {
    matches!(op, TxnOp::Client { op, .. } if *op == OpCode::Reconfig as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: u64 = 3;

    fn push(handover: &mut Handover, conn: ConnId, sequence: u64) {
        let origin = Origin { server: 1, conn, sequence };
        handover.push(origin, 5, 0, &[], &TxnOp::CloseSession);
    }

    fn give(handover: &mut Handover, term: u64) -> usize {
        let mut given = 0;
        while let Some(parcel) = handover.next_own(term) {
            given += parcel.origins().len();
            handover.given(term, LEADER, parcel.origins());
        }
        given
    }

    #[test]
    fn nothing_is_given_in_a_later_term_before_the_earlier_ones_are_settled() {
        let mut handover = Handover::default();
        push(&mut handover, 7, 1);
        assert_eq!(give(&mut handover, 1), 1);
        push(&mut handover, 8, 1);
        assert_eq!(give(&mut handover, 2), 0);
        assert_eq!(handover.lost_before(2), [7]);
        assert_eq!(give(&mut handover, 2), 1);
    }

    #[test]
    fn what_waits_behind_something_lost_is_never_given() {
        let mut handover = Handover::default();
        push(&mut handover, 7, 1);
        give(&mut handover, 1);
        for (conn, sequence) in [(7, 2), (8, 1), (7, 3)] {
            push(&mut handover, conn, sequence);
        }
        assert_eq!(handover.lost_before(2), [7]);
        let parcel = handover.next_own(2).expect("that of the other connection");
        assert_eq!(parcel.origins(), [(8, 1)]);
        let batch = Batch::decode(&parcel.payload.into()).unwrap();
        assert_eq!(batch.txns.len(), 1);
        assert_eq!(give(&mut handover, 2), 0);
    }

    #[test]
    fn what_was_applied_is_not_lost() {
        let mut handover = Handover::default();
        push(&mut handover, 7, 1);
        push(&mut handover, 8, 1);
        give(&mut handover, 1);
        handover.applied(7, 1);
        assert_eq!(handover.lost_before(2), [8]);
    }

    #[test]
    fn after_a_broken_link_the_same_leader_means_loss_and_another_one_does_not() {
        let mut handover = Handover::default();
        push(&mut handover, 7, 1);
        give(&mut handover, 1);
        handover.link_lost(LEADER);
        push(&mut handover, 8, 1);
        assert_eq!(give(&mut handover, 1), 0, "nothing while it is not known");
        assert_eq!(handover.heard_from_leader(1), [7]);
        assert_eq!(give(&mut handover, 1), 1);
        handover.link_lost(LEADER);
        assert_eq!(handover.heard_from_leader(2), Vec::<ConnId>::new());
        handover.applied(8, 1);
        assert_eq!(handover.lost_before(2), Vec::<ConnId>::new());
    }

    #[test]
    fn a_link_that_nothing_was_given_on_takes_nothing_with_it() {
        let mut handover = Handover::default();
        push(&mut handover, 7, 1);
        give(&mut handover, 1);
        handover.link_lost(LEADER + 1);
        assert_eq!(handover.heard_from_leader(1), Vec::<ConnId>::new());
    }

    #[test]
    fn what_comes_back_is_given_again_in_its_order_unless_it_is_lost_by_then() {
        let mut handover = Handover::default();
        let mut given = Vec::new();
        for sequence in 1..=3 {
            push(&mut handover, 7, sequence);
            let parcel = handover.next_own(1).unwrap();
            handover.given(1, LEADER, parcel.origins());
            given.push(Bytes::from(parcel.payload));
        }
        push(&mut handover, 7, 4);
        assert!(!handover.take_returned(2, 1, &given[1]), "not of this process");
        assert!(handover.take_returned(1, 1, &given[1]) && handover.take_returned(1, 1, &given[2]));
        handover.applied(7, 1);
        let again: Vec<u64> = std::iter::from_fn(|| handover.next_own(2))
            .flat_map(|parcel| parcel.origins.into_iter().map(|(_, sequence)| sequence))
            .collect();
        assert_eq!(again, [2, 3, 4]);
        assert!(handover.take_returned(1, 1, &given[2]), "twice");
        assert!(handover.next_own(2).is_none());
    }

    #[test]
    fn noise_of_another_server_is_not_taken() {
        let mut handover = Handover::default();
        assert!(!handover.take_foreign((2, 1), &Bytes::from_static(b"\x01noise"), |_| ()));
        assert!(!handover.take_foreign((2, 1), &Bytes::new(), |_| ()));
        assert!(handover.next_to_propose(1).is_none());
    }
}
