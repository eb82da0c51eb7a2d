//! Who has left a lock lately, and when: by that, it is known since when its holder has it.
//!
//! *Owns* the last few deletions of contenders by directory. *Invariants*: bounded, also in directories;
//! says from when on nothing is missing, so that an operator need not guess. *Never* replicated, never on disk, and
//! nothing but what operators see depends on it.

use std::collections::{BTreeMap, VecDeque};

use crate::locks::contender::Contender;
use crate::locks::snapshot::{Departure, End};
use crate::locks::species::Species;
use crate::proto::EventType;
use crate::tree::path::last_slash;
use crate::tree::{Event, Life};

/// Directories that are kept in mind.
const DIRECTORIES_MAX: usize = 10_000;
/// Departures from one directory that are kept in mind.
const DEPARTURES_MAX: usize = 64;
/// Departures that are kept in mind of all directories together: if there are more, each keeps its last few.
const TOTAL_MAX: usize = 120_000;
/// How many that is: by them, it is known since when a holder has its lock.
pub(in crate::replica) const LAST_FEW: usize = 8;

/// Why contenders end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum Cause {
    /// A session deleted them.
    Session(i64),
    /// Their session was closed, or was not heard from in time.
    End(End),
}

/// The departures.
#[derive(Debug)]
pub(in crate::replica) struct Departures {
    by_directory: BTreeMap<String, Known>,
    total: usize,
    /// Nothing is missing that was later than this, by the clocks of leaders, ms since the epoch.
    since_ms: i64,
}

/// The departures from one directory.
#[derive(Debug, Default)]
struct Known {
    /// Oldest first.
    last: VecDeque<Departure>,
    /// When the last one ended that is not kept.
    forgotten_ms: Option<i64>,
}

impl Departures {
    /// None since then.
    pub(in crate::replica) fn since(since_ms: i64) -> Self {
        Self { by_directory: BTreeMap::new(), total: 0, since_ms }
    }

    /// Keeps in mind what these events tell.
    pub(in crate::replica) fn note(&mut self, events: &[Event], cause: Cause, time_ms: i64) {
        for event in events.iter().filter(|event| event.kind == EventType::NodeDeleted) {
            if let Some(life) = event.life {
                self.deleted(event.path.as_str(), life, cause, time_ms);
            }
        }
    }

    fn deleted(&mut self, path: &str, life: Life, cause: Cause, time_ms: i64) {
        let Some((directory, name, sequence)) = contender(path) else { return };
        let Life { session, czxid, ctime_ms } = life;
        let end = match cause {
            Cause::End(end) => end,
            Cause::Session(by) if by == session || session == 0 => End::Released,
            Cause::Session(_) => End::Removed,
        };
        let name = name.to_owned();
        self.add(directory, Departure { name, sequence, session, czxid, ctime_ms, time_ms, end });
    }

    fn add(&mut self, directory: &str, departure: Departure) {
        if self.total >= TOTAL_MAX {
            self.keep_last_few();
        }
        if !self.by_directory.contains_key(directory) {
            if self.by_directory.len() >= DIRECTORIES_MAX {
                *self = Self::since(departure.time_ms);
            }
            self.by_directory.insert(directory.to_owned(), Known::default());
        }
        let Some(known) = self.by_directory.get_mut(directory) else { return };
        self.total += 1;
        known.last.push_back(departure);
        self.total -= known.shorten(DEPARTURES_MAX);
    }

    fn keep_last_few(&mut self) {
        for known in self.by_directory.values_mut() {
            self.total -= known.shorten(LAST_FEW);
        }
    }

    /// The last ones from a directory, at most so many, oldest first.
    pub(in crate::replica) fn of(&self, directory: &str, max: usize) -> Vec<Departure> {
        let Some(known) = self.by_directory.get(directory) else { return Vec::new() };
        let skipped = known.last.len().saturating_sub(max);
        known.last.iter().skip(skipped).cloned().collect()
    }

    /// From when on none of those is missing.
    pub(in crate::replica) fn known_since_ms(&self, directory: &str, max: usize) -> i64 {
        let Some(known) = self.by_directory.get(directory) else { return self.since_ms };
        let skipped = known.last.len().saturating_sub(max);
        let left_out = skipped.checked_sub(1).and_then(|at| known.last.get(at));
        left_out.map(|left_out| left_out.time_ms).or(known.forgotten_ms).unwrap_or(self.since_ms)
    }
}

impl Known {
    /// Forgets the oldest; how many.
    fn shorten(&mut self, max: usize) -> usize {
        let count = self.last.len().saturating_sub(max);
        for forgotten in self.last.drain(..count) {
            self.forgotten_ms = Some(forgotten.time_ms);
        }
        count
    }
}

/// The directory, the name and the number of a contender.
fn contender(path: &str) -> Option<(&str, &str, i32)> {
    if !path.ends_with(|last: char| last.is_ascii_digit()) {
        return None;
    }
    let slash = last_slash(path)?;
    let (directory, name) = (&path[..slash], &path[slash + 1..]);
    let sequence = match Contender::parse(name) {
        Some(contender) => contender.sequence,
        None => Species::of(name)?.1?,
    };
    Some((if directory.is_empty() { "/" } else { directory }, name, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { session: 7, czxid: 3, ctime_ms: 4 };

    fn deleted(departures: &mut Departures, path: &str, time_ms: i64) {
        departures.deleted(path, LIFE, Cause::Session(7), time_ms);
    }

    fn numbers(departures: &Departures, directory: &str, max: usize) -> Vec<(i32, i64)> {
        departures.of(directory, max).iter().map(|one| (one.sequence, one.time_ms)).collect()
    }

    #[test]
    fn the_last_departures_of_a_directory_are_known_and_from_when_on_they_are_all() {
        let mut departures = Departures::since(5);
        for path in ["/p/lock-0000000001", "/p/meta", "/p"] {
            deleted(&mut departures, path, 10);
        }
        deleted(&mut departures, "/lock-0000000007", 11);
        assert_eq!(numbers(&departures, "/p", 9), [(1, 10)]);
        assert_eq!(numbers(&departures, "/", 9), [(7, 11)]);
        assert_eq!(
            (departures.known_since_ms("/p", 9), departures.known_since_ms("/x", 9)),
            (5, 5)
        );
        for time_ms in 20..200 {
            deleted(&mut departures, "/p/lock-0000000002", time_ms);
        }
        for max in [LAST_FEW, DEPARTURES_MAX, usize::MAX] {
            let kept = max.min(DEPARTURES_MAX);
            assert_eq!(departures.of("/p", max).len(), kept);
            // The one before them is the last that is missing.
            assert_eq!(departures.known_since_ms("/p", max), 199 - kept as i64);
        }
    }

    #[test]
    fn how_a_contender_ended_is_known() {
        let mut departures = Departures::since(0);
        for cause in [
            Cause::Session(7),
            Cause::Session(8),
            Cause::End(End::SessionClosed),
            Cause::End(End::SessionExpired),
        ] {
            departures.deleted("/p/lock-0000000001", LIFE, cause, 9);
        }
        let known = departures.of("/p", 9);
        let ends: Vec<End> = known.iter().map(|one| one.end).collect();
        assert_eq!(ends, [End::Released, End::Removed, End::SessionClosed, End::SessionExpired]);
        let first = &known[0];
        assert_eq!((first.session, first.czxid, first.ctime_ms), (7, 3, 4));
        assert_eq!(first.name, "lock-0000000001");
    }

    #[test]
    fn too_many_directories_are_forgotten_together() {
        let mut departures = Departures::since(0);
        for directory in 0..=DIRECTORIES_MAX {
            deleted(&mut departures, &format!("/{directory}/lock-0000000001"), 9);
        }
        assert_eq!(departures.by_directory.len(), 1);
        assert_eq!((departures.total, departures.known_since_ms("/0", 9)), (1, 9));
    }

    #[test]
    fn of_too_many_departures_each_directory_keeps_its_last_few() {
        let mut departures = Departures::since(0);
        let directories = TOTAL_MAX / DEPARTURES_MAX + 1;
        for directory in 0..directories {
            for time_ms in 1..=100 {
                deleted(&mut departures, &format!("/{directory}/lock-0000000001"), time_ms);
            }
        }
        assert!(departures.total <= TOTAL_MAX);
        let counted: usize = departures.by_directory.values().map(|known| known.last.len()).sum();
        assert_eq!(departures.total, counted);
        assert_eq!(departures.of("/0", 99).len(), LAST_FEW);
        assert_eq!(departures.known_since_ms("/0", 99), 100 - LAST_FEW as i64);
    }
}
