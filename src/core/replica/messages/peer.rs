//! What servers say to each other.
//!
//! *Owns* the messages between replicas and the meaning of a raft id. *Invariant*: between two cuts of
//! a link, messages arrive completely and in order: [`PeerMessage::Forward`] relies on it.

use bytes::Bytes;
use raft::eraftpb::{Message, MessageType};

use crate::config::ServerSpec;
use crate::replica::comparison::{DigestReport, Window};

/// What Raft says to itself on other servers.
pub use raft::eraftpb::{Message as RaftMessage, MessageType as RaftMessageType};

/// A server as Raft knows it: its incarnation, and its id in the lowest byte. A server that lost its
/// data comes back as another one, because it does not remember for whom it voted.
#[must_use]
pub fn server_of(raft_id: u64) -> u8 {
    (raft_id & 0xff) as u8
}

/// The raft id of an incarnation of a server; 0 is the first one. Server 0's first one has the number of
/// its second: 0 means none to Raft.
#[must_use]
pub fn raft_id(incarnation: u32, server: u8) -> u64 {
    match u64::from(incarnation) << 8 | u64::from(server) {
        raft::INVALID_ID => 1 << 8,
        id => id,
    }
}

/// One message to another server.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerMessage {
    /// The sender was started: what does the receiver remember of its promises?
    Ask {
        /// A random number of the sender's process.
        question: u64,
    },
    /// What the sender remembers of the receiver.
    Recall {
        /// The question.
        question: u64,
        /// `None`: nothing.
        promise: Option<Promise>,
    },
    /// Voters by the log of the sender, where no change of them is half done, beside its answer to a question.
    Voters {
        /// The question.
        question: u64,
        /// Index up to which the sender has applied its log: they vote behind that entry.
        index: u64,
        /// Their raft ids.
        voters: Vec<u64>,
    },
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
    /// The leader wants to know whom the receiver has heard from.
    Ping {
        /// The term in which the sender leads.
        term: u64,
        /// A time of the sender, which it gets back.
        at_us: u64,
        /// The steady clock of the ensemble.
        steady_ms: i64,
        /// The last report that it has got.
        heard: Option<Stamp>,
    },
    /// The receiver is to report the digests of these entries: to all servers if the sender leads, else to the sender.
    Compare {
        /// The term in which the sender is.
        term: u64,
        /// The entries.
        window: Window,
    },
    /// Digests of the sender.
    Digests {
        /// The report.
        report: DigestReport,
    },
    /// Sessions that the sender has heard from, for the leader: all that it does not know to be confirmed,
    /// except for those that are in the reports that this one goes on from.
    Touch {
        /// The term of the ping that is answered. 0: none, more is to come.
        term: u64,
        /// The time in that ping.
        at_us: u64,
        /// The sender's wall clock, milliseconds since the epoch.
        wall_ms: i64,
        /// Which report this is.
        stamp: Stamp,
        /// Number of the report before: without that one, this one does not say everything. 0: it goes on
        /// from none.
        base: u64,
        /// Ids of sessions.
        sessions: Vec<i64>,
    },
}

impl PeerMessage {
    /// Whether servers of 0.1.0-rc.1 know nothing of it.
    #[must_use]
    pub fn is_later(&self) -> bool {
        matches!(self, Self::Compare { .. } | Self::Digests { .. } | Self::Voters { .. })
    }
}

/// The newest promises of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// The highest term in which it promised something.
    pub term: u64,
    /// The highest index that it acknowledged in that term; 0 for none.
    pub index: u64,
    /// The term of the entry there; 0 if that is not known.
    pub log_term: u64,
    /// For whom it voted in that term, itself included; 0 if that is not known.
    pub vote: u64,
}

/// A report of whom a server has heard from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The process that made it: a random number, and the server's id in the lowest byte.
    pub process: u64,
    /// Grows from one to the next.
    pub number: u64,
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

/// The type of a message that announces an image.
pub const ANNOUNCES: MessageType = MessageType::MsgSnapshot;

/// What a message says that announces an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Raft id of the leader that says it.
    pub from: u64,
    /// The term in which it leads.
    pub term: u64,
    /// Index and term of the last entry that the image includes.
    pub at: (u64, u64),
}

impl Announcement {
    /// `None` if it announces no image.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        let metadata = message.get_snapshot().get_metadata();
        (message.get_msg_type() == ANNOUNCES).then_some(Self {
            from: message.from,
            term: message.term,
            at: (metadata.index, metadata.term),
        })
    }
}
