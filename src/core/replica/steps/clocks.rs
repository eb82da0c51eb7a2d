//! What time the entries get that this leader proposes.
//!
//! *Owns* nothing: joins the clocks of this server and the others with the stamps that are applied. *Never* decides
//! what time it is: the machine does, from what is in the log.

use crate::replica::Replica;
use crate::replica::machine::{EntryTime, STAMP_LEAD_MS_MAX};

impl Replica {
    /// The steady clock of the ensemble, in milliseconds.
    pub(super) fn steady_ms(&self) -> i64 {
        if mutant!("steady-clock-is-the-wall-clock") {
            return self.clocks.wall_ms();
        }
        self.clocks.steady_ms().max(self.state.machine().steady_ms())
    }

    /// The time of an entry that this leader proposes now.
    pub(super) fn entry_time(&mut self) -> EntryTime {
        let wall_ms = self.clocks.wall_ms();
        // Where stamps are not ahead of this clock, it makes no difference whether others agree.
        let is_behind = wall_ms < self.last_stamp_ms();
        self.clocks.proposed();
        EntryTime {
            wall_ms,
            is_agreed: is_behind && (self.majority_agrees() || mutant!("time-goes-back-alone")),
            steady_ms: Some(self.steady_ms()),
        }
    }

    /// The stamp of what this leader has proposed or applied last, or a later one.
    fn last_stamp_ms(&self) -> i64 {
        self.clocks.last_stamp_ms(self.state.machine().last_time_ms())
    }

    /// By how much stamps are ahead of this leader's wall clock.
    pub(super) fn stamps_ahead_ms(&self) -> u64 {
        let ahead_ms = self.state.machine().last_time_ms().saturating_sub(self.clocks.wall_ms());
        self.leadership.leads().map_or(0, |_| u64::try_from(ahead_ms).unwrap_or(0))
    }

    /// Whether they are too far ahead, and will not go back with the next write.
    pub(super) fn time_stands_still(&self) -> bool {
        self.stamps_ahead_ms() > STAMP_LEAD_MS_MAX.unsigned_abs()
            && !self.awaits_clocks()
            && !self.majority_agrees()
    }

    /// Whether what this leader proposes now would get a stamp that is far ahead of its clock, only because
    /// it has not heard what the clocks of a majority show: it asks as soon as it leads, and before a
    /// majority answers, nothing of it can be committed anyway.
    pub(super) fn awaits_clocks(&self) -> bool {
        let ahead_ms = self.last_stamp_ms().saturating_sub(self.clocks.wall_ms());
        if ahead_ms <= STAMP_LEAD_MS_MAX || mutant!("clocks-not-awaited") {
            return false;
        }
        let own = self.consensus.id();
        let is_known = |id: u64| u64::from(id == own || self.clocks.skew_ms(id).is_some());
        self.consensus.majority_heard(is_known) == 0
    }

    /// Whether the wall clocks of a majority agree with this leader's.
    fn majority_agrees(&self) -> bool {
        let own = self.consensus.id();
        let agrees = |id: u64| u64::from(id == own || self.clocks.agrees(id));
        self.consensus.majority_heard(agrees) > 0
    }
}
