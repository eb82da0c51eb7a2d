//! The end of a session with many ephemerals, in portions: others are heard in between.
//!
//! *Owns* which transactions are carried out that way. *Invariants*: of the transaction only its removals come before
//! the rest of it, with its own zxid; what it would not remove is not removed. *Never* shows a state in between: who
//! asks waits until the transaction is applied.

use super::migration_record::Decider;
use super::state::{Applied, Machine};
use super::txn::{Txn, TxnOp};
use crate::proto::{OpCode, Response};
use crate::tree::{Context, Leaving, Rules};
use crate::zookeeper::txn::kind;

/// An entry of which a part is applied.
#[derive(Debug)]
pub(in crate::replica) struct Underway {
    /// Index and term.
    pub(in crate::replica) at: (u64, u64),
    /// Its transactions that are not applied; the first one ends a session.
    pub(in crate::replica) txns: std::vec::IntoIter<Txn>,
    /// Ephemerals that are left.
    pub(in crate::replica) leaving: Leaving,
    /// The digest of the state before that.
    pub(in crate::replica) digest: u128,
    /// Whether it has removed any.
    pub(in crate::replica) has_begun: bool,
}

impl Machine {
    /// Ephemerals that a transaction removes, where it ends a session with more than so many.
    pub(in crate::replica) fn leaving(&self, txn: &Txn, more_than: usize) -> Option<Leaving> {
        let decides = self.decider() == Decider::Ensemble && self.sessions.is_open(txn.session);
        let (session, is_foreign) = match &txn.op {
            TxnOp::CloseSession if decides && self.check_owner(txn) == Ok(()) => {
                (txn.session, false)
            }
            TxnOp::ExpireSession if decides && !mutant!("expiry-leaves-ephemerals") => {
                (txn.session, false)
            }
            TxnOp::Foreign(foreign)
                if foreign.header.kind == kind::CLOSE_SESSION
                    && self.follows_from(foreign.header.zxid) =>
            {
                (foreign.header.client_id, true)
            }
            _ => return None,
        };
        let is_long = self.tree.has_more_ephemerals(session, more_than);
        is_long.then(|| Leaving::of(session, is_foreign))
    }

    /// Goes on to remove them, so many at most: what clients are to hear of it, and whether all are gone. Then the
    /// transaction, in an entry of `term`, is to be applied.
    pub(in crate::replica) fn let_leave(
        &mut self,
        (term, txn): (u64, &Txn),
        leaving: &mut Leaving,
        znodes_max: usize,
    ) -> (Applied, bool) {
        let (zxid, time_ms, session) = match &txn.op {
            TxnOp::Foreign(foreign) => {
                (foreign.header.zxid, foreign.header.time_ms, foreign.header.client_id)
            }
            op => (self.next_zxid(term, op), self.last_time_ms, txn.session),
        };
        let (steady_ms, rules) = (self.steady_ms, Rules::DEFAULT);
        let context = Context { zxid, time_ms, steady_ms, session, ids: &[], rules };
        let mut applied = Applied::new(zxid, OpCode::CloseSession, Ok(Response::Empty));
        let is_done = self.tree.let_leave(&context, leaving, znodes_max, &mut applied.events);
        (applied, is_done)
    }
}
