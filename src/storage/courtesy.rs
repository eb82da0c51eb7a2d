//! Long work in the background stops often, so that whoever waits for its core has it at once.
//!
//! The threads that serve let others have their time (`server/sched.rs`), and that of a thread which writes
//! an image is 3 ms each time that one of them is woken, whatever its priority. A client with a fixed number
//! of requests in flight then falls behind for as long as the image takes.
//!
//! *Invariant*: it gives others at most [`GIVEN_TIMES`] times the time that it takes, so that it gets on
//! beside whoever computes without an end. *Never* holds anything that others wait for while it stands back.

use std::time::{Duration, Instant};

/// Steps of work from one time to the next: some ten microseconds.
const STEPS: u32 = 256;
/// Of a record that is read, put in its place and written. One to compare two of them.
pub(super) const RECORD_STEPS: u32 = 8;
/// Of what takes some ten microseconds by itself.
pub(super) const BLOCK_STEPS: u32 = STEPS;
/// Of the time that it worked, what others are given at most.
const GIVEN_TIMES: u32 = 8;

/// Of one long work.
#[derive(Debug)]
pub(super) struct Courtesy {
    steps: u32,
    /// When it last went on working.
    since: Instant,
    worked: Duration,
    given: Duration,
}

impl Courtesy {
    pub(super) fn new() -> Self {
        let since = Instant::now();
        Self { steps: 0, since, worked: Duration::ZERO, given: Duration::ZERO }
    }

    /// So many steps of the work are done.
    pub(super) fn did(&mut self, steps: u32) {
        self.steps += steps;
        if self.steps >= STEPS {
            self.steps = 0;
            self.give_way(std::thread::yield_now, Instant::now);
        }
    }

    fn give_way(&mut self, wait: impl FnOnce(), now: impl Fn() -> Instant) {
        let stopped = now();
        self.worked += stopped - self.since;
        self.since = stopped;
        if self.given < self.worked * GIVEN_TIMES {
            wait();
            self.since = now();
            self.given += self.since - stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Works a millisecond at a time; each time that it stands back costs `wait`. How often it stood back.
    fn stood_back(times: u32, wait: Duration) -> u32 {
        let mut courtesy = Courtesy::new();
        let (now, waits) = (Cell::new(courtesy.since), Cell::new(0));
        for _ in 0..times {
            now.set(now.get() + MS);
            let stand_back = || {
                now.set(now.get() + wait);
                waits.set(waits.get() + 1);
            };
            courtesy.give_way(stand_back, || now.get());
        }
        waits.get()
    }

    #[test]
    fn who_has_nobody_beside_it_stands_back_every_time() {
        assert_eq!(stood_back(100, Duration::ZERO), 100);
        assert_eq!(stood_back(100, 3 * MS), 100);
    }

    #[test]
    fn beside_somebody_without_an_end_it_gets_its_part() {
        let waits = stood_back(1000, 80 * MS);
        assert_eq!(waits, 1000 * GIVEN_TIMES / 80);
    }
}
