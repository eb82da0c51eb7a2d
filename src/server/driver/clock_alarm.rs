//! Alarm for wall clocks that disagree.
//!
//! *Owns* which of them the log has named, and the sentences. *Invariants*: only a leader speaks, since only
//! it knows; it warns of a server's clock once, and again only after that was right; nothing follows from it but
//! the words. *Never* reads a clock: what is wrong is in the replica's status.

use std::collections::BTreeSet;

use crate::replica::Status;

/// Clocks that differ by this much are worth a warning, in milliseconds.
const SKEW_WARNED_MS: u64 = 2000;
/// And from here on they agree again.
const SKEW_OVER_MS: u64 = 1000;

/// What was said of the clocks of one ensemble.
#[derive(Debug, Default)]
pub(super) struct ClockAlarm {
    /// Servers whose clocks were warned of.
    skewed: BTreeSet<u8>,
    stood_still: bool,
    time_returns: u64,
}

impl ClockAlarm {
    /// Looks at what the replica knows, and says what is new.
    pub(super) fn look(&mut self, status: &Status) {
        for words in self.news(status) {
            tracing::warn!("{words}");
        }
    }

    fn news(&mut self, status: &Status) -> Vec<String> {
        let mut news = Vec::new();
        for peer in &status.peers {
            let Some(skew_ms) = peer.clock_skew_ms else {
                self.skewed.remove(&peer.server);
                continue;
            };
            let apart_ms = skew_ms.unsigned_abs();
            if apart_ms >= SKEW_WARNED_MS && self.skewed.insert(peer.server) {
                let way = if skew_ms > 0 { "ahead of" } else { "behind" };
                news.push(format!(
                    "the clock of server {} is {} {way} this leader's: set both right (NTP). ctime and \
                     mtime come from the leader's clock; sessions and times to live do not",
                    peer.server,
                    seconds(apart_ms),
                ));
            } else if apart_ms < SKEW_OVER_MS {
                self.skewed.remove(&peer.server);
            }
        }
        if status.time_stands_still && !self.stood_still {
            news.push(format!(
                "ctime and mtime are {} ahead of this leader's clock, and stay as they are: no majority of \
                 the servers has a clock that agrees with it. Set the clocks right (NTP)",
                seconds(status.stamps_ahead_ms),
            ));
        }
        self.stood_still = status.time_stands_still;
        if status.time_returns > self.time_returns && status.leading_ms.is_some() {
            news.push(format!(
                "ctime and mtime went back by {}: the clock of a leader had been wrong",
                seconds(status.time_returned_ms),
            ));
        }
        self.time_returns = status.time_returns;
        news
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::inspect::PeerStatus;

    fn skewed(skew_ms: Option<i64>) -> Status {
        let peer = PeerStatus { server: 3, clock_skew_ms: skew_ms, ..PeerStatus::default() };
        Status { peers: vec![peer], ..Status::default() }
    }

    #[test]
    fn a_clock_is_warned_of_once_and_again_only_after_it_was_right() {
        let mut alarm = ClockAlarm::default();
        assert_eq!(alarm.news(&skewed(Some(1999))), Vec::<String>::new());
        let words = alarm.news(&skewed(Some(-86_400_500)));
        assert!(words[0].starts_with("the clock of server 3 is 86400.5 s behind"), "{words:?}");
        for skew_ms in [-86_400_500, 2500, 1500] {
            assert_eq!(alarm.news(&skewed(Some(skew_ms))), Vec::<String>::new());
        }
        alarm.news(&skewed(Some(10)));
        assert_eq!(alarm.news(&skewed(Some(2500))).len(), 1);
    }

    #[test]
    fn time_that_stands_still_is_said_once_and_by_a_leader_how_far_it_went_back_in_the_end() {
        let mut alarm = ClockAlarm::default();
        let stuck =
            Status { time_stands_still: true, stamps_ahead_ms: 90_000, ..Status::default() };
        assert!(alarm.news(&stuck)[0].contains("90.0 s ahead"));
        assert_eq!(alarm.news(&stuck), Vec::<String>::new());
        let follows = Status { time_returns: 1, time_returned_ms: 89_900, ..Status::default() };
        let leads = Status { time_returns: 2, leading_ms: Some(1), ..follows.clone() };
        assert_eq!(alarm.news(&follows), Vec::<String>::new());
        let words = alarm.news(&leads);
        assert!(words[0].contains("went back by 89.9 s"), "{words:?}");
    }
}
