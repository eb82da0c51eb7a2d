//! Those contenders of one directory that come first: by them it is known whether one that leaves held the lock.
//!
//! *Owns* [`Contending`], a contender of a mutex or a read-write lock without its name, and [`Front`]: of each layout
//! of names the first few that are there. Contenders that come later are behind all of them, so they stay the first
//! until they have left. *Invariants*: what it says of who waits is what `respect.rs` says; where it does not know, it
//! says so. *Never* as large as a directory may be.

use std::collections::{BTreeMap, VecDeque};

use super::contender::compare;
use super::respect;
use super::species::Species;

/// How many of one layout are kept.
const FIRST_MAX: usize = 64;

/// A contender of a mutex or of a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contending {
    species: Species<'static>,
    waits_for_all: bool,
    sequence: i32,
    session: i64,
}

impl Contending {
    /// What a child of that name and session contends as; `None` for all that is no contender of a lock of a known
    /// layout: candidates of elections, leases of semaphores, and numbers whose meaning only their clients know.
    #[must_use]
    pub fn of(name: &str, session: i64) -> Option<Self> {
        let (species, sequence) = Species::of(name)?;
        let species = match species {
            Species::Lock(dialect) => Species::Lock(dialect),
            Species::DocRead => Species::DocRead,
            Species::DocWrite => Species::DocWrite,
            Species::Latch
            | Species::Candidate
            | Species::SessionCandidate
            | Species::Lease
            | Species::KazooLease
            | Species::Party
            | Species::Simple
            | Species::Named { .. } => return None,
        };
        let waits_for_all = respect::waits_for_all(name);
        Some(Self { species, waits_for_all, sequence: sequence?, session })
    }

    /// Whether it waits, or waited, for that one.
    #[must_use]
    pub fn waits_for(&self, other: &Self) -> bool {
        self.respects(other.species)
            && compare(other.sequence, self.sequence).is_lt()
            && !self.passes_by(other.species, other.session)
    }

    fn respects(&self, earlier: Species<'_>) -> bool {
        respect::waits(self.species, earlier)
            || self.waits_for_all && !respect::share(self.species, earlier)
    }

    /// A reader passes by the writer of its own session.
    fn passes_by(&self, earlier: Species<'_>, session: i64) -> bool {
        session == self.session && session != 0 && respect::is_way_down(self.species, earlier)
    }
}

/// Whether a contender holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// No contender is in front of it that it waits for.
    Holds,
    /// There is one.
    Waits,
    /// The directory has to be looked at again.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub struct Front {
    /// All contenders with lower numbers were there when the directory was looked at.
    next: i32,
    first: BTreeMap<Species<'static>, First>,
}

/// The first of one layout, in the order of their numbers.
#[derive(Debug)]
struct First {
    /// Number and session.
    places: VecDeque<(i32, i64)>,
    /// There were no more.
    is_all: bool,
}

impl Front {
    /// Of those that are there. `next`: the number of the next one.
    #[must_use]
    pub fn of(contenders: impl Iterator<Item = Contending>, next: i32) -> Self {
        let mut all: BTreeMap<_, Vec<(i32, i64)>> = BTreeMap::new();
        for Contending { species, sequence, session, .. } in contenders {
            all.entry(species).or_default().push((sequence, session));
        }
        let first = all.into_iter().map(|(species, mut places)| {
            // By their distance to the next number, which also orders them over the overflow of the counter.
            places.sort_unstable_by_key(|(sequence, _)| sequence.wrapping_sub(next));
            let is_all = places.len() <= FIRST_MAX;
            places.truncate(FIRST_MAX);
            (species, First { places: places.into(), is_all })
        });
        Self { next, first: first.collect() }
    }

    /// Whether that contender, which is there, holds the lock. `is_fresh`: the directory was looked at just now.
    #[must_use]
    pub fn stand(&self, one: &Contending, is_fresh: bool) -> Stand {
        let mut is_known = is_fresh || compare(one.sequence, self.next).is_lt();
        for (species, First { places, is_all }) in &self.first {
            if !one.respects(*species) {
                continue;
            }
            let mut in_front =
                places.iter().take_while(|(sequence, _)| compare(*sequence, one.sequence).is_lt());
            if in_front.any(|(_, session)| !one.passes_by(*species, *session)) {
                return Stand::Waits;
            }
            // Those that are not kept come behind the last that is.
            let is_behind_last =
                places.back().is_none_or(|(last, _)| compare(*last, one.sequence).is_lt());
            is_known &= *is_all || !is_behind_last;
        }
        if is_known { Stand::Holds } else { Stand::Unknown }
    }

    /// That one has left.
    pub fn remove(&mut self, one: &Contending) {
        let Some(First { places, .. }) = self.first.get_mut(&one.species) else { return };
        let at = places.iter().position(|place| *place == (one.sequence, one.session));
        if let Some(at) = at {
            places.remove(at);
        }
    }

    /// Whether it knows of none: it is worth no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.values().all(|first| first.places.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> Contending {
        Contending::of(name, 1).unwrap_or_else(|| panic!("{name}"))
    }

    fn name(what: &str, number: i32) -> String {
        format!("_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-{what}{number:010}")
    }

    #[test]
    fn the_first_of_a_mutex_holds_it_until_it_has_left() {
        let locks: Vec<_> = (1..=3).map(|number| one(&name("lock-", number))).collect();
        let mut front = Front::of(locks.iter().copied(), 4);
        let stands =
            |front: &Front| locks.iter().map(|l| front.stand(l, false)).collect::<Vec<_>>();
        assert_eq!(stands(&front), [Stand::Holds, Stand::Waits, Stand::Waits]);
        front.remove(&locks[0]);
        assert_eq!(stands(&front)[1..], [Stand::Holds, Stand::Waits]);
        front.remove(&locks[2]);
        front.remove(&locks[1]);
        assert!(front.is_empty());
        // One that came later may have another one in front.
        assert_eq!(front.stand(&one(&name("lock-", 4)), false), Stand::Unknown);
        assert_eq!(front.stand(&one(&name("lock-", 4)), true), Stand::Holds);
    }

    #[test]
    fn readers_wait_for_writers_alone_and_not_for_their_own() {
        let (reader, writer) = (one(&name("__READ__", 1)), one(&name("__WRIT__", 2)));
        let later = one(&name("__READ__", 3));
        let other = Contending { session: 2, ..later };
        let mut front = Front::of([reader, writer, later].into_iter(), 4);
        let stands = [reader, writer, later, other].map(|one| front.stand(&one, false));
        assert_eq!(stands, [Stand::Holds, Stand::Waits, Stand::Holds, Stand::Waits]);
        assert!(writer.waits_for(&reader) && other.waits_for(&writer));
        assert!(!later.waits_for(&writer) && !reader.waits_for(&writer));
        front.remove(&writer);
        assert_eq!(front.stand(&other, false), Stand::Holds);
    }

    #[test]
    fn of_many_the_first_are_kept_and_the_order_goes_on_over_the_overflow() {
        let count = 3 * FIRST_MAX as i32;
        let number = |at: i32| i32::MAX.wrapping_sub(9).wrapping_add(at);
        let locks = || (0..count).map(number).map(|number| one(&format!("lock-{number:010}")));
        let mut front = Front::of(locks(), number(count));
        for (at, lock) in locks().enumerate() {
            match front.stand(&lock, false) {
                Stand::Holds => {}
                Stand::Unknown if at % FIRST_MAX == 0 => {
                    front = Front::of(locks().skip(at), number(count));
                    assert_eq!(front.stand(&lock, true), Stand::Holds);
                }
                stand => panic!("{at}: {stand:?}"),
            }
            front.remove(&lock);
        }
        assert!(front.is_empty());
    }

    #[test]
    fn what_is_no_lock_of_a_known_layout_is_none() {
        for name in ["n_0000000001", "latch-0000000001", "task-0000000001", "lock", "meta"] {
            assert_eq!(Contending::of(name, 1), None, "{name}");
        }
    }
}
