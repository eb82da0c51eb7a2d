//! TRANSFER: data directories of Apache ZooKeeper, read into a state and written from one (feature `cli`), and
//! snapshots of a state, which the HTTP port gives, too.
//!
//! *Owns* which files of a directory count, how they are compressed, which of several members is taken, and what a
//! report says. *Invariants*: a directory of ZooKeeper that is read is never changed; a state comes out only if every
//! file that it needs is whole, and no transaction is missing in between; a directory that is written has its snapshot
//! under its name only once that is whole and durable. *Never* starts anything, or writes data of our own servers.
//!
//! Reproduces the reading half of `FileTxnSnapLog`.

#[cfg(feature = "cli")]
mod compressed;
#[cfg(feature = "cli")]
mod directory;
#[cfg(feature = "cli")]
mod export;
#[cfg(feature = "cli")]
mod load;
#[cfg(feature = "cli")]
mod members;
mod snapshot;

#[cfg(feature = "cli")]
pub(crate) use directory::{Member, Source};
#[cfg(feature = "cli")]
pub(crate) use export::{Exported, export};
#[cfg(feature = "cli")]
pub(crate) use load::{Counts, Loaded, Want, load};
#[cfg(feature = "cli")]
pub(crate) use members::{Chosen, choose, refuse_without_logs};
pub(crate) use snapshot::Snapshot;

/// The upper 32 bits of a zxid.
#[cfg(feature = "cli")]
pub(crate) fn epoch(zxid: i64) -> i64 {
    zxid >> 32
}

#[cfg(all(test, feature = "cli"))]
mod tests;
