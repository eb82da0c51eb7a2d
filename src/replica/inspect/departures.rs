//! Who has left a lock lately, and when: by that, it is known since when its holder has it.
//!
//! *Owns* the last few deletions of contenders by directory. *Invariants*: bounded, also in directories;
//! says from when on nothing is missing, so that an operator need not guess. *Never* replicated, never on disk, and
//! nothing but what operators see depends on it.

use std::collections::{BTreeMap, VecDeque};

use crate::locks::contender::Contender;
use crate::locks::snapshot::Departure;
use crate::locks::species::Species;
use crate::proto::EventType;
use crate::tree::Event;
use crate::tree::path::last_slash;

/// Directories that are kept in mind.
const DIRECTORIES_MAX: usize = 10_000;
/// Departures from one directory that are kept in mind.
const DEPARTURES_MAX: usize = 8;

/// The departures.
#[derive(Debug)]
pub(in crate::replica) struct Departures {
    by_directory: BTreeMap<String, VecDeque<Departure>>,
    /// Nothing is missing that was later than this, by the clocks of leaders, ms since the epoch.
    since_ms: i64,
}

impl Departures {
    /// None since then.
    pub(in crate::replica) fn since(since_ms: i64) -> Self {
        Self { by_directory: BTreeMap::new(), since_ms }
    }

    /// Keeps in mind what these events tell.
    pub(in crate::replica) fn note(&mut self, events: &[Event], time_ms: i64) {
        for event in events.iter().filter(|event| event.kind == EventType::NodeDeleted) {
            self.deleted(event.path.as_str(), time_ms);
        }
    }

    fn deleted(&mut self, path: &str, time_ms: i64) {
        if let Some((directory, sequence)) = contender(path) {
            self.add(directory, Departure { sequence, time_ms });
        }
    }

    fn add(&mut self, directory: &str, departure: Departure) {
        let Some(known) = self.by_directory.get_mut(directory) else {
            if self.by_directory.len() >= DIRECTORIES_MAX {
                *self = Self::since(departure.time_ms);
            }
            self.by_directory.insert(directory.to_owned(), VecDeque::from([departure]));
            return;
        };
        if known.len() >= DEPARTURES_MAX {
            known.pop_front();
        }
        known.push_back(departure);
    }

    /// The last ones from a directory, oldest first.
    pub(in crate::replica) fn of(&self, directory: &str) -> Vec<Departure> {
        self.by_directory.get(directory).into_iter().flatten().copied().collect()
    }

    /// From when on none is missing; for a directory from which there were many, from the oldest of
    /// those on that are kept.
    pub(in crate::replica) fn known_since_ms(&self, directory: &str) -> i64 {
        let known = self.by_directory.get(directory);
        let is_full = known.filter(|known| known.len() >= DEPARTURES_MAX);
        is_full.and_then(VecDeque::front).map_or(self.since_ms, |oldest| oldest.time_ms)
    }
}

/// The directory and the number of a contender.
fn contender(path: &str) -> Option<(&str, i32)> {
    if !path.ends_with(|last: char| last.is_ascii_digit()) {
        return None;
    }
    let slash = last_slash(path)?;
    let (directory, name) = (&path[..slash], &path[slash + 1..]);
    let sequence = match Contender::parse(name) {
        Some(contender) => contender.sequence,
        None => Species::of(name)?.1?,
    };
    Some((if directory.is_empty() { "/" } else { directory }, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_departures_of_a_directory_are_known_and_from_when_on_they_are_all() {
        let mut departures = Departures::since(5);
        for path in ["/p/lock-0000000001", "/p/meta", "/p"] {
            departures.deleted(path, 10);
        }
        departures.deleted("/lock-0000000007", 11);
        assert_eq!(departures.of("/p"), [Departure { sequence: 1, time_ms: 10 }]);
        assert_eq!(departures.of("/"), [Departure { sequence: 7, time_ms: 11 }]);
        assert_eq!((departures.known_since_ms("/p"), departures.known_since_ms("/x")), (5, 5));
        for time_ms in 20..40 {
            departures.deleted("/p/lock-0000000002", time_ms);
        }
        assert_eq!(departures.of("/p").len(), DEPARTURES_MAX);
        assert_eq!(departures.known_since_ms("/p"), 40 - DEPARTURES_MAX as i64);
    }

    #[test]
    fn too_many_directories_are_forgotten_together() {
        let mut departures = Departures::since(0);
        for directory in 0..=DIRECTORIES_MAX {
            departures.deleted(&format!("/{directory}/lock-0000000001"), 9);
        }
        assert_eq!(departures.by_directory.len(), 1);
        assert_eq!(departures.known_since_ms("/0"), 9);
    }
}
