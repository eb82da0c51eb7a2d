//! What a replica does to sessions and znodes by itself, because their time has come.
//!
//! *Owns* when the leader proposes that: expiry, and the removal of containers and TTL znodes; and the end of
//! sessions that only this server knows. *Invariant*: a session is found overdue in the very step in which
//! that goes to the log. *Never* decides for anybody else: what is proposed is decided when it is applied.

use crate::proto::Text;
use crate::replica::Replica;
use crate::replica::machine::TxnOp;

impl Replica {
    /// Begins to watch a session, for its timeout and the grace that is configured.
    pub(in crate::replica) fn track(&mut self, session: i64, timeout_ms: i32) {
        self.expiry.track_with_grace(session, timeout_ms, self.setup.expiry_grace_ms);
    }

    /// Proposes to close what was not heard from in time. Only when proposals go to the log at once: what is
    /// heard while they wait must count.
    pub(in crate::replica) fn expire(&mut self) {
        let Some(term) = self.leading else { return };
        if !std::mem::take(&mut self.expiry_is_due) {
            return;
        }
        let (sessions, liveness, moves) = (self.machine.sessions(), &self.liveness, &self.moves);
        let may_have_been_heard = |session, before_us| {
            let known = sessions.find(session);
            known.is_some_and(|known| liveness.may_have_heard(known.owner.0, before_us))
                || moves.may_have_moved(term, session) && !mutant!("moving-session-expires")
        };
        for session in self.expiry.overdue(may_have_been_heard) {
            if mutant!("sessions-never-expire") {
                continue;
            }
            self.figures.sessions_expired += 1;
            self.forwarding.push_chore(session, &TxnOp::ExpireSession);
        }
    }

    /// Ends silent connections that only read.
    pub(in crate::replica) fn close_overdue_local(&mut self) {
        for session in self.local_expiry.overdue(|_, _| false) {
            self.local_expiry.forget(session);
            if let Some(conn) = self.clients.connection_of(session) {
                self.clients.hang_up(conn);
            }
        }
    }

    /// Proposes to remove containers and TTL znodes whose time has come.
    pub(in crate::replica) fn reap(&mut self) {
        if self.now_us < self.reap_at_us {
            return;
        }
        let interval_ms = self.setup.container_check_interval_ms;
        // Looks are as far apart as ticks are, however short the interval is.
        let late_ms = (self.now_us - self.reap_at_us) / 1000;
        self.reap_at_us = self.now_us + interval_ms * 1000;
        let at_once_max =
            self.reap_allowance.take(self.setup.container_max_per_minute, interval_ms + late_ms);
        let never_used_ms = self.setup.container_never_used_ms;
        let paths = self.machine.tree().reapable(self.steady_ms(), never_used_ms, at_once_max);
        self.reap_allowance.spend(paths.len());
        for path in paths {
            self.forwarding.push_chore(0, &TxnOp::Reap { path: Text::copy_from(path.as_str()) });
        }
    }
}

/// How many containers and TTL znodes may be removed: so many in a minute, at whatever moments.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::replica) struct Allowance {
    /// Sixty-thousandths of a znode: what a millisecond adds is a whole number of them.
    saved: u64,
}

impl Allowance {
    const ONE: u64 = 60_000;

    /// How many there may be now, `elapsed_ms` after the last time that this was asked. Of what was not used no
    /// more than one is saved.
    fn take(&mut self, per_minute: u32, elapsed_ms: u64) -> usize {
        let added = u64::from(per_minute).saturating_mul(elapsed_ms);
        self.saved = self.saved.min(Self::ONE).saturating_add(added);
        usize::try_from(self.saved / Self::ONE).unwrap_or(usize::MAX)
    }

    fn spend(&mut self, znodes: usize) {
        self.saved = self.saved.saturating_sub((znodes as u64).saturating_mul(Self::ONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are removed in a minute of looks that are `every_ms` apart, if there are always some.
    fn in_a_minute(per_minute: u32, every_ms: u64) -> usize {
        let mut allowance = Allowance::default();
        let looks = 60_000 / every_ms;
        let one = |_| {
            let most = allowance.take(per_minute, every_ms);
            allowance.spend(most);
            most
        };
        (0..looks).map(one).sum()
    }

    #[test]
    fn as_many_are_removed_in_a_minute_as_are_allowed_however_often_is_looked() {
        for every_ms in [1, 50, 1000, 60_000] {
            for per_minute in [1, 7, 60, 1000, 10_000] {
                let removed = in_a_minute(per_minute, every_ms);
                let most = usize::try_from(per_minute).unwrap();
                assert!(
                    removed == most || removed + 1 == most,
                    "{per_minute} a minute, every {every_ms} ms: {removed}"
                );
            }
        }
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let mut allowance = Allowance::default();
        for _ in 0..1000 {
            assert!(allowance.take(10_000, 50) <= 9);
        }
        allowance.spend(9);
        assert_eq!(allowance.take(10_000, 60_000), 10_000);
    }
}
