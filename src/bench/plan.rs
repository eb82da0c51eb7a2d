//! What a run asks of which servers.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use super::access::Access;

/// Bytes of data in every znode unless said otherwise.
const SIZE: usize = 100;
/// The znode below which a run works unless said otherwise.
const ROOT: &str = "/bench";

/// Connections of one run at most.
pub const CONNECTIONS_MAX: usize = 20_000;
/// Requests in flight per connection at most.
pub const DEPTH_MAX: usize = 100_000;
/// Threads of one run at most.
pub const THREADS_MAX: usize = 64;

/// The workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Reads the connection's own znode.
    Get,
    /// Sets the connection's own znode.
    Set,
    /// Seven reads to three sets of the connection's own znode.
    Mixed,
    /// Sets the connection's own znode in a transaction that checks its version.
    Multi,
    /// Creates numbered znodes, in order.
    Create,
    /// Deletes the numbered znodes, the last one first.
    Delete,
    /// Creates numbered znodes, and in turn deletes each when [`super::CHURN_LAG`] more are there, so
    /// that they do not get more.
    Churn,
    /// Reads the numbered znodes, in order.
    ReadBack,
    /// Takes and releases a lock of the connection's own.
    Lock,
    /// Takes and releases the one lock for which all connections contend, each watching the
    /// contender before it.
    Contended,
    /// The same with everybody watching the whole directory, which is how not to do it.
    Herd,
    /// One connection sets a znode, all others watch it; an operation is a notification.
    Watches,
}

impl Work {
    /// All of them, with their names.
    const NAMES: [(Work, &'static str); 12] = [
        (Work::Get, "get"),
        (Work::Set, "set"),
        (Work::Mixed, "mixed"),
        (Work::Multi, "multi"),
        (Work::Create, "create"),
        (Work::Delete, "delete"),
        (Work::Churn, "churn"),
        (Work::ReadBack, "read-back"),
        (Work::Lock, "lock"),
        (Work::Contended, "contended"),
        (Work::Herd, "herd"),
        (Work::Watches, "watches"),
    ];

    /// As it is written on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let (_, name) =
            Self::NAMES.iter().find(|(work, _)| *work == self).expect("each of them is listed");
        name
    }

    /// Whether its operations are lock cycles, of which a connection does one at a time.
    #[must_use]
    pub fn locks(self) -> bool {
        self == Work::Lock || self.contends()
    }

    /// Whether a connection does one thing at a time, because it depends on what is answered.
    #[must_use]
    pub fn is_stepwise(self) -> bool {
        self.locks() || self == Work::Watches
    }

    /// Whether several threads can put the load on together. The connection that changes a watched
    /// znode waits for all others, so they are on its thread.
    #[must_use]
    pub fn spreads(self) -> bool {
        self != Work::Watches
    }

    /// Whether all connections want the same lock.
    #[must_use]
    pub fn contends(self) -> bool {
        matches!(self, Work::Contended | Work::Herd)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(work, _)| *work).ok_or_else(|| {
            let names: Vec<&str> = Self::NAMES.iter().map(|(_, name)| *name).collect();
            format!("{text}: no such workload; there are {}", names.join(", "))
        })
    }
}

/// How long a run is.
#[derive(Clone, Debug)]
pub enum Length {
    /// Unmeasured warm-up, then the measured window.
    Timed {
        /// Load that is not measured.
        warm_up: Duration,
        /// Load that is.
        window: Duration,
    },
    /// So many requests on each connection, all measured.
    Counted(Vec<u64>),
}

/// Whether a run goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// It does.
    On,
    /// It ends now, with the figures it has.
    Stop,
}

/// What to ask of which servers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers; connections go to them in turn. At least one.
    pub addrs: Vec<SocketAddr>,
    /// The servers' processes, for CPU time and memory; may be empty.
    pub pids: Vec<u32>,
    /// Sessions, from 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Requests in flight on each, from 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// Threads that the connections are spread over, from 1 to [`THREADS_MAX`]; no more are started
    /// than there are connections, and one if the work does not spread.
    pub threads: usize,
    /// What they do.
    pub work: Work,
    /// For how long.
    pub length: Length,
    /// The znode below which everything is made.
    pub root: String,
    /// Name of the znode below the root that takes the numbered znodes and the locks, with one child
    /// per connection.
    pub room: String,
    /// Get, set and mixed go to so many numbered znodes of each connection, in scattered order,
    /// instead of to its own; a run of `create` by as many connections in the same room must have
    /// made them.
    pub scatter: Option<u64>,
    /// Bytes of data in every znode.
    pub size: usize,
    /// Operations per second that all connections together begin, whether or not earlier ones are
    /// answered; without it each begins one when it has fewer than `depth` in flight.
    pub rate: Option<f64>,
    /// How long a lock is held.
    pub hold: Duration,
    /// How servers let every session in.
    pub access: Access,
    /// Whether to ask the servers how many events they have sent (`mntr`).
    pub asks_counts: bool,
}

impl Plan {
    /// `connections` sessions at `addrs`, each with `depth` requests of `work` in flight.
    #[must_use]
    pub fn new(addrs: Vec<SocketAddr>, work: Work, connections: usize, depth: usize) -> Self {
        let second = Duration::from_secs(1);
        Plan {
            addrs,
            pids: Vec::new(),
            connections,
            depth,
            threads: 1,
            work,
            length: Length::Timed { warm_up: second, window: 5 * second },
            root: ROOT.to_owned(),
            room: format!("run-{}", std::process::id()),
            scatter: None,
            size: SIZE,
            rate: None,
            hold: Duration::ZERO,
            access: Access::default(),
            asks_counts: work.contends(),
        }
    }

    /// The znode in which the run's numbered znodes and locks are.
    pub(super) fn room_path(&self) -> String {
        format!("{}/{}", self.root, self.room)
    }

    /// The znode of a connection: the one it reads and sets, and below which its numbered znodes or
    /// its lock are.
    pub(super) fn below_path(&self, connection: usize) -> String {
        below_path(&self.room_path(), connection)
    }
}

/// The znode of a connection in a room.
#[must_use]
pub fn below_path(room_path: &str, connection: usize) -> String {
    format!("{room_path}/c{connection:05}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_a_name_that_is_read_back() {
        for (work, name) in Work::NAMES {
            assert_eq!((name.parse(), work.name()), (Ok(work), name));
        }
        let error = "contented".parse::<Work>().expect_err("no workload");
        assert!(error.contains("contended"), "{error}");
    }
}
