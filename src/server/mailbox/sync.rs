//! What the queues between the driver and the threads of connections are locked and counted by.
//!
//! The test that tries every order of their steps puts those of a model checker here (tests/hand_over).

pub(in crate::server) use std::sync::atomic::{AtomicU64, Ordering};
pub(in crate::server) use std::sync::{Mutex, MutexGuard, PoisonError};
