//! What is known of locks before anybody has thought about it.
//!
//! *Owns* [`Snapshot`] (what all servers agree on: directories of contenders, and sessions) and
//! [`Local`] (what one server alone knows: connections, watches, deadlines). *Invariants*: the
//! contenders of a [`Directory`] are in the order of their queue, and if some are left out, they are
//! the last; data are taken only where everybody may read them. *Never* larger than its budget.

use super::species::Species;

/// Most contenders in one snapshot.
pub const CONTENDERS_MAX: usize = 5_000;
/// Most ephemerals looked at for one snapshot, and most children of lock directories.
pub const LOOKS_MAX: usize = 50_000;
/// Most sessions in one snapshot.
pub const SESSIONS_MAX: usize = 20_000;
/// Most watches in one snapshot.
pub const WATCHES_MAX: usize = 50_000;
/// Longest identity of a contender, bytes of its data.
pub const IDENTITY_BYTES_MAX: usize = 256;
/// Names of children that are no contenders, by directory: enough to know what is meant.
const STRANGERS_MAX: usize = 3;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The locks below this path, and the one that it names.
    Locks {
        /// A path; the root for all.
        prefix: String,
    },
    /// All sessions.
    Sessions,
}

impl Scope {
    /// Whether a directory is asked for.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        match self {
            Self::Locks { prefix } => is_below(path, prefix),
            Self::Sessions => false,
        }
    }
}

/// Whether it is the path `prefix`, or one below it.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What one server has in its tree, and what it alone knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last zxid in it.
    pub zxid: i64,
    /// Wall clock of the server, ms since the epoch.
    pub wall_ms: i64,
    /// Directories with contenders, in order of their paths.
    pub directories: Vec<Directory>,
    /// The sessions of those, or all; in order of their ids.
    pub sessions: Vec<Session>,
    /// What this server alone knows.
    pub local: Local,
    /// Something was left out, for there was too much.
    pub is_cut: bool,
    /// Whether an ensemble of ZooKeeper is followed, at which clients may be.
    pub follows: bool,
}

/// A session, as all servers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: i64,
    /// Its timeout, ms.
    pub timeout_ms: i32,
    /// How many ephemerals it owns; `None` if there are too many to count.
    pub ephemerals: Option<u64>,
}

/// A znode with children of which at least one is a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its path.
    pub path: String,
    /// The number of the next sequential child.
    pub next: i32,
    /// What its data say, if they are a decimal number: kazoo's semaphore keeps its limit there.
    pub limit: Option<u32>,
    /// The contenders, in the order of the queue.
    pub contenders: Vec<Znode>,
    /// How many more there are behind them.
    pub hidden: u64,
    /// Children that are none.
    pub strangers: u64,
    /// The names of some of them.
    pub stranger_names: Vec<String>,
    /// Contenders that have left lately, oldest first.
    pub departures: Vec<Departure>,
    /// Of all that left later than this, none is missing there; ms since the epoch.
    pub known_since_ms: i64,
}

/// The end of a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Last component of its path.
    pub name: String,
    /// Its number.
    pub sequence: i32,
    /// Its session; 0 of one that was not ephemeral.
    pub session: i64,
    /// The zxid of its creation: the fencing token, if it held the lock.
    pub czxid: i64,
    /// When it was created, by the leader's wall clock, ms since the epoch.
    pub ctime_ms: i64,
    /// When it ended, in the same way.
    pub time_ms: i64,
    /// How.
    pub end: End,
}

/// How a contender ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its own session deleted it.
    Released,
    /// Another session deleted it.
    Removed,
    /// Its client closed the session.
    SessionClosed,
    /// Its session was not heard from in time.
    SessionExpired,
    /// The servers removed it: its time to live was over.
    Reaped,
}

impl End {
    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Removed => "removed",
            Self::SessionClosed => "session-closed",
            Self::SessionExpired => "session-expired",
            Self::Reaped => "reaped",
        }
    }
}

/// A contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Znode {
    /// Last component of its path.
    pub name: String,
    /// Its data, if they are a text that everybody may read.
    pub identity: Option<String>,
    /// Its session; 0 for a znode that is not ephemeral.
    pub session: i64,
    /// The zxid of its creation: the fencing token.
    pub czxid: i64,
    /// The leader's wall clock at its creation, ms since the epoch.
    pub ctime_ms: i64,
    /// How often its data were changed.
    pub version: i32,
}

/// A child as the tree has it.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// Last component of its path.
    pub name: &'a str,
    /// Its data; `None` if there are none, or not for everybody.
    pub data: Option<&'a [u8]>,
    /// Its session; 0 for a znode that is not ephemeral.
    pub session: i64,
    /// See [`Znode`].
    pub czxid: i64,
    /// See [`Znode`].
    pub ctime_ms: i64,
    /// See [`Znode`].
    pub version: i32,
}

impl Directory {
    /// One without contenders.
    #[must_use]
    pub fn empty(path: &str, next: i32) -> Self {
        Self {
            path: path.to_owned(),
            next,
            limit: None,
            contenders: Vec::new(),
            hidden: 0,
            strangers: 0,
            stranger_names: Vec::new(),
            departures: Vec::new(),
            known_since_ms: i64::MAX,
        }
    }

    /// From the children of a znode, in any order; at most `room` contenders are taken, which are
    /// those that come first in the queue. `None`: there is no contender.
    #[must_use]
    pub fn of<'a>(
        path: &str,
        next: i32,
        data: Option<&[u8]>,
        children: impl Iterator<Item = Child<'a>>,
        room: usize,
    ) -> Option<Self> {
        let limit = data.and_then(|data| std::str::from_utf8(data).ok()?.trim().parse().ok());
        let mut strangers = Vec::new();
        let mut stranger_count = 0;
        let mut ranked = Vec::new();
        for child in children {
            match Species::of(child.name) {
                Some((Species::KazooLease, _)) if limit.is_none() => {}
                // Items of queues are called like that, too.
                Some((Species::Simple | Species::Party | Species::Named { .. }, _))
                    if child.session == 0 => {}
                Some((species, number)) => {
                    // A number that the counter has not come to is none of it.
                    let rank = number.map_or(i32::MIN, |number| number.wrapping_sub(next));
                    if rank < 0 || !matches!(species, Species::Named { .. }) {
                        ranked.push((rank, child));
                        continue;
                    }
                }
                None => {}
            }
            stranger_count += 1;
            if strangers.len() < STRANGERS_MAX {
                strangers.push(child.name.to_owned());
            }
        }
        if ranked.is_empty() {
            return None;
        }
        ranked.sort_by_key(|(rank, child)| (*rank, child.czxid, child.name));
        let hidden = ranked.len().saturating_sub(room) as u64;
        let contenders = ranked.into_iter().take(room).map(|(_, child)| Znode::of(&child));
        Some(Self {
            limit,
            contenders: contenders.collect(),
            hidden,
            strangers: stranger_count,
            stranger_names: strangers,
            ..Self::empty(path, next)
        })
    }

    /// Since when the first of the contenders, or one of those who share, has been where it is: its own
    /// creation, or the end of the last one that was in front of it. `None`: no server has seen that.
    #[must_use]
    pub fn first_since_ms(&self, znode: &Znode) -> Option<i64> {
        let (_, sequence) = Species::of(&znode.name)?;
        let sequence = sequence.unwrap_or(self.next);
        let in_front = |left: &&Departure| {
            left.sequence.wrapping_sub(self.next) < sequence.wrapping_sub(self.next)
        };
        let last = self.departures.iter().filter(in_front).map(|left| left.time_ms).max();
        match last {
            Some(time_ms) => Some(time_ms.max(znode.ctime_ms)),
            None => (znode.ctime_ms > self.known_since_ms).then_some(znode.ctime_ms),
        }
    }

    /// The path of a child.
    #[must_use]
    pub fn child(&self, name: &str) -> String {
        join(&self.path, name)
    }
}

impl Znode {
    fn of(child: &Child<'_>) -> Self {
        let Child { name, data, session, czxid, ctime_ms, version } = *child;
        let identity = data.and_then(identity);
        Self { name: name.to_owned(), identity, session, czxid, ctime_ms, version }
    }
}

/// The path of a child.
#[must_use]
pub fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// Data as a text to be shown: at most so much of it, and nothing that a terminal might take for a
/// command. `None` if they are no text, or empty.
fn identity(data: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(data) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() >= IDENTITY_BYTES_MAX => {
            std::str::from_utf8(&data[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let mut shown = String::new();
    for character in text.chars() {
        if shown.len() + character.len_utf8() > IDENTITY_BYTES_MAX {
            break;
        }
        match character {
            '\n' | '\r' | '\t' => shown.push(' '),
            _ if character.is_control() => return None,
            _ => shown.push(character),
        }
    }
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}

/// What one server alone knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Sessions that are connected to it, or whose deadline it keeps.
    pub sessions: Vec<Standing>,
    /// Watches on the directories and contenders asked for.
    pub watches: Vec<Watch>,
    /// Something was left out, for there was too much.
    pub is_cut: bool,
}

/// How a session stands with one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its id.
    pub id: i64,
    /// Its connection; `None` if it has none here.
    pub connection: Option<Connection>,
    /// Milliseconds until it expires unless heard from; `None` where that is not decided.
    pub expires_in_ms: Option<u64>,
}

/// A session's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// `ip:port`.
    pub remote: String,
    /// Milliseconds since something came from it.
    pub heard_ms: u64,
    /// Its watches, on whatever.
    pub watches: u64,
}

/// A session wants to know of something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watch {
    /// Whose it is.
    pub session: i64,
    /// On what.
    pub path: String,
    /// For what.
    pub kind: WatchKind,
}

/// What a watch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchKind {
    /// The znode itself: its data, its end.
    Data,
    /// Its list of children.
    Children,
    /// Both, again and again.
    Persistent,
    /// The znode with everything below it, again and again.
    Recursive,
}

impl WatchKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Data, Self::Children, Self::Persistent, Self::Recursive];

    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Children => "children",
            Self::Persistent => "persistent",
            Self::Recursive => "recursive",
        }
    }
}
