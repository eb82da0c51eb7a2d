//! Who held a lock before: its contenders that have left, in the order in which they did.
//!
//! *Owns* [`stays`]. A contender that has left held the lock if, when it left, none of those was there that it had to
//! wait for; it got it when the last of them left, or when it came if there was none. *Invariants*: nothing is
//! made up: since when a contender held is not known if what left before it is not known; a contender that left
//! while it waited has held nothing.

use std::collections::BTreeSet;

use super::grouping::{Class, class_without_clients};
use super::respect;
use super::snapshot::{Departure, Directory, Znode};
use super::species::Species;

/// A contender that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay<'a> {
    /// What is known of it.
    pub departure: &'a Departure,
    /// The name of its lock, where several locks may share the directory.
    pub lock: Option<String>,
    /// Whether it held the lock, and since when.
    pub held: Held,
}

/// Whether a contender held its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It left while it waited.
    Never,
    /// It held it when it left. Since then, ms since the epoch; `None`: that is not known.
    Since(Option<i64>),
}

/// A contender, present or gone, as others see it.
#[derive(Clone, Copy)]
struct Rank<'a> {
    species: Species<'a>,
    class: Class<'a>,
    /// Less for one that is in front.
    place: i32,
}

impl<'a> Rank<'a> {
    fn of(name: &'a str, session: i64, next: i32) -> Option<Self> {
        let (species, sequence) = Species::of(name)?;
        let place = sequence.map_or(i32::MIN, |sequence| sequence.wrapping_sub(next));
        Some(Self { species, class: class_without_clients(species, session), place })
    }

    /// Whether it waits for that one.
    fn waits_for(&self, earlier: &Rank<'_>, name: &str, is_one_queue: bool) -> bool {
        let is_one = self.class == earlier.class
            || is_one_queue
                && matches!((self.class, earlier.class), (Class::Named(_), Class::Named(_)));
        let respects = respect::waits(self.species, earlier.species)
            || respect::waits_for_all(name) && !respect::share(self.species, earlier.species);
        is_one && earlier.place < self.place && respects
    }
}

/// The contenders that have left a directory, oldest first.
#[must_use]
pub fn stays(directory: &Directory) -> Vec<Stay<'_>> {
    let Directory { next, contenders, departures, known_since_ms, .. } = directory;
    let there: Vec<Rank<'_>> = contenders
        .iter()
        .filter_map(|Znode { name, session, .. }| Rank::of(name, *session, *next))
        .collect();
    let gone: Vec<Option<Rank<'_>>> =
        departures.iter().map(|one| Rank::of(&one.name, one.session, *next)).collect();
    // Names without a word of their own: of one queue if there is one name, or no two are alike.
    let stems: BTreeSet<&str> = gone.iter().flatten().chain(&there).filter_map(stem).collect();
    let is_one_queue = stems.len() == gone.iter().flatten().chain(&there).filter_map(stem).count();
    let stay = |(at, departure): (usize, &'_ Departure)| {
        let own = gone[at]?;
        let waits_for = |other: &Rank<'_>| own.waits_for(other, &departure.name, is_one_queue);
        let left_later = gone[at + 1..].iter().flatten();
        let held = if there.iter().chain(left_later).any(waits_for) {
            Held::Never
        } else {
            let before = departures[..at].iter().zip(&gone[..at]);
            let in_front = before
                .filter(|(_, rank)| rank.as_ref().is_some_and(waits_for))
                .map(|(one, _)| one.time_ms);
            Held::Since(match in_front.max() {
                Some(time_ms) => Some(time_ms.max(departure.ctime_ms)),
                None => (departure.ctime_ms > *known_since_ms).then_some(departure.ctime_ms),
            })
        };
        let name = stem(&own).filter(|_| !is_one_queue || stems.len() == 1);
        let name = name.map(|stem| stem.trim_end_matches('-')).filter(|stem| !stem.is_empty());
        Some((at, held, name.map(str::to_owned)))
    };
    let known: Vec<_> = departures.iter().enumerate().filter_map(stay).collect();
    known
        .into_iter()
        .map(|(at, held, lock)| Stay { departure: &departures[at], lock, held })
        .collect()
}

fn stem<'a>(rank: &Rank<'a>) -> Option<&'a str> {
    match rank.class {
        Class::Named(stem) => Some(stem),
        Class::Lock | Class::Semaphore | Class::Election | Class::Party => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::snapshot::{Child, End};

    /// Contenders that have left: name, session, created, ended.
    fn directory(gone: &[(&str, i64, i64, i64)], there: &[&str], known_since_ms: i64) -> Directory {
        let children = there.iter().map(|name| Child {
            name,
            data: None,
            session: 9,
            czxid: 9,
            ctime_ms: 9,
            version: 0,
        });
        let known = Directory::of("/p", 100, None, children, 99);
        let departures = gone.iter().map(|(name, session, ctime_ms, time_ms)| Departure {
            name: (*name).to_owned(),
            sequence: Species::of(name).unwrap().1.unwrap(),
            session: *session,
            czxid: 1,
            ctime_ms: *ctime_ms,
            time_ms: *time_ms,
            end: End::Released,
        });
        Directory {
            departures: departures.collect(),
            known_since_ms,
            ..known.unwrap_or_else(|| Directory::empty("/p", 100))
        }
    }

    fn held(directory: &Directory) -> Vec<Held> {
        stays(directory).iter().map(|stay| stay.held).collect()
    }

    #[test]
    fn each_has_held_it_since_the_one_in_front_left() {
        let gone = [
            ("lock-0000000001", 1, 10, 20),
            ("lock-0000000002", 2, 11, 30),
            ("lock-0000000003", 3, 40, 50),
        ];
        let since = [10, 20, 40].map(|since| Held::Since(Some(since)));
        assert_eq!(held(&directory(&gone, &["lock-0000000004"], 0)), since);
        // What left before 15 is not known: nothing of the first, which came before.
        let late = directory(&gone, &[], 15);
        assert_eq!(held(&late), [Held::Since(None), since[1], since[2]]);
    }

    #[test]
    fn one_that_left_while_it_waited_has_held_nothing() {
        let gone = [("lock-0000000002", 2, 11, 15), ("lock-0000000001", 1, 10, 20)];
        assert_eq!(held(&directory(&gone, &[], 0)), [Held::Never, Held::Since(Some(10))]);
        // The one in front is still there.
        let gone = [("lock-0000000002", 2, 11, 15)];
        assert_eq!(held(&directory(&gone, &["lock-0000000001"], 0)), [Held::Never]);
    }

    #[test]
    fn readers_hold_together() {
        let name = |what: &str, number: i32| {
            format!("_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-__{what}__{number:010}")
        };
        let names = [name("READ", 1), name("READ", 2), name("WRIT", 3)];
        let gone = [
            (names[1].as_str(), 2, 11, 12),
            (names[0].as_str(), 1, 10, 20),
            (names[2].as_str(), 3, 13, 30),
        ];
        let since = [11, 10, 20].map(|since| Held::Since(Some(since)));
        assert_eq!(held(&directory(&gone, &[], 0)), since);
    }

    #[test]
    fn locks_of_several_names_are_apart_and_names_of_contenders_are_not() {
        let gone = [
            ("a-0000000001", 1, 10, 40),
            ("b-0000000002", 2, 11, 20),
            ("a-0000000003", 3, 12, 50),
            ("b-0000000004", 3, 12, 60),
        ];
        let several = directory(&gone, &[], 0);
        let since = [10, 11, 40, 20].map(|since| Held::Since(Some(since)));
        assert_eq!(held(&several), since);
        let locks: Vec<_> = stays(&several).into_iter().map(|stay| stay.lock.unwrap()).collect();
        assert_eq!(locks, ["a", "b", "a", "b"]);
        let gone = [("7-0000000001", 7, 10, 20), ("8-0000000002", 8, 11, 30)];
        let one = directory(&gone, &[], 0);
        assert_eq!(held(&one), [10, 20].map(|since| Held::Since(Some(since))));
        let gone = [("anna-0000000001", 7, 10, 20), ("bert-0000000002", 8, 11, 30)];
        let one = directory(&gone, &[], 0);
        assert_eq!(held(&one), [10, 20].map(|since| Held::Since(Some(since))));
        assert_eq!(stays(&one)[0].lock, None);
    }
}
