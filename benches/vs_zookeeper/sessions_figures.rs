//! The figures of many sessions, and their tables.

use std::fmt::{self, Write as _};

use hdrhistogram::Histogram;
use lockkeeper::internals::bench::milliseconds;
use serde::{Deserialize, Serialize};

use crate::figures::{PeerName, Site};
use crate::idle_figures::Node;
use crate::table;
use crate::witness::{self, Waited};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManySessions {
    pub site: Site,
    /// Servers of each kind.
    pub servers: u16,
    /// Sessions in all.
    pub sessions: usize,
    /// Their timeout.
    pub timeout_ms: u64,
    /// How long CPU time was counted.
    pub window_ms: u64,
    pub peers: Vec<SessionsPeer>,
}

/// Of one kind of server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionsPeer {
    #[serde(flatten)]
    pub peer: PeerName,
    /// Until all were there.
    pub opened_s: f64,
    pub opens: Quantiles,
    /// Each server without sessions, and with all of them at rest.
    pub without: Vec<Node>,
    pub with: Vec<Node>,
    /// Their pings then.
    pub pings: Quantiles,
    /// The well-behaved client beside them, while nothing happened.
    pub alone: Waited,
    pub events: Vec<Event>,
}

/// What happened to all sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    pub what: String,
    /// Until the last was served, or gone, and of these the first.
    pub seconds: f64,
    pub first_s: Option<f64>,
    /// Sessions that were lost although their clients came back.
    pub expired: usize,
    /// What it took each that came back, and how many did.
    pub returns: Option<Quantiles>,
    pub returned: u64,
    /// Handshakes that were dropped because a server's queue of connections to accept was full.
    pub overflows: Option<u64>,
    /// The well-behaved client meanwhile.
    pub beside: Waited,
    /// Of all servers together, some seconds later.
    pub rss_mib: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Quantiles {
    pub fn of(nanoseconds: &Histogram<u64>) -> Self {
        Quantiles {
            p50_ms: milliseconds(nanoseconds, 0.5),
            p99_ms: milliseconds(nanoseconds, 0.99),
            max_ms: milliseconds(nanoseconds, 1.0),
        }
    }
}

impl SessionsPeer {
    /// Bytes of the servers for each session that it has.
    fn bytes_per_session(&self, sessions: usize) -> f64 {
        let sum = |nodes: &[Node]| nodes.iter().map(|node| node.rss_mib).sum::<f64>();
        (sum(&self.with) - sum(&self.without)) * MIB / sessions as f64
    }
}

pub fn to_markdown(figures: &ManySessions) -> String {
    let mut out = table::site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &ManySessions, out: &mut String) -> fmt::Result {
    let ManySessions { servers, sessions, timeout_ms, window_ms, .. } = figures;
    writeln!(
        out,
        "{} of each kind, {sessions} sessions with a timeout of {:.0} s in all, each with an ephemeral znode and \
         a watch. CPU time over {:.0} s in which each only pings. Bytes per session are those of all servers.\n",
        table::servers(*servers),
        *timeout_ms as f64 / 1e3,
        *window_ms as f64 / 1e3,
    )?;
    write!(out, "| server | all opened, s | RSS of each without, MiB | with all, MiB ")?;
    write!(out, "| bytes per session | CPU of each without, % of a core | with all, % ")?;
    writeln!(out, "| ping p50 ms | p99 ms |\n|{}", "---|".repeat(9))?;
    for of in &figures.peers {
        let rss = |nodes: &[Node]| table::list(nodes.iter().map(|node| node.rss_mib), 1);
        let cpu = |nodes: &[Node]| table::list(nodes.iter().map(|node| node.cpu * 100.0), 2);
        writeln!(
            out,
            "| {} | {:.1} | {} | {} | {:.0} | {} | {} | {:.2} | {:.2} |",
            of.peer.description,
            of.opened_s,
            rss(&of.without),
            rss(&of.with),
            of.bytes_per_session(*sessions),
            cpu(&of.without),
            cpu(&of.with),
            of.pings.p50_ms,
            of.pings.p99_ms,
        )?;
    }
    writeln!(
        out,
        "\nBeside this, {} lock cycles a second on {} connections begin at fixed moments, from which their \
         latency counts.\n",
        witness::RATE,
        witness::CONNECTIONS,
    )?;
    write!(out, "| server | what happens | until the last, s | sessions that came back ")?;
    write!(
        out,
        "| p50, p99, max, ms | lost | handshakes dropped | lock cycles beside: p50 ms | p99 ms | max ms "
    )?;
    writeln!(out, "| RSS of all after it, MiB |\n|{}", "---|".repeat(11))?;
    for of in &figures.peers {
        let Waited { p50_ms, p99_ms, max_ms, .. } = of.alone;
        let name = &of.peer.name;
        writeln!(
            out,
            "| {name} | nothing | | | | | | {p50_ms:.2} | {p99_ms:.2} | {max_ms:.1} | |"
        )?;
        for event in &of.events {
            write_event(name, event, out)?;
        }
    }
    Ok(())
}

fn write_event(name: &str, event: &Event, out: &mut String) -> fmt::Result {
    write!(out, "| {name} | {} | {:.2}", event.what, event.seconds)?;
    if let Some(first) = event.first_s {
        write!(out, " (the first {first:.2})")?;
    }
    match &event.returns {
        Some(Quantiles { p50_ms, p99_ms, max_ms }) => {
            write!(out, " | {} | {p50_ms:.0}, {p99_ms:.0}, {max_ms:.0} ", event.returned)?;
            write!(out, "| {} ", event.expired)?;
            write!(
                out,
                "| {} ",
                event.overflows.map_or("-".to_owned(), |count| count.to_string())
            )?;
        }
        None => write!(out, " | | | | ")?,
    }
    let Waited { p50_ms, p99_ms, max_ms, .. } = event.beside;
    writeln!(out, "| {p50_ms:.2} | {p99_ms:.2} | {max_ms:.1} | {:.0} |", event.rss_mib)
}
