//! When a checkpoint is due, and how late it is.
//!
//! *Owns* when the last one was complete. *Invariant*: one that has been begun is due until it is complete. *Never*
//! looks at a clock itself, and never decides how much of a core it takes: see `server/cpu_policy`.

use std::time::{Duration, Instant};

use crate::server::limits::{CHANGES_WAITING_LATE, CHANGES_WAITING_MAX, CHECKPOINT_LATE};

/// Of one checkpoint after the other.
#[derive(Debug)]
pub(crate) struct CheckpointSchedule {
    /// When the last one was complete.
    completed: Instant,
    /// Whether one has been begun and lacks its mark.
    is_open: bool,
}

impl CheckpointSchedule {
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

    /// How late it is with so many changes waiting, by those or by its time: from 1.0 on it is late.
    pub(crate) fn lateness(&self, waiting: u64, now: Instant) -> f64 {
        let of_time = self.took(now).as_secs_f64() / CHECKPOINT_LATE.as_secs_f64();
        let of_changes = waiting as f64 / CHANGES_WAITING_LATE as f64;
        of_time.max(of_changes)
    }

    fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.completed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_that_of_the_changes_or_of_the_time_whichever_is_more() {
        let start = Instant::now();
        let schedule = CheckpointSchedule::new(start);
        let lateness = |time, changes| schedule.lateness(changes, start + time);
        let (time, changes) = (CHECKPOINT_LATE, CHANGES_WAITING_LATE);
        assert_eq!((lateness(time / 4, 0), lateness(time / 5, changes / 4)), (0.25, 0.25));
        assert_eq!((lateness(time, 0), lateness(time / 5, changes)), (1.0, 1.0));
    }

    #[test]
    fn a_checkpoint_is_due_by_its_changes_or_its_time_or_because_it_has_begun() {
        let (start, wait) = (Instant::now(), Duration::from_secs(5));
        let mut schedule = CheckpointSchedule::new(start);
        assert!(!schedule.is_due(CHANGES_WAITING_MAX - 1, wait, start + wait / 2));
        assert!(schedule.is_due(CHANGES_WAITING_MAX, wait, start));
        assert!(schedule.is_due(0, wait, start + wait));
        schedule.go_on();
        assert!(schedule.is_due(0, wait, start));
        schedule.complete(start + wait);
        assert!(!schedule.is_due(0, wait, start + wait));
    }

    #[test]
    fn lateness_counts_from_the_last_complete_checkpoint() {
        let start = Instant::now();
        let mut schedule = CheckpointSchedule::new(start);
        assert!(schedule.is_late(start + CHECKPOINT_LATE));
        schedule.complete(start + CHECKPOINT_LATE);
        assert!(!schedule.is_late(start + CHECKPOINT_LATE));
        assert!(schedule.is_late(start + 2 * CHECKPOINT_LATE));
    }
}
