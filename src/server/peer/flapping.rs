//! Links that end soon after they are made, again and again: how often they are tried and logged.
//!
//! *Owns* what is known of the last links to one server. *Invariants*: of links that follow each other and
//! none of which lasts for [`LINK_SETTLES`], the first is logged, and then none before one lasts; between
//! them the pause grows as it does between attempts that fail. *Never* counts: `lockkeeper_links_made`
//! and `lockkeeper_links_failed` do.

use std::time::Duration;

use crate::server::limits::{LINK_SETTLES, PEER_RETRY_MAX, PEER_RETRY_MIN};

/// See the module.
#[derive(Debug)]
pub(super) struct Flapping {
    /// Links since the last one that lasted.
    short: u32,
    pause: Duration,
}

impl Default for Flapping {
    fn default() -> Self {
        Self { short: 0, pause: PEER_RETRY_MIN }
    }
}

impl Flapping {
    /// An attempt has failed: how long to wait before the next one.
    pub(super) fn failed(&mut self) -> Duration {
        self.pause = (self.pause * 2).min(PEER_RETRY_MAX);
        self.pause
    }

    /// A link has ended that lasted so long: how long to wait before the next attempt, and whether another
    /// server that connects is a reason not to wait.
    pub(super) fn ended(&mut self, lasted: Duration) -> (Duration, bool) {
        if lasted < LINK_SETTLES {
            self.short += 1;
            return (self.failed(), false);
        }
        *self = Self::default();
        (self.pause, true)
    }

    /// Whether a link is to be logged when it is made, and at its end, however soon that comes.
    #[must_use]
    pub(super) fn is_worth_a_line(&self) -> bool {
        self.short == 0
    }

    /// How many links before this one ended soon.
    #[must_use]
    pub(super) fn short(&self) -> u32 {
        self.short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_links_that_end_at_once_the_first_is_logged_and_they_are_made_ever_more_rarely() {
        let mut flapping = Flapping::default();
        assert!(flapping.is_worth_a_line());
        let pauses: Vec<_> = (0..8).map(|_| flapping.ended(Duration::ZERO)).collect();
        assert!(!flapping.is_worth_a_line());
        assert_eq!(flapping.short(), 8);
        assert!(pauses.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[1].0 == PEER_RETRY_MAX));
        assert!(pauses.iter().all(|(_, is_nudged)| !is_nudged));
        assert_eq!(pauses[7].0, PEER_RETRY_MAX);
    }

    #[test]
    fn behind_a_link_that_lasted_everything_is_as_at_first() {
        let mut flapping = Flapping::default();
        flapping.ended(Duration::ZERO);
        assert_eq!(flapping.ended(LINK_SETTLES), (PEER_RETRY_MIN, true));
        assert!(flapping.is_worth_a_line());
    }
}
