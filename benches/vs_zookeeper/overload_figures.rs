//! The figures of more load than a server can take, and their table.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::figures::{Cell, PeerName, Site, Spread};
use crate::mode::Mode;
use crate::sessions_figures::Quantiles;
use crate::table;
use crate::witness::{self, Waited};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overloads {
    pub site: Site,
    /// Servers of each kind.
    pub servers: u16,
    /// The load of which the most was found out, and the one that offers more.
    pub mode: Mode,
    pub deep: Mode,
    pub window_ms: u64,
    /// Sessions that only ping, and their timeout.
    pub bystanders: usize,
    pub timeout_ms: u64,
    pub peers: Vec<OverloadedPeer>,
}

/// Of one kind of server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OverloadedPeer {
    #[serde(flatten)]
    pub peer: PeerName,
    /// Measurements of the most, and the middle one.
    pub probes: Vec<Cell>,
    pub most: f64,
    /// The well-behaved client without load.
    pub alone: Waited,
    pub loads: Vec<Overloaded>,
}

/// So much more than the most.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overloaded {
    /// What is offered, in multiples of the most.
    pub factor: f64,
    pub cell: Cell,
    /// Operations that were due and not even sent at the end.
    pub unsent: u64,
    /// The well-behaved client meanwhile.
    pub beside: Waited,
    /// Sessions that only ping: their pings, how many were lost, and connections that were.
    pub pings: Quantiles,
    pub expired: usize,
    pub lost: u64,
    pub rss_max_mib: f64,
}

pub fn to_markdown(figures: &Overloads) -> String {
    let mut out = table::site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &Overloads, out: &mut String) -> fmt::Result {
    let Overloads { mode, deep, window_ms, bystanders, timeout_ms, .. } = figures;
    writeln!(
        out,
        "{} of each kind. The most is that of {} (the middle of three). More is offered at fixed moments for \
         {window_ms} ms, on {} connections with up to {} requests in flight. Beside it are {bystanders} sessions with \
         a timeout of {:.0} s that only ping, and {} lock cycles a second on {} connections.\n",
        table::servers(figures.servers),
        mode.name(),
        deep.connections,
        deep.depth,
        *timeout_ms as f64 / 1e3,
        witness::RATE,
        witness::CONNECTIONS,
    )?;
    write!(out, "| server | most/s | offered / most | done / most | p50 ms | p99 ms | max ms ")?;
    write!(out, "| sessions lost | connections lost | ping p99 ms | max ms ")?;
    write!(out, "| lock cycle p99 ms | max ms | server CPU us/op | other CPU s/s ")?;
    writeln!(out, "| largest RSS MiB |\n|{}", "---|".repeat(16))?;
    for of in &figures.peers {
        let rates: Vec<f64> = of.probes.iter().map(|cell| cell.per_second).collect();
        let Waited { p99_ms, max_ms, .. } = of.alone;
        writeln!(
            out,
            "| {} | {} | 0 | | | | | | | | | {p99_ms:.2} | {max_ms:.1} | | | |",
            of.peer.name,
            Spread::of(&rates).show(0),
        )?;
        for load in &of.loads {
            write_row(of, load, out)?;
        }
    }
    Ok(())
}

fn write_row(of: &OverloadedPeer, load: &Overloaded, out: &mut String) -> fmt::Result {
    let Overloaded { cell, beside, pings, .. } = load;
    write!(out, "| {} | | {} | {:.2} ", of.peer.name, load.factor, cell.per_second / of.most)?;
    write!(out, "| {:.0} | {:.0} | {:.0} ", cell.p50_ms, cell.p99_ms, cell.max_ms)?;
    write!(out, "| {} | {} ", load.expired, load.lost)?;
    write!(out, "| {:.2} | {:.1} ", pings.p99_ms, pings.max_ms)?;
    write!(out, "| {:.2} | {:.1} ", beside.p99_ms, beside.max_ms)?;
    write!(out, "| {:.2} | {:.2} ", cell.server_cpu_us, cell.other_cpu)?;
    writeln!(out, "| {:.0} |", load.rss_max_mib)
}
