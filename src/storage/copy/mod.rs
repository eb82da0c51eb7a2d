//! COPY OF THE STATE: a log-structured merge tree on sled, from which images are written. It may be thrown away.
//!
//! *Owns* the memtable, the sorted runs, their compaction, the manifest, and the store below them. A checkpoint costs
//! what changed and not the whole state, and an image of it is written while the tree changes on. A start reads the
//! copy only where no image can be used and the log was cut (`dir/recovery.rs`). *Invariants*:
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
