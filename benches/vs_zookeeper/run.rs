//! The comparison: all peers up at once, mode by mode, round by round, directly one after another.
//!
//! Neighbours in time share whatever else the machine is doing, so the ratios within a round mean
//! more than any absolute figure; the order of the peers rotates from round to round. Before each
//! measurement all peers must have come to rest, and after each create the nodes are deleted again.

use std::path::PathBuf;
use std::time::Duration;

use crate::figures::{Cell, Comparison, ModeFigures, PeerName};
use crate::kinds::Kind;
use crate::load::{self, Times};
use crate::mode::Mode;
use crate::peers::Peer;
use crate::{disk, machine, peers};

/// What to compare and for how long.
pub struct Settings {
    pub kinds: Vec<Kind>,
    /// Servers of each kind, an ensemble if more than one.
    pub servers: u16,
    pub modes: Vec<Mode>,
    pub rounds: usize,
    pub warm_up: Duration,
    pub window: Duration,
    /// Unmeasured load on each ZooKeeper before the first round, for its compiler; others get a
    /// fifth of it.
    pub first_warm_up: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Runs the comparison; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Comparison, String> {
    let mut peers = Vec::new();
    let mut port = settings.base_port;
    for kind in &settings.kinds {
        let mut peer = Peer::new(kind.clone(), settings.servers, port, &settings.data)?;
        port += peers::PORTS_PER_SERVER * kind.servers(settings.servers);
        let took = peer.start("/")?;
        note(&format!("{}: server processes {:?}", kind.name(), peer.pids()));
        note(&format!("{}: serves after {} ms", kind.describe(), took.as_millis()));
        peers.push(peer);
    }
    let locks = settings.modes.iter().any(|mode| mode.work.locks());
    for peer in &peers {
        load::first_warm_up(peer, settings.first_warm_up, locks)?;
    }
    let mut figures = empty(settings);
    for round in 0..settings.rounds {
        for (number, &mode) in settings.modes.iter().enumerate() {
            let syncs = disk::syncs_per_second(&settings.data)?;
            figures.durable_appends_per_second.push(syncs);
            for turn in 0..peers.len() {
                let at = (round + turn) % peers.len();
                if !peers[at].kind.does(mode.work) {
                    continue;
                }
                let rested = load::rest(&peers);
                let cell = measure(settings, &peers[at], mode, round)?;
                note(&format!(
                    "round {} {}: {:<12} {:>9.0}/s, server CPU {:>6.2} us/op, others {:.2} CPU{}",
                    round + 1,
                    mode.name(),
                    peers[at].kind.name(),
                    cell.per_second,
                    cell.server_cpu_us,
                    cell.other_cpu,
                    if rested { "" } else { " (another peer was still busy)" },
                ));
                figures.modes[number].cells[at].push(cell);
            }
        }
    }
    Ok(figures)
}

/// The figures before anything is measured.
fn empty(settings: &Settings) -> Comparison {
    let peers = settings
        .kinds
        .iter()
        .map(|kind| PeerName { name: kind.name().to_owned(), description: kind.describe() });
    let cells = vec![Vec::new(); settings.kinds.len()];
    let modes = settings.modes.iter().map(|&mode| ModeFigures { mode, cells: cells.clone() });
    Comparison {
        site: machine::site(&settings.data),
        servers: settings.servers,
        peers: peers.collect(),
        rounds: settings.rounds,
        window_ms: settings.window.as_millis() as u64,
        modes: modes.collect(),
        durable_appends_per_second: Vec::new(),
    }
}

fn measure(settings: &Settings, peer: &Peer, mode: Mode, round: usize) -> Result<Cell, String> {
    let Settings { warm_up, window, .. } = *settings;
    let room = format!("r{round}-{}x{}", mode.connections, mode.depth);
    load::load_and_clean(peer, mode, &room, Times { warm_up, window, hold: Duration::ZERO })
}
