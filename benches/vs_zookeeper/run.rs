//! The comparison: all peers up at once, mode by mode, round by round, directly one after another.
//!
//! Neighbours in time share whatever else the machine is doing, so the ratios within a round mean
//! more than any absolute figure; the order of the peers rotates from round to round. Before each
//! measurement all peers must have come to rest, and after each create the nodes are deleted again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper::bench::{self, Fault, Go, Length, PATIENCE, Plan, Session, Work};
use lockkeeper::bench::{proc, wire};

use crate::figures::{Cell, Comparison, ModeFigures, PeerName};
use crate::kinds::Kind;
use crate::mode::Mode;
use crate::peers::Peer;
use crate::rivals::{self, Drive};
use crate::{disk, machine, peers};

/// Longest wait for the peers to come to rest.
const REST_MAX: Duration = Duration::from_secs(5);
/// How long all peers must have been at rest.
const REST_STEP: Duration = Duration::from_millis(100);
/// CPU seconds per second below which a peer is at rest.
const REST_CPU: f64 = 0.15;

/// How long locks are held before the first round, so that a second holder would be seen.
const WARM_UP_HOLD: Duration = Duration::from_millis(1);

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
    for peer in &peers {
        first_warm_up(settings, peer)?;
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
                let rested = rest(&peers);
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

fn first_warm_up(settings: &Settings, peer: &Peer) -> Result<(), String> {
    let whole = match peer.kind {
        Kind::ZooKeeper { .. } => settings.first_warm_up,
        Kind::Lockkeeper { .. }
        | Kind::Null { .. }
        | Kind::Redis { .. }
        | Kind::Redlock { .. }
        | Kind::Etcd { .. } => settings.first_warm_up / 5,
    };
    let locks = settings.modes.iter().any(|mode| mode.work.locks());
    let mut modes = vec![(Work::Get, 16), (Work::Set, 16), (Work::Create, 16)];
    modes.extend([(Work::Lock, 1), (Work::Contended, 1)].into_iter().filter(|_| locks));
    modes.retain(|(work, _)| peer.kind.does(*work));
    let window = whole / modes.len().max(1) as u32;
    for (work, depth) in modes {
        let mode = Mode { work, connections: 16, depth };
        let times = Times { warm_up: Duration::ZERO, window, hold: WARM_UP_HOLD };
        load_and_clean(peer, mode, "warm-up", times)?;
    }
    Ok(())
}

fn measure(settings: &Settings, peer: &Peer, mode: Mode, round: usize) -> Result<Cell, String> {
    let Settings { warm_up, window, .. } = *settings;
    let room = format!("r{round}-{}x{}", mode.connections, mode.depth);
    load_and_clean(peer, mode, &room, Times { warm_up, window, hold: Duration::ZERO })
}

/// How long everything is.
#[derive(Clone, Copy)]
struct Times {
    warm_up: Duration,
    window: Duration,
    /// A lock is held for so long.
    hold: Duration,
}

/// Runs a load and takes away the nodes it created, so that every round finds the same tree.
fn load_and_clean(peer: &Peer, mode: Mode, room: &str, times: Times) -> Result<Cell, String> {
    let failed = |e: Fault| peer.failure(&e.to_string());
    let pids = peer.pids();
    let Times { warm_up, window, hold } = times;
    if let Some(rival) = peer.kind.rival() {
        let shares = mode.work.contends();
        let drive = Drive { shares, hold, pids: &pids, warm_up, window };
        let driven = rivals::run(rival, &peer.addrs(), mode.connections, &drive);
        return driven.map(Cell::from).map_err(|e| peer.failure(&e));
    }
    let mut plan = Plan {
        pids,
        length: Length::Timed { warm_up, window },
        room: room.to_owned(),
        hold: if mode.work.locks() { hold } else { Duration::ZERO },
        ..Plan::new(peer.addrs(), mode.work, mode.connections, mode.depth)
    };
    let outcome = bench::run(&plan, &mut |_| Go::On).map_err(failed)?;
    // Not by bench::clear: the null server cannot list.
    if mode.work == Work::Create {
        plan.work = Work::Delete;
        // Deep, because nobody measures it.
        plan.depth = 256 / mode.connections.clamp(1, 256);
        plan.length = Length::Counted(outcome.answered.clone());
        bench::run(&plan, &mut |_| Go::On).map_err(failed)?;
    }
    clean(&plan).map_err(failed)?;
    Ok(Cell::from(&outcome))
}

/// Deletes the connections' nodes, which have no children any more, and the room.
fn clean(plan: &Plan) -> Result<(), Fault> {
    let mut session = Session::open(plan.addrs[0], PATIENCE)?;
    let room_path = format!("{}/{}", plan.root, plan.room);
    for connection in 0..plan.connections {
        session.call(wire::delete(&bench::below_path(&room_path, connection)))?;
    }
    session.call(wire::delete(&room_path))?;
    session.close()
}

/// Waits until no peer has anything left to do; false if one would not come to rest.
fn rest(peers: &[Peer]) -> bool {
    let pids: Vec<u32> = peers.iter().flat_map(Peer::pids).collect();
    let began = Instant::now();
    let mut before = proc::cpu_seconds_of(&pids);
    while began.elapsed() < REST_MAX {
        std::thread::sleep(REST_STEP);
        let after = proc::cpu_seconds_of(&pids);
        match (&before, &after) {
            (Ok(before), Ok(after)) if after - before < REST_CPU * REST_STEP.as_secs_f64() => {
                return true;
            }
            // A peer that died is reported by the measurement that needs it.
            (Err(_), _) | (_, Err(_)) => return true,
            (Ok(_), Ok(_)) => before = after,
        }
    }
    false
}
