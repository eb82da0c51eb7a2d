//! A token bucket whose refill rate doubles the longer clients wait.
//!
//! Each client that is let in takes a token. The bucket holds a burst of them and is refilled by the clock, whatever
//! the server has to do: a client of a reconnect storm is a few tens of microseconds of the server's thread, and as
//! much of the processors for the client and its packets. Let in as fast as the server can, or whenever it has a
//! moment, a storm takes most of both, and active clients, which wait for the disk most of the time, then wait behind
//! it.
//!
//! *Owns* the tokens, as the moment when the bucket is full again. *Invariants*: no more clients than the burst
//! are let in at one moment; the refill rate doubles with each [`PATIENCE`] in which there always was a client that
//! waited, because their sessions may be about to expire, and is the first one again once the bucket is full. *Never*
//! knows who waits, and never looks at a clock itself.

use std::time::{Duration, Instant};

/// The refill rate doubles with each of these in which there always was a client that waited. At 2,000 a second
/// 12,000 are let in within 4 s, the least session timeout unless configured.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Of the rate: a thousand times as fast is as fast as anything comes.
const DOUBLINGS_MAX: u128 = 10;

/// How a bucket is refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refill {
    /// Time for one token; zero: there is no limit.
    pub(super) interval: Duration,
    /// How many it holds.
    pub(super) burst: u32,
}

/// Of what comes by one way.
#[derive(Debug)]
pub(super) struct TokenBucket {
    refill: Refill,
    /// When it holds all its tokens.
    full_at: Instant,
    /// Since when there has always been a client that waited.
    waited_since: Option<Instant>,
}

impl TokenBucket {
    /// A full one.
    pub(super) fn new(refill: Refill, now: Instant) -> Self {
        Self { refill, full_at: now, waited_since: None }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let Refill { interval, burst } = self.refill;
        if interval.is_zero() {
            return true;
        }
        if self.full_at <= now {
            (self.full_at, self.waited_since) = (now, None);
        }
        let has_token = self.full_at < now + interval * burst;
        if has_token {
            self.full_at += self.time_for_one(now);
        } else {
            self.waited_since.get_or_insert(now);
        }
        has_token
    }

    fn time_for_one(&self, now: Instant) -> Duration {
        let lasts = self.waited_since.map_or(Duration::ZERO, |since| now - since);
        let doublings = lasts.as_nanos() / PATIENCE.as_nanos();
        self.refill.interval / (1 << doublings.min(DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_micros(100);
    const BURST: u32 = 64;
    const TICK: Duration = Duration::from_millis(1);

    fn bucket(now: Instant) -> TokenBucket {
        TokenBucket::new(Refill { interval: INTERVAL, burst: BURST }, now)
    }

    /// How many of those that always wait are let in from `from` on, for so long.
    fn let_in(bucket: &mut TokenBucket, from: Instant, time: Duration) -> u32 {
        let ticks = (time.as_nanos() / TICK.as_nanos()) as u32;
        let mut count = 0;
        for tick in 0..ticks {
            let now = from + TICK * tick;
            while bucket.take(now) {
                count += 1;
            }
        }
        count
    }

    #[test]
    fn a_burst_does_not_wait() {
        let now = Instant::now();
        let mut bucket = bucket(now);
        assert!((0..BURST).all(|_| bucket.take(now)));
        assert!(!bucket.take(now));
        let later = now + INTERVAL * BURST;
        assert!((0..BURST).all(|_| bucket.take(later)));
    }

    #[test]
    fn behind_a_burst_clients_are_let_in_by_the_clock() {
        let now = Instant::now();
        let mut bucket = bucket(now);
        let_in(&mut bucket, now, TICK);
        let half = PATIENCE / 2;
        let due = (half.as_nanos() / INTERVAL.as_nanos()) as u32;
        assert_eq!(let_in(&mut bucket, now + TICK, half), due);
    }

    #[test]
    fn the_rate_doubles_the_longer_clients_wait() {
        let now = Instant::now();
        let mut bucket = bucket(now);
        let of_patience: Vec<u32> =
            (0..4).map(|n| let_in(&mut bucket, now + PATIENCE * n, PATIENCE)).collect();
        for (slower, faster) in of_patience.iter().zip(&of_patience[1..]) {
            let ratio = f64::from(*faster) / f64::from(*slower);
            assert!((1.9..2.1).contains(&ratio), "{of_patience:?}");
        }
    }

    #[test]
    fn another_storm_is_let_in_as_fast_as_the_first() {
        let now = Instant::now();
        let mut bucket = bucket(now);
        let first = let_in(&mut bucket, now, PATIENCE * 3 / 2);
        let second = let_in(&mut bucket, now + PATIENCE * 4, PATIENCE * 3 / 2);
        assert_eq!(first, second);
    }

    #[test]
    fn without_a_limit_no_client_waits() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(Refill { interval: Duration::ZERO, burst: 1 }, now);
        assert!((0..100_000).all(|_| bucket.take(now)));
    }
}
