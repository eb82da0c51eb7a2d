//! COPY OF THE STATE: a log-structured merge tree on sled, which makes a start quick and may be thrown away.
//!
//! *Owns* the memtable, the sorted runs, their compaction, the manifest, and the store below them. *Invariants*:
//! a manifest names a complete state or none; whatever is missing or damaged gives the copy up, never a wrong
//! state. *Never* is the only place where something is kept: the log and the images are.

mod compaction;
mod manifest;
mod memtable;
mod run;
mod runs;
mod sled;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use compaction::scan;
pub(crate) use manifest::{Found, Manifest};
pub use runs::Runs;
pub use sled::SledState;
pub use store::MemoryState;
pub use store::{StateError, StateStore, Take};
