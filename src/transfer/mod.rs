//! TRANSFER: data directories of Apache ZooKeeper, read into a state and written from one.
//!
//! *Owns* which files of a directory count, how they are compressed, which of several members is taken, and what a
//! report says. *Invariants*: a directory of ZooKeeper that is read is never changed; a state comes out only if every
//! file that it needs is whole, and no transaction is missing in between; a directory that is written has its snapshot
//! under its name only once that is whole and durable. *Never* starts anything, or writes data of our own servers.
//!
//! Reproduces the reading half of `FileTxnSnapLog`.

mod compressed;
mod directory;
mod export;
mod load;
mod members;

pub(crate) use directory::{Member, Source};
pub(crate) use export::{Exported, export};
pub(crate) use load::{Counts, Loaded, Want, load};
pub(crate) use members::{Chosen, choose};

/// The upper 32 bits of a zxid.
pub(crate) fn epoch(zxid: i64) -> i64 {
    zxid >> 32
}

#[cfg(test)]
mod tests;
