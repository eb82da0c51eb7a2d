//! Requests of clients while another ensemble decides: on their way to ZooKeeper, held, or refused.
//!
//! *Owns* nothing: joins what clients give with the link and the log. *Invariants*: what a client asks for goes to who
//! decides, in the order of each connection; nothing is done that came behind a request of the same connection which
//! was not; a session belongs to one connection from the moment at which ZooKeeper is asked for what came before.
//! *Never* answers a client: what ZooKeeper has committed does.
//!
//! Takes the place of `ObserverRequestProcessor`.

use bytes::Bytes;

use crate::proto::{ErrorCode, OpCode};
use crate::replica::Replica;
use crate::replica::clients::WriteBatch;
use crate::replica::machine::{
    Batch, Decider, NO_CONNECTION, Origin, Txn, TxnOp, followed_session,
};
use crate::replica::migration::{Stage, Unproven};
use crate::replica::request::ConnId;
use crate::tree::acl::Identity;
use crate::zookeeper::txn::kind;

impl Replica {
    pub(super) fn revalidated(&mut self, session: i64, is_valid: bool) {
        let Some(txn) = self.following.waiting.attached(session) else { return };
        if !is_valid {
            let is_proven = mutant!("expired-without-proof");
            let expired = Unproven::Expired(txn);
            return if is_proven { self.proven(expired) } else { self.prove(expired) };
        }
        // What it did elsewhere is to come first: its client may have seen that.
        if let Some(learner) = self.following.learner() {
            learner.sync(session, txn.cxid);
            // From here on: what the connection before asks for would come behind what this one reads.
            self.following.set_owner(session, (txn.origin.server, txn.origin.conn));
            self.following.waiting.sync(txn);
        }
    }

    /// ZooKeeper's leader has answered a SYNC.
    pub(super) fn zookeeper_synced(&mut self) {
        let Some(txn) = self.following.waiting.synced() else { return };
        self.following.push_txn(txn.origin, txn.session, txn.cxid, &[], &txn.op);
        if let TxnOp::AttachSession { timeout_ms, .. } = txn.op
            && let Some(learner) = self.following.learner()
        {
            learner.heard(txn.session, timeout_ms);
        }
    }

    /// Something waits until ZooKeeper's leader has proved that it leads.
    pub(super) fn prove(&mut self, what: Unproven) {
        self.following.waiting.prove(what);
        if !self.following.waiting.is_probing() {
            self.probe();
        }
    }

    /// Sends a probe, if something waits for one that was not sent.
    pub(super) fn probe(&mut self) {
        if let Some(number) = self.following.waiting.next_probe(self.consensus.term())
            && let Some(learner) = self.following.learner()
        {
            learner.probe(number);
        }
    }

    /// ZooKeeper's leader has proved that it led when this was said or asked for, and all that came before goes into
    /// the log first.
    pub(super) fn proven(&mut self, what: Unproven) {
        match what {
            Unproven::Sync(txn) => {
                self.following.push_txn(txn.origin, txn.session, txn.cxid, &[], &txn.op);
            }
            Unproven::Expired(txn) => {
                let (op, code) = (OpCode::CreateSession as i32, ErrorCode::SessionExpired as i32);
                let refuse = TxnOp::Refuse { op, code };
                self.following.push_txn(txn.origin, txn.session, txn.cxid, &[], &refuse);
            }
            Unproven::CutOver(attempt) if self.following.cutover.is_at(Stage::Syncing, attempt) => {
                self.following.cutover.advance(Stage::Applying);
            }
            // An earlier attempt, which was given up.
            Unproven::CutOver(_) => {}
        }
    }

    /// Takes what clients ask for, where ZooKeeper decides it. The rest is for the log.
    pub(super) fn divert(&mut self, term: u64, write_batch: WriteBatch) {
        let own = self.consensus.id();
        self.forwarding.given(term, own, write_batch.origins());
        let payload = Bytes::from(write_batch.payload);
        let batch = Batch::decode(&payload).expect("it was decoded when it came");
        for txn in batch.txns {
            if txn.op.is_of_client() {
                self.give_zookeeper(txn);
            } else {
                self.following.push_txn(txn.origin, txn.session, txn.cxid, &txn.ids, &txn.op);
            }
        }
    }

    /// Gives a client's transaction to ZooKeeper, or keeps it until that can be.
    fn give_zookeeper(&mut self, txn: Txn) {
        let is_held = self.following.cutover.is_begun() || self.following.has_held();
        if is_held || self.following.requesting().is_none() {
            return self.following.hold(txn);
        }
        match &txn.op {
            TxnOp::OpenSession { .. } => {
                self.following.hold_opening(txn);
                return self.open_held_sessions();
            }
            TxnOp::AttachSession { timeout_ms, .. } => {
                if let Some(learner) = self.following.learner() {
                    learner.revalidate(txn.session, *timeout_ms);
                    self.following.waiting.attach(txn);
                }
                return;
            }
            TxnOp::Client { op, .. } if *op == OpCode::Sync as i32 => {
                return self.prove(Unproven::Sync(txn));
            }
            _ => {}
        }
        // What ZooKeeper commits cannot be taken back: a connection that the session has left gives it nothing.
        let here = (txn.origin.server, txn.origin.conn);
        let owner = self.owner_of(txn.session);
        if owner.is_some_and(|owner| owner != here) && !mutant!("moved-session-writes") {
            return self.refuse_lost(txn.session, txn.origin);
        }
        let (op, body) = match &txn.op {
            TxnOp::Client { op, body } => (*op, &body[..]),
            _ => (kind::CLOSE_SESSION, &[][..]),
        };
        let ids: Vec<Identity> = txn.ids.iter().filter(|id| !id.is_mark()).cloned().collect();
        if self.following.waiting.is_unprobed(txn.session) {
            self.probe();
        }
        if let Some(learner) = self.following.learner() {
            learner.request(txn.session, txn.cxid, op, body, &ids);
            self.following.waiting.give(txn.session, txn.cxid, txn.origin);
        }
    }

    /// Opens the sessions that there are ids for.
    pub(super) fn open_held_sessions(&mut self) {
        let migration = self.state.machine().migration();
        let (server_id, next) =
            migration.map_or((0, 0), |known| (known.server_id, known.next_session));
        while let Some((number, txn)) = self.following.next_opening() {
            let id = followed_session(server_id, number);
            let TxnOp::OpenSession { timeout_ms, .. } = &txn.op else { continue };
            let body = timeout_ms.to_be_bytes();
            let ids: Vec<Identity> = txn.ids.iter().filter(|id| !id.is_mark()).cloned().collect();
            let Some(learner) = self.following.requesting() else {
                return self.following.hold(txn);
            };
            learner.request(id, 0, kind::CREATE_SESSION, &body, &ids);
            self.following.waiting.open(id, txn.origin);
        }
        if self.following.has_opening() {
            self.following.want_ids(next);
        }
    }

    /// Nothing stands against requests any more: those that were held go first, to who decides now.
    pub(super) fn release_held(&mut self) {
        if self.following.cutover.is_begun() {
            return;
        }
        let decider = self.state.machine().decider();
        for txn in self.following.take_held() {
            let is_reconfig =
                matches!(txn.op, TxnOp::Client { op, .. } if op == OpCode::Reconfig as i32);
            if decider == Decider::ZooKeeper {
                self.give_zookeeper(txn);
            } else if is_reconfig {
                // It came from a server that was ahead, and a leader looks at those before it proposes them.
                self.refuse_lost(txn.session, txn.origin);
            } else {
                self.following.push_txn(txn.origin, txn.session, txn.cxid, &txn.ids, &txn.op);
            }
        }
    }

    /// Which connection has a session, as far as this leader knows: the log may not say it yet.
    fn owner_of(&self, session: i64) -> Option<(u64, ConnId)> {
        let of_log = self.state.machine().sessions().find(session).map(|known| known.owner);
        self.following.owner(session).or(of_log)
    }

    /// A request is not done: nothing that comes behind it on its connection is done either, until the session is
    /// attached again. The state does the same once the log has it.
    pub(super) fn leave(&mut self, session: i64, origin: Origin) {
        let has_it = self.owner_of(session) == Some((origin.server, origin.conn));
        if has_it && !mutant!("writes-behind-lost-go-on") {
            self.following.set_owner(session, NO_CONNECTION);
        }
    }

    /// A client's transaction is not done, and its connection is closed without an answer.
    pub(super) fn refuse_lost(&mut self, session: i64, origin: Origin) {
        self.leave(session, origin);
        let refuse = TxnOp::Refuse { op: 0, code: ErrorCode::SessionMoved as i32 };
        self.following.push_txn(origin, session, 0, &[], &refuse);
    }

    /// A session was heard from: ZooKeeper's leader, which ends sessions, is to know.
    pub(in crate::replica) fn tell_zookeeper_heard(&mut self, sessions: &[i64]) {
        if self.state.machine().decider() == Decider::Ensemble {
            return;
        }
        let known = self.state.machine().sessions();
        let Some(learner) = self.following.requesting() else { return };
        for id in sessions {
            if let Some(session) = known.find(*id) {
                learner.heard(*id, session.timeout_ms);
            }
        }
    }
}
