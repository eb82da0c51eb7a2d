//! The clocks that the core is not allowed to read.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
