//! The bound on what is logged about other servers: a token bucket of lines.
//!
//! *Owns* how many lines may still be written. *Invariant*: in any time there are at most [`LINES_MAX`], and one more
//! for each [`INTERVAL`] in it, whatever is sent to this server, and under whose name. *Never* decides what is said.

use std::time::{Duration, Instant};

/// Lines at once.
const LINES_MAX: u32 = 200;
/// From one line to the next when those are used up.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines that may be written.
#[derive(Debug)]
pub(super) struct Lines {
    left: u32,
    /// What was added last.
    since: Option<Instant>,
}

/// Whether a line may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It may.
    Free,
    /// It may, and it is the last one for now.
    Last,
    /// It may not.
    None,
}

impl Default for Lines {
    fn default() -> Self {
        Self { left: LINES_MAX, since: None }
    }
}

impl Lines {
    /// Takes one.
    pub(super) fn take(&mut self, now: Instant) -> Line {
        let since = *self.since.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_secs() / INTERVAL.as_secs();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(LINES_MAX);
            self.since = Some(now);
        }
        match self.left {
            0 => Line::None,
            left => {
                self.left = left - 1;
                if self.left == 0 { Line::Last } else { Line::Free }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_complaints_are_a_bounded_number_of_lines() {
        let (mut lines, begun) = (Lines::default(), Instant::now());
        let taken: Vec<Line> = (0..10_000).map(|_| lines.take(begun)).collect();
        assert_eq!(taken.iter().filter(|line| **line == Line::Free).count(), 199);
        assert_eq!(taken.iter().filter(|line| **line == Line::Last).count(), 1);
        assert_eq!(lines.take(begun + INTERVAL), Line::Last);
        assert_eq!(lines.take(begun + INTERVAL), Line::None);
        assert_eq!(lines.take(begun + INTERVAL * 3), Line::Free, "two more");
    }
}
