//! Who a znode belongs to, and the two indexes that follow from it.
//!
//! *Owns* the 64-bit encoding of ephemeral owners, containers and times to live, the set of
//! ephemerals of each session, and the set of znodes that the reaper has to look at.
//! *Invariant*: the encoding alone decides the kind. Unlike ZooKeeper, whether extended types are
//! enabled only decides what may be *created*: a server whose configuration changed must not take
//! a TTL znode for an ephemeral of a session that never was.
//! Reproduces `EphemeralType`.

use std::collections::BTreeSet;

use super::slab::ZnodeId;

/// Greatest time to live in milliseconds: 40 bits, about 34 years.
pub(crate) const TTL_MS_MAX: i64 = 0xff_ffff_ffff;

const CONTAINER: i64 = i64::MIN;
const TTL_MARK: u64 = 0xff00_0000_0000_0000;
const TTL_MARK_MASK: u64 = 0xffff_ff00_0000_0000;

/// What decides when a znode goes away by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Never: a persistent znode.
    Persistent,
    /// After its last child.
    Container,
    /// This many milliseconds after its last change, unless it has children.
    Ttl(i64),
    /// With this session: an ephemeral.
    Session(i64),
}

impl Owner {
    /// Reads ZooKeeper's encoding.
    #[must_use]
    pub fn from_encoded(encoded: i64) -> Self {
        match encoded {
            0 => Self::Persistent,
            CONTAINER => Self::Container,
            _ if encoded.cast_unsigned() & TTL_MARK_MASK == TTL_MARK => {
                Self::Ttl(encoded & TTL_MS_MAX)
            }
            _ => Self::Session(encoded),
        }
    }

    /// ZooKeeper's encoding.
    #[must_use]
    pub fn encoded(self) -> i64 {
        match self {
            Self::Persistent => 0,
            Self::Container => CONTAINER,
            Self::Ttl(ttl_ms) => TTL_MARK.cast_signed() | ttl_ms,
            Self::Session(session) => session,
        }
    }

    /// The `ephemeralOwner` that clients see: 0 unless it is a session.
    #[must_use]
    pub fn session(self) -> i64 {
        match self {
            Self::Session(session) => session,
            Self::Persistent | Self::Container | Self::Ttl(_) => 0,
        }
    }
}

/// The indexes.
#[derive(Debug, Default)]
pub(super) struct Owned {
    ephemerals: BTreeSet<(i64, ZnodeId)>,
    reapable: BTreeSet<ZnodeId>,
}

impl Owned {
    pub(super) fn insert(&mut self, owner: Owner, id: ZnodeId) {
        let new = match owner {
            Owner::Persistent => true,
            Owner::Container | Owner::Ttl(_) => self.reapable.insert(id),
            Owner::Session(session) => self.ephemerals.insert((session, id)),
        };
        assert!(new, "a znode is indexed once");
    }

    pub(super) fn remove(&mut self, owner: Owner, id: ZnodeId) {
        let known = match owner {
            Owner::Persistent => true,
            Owner::Container | Owner::Ttl(_) => self.reapable.remove(&id),
            Owner::Session(session) => self.ephemerals.remove(&(session, id)),
        };
        assert!(known, "a znode is indexed as long as it is there");
    }

    /// Ephemerals of one session from this number on, in the order of their numbers.
    pub(super) fn of_session(
        &self,
        session: i64,
        from: ZnodeId,
    ) -> impl Iterator<Item = ZnodeId> + '_ {
        self.ephemerals.range((session, from)..=(session, ZnodeId::MAX)).map(|(_, id)| *id)
    }

    /// All ephemerals, by session.
    pub(super) fn ephemerals(&self) -> impl Iterator<Item = ZnodeId> + '_ {
        self.ephemerals.iter().map(|(_, id)| *id)
    }

    /// The least session above `after` (from the least one on, for `None`) that owns anything.
    pub(super) fn next_session(&self, after: Option<i64>) -> Option<i64> {
        let from = match after {
            None => i64::MIN,
            Some(session) => session.checked_add(1)?,
        };
        self.ephemerals.range((from, ZnodeId::MIN)..).next().map(|(session, _)| *session)
    }

    pub(super) fn ephemeral_count(&self) -> usize {
        self.ephemerals.len()
    }

    /// Containers and TTL znodes, in no useful order.
    pub(super) fn reapable(&self) -> impl Iterator<Item = ZnodeId> + '_ {
        self.reapable.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_encoded_as_zookeeper_does() {
        for (owner, encoded) in [
            (Owner::Persistent, 0),
            (Owner::Container, 0x8000_0000_0000_0000_u64.cast_signed()),
            (Owner::Ttl(1), 0xff00_0000_0000_0001_u64.cast_signed()),
            (Owner::Ttl(TTL_MS_MAX), 0xff00_00ff_ffff_ffff_u64.cast_signed()),
            (Owner::Session(0x0100_0000_0000_0000), 0x0100_0000_0000_0000),
            (Owner::Session(-5), -5),
        ] {
            assert_eq!(owner.encoded(), encoded);
            assert_eq!(Owner::from_encoded(encoded), owner);
        }
    }

    #[test]
    fn only_a_session_shows_as_ephemeral_owner() {
        assert_eq!(Owner::Session(7).session(), 7);
        assert_eq!(Owner::Container.session(), 0);
        assert_eq!(Owner::Ttl(7).session(), 0);
    }
}
