//! ENSEMBLE: who its servers are, how they found it, and what they say to each other.
//!
//! *Owns* the founding protocol, the way from the text of the members to the voters of Raft, and the messages
//! between servers with their codec. *Invariant*: one source says who votes: the replicated configuration.
//! *Never* opens a connection.

pub mod founding;
#[cfg(test)]
mod founding_tests;
mod membership;
mod obstacle;
pub mod peer;
pub mod peer_codec;
#[cfg(test)]
mod tests;

pub use peer::{Member, PeerMessage};

pub(in crate::replica) use peer::{Stamp, server_of};
pub(in crate::replica) use peer_codec::{
    CONTEXT_BYTES_MAX, ENTRY_BYTES_MIN, MEMBERS_MAX, MESSAGE_ENTRIES_MAX, bounded, bytes, number,
    put_number, raft_id, term,
};
