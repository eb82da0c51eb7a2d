//! The raw figures of a comparison, as they are kept in a file: every round of every server.
//!
//! Tables and charts are made of nothing else, so they can be made again without measuring. A ratio is
//! the median of the ratios within the rounds, never a ratio of medians.

use lockkeeper::internals::bench::{Outcome, ThreadCpu, milliseconds};
use serde::{Deserialize, Serialize};

use crate::mode::Mode;
use crate::stolen::Repeats;

/// What everything is compared with.
pub const REFERENCE: &str = "zookeeper";

/// What was measured on what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Site {
    /// Processors, kernel, file system.
    pub machine: String,
    /// The commit that the benchmark was built from.
    pub commit: String,
}

/// Some files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    pub files: u64,
    /// As allocated on the disk.
    pub mib: f64,
}

/// One measurement: one peer, one mode, one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub server_cpu_us: f64,
    /// Of these, those of the threads by name, the most first; earlier runs did not ask.
    #[serde(default)]
    pub threads: Vec<ThreadCell>,
    pub client_cpu_us: f64,
    pub rss_mib: f64,
    /// CPU seconds per second that neither the peer nor the client used.
    pub other_cpu: f64,
    /// CPU seconds per second that a virtual machine's host gave to others; earlier runs did not ask.
    pub stolen_cpu: Option<f64>,
    pub lock: Option<LockCell>,
}

/// What threads of one name have used, in microseconds per operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadCell {
    pub name: String,
    /// In all servers together.
    pub us: f64,
    /// In the server in which they have used the most.
    pub busiest_us: f64,
}

/// What a measurement of locks has beside that.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockCell {
    pub acquire_p50_ms: f64,
    pub acquire_p99_ms: f64,
    /// From a release to the next holder, if somebody waited for one.
    pub handoff_p50_ms: Option<f64>,
    pub handoff_p99_ms: Option<f64>,
    /// Watch events per release that the clients have received, where there are any.
    pub events_per_release: Option<f64>,
    /// The same by the servers' own count, if they say.
    pub server_events_per_release: Option<f64>,
    /// How often a lock was tried to be had once, where there is no queue.
    pub tries: Option<f64>,
}

/// A peer by its short name, and what exactly it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerName {
    pub name: String,
    pub description: String,
}

/// What one mode has come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModeFigures {
    pub mode: Mode,
    /// Operations per second that were offered to every peer, if not as many as it takes.
    pub offered: Option<f64>,
    /// Per peer, in the order of [`Comparison::peers`], a cell for each round; none if the peer
    /// cannot do it.
    pub cells: Vec<Vec<Cell>>,
}

/// A whole comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub site: Site,
    /// Servers of each kind.
    pub servers: u16,
    pub peers: Vec<PeerName>,
    pub rounds: usize,
    pub window_ms: u64,
    /// What was offered, as a share of the most that the first of the references does.
    pub share: Option<f64>,
    /// Whether windows that the host spoilt were measured again.
    pub repeats: Option<Repeats>,
    pub modes: Vec<ModeFigures>,
    /// Disk probes between the measurements: durable appends per second.
    pub durable_appends_per_second: Vec<f64>,
}

impl From<&Outcome> for Cell {
    fn from(outcome: &Outcome) -> Self {
        Cell {
            per_second: outcome.per_second(),
            p50_ms: milliseconds(&outcome.latencies, 0.5),
            p99_ms: milliseconds(&outcome.latencies, 0.99),
            p999_ms: milliseconds(&outcome.latencies, 0.999),
            max_ms: milliseconds(&outcome.latencies, 1.0),
            server_cpu_us: outcome.server_us(),
            threads: outcome
                .server_threads
                .iter()
                .map(|cpu| ThreadCell::of(cpu, outcome))
                .collect(),
            client_cpu_us: outcome.client_us(),
            rss_mib: outcome.server_rss_mib,
            other_cpu: outcome.other_cpu / outcome.seconds,
            stolen_cpu: Some(outcome.stolen_cpu / outcome.seconds),
            lock: LockCell::of(outcome),
        }
    }
}

impl Cell {
    /// Itself, unless nothing was done in its window: then its latencies are those of nothing.
    pub fn measured(self) -> Result<Self, String> {
        match self.per_second > 0.0 {
            true => Ok(self),
            false => Err("has done nothing in a window".to_owned()),
        }
    }
}

impl ThreadCell {
    fn of(cpu: &ThreadCpu, outcome: &Outcome) -> Self {
        let (us, busiest_us) = (outcome.us(cpu.seconds), outcome.us(cpu.busiest));
        ThreadCell { name: cpu.name.clone(), us, busiest_us }
    }
}

impl LockCell {
    fn of(outcome: &Outcome) -> Option<Self> {
        let contention = outcome.contention.as_ref()?;
        let handoffs = Some(&contention.handoffs).filter(|handoffs| !handoffs.is_empty());
        let handoff_ms = |quantile| handoffs.map(|handoffs| milliseconds(handoffs, quantile));
        Some(LockCell {
            acquire_p50_ms: milliseconds(&contention.acquires, 0.5),
            acquire_p99_ms: milliseconds(&contention.acquires, 0.99),
            handoff_p50_ms: handoff_ms(0.5),
            handoff_p99_ms: handoff_ms(0.99),
            events_per_release: outcome.events_per_release(),
            server_events_per_release: contention.server_events_per_release(),
            tries: None,
        })
    }
}

impl Comparison {
    /// The peer whose most is what others are offered a share of: ZooKeeper, or else the first one.
    pub fn reference(&self) -> usize {
        self.peer(REFERENCE).unwrap_or(0)
    }

    /// The place of a peer.
    pub fn peer(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer.name == name)
    }
}

/// Per round, one peer's figure divided by another's.
pub fn ratios(these: &[Cell], those: &[Cell], figure: fn(&Cell) -> f64) -> Vec<f64> {
    these.iter().zip(those).map(|(a, b)| figure(a) / figure(b)).collect()
}

/// The middle of some values, and the least and the most of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of no values, it is no number.
    pub fn of(values: &[f64]) -> Self {
        Spread {
            median: median(values),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// `median (min-max)` with so many digits behind the point.
    pub fn show(self, digits: usize) -> String {
        let Spread { median, least, most } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }
}

/// The middle one of some values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}
