//! The figures of what grows, and their table.
//!
//! A ratio is the median over the rounds, each divided by the same round at the least size: neighbours in
//! time share what else the machine is doing.

use std::fmt::{self, Write as _};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::figures::{Cell, PeerName, Site, Spread, median, ratios};
use crate::mode::Mode;
use crate::table;

/// What grows from one measurement to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Grows {
    /// Znodes of 100 bytes, which get and set go to in scattered order.
    Znodes,
    /// Sessions that do nothing while others load the server.
    Sessions,
    /// Sessions that all load the server, each with one request in flight.
    Clients,
    /// Watches that nothing triggers while others load the server.
    Watches,
    /// Watchers of one znode that changes.
    Watchers,
    /// Clients that want one lock.
    Contenders,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Growth {
    pub site: Site,
    /// Servers of each kind.
    pub servers: u16,
    pub peers: Vec<PeerName>,
    pub rounds: usize,
    pub window_ms: u64,
    pub axes: Vec<Axis>,
    /// Disk probes between the measurements: durable appends per second.
    pub durable_appends_per_second: Vec<f64>,
}

/// One thing that grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    pub grows: Grows,
    /// One for each load.
    pub curves: Vec<Curve>,
}

/// One load at all sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// From the least to the largest.
    pub points: Vec<Point>,
}

/// One load at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub size: u64,
    pub mode: Mode,
    /// Per peer, in the order of [`Growth::peers`], a cell for each round.
    pub cells: Vec<Vec<Cell>>,
}

impl Grows {
    /// As tables and charts say it.
    pub fn title(self) -> &'static str {
        match self {
            Grows::Znodes => "znodes",
            Grows::Sessions => "idle sessions beside",
            Grows::Clients => "clients, one request each",
            Grows::Watches => "watches that do not fire",
            Grows::Watchers => "watchers of one znode",
            Grows::Contenders => "contenders on one lock",
        }
    }
}

impl Point {
    /// Operations per second of a peer, the middle of the rounds.
    pub fn rate(&self, peer: usize) -> f64 {
        median(&self.cells[peer].iter().map(|c| c.per_second).collect::<Vec<_>>())
    }

    /// Latency that one in a hundred exceeds, the middle of the rounds: of operations, but of a lock
    /// that several want from a release to the next one's knowing, because the rest is waiting for all
    /// the others.
    pub fn p99_ms(&self, peer: usize) -> f64 {
        let waits = self.mode.work.contends() && self.mode.connections > 1;
        let of = |cell: &Cell| match &cell.lock {
            Some(lock) if waits => lock.handoff_p99_ms.unwrap_or(f64::NAN),
            Some(_) | None => cell.p99_ms,
        };
        median(&self.cells[peer].iter().map(of).collect::<Vec<_>>())
    }
}

/// The table, and what it means.
pub fn to_markdown(growth: &Growth) -> String {
    let mut out = table::site(&growth.site);
    write_all(growth, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(growth: &Growth, out: &mut String) -> fmt::Result {
    let appends = Spread::of(&growth.durable_appends_per_second).show(0);
    let servers = table::servers(growth.servers);
    writeln!(
        out,
        "{servers} of each kind; {} rounds of {} ms; median (min-max). The last two columns: beside the \
         least of the sizes, within a round. Disk: {appends} durable appends/s.\n",
        growth.rounds, growth.window_ms
    )?;
    for peer in &growth.peers {
        writeln!(out, "* {}: {}", peer.name, peer.description)?;
    }
    write!(out, "\n| what grows | to | load | server | ops/s | p99 ms | server CPU us/op ")?;
    writeln!(out, "| RSS MiB | ops/s / least | CPU / least |\n|{}", "---|".repeat(10))?;
    for axis in &growth.axes {
        for curve in &axis.curves {
            for at in 0..growth.peers.len() {
                write_curve(growth, axis.grows, curve, at, out)?;
            }
        }
    }
    Ok(())
}

fn write_curve(
    growth: &Growth,
    grows: Grows,
    curve: &Curve,
    at: usize,
    out: &mut String,
) -> fmt::Result {
    let Some(least) = curve.points.first() else { return Ok(()) };
    for point in &curve.points {
        let cells = &point.cells[at];
        let all = |field: fn(&Cell) -> f64| cells.iter().map(field).collect::<Vec<_>>();
        let beside = |field| Spread::of(&ratios(cells, &least.cells[at], field)).show(2);
        let peer = &growth.peers[at].name;
        write!(out, "| {} | {} | {} ", grows.title(), point.size, point.mode.name())?;
        write!(out, "| {peer} | {} ", Spread::of(&all(|c| c.per_second)).show(0))?;
        write!(out, "| {:.2} ", point.p99_ms(at))?;
        write!(out, "| {} ", Spread::of(&all(|c| c.server_cpu_us)).show(2))?;
        write!(out, "| {:.0} ", median(&all(|c| c.rss_mib)))?;
        writeln!(out, "| {} | {} |", beside(|c| c.per_second), beside(|c| c.server_cpu_us))?;
    }
    Ok(())
}
