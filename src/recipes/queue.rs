//! Who is before us.
//!
//! *Owns* [`Place`]: what a listing of a lock's children means for one of them. *Invariant*: of those
//! before us only the nearest is named, because only its end can be our turn: each waiter watches one
//! znode, each release wakes one waiter.

use super::dialect::compare;

/// Our place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No contender that this one waits for is in front.
    First,
    /// Waits for this one to go.
    Behind(String),
    /// We are not in the queue any more.
    Gone,
}

impl Place {
    /// The place of `own`, which has this number, among `children`, of whom it waits for those that
    /// `rival` knows the number of.
    pub(super) fn of(
        own: &str,
        sequence: i32,
        children: &[String],
        rival: impl Fn(&str) -> Option<i32>,
    ) -> Self {
        if !children.iter().any(|name| name == own) {
            return Self::Gone;
        }
        let rivals = children.iter().filter_map(|name| Some((name, rival(name)?)));
        let before = rivals
            .filter(|(name, number)| compare(*number, sequence).is_lt() && name.as_str() != own);
        match before.max_by(|one, other| compare(one.1, other.1)) {
            Some((nearest, _)) => Self::Behind(nearest.clone()),
            None => Self::First,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::{SharedStyle, Style};
    use super::super::role::Role;
    use super::*;

    const HEX: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn exclusive(own: &str, sequence: i32, children: &[String]) -> Place {
        Place::of(own, sequence, children, |name| Role::Exclusive(Style::Plain).rival(name))
    }

    #[test]
    fn only_the_nearest_before_us_is_waited_for_whatever_dialect_it_speaks() {
        let kazoo = format!("{HEX}__lock__0000000003");
        let children = names(&["lock-0000000009", "x-12-0000000001", &kazoo, "lock-0000000005"]);
        assert_eq!(exclusive("lock-0000000005", 5, &children), Place::Behind(kazoo));
        assert_eq!(exclusive("x-12-0000000001", 1, &children), Place::First);
    }

    #[test]
    fn children_that_are_no_contenders_do_not_count() {
        let children = names(&["leases", "lock-0000000005", "0000000001"]);
        assert_eq!(exclusive("lock-0000000005", 5, &children), Place::First);
    }

    #[test]
    fn who_is_not_listed_is_gone() {
        let children = names(&["lock-0000000005"]);
        assert_eq!(exclusive("lock-0000000004", 4, &children), Place::Gone);
    }

    #[test]
    fn a_reader_waits_for_the_nearest_before_it_that_is_none() {
        let reader = "_c_c-__READ__0000000004";
        let children = names(&[
            "_c_a-__WRIT__0000000001",
            "_c_b-__WRIT__0000000002",
            "_c_b-__READ__0000000003",
            reader,
        ]);
        let rival = |name: &str| Role::Read(SharedStyle::Curator).rival(name);
        let place = Place::of(reader, 4, &children, rival);
        assert_eq!(place, Place::Behind("_c_b-__WRIT__0000000002".into()));
        let place = Place::of(reader, 4, &children[2..], rival);
        assert_eq!(place, Place::First);
    }
}
