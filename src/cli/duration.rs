//! Times as a user writes them in flags, and the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `5`, `0.5`, `500ms`, `10s`, `2m`, `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    let is_number = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = number.parse().ok().filter(|_| is_number).ok_or(EXPECTED_TIME)?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| EXPECTED_TIME.to_string())
}

/// Milliseconds since the epoch, 0 if the clock stands before it.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

const EXPECTED_TIME: &str = "expected a time: seconds, or 500ms, 10s, 2m, 1h";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, ms) in [("0", 0), ("5", 5000), ("0.5", 500), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "-1", "1d", "s", "inf", "nan", "1e3", "9".repeat(400).as_str()] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
