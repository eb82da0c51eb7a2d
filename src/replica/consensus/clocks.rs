//! The time that entries of the log carry: what the leader says it is, and by which clocks.
//!
//! *Owns* the steady clock as far as this server knows it, and what a leader knows of the others' wall
//! clocks. *Invariants*: the steady clock only rises, no faster than the time in which there was a leader,
//! and a new leader goes on from the highest time that it has heard or applied; a leader says that a
//! majority agrees with its wall clock only if each of those has answered lately, and differs from it by no
//! more than [`AGREED_MS_MAX`]. *Never* decides what time it is: the machine does, from what is in the log.
//!
//! ZooKeeper stamps with the leader's wall clock alone.

use std::collections::BTreeMap;

use crate::replica::Replica;
use crate::replica::bounds::STEADY_MS_MAX;
use crate::replica::machine::{EntryTime, STAMP_LEAD_MS_MAX};

/// Wall clocks that differ by no more agree, in milliseconds.
pub const AGREED_MS_MAX: i64 = 10_000;
/// What another server said of its clock counts for this long, from the question on, in microseconds.
const READING_US_MAX: u64 = 2_000_000;

/// What another server's wall clock showed.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall_ms: i64,
    /// When, by this server's clock: in the middle between question and answer.
    at_us: u64,
    /// The question.
    asked_us: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Clocks {
    /// The highest steady time that was heard of a leader, or counted as one.
    heard_ms: i64,
    /// While this server leads: since when, by its own clock, and the steady time then.
    leads: Option<(u64, i64)>,
    /// The latest wall time that this leader has proposed an entry with.
    proposed_ms: i64,
    /// By raft id.
    readings: BTreeMap<u64, Reading>,
}

impl Clocks {
    /// This server begins to lead, and has applied what was committed before.
    pub(in crate::replica) fn begin_to_lead(&mut self, now_us: u64, applied_ms: i64) {
        self.end_to_lead(now_us);
        let heard_ms = if mutant!("steady-clock-not-heard") { 0 } else { self.heard_ms };
        self.leads = Some((now_us, heard_ms.max(applied_ms)));
        self.readings.clear();
        self.proposed_ms = i64::MIN;
    }

    /// It leads no longer.
    pub(in crate::replica) fn end_to_lead(&mut self, now_us: u64) {
        self.heard_ms = self.heard_ms.max(self.steady_ms(now_us));
        self.leads = None;
    }

    /// The leader says so.
    pub(in crate::replica) fn hear(&mut self, steady_ms: i64) {
        self.heard_ms = self.heard_ms.max(steady_ms);
    }

    /// The steady clock, as far as it is known here.
    pub(in crate::replica) fn steady_ms(&self, now_us: u64) -> i64 {
        let Some((since_us, since_ms)) = self.leads else { return self.heard_ms };
        let led_ms = i64::try_from(now_us.saturating_sub(since_us) / 1000).unwrap_or(i64::MAX);
        since_ms.saturating_add(led_ms).min(STEADY_MS_MAX)
    }

    /// Another server has answered: that is what its wall clock shows.
    pub(in crate::replica) fn read(&mut self, peer: u64, wall_ms: i64, asked_us: u64, now_us: u64) {
        let at_us = asked_us + now_us.saturating_sub(asked_us) / 2;
        self.readings.insert(peer, Reading { wall_ms, at_us, asked_us });
    }

    /// By how much the wall clock of another server is ahead of this one's, which shows `wall_ms` now.
    pub(in crate::replica) fn skew_ms(&self, peer: u64, now_us: u64, wall_ms: i64) -> Option<i64> {
        let Reading { wall_ms: read_ms, at_us, asked_us } = *self.readings.get(&peer)?;
        if now_us.saturating_sub(asked_us) > READING_US_MAX {
            return None;
        }
        let since_ms = i64::try_from(now_us.saturating_sub(at_us) / 1000).unwrap_or(i64::MAX);
        Some(read_ms.saturating_add(since_ms).saturating_sub(wall_ms))
    }
}

impl Replica {
    /// The steady clock of the ensemble, in milliseconds.
    pub(in crate::replica) fn steady_ms(&self) -> i64 {
        if mutant!("steady-clock-is-the-wall-clock") {
            return self.wall_ms;
        }
        self.clocks.steady_ms(self.now_us).max(self.machine.steady_ms())
    }

    /// The time of an entry that this leader proposes now.
    pub(in crate::replica) fn entry_time(&mut self) -> EntryTime {
        // Where stamps are not ahead of this clock, it makes no difference whether others agree.
        let is_behind = self.wall_ms < self.last_stamp_ms();
        self.clocks.proposed_ms = self.clocks.proposed_ms.max(self.wall_ms);
        EntryTime {
            wall_ms: self.wall_ms,
            is_agreed: is_behind && (self.majority_agrees() || mutant!("time-goes-back-alone")),
            steady_ms: Some(self.steady_ms()),
        }
    }

    /// The stamp of what this leader has proposed or applied last, or a later one.
    fn last_stamp_ms(&self) -> i64 {
        self.clocks.proposed_ms.max(self.machine.last_time_ms())
    }

    /// By how much stamps are ahead of this leader's wall clock.
    pub(in crate::replica) fn stamps_ahead_ms(&self) -> u64 {
        let ahead_ms = self.machine.last_time_ms().saturating_sub(self.wall_ms);
        self.leading.map_or(0, |_| u64::try_from(ahead_ms).unwrap_or(0))
    }

    /// Whether they are too far ahead, and will not go back with the next write.
    pub(in crate::replica) fn time_stands_still(&self) -> bool {
        self.stamps_ahead_ms() > STAMP_LEAD_MS_MAX.unsigned_abs()
            && !self.awaits_clocks()
            && !self.majority_agrees()
    }

    /// Whether what this leader proposes now would get a stamp that is far ahead of its clock, only because
    /// it has not heard what the clocks of a majority show: it asks as soon as it leads, and before a
    /// majority answers, nothing of it can be committed anyway.
    pub(in crate::replica) fn awaits_clocks(&self) -> bool {
        if self.last_stamp_ms().saturating_sub(self.wall_ms) <= STAMP_LEAD_MS_MAX
            || mutant!("clocks-not-awaited")
        {
            return false;
        }
        let own = self.consensus.id();
        let is_known = |id: u64| {
            let skew_ms = self.clocks.skew_ms(id, self.now_us, self.wall_ms);
            u64::from(id == own || skew_ms.is_some())
        };
        self.consensus.majority_heard(is_known) == 0
    }

    /// Whether the wall clocks of a majority agree with this leader's.
    fn majority_agrees(&self) -> bool {
        let own = self.consensus.id();
        let agrees = |id: u64| {
            let skew_ms = self.clocks.skew_ms(id, self.now_us, self.wall_ms);
            u64::from(id == own || skew_ms.is_some_and(|skew| skew.abs() <= AGREED_MS_MAX))
        };
        self.consensus.majority_heard(agrees) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_leader_goes_on_from_the_highest_steady_time_that_it_has_heard_or_applied() {
        let mut clocks = Clocks::default();
        clocks.hear(5000);
        clocks.hear(4000);
        clocks.begin_to_lead(1_000_000, 4500);
        assert_eq!(clocks.steady_ms(3_000_000), 7000);
        clocks.end_to_lead(3_000_000);
        assert_eq!(clocks.steady_ms(9_000_000), 7000, "who does not lead does not count");
        clocks.begin_to_lead(9_000_000, 8000);
        assert_eq!(clocks.steady_ms(9_000_000), 8000);
    }

    #[test]
    fn a_skew_is_that_of_the_middle_between_question_and_answer_and_is_known_for_a_while() {
        let mut clocks = Clocks::default();
        clocks.read(2, 10_000, 1_000_000, 1_400_000);
        assert_eq!(clocks.skew_ms(2, 2_200_000, 8000), Some(3000));
        assert_eq!(clocks.skew_ms(2, 3_000_001, 8000), None);
        assert_eq!(clocks.skew_ms(3, 1_400_000, 8000), None);
    }

    #[test]
    fn clocks_at_the_ends_of_time_do_not_overflow() {
        let mut clocks = Clocks::default();
        clocks.hear(STEADY_MS_MAX);
        clocks.begin_to_lead(0, 0);
        assert_eq!(clocks.steady_ms(u64::MAX), STEADY_MS_MAX);
        clocks.read(2, i64::MAX, 0, 1000);
        assert_eq!(clocks.skew_ms(2, 2000, i64::MIN), Some(i64::MAX));
    }
}
