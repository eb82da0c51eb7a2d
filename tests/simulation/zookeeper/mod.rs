//! A model of an ensemble of ZooKeeper, as its leader appears to learners: deterministic, without sockets or clocks.
//!
//! *Owns* [`Leader`]: the history, the tree, the sessions and their owners, and what each learner is told. What a
//! request does is decided by `decider.rs`, on this project's own tree; what is committed is applied a second time, as
//! a transaction of ZooKeeper, to the state that snapshots are taken of, and both must have the same digest.
//! *Never*: the election. A leader is killed by [`Leader::replace`], which says how much of what it had proposed
//! survives; by [`Leader::depose`] it lives on beside the next one, and commits nothing.
//!
//! Reproduces `Leader`, `LearnerHandler`, `PrepRequestProcessor` and `SessionTrackerImpl`, as far as learners see them.
//! What was measured is in docs/internals/ZOOKEEPER-QUORUM.md.

pub mod decider;
pub mod leader;
pub mod link;
pub mod snapshot;

pub use leader::{BEGINS_MS, Leader, Lie, Ticks};
pub use link::LinkId;
