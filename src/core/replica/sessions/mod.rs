//! SESSIONS: when a session ends, and what else is done because its time has come.
//!
//! *Owns* the session tracker (the deadlines of the leader, the reports of whom the other servers have heard from)
//! and the reaper of containers and TTL znodes. *Invariant*: a session does not end while its client may have been
//! answered within its timeout. *Never* closes a session by itself: only the log does.

mod expiry;
mod liveness;
mod moves;
mod reaper;
#[cfg(test)]
mod tests;
mod touches;
mod tracker;

pub(in crate::replica) use tracker::{Ping, Reported, SessionTracker};
