//! What servers say to each other.
//!
//! *Owns* the messages between replicas and the meaning of a raft id. *Invariant*: between two cuts of
//! a link, messages arrive completely and in order: [`PeerMessage::Forward`] relies on it.

use bytes::Bytes;
use raft::eraftpb::Message;

pub use super::peer_codec::{MESSAGE_BYTES_MAX, PEER_FORMAT};
use crate::config::ServerSpec;

/// A server as Raft knows it: its incarnation, and its id in the lowest byte. A server that lost its
/// data comes back as another one, because it does not remember for whom it voted.
#[must_use]
pub fn server_of(raft_id: u64) -> u8 {
    (raft_id & 0xff) as u8
}

/// The raft id of an incarnation of a server.
#[must_use]
pub fn raft_id(incarnation: u32, server: u8) -> u64 {
    u64::from(incarnation) << 8 | u64::from(server)
}

/// One message to another server.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerMessage {
    /// Raft's own.
    Raft(Box<Message>),
    /// Transactions of the sender's clients, for the leader to propose.
    Forward {
        /// The term in which the sender takes the receiver for the leader: in any other it is void.
        term: u64,
        /// As `txn::BatchBuilder` makes it.
        batch: Bytes,
    },
    /// A forwarded batch that the sender did not propose before it was deposed: it had no effect.
    Return {
        /// The term in which it was forwarded.
        term: u64,
        /// The batch.
        batch: Bytes,
    },
    /// Sessions that the sender has heard from, for the leader.
    Touch {
        /// Their ids.
        sessions: Vec<i64>,
    },
}

/// One server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it is, and what it is meant to be.
    pub spec: ServerSpec,
    /// Its raft id, once Raft counts it in.
    pub raft_id: Option<u64>,
    /// Whether Raft counts its vote.
    pub votes: bool,
}
