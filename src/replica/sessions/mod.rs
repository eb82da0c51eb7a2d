//! SESSIONS: how a client gets one, and when it ends.
//!
//! *Owns* the handshake, the deadlines of the leader, the reports of whom the other servers have heard from, and
//! what is proposed because its time has come. *Invariant*: a session does not end while its client may have been
//! answered within its timeout. *Never* closes a session by itself: only the log does.

mod chores;
mod expiry;
mod handshake;
mod liveness;
mod moves;
#[cfg(test)]
mod tests;
mod touches;

pub(in crate::replica) use chores::Allowance;
pub(in crate::replica) use expiry::Expiry;
pub(in crate::replica) use liveness::Liveness;
pub(in crate::replica) use moves::Moves;
pub(in crate::replica) use touches::Touches;
