//! Who is before us.
//!
//! *Owns* [`Place`]: what a listing of a lock's children means for one of them. *Invariant*: of those
//! before us only the nearest is named, because only its end can be our turn: each waiter watches one
//! znode, each release wakes one waiter.

use super::dialect::{Contender, Dialect, Style};

/// Our place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nobody that concerns us is before us.
    First,
    /// Waits for this one to go.
    Behind(String),
    /// We are not in the queue any more.
    Gone,
}

impl Place {
    /// The place of `own` among `children`, who waits for those that `concerns` is true of.
    pub(super) fn of(own: &str, children: &[String], concerns: impl Fn(Dialect) -> bool) -> Self {
        if !children.iter().any(|name| name == own) {
            return Self::Gone;
        }
        let Some(own) = Contender::parse(own) else { return Self::Gone };
        let before = children.iter().filter_map(|name| Contender::parse(name)).filter(|other| {
            other.order(&own).is_lt() && other.name != own.name && concerns(other.dialect)
        });
        match before.max_by(Contender::order) {
            Some(nearest) => Self::Behind(nearest.name.to_string()),
            None => Self::First,
        }
    }
}

/// Kinds of contenders among `children` that do not wait for those of `style`, each once.
pub(super) fn strangers(style: Style, children: &[String]) -> Vec<Dialect> {
    let dialects = children.iter().filter_map(|name| Contender::parse(name)).map(|c| c.dialect);
    let mut strangers: Vec<Dialect> = dialects.filter(|d| !style.is_respected_by(*d)).collect();
    strangers.sort_unstable();
    strangers.dedup();
    strangers
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn only_the_nearest_before_us_is_waited_for_whatever_dialect_it_speaks() {
        let kazoo = format!("{HEX}__lock__0000000003");
        let children = names(&["lock-0000000009", "x-12-0000000001", &kazoo, "lock-0000000005"]);
        assert_eq!(Place::of("lock-0000000005", &children, |_| true), Place::Behind(kazoo));
        assert_eq!(Place::of("x-12-0000000001", &children, |_| true), Place::First);
    }

    #[test]
    fn children_that_are_no_contenders_do_not_count() {
        let children = names(&["leases", "lock-0000000005", "0000000001"]);
        assert_eq!(Place::of("lock-0000000005", &children, |_| true), Place::First);
    }

    #[test]
    fn who_is_not_listed_is_gone() {
        let children = names(&["lock-0000000005"]);
        assert_eq!(Place::of("lock-0000000004", &children, |_| true), Place::Gone);
    }

    #[test]
    fn some_may_not_concern_us() {
        let children =
            names(&["_c_a-__WRIT__0000000001", "_c_b-__READ__0000000002", "lock-0000000003"]);
        let place = Place::of("lock-0000000003", &children, |d| d != Dialect::CuratorRead);
        assert_eq!(place, Place::Behind("_c_a-__WRIT__0000000001".into()));
    }

    #[test]
    fn strangers_are_those_that_would_not_wait_for_us() {
        let kazoo = format!("{HEX}__lock__0000000003");
        let children = names(&["lock-0000000001", &kazoo, &kazoo, "x-12-0000000001"]);
        let found = strangers(Style::Curator, &children);
        assert_eq!(found, [Dialect::Kazoo, Dialect::ZooKeeper]);
        assert_eq!(strangers(Style::Kazoo, &names(&[&kazoo])), []);
    }
}
