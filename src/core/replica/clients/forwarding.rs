//! Forwarding: the transactions of this server's clients on their way to the leader.
//!
//! *Owns* those that no leader was given yet, those that were given and are not applied yet, and those that
//! other servers gave this one. *Invariants*: a connection's transactions are
//! given in order, and none is given in a later term before it is known what became of those of earlier
//! terms: so a connection never loses one in the middle. What is lost is found out exactly: once an
//! entry of a later term is applied, nothing that was given before can be applied any more.
//! *Never* gives anything twice.
//!
//! Takes the place of ZooKeeper's `FollowerRequestProcessor` and `CommitProcessor`.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::proto::OpCode;
use crate::replica::machine::{Batch, BatchBuilder, Origin, Txn, TxnOp, is_current};
use crate::replica::request::ConnId;
use crate::tree::acl::Identity;

/// A batch, and whose transactions are in it.
#[derive(Debug, Default)]
pub(in crate::replica) struct WriteBatch {
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
pub(in crate::replica) struct Forwarding {
    /// This process, in the origins of its clients' transactions.
    origin: u64,
    batch: BatchBuilder,
    origins: Vec<(ConnId, u64)>,
    asks_reconfig: bool,
    waiting: VecDeque<WriteBatch>,
    /// Given once, and given back without effect: before all that waits.
    returned: VecDeque<WriteBatch>,
    /// The leader's own: void once it leads no longer.
    chores: BatchBuilder,
    /// Batches of them that were full before.
    full_chores: VecDeque<Vec<u8>>,
    /// What other servers gave this one while it leads.
    foreign: VecDeque<WriteBatch>,
    in_flight: VecDeque<InFlight>,
    /// The link that something was given on broke.
    is_link_lost: bool,
}

impl Forwarding {
    /// Of this process.
    pub(in crate::replica) fn new(origin: u64) -> Self {
        Self { origin, ..Self::default() }
    }

    /// Whether a transaction is of one of this process's clients.
    pub(in crate::replica) fn is_own(&self, origin: Origin) -> bool {
        origin.server == self.origin
    }

    /// Adds a transaction of the client of this connection, by its number there, that ends so many ephemerals.
    pub(in crate::replica) fn push(
        &mut self,
        (conn, sequence): (ConnId, u64),
        session: i64,
        cxid: i32,
        ids: &[Identity],
        (op, ephemerals): (&TxnOp, usize),
    ) {
        let origin = Origin { server: self.origin, conn, sequence };
        self.batch.weigh(ephemerals);
        self.add(origin, session, cxid, ids, op);
    }

    fn add(&mut self, origin: Origin, session: i64, cxid: i32, ids: &[Identity], op: &TxnOp) {
        self.batch.push(origin, session, cxid, ids, op);
        self.origins.push((origin.conn, origin.sequence));
        self.asks_reconfig |= is_reconfig(op);
        if self.batch.is_full() {
            self.close_batch();
        }
    }

    /// Adds a transaction of the leader's own, that ends so many ephemerals.
    pub(in crate::replica) fn push_chore(&mut self, session: i64, op: &TxnOp, ephemerals: usize) {
        if self.chores.is_full() {
            self.full_chores.push_back(self.chores.take());
        }
        self.chores.weigh(ephemerals);
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
        // What only a leader decides, such as the end of a session that is silent or the version of the ensemble, no
        // other server gives: one such entry may stop every server for good.
        let is_of_clients = decoded.txns.iter().all(|txn| txn.op.is_of_client());
        if decoded.txns.is_empty() || !is_current(batch) || !is_of_clients {
            return false;
        }
        decoded.txns.iter().for_each(heard);
        self.foreign.push_back(WriteBatch { from, ..WriteBatch::of(batch, &decoded) });
        true
    }

    /// A deposed leader gives back what this server gave it in `term`. False: it never did. What is
    /// lost by now stays lost.
    pub(in crate::replica) fn take_returned(&mut self, term: u64, batch: &Bytes) -> bool {
        let Ok(decoded) = Batch::decode(batch) else { return false };
        if !is_current(batch) || decoded.txns.iter().any(|txn| !self.is_own(txn.origin)) {
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
        self.returned.push_back(WriteBatch { origins, ..WriteBatch::of(batch, &decoded) });
        true
    }

    fn close_batch(&mut self) {
        if !self.batch.is_empty() {
            self.waiting.push_back(WriteBatch {
                payload: self.batch.take(),
                origins: std::mem::take(&mut self.origins),
                asks_reconfig: std::mem::take(&mut self.asks_reconfig),
                ..WriteBatch::default()
            });
        }
    }

    /// The next batch for the log, if this server leads in `term`.
    pub(in crate::replica) fn next_to_propose(&mut self, term: u64) -> Option<WriteBatch> {
        if let Some(payload) = self.full_chores.pop_front() {
            return Some(WriteBatch { payload, ..WriteBatch::default() });
        }
        if !self.chores.is_empty() {
            return Some(WriteBatch { payload: self.chores.take(), ..WriteBatch::default() });
        }
        self.foreign.pop_front().or_else(|| self.next_own(term))
    }

    /// The next batch of this server's own clients, for the leader of `term`.
    pub(in crate::replica) fn next_own(&mut self, term: u64) -> Option<WriteBatch> {
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
    pub(in crate::replica) fn give_back(&mut self, write_batch: WriteBatch) {
        // Also what is the leader's own or another server's: they are proposed before the waiting.
        let queue =
            if write_batch.origins.is_empty() { &mut self.foreign } else { &mut self.returned };
        queue.push_front(write_batch);
    }

    /// A batch was given to `to`, the leader of `term`.
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
        for write_batch in returned.into_iter().chain(std::mem::take(&mut self.waiting)) {
            if !write_batch.origins.iter().any(|(conn, _)| lost.contains(conn)) {
                self.waiting.push_back(write_batch);
                continue;
            }
            let batch = Batch::decode(&write_batch.payload.into()).expect("it was encoded here");
            for txn in batch.txns.iter().filter(|txn| !lost.contains(&txn.origin.conn)) {
                self.add(txn.origin, txn.session, txn.cxid, &txn.ids, &txn.op);
            }
            self.close_batch();
        }
    }

    /// A link to or from `peer` broke, or took the place of another one. If something was given to
    /// it, even if another server leads by now, nothing more is given until it is known what became of that.
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
    pub(in crate::replica) fn deposed(&mut self) -> Vec<WriteBatch> {
        self.chores = BatchBuilder::default();
        self.full_chores.clear();
        self.foreign.drain(..).filter(|write_batch| write_batch.from.0 != 0).collect()
    }

    /// All connections are closed. What is not of theirs stays.
    pub(in crate::replica) fn clear(&mut self) {
        let (chores, foreign) =
            (std::mem::take(&mut self.chores), std::mem::take(&mut self.foreign));
        let full_chores = std::mem::take(&mut self.full_chores);
        *self = Self { chores, full_chores, foreign, ..Self::new(self.origin) };
    }
}

impl WriteBatch {
    /// What another server has sent.
    fn of(payload: &Bytes, decoded: &Batch) -> Self {
        let asks_reconfig = decoded.txns.iter().any(|txn| is_reconfig(&txn.op));
        Self { payload: payload.to_vec(), asks_reconfig, ..Self::default() }
    }

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

    fn push(forwarding: &mut Forwarding, conn: ConnId, sequence: u64) {
        forwarding.push((conn, sequence), 5, 0, &[], (&TxnOp::CloseSession, 0));
    }

    fn give(forwarding: &mut Forwarding, term: u64) -> usize {
        let mut given = 0;
        while let Some(write_batch) = forwarding.next_own(term) {
            given += write_batch.origins().len();
            forwarding.given(term, LEADER, write_batch.origins());
        }
        given
    }

    #[test]
    fn nothing_is_given_in_a_later_term_before_the_earlier_ones_are_settled() {
        let mut forwarding = Forwarding::new(1);
        push(&mut forwarding, 7, 1);
        assert_eq!(give(&mut forwarding, 1), 1);
        push(&mut forwarding, 8, 1);
        assert_eq!(give(&mut forwarding, 2), 0);
        assert_eq!(forwarding.lost_before(2), [7]);
        assert_eq!(give(&mut forwarding, 2), 1);
    }

    #[test]
    fn what_waits_behind_something_lost_is_never_given() {
        let mut forwarding = Forwarding::new(1);
        push(&mut forwarding, 7, 1);
        give(&mut forwarding, 1);
        for (conn, sequence) in [(7, 2), (8, 1), (7, 3)] {
            push(&mut forwarding, conn, sequence);
        }
        assert_eq!(forwarding.lost_before(2), [7]);
        let write_batch = forwarding.next_own(2).expect("that of the other connection");
        assert_eq!(write_batch.origins(), [(8, 1)]);
        let batch = Batch::decode(&write_batch.payload.into()).unwrap();
        assert_eq!(batch.txns.len(), 1);
        assert_eq!(give(&mut forwarding, 2), 0);
    }

    #[test]
    fn what_only_a_leader_decides_is_taken_from_no_other_server() {
        let take = |op: TxnOp| {
            let mut batch = BatchBuilder::default();
            batch.push(Origin { server: 2, conn: 7, sequence: 1 }, 5, 0, &[], &TxnOp::CloseSession);
            batch.push(Origin { server: 2, conn: 7, sequence: 2 }, 5, 0, &[], &op);
            let mut forwarding = Forwarding::new(1);
            forwarding.take_foreign((2, 1), &batch.take().into(), |_| {})
        };
        assert!(take(TxnOp::CloseSession));
        assert!(take(TxnOp::Client { op: 1, body: Bytes::new() }));
        assert!(!take(TxnOp::ExpireSession));
        assert!(!take(TxnOp::Reap { path: "/c".into() }));
        assert!(!take(TxnOp::Found { members: "".into(), opens_term: true }));
        assert!(!take(TxnOp::Upgrade { version: 200, release: "9".into() }));
        assert!(!take(TxnOp::Refuse { op: 1, code: -1 }));
    }

    #[test]
    fn what_was_applied_is_not_lost() {
        let mut forwarding = Forwarding::new(1);
        push(&mut forwarding, 7, 1);
        push(&mut forwarding, 8, 1);
        give(&mut forwarding, 1);
        forwarding.applied(7, 1);
        assert_eq!(forwarding.lost_before(2), [8]);
    }

    #[test]
    fn after_a_broken_link_the_same_leader_means_loss_and_another_one_does_not() {
        let mut forwarding = Forwarding::new(1);
        push(&mut forwarding, 7, 1);
        give(&mut forwarding, 1);
        forwarding.link_lost(LEADER);
        push(&mut forwarding, 8, 1);
        assert_eq!(give(&mut forwarding, 1), 0, "nothing while it is not known");
        assert_eq!(forwarding.heard_from_leader(1), [7]);
        assert_eq!(give(&mut forwarding, 1), 1);
        forwarding.link_lost(LEADER);
        assert_eq!(forwarding.heard_from_leader(2), Vec::<ConnId>::new());
        forwarding.applied(8, 1);
        assert_eq!(forwarding.lost_before(2), Vec::<ConnId>::new());
    }

    #[test]
    fn a_link_that_nothing_was_given_on_takes_nothing_with_it() {
        let mut forwarding = Forwarding::new(1);
        push(&mut forwarding, 7, 1);
        give(&mut forwarding, 1);
        forwarding.link_lost(LEADER + 1);
        assert_eq!(forwarding.heard_from_leader(1), Vec::<ConnId>::new());
    }

    #[test]
    fn what_comes_back_is_given_again_in_its_order_unless_it_is_lost_by_then() {
        let mut forwarding = Forwarding::new(1);
        let mut given = Vec::new();
        for sequence in 1..=3 {
            push(&mut forwarding, 7, sequence);
            let write_batch = forwarding.next_own(1).unwrap();
            forwarding.given(1, LEADER, write_batch.origins());
            given.push(Bytes::from(write_batch.payload));
        }
        push(&mut forwarding, 7, 4);
        assert!(!Forwarding::new(2).take_returned(1, &given[1]), "not of that process");
        assert!(forwarding.take_returned(1, &given[1]) && forwarding.take_returned(1, &given[2]));
        forwarding.applied(7, 1);
        let again: Vec<u64> = std::iter::from_fn(|| forwarding.next_own(2))
            .flat_map(|write_batch| write_batch.origins.into_iter().map(|(_, sequence)| sequence))
            .collect();
        assert_eq!(again, [2, 3, 4]);
        assert!(forwarding.take_returned(1, &given[2]), "twice");
        assert!(forwarding.next_own(2).is_none());
    }

    #[test]
    fn noise_of_another_server_is_not_taken() {
        let mut forwarding = Forwarding::new(1);
        assert!(!forwarding.take_foreign((2, 1), &Bytes::from_static(b"\x01noise"), |_| ()));
        assert!(!forwarding.take_foreign((2, 1), &Bytes::new(), |_| ()));
        assert!(forwarding.next_to_propose(1).is_none());
    }
}
