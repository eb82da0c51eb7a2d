//! Who led the ensemble, and from when on, as one server has learned it.
//!
//! *Owns* [`Leaders`], a bounded list of changes. *Invariants*: times are those at which this server noticed,
//! by its own wall clock; nothing from before its start is in it. *Never* on disk.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// Changes that are kept in mind.
const CHANGES_MAX: usize = 256;

/// From then on another server led, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    /// When this server noticed, ms since the epoch.
    pub time_ms: i64,
    /// The term.
    pub term: u64,
    /// Who leads; `None`: no leader is known.
    pub leader: Option<u8>,
}

impl LeaderChange {
    /// The change as pages show it.
    pub(in crate::admin) fn json(&self) -> Value {
        json!({ "time_ms": self.time_ms, "term": self.term, "leader": self.leader })
    }
}

/// The changes.
#[derive(Clone, Debug, Default)]
pub struct Leaders(VecDeque<LeaderChange>);

impl Leaders {
    /// This is so now. Costs nothing unless it is new.
    pub fn note(&mut self, leader: Option<u8>, term: u64, now_ms: impl FnOnce() -> i64) {
        let is_new = match (self.0.back(), leader) {
            (None, leader) => leader.is_some(),
            // Terms of elections that come to nothing are no news.
            (Some(last), None) => last.leader.is_some(),
            (Some(last), Some(_)) => (last.leader, last.term) != (leader, term),
        };
        if !is_new {
            return;
        }
        if self.0.len() >= CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(LeaderChange { time_ms: now_ms(), term, leader });
    }

    /// All of them, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<LeaderChange> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_are_kept_and_only_so_many() {
        let mut leaders = Leaders::default();
        for (time_ms, leader, term) in [
            (1, None, 0),
            (2, Some(1), 1),
            (3, Some(1), 1),
            (4, None, 1),
            (5, None, 2),
            (6, Some(2), 3),
            (7, Some(2), 4),
        ] {
            leaders.note(leader, term, || time_ms);
        }
        let times: Vec<i64> = leaders.all().iter().map(|change| change.time_ms).collect();
        assert_eq!(times, [2, 4, 6, 7]);
        for term in 10..1000 {
            leaders.note(Some(1), term, || 9);
        }
        assert_eq!(leaders.all().len(), CHANGES_MAX);
    }
}
