//! Committed entries are applied: the state changes, and the clients here hear of it.
//!
//! *Owns* nothing. *Invariants*: entries are applied in their order, each once; an event leaves before the reply that
//! shows its change; between two portions of an entry servers hear each other, and clients neither ask nor hear of the
//! state; what was lost with an earlier term is known when the first entry of a later one is applied.
//! *Never* decides a transaction: the machine does.

use crate::locks::snapshot::End;
use crate::proto::{ErrorCode, OpCode};
use crate::replica::Replica;
use crate::replica::durable::{Entry, EntryKind};
use crate::replica::inspect::Cause;
use crate::replica::machine::{
    Applied, EntryTime, Origin, SessionChange, Txn, TxnOp, Underway, open_entry, txn,
};
use crate::zookeeper::txn::kind;

impl Replica {
    /// Applies a committed entry, or begins to.
    ///
    /// # Errors
    /// It cannot be understood.
    pub(in crate::replica) fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.term > self.state.at().1 {
            let lost = self.forwarding.lost_before(entry.term);
            self.close_lost(&lost);
        }
        let at = (entry.index, entry.term);
        match entry.kind {
            EntryKind::ConfChange => {
                self.consensus.apply_change(entry.index, &entry.data)?;
                self.voters_changed();
                self.entry_applied(at);
            }
            EntryKind::Normal => {
                let txns = self.open(entry)?;
                self.apply_batch(at, txns.into_iter());
            }
        }
        Ok(())
    }

    fn entry_applied(&mut self, at: (u64, u64)) {
        self.state.applied(at);
        self.record_digest();
        self.ensemble.applied(at.0);
    }

    /// Takes the clocks of an entry, and gives its transactions.
    fn open(&mut self, entry: &Entry) -> Result<Vec<Txn>, String> {
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
        Ok(batch)
    }

    /// Applies the transactions of an entry, up to one that is carried out in portions.
    fn apply_batch(&mut self, at: (u64, u64), mut txns: std::vec::IntoIter<Txn>) {
        while let Some(txn) = txns.as_slice().first() {
            let machine = self.state.machine();
            let leaving = machine.leaving(txn, self.setup.leaving_at_once);
            let Origin { conn, sequence, .. } = txn.origin;
            if self.forwarding.is_own(txn.origin) {
                self.clients.about_to_apply(machine, conn, sequence);
            }
            if let Some(leaving) = leaving {
                let digest = machine.digest();
                let underway = Underway { at, txns, leaving, digest, has_begun: false };
                self.state.underway = Some(underway);
                return;
            }
            if let Some(txn) = txns.next() {
                self.apply_txn(at, &txn);
            }
        }
        self.entry_applied(at);
    }

    /// Goes on with an entry of which a part is applied.
    pub(in crate::replica) fn go_on(&mut self, mut underway: Underway) {
        let (at, most) = (underway.at, self.setup.leaving_at_once);
        let Some(txn) = underway.txns.as_slice().first() else { return };
        let machine = self.state.machine_mut();
        let (portion, is_done) = machine.let_leave((at.1, txn), &mut underway.leaving, most);
        let cost = (Some(portion.op), txn.session, 0);
        self.clients.notify(self.state.machine(), &portion, cost);
        let (time_ms, is_measured) = (self.state.machine().last_time_ms(), self.measures(at.1));
        self.figures.note_portion(&portion.events, cause(txn), time_ms, is_measured);
        underway.has_begun = true;
        if is_done {
            self.apply_batch(at, underway.txns);
        } else {
            self.state.underway = Some(underway);
        }
    }

    fn apply_txn(&mut self, at: (u64, u64), txn: &Txn) {
        let is_here = self.forwarding.is_own(txn.origin);
        let applied = match txn.op {
            TxnOp::Client { op, .. }
                if op == OpCode::SetData as i32 && mutant!("applies-wrongly") =>
            {
                let code = ErrorCode::NoNode as i32;
                let wrong = Txn { op: TxnOp::Refuse { op, code }, ..txn.clone() };
                self.state.machine_mut().apply(at.1, &wrong)
            }
            _ => self.state.machine_mut().apply(at.1, txn),
        };
        let mut cost = (Some(applied.op), txn.session, 0);
        match &txn.op {
            TxnOp::Client { op, body } => {
                cost.2 = body.len();
                self.clients.namespaces.note_write(*op, body);
            }
            TxnOp::Migrate(step) => cost = (None, 0, step.work_bytes()),
            _ => {}
        }
        if matches!(txn.op, TxnOp::AttachSession { .. }) && self.leadership.leads().is_some() {
            self.figures.counts.revalidations_led += 1;
        }
        if !is_here && matches!(txn.op, TxnOp::AttachSession { .. }) {
            self.sessions.moved(at.1, txn.session);
        }
        if self.setup.audit {
            let client = self.clients.connection(txn.origin.conn).filter(|_| is_here);
            let client = client.map(|known| known.remote().to_owned());
            let line = self.state.machine().audit_line(at, txn, &applied);
            self.output.audit(line, client);
        }
        if !mutant!("event-behind-reply") {
            self.clients.notify(self.state.machine(), &applied, cost);
        }
        self.note_departures(txn, &applied, at.1);
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

    /// Whether this server measures what transactions of this term end.
    fn measures(&self, term: u64) -> bool {
        self.consensus.is_leader() && self.consensus.term() == term
    }

    /// Keeps in mind which contenders of locks have left. The server that leads in the term of the entry measures
    /// them, so no other one does, and no entry is measured again at a later start.
    fn note_departures(&mut self, txn: &Txn, applied: &Applied, term: u64) {
        let machine = self.state.machine();
        let tree = self.measures(term).then(|| machine.tree());
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
