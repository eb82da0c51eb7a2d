//! What a znode may be to a lock, as its name tells.
//!
//! *Owns* [`Species`]: more than the contenders of a mutex, which are all that `recipes` compare. *Never*
//! looks at anything but the name.
//!
//! The layouts are those of Curator's, kazoo's and ZooKeeper's recipes.

use super::contender::{Contender, Dialect, HEX_DIGITS, is_hex, is_protection, marked, split};

/// In the name of a lease of a semaphore.
pub const LEASE: &str = "lease-";
/// In the name of a candidate.
pub const LATCH: &str = "latch-";

/// What a child of a lock's directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Species<'a> {
    /// A contender of a mutex or of a read-write lock.
    Lock(Dialect),
    /// `read-N`, of a shared lock as ZooKeeper's documentation has it.
    DocRead,
    /// `write-N`, the same.
    DocWrite,
    /// Curator's `LeaderLatch`.
    Latch,
    /// `n_N`: ZooKeeper's `LeaderElectionSupport`.
    Candidate,
    /// `<session>-<node>-n_N`, the session in decimal digits: Solr's elections.
    SessionCandidate,
    /// Of a semaphore in Curator's layout.
    Lease,
    /// Of kazoo's semaphore: 32 hex digits. Others call their znodes alike.
    KazooLease,
    /// Of kazoo's `Party`: not a lock, but looked for in the same place.
    Party,
    /// One ephemeral znode `lock` that everybody tries to create.
    Simple,
    /// Anything else with a number of the directory's counter, by what is in front of that. Several
    /// locks may share a directory so. `is_protected`: with Curator's GUID in front.
    Named {
        /// Between the GUID and the number.
        stem: &'a str,
        /// Whether there is a GUID.
        is_protected: bool,
    },
}

impl<'a> Species<'a> {
    /// What a child of this name is, and its number if it has one; `None` for a child that can be
    /// nothing of a lock.
    #[must_use]
    pub fn of(name: &'a str) -> Option<(Self, Option<i32>)> {
        if let Some(contender) = Contender::parse(name) {
            return Some((Self::Lock(contender.dialect), Some(contender.sequence)));
        }
        for (marker, species) in [(LATCH, Self::Latch), (LEASE, Self::Lease)] {
            if let Some(number) = marked(name, marker) {
                return Some((species, Some(number)));
            }
        }
        match name {
            "lock" => return Some((Self::Simple, None)),
            _ if is_hex(name) => return Some((Self::KazooLease, None)),
            _ if name.strip_suffix("__party__").is_some_and(is_hex) => {
                return Some((Self::Party, None));
            }
            _ => {}
        }
        for (ending, species) in [("read-", Self::DocRead), ("write-", Self::DocWrite)] {
            if let Some((stem, number)) = split(name, |stem| stem.ends_with(ending))
                && is_of_documentation(stem.strip_suffix(ending)?)
            {
                return Some((species, Some(number)));
            }
        }
        let (stem, number) = split(name, |stem| !stem.ends_with(|c: char| c.is_ascii_digit()))?;
        let species = match unprotected(stem) {
            Some(stem) => Self::Named { stem, is_protected: true },
            None if stem == "n_" => Self::Candidate,
            None if stem.strip_suffix("-n_").is_some_and(begins_with_session) => {
                Self::SessionCandidate
            }
            None => Self::Named { stem, is_protected: false },
        };
        Some((species, Some(number)))
    }

    /// Whether those of that kind share the lock with each other.
    #[must_use]
    pub fn is_shared(self) -> bool {
        match self {
            Self::Lock(dialect) => dialect.is_shared(),
            Self::DocRead | Self::Lease | Self::KazooLease | Self::Party => true,
            Self::DocWrite
            | Self::Latch
            | Self::Candidate
            | Self::SessionCandidate
            | Self::Simple
            | Self::Named { .. } => false,
        }
    }

    /// Whose layout it is, in one word, for programs.
    #[must_use]
    pub fn dialect(self) -> &'static str {
        match self {
            Self::Lock(dialect) => match dialect {
                Dialect::Curator | Dialect::CuratorWrite | Dialect::CuratorRead => "curator",
                Dialect::Go => "go",
                Dialect::Kazoo | Dialect::KazooRead | Dialect::KazooAsCurator => "kazoo",
                Dialect::Plain => "plain",
                Dialect::ZooKeeper => "zk-recipe",
            },
            Self::DocRead | Self::DocWrite => "zk-doc",
            Self::Latch | Self::Lease => "curator",
            Self::Candidate => "zk-election",
            Self::SessionCandidate => "solr",
            Self::KazooLease | Self::Party => "kazoo",
            Self::Simple => "simple",
            Self::Named { is_protected: true, .. } => "curator",
            Self::Named { is_protected: false, .. } => "sequence",
        }
    }
}

/// What is in front of a shared lock's word there: nothing, or a GUID and a hyphen.
fn is_of_documentation(front: &str) -> bool {
    let guid = front.strip_suffix('-').unwrap_or(front);
    let guid = guid.strip_prefix("_c_").unwrap_or(guid);
    guid.len() <= GUID_CHARS_MAX && guid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Whether it is a session's id in decimal digits, a hyphen and a node's name.
fn begins_with_session(front: &str) -> bool {
    let digits = front.strip_prefix('-').unwrap_or(front);
    digits.split_once('-').is_some_and(|(session, node)| {
        (SESSION_DIGITS_MIN..=SESSION_DIGITS_MAX).contains(&session.len())
            && session.bytes().all(|b| b.is_ascii_digit())
            && !node.is_empty()
    })
}

/// What is behind Curator's GUID; `None` without one.
fn unprotected(stem: &str) -> Option<&str> {
    let ends = [GUID_CHARS_MAX, HEX_DIGITS].map(|guid| "_c_".len() + guid + "-".len());
    let end = ends.into_iter().find(|end| stem.get(..*end).is_some_and(is_protection))?;
    stem.get(end..)
}

/// Digits of a session's id: those of a server with the number 0 begin with a time of 40 bits.
const SESSION_DIGITS_MIN: usize = 10;
/// Of the largest number of 64 bits.
const SESSION_DIGITS_MAX: usize = 19;
/// Of a GUID with hyphens.
const GUID_CHARS_MAX: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55";
    const HEX: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55";

    #[test]
    fn each_layout_is_known_by_its_names() {
        let named = |stem, is_protected| Species::Named { stem, is_protected };
        for (name, species, number) in [
            (format!("_c_{UUID}-lock-0000000007"), Species::Lock(Dialect::Curator), Some(7)),
            (format!("{HEX}__rlock__0000000007"), Species::Lock(Dialect::KazooRead), Some(7)),
            (format!("_c_{UUID}-latch-0000000007"), Species::Latch, Some(7)),
            (format!("_c_{UUID}-lease-0000000007"), Species::Lease, Some(7)),
            ("n_0000000003".to_string(), Species::Candidate, Some(3)),
            (format!("{UUID}-read-0000000003"), Species::DocRead, Some(3)),
            ("write-0000000003".to_string(), Species::DocWrite, Some(3)),
            (HEX.to_string(), Species::KazooLease, None),
            (format!("{HEX}__party__"), Species::Party, None),
            ("lock".to_string(), Species::Simple, None),
            (format!("_c_{UUID}-orders-0000000003"), named("orders-", true), Some(3)),
            (format!("_c_{HEX}-orders-0000000003"), named("orders-", true), Some(3)),
            (
                "72057594037927936-10.0.0.7:8983_solr-n_0000000004".to_string(),
                Species::SessionCandidate,
                Some(4),
            ),
            (
                "-72057594037927936-core_node3-n_0000000004".into(),
                Species::SessionCandidate,
                Some(4),
            ),
            ("7-n_0000000004".to_string(), named("7-n_", false), Some(4)),
            ("candidate-0000000003".to_string(), named("candidate-", false), Some(3)),
            ("0000000003".to_string(), named("", false), Some(3)),
        ] {
            assert_eq!(Species::of(&name), Some((species, number)), "{name}");
        }
    }

    #[test]
    fn other_children_are_nothing() {
        for name in ["", "leases", "lock-1", "10.0.0.1:2181", "t-1700000000000", "\u{fc}000000001"]
        {
            assert_eq!(Species::of(name), None, "{name}");
        }
    }
}
