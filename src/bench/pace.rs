//! When operations begin at a fixed rate: an open loop.
//!
//! A connection that may have several requests in flight begins at one moment what it would begin within a
//! millisecond: one write for each is what the client's processor would be busy with, and the server's.
//!
//! *Invariant*: the moments are fixed beforehand and do not depend on the servers, and latency counts
//! from them, so a server that stalls is charged with all that should have been asked meanwhile.

use std::time::{Duration, Instant};

/// What is due within this time is due at its beginning, if that many may be in flight.
const AT_ONE_MOMENT: Duration = Duration::from_millis(1);

/// The moments at which one connection's operations are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    first: Instant,
    /// Operations that begin at one moment.
    group: u64,
    /// Seconds from one moment to the next.
    interval: f64,
    next: u64,
}

impl Pace {
    /// Of connection number `at` of `connections`, which together begin `rate` operations per second
    /// from `start` on, in turn, and of which each may have `depth` of them in flight.
    pub(super) fn new(
        start: Instant,
        rate: f64,
        at: usize,
        connections: usize,
        depth: usize,
    ) -> Self {
        let within = rate / connections as f64 * AT_ONE_MOMENT.as_secs_f64();
        let group = (within as usize).clamp(1, depth);
        let moments = rate / group as f64;
        let first = start + Duration::from_secs_f64(at as f64 / moments);
        Pace { first, group: group as u64, interval: connections as f64 / moments, next: 0 }
    }

    /// The next one's moment.
    pub(super) fn due(&self) -> Instant {
        self.first + Duration::from_secs_f64(self.interval * (self.next / self.group) as f64)
    }

    /// The next one has begun.
    pub(super) fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the operations of all of four connections begin, three moments of each, in milliseconds.
    fn moments(rate: f64, depth: usize, group: usize) -> Vec<f64> {
        let start = Instant::now();
        let mut moments: Vec<Duration> = Vec::new();
        for at in 0..4 {
            let mut pace = Pace::new(start, rate, at, 4, depth);
            for _ in 0..3 * group {
                moments.push(pace.due() - start);
                pace.advance();
            }
        }
        moments.sort_unstable();
        moments.into_iter().map(|moment| moment.as_secs_f64() * 1e3).collect()
    }

    #[test]
    fn connections_take_turns_at_the_rate_of_all() {
        let one_by_one: Vec<f64> = (0..12).map(f64::from).collect();
        assert_eq!(moments(1000.0, 1, 1), one_by_one);
        assert_eq!(moments(1000.0, 16, 1), one_by_one, "they begin less than one in a millisecond");
    }

    #[test]
    fn what_is_due_within_a_millisecond_begins_at_one_moment_if_it_may_be_in_flight() {
        for (depth, group) in [(1, 1), (3, 3), (16, 8)] {
            let expected: Vec<f64> =
                (0..12 * group).map(|number| (number / group * group) as f64 / 32.0).collect();
            let begun = moments(32_000.0, depth, group);
            let differ = begun.iter().zip(&expected).any(|(begun, due)| (begun - due).abs() > 1e-4);
            assert!(!differ && begun.len() == expected.len(), "{begun:?}, {expected:?}");
        }
    }
}
