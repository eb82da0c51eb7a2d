//! Load on one peer: unmeasured before the first round, measured and then taken back, and the rest that
//! all peers have before each measurement.

use std::time::{Duration, Instant};

use lockkeeper::internals::bench::{
    self, Fault, Go, Length, Outcome, PATIENCE, Plan, Session, Work,
};
use lockkeeper::internals::bench::{proc, wire};

use crate::figures::Cell;
use crate::kinds::Kind;
use crate::mode::Mode;
use crate::peers::Peer;
use crate::rivals::{self, Drive};

/// Longest wait for the peers to come to rest.
const REST_MAX: Duration = Duration::from_secs(5);
/// How long all peers must have been at rest.
const REST_STEP: Duration = Duration::from_millis(100);
/// CPU seconds per second below which a peer is at rest.
const REST_CPU: f64 = 0.15;

/// How long locks are held before the first round, so that a second holder would be seen.
const WARM_UP_HOLD: Duration = Duration::from_millis(1);

/// Room of the znodes that stay.
pub const TREE: &str = "tree";
/// Creates in flight on each connection that makes these.
const FILL_DEPTH: usize = 16;

/// How long everything is.
#[derive(Clone, Copy)]
pub struct Times {
    pub warm_up: Duration,
    pub window: Duration,
    /// A lock is held for so long.
    pub hold: Duration,
    /// Operations per second that are offered, if not as many as it takes. Not to rivals.
    pub rate: Option<f64>,
}

/// Runs a load and takes away the nodes it created, so that every round finds the same tree.
pub fn load_and_clean(peer: &Peer, mode: Mode, room: &str, times: Times) -> Result<Cell, String> {
    let failed = |e: Fault| peer.failure(&e.to_string());
    let pids = peer.pids();
    let Times { warm_up, window, hold, rate } = times;
    if let Some(rival) = peer.kind.rival() {
        let shares = mode.work.contends();
        let drive = Drive { shares, hold, pids: &pids, warm_up, window };
        let driven = rivals::run(rival, &peer.addrs(), mode.connections, &drive);
        return driven.map(Cell::from).map_err(|e| peer.failure(&e));
    }
    let plan = Plan {
        pids,
        length: Length::Timed { warm_up, window },
        room: room.to_owned(),
        rate,
        hold: if mode.work.locks() { hold } else { Duration::ZERO },
        ..Plan::new(peer.addrs(), mode.work, mode.connections, mode.depth)
    };
    let outcome = bench::run(&plan, &mut |_| Go::On).map_err(failed)?;
    if mode.work == Work::Churn {
        bench::clear(&plan).map_err(failed)?;
    } else {
        take_back(&plan, &outcome).and_then(|()| clean(&plan)).map_err(failed)?;
    }
    Ok(Cell::from(&outcome))
}

/// Makes so many numbered znodes in the room that stays; returns how many are each connection's, which
/// are equally many.
pub fn create_numbered(peer: &Peer, connections: usize, count: u64) -> Result<Vec<u64>, Fault> {
    let each = vec![count.div_ceil(connections as u64); connections];
    let plan = Plan {
        length: Length::Counted(each.clone()),
        room: TREE.to_owned(),
        ..Plan::new(peer.addrs(), Work::Create, connections, FILL_DEPTH)
    };
    bench::run(&plan, &mut |_| Go::On)?;
    Ok(each)
}

/// Deletes what a run of create has made. Not by `bench::clear`: the null server cannot list.
pub fn take_back(plan: &Plan, outcome: &Outcome) -> Result<(), Fault> {
    if plan.work != Work::Create {
        return Ok(());
    }
    let deletes = Plan {
        work: Work::Delete,
        // Deep, because nobody measures it.
        depth: 256 / plan.connections.clamp(1, 256),
        length: Length::Counted(outcome.answered.clone()),
        rate: None,
        ..plan.clone()
    };
    bench::run(&deletes, &mut |_| Go::On).map(drop)
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

/// Unmeasured load of every kind, with locks if so asked: `whole` for a ZooKeeper, because of its
/// compiler, and a fifth of it for others.
pub fn first_warm_up(peer: &Peer, whole: Duration, locks: bool) -> Result<(), String> {
    let whole = match peer.kind {
        Kind::ZooKeeper { .. } => whole,
        Kind::Lockkeeper { .. }
        | Kind::Null
        | Kind::Redis { .. }
        | Kind::Redlock { .. }
        | Kind::Etcd { .. } => whole / 5,
    };
    let mut modes = vec![(Work::Get, 16), (Work::Set, 16), (Work::Create, 16)];
    modes.extend([(Work::Lock, 1), (Work::Contended, 1)].into_iter().filter(|_| locks));
    modes.retain(|(work, _)| peer.kind.does(*work));
    let window = whole / modes.len().max(1) as u32;
    for (work, depth) in modes {
        let mode = Mode { work, connections: 16, depth };
        let times = Times { warm_up: Duration::ZERO, window, hold: WARM_UP_HOLD, rate: None };
        load_and_clean(peer, mode, "warm-up", times)?;
    }
    Ok(())
}

/// Waits until no peer has anything left to do; false if one would not come to rest. What anybody has
/// written is on the disk then: else the kernel writes it while the next one is measured, whose syncs wait
/// behind it.
pub fn rest<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> bool {
    let pids: Vec<u32> = peers.into_iter().flat_map(Peer::pids).collect();
    rustix::fs::sync();
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
