//! The comparison's figures and how they are shown: a Markdown table, and JSON with every round.
//!
//! A ratio is the median of the ratios within the rounds, never a ratio of medians.

use std::fmt::Write;

use lockkeeper::bench::{Outcome, milliseconds};
use serde_json::{Value, json};

use crate::machine;
use crate::run::{Mode, Settings};

/// One measurement: one peer, one mode, one round.
#[derive(Clone)]
pub struct Cell {
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub server_us: f64,
    pub client_us: f64,
    pub rss_mib: f64,
    /// CPU seconds per second that neither the peer nor the client used.
    pub other_cpu: f64,
    pub lock: Option<LockCell>,
}

/// What a measurement of locks has beside that.
#[derive(Clone)]
pub struct LockCell {
    pub acquire_p50_ms: f64,
    pub acquire_p99_ms: f64,
    pub handoff_p50_ms: f64,
    pub handoff_p99_ms: f64,
    /// Watch events per release that the clients have received.
    pub events: f64,
    /// The same by the servers' own count, if they say.
    pub server_events: Option<f64>,
}

impl From<&Outcome> for Cell {
    fn from(outcome: &Outcome) -> Self {
        Cell {
            per_second: outcome.per_second(),
            p50_ms: outcome.latency_ms(0.5),
            p99_ms: outcome.latency_ms(0.99),
            p999_ms: outcome.latency_ms(0.999),
            max_ms: outcome.latency_ms(1.0),
            server_us: outcome.server_us(),
            client_us: outcome.client_us(),
            rss_mib: outcome.server_rss_mib,
            other_cpu: outcome.other_cpu / outcome.seconds,
            lock: LockCell::of(outcome),
        }
    }
}

impl LockCell {
    fn of(outcome: &Outcome) -> Option<Self> {
        let contention = outcome.contention.as_ref()?;
        Some(LockCell {
            acquire_p50_ms: milliseconds(&contention.acquires, 0.5),
            acquire_p99_ms: milliseconds(&contention.acquires, 0.99),
            handoff_p50_ms: milliseconds(&contention.handoffs, 0.5),
            handoff_p99_ms: milliseconds(&contention.handoffs, 0.99),
            events: outcome.events_per_release()?,
            server_events: contention.server_events_per_release(),
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "acquire_p50_ms": self.acquire_p50_ms, "acquire_p99_ms": self.acquire_p99_ms,
            "handoff_p50_ms": self.handoff_p50_ms, "handoff_p99_ms": self.handoff_p99_ms,
            "events_per_release": self.events, "server_events_per_release": self.server_events,
        })
    }
}

impl Cell {
    pub fn to_json(&self) -> Value {
        json!({
            "per_second": self.per_second, "p50_ms": self.p50_ms, "p99_ms": self.p99_ms,
            "p999_ms": self.p999_ms, "max_ms": self.max_ms, "server_cpu_us": self.server_us,
            "client_cpu_us": self.client_us, "rss_mib": self.rss_mib, "other_cpu": self.other_cpu,
            "lock": self.lock.as_ref().map(LockCell::to_json),
        })
    }
}

pub struct Report {
    machine: String,
    /// Name and description of each peer.
    peers: Vec<(&'static str, String)>,
    rounds: usize,
    window_ms: u128,
    /// Per mode, per peer, per round.
    cells: Vec<(Mode, Vec<Vec<Cell>>)>,
    /// Disk probes between the measurements: durable appends per second.
    pub syncs: Vec<f64>,
}

impl Report {
    pub fn new(settings: &Settings) -> Self {
        let peers = settings.kinds.iter().map(|kind| (kind.name(), kind.describe())).collect();
        let empty = vec![Vec::new(); settings.kinds.len()];
        Report {
            machine: machine::describe(&settings.data),
            peers,
            rounds: settings.rounds,
            window_ms: settings.window.as_millis(),
            cells: settings.modes.iter().map(|&mode| (mode, empty.clone())).collect(),
            syncs: Vec::new(),
        }
    }

    pub fn add(&mut self, mode: Mode, peer: usize, cell: Cell) {
        let (_, cells) = self
            .cells
            .iter_mut()
            .find(|(known, _)| known.name() == mode.name())
            .expect("only modes of the settings are measured");
        cells[peer].push(cell);
    }

    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        self.write_markdown(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_markdown(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}.", self.machine)?;
        writeln!(
            out,
            "{} rounds of {} ms; median (min-max); ratios are medians of the ratios within a \
             round. Disk: {} durable appends/s.\n",
            self.rounds,
            self.window_ms,
            spread(&self.syncs, 0)
        )?;
        for (name, description) in &self.peers {
            writeln!(out, "* {name}: {description}")?;
        }
        let against: Vec<usize> = self.references();
        write!(out, "\n| mode | server | ops/s | p50 ms | p99 ms | p99.9 ms | max ms ")?;
        write!(out, "| server CPU us/op | client CPU us/op | RSS MiB | other CPU s/s |")?;
        for &reference in &against {
            write!(out, " / {0} | CPU / {0} |", self.peers[reference].0)?;
        }
        writeln!(out, "\n|{}", "---|".repeat(11 + 2 * against.len()))?;
        for (mode, peers) in &self.cells {
            for (at, cells) in peers.iter().enumerate() {
                let all = |field: fn(&Cell) -> f64| cells.iter().map(field).collect::<Vec<_>>();
                write!(out, "| {} | {} ", mode.name(), self.peers[at].0)?;
                write!(out, "| {} ", spread(&all(|c| c.per_second), 0))?;
                write!(out, "| {:.2} ", median(&all(|c| c.p50_ms)))?;
                write!(out, "| {:.2} ", median(&all(|c| c.p99_ms)))?;
                write!(out, "| {:.2} ", median(&all(|c| c.p999_ms)))?;
                write!(out, "| {:.1} ", median(&all(|c| c.max_ms)))?;
                write!(out, "| {} ", spread(&all(|c| c.server_us), 2))?;
                write!(out, "| {:.2} ", median(&all(|c| c.client_us)))?;
                write!(out, "| {:.0} ", median(&all(|c| c.rss_mib)))?;
                write!(out, "| {:.2} |", median(&all(|c| c.other_cpu)))?;
                for &reference in &against {
                    let of = |field| ratio(cells, &peers[reference], field);
                    write!(out, " {:.2} | {:.2} |", of(|c| c.per_second), of(|c| c.server_us))?;
                }
                writeln!(out)?;
            }
        }
        self.write_contention(out)
    }

    /// A second table, of the modes in which all connections want one lock.
    fn write_contention(&self, out: &mut String) -> std::fmt::Result {
        let contended = self.cells.iter().filter(|(mode, _)| mode.work.contends());
        for (number, (mode, peers)) in contended.enumerate() {
            if number == 0 {
                write!(out, "\n| mode | server | hand-offs/s | acquire p50 ms | acquire p99 ms ")?;
                write!(out, "| release sent to next holds p50 ms | p99 ms ")?;
                writeln!(out, "| events per release, received | sent by the server's count |")?;
                writeln!(out, "|{}", "---|".repeat(9))?;
            }
            for (at, cells) in peers.iter().enumerate() {
                let rates: Vec<f64> = cells.iter().map(|c| c.per_second).collect();
                let locks: Vec<&LockCell> = cells.iter().filter_map(|c| c.lock.as_ref()).collect();
                let all = |field: fn(&LockCell) -> f64| -> Vec<f64> {
                    locks.iter().map(|lock| field(lock)).collect()
                };
                write!(out, "| {} | {} ", mode.name(), self.peers[at].0)?;
                write!(out, "| {} ", spread(&rates, 0))?;
                write!(out, "| {} ", spread(&all(|l| l.acquire_p50_ms), 0))?;
                write!(out, "| {} ", spread(&all(|l| l.acquire_p99_ms), 0))?;
                write!(out, "| {} ", spread(&all(|l| l.handoff_p50_ms), 2))?;
                write!(out, "| {} ", spread(&all(|l| l.handoff_p99_ms), 2))?;
                write!(out, "| {} ", spread(&all(|l| l.events), 3))?;
                let counted: Vec<f64> = locks.iter().filter_map(|l| l.server_events).collect();
                match counted.len() == locks.len() {
                    true => writeln!(out, "| {} |", spread(&counted, 3))?,
                    false => writeln!(out, "| not told |")?,
                }
            }
        }
        Ok(())
    }

    pub fn to_json(&self) -> Value {
        let modes: Vec<Value> = self
            .cells
            .iter()
            .map(|(mode, peers)| {
                let peers: serde_json::Map<String, Value> = peers
                    .iter()
                    .enumerate()
                    .map(|(at, cells)| {
                        let ratios: serde_json::Map<String, Value> = self
                            .references()
                            .into_iter()
                            .map(|to| {
                                let of = |field| ratio(cells, &peers[to], field);
                                let both = json!({
                                    "per_second": of(|c| c.per_second),
                                    "server_cpu_us": of(|c| c.server_us),
                                });
                                (self.peers[to].0.into(), both)
                            })
                            .collect();
                        let rounds: Vec<Value> = cells.iter().map(Cell::to_json).collect();
                        let name = self.peers[at].0.to_owned();
                        (name, json!({ "ratio_to": ratios, "rounds": rounds }))
                    })
                    .collect();
                json!({
                    "mode": mode.work.name(), "connections": mode.connections,
                    "depth": mode.depth, "peers": peers,
                })
            })
            .collect();
        let peers: serde_json::Map<String, Value> =
            self.peers.iter().map(|(name, text)| ((*name).into(), text.clone().into())).collect();
        json!({
            "machine": self.machine, "peers": peers, "window_ms": self.window_ms as u64,
            "durable_appends_per_second": self.syncs, "modes": modes,
        })
    }

    /// The peers that others are set in relation to: ZooKeeper and the null server with a log.
    fn references(&self) -> Vec<usize> {
        (0..self.peers.len())
            .filter(|&at| matches!(self.peers[at].0, "zookeeper" | "null"))
            .collect()
    }
}

/// Median over the rounds of one peer's figure divided by another's.
fn ratio(these: &[Cell], those: &[Cell], figure: fn(&Cell) -> f64) -> f64 {
    let ratios: Vec<f64> = these.iter().zip(those).map(|(a, b)| figure(a) / figure(b)).collect();
    median(&ratios)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// `median (min-max)` with so many digits behind the point.
fn spread(values: &[f64], digits: usize) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.digits$} ({least:.digits$}-{most:.digits$})", median(values))
}
