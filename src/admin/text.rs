//! Values as ZooKeeper's texts have them. Dates are as Java's `Date.toString` writes them, always in UTC.

use std::fmt::{Arguments, Write as _};

use time::OffsetDateTime;

/// Appends formatted text.
pub(super) fn put(out: &mut String, arguments: Arguments<'_>) {
    out.write_fmt(arguments).expect("writing to a String cannot fail");
}

/// Four decimals at most, as ZooKeeper shows means.
pub(super) fn rounded(mean: f64) -> f64 {
    (mean * 10_000.0).round() / 10_000.0
}

/// `Sat Nov 21 02:37:21 UTC 2026` for milliseconds since the epoch.
pub(crate) fn java_date(wall_ms: i64) -> String {
    let Ok(at) = OffsetDateTime::from_unix_timestamp(wall_ms.div_euclid(1000)) else {
        return format!("{wall_ms} ms");
    };
    let weekday = at.weekday().to_string();
    let month = at.month().to_string();
    format!(
        "{} {} {:02} {:02}:{:02}:{:02} UTC {:04}",
        &weekday[..NAME_LETTERS],
        &month[..NAME_LETTERS],
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.year()
    )
}

/// English names of days and months are cut to three letters; none is shorter.
const NAME_LETTERS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_reads_as_java_writes_it() {
        assert_eq!(java_date(1_795_228_641_999), "Sat Nov 21 02:37:21 UTC 2026");
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(-1), "Wed Dec 31 23:59:59 UTC 1969");
    }

    #[test]
    fn a_date_outside_the_calendar_does_not_panic() {
        assert_eq!(java_date(i64::MAX), format!("{} ms", i64::MAX));
        assert_eq!(java_date(i64::MIN), format!("{} ms", i64::MIN));
    }
}
