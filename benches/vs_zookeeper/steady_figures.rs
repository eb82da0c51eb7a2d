//! The figures of servers under a steady load for minutes, and their tables.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::figures::{DiskUse, PeerName, Site, median};
use crate::mode::Mode;
use crate::stolen;
use crate::table;

/// Latencies above this are a stall.
pub const STALL_MS: f64 = 50.0;
/// Seconds in which the sessions of a storm are said to expire: those before the last has.
const EXPIRY_S: f64 = 1.0;
/// Seconds to a line of the table.
const LINE_S: f64 = 60.0;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Steadiness {
    pub site: Site,
    /// Servers of each kind.
    pub servers: u16,
    pub mode: Mode,
    /// Znodes that were there.
    pub znodes: u64,
    /// What was offered, as a share of the most; 1 is as much as it takes.
    pub share: f64,
    pub peers: Vec<SteadyPeer>,
}

/// Of one kind of server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SteadyPeer {
    #[serde(flatten)]
    pub peer: PeerName,
    /// Operations per second that it does at most.
    pub most: f64,
    /// Of these, what was offered, if not as much as it takes.
    pub offered: Option<f64>,
    /// One behind the other.
    pub windows: Vec<Window>,
    pub storms: Vec<Stormed>,
}

/// Some seconds of the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Since the first began.
    pub from_s: f64,
    pub seconds: f64,
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// CPU seconds per second.
    pub server_cpu: f64,
    pub client_cpu: f64,
    pub other_cpu: f64,
    /// What a virtual machine's host gave to others; earlier runs did not ask.
    pub stolen_cpu: Option<f64>,
    /// Longest time that the client itself did not come round to look at its clock, less what it sleeps.
    pub client_late_ms: f64,
    /// Packets of anybody that this machine had no room for; earlier runs did not count them.
    pub dropped_packets: Option<u64>,
    /// At the end, of all servers together.
    pub rss_mib: f64,
    pub logs: DiskUse,
    pub images: DiskUse,
    pub disk: DiskProbe,
}

/// What appends of a few bytes took on the same disk meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskProbe {
    pub appends: u64,
    pub p50_ms: f64,
    pub max_ms: f64,
    /// Those that were stalls.
    pub stalls: u64,
    /// The latest that one began, because the processors were busy.
    pub late_max_ms: f64,
}

/// A storm of sessions, in seconds since the first window began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stormed {
    pub began_s: f64,
    /// All sessions were there, and lost their connections.
    pub opened_s: f64,
    /// So many had come back.
    pub returning: usize,
    pub returned_s: f64,
    /// So many had expired.
    pub expiring: usize,
    pub expired_s: f64,
    /// The others were closed.
    pub closed_s: f64,
    /// Of those that came back, those that were too late.
    pub refused: usize,
}

impl Window {
    fn stalls(&self) -> bool {
        self.p999_ms > STALL_MS
    }

    fn ends(&self) -> f64 {
        self.from_s + self.seconds
    }

    /// What sessions did meanwhile.
    fn events(&self, storms: &[Stormed]) -> Vec<String> {
        let mut words = Vec::new();
        for storm in storms {
            let all = storm.returning + storm.expiring;
            let happened = [
                (storm.began_s, storm.opened_s, all, "open"),
                (storm.opened_s, storm.returned_s, storm.returning, "return"),
                (storm.expired_s - EXPIRY_S, storm.expired_s, storm.expiring, "expire"),
                (storm.expired_s, storm.closed_s, storm.returning, "close"),
            ];
            let here =
                happened.iter().filter(|(from, to, ..)| *from < self.ends() && *to >= self.from_s);
            words.extend(here.map(|(_, _, count, what)| format!("{count} {what}")));
        }
        words
    }
}

pub fn to_markdown(figures: &Steadiness) -> String {
    let mut out = table::site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &Steadiness, out: &mut String) -> fmt::Result {
    let window =
        figures.peers.iter().flat_map(|of| &of.windows).map(|w| w.seconds).fold(0.0, f64::max);
    writeln!(
        out,
        "{} of a kind, {} beside {} znodes of 100 bytes. A line is a minute in windows of {window:.0} s: of \
         latencies the median of the windows and the worst one, at its end memory, logs and images of all \
         servers together. The disk probe is one small append made durable, twenty times a second.",
        table::servers(figures.servers),
        figures.mode.name(),
        figures.znodes,
    )?;
    for of in &figures.peers {
        write_peer(of, out)?;
    }
    Ok(())
}

fn write_peer(of: &SteadyPeer, out: &mut String) -> fmt::Result {
    let offered = of.offered.map_or_else(
        || "it is asked for as much as it takes".to_owned(),
        |rate| format!("{rate:.0} are offered at fixed moments, from which latency counts"),
    );
    writeln!(out, "\n{}: at most {:.0} operations/s; {offered}.\n", of.peer.description, of.most)?;
    write!(
        out,
        "| minute | ops/s | p50 ms | p99 ms | p99.9 ms | max ms | windows above {STALL_MS:.0} ms "
    )?;
    write!(out, "| disk probe p50 ms | max ms | server CPU s/s | other CPU s/s ")?;
    write!(out, "| stolen CPU s/s | RSS MiB ")?;
    writeln!(out, "| logs, MiB | images, MiB | sessions |\n|{}", "---|".repeat(16))?;
    for (number, line) in lines(&of.windows).iter().enumerate() {
        write_line(number + 1, line, &of.storms, out)?;
    }
    write_stalls(of, out)?;
    write_ends(of, out)
}

/// Windows by minutes.
fn lines(windows: &[Window]) -> Vec<Vec<&Window>> {
    let mut lines: Vec<Vec<&Window>> = Vec::new();
    for window in windows {
        // A window begins a little late, never early.
        let line = ((window.from_s + window.seconds / 2.0) / LINE_S) as usize;
        lines.resize_with(lines.len().max(line + 1), Vec::new);
        lines[line].push(window);
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn write_line(
    number: usize,
    line: &[&Window],
    storms: &[Stormed],
    out: &mut String,
) -> fmt::Result {
    let all = |field: fn(&Window) -> f64| line.iter().map(|w| field(w)).collect::<Vec<_>>();
    let most = |field: fn(&Window) -> f64| all(field).into_iter().fold(0.0, f64::max);
    let both =
        |field: fn(&Window) -> f64| format!("{:.2} ({:.2})", median(&all(field)), most(field));
    let seconds: f64 = all(|w| w.seconds).iter().sum();
    let ops: f64 = line.iter().map(|w| w.per_second * w.seconds).sum();
    write!(out, "| {number} | {:.0} ", ops / seconds)?;
    write!(out, "| {} | {} | {} ", both(|w| w.p50_ms), both(|w| w.p99_ms), both(|w| w.p999_ms))?;
    write!(out, "| {:.1} ", most(|w| w.max_ms))?;
    write!(out, "| {} of {} ", line.iter().filter(|w| w.stalls()).count(), line.len())?;
    write!(out, "| {:.2} | {:.1} ", median(&all(|w| w.disk.p50_ms)), most(|w| w.disk.max_ms))?;
    write!(out, "| {:.2} | {:.2} ", median(&all(|w| w.server_cpu)), median(&all(|w| w.other_cpu)))?;
    write!(out, "| {} ", stolen::show(line.iter().map(|window| window.stolen_cpu)))?;
    let last = line.last().expect("a line has a window");
    let files = |of: DiskUse| format!("{}, {:.0}", of.files, of.mib);
    write!(out, "| {:.0} | {} | {} ", last.rss_mib, files(last.logs), files(last.images))?;
    let mut words: Vec<String> = line.iter().flat_map(|window| window.events(storms)).collect();
    words.dedup();
    writeln!(out, "| {} |", words.join(", "))
}

/// Each window that stalled, and what else was seen in it.
fn write_stalls(of: &SteadyPeer, out: &mut String) -> fmt::Result {
    let stalled: Vec<&Window> = of.windows.iter().filter(|w| w.stalls()).collect();
    let probed: u64 = of.windows.iter().map(|w| w.disk.stalls).sum();
    write!(
        out,
        "\n{} of {} windows have a p99.9 above {STALL_MS:.0} ms; the disk probe had {probed} such appends in all{}.",
        stalled.len(),
        of.windows.len(),
        words_of(of.windows.iter().map(|w| w.dropped_packets).sum()),
    )?;
    for window in stalled {
        let events = window.events(&of.storms).join(", ");
        write!(
            out,
            "\n* From {:.0} s: p99.9 {:.0} ms, max {:.0} ms; disk probe max {:.0} ms, up to {:.0} ms late, \
             the client up to {:.0} ms late; other CPU {:.2} s/s, stolen {} s/s{}{}{events}",
            window.from_s,
            window.p999_ms,
            window.max_ms,
            window.disk.max_ms,
            window.disk.late_max_ms,
            window.client_late_ms,
            window.other_cpu,
            stolen::show([window.stolen_cpu]),
            words_of(window.dropped_packets),
            if events.is_empty() { "" } else { "; sessions: " },
        )?;
    }
    writeln!(out)
}

/// How many packets were dropped, if somebody counted them.
fn words_of(dropped_packets: Option<u64>) -> String {
    dropped_packets.map_or_else(String::new, |count| format!(", {count} packets dropped"))
}

/// The last minute beside the first.
fn write_ends(of: &SteadyPeer, out: &mut String) -> fmt::Result {
    let lines = lines(&of.windows);
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Ok(()) };
    let middle = |line: &[&Window], field: fn(&Window) -> f64| {
        median(&line.iter().map(|w| field(w)).collect::<Vec<_>>())
    };
    let ratio = |field: fn(&Window) -> f64| middle(last, field) / middle(first, field);
    let rss = |line: &[&Window]| line.last().map_or(0.0, |w| w.rss_mib);
    writeln!(
        out,
        "\nThe last minute beside the first: {:.2} of the operations, {:.2} of the p50, {:.2} of the p99, {:.2} \
         of the p99.9; RSS {:.0} and {:.0} MiB.",
        ratio(|w| w.per_second),
        ratio(|w| w.p50_ms),
        ratio(|w| w.p99_ms),
        ratio(|w| w.p999_ms),
        rss(last),
        rss(first),
    )
}
