//! Locks, their places and findings, as they are shown.
//!
//! *Owns* [`Lock`] and what it consists of. *Never* finds one: `view.rs` makes them of what there is.

use super::clients::Presence;
use super::contender::Dialect;
use super::snapshot::WatchKind;
use super::species::Species;

/// A lock, or what is used like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its path: what clients of the recipe were given.
    pub path: String,
    /// Its name, if several locks may share the path.
    pub name: Option<String>,
    /// What it is.
    pub kind: Kind,
    /// Whose contenders there are, each once.
    pub dialects: Vec<&'static str>,
    /// Number of holders that it allows, where that is written.
    pub limit: Option<u32>,
    /// Holders, in the order of the queue.
    pub holders: Vec<Place>,
    /// Waiters, in the order of the queue.
    pub waiters: Vec<Place>,
    /// Number of further contenders after those.
    pub hidden: u64,
    /// Findings about it.
    pub findings: Vec<Finding>,
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One holder.
    Mutex,
    /// Readers, or one writer.
    ReadWrite,
    /// A limited number of holders.
    Semaphore,
    /// One leader.
    Election,
    /// Members of a group: no one of them waits for another.
    Party,
    /// Numbered ephemerals of a layout that is not known: taken for a mutex.
    Sequence,
}

impl Lock {
    /// Its path, and its name if it has one.
    pub(super) fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{} [{name}]", self.path),
            None => self.path.clone(),
        }
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Mutex,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Election,
        Self::Party,
        Self::Sequence,
    ];

    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::Election => "election",
            Self::Party => "party",
            Self::Sequence => "sequence",
        }
    }
}

/// As what one contends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With other readers.
    Read,
    /// Alone, among readers.
    Write,
    /// One of a limited number.
    Lease,
    /// To lead.
    Candidate,
    /// To be there.
    Member,
}

impl Mode {
    pub(super) fn of(species: Species<'_>, kind: Kind) -> Self {
        match species {
            Species::Party => Self::Member,
            Species::Latch | Species::Candidate | Species::SessionCandidate => Self::Candidate,
            Species::Lease | Species::KazooLease => Self::Lease,
            Species::DocRead => Self::Read,
            Species::DocWrite => Self::Write,
            Species::Lock(Dialect::CuratorWrite) => Self::Write,
            Species::Lock(dialect) if dialect.is_shared() => Self::Read,
            Species::Lock(Dialect::Kazoo) if kind == Kind::ReadWrite => Self::Write,
            Species::Lock(_) | Species::Simple | Species::Named { .. } => Self::Exclusive,
        }
    }

    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
            Self::Lease => "lease",
            Self::Candidate => "candidate",
            Self::Member => "member",
        }
    }
}

/// A contender's place in a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of its znode.
    pub node: String,
    /// As what it contends.
    pub mode: Mode,
    /// Library whose contender it is.
    pub dialect: &'static str,
    /// The zxid of its creation: of a holder, the fencing token.
    pub token: i64,
    /// How long it has been there, ms: by the clocks of two servers, so not to be trusted to the second.
    pub age_ms: u64,
    /// How long it has held the lock, ms, in the same way; `None` of one that waits, and if no server has
    /// seen it get the lock since it was started.
    pub held_ms: Option<u64>,
    /// Identity that it gives, as text.
    pub identity: Option<String>,
    /// Somebody has asked it to leave, in a recipe's words.
    pub is_asked_to_release: bool,
    /// Its session; 0 without one.
    pub session: i64,
    /// That session's timeout, ms.
    pub timeout_ms: Option<i32>,
    /// Milliseconds until that expires unless heard from, where it is known.
    pub expires_in_ms: Option<u64>,
    /// Address of its client.
    pub presence: Presence,
    /// What its session watches of this lock; `None` if no server has said.
    pub watches: Option<Vec<(String, WatchKind)>>,
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// In words.
    pub text: String,
    /// Paths of some of the znodes that it is about.
    pub nodes: Vec<String>,
    /// Of a deadlock: its sessions, each of which waits for a lock that the next one holds.
    pub cycle: Vec<Step>,
}

/// A session in a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its id.
    pub session: i64,
    /// Identity that it gives, as text.
    pub identity: Option<String>,
    /// The lock that it holds.
    pub holds: String,
    /// The path of its contender there.
    pub holds_node: String,
    /// The lock that it waits for.
    pub waits_for: String,
    /// The path of its contender there.
    pub waits_node: String,
}

/// What a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Sessions that wait for each other.
    Deadlock,
    /// Contenders that do not wait for each other.
    MixedDialects,
    /// A contender that waits for nothing, and does not hold the lock.
    Orphan,
    /// Several are woken where one can go on.
    Herd,
    /// The holder's client has no connection.
    HolderDisconnected,
    /// A contender that does not go away with its session.
    NotEphemeral,
    /// A child that go-zookeeper's lock cannot read.
    Stranger,
    /// The counter of the directory comes to its end.
    Counter,
}

impl FindingKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Deadlock,
        Self::MixedDialects,
        Self::Orphan,
        Self::Herd,
        Self::HolderDisconnected,
        Self::NotEphemeral,
        Self::Stranger,
        Self::Counter,
    ];

    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::MixedDialects => "mixed-dialects",
            Self::Orphan => "orphan",
            Self::Herd => "herd",
            Self::HolderDisconnected => "holder-disconnected",
            Self::NotEphemeral => "not-ephemeral",
            Self::Stranger => "stranger",
            Self::Counter => "counter",
        }
    }
}
