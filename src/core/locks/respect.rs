//! Who waits for whom.
//!
//! *Owns* the table of what each client library does about contenders that came before it, as measured
//! against the real ones. *Never* says what it should do.

use super::contender::{Contender, Dialect, is_of_this_library};
use super::species::Species;

impl Dialect {
    /// Whether contenders of this dialect wait for one of `earlier` that came before them.
    #[must_use]
    pub fn waits_for(self, earlier: Dialect) -> bool {
        use Dialect::{
            Curator, CuratorRead, CuratorWrite, Go, Kazoo, KazooAsCurator, KazooRead, Plain,
            ZooKeeper,
        };
        match self {
            Curator => matches!(earlier, Curator | Go | KazooAsCurator | Plain),
            // Whose it is is not known; the Rust client's `new_shared` looks at nothing but its own names.
            Plain => earlier == Plain,
            KazooAsCurator => matches!(earlier, Curator | Go | Kazoo | KazooAsCurator | Plain),
            // It does not wait, it fails.
            Go => earlier != ZooKeeper,
            // Of kazoo's two locks of that name, one waits for readers.
            Kazoo => matches!(earlier, Kazoo | KazooRead),
            KazooRead => earlier == Kazoo,
            CuratorWrite => matches!(earlier, CuratorWrite | CuratorRead),
            CuratorRead => earlier == CuratorWrite,
            // Whatever ends with a hyphen and the number.
            ZooKeeper => matches!(earlier, Curator | Go | KazooAsCurator | Plain | ZooKeeper),
        }
    }
}

/// Whether contenders of `later` wait for those of `earlier`.
#[must_use]
pub(super) fn waits(later: Species<'_>, earlier: Species<'_>) -> bool {
    match (later, earlier) {
        (Species::Lock(later), Species::Lock(earlier)) => later.waits_for(earlier),
        (Species::DocWrite, Species::DocRead | Species::DocWrite)
        | (Species::DocRead, Species::DocWrite)
        | (Species::Latch, Species::Latch)
        | (Species::Candidate, Species::Candidate)
        | (Species::SessionCandidate, Species::SessionCandidate)
        | (Species::Simple, Species::Simple)
        | (Species::Named { .. }, Species::Named { .. }) => true,
        (
            Species::Lock(_)
            | Species::DocRead
            | Species::DocWrite
            | Species::Latch
            | Species::Candidate
            | Species::SessionCandidate
            | Species::Lease
            | Species::KazooLease
            | Species::Party
            | Species::Simple
            | Species::Named { .. },
            _,
        ) => false,
    }
}

/// Whether a contender of that name waits for contenders of every kind, because it is of this library.
pub(super) fn waits_for_all(name: &str) -> bool {
    Contender::parse(name).is_some_and(|contender| is_of_this_library(&contender))
}

/// Whether both may hold the lock at the same time.
pub(super) fn share(one: Species<'_>, other: Species<'_>) -> bool {
    one.is_shared() && other.is_shared()
}

/// Whether a reader passes by a writer of its own session, because that is a way down.
pub(super) fn is_way_down(later: Species<'_>, earlier: Species<'_>) -> bool {
    later.is_shared() && !earlier.is_shared()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows hold, columns come second: what was measured with the real libraries (tests/clients/interop).
    #[test]
    fn the_table_is_the_measured_one() {
        use Dialect::{Curator, Go, Kazoo, KazooAsCurator, Plain, ZooKeeper};
        let columns = [Curator, Go, Kazoo, KazooAsCurator, Plain, ZooKeeper];
        for (holder, waits_of) in [
            (Curator, [true, true, false, true, false, true]),
            (Go, [true, true, false, true, false, true]),
            (Kazoo, [false, true, true, true, false, false]),
            (KazooAsCurator, [true, true, false, true, false, true]),
            (Plain, [true, true, false, true, true, true]),
            (ZooKeeper, [false, false, false, false, false, true]),
        ] {
            for (second, expected) in columns.into_iter().zip(waits_of) {
                assert_eq!(second.waits_for(holder), expected, "{holder} {second}");
            }
        }
    }

    #[test]
    fn curators_two_locks_do_not_exclude_each_other() {
        let mutex = Species::Lock(Dialect::Curator);
        for other in [Dialect::CuratorRead, Dialect::CuratorWrite] {
            assert!(!waits(mutex, Species::Lock(other)) && !waits(Species::Lock(other), mutex));
        }
    }
}
