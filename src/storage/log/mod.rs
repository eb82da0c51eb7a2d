//! LOG: the replicated log and the hard state on disk.
//!
//! *Owns* the segments, their records, and what may be wrong with them. *Invariants*: what was appended is
//! durable when the sync has returned; a torn tail that was never synced is dropped, any other damage refuses the
//! log. *Never* knows what is in an entry.

mod blocks;
mod error;
mod files;
mod record;
mod replay;
mod segment;
mod spans;
#[cfg(test)]
mod tests;

pub use error::LogError;
pub use files::{Log, LogRecovery};
pub use segment::{LogOptions, Position, SEGMENT_BYTES};
