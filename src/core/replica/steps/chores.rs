//! What a replica does to sessions and znodes by itself, because their time has come.
//!
//! *Owns* nothing: the leader proposes what the session tracker and its reaper find. *Invariant*: a session is found
//! overdue in the very step in which that goes to the log. *Never* decides for anybody else: what is proposed is
//! decided when it is applied.

use crate::proto::Text;
use crate::replica::Replica;
use crate::replica::machine::{Decider, TxnOp};

impl Replica {
    /// Proposes to close what was not heard from in time, where this ensemble decides: ZooKeeper ends sessions itself.
    /// Only when proposals go to the log at once: what is heard while they wait must count.
    pub(super) fn expire(&mut self) {
        let Some(term) = self.leadership.leads() else { return };
        for session in self.sessions.take_overdue(term, self.state.machine().sessions()) {
            if mutant!("sessions-never-expire") {
                continue;
            }
            self.figures.counts.sessions_expired += 1;
            let ephemerals = self.state.machine().tree().ephemerals_of(session);
            self.forwarding.push_chore(session, &TxnOp::ExpireSession, ephemerals);
        }
    }

    /// Ends silent connections that only read.
    pub(super) fn close_overdue_local(&mut self) {
        for session in self.sessions.overdue_local() {
            if let Some(conn) = self.clients.connection_of(session) {
                self.clients.hang_up(conn);
            }
        }
    }

    /// Proposes to remove containers and TTL znodes whose time has come.
    pub(super) fn reap(&mut self) {
        if self.state.machine().decider() == Decider::ZooKeeper {
            return;
        }
        let now_us = self.clocks.now_us();
        let (interval_ms, per_minute) =
            (self.setup.container_check_interval_ms, self.setup.container_max_per_minute);
        let look = self.sessions.reaper().look(now_us, interval_ms, per_minute);
        let Some(at_once_max) = look else { return };
        let (steady_ms, never_used_ms) = (self.steady_ms(), self.setup.container_never_used_ms);
        let tree = self.state.machine().tree();
        let paths = tree.reapable(steady_ms, never_used_ms, at_once_max);
        if !mutant!("reaper-allowance-unspent") {
            self.sessions.reaper().spend(paths.len());
        }
        for path in paths {
            let reap = TxnOp::Reap { path: Text::copy_from(path.as_str()) };
            self.forwarding.push_chore(0, &reap, 0);
        }
    }
}
