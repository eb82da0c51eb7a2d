//! What a replica wants done.

use raft::eraftpb::Message;

use smallvec::SmallVec;

use super::audit_line::AuditLine;
use super::durable::Append;
use super::inspect::Report;
use super::machine::Machine;
use super::messages::{Member, PeerMessage};
use super::migration::ZooKeeperWork;
use super::request::ConnId;

/// Everything that is to be done after a batch of inputs. Order within it: audit lines first, then
/// `client`; `append` may go at once, in parallel with both.
#[derive(Debug, Default)]
pub struct Ready {
    /// To be made durable; then `Replica::persisted(append.number)`.
    pub append: Option<Append>,
    /// To be sent, one element per connection, already in wire format.
    pub client: Vec<Outgoing>,
    /// One line per applied transaction, if the audit log is on: the same on all servers.
    pub audit: Vec<AuditLine>,
    /// Where the clients are whose transactions those are, `ip:port`, by zxid: of this server's clients.
    pub audit_clients: Vec<(i64, String)>,
    /// Answers to `Input::Inspect`.
    pub inspected: Vec<(u64, Report)>,
    /// Messages to other servers, by raft id. All may go at once: what must wait for the disk is
    /// held back by the replica.
    pub send: Vec<(u64, PeerMessage)>,
    /// Entries that are wanted from the log on the disk: `Input::Fetched`.
    pub fetch: Vec<Fetch>,
    /// Images to be sent: `Input::ImageSent`.
    pub images: Vec<SendImage>,
    /// Servers, by raft id, that have sent on their links what cannot be true: the links from them are to
    /// be cut, and `Input::PeerDown` says so.
    pub cut: Vec<u64>,
    /// Tokens of SASL to be judged outside: `Input::SaslJudged`. At most one of a connection until that came.
    pub tokens: Vec<(ConnId, Vec<u8>)>,
    /// The state before an image took its place: to be dropped where no client waits for that.
    pub replaced: Option<Box<Machine>>,
    /// Who belongs to the ensemble, when that changed.
    pub members: Option<Vec<Member>>,
    /// Clients that get no session here.
    pub turned_away: Vec<TurnedAway>,
    /// What is to be done about the link with another ensemble.
    pub zookeeper: ZooKeeperWork,
}

/// A client that gets no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// Where it is, `ip:port`.
    pub remote: String,
    /// Why.
    pub why: WhyAway,
}

/// Why a client gets no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyAway {
    /// It has seen a later state than this server has: this one lags behind another, or the state was replaced by an
    /// older one.
    SeesAhead {
        /// The zxid that it has seen.
        seen: i64,
        /// The last one here.
        here: i64,
    },
    /// Its session has expired or was closed, or never was of this ensemble.
    SessionGone {
        /// Its id.
        session: i64,
    },
    /// Its session has another password.
    WrongPassword {
        /// The id of the session.
        session: i64,
    },
    /// This server serves no client now, or none that would write.
    NotServing,
}

/// Entries that a server which is behind needs, and that are not in memory any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// First index.
    pub from: u64,
    /// Last index.
    pub to: u64,
    /// Bytes of data at most, but at least one entry.
    pub bytes_max: usize,
    /// For the replica.
    pub token: u64,
}

/// An image that another server needs.
#[derive(Clone, Debug, PartialEq)]
pub struct SendImage {
    /// Raft id of the receiver.
    pub to: u64,
    /// The image's index.
    pub index: u64,
    /// Announces it; comes back at the receiver's with `Input::ImageReceived`.
    pub message: Box<Message>,
}

/// A request that is answered, as its latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// When its bytes were read, by the clock of `Input::Tick`, microseconds.
    pub arrived_us: u64,
    /// Whether it went through the log.
    pub is_write: bool,
}

/// Of one connection, in one batch: mostly one.
pub type AnsweredList = SmallVec<[Answered; 1]>;

/// What one connection is sent by one `Ready`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The connection.
    pub conn: ConnId,
    /// Whole frames, length prefixes included.
    pub frames: Vec<u8>,
    /// How many of the connection's requests are answered by it (events do not count).
    pub replies: u32,
    /// When those were read that tell the time between that and their answer, of the session's requests.
    pub answered: AnsweredList,
    /// Whether the connection ends after these bytes.
    pub close: bool,
    /// Whether answers are held back until all of these bytes are written: then, `Input::Room`.
    pub more: bool,
}

impl Ready {
    /// Whether there is nothing to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.append.is_none()
            && self.client.is_empty()
            && self.audit.is_empty()
            && self.audit_clients.is_empty()
            && self.inspected.is_empty()
            && self.send.is_empty()
            && self.fetch.is_empty()
            && self.images.is_empty()
            && self.cut.is_empty()
            && self.tokens.is_empty()
            && self.members.is_none()
            && self.replaced.is_none()
            && self.turned_away.is_empty()
            && self.zookeeper.is_empty()
    }
}
