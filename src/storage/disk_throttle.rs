//! Background disk throttle: how much of the log's disk images may take while the log is written to.
//!
//! *Owns* when the log was synced last, and the rests of what writes and reads images. *Invariants*: while the log was
//! synced within [`ACTIVE`], an image has the disk for a sixteenth of the time, and for [`BYTES_PER_S`] at most, so
//! that a sync seldom finds it busy; otherwise, and while the work is late, it does not rest. *Never* holds a lock
//! while it rests.
//!
//! A disk has one queue, and many have a limit of bytes per second: an image that is written as fast as it goes holds
//! up the sync of each write of a client meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So long behind a sync of the log the next one is expected.
const ACTIVE: Duration = Duration::from_millis(100);
/// The work rests so many times as long as the disk worked for it.
const REST_TIMES: u32 = 15;
/// More of an image is not written or read in a second: what a read takes ahead, and what a disk only takes note of,
/// has the disk later than it was asked for.
const BYTES_PER_S: u64 = 64 << 20;
/// The longest rest: one behind a piece that found the disk busy itself.
const REST_MAX: Duration = Duration::from_millis(20);

/// What images ask how much of the log's disk they may take; clones are one.
#[derive(Clone, Debug)]
pub struct DiskBudget(Arc<Use>);

#[derive(Debug)]
struct Use {
    since: Instant,
    /// Microseconds from then to the last sync of the log; 0: there was none.
    synced_us: AtomicU64,
    is_late: AtomicBool,
}

impl Default for DiskBudget {
    fn default() -> Self {
        let (synced_us, is_late) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Use { since: Instant::now(), synced_us, is_late }))
    }
}

impl DiskBudget {
    /// The log was synced.
    pub fn synced(&self, now: Instant) {
        let us = now.saturating_duration_since(self.0.since).as_micros();
        self.0.synced_us.store(u64::try_from(us).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    /// Says whether the work is late: then it does not rest.
    pub fn set_late(&self, is_late: bool) {
        self.0.is_late.store(is_late, Ordering::Relaxed);
    }

    /// How long the work is to rest that had the disk for a time, and moved so many bytes.
    fn rest(&self, had: Duration, bytes: u64, now: Instant) -> Duration {
        let synced_us = self.0.synced_us.load(Ordering::Relaxed);
        let synced = self.0.since + Duration::from_micros(synced_us);
        let is_active = synced_us > 0 && now.saturating_duration_since(synced) < ACTIVE;
        match is_active && !self.0.is_late.load(Ordering::Relaxed) {
            true => {
                let moved = Duration::from_micros(bytes.saturating_mul(1_000_000) / BYTES_PER_S);
                (had * REST_TIMES).max(moved).min(REST_MAX)
            }
            false => Duration::ZERO,
        }
    }

    /// Rests as long as it is to that had the disk since `begun`.
    pub(super) fn had_since(&self, begun: Instant, bytes: u64) {
        let now = Instant::now();
        let rest = self.rest(now - begun, bytes, now);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn work_rests_while_the_log_is_written_to_and_not_longer() {
        let (budget, begun) = (DiskBudget::default(), Instant::now());
        assert_eq!(budget.rest(MS, 0, begun), Duration::ZERO, "there was no sync");
        budget.synced(begun + 5 * MS);
        assert_eq!(budget.rest(MS, 0, begun + 6 * MS), 15 * MS);
        assert_eq!(budget.rest(3 * MS, 0, begun + 6 * MS), REST_MAX);
        assert_eq!(budget.rest(MS, 0, begun + 106 * MS), Duration::ZERO);
    }

    #[test]
    fn more_than_so_many_bytes_are_not_moved_in_a_second() {
        let (budget, now) = (DiskBudget::default(), Instant::now());
        budget.synced(now);
        let moved = Duration::from_micros(15_625);
        assert_eq!(budget.rest(Duration::ZERO, BYTES_PER_S / 64, now), moved);
        assert_eq!(budget.rest(2 * MS, BYTES_PER_S / 64, now), REST_MAX, "it is the longer one");
    }

    #[test]
    fn work_that_is_late_does_not_rest() {
        let (budget, now) = (DiskBudget::default(), Instant::now());
        budget.synced(now);
        budget.set_late(true);
        assert_eq!(budget.rest(MS, 0, now), Duration::ZERO);
        budget.set_late(false);
        assert_eq!(budget.rest(MS, 0, now), 15 * MS);
    }
}
