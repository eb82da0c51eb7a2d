//! When a checkpoint is due, and how much of a core it may take.
//!
//! *Owns* when the last one was complete. *Invariants*: the nearer a checkpoint comes to being late, by its
//! changes or by its time, the less the state thread rests, but that it waits for a crowd; once it is late, it
//! does not rest at all. *Never* looks at a clock itself.

use std::time::{Duration, Instant};

use crate::server::limits::{
    CHANGES_WAITING_LATE, CHANGES_WAITING_MAX, CHECKPOINT_LATE, LATENESS_BEHIND, REST_TIMES,
    REST_TIMES_BEHIND, REST_TIMES_CROWDED,
};

/// Of one checkpoint after the other.
#[derive(Debug)]
pub(crate) struct CheckpointPace {
    /// When the last one was complete.
    completed: Instant,
    /// Whether one has been begun and lacks its mark.
    is_open: bool,
}

impl CheckpointPace {
    /// None was begun yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { completed: now, is_open: false }
    }

    /// One has been begun and is not complete.
    pub(crate) fn go_on(&mut self) {
        self.is_open = true;
    }

    /// One is complete, or there was nothing to do for it.
    pub(crate) fn complete(&mut self, now: Instant) {
        (self.completed, self.is_open) = (now, false);
    }

    /// Whether changes are to be handed over, of which so many wait, and may do so for `wait`.
    pub(crate) fn is_due(&self, waiting: u64, wait: Duration, now: Instant) -> bool {
        self.is_open || waiting >= CHANGES_WAITING_MAX || self.took(now) >= wait
    }

    /// Whether it has taken too long since the last one was complete.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.took(now) >= CHECKPOINT_LATE
    }

    /// How many times as long as it works the state thread may rest, with so many changes waiting, and whether a crowd
    /// of clients comes.
    pub(crate) fn rest_times(&self, waiting: u64, is_crowded: bool, now: Instant) -> u32 {
        let of_time = self.took(now).as_secs_f64() / CHECKPOINT_LATE.as_secs_f64();
        let of_changes = waiting as f64 / CHANGES_WAITING_LATE as f64;
        match of_time.max(of_changes) {
            ..1.0 if is_crowded => REST_TIMES_CROWDED,
            ..LATENESS_BEHIND => REST_TIMES,
            ..1.0 => REST_TIMES_BEHIND,
            _ => 0,
        }
    }

    fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.completed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_thread_rests_the_less_the_nearer_a_checkpoint_is_to_being_late() {
        let start = Instant::now();
        let pace = CheckpointPace::new(start);
        let rests = |time, changes| pace.rest_times(changes, false, start + time);
        let (time, changes) = (CHECKPOINT_LATE, CHANGES_WAITING_LATE);
        assert_eq!(rests(time / 5, changes / 5), REST_TIMES);
        assert_eq!(rests(time / 5, changes / 4), REST_TIMES_BEHIND);
        assert_eq!(rests(time / 4, 0), REST_TIMES_BEHIND);
        assert_eq!(rests(time / 5, changes - 1), REST_TIMES_BEHIND);
        assert_eq!(rests(time / 5, changes), 0);
        assert_eq!(rests(time, 0), 0);
        let crowded = |time, changes| pace.rest_times(changes, true, start + time);
        assert_eq!(crowded(time / 5, changes / 5), REST_TIMES_CROWDED);
        assert_eq!(crowded(time / 5, changes - 1), REST_TIMES_CROWDED);
        assert_eq!((crowded(time / 5, changes), crowded(time, 0)), (0, 0), "late is late");
    }

    #[test]
    fn a_checkpoint_is_due_by_its_changes_or_its_time_or_because_it_has_begun() {
        let (start, wait) = (Instant::now(), Duration::from_secs(5));
        let mut pace = CheckpointPace::new(start);
        assert!(!pace.is_due(CHANGES_WAITING_MAX - 1, wait, start + wait / 2));
        assert!(pace.is_due(CHANGES_WAITING_MAX, wait, start));
        assert!(pace.is_due(0, wait, start + wait));
        pace.go_on();
        assert!(pace.is_due(0, wait, start));
        pace.complete(start + wait);
        assert!(!pace.is_due(0, wait, start + wait));
    }

    #[test]
    fn lateness_counts_from_the_last_complete_checkpoint() {
        let start = Instant::now();
        let mut pace = CheckpointPace::new(start);
        assert!(pace.is_late(start + CHECKPOINT_LATE));
        pace.complete(start + CHECKPOINT_LATE);
        assert!(!pace.is_late(start + CHECKPOINT_LATE));
        assert!(pace.is_late(start + 2 * CHECKPOINT_LATE));
    }
}
