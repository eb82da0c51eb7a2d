//! The bound on log lines of one cause: a few at once, and then how many more there were.
//!
//! *Owns* how many lines of each cause were written lately. *Invariant*: of one cause there are at most [`LINES`] lines
//! in [`SPAN`], and one more that says how many were left out. *Never* writes a line itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines of one cause in one span.
const LINES: u32 = 5;
/// How long they count.
pub(in crate::server) const SPAN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::server) struct Limited(BTreeMap<&'static str, Cause>);

#[derive(Debug)]
struct Cause {
    since: Instant,
    said: u32,
    more: u64,
}

impl Limited {
    /// Whether a line of this cause may be written now. If not, it is counted.
    pub(in crate::server) fn may_say(&mut self, cause: &'static str, now: Instant) -> bool {
        let known = self.0.entry(cause).or_insert(Cause { since: now, said: 0, more: 0 });
        if known.said < LINES {
            known.said += 1;
            return true;
        }
        known.more += 1;
        false
    }

    /// The causes whose span is over, and how many lines of each were left out in it, if any were.
    pub(in crate::server) fn over(&mut self, now: Instant) -> Vec<(&'static str, u64)> {
        let mut left_out = Vec::new();
        self.0.retain(|cause, known| {
            let is_over = now.saturating_duration_since(known.since) >= SPAN;
            if is_over && known.more > 0 {
                left_out.push((*cause, known.more));
            }
            !is_over
        });
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_lines_of_each_cause_are_written_and_the_others_counted() {
        let (mut limited, begun) = (Limited::default(), Instant::now());
        let said = (0..317).filter(|_| limited.may_say("zxid", begun)).count();
        assert_eq!(said, 5);
        assert!(limited.may_say("session", begun), "another cause");
        assert_eq!(limited.over(begun), []);
        assert_eq!(limited.over(begun + SPAN), [("zxid", 312)]);
        assert!(limited.may_say("zxid", begun + SPAN));
        assert_eq!(limited.over(begun + 2 * SPAN), []);
    }
}
