//! THE LEARNER: ZooKeeper's quorum protocol as an observer speaks it, up to the bytes of each direction.
//!
//! *Owns* the packets of that protocol and [`Learner`], one connection to a leader: proving who this server is,
//! joining, the snapshot, the transactions in their order, requests, and the answers to pings.
//!
//! *Invariants*: it is a value. The same bytes and times give the same events, in whatever portions the bytes come, but
//! for pieces of a snapshot that is broken off. Any bytes give events or the end of the connection, never a panic, and
//! memory is taken only for bytes that came. The transactions that it hands out rise by one within an epoch, and a new
//! epoch begins with one: none is left out.
//!
//! *Never*: opens a socket, looks at a clock, draws a random number, or knows what a transaction does to a tree.
//!
//! ```text
//! this server                                   the leader
//! QuorumAuth, if there is a login       <->     QuorumAuth
//! OBSERVERINFO                          -->
//!                                       <--     LEADERINFO                          Event::Led
//! ACKEPOCH, with the last zxid          -->
//!                                       <--     one of:  SNAP, and the snapshot     Event::SnapshotBegins, ...
//!                                                        DIFF
//!                                                        TRUNC                      Ended::Ahead
//!                                       <--     PROPOSAL and COMMIT, or INFORM ...  Event::Committed
//!                                       <--     NEWLEADER                           Event::CaughtUp
//! ACK, before anything else             -->
//!                                       <--     UPTODATE                            Event::UpToDate
//! ACK                                   -->
//! REQUEST, REVALIDATE, answers to PING  <->     INFORM, SYNC, REVALIDATE, PING
//! ```
//!
//! Reproduces `Learner`, `Observer`, `LearnerHandler`, `QuorumPacket` and `SaslQuorumAuthLearner`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod client;
mod ended;
mod heard;
mod inbox;
mod login;
mod order;
pub mod packet;

use bytes::Bytes;

use crate::sasl::{CNONCE_BYTES, ClientLogin};
use crate::zookeeper::Txn;

pub use client::{
    FOLLOWING_SILENT_MS, INTRODUCED_SILENT_MS, JOINING_SILENT_MS, Learner, NO_SESSION,
    PROPOSALS_MAX, SNAPSHOT_PIECE_BYTES_MAX,
};
pub use ended::Ended;
pub use heard::{HEARD_PER_PACKET_MAX, HEARD_SESSIONS_MAX};

#[cfg(test)]
mod tests;

/// As what a server joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// An id that no server of the ensemble has. ZooKeeper's configuration need not name it.
    pub server_id: u8,
    /// The zxid of the last transaction that was applied; 0: nothing was, and a snapshot is to come.
    pub from_zxid: i64,
    /// The highest epoch that a leader was followed in; 0: none was. A leader of an older one is refused.
    pub accepted_epoch: i64,
    /// Who this server proves to be, where the ensemble asks for it (`quorum.auth.serverRequireSasl`), and random
    /// bytes that were never given before.
    pub login: Option<(ClientLogin, [u8; CNONCE_BYTES])>,
}

/// What came from the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It leads in this epoch. How this server is brought up to date, it says next.
    Led {
        /// The epoch: the upper half of its zxids.
        epoch: i64,
    },
    /// A snapshot comes, and replaces everything that this server has.
    SnapshotBegins {
        /// Its zxid. It may hold the effects of later transactions, and the transactions that come behind it may begin
        /// before its zxid. One that ends with 32 zeros is that of no transaction.
        zxid: i64,
    },
    /// The next bytes of the snapshot's body, not more than [`SNAPSHOT_PIECE_BYTES_MAX`]: all of them together are
    /// sessions, lists, znodes and the mark `/` of their end, and nothing else. They were checked to be that.
    SnapshotBytes(Bytes),
    /// The snapshot is complete.
    SnapshotEnds,
    /// The next transaction: it is committed.
    Committed {
        /// The transaction.
        txn: Txn,
        /// Its bytes.
        bytes: Bytes,
        /// Of a reconfiguration: the server that is to lead from now on.
        designated: Option<i64>,
    },
    /// Everything up to where the leader was when this server joined has been handed out, and every transaction that
    /// left something in the snapshot: from here on the tree is that of the last transaction.
    CaughtUp {
        /// The text of `/zookeeper/config`.
        config: Option<Bytes>,
    },
    /// The leader serves this server from now on: requests may be sent.
    UpToDate,
    /// The answer to [`Learner::revalidate`].
    Revalidated {
        /// Of this session.
        session: i64,
        /// Whether it is open. Then this server is its owner now.
        is_valid: bool,
    },
    /// The answer to the oldest [`Learner::sync`] that has none: every transaction that this leader had committed when
    /// it got it was handed out before.
    Synced,
}
