//! One abusive client beside a well-behaved one: what it costs that.
//!
//! On a machine that clients and servers share, an abusive client takes CPU from all, whichever server it
//! abuses. So the well-behaved client is measured three times: alone, while another server of the same kind is
//! abused, and while its own is. The last two differ by what the server lets one client do to another.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::proc;

use crate::abuse_figures::{Abused, AbusedPeer, Abuses, Stand};
use crate::abuser::{self, Abuse, Deeds};
use crate::kinds::Kind;
use crate::peers::{self, Peer};
use crate::witness::Witness;
use crate::{load, machine};

/// How long an abusive client has been there before anything is measured.
const SETTLE: Duration = Duration::from_secs(1);
/// From one look at the memory to the next.
const LOOK: Duration = Duration::from_millis(100);

pub struct Settings {
    pub kinds: Vec<Kind>,
    pub abuses: Vec<Abuse>,
    /// Length of each measurement.
    pub window: Duration,
    pub first_warm_up: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Measures one kind after the other; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Abuses, String> {
    let mut figures = Abuses {
        site: machine::site(&settings.data),
        window_ms: settings.window.as_millis() as u64,
        peers: Vec::new(),
    };
    let mut port = settings.base_port;
    for kind in &settings.kinds {
        let mut of = AbusedPeer { peer: kind.peer(), abuses: Vec::new() };
        for &abuse in &settings.abuses {
            // New ones, because an abuse may leave its mark.
            let mut start = || {
                let mut peer = Peer::new(kind.clone(), 1, port, &settings.data)?;
                port += peers::PORTS_PER_SERVER;
                peer.start("/")?;
                load::first_warm_up(&peer, settings.first_warm_up, true)?;
                Ok::<_, String>(peer)
            };
            let (own, other) = (start()?, start()?);
            load::rest([&own, &other]);
            let abused = measure(settings, abuse, &own, &other)?;
            note(&format!("{}, {}: {abused:.2?}", kind.name(), abuse.title()));
            of.abuses.push(abused);
        }
        figures.peers.push(of);
    }
    Ok(figures)
}

fn measure(settings: &Settings, abuse: Abuse, own: &Peer, other: &Peer) -> Result<Abused, String> {
    let mut witness = Witness::begin(own.addrs());
    let alone = witness.measure(settings.window).map_err(|e| own.failure(&e))?;
    let elsewhere = stand(settings, abuse, &mut witness, other, other)?;
    load::rest([own, other]);
    let beside = stand(settings, abuse, &mut witness, own, own);
    match (beside, witness.end()) {
        (Ok(beside), Ok(())) => {
            Ok(Abused { abuse, alone, elsewhere, beside: Some(beside), failed: None })
        }
        (Err(failed), _) | (Ok(_), Err(failed)) => {
            Ok(Abused { abuse, alone, elsewhere, beside: None, failed: Some(failed) })
        }
    }
}

/// The well-behaved client while a server is abused.
fn stand(
    settings: &Settings,
    abuse: Abuse,
    witness: &mut Witness,
    abused: &Peer,
    looked_at: &Peer,
) -> Result<Stand, String> {
    let (stop, deeds) = (AtomicBool::new(false), Deeds::default());
    let addr = abused.addrs()[0];
    let pids = looked_at.pids();
    thread::scope(|scope| {
        let abuser = scope.spawn(|| abuser::run(abuse, addr, &stop, &deeds));
        thread::sleep(SETTLE);
        let cpu = proc::cpu_seconds_of(&pids).map_err(|e| e.to_string());
        let before = deeds.count.load(Ordering::Relaxed);
        let began = Instant::now();
        witness.mark();
        let mut rss_mib: f64 = 0.0;
        while began.elapsed() < settings.window {
            rss_mib = rss_mib.max(proc::rss_mib_of(&pids).unwrap_or(f64::NAN));
            thread::sleep(LOOK);
        }
        let seconds = began.elapsed().as_secs_f64();
        let count = deeds.count.load(Ordering::Relaxed) - before;
        let used = proc::cpu_seconds_of(&pids).map_err(|e| e.to_string());
        let waited = witness.waited();
        stop.store(true, Ordering::Relaxed);
        let abuser = abuser.join().expect("the abusive client does not panic");
        // What has waited for the end of the abuse is its due, too.
        thread::sleep(SETTLE);
        abuser?;
        Ok(Stand {
            waited: waited?,
            per_second: count as f64 / seconds,
            cut_off: deeds.cut_off.load(Ordering::Relaxed),
            rss_max_mib: rss_mib,
            server_cpu: (used? - cpu?) / seconds,
        })
    })
}
