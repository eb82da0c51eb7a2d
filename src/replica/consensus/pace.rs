//! When a leader of others puts the next entries into its log.
//!
//! *Owns* the measure of how long a commit takes. While one is about to come, what arrives waits for
//! it, and is one batch then: every server spends one message, one wake-up and one fsync on it,
//! and what was committed travels with what is next. One entry does not wait for a small one: few
//! clients are at work then, and an answer that comes sooner is worth more. *Invariant*: nothing waits
//! longer than [`WAIT_US_MAX`] for an entry, be it one that Raft put into the log by itself, but for the
//! next look at the clock; where commits take longer than that, because the network or a disk is slow,
//! nothing waits at all.

/// Bytes of an entry that the next one does not wait for: a few requests of locks.
const SMALL_BYTES_MAX: u64 = 600;
/// Longest commit that is waited for, microseconds.
const WAIT_US_MAX: u64 = 5000;

/// The pace of one leader.
#[derive(Debug, Default)]
pub(in crate::replica) struct Pace {
    /// Index and term of an entry that is looked at, and since when.
    looked_at: Option<(u64, u64, u64)>,
    /// Index of the entry that was proposed last, and its bytes.
    newest: (u64, u64),
    /// How long commits take, microseconds, on average over the last few.
    usual_us: u64,
}

impl Pace {
    /// Whether the next entries are to be proposed now. `log` is up to where the log is committed, and
    /// its last index.
    pub(in crate::replica) fn is_clear(&mut self, term: u64, log: (u64, u64), now_us: u64) -> bool {
        let (committed, last) = log;
        self.looked_at.take_if(|(_, of, _)| *of != term);
        let mut waited_us = 0;
        if let Some((index, _, since_us)) = self.looked_at {
            waited_us = now_us.saturating_sub(since_us);
            if index <= committed {
                self.usual_us = (3 * self.usual_us + waited_us) / 4;
                self.looked_at = None;
            }
        }
        if last > committed {
            self.looked_at.get_or_insert((last, term, now_us));
        }
        let (index, bytes) = self.newest;
        let is_behind_small = last == committed + 1 && index == last && bytes <= SMALL_BYTES_MAX;
        last <= committed || is_behind_small || self.usual_us.max(waited_us) > WAIT_US_MAX
    }

    /// An entry with this index and of that many bytes was proposed.
    pub(in crate::replica) fn proposed(&mut self, term: u64, index: u64, bytes: u64, now_us: u64) {
        self.looked_at.get_or_insert((index, term, now_us));
        self.newest = (index, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = SMALL_BYTES_MAX + 1;

    #[test]
    fn what_comes_while_entries_are_on_their_way_waits_for_their_commit() {
        let mut pace = Pace::default();
        assert!(pace.is_clear(1, (10, 10), 0));
        pace.proposed(1, 11, LARGE, 0);
        assert!(!pace.is_clear(1, (10, 11), 100));
        assert!(pace.is_clear(1, (11, 11), 400));
    }

    #[test]
    fn one_entry_does_not_wait_for_a_small_one() {
        let mut pace = Pace::default();
        pace.proposed(1, 11, SMALL_BYTES_MAX, 0);
        assert!(pace.is_clear(1, (10, 11), 100));
        pace.proposed(1, 12, SMALL_BYTES_MAX, 100);
        assert!(!pace.is_clear(1, (10, 12), 200), "there are two");
        assert!(pace.is_clear(1, (11, 12), 300));
        pace.proposed(1, 13, LARGE, 300);
        assert!(!pace.is_clear(1, (12, 13), 400));
    }

    #[test]
    fn an_entry_in_the_place_of_a_small_one_is_not_taken_for_it() {
        let mut pace = Pace::default();
        pace.proposed(1, 11, SMALL_BYTES_MAX, 0);
        pace.proposed(3, 11, LARGE, 500);
        assert!(!pace.is_clear(3, (10, 11), 600));
    }

    #[test]
    fn nothing_waits_for_a_commit_that_does_not_come() {
        let mut pace = Pace::default();
        pace.proposed(1, 11, LARGE, 0);
        assert!(!pace.is_clear(1, (10, 11), WAIT_US_MAX));
        assert!(pace.is_clear(1, (10, 11), WAIT_US_MAX + 1));
    }

    #[test]
    fn nothing_waits_for_long_for_what_was_put_into_the_log_by_raft_or_behind_another() {
        let mut pace = Pace::default();
        assert!(!pace.is_clear(2, (10, 11), 0), "the first entry of a term");
        assert!(!pace.is_clear(2, (10, 11), WAIT_US_MAX));
        assert!(pace.is_clear(2, (10, 11), WAIT_US_MAX + 1));
        let mut pace = Pace::default();
        pace.proposed(1, 11, SMALL_BYTES_MAX, 0);
        pace.proposed(1, 12, LARGE, 100);
        assert!(!pace.is_clear(1, (11, 12), 400));
        assert!(pace.is_clear(1, (11, 12), 400 + WAIT_US_MAX + 1));
    }

    #[test]
    fn nothing_waits_where_commits_are_slow_until_they_are_fast_again() {
        let mut pace = Pace::default();
        let commit = |pace: &mut Pace, index: u64, now_us: &mut u64, took_us: u64| {
            pace.proposed(1, index, LARGE, *now_us);
            *now_us += took_us;
            pace.is_clear(1, (index, index + 1), *now_us)
        };
        let mut now_us = 0;
        let slow = (1..9).map(|index| commit(&mut pace, index, &mut now_us, 30_000));
        assert!(slow.last().unwrap());
        assert!(commit(&mut pace, 20, &mut now_us, 300), "one says nothing yet");
        let fast = (21..40).map(|index| commit(&mut pace, index, &mut now_us, 300));
        assert!(!fast.last().unwrap());
    }

    #[test]
    fn a_commit_of_an_earlier_term_says_nothing() {
        let mut pace = Pace::default();
        pace.proposed(1, 11, LARGE, 0);
        assert!(pace.is_clear(5, (40, 40), 90_000_000));
        pace.proposed(5, 41, LARGE, 90_000_000);
        assert!(!pace.is_clear(5, (40, 41), 90_000_100));
    }
}
