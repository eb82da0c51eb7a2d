//! The comparison: all peers up at once, mode by mode, round by round, directly one after another.
//!
//! Neighbours in time share whatever else the machine is doing, so the ratios within a round mean
//! more than any absolute figure; the order of the peers rotates from round to round. Before each
//! measurement all peers must have come to rest, and after each create the nodes are deleted again.

use std::time::Duration;

use crate::figures::{Cell, Comparison, ModeFigures, median};
use crate::load::{self, Times};
use crate::mode::Mode;
use crate::peers::Peer;
use crate::rounds::Rounds;
use crate::stolen::{self, Repeats};
use crate::{disk, machine, peers};

/// Windows in which the most is found out.
const PROBES: usize = 3;

/// Compares servers by these modes: all are offered a `share` of what the reference does at most, or
/// else as much as each takes. A window is measured again if the machine's host took more than
/// `stolen_max` CPU seconds per second. `note` is told what is going on.
pub fn run(
    rounds: &Rounds,
    modes: &[Mode],
    share: Option<f64>,
    stolen_max: Option<f64>,
    note: impl Fn(&str),
) -> Result<Comparison, String> {
    let mut peers = Vec::new();
    let mut port = rounds.base_port;
    for kind in &rounds.kinds {
        let mut peer = Peer::new(kind.clone(), rounds.servers, port, &rounds.data)?;
        port += peers::PORTS_PER_SERVER * kind.servers(rounds.servers);
        let took = peer.start("/")?;
        note(&format!("{}: server processes {:?}", kind.name(), peer.pids()));
        note(&format!("{}: serves after {} ms", kind.describe(), took.as_millis()));
        peers.push(peer);
    }
    let locks = modes.iter().any(|mode| mode.work.locks());
    for peer in &peers {
        load::first_warm_up(peer, rounds.first_warm_up, locks)?;
    }
    let mut figures = empty(rounds, modes, share);
    figures.repeats = stolen_max.map(Repeats::above);
    if let Some(share) = share {
        let reference = &peers[figures.reference()];
        for of_mode in &mut figures.modes {
            load::rest(&peers);
            let rate = share * most(rounds, reference, of_mode.mode)?;
            note(&format!("{}: {rate:.0}/s are offered", of_mode.mode.name()));
            of_mode.offered = Some(rate);
        }
    }
    for round in 0..rounds.count {
        for (number, &mode) in modes.iter().enumerate() {
            let syncs = disk::syncs_per_second(&rounds.data)?;
            figures.durable_appends_per_second.push(syncs);
            for turn in 0..peers.len() {
                let at = (round + turn) % peers.len();
                if !peers[at].kind.does(mode.work) {
                    continue;
                }
                let rate = figures.modes[number].offered;
                let measure_once = || {
                    let rested = load::rest(&peers);
                    let cell = measure(rounds, &peers[at], mode, round, rate)?;
                    note(&format!(
                        "round {} {}: {:<12} {:>9.0}/s, p99 {:.2} ms, server CPU {:>6.2} us/op, others \
                         {:.2} CPU, stolen {}{}",
                        round + 1,
                        mode.name(),
                        peers[at].kind.name(),
                        cell.per_second,
                        cell.p99_ms,
                        cell.server_cpu_us,
                        cell.other_cpu,
                        stolen::show([cell.stolen_cpu]),
                        if rested { "" } else { " (another peer was still busy)" },
                    ));
                    Ok::<_, String>(cell)
                };
                let cell = match &mut figures.repeats {
                    None => measure_once()?,
                    Some(repeats) => repeats.least_stolen(measure_once)?,
                };
                figures.modes[number].cells[at].push(cell);
            }
        }
    }
    Ok(figures)
}

/// The figures before anything is measured.
fn empty(rounds: &Rounds, modes: &[Mode], share: Option<f64>) -> Comparison {
    let cells = vec![Vec::new(); rounds.kinds.len()];
    let mode = |&mode| ModeFigures { mode, offered: None, cells: cells.clone() };
    Comparison {
        site: machine::site(&rounds.data),
        servers: rounds.servers,
        peers: rounds.peers(),
        rounds: rounds.count,
        window_ms: rounds.window_ms(),
        share,
        repeats: None,
        modes: modes.iter().map(mode).collect(),
        durable_appends_per_second: Vec::new(),
    }
}

/// How many operations per second a peer does at most.
fn most(rounds: &Rounds, peer: &Peer, mode: Mode) -> Result<f64, String> {
    let probe = |round| measure(rounds, peer, mode, round, None).map(|cell| cell.per_second);
    Ok(median(&(0..PROBES).map(probe).collect::<Result<Vec<_>, _>>()?))
}

fn measure(
    rounds: &Rounds,
    peer: &Peer,
    mode: Mode,
    round: usize,
    rate: Option<f64>,
) -> Result<Cell, String> {
    let Rounds { warm_up, window, .. } = *rounds;
    let room = format!("r{round}-{}x{}", mode.connections, mode.depth);
    let times = Times { warm_up, window, hold: Duration::ZERO, rate };
    let cell = load::load_and_clean(peer, mode, &room, times)?;
    cell.measured().map_err(|e| peer.failure(&e))
}
