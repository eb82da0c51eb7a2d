//! The clocks that the core is not allowed to read, and what is done now and then.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch, 0 if the clock stands before it.
#[must_use]
pub(super) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Microseconds since `start`.
#[must_use]
pub(super) fn micros_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Something that is done at most once in an interval, such as a log line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Periodic(Option<Instant>);

impl Periodic {
    /// Whether it was not done within `interval`. If so, it is done `now`.
    pub(super) fn is_due(&mut self, interval: Duration, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|done| now.saturating_duration_since(done) >= interval);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_due_at_once_and_then_once_in_each_interval() {
        let (mut periodic, begun) = (Periodic::default(), Instant::now());
        let due = (0..100)
            .filter(|s| periodic.is_due(Duration::from_secs(30), begun + Duration::from_secs(*s)));
        assert_eq!(due.collect::<Vec<u64>>(), [0, 30, 60, 90]);
    }
}
