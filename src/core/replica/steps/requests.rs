//! Requests of one connection.
//!
//! *Owns* nothing: what a read needs, the connections answer; a write is on its way to the leader behind this.
//! *Invariant*: a session is touched by each of its requests but auth packets, as in ZooKeeper. *Never* answers
//! anything itself.

use crate::replica::Replica;
use crate::replica::clients::{Unsent, Wanted};
use crate::replica::machine::TxnOp;
use crate::replica::request::{ClientRequest, ConnId};

impl Replica {
    /// See the module.
    pub(in crate::replica) fn requests(&mut self, conn: ConnId, requests: Vec<ClientRequest>) {
        let session = self.clients.connection(conn).and_then(|known| known.session);
        let Some(session) = session else { return };
        // They were asked before.
        self.set_out_held();
        let decider = self.state.machine().decider();
        for request in requests {
            let auth = request.is_auth();
            let wanted = self.clients.request(self.state.machine(), decider, conn, request);
            if !auth {
                // Auth packets do not keep a session alive, as in ZooKeeper.
                self.touch(session);
            }
            match wanted {
                None | Some(Wanted::ReadIndex) => {}
                Some(Wanted::Txn(unsent)) => self.set_out(&unsent),
            }
        }
    }

    /// Transactions that were held behind reads set out.
    pub(super) fn set_out_held(&mut self) {
        for unsent in self.clients.take_unsent() {
            self.set_out(&unsent);
        }
    }

    /// A transaction of a client sets out for the leader.
    fn set_out(&mut self, unsent: &Unsent) {
        let Unsent { conn, sequence, session, asked, op } = unsent;
        if *op == TxnOp::CloseSession {
            self.sessions.set_closing(*session);
        }
        self.forward((*conn, *sequence), *session, (asked.xid, asked.identities), op);
    }

    /// Adds a client's transaction, which counts for so many of its identities, to those that wait for the leader.
    pub(super) fn forward(
        &mut self,
        (conn, sequence): (ConnId, u64),
        session: i64,
        (cxid, identities): (i32, usize),
        op: &TxnOp,
    ) {
        let ids = self.clients.identities(conn, identities);
        let ends = *op == TxnOp::CloseSession;
        let ephemerals = if ends { self.state.machine().tree().ephemerals_of(session) } else { 0 };
        self.forwarding.push((conn, sequence), session, cxid, ids, (op, ephemerals));
    }
}
