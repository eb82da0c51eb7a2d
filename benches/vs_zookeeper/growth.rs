//! What a server's cost depends on: the same load while one thing grows.
//!
//! Znodes, idle sessions and watches have a server of their own for each size, all up at once, so that the
//! sizes are measured in turns, round by round, like peers of a comparison. Clients, watchers and
//! contenders are the load itself, on one server. What was made for a measurement is taken away after it.

use std::time::Duration;

use lockkeeper::internals::bench::{self, Fault, Go, Length, Plan, Work};

use crate::bystanders::Bystanders;
use crate::figures::Cell;
use crate::grown::{Axis, Curve, Grows, Growth, Point};
use crate::load::{self, TREE};
use crate::mode::Mode;
use crate::peers::{self, Peer};
use crate::rounds::Rounds;
use crate::{disk, machine};

/// The load beside which something grows: connections, and requests in flight on each.
const CONNECTIONS: usize = 16;
const DEPTH: usize = 16;
/// Sessions that share the watches, at most.
const WATCHING_MAX: usize = 100;
/// Additional unmeasured load for each contender, all of whom must have queued before it counts, and
/// for each connection of other loads: a server takes 10,000 that come at once for a crowd, for a few
/// seconds, until it has heard often enough from each.
const QUEUEING: Duration = Duration::from_millis(2);
const SETTLING: Duration = Duration::from_micros(400);

pub struct Settings {
    pub rounds: Rounds,
    pub axes: Vec<Grows>,
    /// Larger sizes are left out.
    pub size_max: u64,
}

/// Servers of every kind with something of one size.
struct Stage {
    peers: Vec<Peer>,
    /// Of each peer.
    crowds: Vec<Bystanders>,
    /// Numbered znodes of each connection, if the load goes to these.
    scatter: Option<u64>,
}

/// Measures everything that grows; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Growth, String> {
    let rounds = &settings.rounds;
    let mut growth = Growth {
        site: machine::site(&rounds.data),
        servers: rounds.servers,
        peers: rounds.peers(),
        rounds: rounds.count,
        window_ms: rounds.window_ms(),
        axes: Vec::new(),
        durable_appends_per_second: Vec::new(),
    };
    for &grows in &settings.axes {
        let mut curves = curves(settings, grows);
        let mut stages = stages(settings, grows)?;
        note(&format!("{}: the servers are ready", grows.title()));
        for round in 0..rounds.count {
            let syncs = disk::syncs_per_second(&rounds.data)?;
            growth.durable_appends_per_second.push(syncs);
            for point in curves.iter_mut().flat_map(|curve| &mut curve.points) {
                measure_point(settings, &mut stages, grows, point, round, &note)?;
            }
        }
        growth.axes.push(Axis { grows, curves });
    }
    Ok(growth)
}

/// The sizes of a thing, from the least on.
fn sizes(settings: &Settings, grows: Grows) -> Vec<u64> {
    let all: &[u64] = match grows {
        Grows::Znodes => &[10_000, 100_000, 1_000_000],
        Grows::Sessions | Grows::Clients => &[1, 100, 10_000],
        Grows::Watches => &[1, 1_000, 100_000],
        Grows::Watchers => &[1, 100, 1_000, 10_000],
        Grows::Contenders => &[1, 10, 100, 1_000, 10_000],
    };
    all.iter().copied().filter(|size| *size <= settings.size_max).collect()
}

/// What is to be measured, without figures.
fn curves(settings: &Settings, grows: Grows) -> Vec<Curve> {
    let simple = [Work::Get, Work::Set, Work::Create];
    let works: &[Work] = match grows {
        Grows::Znodes | Grows::Sessions | Grows::Clients | Grows::Watches => &simple,
        Grows::Watchers => &[Work::Watches],
        Grows::Contenders => &[Work::Contended],
    };
    let point = |work, size: u64| {
        let (connections, depth) = match grows {
            Grows::Znodes | Grows::Sessions | Grows::Watches => (CONNECTIONS, DEPTH),
            Grows::Clients | Grows::Contenders => (size as usize, 1),
            Grows::Watchers => (size as usize + 1, 1),
        };
        let cells = vec![Vec::new(); settings.rounds.kinds.len()];
        Point { size, mode: Mode { work, connections, depth }, cells }
    };
    let sizes = sizes(settings, grows);
    let curve = |&work| Curve { points: sizes.iter().map(|&size| point(work, size)).collect() };
    works.iter().map(curve).collect()
}

/// The servers for an axis: a stage for each size, or one for all.
fn stages(settings: &Settings, grows: Grows) -> Result<Vec<Stage>, String> {
    let rounds = &settings.rounds;
    let mut port = rounds.base_port;
    let mut stages = Vec::new();
    let all = sizes(settings, grows);
    let sizes = match grows {
        Grows::Znodes | Grows::Sessions | Grows::Watches => &all[..],
        Grows::Clients | Grows::Watchers | Grows::Contenders => &all[..all.len().min(1)],
    };
    for &size in sizes {
        let mut stage = Stage { peers: Vec::new(), crowds: Vec::new(), scatter: None };
        for kind in &rounds.kinds {
            let mut peer = Peer::new(kind.clone(), rounds.servers, port, &rounds.data)?;
            port += peers::PORTS_PER_SERVER * rounds.servers;
            peer.start("/")?;
            load::first_warm_up(&peer, rounds.first_warm_up, grows == Grows::Contenders)?;
            let fault = |e: Fault| peer.failure(&e.to_string());
            let mut crowd = Bystanders::default();
            match grows {
                Grows::Znodes => {
                    let each = load::create_numbered(&peer, CONNECTIONS, size).map_err(fault)?;
                    stage.scatter = each.first().copied();
                }
                Grows::Sessions => {
                    crowd = Bystanders::open(&peer.addrs(), size as usize).map_err(fault)?;
                }
                Grows::Watches => crowd = watching(&peer, size).map_err(fault)?,
                Grows::Clients | Grows::Watchers | Grows::Contenders => {}
            }
            stage.peers.push(peer);
            stage.crowds.push(crowd);
        }
        stages.push(stage);
    }
    Ok(stages)
}

/// Sessions that have so many watches together.
fn watching(peer: &Peer, watches: u64) -> Result<Bystanders, Fault> {
    load::create_numbered(peer, 1, watches)?;
    let own = bench::below_path(&format!("/bench/{TREE}"), 0);
    let paths: Vec<String> = (0..watches).map(|at| bench::numbered_path(&own, at)).collect();
    let mut crowd = Bystanders::open(&peer.addrs(), paths.len().min(WATCHING_MAX))?;
    crowd.watch(&paths)?;
    Ok(crowd)
}

fn measure_point(
    settings: &Settings,
    stages: &mut [Stage],
    grows: Grows,
    point: &mut Point,
    round: usize,
    note: &impl Fn(&str),
) -> Result<(), String> {
    let at = sizes(settings, grows).iter().position(|size| *size == point.size);
    let at = at.expect("points have these sizes").min(stages.len() - 1);
    let kinds = &settings.rounds.kinds;
    for turn in 0..kinds.len() {
        let which = (round + turn) % kinds.len();
        for stage in &mut *stages {
            for (peer, crowd) in stage.peers.iter().zip(&mut stage.crowds) {
                crowd.keep_alive().map_err(|e| peer.failure(&e.to_string()))?;
            }
        }
        let rested = load::rest(stages.iter().flat_map(|stage| &stage.peers));
        let cell = measure(&settings.rounds, &stages[at], which, point.mode, round)?;
        point.cells[which].push(cell);
        note(&format!(
            "round {} {} {}: {:<10} {:<16} {:>9.0}/s, p99 {:.2} ms{}",
            round + 1,
            point.size,
            grows.title(),
            kinds[which].name(),
            point.mode.name(),
            point.cells[which].last().map_or(0.0, |cell| cell.per_second),
            point.p99_ms(which),
            if rested { "" } else { " (a server was still busy)" },
        ));
    }
    Ok(())
}

fn measure(
    rounds: &Rounds,
    stage: &Stage,
    which: usize,
    mode: Mode,
    round: usize,
) -> Result<Cell, String> {
    let peer = &stage.peers[which];
    let Mode { work, connections, depth } = mode;
    let more = if work.contends() { QUEUEING } else { SETTLING };
    let length = Length::Timed {
        warm_up: rounds.warm_up + more * connections as u32,
        window: rounds.window,
    };
    let stays = stage.scatter.is_some() && work != Work::Create;
    let plan = Plan {
        pids: peer.pids(),
        length,
        room: if stays { TREE.to_owned() } else { format!("r{round}-{connections}") },
        scatter: stage.scatter.filter(|_| stays),
        ..Plan::new(peer.addrs(), work, connections, depth)
    };
    let measured = bench::run(&plan, &mut |_| Go::On).and_then(|outcome| {
        load::take_back(&plan, &outcome)?;
        if !stays {
            bench::clear(&plan)?;
        }
        Ok(Cell::from(&outcome))
    });
    let measured = measured.map_err(|e| e.to_string()).and_then(Cell::measured);
    measured.map_err(|e| peer.failure(&e))
}
