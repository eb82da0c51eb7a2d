//! What a replica is given.

use std::net::IpAddr;

use raft::eraftpb::Message;

use super::durable::{Entry, Mark};
use super::inspect::Inspect;
use super::machine::Machine;
use super::messages::PeerMessage;
use super::migration::{LinkInput, MigrateOrder};
use super::ready::Fetch;
pub use super::request::{ClientRequest, ConnId};
use crate::proto::connect::ConnectRequest;
use crate::sasl::{SaslUsers, Verdict};
use crate::tree::acl::Identity;

/// One event from outside. `Replica::step` takes it, never fails and never waits.
#[derive(Debug)]
pub enum Input {
    /// A client's first frame arrived.
    Connected {
        /// The connection.
        conn: ConnId,
        /// Where it comes from (its `ip` identity).
        remote: IpAddr,
        /// Its port, for display.
        remote_port: u16,
        /// What it has proved before it said anything: by a certificate.
        proven: Vec<Identity>,
        /// What it asks for.
        request: ConnectRequest,
    },
    /// Requests of one connection, in the order in which they arrived.
    Requests {
        /// The connection.
        conn: ConnId,
        /// At least one.
        requests: Vec<ClientRequest>,
    },
    /// The connection is gone; nothing can be sent on it any more.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// Everything of the last `Outgoing` that had `more` is written.
    Room {
        /// The connection.
        conn: ConnId,
    },
    /// Time has passed. Given before every batch of other inputs, and at least every
    /// [`TICK_MS`](crate::replica::TICK_MS) milliseconds.
    Tick {
        /// Monotonic microseconds, from any start: for deadlines.
        now_us: u64,
        /// Milliseconds since the epoch: for ctime and mtime only.
        wall_ms: i64,
    },
    /// An operator's question; answered in the next `Ready`.
    Inspect {
        /// Comes back with the answer.
        token: u64,
        /// The question.
        what: Inspect,
    },
    /// The disk's copy of the state cannot be continued: every record must be drained again.
    RecordsLost,
    /// A message of another server.
    Peer {
        /// Its raft id.
        from: u64,
        /// The message.
        message: PeerMessage,
    },
    /// A server that this one has connected to says in which term it is; 0 if it does not.
    Introduced {
        /// Its raft id.
        peer: u64,
        /// The term.
        term: u64,
    },
    /// A link to or from a server was made.
    PeerUp {
        /// Its raft id.
        peer: u64,
    },
    /// A link to or from a server is broken: what was sent last may be lost.
    PeerDown {
        /// Its raft id.
        peer: u64,
    },
    /// Entries that `Ready::fetch` asked for; none if the log does not hold them any more.
    Fetched {
        /// The question.
        fetch: Fetch,
        /// Consecutive, from `fetch.from` on.
        entries: Vec<Entry>,
    },
    /// The log on the disk was cut.
    LogCut {
        /// Index and term of the entry that it begins after.
        before: (u64, u64),
    },
    /// There is a new image that can be sent to others.
    ImageWritten {
        /// What it holds.
        mark: Mark,
    },
    /// An image that `Ready::images` asked to be sent has been installed by its receiver, or not.
    ImageSent {
        /// The receiver's raft id.
        to: u64,
        /// Whether it was.
        ok: bool,
    },
    /// An image was received, verified and is durable under its temporary name.
    ImageReceived {
        /// The message that announced it.
        message: Box<Message>,
        /// What it holds.
        mark: Mark,
        /// That state.
        machine: Box<Machine>,
    },
    /// Other users may authenticate by SASL from now on. What connections have proved stays.
    SaslUsers {
        /// All of them.
        users: SaslUsers,
    },
    /// What was made of the token that `Ready::tokens` had of a connection.
    SaslJudged {
        /// The connection.
        conn: ConnId,
        /// What.
        verdict: Verdict,
    },
    /// An operator says that all servers run the release that knows this version of the ensemble, and are to go on
    /// with it. Only a leader that knows it proposes that.
    FinishUpgrade {
        /// See `machine/version.rs`.
        version: u8,
    },
    /// An operator wants something of a live migration: answered by `Report::Migrated`.
    Migrate {
        /// Comes back with the answer.
        token: u64,
        /// What.
        order: MigrateOrder,
    },
    /// Something happened to the link that `Ready::zookeeper` asked for.
    ZooKeeper(LinkInput),
    /// Whether ZooKeeper's ports for clients are closed, as `Ready::zookeeper` asked; else which is not.
    ZooKeeperClosed {
        /// The attempt of a cutover that it was asked for.
        attempt: u64,
        /// Whether they are.
        closed: Result<(), String>,
    },
    /// Leadership is to be handed over, if this server has it: it is about to stop.
    Resign,
}

impl Input {
    /// Whether it is what servers say to each other, what their disks and clocks tell, or ZooKeeper: nothing that is
    /// answered from the state.
    pub(in crate::replica) fn is_of_servers(&self) -> bool {
        match self {
            Self::Tick { .. }
            | Self::Peer { .. }
            | Self::Introduced { .. }
            | Self::PeerUp { .. }
            | Self::PeerDown { .. }
            | Self::Fetched { .. }
            | Self::LogCut { .. }
            | Self::ImageWritten { .. }
            | Self::ImageSent { .. }
            | Self::ImageReceived { .. }
            | Self::RecordsLost
            | Self::ZooKeeper(_)
            | Self::ZooKeeperClosed { .. } => true,
            Self::Connected { .. }
            | Self::Requests { .. }
            | Self::Closed { .. }
            | Self::Room { .. }
            | Self::Inspect { .. }
            | Self::SaslUsers { .. }
            | Self::SaslJudged { .. }
            | Self::FinishUpgrade { .. }
            | Self::Resign
            | Self::Migrate { .. } => false,
        }
    }
}
