//! CONSENSUS: Raft, who leads, and what of other servers is believed.
//!
//! *Owns* the node of the crate `raft` with the guards in front of it, the tail of the log in memory, leadership,
//! read indexes, rollback detection, and the clocks. *Invariants*: nothing is
//! acknowledged before it is durable here; a message or a disk that says what cannot be is refused or dropped.
//! *Never* looks into a transaction.

#[cfg(test)]
mod clock_tests;
pub mod clocks;
mod conf_change;
#[cfg(test)]
mod guard_tests;
mod leadership;
mod node;
pub mod promises;
mod read_index;
#[cfg(test)]
mod replication_tests;
mod rollback;
#[cfg(test)]
mod rollback_tests;
#[cfg(test)]
mod stall_tests;
mod tail;

pub use promises::{Refusal, RefusalKind};

pub(in crate::replica) use clocks::Clocks;
pub(in crate::replica) use leadership::Leadership;
pub(in crate::replica) use node::{Consensus, PeerProgress, Step, Verdict, check};
pub(in crate::replica) use read_index::ReadIndex;
pub(in crate::replica) use tail::{Tail, from_raft};
