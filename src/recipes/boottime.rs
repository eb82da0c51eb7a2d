//! The clock that tells how long a session has left.
//!
//! *Owns* [`BootTime`]. *Invariant*: it goes on while the machine sleeps, as the server's clock does:
//! a laptop or a virtual machine that wakes up after its session's timeout must know that at once.
//! `std::time::Instant` and tokio's timers stand still meanwhile.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on this machine's clock since boot, time asleep included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(CLOCK);
        let seconds = u64::try_from(now.tv_sec).expect("the time since boot is positive");
        let nanos = u32::try_from(now.tv_nsec).expect("less than a second");
        Self(Duration::new(seconds, nanos))
    }

    /// The moment so long after the boot.
    #[must_use]
    pub fn at(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// How long after the boot it is.
    #[must_use]
    pub fn since_boot(self) -> Duration {
        self.0
    }

    /// The moment this much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The moment this much earlier, but not before the boot.
    #[cfg(test)]
    pub(super) fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// How long it is until then; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Whether it has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock is the nearest there is; on macOS it goes on during sleep.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_passes_once_and_for_all() {
        let now = BootTime::now();
        assert!(now.has_passed());
        assert_eq!(now.remaining(), Duration::ZERO);
        let later = now.after(Duration::from_secs(3600));
        assert!(!later.has_passed());
        assert!(later.remaining() > Duration::from_secs(3590));
    }
}
