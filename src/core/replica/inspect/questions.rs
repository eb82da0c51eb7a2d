//! Operators' questions, and what a replica shows of itself.
//!
//! *Owns* [`Status`], the few figures that are published all the time, and [`Inspect`]/[`Report`],
//! questions that cost as much as there is to show and are only answered when asked.

use super::znode::{ZnodeQuestion, ZnodeReport};
use crate::locks::{Scope, Snapshot};
use crate::replica::request::ConnId;
use crate::tree::Rules;

/// What this server is in its ensemble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mode {
    /// Not serving: no leader known, or still recovering.
    #[default]
    Looking,
    Standalone,
    Leader,
    Follower,
    Observer,
    ReadOnly,
}

impl Mode {
    /// ZooKeeper's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Looking => "looking",
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Observer => "observer",
            Self::ReadOnly => "read-only",
        }
    }
}

/// Number, sum and extremes of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Sum in microseconds.
    pub sum_us: u64,
    /// Shortest in microseconds, 0 while `count` is 0.
    pub min_us: u64,
    /// Longest in microseconds.
    pub max_us: u64,
}

impl Latency {
    /// Counts one.
    pub fn record(&mut self, us: u64) {
        self.min_us = if self.count == 0 { us } else { self.min_us.min(us) };
        self.max_us = self.max_us.max(us);
        self.count += 1;
        self.sum_us += us;
    }

    /// Mean in milliseconds, 0 while there is none.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_us as f64 / self.count as f64 / 1000.0 }
    }
}

/// Figures of a replica, cheap to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether requests are answered.
    pub serving: bool,
    /// A live migration from ZooKeeper; `None`: there is none.
    pub migration: Option<MigrationFigures>,
    /// Role.
    pub mode: Mode,
    /// Last applied zxid.
    pub zxid: i64,
    /// Version of the ensemble: which formats its servers write (`machine/version.rs`).
    pub ensemble_version: u8,
    /// Servers whose state is known to differ from that of a majority: ids.
    pub differing: Vec<u8>,
    /// Comparisons in which this server's state was that of a majority, since the start.
    pub comparisons_agreed: u64,
    /// Passes of the scrub that are complete, since the start.
    pub scrubs: u64,
    /// Rules that the leader has stamped into the last entry; `None`: it carried none.
    pub leader_rules: Option<Rules>,
    /// Raft term.
    pub term: u64,
    /// The vote of this server counts, before a change of members or behind it.
    pub votes: bool,
    /// Last applied log index.
    pub applied: u64,
    /// Last index that is durable here.
    pub persisted: u64,
    /// How long the log's disk has finished nothing while something waits for it, ms.
    pub disk_waits_ms: u64,
    /// Whether that is as long as it may take at most, or clients were sent away for it.
    pub is_disk_hung: bool,
    /// Times since the start that this server handed its leadership over because its disk hung.
    pub disk_handovers: u64,
    /// By how much the stamp of the last transaction is ahead of the wall clock of this server, ms; 0 while it
    /// does not lead.
    pub stamps_ahead_ms: u64,
    /// That is more than stamps may be ahead, and they stay as they are, because no majority agrees with
    /// this leader's clock.
    pub time_stands_still: bool,
    /// Times since the start that stamps went back, because those before were too far ahead.
    pub time_returns: u64,
    /// By how much they did the last time, ms.
    pub time_returned_ms: u64,
    /// Number of znodes as ZooKeeper counts them (the root twice).
    pub znode_count: u64,
    /// Ephemeral znodes.
    pub ephemerals_count: u64,
    /// Bytes of paths and data.
    pub approximate_data_size: u64,
    /// Registered watches.
    pub watch_count: u64,
    /// Connections with a session.
    pub connections: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Requests received and not answered yet.
    pub outstanding: u64,
    /// Reads answered since the start.
    pub reads_answered: u64,
    /// Answers that waited because a turn had no room for their reads.
    pub answers_postponed: u64,
    /// Estimated work of requests and transactions, in milliseconds of one core.
    pub work_ms: u64,
    /// Writes answered since the start.
    pub writes_answered: u64,
    /// Times since the start that a write was applied and requests of its connection waited behind it.
    pub queues_drained: u64,
    /// Transactions applied since the start.
    pub txns_applied: u64,
    /// Entries proposed since the start.
    pub proposals: u64,
    /// Those of them that are not applied yet; 0 while this server does not lead.
    pub proposals_unapplied: u64,
    /// Entries taken from a leader since the start.
    pub entries_received: u64,
    /// Entries that became committed since the start while another server led.
    pub commits_received: u64,
    /// Clients that came with a session to this server since the start.
    pub sessions_revalidated: u64,
    /// Sessions that were given to a connection while this server led, since the start.
    pub revalidations_led: u64,
    /// Contenders of locks that left while this server led, whose times are not known, since the start.
    pub lock_stays_unmeasured: u64,
    /// Sessions expired since the start.
    pub sessions_expired: u64,
    /// Connections refused because their zxid was ahead, their session gone or similar.
    pub connections_refused: u64,
    /// Auth packets that failed.
    pub auth_failed: u64,
    /// Events fired, by `EventType` (created, deleted, changed, children).
    pub events_fired: [u64; 4],
    /// Bytes of events sent.
    pub watch_bytes: u64,
    /// Digest of the state.
    pub digest: u128,
    /// Records that changed and were not handed to the disk yet.
    pub changes_waiting: u64,
    /// Server id of the leader that this server knows; `None` without one and standalone.
    pub leader: Option<u8>,
    /// Elections that this server stood in or voted in since the start.
    pub election_count: u64,
    /// Times since the start that this server learned of another leader than before.
    pub leader_changes: u64,
    /// Messages of other servers that were dropped, because they cannot be true or their term is too far
    /// above this server's.
    pub peer_messages_dropped: u64,
    /// How long this server has been the leader, ms; `None` while it is not.
    pub leading_ms: Option<u64>,
    /// Requests handed on to the leader since the start.
    pub forwarded: u64,
    /// Sessions of read-only mode, which no other server knows.
    pub local_sessions: u64,
    /// Requests `sync`, and linearizable reads, that wait until a majority has confirmed who leads.
    pub pending_syncs: u64,
    /// Sizes of proposed entries; `None` before the first.
    pub proposal_sizes: Option<ProposalSizes>,
    /// Servers that are meant to vote; 0 standalone, and while this one does not know them.
    pub participants: u64,
    /// The other servers, in order of their ids. Empty standalone; only the leader knows of each
    /// whether it is synced.
    pub peers: Vec<PeerStatus>,
}

/// Another server of the ensemble, as this one sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its server id (`myid`).
    pub server: u8,
    /// It has a vote, for good: a participant that has caught up.
    pub votes: bool,
    /// It is an observer: it never gets a vote.
    pub is_observer: bool,
    /// There is a link to it.
    pub is_connected: bool,
    /// It follows this leader's log closely, and knows who votes: if all do, any one of them may be
    /// lost. False on a server that does not lead.
    pub is_synced: bool,
    /// Entries that are committed and that it is not known to have; `None` on a server that does not lead.
    pub behind: Option<u64>,
    /// By how much its wall clock is ahead of this leader's, ms; `None` on a server that does not lead, or has
    /// not heard from it lately.
    pub clock_skew_ms: Option<i64>,
}

/// Who leads and who keeps up, as one server sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standings {
    /// There are other servers, or places for them.
    pub is_ensemble: bool,
    /// Server id of the leader that this server knows.
    pub leader: Option<u8>,
    /// This server leads, and serves: what is said of the others is up to date.
    pub leads: bool,
    /// The other members, in order of their ids.
    pub peers: Vec<PeerStatus>,
}

/// Sizes of proposed entries, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ProposalSizes {
    pub last: u64,
    pub min: u64,
    pub max: u64,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// `cons`, `stat`.
    Connections,
    /// `dump`, first part.
    Sessions,
    /// `dump`, second part.
    Ephemerals,
    /// `wchc`, `wchp`.
    Watches,
    /// `wchs`: the same without who watches what.
    WatchSummary,
    /// `hash`.
    Digests,
    /// `voting_view` and `conf`: who is in the ensemble.
    Membership,
    /// `/pre_stop`: who leads, and who keeps up.
    Standings,
    /// Locks, or sessions, and what this server alone knows of them.
    Locks(Scope),
    /// Who has left the locks in a directory lately, as far as this server knows.
    Departures(String),
    /// A znode, for people who browse the tree.
    Znode(ZnodeQuestion),
    /// How much is read and written below each znode of the root.
    Namespaces,
    /// Up to where this server must have applied the log so that a state of it shows all that was acknowledged before
    /// the question: answered once it has. Not answered while no majority confirms who leads.
    Synced,
    /// How far a live migration has come.
    Migration,
    /// `crst`.
    ResetConnections,
    /// `srst`.
    ResetServer,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// One element per connection that has finished or begun its handshake.
    Connections(Vec<ConnectionReport>),
    /// Every session.
    Sessions(Vec<SessionReport>),
    /// Session and its ephemeral znodes, in order of session and path.
    Ephemerals(Vec<(i64, Vec<String>)>),
    /// Every registration.
    Watches(WatchReport),
    /// (zxid, ZooKeeper's tree digest), oldest first.
    Digests(Vec<(i64, u64)>),
    /// The text of `/zookeeper/config`: a `server.N` line for each member, then the version.
    Membership(String),
    /// As this server sees it.
    Standings(Standings),
    /// What there is of locks.
    Locks(Box<Snapshot>),
    /// That znode; `None` if it is not there.
    Znode(Option<Box<ZnodeReport>>),
    /// One element for each znode of the root with anything that was read or written, in order of names.
    Namespaces(Vec<NamespaceReport>),
    /// The zxid of the last transaction that is applied.
    Synced(i64),
    /// How far a live migration has come.
    Migration(Box<MigrationReport>),
    /// What came of `Input::Migrate`: of a cutover, the zxid with which this ensemble goes on.
    Migrated(Result<String, String>),
    /// Done.
    Reset,
}

/// What is counted of a live migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationFigures {
    /// The phase.
    pub state: &'static str,
    /// zxid of ZooKeeper's last transaction here.
    pub foreign_zxid: i64,
    /// How many transactions were compared with ZooKeeper's digest.
    pub compared: u64,
    /// A copy that is being made.
    pub copy: Option<CopyReport>,
    /// What only the server that leads knows.
    pub of_leader: Option<MigrationLink>,
}

/// What the leader knows of the link with ZooKeeper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationLink {
    /// There is one, and everything has come that was there when it was made.
    pub is_current: bool,
    /// Requests that ZooKeeper has and that are not answered.
    pub requests_waiting: u64,
    /// What clients of ZooKeeper did after the cutover, since this server leads.
    pub alarms: u64,
}

/// In an answer to an order of a live migration that may have been carried out, or may yet be.
pub const MIGRATION_UNKNOWN: &str = "whether it was done, `lockkeeper migrate status` says";

/// A live migration, as one server sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// The phase; `None`: there is no migration.
    pub state: Option<&'static str>,
    /// Why it is not further, if it is not.
    pub why: String,
    /// zxid of ZooKeeper's last transaction here.
    pub foreign_zxid: i64,
    /// ZooKeeper's epoch, as its leader has said last.
    pub epoch: i64,
    /// How many transactions were compared with ZooKeeper's digest.
    pub compared: u64,
    /// The last one of them.
    pub compared_zxid: i64,
    /// A copy that is being made.
    pub copy: Option<CopyReport>,
    /// Sessions that ZooKeeper has ended since this ensemble follows, because it did not hear from their clients.
    pub expired: u64,
    /// The last one of them; 0: none.
    pub expired_last: i64,
    /// Bytes of the data of the largest znode that the copy began with.
    pub largest: u64,
    /// Differences that an operator should look at before the cutover.
    pub notes: Vec<String>,
    /// As which server of ZooKeeper this ensemble joins.
    pub server_id: u8,
    /// Where a leader of ZooKeeper is looked for besides its configuration.
    pub quorum: Vec<String>,
    /// Where clients may reach ZooKeeper besides what its configuration says.
    pub clients: Vec<String>,
    /// Whether there is nothing but what the ensemble itself has written.
    pub is_unused: bool,
    /// Last applied zxid.
    pub zxid: i64,
    /// Whether this server leads.
    pub leads: bool,
    /// Who does.
    pub leader: Option<u8>,
    /// Open sessions.
    pub sessions: u64,
    /// Those of them that were never connected here.
    pub sessions_elsewhere: u64,
    /// With which leader of ZooKeeper this server is linked.
    pub linked_with: Option<String>,
    /// Whether everything has come that was there when the link was made.
    pub is_current: bool,
    /// Requests that ZooKeeper has and that are not answered.
    pub requests_waiting: u64,
    /// What clients of ZooKeeper did after the cutover, since this server leads.
    pub alarms: u64,
}

/// How far a copy of ZooKeeper's state has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Znodes that have come.
    pub znodes: u64,
    /// Bytes of ZooKeeper's snapshot that have come.
    pub bytes: u64,
    /// How many copies this server has begun since it leads, this one included; 0: it does not lead.
    pub attempt: u64,
    /// Time for which it is being made, milliseconds.
    pub since_ms: u64,
    /// Cause of its waiting; empty at a server that does not lead.
    pub waits_for: &'static str,
}

impl CopyReport {
    /// Says it in words.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { znodes, bytes, attempt, since_ms, waits_for } = *self;
        let come = format!("copy has {znodes} znodes so far ({} MiB", bytes >> 20);
        if attempt == 0 {
            return come + ")";
        }
        let rate = znodes * 1000 / since_ms.max(1);
        format!("{come}, {rate} znodes/s), attempt {attempt}, and waits for {waits_for}")
    }
}

/// What was read and written below a znode of the root, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceReport {
    /// Its name, without the slash; empty for the root itself. `/others` for those that came when there were many.
    pub name: String,
    /// Bytes of each answer to a read of this server's clients.
    pub reads: Volume,
    /// Bytes of each transaction of a client that was applied.
    pub writes: Volume,
}

/// Number, sum and extremes of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// How many were counted.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The smallest, 0 while `count` is 0.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl Volume {
    /// Counts one.
    pub fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += value;
    }
}

/// A connection as `cons` shows it.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct ConnectionReport {
    pub conn: ConnId,
    /// `ip:port`, an IPv6 address in brackets: as `SocketAddr` is displayed.
    pub remote: String,
    pub queued: u64,
    pub received: u64,
    pub sent: u64,
    /// `None` until the handshake is through.
    pub session: Option<i64>,
    /// Last operation, as four letters.
    pub last_op: &'static str,
    /// Milliseconds since the epoch.
    pub established_ms: i64,
    pub timeout_ms: i32,
    pub last_cxid: i32,
    pub last_zxid: i64,
    /// Monotonic milliseconds.
    pub last_response_ms: u64,
    pub last_latency_ms: u64,
    pub latency: Latency,
    /// Estimated work of its reads and of what its transactions did, in microseconds of one core.
    pub work_us: u64,
}

/// A session as `dump` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SessionReport {
    pub id: i64,
    pub timeout_ms: i32,
    /// Milliseconds until it expires unless heard from; `None` where it is not tracked.
    pub expires_in_ms: Option<u64>,
    pub connected: bool,
}

/// All watches of this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Connections that have at least one watch.
    pub connections: u64,
    /// Distinct watched paths.
    pub paths: u64,
    /// Registrations.
    pub total: u64,
    /// Session and its paths (data watches and persistent ones, as ZooKeeper's words show).
    pub by_session: Vec<(i64, Vec<String>)>,
}
