//! MESSAGES: what servers say to each other, as values and as bytes.
//!
//! *Owns* the messages between replicas, the meaning of a raft id, and their codec. *Invariant*: decoding is
//! total and canonical. *Never* knows what a message leads to: it imports no other room.

mod digest_codec;
mod numbers;
pub mod peer;
pub mod peer_codec;
mod raft_codec;

pub use peer::{Member, PeerMessage};

pub(in crate::replica) use peer::{Promise, Stamp, raft_id, server_of};
