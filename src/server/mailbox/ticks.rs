//! The clock that wakes an idle driver.
//!
//! *Owns* a timer of the system's that needs no more than to be read. *Invariant*: [`Ticks::next`] is
//! ready at once, and then once for every [`TICK_MS`], or less often if the driver looked too late. *Never*
//! asks the runtime for a timer where the system has one: to set one there wakes the runtime by a write
//! to itself, and its wheel turns once or twice before it is due, which is most of what an idle server
//! would do.

use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::fd::OwnedFd;
#[cfg(target_os = "linux")]
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::replica::TICK_MS;

/// A clock.
#[derive(Debug)]
pub(in crate::server) enum Ticks {
    /// The system's.
    #[cfg(target_os = "linux")]
    System(AsyncFd<OwnedFd>),
    /// The runtime's: where the system has none, or gives none. A test can move it.
    Runtime(Interval),
}

impl Ticks {
    /// The system's clock, or the runtime's. In a runtime only.
    #[must_use]
    pub(in crate::server) fn new() -> Self {
        #[cfg(target_os = "linux")]
        match system(Duration::from_millis(TICK_MS)) {
            Ok(timer) => return Self::System(timer),
            Err(error) => tracing::debug!(%error, "the runtime's timer is used"),
        }
        Self::of_runtime()
    }

    /// The runtime's clock. In a runtime only.
    #[must_use]
    pub(in crate::server) fn of_runtime() -> Self {
        let mut ticks = interval(Duration::from_millis(TICK_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self::Runtime(ticks)
    }

    /// Waits for the next tick. May be dropped at any moment.
    pub(in crate::server) async fn next(&mut self) {
        match self {
            #[cfg(target_os = "linux")]
            Self::System(timer) => {
                let elapsed = async {
                    loop {
                        let mut ready = timer.readable().await?;
                        let read = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut [0_u8; 8])?));
                        if let Ok(read) = read {
                            return read;
                        }
                    }
                };
                if let Err(error) = elapsed.await {
                    // There is no known reason why it should; without ticks a server is of no use.
                    tracing::warn!(%error, "the system's timer fails: the runtime's is used");
                    *self = Self::of_runtime();
                }
            }
            Self::Runtime(ticks) => {
                ticks.tick().await;
            }
        }
    }
}

/// A timer of the system's.
#[cfg(target_os = "linux")]
fn system(period: Duration) -> std::io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let period = Timespec::try_from(period).map_err(std::io::Error::other)?;
    // The first one is due at once, as the runtime's is: no start waits for half of it.
    let first = Timespec { tv_sec: 0, tv_nsec: 1 };
    let times = Itimerspec { it_interval: period, it_value: first };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
    #[allow(deprecated, reason = "what replaces it is unsafe; the descriptor is owned, as it asks")]
    AsyncFd::new(timer)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_tick_is_due_at_once() {
        let hour = Duration::from_secs(3600);
        let mut ticks = Ticks::System(system(hour).expect("Linux has timers"));
        ticks.next().await;
        assert!(matches!(ticks, Ticks::System(_)), "it did not fail");
    }

    #[tokio::test]
    async fn the_clock_of_the_system_ticks_on_and_on() {
        let mut ticks = Ticks::System(system(Duration::from_millis(1)).expect("Linux has timers"));
        for _ in 0..3 {
            ticks.next().await;
        }
        assert!(matches!(ticks, Ticks::System(_)), "it did not fail");
    }
}
