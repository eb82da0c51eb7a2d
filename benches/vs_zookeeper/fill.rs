//! A million znodes, or as many as one asks for: how fast they go in, what they take, and how soon they are
//! served again after a kill.
//!
//! The server is killed with SIGKILL directly after the last create was acknowledged, so the first
//! restart is the hard one; later ones follow a rest. At the end every node is read back: each was
//! acknowledged, so a missing one is a lost write and fails the run.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::internals::bench::{self, Go, Length, Outcome, Plan, Work, proc};

use crate::figures::Cell;
use crate::filled::{Filled, Restart};
use crate::kinds::Kind;
use crate::peers::Peer;

/// Connections that fill, each with so many creates in flight.
const CONNECTIONS: usize = 8;
const DEPTH: usize = 64;
/// How long after the first read the memory is looked at again.
const SETTLE: Duration = Duration::from_secs(5);
/// The node below which everything is created, by name and by path.
const ROOM: &str = "fill";
const ROOM_PATH: &str = "/bench/fill";

pub struct Settings {
    pub kind: Kind,
    pub nodes: u64,
    pub restarts: usize,
    pub port: u16,
    pub data: PathBuf,
}

pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Filled, String> {
    let start = || {
        let mut peer = Peer::new(settings.kind.clone(), 1, settings.port, &settings.data)?;
        let took = peer.start("/")?;
        Ok::<_, String>((peer, took.as_secs_f64() * 1e3))
    };
    let mut empty_starts_ms = Vec::new();
    for _ in 1..settings.restarts {
        empty_starts_ms.push(start()?.1);
    }
    let (mut peer, took) = start()?;
    empty_starts_ms.push(took);
    let each: Vec<u64> =
        (0..CONNECTIONS as u64).map(|at| (settings.nodes + at) / CONNECTIONS as u64).collect();
    let rss_empty_mib = Some(rss_mib(&peer)?);
    let outcome = load(&peer, Work::Create, &each)?;
    let mut filled = Filled {
        name: peer.kind.name().to_owned(),
        description: peer.kind.describe(),
        nodes: outcome.answered.iter().sum(),
        empty_starts_ms,
        create: Cell::from(&outcome),
        rss_empty_mib,
        rss_filled_mib: rss_mib(&peer)?,
        restarts: Vec::new(),
        disk_mib: 0.0,
    };
    note(&format!(
        "{}: {} nodes at {:.0}/s, server CPU {:.2} us/op, RSS {:.0} MiB",
        filled.name,
        filled.nodes,
        filled.create.per_second,
        filled.create.server_cpu_us,
        filled.rss_filled_mib
    ));
    let witness = format!("{}/d0000000", bench::below_path(ROOM_PATH, CONNECTIONS - 1));
    for _ in 0..settings.restarts {
        peer.kill();
        let took = peer.start(&witness)?;
        let rss_first_read_mib = rss_mib(&peer)?;
        std::thread::sleep(SETTLE);
        let restart = Restart {
            ms: took.as_secs_f64() * 1e3,
            rss_first_read_mib,
            rss_settled_mib: rss_mib(&peer)?,
        };
        note(&format!(
            "{}: first read {:.0} ms after exec, RSS {:.0} MiB, {} s later {:.0} MiB",
            filled.name,
            restart.ms,
            restart.rss_first_read_mib,
            SETTLE.as_secs(),
            restart.rss_settled_mib
        ));
        filled.restarts.push(restart);
    }
    filled.disk_mib = peer.disk_mib();
    if settings.restarts > 0 {
        load(&peer, Work::ReadBack, &each)?;
        note(&format!("{}: all {} nodes read back", filled.name, filled.nodes));
    }
    Ok(filled)
}

fn rss_mib(peer: &Peer) -> Result<f64, String> {
    proc::rss_mib_of(&peer.pids()).map_err(|e| peer.failure(&e.to_string()))
}

fn load(peer: &Peer, work: Work, each: &[u64]) -> Result<Outcome, String> {
    let plan = Plan {
        pids: peer.pids(),
        length: Length::Counted(each.to_vec()),
        room: ROOM.to_owned(),
        ..Plan::new(peer.addrs(), work, CONNECTIONS, DEPTH)
    };
    bench::run(&plan, &mut |_| Go::On).map_err(|e| peer.failure(&e.to_string()))
}
