//! The time that entries of the log carry: what the leader says it is, and by which clocks.
//!
//! *Owns* the readings of this server's clocks as the last tick gave them, the steady clock as far as this server
//! knows it, and what a leader knows of the others' wall clocks. *Invariants*: the steady clock only rises, no
//! faster than the time in which there was a leader, and a new leader goes on from the highest time that it has
//! heard or applied; a leader says that a majority agrees with its wall clock only if each of those has answered
//! lately, and differs from it by no more than [`AGREED_MS_MAX`]. *Never* decides what time it is: the machine
//! does, from what is in the log.
//!
//! ZooKeeper stamps with the leader's wall clock alone.

use std::collections::BTreeMap;

use crate::replica::bounds::STEADY_MS_MAX;
use crate::replica::timing::TICK_MS;

/// Wall clocks that differ by no more agree, in milliseconds.
pub const AGREED_MS_MAX: i64 = 10_000;
/// What another server said of its clock counts for this long, from the question on, in microseconds.
const READING_US_MAX: u64 = 2_000_000;
/// Most ticks between two readings of the clock that are counted: a process that was stopped for longer must not hold
/// an election with itself.
const TICKS_AT_ONCE_MAX: u64 = 4;
/// A longer gap counts as these: a leader's heartbeats are due with them.
const TICKS_WHEN_LATE: u64 = 2;

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
    /// Monotonic, for deadlines.
    now_us: u64,
    /// For stamps.
    wall_ms: i64,
    /// Up to when ticks were counted.
    ticked_us: Option<u64>,
    /// The highest steady time that was heard of a leader, or counted as one.
    heard_ms: i64,
    /// While this server leads: since when, by its own clock, and the steady time then.
    leads: Option<(u64, i64)>,
    /// The latest wall time that this leader has proposed an entry with.
    proposed_ms: i64,
    /// By raft id.
    readings: BTreeMap<u64, Reading>,
}

canonical! {
    // Without the steady clock (see `replica/canonical.rs`).
    Clocks: wall_ms, ticked_us, proposed_ms; without now_us, heard_ms, leads;
    |out, readings| for (peer, Reading { wall_ms, at_us, asked_us }) in readings {
        out.value(&(peer, wall_ms));
        out.time_up_to(*at_us, READING_US_MAX + 1);
        out.time_up_to(*asked_us, READING_US_MAX + 1);
    }
}

impl Clocks {
    /// Time has passed. How many ticks are due, and whether many more have passed in which this server did nothing.
    pub(in crate::replica) fn tick(&mut self, now_us: u64, wall_ms: i64) -> (u64, bool) {
        self.now_us = now_us;
        self.wall_ms = wall_ms;
        let ticked_us = self.ticked_us.get_or_insert(now_us);
        let due = now_us.saturating_sub(*ticked_us) / (TICK_MS * 1000);
        *ticked_us += due * TICK_MS * 1000;
        match due > TICKS_AT_ONCE_MAX {
            true => (TICKS_WHEN_LATE, true),
            false => (due, false),
        }
    }

    /// Monotonic microseconds.
    pub(in crate::replica) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Milliseconds since the epoch.
    pub(in crate::replica) fn wall_ms(&self) -> i64 {
        self.wall_ms
    }

    /// This server begins to lead, and has applied what was committed before.
    pub(in crate::replica) fn begin_to_lead(&mut self, applied_ms: i64) {
        self.end_to_lead();
        let heard_ms = if mutant!("steady-clock-not-heard") { 0 } else { self.heard_ms };
        self.leads = Some((self.now_us, heard_ms.max(applied_ms)));
        self.readings.clear();
        self.proposed_ms = i64::MIN;
    }

    /// It leads no longer.
    pub(in crate::replica) fn end_to_lead(&mut self) {
        self.heard_ms = self.heard_ms.max(self.steady_ms());
        self.leads = None;
    }

    /// The leader says so.
    pub(in crate::replica) fn hear(&mut self, steady_ms: i64) {
        self.heard_ms = self.heard_ms.max(steady_ms);
    }

    /// The steady clock, as far as it is known here.
    pub(in crate::replica) fn steady_ms(&self) -> i64 {
        let Some((since_us, since_ms)) = self.leads else { return self.heard_ms };
        let led_ms = i64::try_from(self.now_us.saturating_sub(since_us) / 1000).unwrap_or(i64::MAX);
        since_ms.saturating_add(led_ms).min(STEADY_MS_MAX)
    }

    /// An entry is proposed now.
    pub(in crate::replica) fn proposed(&mut self) {
        self.proposed_ms = self.proposed_ms.max(self.wall_ms);
    }

    /// The stamp of what this leader has proposed or applied last, or a later one.
    pub(in crate::replica) fn last_stamp_ms(&self, applied_ms: i64) -> i64 {
        self.proposed_ms.max(applied_ms)
    }

    /// Another server has answered a question of this time: that is what its wall clock shows.
    pub(in crate::replica) fn read(&mut self, peer: u64, wall_ms: i64, asked_us: u64) {
        let at_us = asked_us + self.now_us.saturating_sub(asked_us) / 2;
        self.readings.insert(peer, Reading { wall_ms, at_us, asked_us });
    }

    /// By how much the wall clock of another server is ahead of this one's.
    pub(in crate::replica) fn skew_ms(&self, peer: u64) -> Option<i64> {
        let Reading { wall_ms: read_ms, at_us, asked_us } = *self.readings.get(&peer)?;
        if self.now_us.saturating_sub(asked_us) > READING_US_MAX {
            return None;
        }
        let since_ms = i64::try_from(self.now_us.saturating_sub(at_us) / 1000).unwrap_or(i64::MAX);
        Some(read_ms.saturating_add(since_ms).saturating_sub(self.wall_ms))
    }

    /// Whether the wall clock of another server agrees with this one's.
    pub(in crate::replica) fn agrees(&self, peer: u64) -> bool {
        self.skew_ms(peer).is_some_and(|skew| skew.abs() <= AGREED_MS_MAX)
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
        clocks.tick(1_000_000, 0);
        clocks.begin_to_lead(4500);
        clocks.tick(3_000_000, 0);
        assert_eq!(clocks.steady_ms(), 7000);
        clocks.end_to_lead();
        clocks.tick(9_000_000, 0);
        assert_eq!(clocks.steady_ms(), 7000, "who does not lead does not count");
        clocks.begin_to_lead(8000);
        assert_eq!(clocks.steady_ms(), 8000);
    }

    #[test]
    fn a_skew_is_that_of_the_middle_between_question_and_answer_and_is_known_for_a_while() {
        let mut clocks = Clocks::default();
        clocks.tick(1_400_000, 0);
        clocks.read(2, 10_000, 1_000_000);
        clocks.tick(2_200_000, 8000);
        assert_eq!(clocks.skew_ms(2), Some(3000));
        clocks.tick(3_000_001, 8000);
        assert_eq!(clocks.skew_ms(2), None);
        assert_eq!(clocks.skew_ms(3), None);
    }

    #[test]
    fn clocks_at_the_ends_of_time_do_not_overflow() {
        let mut clocks = Clocks::default();
        clocks.hear(STEADY_MS_MAX);
        clocks.begin_to_lead(0);
        clocks.tick(1000, i64::MIN);
        clocks.read(2, i64::MAX, 0);
        assert_eq!(clocks.skew_ms(2), Some(i64::MAX));
        clocks.tick(u64::MAX, 0);
        assert_eq!(clocks.steady_ms(), STEADY_MS_MAX);
    }

    #[test]
    fn a_gap_between_two_ticks_counts_as_a_few() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.tick(1_000_000, 0), (0, false), "the first reading is a beginning");
        assert_eq!(clocks.tick(1_000_000 + TICK_MS * 1000, 0), (1, false));
        let next_us = 1_000_000 + TICK_MS * 1000 * (1 + TICKS_AT_ONCE_MAX);
        assert_eq!(clocks.tick(next_us, 0), (TICKS_AT_ONCE_MAX, false));
        assert_eq!(clocks.tick(9_000_000, 0), (TICKS_WHEN_LATE, true));
        assert_eq!(clocks.tick(9_000_001, 0), (0, false), "the rest is not made up for");
    }
}
