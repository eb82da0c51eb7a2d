//! Who has left a lock lately, and when: by that, it is known since when its holder has it, and for how long one that
//! leaves waited and held.
//!
//! *Owns* the last few deletions of contenders by directory, and which contenders are the first there.
//! *Invariants*: bounded, also in directories and in work; says from when on nothing is missing, so that an operator
//! need not guess; each contender of a known layout that leaves is measured once at most, or counted as not measured.
//! *Never* replicated, never on disk, and nothing but what operators see depends on it.

use std::collections::{BTreeMap, VecDeque};

use crate::locks::contender::Contender;
use crate::locks::front::{Contending, Front, Stand};
use crate::locks::leases_of;
use crate::locks::snapshot::{Departure, End};
use crate::locks::species::Species;
use crate::proto::EventType;
use crate::tree::path::last_slash;
use crate::tree::{Event, Life, Tree};

/// Directories that are kept in mind.
const DIRECTORIES_MAX: usize = 10_000;
/// Departures from one directory that are kept in mind.
const DEPARTURES_MAX: usize = 64;
/// Departures that are kept in mind of all directories together: if there are more, each keeps its last few.
const TOTAL_MAX: usize = 120_000;
/// How many that is: by them, it is known since when a holder has its lock.
pub(in crate::replica) const LAST_FEW: usize = 8;
/// Children that may be looked at for each contender that leaves: what is not used is saved up. So to measure costs a
/// few microseconds at most for each, whatever the directories hold.
const LOOKS_EACH: usize = 64;
/// How many may be saved up, less than a millisecond's work: so of a directory with more children, nothing is measured.
const LOOKS_MAX: usize = 4096;

/// Why contenders end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum Cause {
    /// A session deleted them.
    Session(i64),
    /// Their session was closed, or was not heard from in time.
    End(End),
}

/// What was measured of contenders of locks that left in one transaction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::replica) struct Stays {
    /// Of each that held the lock: milliseconds until it got it, and from then on.
    pub(in crate::replica) measured: Vec<(u64, u64)>,
    /// Those of which it is not known whether or since when they held it.
    pub(in crate::replica) unmeasured: u64,
}

/// The departures.
#[derive(Debug)]
pub(in crate::replica) struct Departures {
    by_directory: BTreeMap<String, Known>,
    total: usize,
    /// Nothing is missing that was later than this, by the clocks of leaders, ms since the epoch.
    since_ms: i64,
    /// How many children may be looked at now.
    looks: usize,
}

/// The departures from one directory.
#[derive(Debug, Default)]
struct Known {
    /// Oldest first.
    last: VecDeque<Departure>,
    /// When the last one ended that is not kept.
    forgotten_ms: Option<i64>,
    /// The contenders that are the first, and the zxid of the directory's creation. Given up as soon as one leaves
    /// while nothing is measured.
    front: Option<(i64, Box<Front>)>,
}

/// A contender that is no more.
#[derive(Clone, Copy, Debug)]
struct Gone<'a> {
    directory: &'a str,
    name: &'a str,
    sequence: i32,
    life: Life,
}

impl<'a> Gone<'a> {
    fn of(event: &'a Event) -> Option<Self> {
        let life = event.life.filter(|_| event.kind == EventType::NodeDeleted)?;
        let (directory, name, sequence) = contender(event.path.as_str())?;
        Some(Self { directory, name, sequence, life })
    }
}

impl Departures {
    /// None since then.
    pub(in crate::replica) fn since(since_ms: i64) -> Self {
        Self { by_directory: BTreeMap::new(), total: 0, since_ms, looks: LOOKS_MAX }
    }

    /// Keeps in mind what these events of one transaction tell. `tree`, as it is behind them: only where contenders
    /// are to be measured.
    pub(in crate::replica) fn note(
        &mut self,
        events: &[Event],
        cause: Cause,
        time_ms: i64,
        tree: Option<&Tree>,
    ) -> Stays {
        let mut gone: Vec<Gone<'_>> = events.iter().filter_map(Gone::of).collect();
        self.note_gone(&mut gone, cause, time_ms, tree)
    }

    /// Keeps in mind a portion of a transaction. Of how many contenders it is not known whether they held the lock.
    pub(in crate::replica) fn note_portion(
        &mut self,
        events: &[Event],
        cause: Cause,
        time_ms: i64,
    ) -> u64 {
        let mut gone: Vec<Gone<'_>> = events.iter().filter_map(Gone::of).collect();
        self.note_gone(&mut gone, cause, time_ms, None);
        let contends = |gone: &&Gone<'_>| Contending::of(gone.name, gone.life.session).is_some();
        gone.iter().filter(contends).count() as u64
    }

    fn note_gone(
        &mut self,
        gone: &mut [Gone<'_>],
        cause: Cause,
        time_ms: i64,
        tree: Option<&Tree>,
    ) -> Stays {
        let mut stays = Stays::default();
        // Those of one directory together: they ended at once, so none of them got the lock from another one.
        gone.sort_by_key(|gone| gone.directory);
        for together in gone.chunk_by(|one, other| one.directory == other.directory) {
            let known = self.known(together[0].directory, time_ms);
            match tree {
                Some(tree) => self.measure(together, time_ms, tree, &mut stays),
                None => known.front = None,
            }
            let forgotten = together.len().saturating_sub(DEPARTURES_MAX);
            if forgotten > 0 {
                self.forget(together[0].directory, time_ms);
            }
            for gone in &together[forgotten..] {
                self.add(gone, cause, time_ms);
            }
        }
        stays
    }

    /// Finds out which of these, that were the last to leave their directory, held its lock, and for how long.
    fn measure(&mut self, gone: &[Gone<'_>], time_ms: i64, tree: &Tree, stays: &mut Stays) {
        self.looks = LOOKS_EACH.saturating_mul(gone.len()).saturating_add(self.looks);
        self.looks = self.looks.min(LOOKS_MAX);
        let contending = |gone: &Gone<'_>| {
            Some((Contending::of(gone.name, gone.life.session)?, gone.life.ctime_ms))
        };
        let leaving: Vec<(Contending, i64)> = gone.iter().filter_map(contending).collect();
        let directory = gone[0].directory;
        let is_lock = || leases_of(directory).all(|leases| tree.shown(&leases).is_none());
        if leaving.is_empty() || !is_lock() {
            return;
        }
        // The directory may have ended in the same transaction.
        let shown = tree.shown(directory);
        let (born, next, children) = shown.map_or((0, 0, 0), |shown| {
            let children = usize::try_from(shown.stat.num_children).unwrap_or(usize::MAX);
            (shown.stat.czxid, shown.next_child, children)
        });
        let knows = |front: &Front| {
            leaving.iter().all(|(one, _)| front.stand(one, false) != Stand::Unknown)
        };
        let since_ms = self.since_ms;
        let Some(known) = self.by_directory.get_mut(directory) else { return };
        let front = known.front.take().filter(|(of, front)| *of == born && knows(front));
        let is_fresh = front.is_none();
        let mut front = if let Some((_, front)) = front {
            front
        } else if children <= self.looks {
            self.looks -= children;
            let there = tree.children_unchecked(directory);
            let there = there.filter_map(|(name, session)| Contending::of(name, session));
            Box::new(Front::of(there.chain(leaving.iter().map(|(one, _)| *one)), next))
        } else {
            stays.unmeasured += leaving.len() as u64;
            return;
        };
        for (one, ctime_ms) in &leaving {
            if front.stand(one, is_fresh) != Stand::Holds {
                continue;
            }
            match known.held_since_ms(one, *ctime_ms, since_ms) {
                // Stamps may go back.
                Some(held_ms) => stays.measured.push((
                    u64::try_from(held_ms - ctime_ms).unwrap_or(0),
                    u64::try_from(time_ms - held_ms).unwrap_or(0),
                )),
                None => stays.unmeasured += 1,
            }
        }
        for (one, _) in &leaving {
            front.remove(one);
        }
        known.front = (!front.is_empty()).then_some((born, front));
    }

    /// What is known of that directory; of too many, all are forgotten.
    fn known(&mut self, directory: &str, time_ms: i64) -> &mut Known {
        if !self.by_directory.contains_key(directory) {
            if self.by_directory.len() >= DIRECTORIES_MAX {
                *self = Self { looks: self.looks, ..Self::since(time_ms) };
            }
            self.by_directory.insert(directory.to_owned(), Known::default());
        }
        self.by_directory.get_mut(directory).expect("it is there, or was put there")
    }

    /// So many have left that directory at once that only the last of these are kept.
    fn forget(&mut self, directory: &str, time_ms: i64) {
        let Some(known) = self.by_directory.get_mut(directory) else { return };
        self.total -= known.last.len();
        known.last.clear();
        known.forgotten_ms = Some(time_ms);
    }

    fn add(&mut self, gone: &Gone<'_>, cause: Cause, time_ms: i64) {
        let Gone { directory, name, sequence, life: Life { session, czxid, ctime_ms } } = *gone;
        let end = match cause {
            Cause::End(end) => end,
            Cause::Session(by) if by == session || session == 0 => End::Released,
            Cause::Session(_) => End::Removed,
        };
        if self.total >= TOTAL_MAX {
            self.keep_last_few();
        }
        let Some(known) = self.by_directory.get_mut(directory) else { return };
        let name = name.to_owned();
        known.last.push_back(Departure { name, sequence, session, czxid, ctime_ms, time_ms, end });
        self.total += 1;
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
    /// Since when a contender has held the lock that holds it, ms since the epoch; `None` if that is not known.
    /// `since_ms`: what left later than this is known.
    fn held_since_ms(&self, one: &Contending, ctime_ms: i64, since_ms: i64) -> Option<i64> {
        let is_in_front = |gone: &&Departure| {
            Contending::of(&gone.name, gone.session).is_some_and(|gone| one.waits_for(&gone))
        };
        if let Some(before) = self.last.iter().rev().find(is_in_front) {
            return Some(before.time_ms.max(ctime_ms));
        }
        (ctime_ms > self.forgotten_ms.unwrap_or(since_ms)).then_some(ctime_ms)
    }

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
        end(departures, path, Cause::Session(7), time_ms);
    }

    fn end(departures: &mut Departures, path: &str, cause: Cause, time_ms: i64) {
        let Some((directory, name, sequence)) = contender(path) else { return };
        let mut gone = [Gone { directory, name, sequence, life: LIFE }];
        departures.note_gone(&mut gone, cause, time_ms, None);
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
            end(&mut departures, "/p/lock-0000000001", cause, 9);
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
