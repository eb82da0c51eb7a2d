//! Connections that have something to do at a moment, although nothing arrives.
//!
//! On Linux the loop wakes to some microseconds, by a timer of the kernel; elsewhere to a
//! millisecond, which is what waiting for sockets allows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::Instant;

use mio::{Poll, Token};

/// The token by which the timer wakes the loop; no connection has it.
pub const TOKEN: Token = Token(usize::MAX);

/// Who wakes when.
#[derive(Debug)]
pub struct Alarms {
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The valid entry of each connection.
    set: Vec<Option<Instant>>,
    timer: timer::Timer,
    /// When the timer ends.
    armed: Option<Instant>,
}

impl Alarms {
    /// None for any of so many connections; the loop's `poll` is woken by them.
    ///
    /// # Errors
    /// The operating system gives no timer.
    pub fn new(poll: &Poll, connections: usize) -> io::Result<Self> {
        Ok(Alarms {
            queue: BinaryHeap::new(),
            set: vec![None; connections],
            timer: timer::Timer::new(poll)?,
            armed: None,
        })
    }

    /// Connection `number` wakes then, and at no other moment.
    pub fn set(&mut self, number: usize, at: Option<Instant>) {
        if self.set[number] != at {
            self.set[number] = at;
            self.queue.extend(at.map(|at| Reverse((at, number))));
        }
    }

    /// The next connection whose moment has come.
    #[must_use]
    pub fn next(&mut self, now: Instant) -> Option<usize> {
        while let Some(&Reverse((at, number))) = self.queue.peek() {
            if at > now {
                return None;
            }
            self.queue.pop();
            if self.set[number] == Some(at) {
                self.set[number] = None;
                return Some(number);
            }
        }
        None
    }

    /// Has the loop woken in time for the next one; returns when that is.
    ///
    /// # Errors
    /// The operating system's.
    pub fn arm(&mut self, now: Instant) -> io::Result<Option<Instant>> {
        let Some(&Reverse((at, _))) = self.queue.peek() else { return Ok(None) };
        if self.armed != Some(at) {
            self.timer.set(at.saturating_duration_since(now))?;
            self.armed = Some(at);
        }
        Ok(Some(at))
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::io;
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::time::Duration;

    use mio::unix::SourceFd;
    use mio::{Interest, Poll};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    #[derive(Debug)]
    pub(super) struct Timer(OwnedFd);

    impl Timer {
        pub(super) fn new(poll: &Poll) -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let file = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let number = file.as_raw_fd();
            // Edges: every end of a wait is one, whether the last was read or not.
            poll.registry().register(&mut SourceFd(&number), super::TOKEN, Interest::READABLE)?;
            Ok(Timer(file))
        }

        /// Wakes the loop after this time, and not at any time that was set before.
        pub(super) fn set(&mut self, wait: Duration) -> io::Result<()> {
            // Zero would stop it.
            let wait = Timespec::try_from(wait.max(Duration::from_nanos(1)))
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let once = Itimerspec { it_interval: Timespec::default(), it_value: wait };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::io;
    use std::time::Duration;

    #[derive(Debug)]
    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new(_: &mio::Poll) -> io::Result<Self> {
            Ok(Timer)
        }

        /// The wait for sockets ends in time.
        pub(super) fn set(&mut self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_moment_that_was_set_is_the_one() {
        let poll = Poll::new().expect("epoll");
        let mut alarms = Alarms::new(&poll, 2).expect("a timer");
        let now = Instant::now();
        let second = Duration::from_secs(1);
        alarms.set(0, Some(now));
        alarms.set(0, Some(now + second));
        alarms.set(1, Some(now));
        assert_eq!((alarms.next(now), alarms.next(now)), (Some(1), None));
        assert_eq!((alarms.next(now + second), alarms.next(now + second)), (Some(0), None));
        alarms.set(1, Some(now));
        alarms.set(1, None);
        assert_eq!(alarms.next(now), None);
    }
}
