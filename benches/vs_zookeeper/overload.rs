//! More load than a server can take: whether it still does as much as it can, loses no session, and stays
//! within bounds.
//!
//! Beside the load there are sessions that only ping, with a short timeout, and a well-behaved client. A
//! connection of the load that ends fails the run; sessions that expire are counted.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use lockkeeper::internals::bench::{self, Fault, Go, Length, PATIENCE, Plan, Session, proc};

use crate::crowd::Gathering;
use crate::crowds::Crowds;
use crate::figures::{Cell, median};
use crate::kinds::Kind;
use crate::mode::Mode;
use crate::overload_figures::{Overloaded, OverloadedPeer, Overloads};
use crate::peers::{self, Peer};
use crate::sessions_figures::Quantiles;
use crate::witness::Witness;
use crate::{load, machine};

/// Windows in which the most is found out, and their length.
const PROBES: usize = 3;
const PROBE: Duration = Duration::from_secs(3);
/// Unmeasured load before each measurement.
const WARM_UP: Duration = Duration::from_secs(2);
/// Sessions that only ping, and their timeout.
const BYSTANDERS: usize = 1_000;
const TIMEOUT: Duration = Duration::from_secs(6);
/// Until all of them are there, and until all are there again.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

pub struct Settings {
    pub kinds: Vec<Kind>,
    pub servers: u16,
    /// The load of which the most is found out.
    pub mode: Mode,
    /// The same with so many connections and requests in flight, when more is offered.
    pub deep: Mode,
    /// Multiples of the most that are offered.
    pub factors: Vec<f64>,
    pub window: Duration,
    pub first_warm_up: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Measures one kind after the other; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Overloads, String> {
    let mut figures = Overloads {
        site: machine::site(&settings.data),
        servers: settings.servers,
        mode: settings.mode,
        deep: settings.deep,
        window_ms: settings.window.as_millis() as u64,
        bystanders: BYSTANDERS,
        timeout_ms: TIMEOUT.as_millis() as u64,
        peers: Vec::new(),
    };
    let mut port = settings.base_port;
    for kind in &settings.kinds {
        let mut peer = Peer::new(kind.clone(), settings.servers, port, &settings.data)?;
        port += peers::PORTS_PER_SERVER * settings.servers;
        peer.start("/")?;
        load::first_warm_up(&peer, settings.first_warm_up, true)?;
        let measured = measure(settings, &peer, &note);
        figures.peers.push(measured.map_err(|e| peer.failure(&e))?);
    }
    Ok(figures)
}

fn plan(settings: &Settings, peer: &Peer, mode: Mode, window: Duration) -> Plan {
    debug_assert_eq!(mode.work, settings.mode.work);
    Plan {
        pids: peer.pids(),
        length: Length::Timed { warm_up: WARM_UP, window },
        room: format!("overload-{}x{}", mode.connections, mode.depth),
        ..Plan::new(peer.addrs(), mode.work, mode.connections, mode.depth)
    }
}

fn measure(
    settings: &Settings,
    peer: &Peer,
    note: &impl Fn(&str),
) -> Result<OverloadedPeer, String> {
    let name = peer.kind.name();
    let mut probes = Vec::new();
    for _ in 0..PROBES {
        load::rest([peer]);
        let probe = plan(settings, peer, settings.mode, PROBE);
        probes.push(run_once(&probe).map_err(|e| e.to_string())?);
    }
    let rates: Vec<f64> = probes.iter().map(|cell| cell.per_second).collect();
    let most = median(&rates);
    note(&format!("{name}: at most {most:.0}/s of {rates:.0?}"));
    let prepared = Session::open(peer.addrs()[0], PATIENCE).and_then(|mut session| {
        session.ensure("/crowd", b"")?;
        session.ensure("/watched", b"")?;
        session.close()
    });
    prepared.map_err(|e| e.to_string())?;
    let mut crowds = Crowds::start(&Gathering {
        addrs: peer.addrs(),
        count: BYSTANDERS,
        number: 0,
        room: "/crowd".to_owned(),
        watched: "/watched".to_owned(),
        timeout: TIMEOUT,
    })?;
    crowds.wait_for_all(PATIENCE_MAX)?;
    let mut witness = Witness::begin(peer.addrs());
    load::rest([peer]);
    let alone = witness.measure(settings.window)?;
    let mut of = OverloadedPeer { peer: peer.kind.peer(), probes, most, alone, loads: Vec::new() };
    for &factor in &settings.factors {
        load::rest([peer]);
        crowds.mark()?;
        witness.mark();
        let plan = Plan {
            rate: Some(most * factor),
            ..plan(settings, peer, settings.deep, settings.window)
        };
        let mut rss_max_mib: f64 = 0.0;
        let outcome = bench::run(&plan, &mut |_| {
            rss_max_mib = rss_max_mib.max(proc::rss_mib_of(&plan.pids).unwrap_or(f64::NAN));
            Go::On
        });
        let outcome = outcome.map_err(|e| e.to_string())?;
        let beside = witness.waited()?;
        // Whether any was lost is known when all have asked again.
        thread::sleep(TIMEOUT);
        let expired = crowds.wait_for_all(PATIENCE_MAX)?;
        let lost = crowds.standing()?.lost;
        let pings = Quantiles::of(&crowds.measured()?.pings);
        let unsent = outcome.unsent;
        let cell = Cell::from(&outcome);
        let loaded = Overloaded { factor, cell, unsent, beside, pings, expired, lost, rss_max_mib };
        note(&format!("{name}: {loaded:.2?}"));
        of.loads.push(loaded);
        bench::clear(&plan).map_err(|e| e.to_string())?;
    }
    witness.end()?;
    Ok(of)
}

fn run_once(plan: &Plan) -> Result<Cell, Fault> {
    let outcome = bench::run(plan, &mut |_| Go::On)?;
    bench::clear(plan)?;
    Ok(Cell::from(&outcome))
}
