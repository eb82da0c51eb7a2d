//! Committed entries are applied: the state changes, and the clients here hear of it.
//!
//! *Owns* nothing. *Invariants*: entries are applied in their order, each once; an event leaves before the reply that
//! shows its change; what was lost with an earlier term is known when the first entry of a later one is applied.
//! *Never* decides a transaction: the machine does.

use crate::locks::snapshot::End;
use crate::proto::{ErrorCode, OpCode};
use crate::replica::Replica;
use crate::replica::durable::{Entry, EntryKind};
use crate::replica::inspect::Cause;
use crate::replica::machine::{
    Applied, EntryTime, Origin, SessionChange, Txn, TxnOp, open_entry, txn,
};
use crate::zookeeper::txn::kind;

impl Replica {
    /// Applies a committed entry.
    ///
    /// # Errors
    /// It cannot be understood.
    pub(in crate::replica) fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.term > self.state.at().1 {
            let lost = self.forwarding.lost_before(entry.term);
            self.close_lost(&lost);
        }
        match entry.kind {
            EntryKind::ConfChange => {
                self.consensus.apply_change(entry.index, &entry.data)?;
                self.voters_changed();
            }
            EntryKind::Normal => self.apply_batch(entry)?,
        }
        self.state.applied((entry.index, entry.term));
        self.record_digest();
        self.ensemble.applied(entry.index);
        Ok(())
    }

    fn apply_batch(&mut self, entry: &Entry) -> Result<(), String> {
        let before_ms = self.state.machine().last_time_ms();
        let batch = open_entry(self.state.machine_mut(), entry)?;
        let returned_ms = before_ms.saturating_sub(self.state.machine().last_time_ms());
        if returned_ms > 0 {
            self.figures.time_returned(returned_ms.unsigned_abs());
        }
        let age_ms = self.clocks.wall_ms() - self.state.machine().last_time_ms();
        self.figures.propagated(age_ms, batch.len());
        if txn::is_members_mark(&entry.data) {
            self.voters_marked();
        }
        if mutant!("time-of-each-server") {
            self.state
                .machine_mut()
                .begin_entry(&EntryTime { wall_ms: self.clocks.wall_ms(), ..EntryTime::default() });
        }
        for txn in &batch {
            let is_here = self.forwarding.is_own(txn.origin);
            if is_here {
                let Origin { conn, sequence, .. } = txn.origin;
                self.clients.about_to_apply(self.state.machine(), conn, sequence);
            }
            let applied = match txn.op {
                TxnOp::Client { op, .. }
                    if op == OpCode::SetData as i32 && mutant!("applies-wrongly") =>
                {
                    let code = ErrorCode::NoNode as i32;
                    let wrong = Txn { op: TxnOp::Refuse { op, code }, ..txn.clone() };
                    self.state.machine_mut().apply(entry.term, &wrong)
                }
                _ => self.state.machine_mut().apply(entry.term, txn),
            };
            let mut cost = (txn.session, 0);
            if let TxnOp::Client { op, body } = &txn.op {
                cost.1 = body.len();
                self.clients.namespaces.note_write(*op, body);
            }
            if matches!(txn.op, TxnOp::AttachSession { .. }) && self.leadership.leads().is_some() {
                self.figures.counts.revalidations_led += 1;
            }
            if !is_here && matches!(txn.op, TxnOp::AttachSession { .. }) {
                self.sessions.moved(entry.term, txn.session);
            }
            if self.setup.audit {
                let at = (entry.index, entry.term);
                let client = self.clients.connection(txn.origin.conn).filter(|_| is_here);
                let client = client.map(|known| known.remote().to_owned());
                let line = self.state.machine().audit_line(at, txn, &applied);
                self.output.audit(line, client);
            }
            if !mutant!("event-behind-reply") {
                self.clients.notify(self.state.machine(), &applied, cost);
            }
            self.note_departures(txn, &applied, entry.term);
            self.settle(txn, &applied);
            match &txn.op {
                TxnOp::Migrate(step) => self.migrated(step, &applied),
                TxnOp::Foreign(_) => self.mind_stop(),
                _ => {}
            }
            if mutant!("event-behind-reply") {
                self.clients.notify(self.state.machine(), &applied, cost);
            }
        }
        Ok(())
    }

    /// Keeps in mind which contenders of locks have left. The server that leads in the term of the entry measures
    /// them, so no other one does, and no entry is measured again at a later start.
    fn note_departures(&mut self, txn: &Txn, applied: &Applied, term: u64) {
        let is_measured = self.consensus.is_leader() && self.consensus.term() == term;
        let machine = self.state.machine();
        let tree = is_measured.then(|| machine.tree());
        self.figures.note(&applied.events, cause(txn), machine.last_time_ms(), tree);
    }

    /// What an applied transaction means for the connections here and for the session's deadline.
    fn settle(&mut self, txn: &Txn, applied: &Applied) {
        let Origin { conn, sequence, .. } = txn.origin;
        let is_here = self.forwarding.is_own(txn.origin);
        if is_here {
            self.forwarding.applied(conn, sequence);
        }
        if applied.op == OpCode::Reconfig && applied.result.is_ok() {
            let is_asked_for = matches!(txn.op, TxnOp::Client { .. });
            self.members_applied(is_asked_for, is_here.then_some(conn));
        }
        match applied.session_change {
            Some(SessionChange::Opened(id, session) | SessionChange::Attached(id, session)) => {
                return self.attached(id, session);
            }
            Some(SessionChange::Closed(id)) => {
                self.sessions.forget(id);
                let (clients, machine) = (&mut self.clients, self.state.machine());
                let is_answered = !is_here || clients.applied(machine, conn, sequence, applied);
                // Expired, or closed by another connection: no message, just the end. One that
                // closed the session itself and has answers to come ends behind them.
                if let Some(current) = clients.connection_of(id)
                    && (is_answered || current != conn)
                {
                    clients.hang_up(current);
                }
                return;
            }
            None => {}
        }
        match txn.op {
            TxnOp::OpenSession { .. } | TxnOp::AttachSession { .. } => {
                self.not_attached(txn.session, txn.origin);
            }
            TxnOp::Refuse { code, .. }
                if applied.op == OpCode::CreateSession
                    && code == ErrorCode::SessionExpired as i32 =>
            {
                self.not_attached(txn.session, txn.origin);
            }
            _ if is_here => {
                self.clients.applied(self.state.machine(), conn, sequence, applied);
            }
            _ => {}
        }
    }
}

/// Why a transaction ends contenders of locks, if it does.
fn cause(txn: &Txn) -> Cause {
    match txn.op {
        TxnOp::CloseSession => Cause::End(End::SessionClosed),
        TxnOp::ExpireSession => Cause::End(End::SessionExpired),
        TxnOp::Reap { .. } => Cause::End(End::Reaped),
        TxnOp::Foreign(ref foreign) => match foreign.header.kind {
            kind::CLOSE_SESSION => Cause::End(End::SessionClosed),
            kind::DELETE_CONTAINER => Cause::End(End::Reaped),
            _ => Cause::Session(foreign.header.client_id),
        },
        _ => Cause::Session(txn.session),
    }
}
