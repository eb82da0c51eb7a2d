//! As what one enters a queue: what one's znode is and how it is named, whom one waits for, and who
//! waits for one.
//!
//! *Owns* [`Role`]. *Invariant*: for every two roles that exclude each other, whichever came later
//! waits for the other, whatever styles the two are of. *Never* asks a server anything.

use zookeeper_client::CreateMode;

use super::dialect::{Contender, Dialect, Guid, SharedStyle, Style, is_of_this_library, marked};
use crate::locks::species::{LATCH, LEASE};

/// As what one enters a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Alone.
    Exclusive(Style),
    /// Together with other readers.
    Read(SharedStyle),
    /// Alone, among readers.
    Write(SharedStyle),
    /// One of a limited number.
    Lease,
    /// A candidate for an office.
    Latch,
    /// Alone among those of the same marker: a name, and a hyphen.
    Named(String),
    /// Alone, in Curator's style, but awake at every change (`herd.rs`).
    Crowd,
    /// Alone, because there is one name for all (`herd.rs`).
    Only,
    /// One of those who meet (`barrier.rs`).
    Member,
}

impl Role {
    /// What our znode is.
    pub(super) fn mode(&self) -> CreateMode {
        match self {
            Self::Exclusive(_)
            | Self::Read(_)
            | Self::Write(_)
            | Self::Lease
            | Self::Latch
            | Self::Named(_)
            | Self::Crowd => CreateMode::EphemeralSequential,
            Self::Only | Self::Member => CreateMode::Ephemeral,
        }
    }

    /// The start of the name of our znode, to which the server appends the number if it is
    /// sequential.
    pub(super) fn prefix(&self, guid: &Guid, session: i64) -> String {
        match self {
            Self::Exclusive(style) => style.prefix(guid, session),
            Self::Write(SharedStyle::Kazoo) => Style::Kazoo.prefix(guid, session),
            Self::Read(SharedStyle::Kazoo) => format!("{}__rlock__", guid.hex()),
            Self::Read(SharedStyle::Curator) => format!("_c_{}-__READ__", guid.hyphenated()),
            Self::Write(SharedStyle::Curator) => format!("_c_{}-__WRIT__", guid.hyphenated()),
            Self::Lease => format!("_c_{}-{LEASE}", guid.hyphenated()),
            Self::Latch => format!("_c_{}-{LATCH}", guid.hyphenated()),
            Self::Named(marker) => format!("_c_{}-{marker}", guid.hyphenated()),
            Self::Crowd => Style::Curator.prefix(guid, session),
            Self::Only => ONLY.to_string(),
            Self::Member => guid.hyphenated(),
        }
    }

    /// Whether the name alone tells one contender of a session from another.
    pub(super) fn names_are_unique(&self) -> bool {
        match self {
            Self::Exclusive(style) => style.names_are_unique(),
            Self::Only => false,
            Self::Read(_)
            | Self::Write(_)
            | Self::Lease
            | Self::Latch
            | Self::Named(_)
            | Self::Crowd
            | Self::Member => true,
        }
    }

    /// What missing parents become. Containers are removed by the server when they are empty.
    pub(super) fn parents(&self) -> CreateMode {
        match self {
            Self::Exclusive(Style::Kazoo | Style::Plain | Style::ZooKeeper)
            | Self::Read(SharedStyle::Kazoo)
            | Self::Write(SharedStyle::Kazoo) => CreateMode::Persistent,
            Self::Exclusive(Style::Curator)
            | Self::Read(SharedStyle::Curator)
            | Self::Write(SharedStyle::Curator)
            | Self::Lease
            | Self::Latch
            | Self::Named(_)
            | Self::Crowd
            | Self::Only
            | Self::Member => CreateMode::Container,
        }
    }

    /// The number of a child that we wait for if it came before us.
    pub(super) fn rival(&self, name: &str) -> Option<i32> {
        match self {
            Self::Exclusive(_) | Self::Write(_) | Self::Crowd => {
                Contender::parse(name).map(|c| c.sequence)
            }
            Self::Read(_) => {
                let contender = Contender::parse(name)?;
                (!contender.dialect.is_shared()).then_some(contender.sequence)
            }
            Self::Lease => marked(name, LEASE),
            Self::Latch => marked(name, LATCH),
            Self::Named(marker) => marked(name, marker),
            // They have no queue.
            Self::Only | Self::Member => None,
        }
    }

    /// Whether we want to be woken by every change, and not by the end of the nearest before us only.
    pub(super) fn wakes_at_everything(&self) -> bool {
        match self {
            Self::Crowd => true,
            Self::Exclusive(_)
            | Self::Read(_)
            | Self::Write(_)
            | Self::Lease
            | Self::Latch
            | Self::Named(_)
            | Self::Only
            | Self::Member => false,
        }
    }

    /// Kinds of contenders among `children` that do not wait for us although they should, each once.
    pub(super) fn strangers(&self, children: &[String]) -> Vec<Dialect> {
        let contenders = children.iter().filter_map(|name| Contender::parse(name));
        let strangers = contenders.filter(|contender| !is_of_this_library(contender));
        let strangers = strangers.map(|contender| contender.dialect);
        let mut strangers: Vec<_> = strangers.filter(|d| !self.is_respected_by(*d)).collect();
        strangers.sort_unstable();
        strangers.dedup();
        strangers
    }

    /// Whether a contender of that dialect waits for us if we came before it, or need not.
    fn is_respected_by(&self, dialect: Dialect) -> bool {
        let Some(ours) = self.dialect() else { return true };
        let share = ours.is_shared() && dialect.is_shared();
        // kazoo's WriteLock waits for readers, its Lock does not, and their names are the same.
        let may_not_wait = ours == Dialect::KazooRead && dialect == Dialect::Kazoo;
        share || dialect.waits_for(ours) && !may_not_wait
    }

    /// Whose contenders ours look like; `None` if nothing but what excludes us looks at our queue:
    /// only semaphores have leases, the holder of a lock is not elected, other names are other
    /// locks, and some have no queue.
    fn dialect(&self) -> Option<Dialect> {
        match self {
            Self::Exclusive(style) => Some(style.dialect()),
            Self::Crowd => Some(Style::Curator.dialect()),
            Self::Write(SharedStyle::Kazoo) => Some(Style::Kazoo.dialect()),
            Self::Read(SharedStyle::Kazoo) => Some(Dialect::KazooRead),
            Self::Read(SharedStyle::Curator) => Some(Dialect::CuratorRead),
            Self::Write(SharedStyle::Curator) => Some(Dialect::CuratorWrite),
            Self::Lease | Self::Latch | Self::Named(_) | Self::Only | Self::Member => None,
        }
    }
}

/// The name of all who would be the only one.
const ONLY: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55";

    fn roles() -> Vec<Role> {
        let styles = [Style::Curator, Style::Kazoo, Style::Plain, Style::ZooKeeper];
        let shared = [SharedStyle::Curator, SharedStyle::Kazoo];
        let mut roles: Vec<_> = styles.into_iter().map(Role::Exclusive).collect();
        roles.extend(shared.into_iter().flat_map(|style| [Role::Read(style), Role::Write(style)]));
        roles
    }

    #[test]
    fn all_locks_exclude_each_other_except_readers_whatever_their_styles() {
        let guid = Guid::random().unwrap();
        for ours in roles() {
            for theirs in roles() {
                let name = theirs.prefix(&guid, 5) + "0000000004";
                let are_readers = matches!((&ours, &theirs), (Role::Read(_), Role::Read(_)));
                let waits = ours.rival(&name) == Some(4);
                assert_eq!(waits, !are_readers, "{ours:?} {theirs:?}");
            }
            for apart in [Role::Lease, Role::Latch] {
                let name = apart.prefix(&guid, 5) + "0000000004";
                assert_eq!(ours.rival(&name), None, "{ours:?} {apart:?}");
                assert_eq!(apart.rival(&name), Some(4));
            }
        }
        let lease = Role::Lease.prefix(&guid, 5) + "0000000004";
        assert_eq!(Role::Latch.rival(&lease), None);
    }

    #[test]
    fn a_marker_comes_behind_a_whole_guid_or_nothing() {
        let uuid = "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55";
        for front in ["".to_string(), format!("_c_{uuid}-"), format!("_c_{HEX}-")] {
            let name = format!("{front}latch-0000000004");
            assert_eq!(Role::Latch.rival(&name), Some(4), "{name}");
        }
        for front in [
            "a-".to_string(),
            format!("_c_{uuid}"),
            format!("_c_{uuid}-a-"),
            format!("_c_{HEX}-abc-"),
            format!("_c_{HEX}abcd-"),
            format!("_c_{}-", &uuid[1..]),
        ] {
            let name = format!("{front}latch-0000000004");
            assert_eq!(Role::Latch.rival(&name), None, "{name}");
        }
    }

    #[test]
    fn contenders_of_this_library_are_no_strangers_to_each_other_if_their_names_can_tell() {
        let guid = Guid::random().unwrap();
        for ours in roles() {
            for theirs in roles().into_iter().filter(Role::names_are_unique) {
                let name = theirs.prefix(&guid, 5) + "0000000004";
                assert_eq!(ours.strangers(&[name]), [], "{ours:?} {theirs:?}");
            }
        }
    }

    #[test]
    fn strangers_are_those_that_would_not_wait_for_us() {
        let kazoo = format!("{HEX}__lock__0000000003");
        let children = ["lock-0000000001", &kazoo, &kazoo, "x-12-0000000001"].map(String::from);
        let found = Role::Exclusive(Style::Curator).strangers(&children);
        assert_eq!(found, [Dialect::Kazoo, Dialect::Plain]);
        let found = Role::Exclusive(Style::Kazoo).strangers(&children);
        assert_eq!(found, [Dialect::Plain, Dialect::ZooKeeper]);
    }
}
