//! Requests of one connection.
//!
//! *Owns* nothing: what a read needs, the connections answer; a write is on its way to the leader behind this.
//! *Invariant*: a session is touched by each of its requests but auth packets, as in ZooKeeper. *Never* answers
//! anything itself.

use crate::replica::Replica;
use crate::replica::clients::Wanted;
use crate::replica::machine::TxnOp;
use crate::replica::request::{ClientRequest, ConnId};

impl Replica {
    /// See the module.
    pub(in crate::replica) fn requests(&mut self, conn: ConnId, requests: Vec<ClientRequest>) {
        let session = self.clients.connection(conn).and_then(|known| known.session);
        let Some(session) = session else { return };
        let decider = self.state.machine().decider();
        for request in requests {
            let (xid, auth) = (request.xid, request.is_auth());
            let wanted = self.clients.request(self.state.machine(), decider, conn, request);
            if !auth {
                // Auth packets do not keep a session alive, as in ZooKeeper.
                self.touch(session);
            }
            match wanted {
                None | Some(Wanted::ReadIndex) => {}
                Some(Wanted::Txn { sequence, op }) => {
                    if op == TxnOp::CloseSession {
                        self.sessions.set_closing(session);
                    }
                    self.forward((conn, sequence), session, xid, &op);
                }
            }
        }
    }

    /// Adds a client's transaction to those that wait for the leader.
    pub(super) fn forward(
        &mut self,
        (conn, sequence): (ConnId, u64),
        session: i64,
        cxid: i32,
        op: &TxnOp,
    ) {
        let ids = self.clients.identities(conn);
        self.forwarding.push((conn, sequence), session, cxid, ids, op);
    }
}
