//! What a replica does to sessions and znodes by itself, because their time has come.
//!
//! *Owns* when the leader proposes that: expiry, and the removal of containers and TTL znodes; and the end of
//! sessions that only this server knows. *Invariant*: a session is found overdue in the very step in which
//! that goes to the log. *Never* decides for anybody else: what is proposed is decided when it is applied.

use super::Replica;
use super::txn::TxnOp;
use crate::proto::Text;

impl Replica {
    /// Begins to watch a session, for its timeout and the grace that is configured.
    pub(super) fn track(&mut self, session: i64, timeout_ms: i32) {
        self.expiry.track_with_grace(session, timeout_ms, self.setup.expiry_grace_ms);
    }

    /// Proposes to close what was not heard from in time. Only when proposals go to the log at once: what is
    /// heard while they wait must count.
    pub(super) fn expire(&mut self) {
        let Some(term) = self.leading else { return };
        if !std::mem::take(&mut self.expiry_is_due) {
            return;
        }
        let (sessions, roll, moves) = (self.machine.sessions(), &self.roll, &self.moves);
        let may_have_been_heard = |session, before_us| {
            let known = sessions.find(session);
            known.is_some_and(|known| roll.may_have_heard(known.owner.0, before_us))
                || moves.may_have_moved(term, session)
        };
        for session in self.expiry.overdue(may_have_been_heard) {
            if mutant!("sessions-never-expire") {
                continue;
            }
            self.figures.sessions_expired += 1;
            self.handover.push_chore(session, &TxnOp::ExpireSession);
        }
    }

    /// Ends silent connections that only read.
    pub(super) fn close_overdue_local(&mut self) {
        for session in self.local_expiry.overdue(|_, _| false) {
            self.local_expiry.forget(session);
            if let Some(conn) = self.clients.connection_of(session) {
                self.clients.hang_up(conn);
            }
        }
    }

    /// Proposes to remove containers and TTL znodes whose time has come.
    pub(super) fn reap(&mut self) {
        if self.now_us < self.reap_at_us {
            return;
        }
        let interval_ms = self.setup.container_check_interval_ms;
        self.reap_at_us = self.now_us + interval_ms * 1000;
        let quota = u64::from(self.setup.container_max_per_minute) * interval_ms / 60_000;
        let at_once_max = usize::try_from(quota.max(1)).unwrap_or(usize::MAX);
        let never_used_ms = self.setup.container_never_used_ms;
        let paths = self.machine.tree().reapable(self.wall_ms, never_used_ms, at_once_max);
        for path in paths {
            self.handover.push_chore(0, &TxnOp::Reap { path: Text::copy_from(path.as_str()) });
        }
    }
}
