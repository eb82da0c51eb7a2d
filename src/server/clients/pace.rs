//! How fast a crowd is let through, so that those at work are served beside it.
//!
//! Somebody of a crowd is a few tens of microseconds of the server's thread, and as much of the processors for the
//! client and its packets. Let through as fast as the server can, or whenever it has a moment, a crowd has most
//! of both: those at work wait for the disk most of the time, and then behind it. So the pace is that of the
//! clock, whatever the server has to do.
//!
//! *Owns* when the next one may come. *Invariants*: fewer than [`CROWD_MIN`] at one moment are no crowd and
//! do not wait; a crowd is let through twice as fast with each [`CROWD_PATIENCE`] that it lasts: of those accepted,
//! 12,000 within 4 s, the least session timeout unless configured. Behind a crowd the pace is the first one again:
//! clients that are always more than that wait for a while again and again. *Never* knows who waits.

use std::time::{Duration, Instant};

use crate::server::limits::{CROWD_MIN, CROWD_PATIENCE};

/// Of what comes by one way.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time for one, of a crowd that has just come.
    interval: Duration,
    /// When everybody who was let through has had that time.
    until: Instant,
    /// Since when there has always been somebody of a crowd.
    crowd: Option<Instant>,
}

impl Pace {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, until: now, crowd: None }
    }

    /// Whether one more may come; if so, it is taken to do so.
    pub(super) fn may_come(&mut self, now: Instant) -> bool {
        if self.until <= now {
            (self.until, self.crowd) = (now, None);
        }
        let may_come = self.until < now + self.interval * CROWD_MIN;
        if may_come {
            self.until += self.time_for_one(now);
        } else {
            self.crowd.get_or_insert(now);
        }
        may_come
    }

    fn time_for_one(&self, now: Instant) -> Duration {
        let lasts = self.crowd.map_or(Duration::ZERO, |since| now - since);
        let doublings = lasts.as_nanos() / CROWD_PATIENCE.as_nanos();
        self.interval / (1 << doublings.min(DOUBLINGS_MAX))
    }
}

/// Of the pace: a thousand times as fast is as fast as anything comes.
const DOUBLINGS_MAX: u128 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_micros(100);
    const TICK: Duration = Duration::from_millis(1);

    /// How many of a crowd that always waits come from `from` on, for so long.
    fn come(pace: &mut Pace, from: Instant, time: Duration) -> u32 {
        let ticks = (time.as_nanos() / TICK.as_nanos()) as u32;
        let mut count = 0;
        for tick in 0..ticks {
            let now = from + TICK * tick;
            while pace.may_come(now) {
                count += 1;
            }
        }
        count
    }

    #[test]
    fn fewer_at_one_moment_than_a_crowd_do_not_wait() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL, now);
        assert!((0..CROWD_MIN).all(|_| pace.may_come(now)));
        assert!(!pace.may_come(now));
        let later = now + INTERVAL * CROWD_MIN;
        assert!((0..CROWD_MIN).all(|_| pace.may_come(later)));
    }

    #[test]
    fn a_crowd_comes_at_the_pace_of_the_clock() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL, now);
        come(&mut pace, now, TICK);
        let half = CROWD_PATIENCE / 2;
        let due = (half.as_nanos() / INTERVAL.as_nanos()) as u32;
        assert_eq!(come(&mut pace, now + TICK, half), due);
    }

    #[test]
    fn a_crowd_comes_faster_the_longer_it_lasts() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL, now);
        let of_patience: Vec<u32> =
            (0..4).map(|n| come(&mut pace, now + CROWD_PATIENCE * n, CROWD_PATIENCE)).collect();
        for (slower, faster) in of_patience.iter().zip(&of_patience[1..]) {
            assert!(
                (1.9..2.1).contains(&(f64::from(*faster) / f64::from(*slower))),
                "{of_patience:?}"
            );
        }
    }

    #[test]
    fn another_crowd_comes_as_fast_as_the_first() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL, now);
        let first = come(&mut pace, now, CROWD_PATIENCE * 3 / 2);
        let second = come(&mut pace, now + CROWD_PATIENCE * 4, CROWD_PATIENCE * 3 / 2);
        assert_eq!(first, second);
    }
}
