//! When operations begin at a fixed rate: an open loop.
//!
//! *Invariant*: the moments are fixed beforehand and do not depend on the servers, and latency counts
//! from them, so a server that stalls is charged with all that should have been asked meanwhile.

use std::time::{Duration, Instant};

/// The moments at which one connection's operations are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    first: Instant,
    /// Seconds from one to the next.
    interval: f64,
    next: u64,
}

impl Pace {
    /// Of connection number `at` of `connections`, which together begin `rate` operations per second
    /// from `start` on, in turn.
    pub(super) fn new(start: Instant, rate: f64, at: usize, connections: usize) -> Self {
        let first = start + Duration::from_secs_f64(at as f64 / rate);
        Pace { first, interval: connections as f64 / rate, next: 0 }
    }

    /// The next one's moment.
    pub(super) fn due(&self) -> Instant {
        self.first + Duration::from_secs_f64(self.interval * self.next as f64)
    }

    /// The next one has begun.
    pub(super) fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_turns_at_the_rate_of_all() {
        let start = Instant::now();
        let mut moments: Vec<Duration> = Vec::new();
        for at in 0..4 {
            let mut pace = Pace::new(start, 1000.0, at, 4);
            for _ in 0..3 {
                moments.push(pace.due() - start);
                pace.advance();
            }
        }
        moments.sort_unstable();
        let expected: Vec<Duration> = (0..12).map(Duration::from_millis).collect();
        assert_eq!(moments, expected);
    }
}
