//! Servers that nobody asks anything: what they take, alone and with sessions that only live, and how
//! soon a new one answers.
//!
//! All servers are up at once while they have no session, for none disturbs another's memory or CPU time.
//! Then they get their sessions, one kind after the other, each pinging when a real client would.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::{Fault, proc};

use crate::bystanders::Bystanders;
use crate::idle_figures::{IdlePeer, Idleness, Node, Stand};
use crate::kinds::Kind;
use crate::machine;
use crate::peers::{self, Peer};

pub struct Settings {
    pub kinds: Vec<Kind>,
    /// Ensembles of so many servers each.
    pub servers: Vec<u16>,
    /// Idle sessions in the second part, which is left out if there are none.
    pub sessions: usize,
    /// How often an empty server is started to see how long that takes.
    pub starts: usize,
    /// Rest before the figures are taken.
    pub settle: Duration,
    /// How long CPU time is counted.
    pub window: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Measures all of them; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Idleness, String> {
    let mut figures = Idleness {
        site: machine::site(&settings.data),
        settle_ms: settings.settle.as_millis() as u64,
        window_ms: settings.window.as_millis() as u64,
        peers: starts(settings, &note)?,
    };
    let mut port = settings.base_port;
    let mut up = Vec::new();
    for &servers in &settings.servers {
        for (at, kind) in settings.kinds.iter().enumerate() {
            let mut peer = Peer::new(kind.clone(), servers, port, &settings.data)?;
            port += peers::PORTS_PER_SERVER * servers;
            peer.start("/")?;
            up.push((at, peer));
        }
    }
    std::thread::sleep(settings.settle);
    let mut watches =
        up.iter().map(|(_, peer)| Watch::begin(peer)).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(settings.window);
    for ((at, peer), watch) in up.iter().zip(watches.drain(..)) {
        keep(&mut figures, *at, Stand { sessions: 0, nodes: watch.end(peer)? }, &note);
    }
    for (at, peer) in up.into_iter().filter(|_| settings.sessions > 0) {
        let fault = |e: Fault| peer.failure(&e.to_string());
        let mut crowd = Bystanders::open(&peer.addrs(), settings.sessions).map_err(fault)?;
        crowd.live(settings.settle).map_err(fault)?;
        let watch = Watch::begin(&peer)?;
        crowd.live(settings.window).map_err(fault)?;
        let sessions = settings.sessions as u64;
        keep(&mut figures, at, Stand { sessions, nodes: watch.end(&peer)? }, &note);
    }
    Ok(figures)
}

/// Starts one new server of each kind after the other, and again.
fn starts(settings: &Settings, note: &impl Fn(&str)) -> Result<Vec<IdlePeer>, String> {
    let unmeasured =
        |kind: &Kind| IdlePeer { peer: kind.peer(), starts_ms: Vec::new(), stands: Vec::new() };
    let mut all: Vec<IdlePeer> = settings.kinds.iter().map(unmeasured).collect();
    for _ in 0..settings.starts {
        for (kind, figures) in settings.kinds.iter().zip(&mut all) {
            let mut peer = Peer::new(kind.clone(), 1, settings.base_port, &settings.data)?;
            let ms = peer.start("/")?.as_secs_f64() * 1e3;
            note(&format!("{}: first read {ms:.0} ms after exec", kind.name()));
            figures.starts_ms.push(ms);
        }
    }
    Ok(all)
}

fn keep(figures: &mut Idleness, at: usize, stand: Stand, note: &impl Fn(&str)) {
    let of = &mut figures.peers[at];
    let nodes: Vec<String> = stand.nodes.iter().map(ToString::to_string).collect();
    note(&format!("{}, {} sessions: {}", of.peer.name, stand.sessions, nodes.join("; ")));
    of.stands.push(stand);
}

/// The CPU time that each process of a peer had used at a moment.
pub struct Watch {
    began: Instant,
    cpu: Vec<f64>,
}

impl Watch {
    pub fn begin(peer: &Peer) -> Result<Self, String> {
        Ok(Watch { began: Instant::now(), cpu: cpu_of_each(peer)? })
    }

    /// What each has taken since, and the memory that it has now.
    pub fn end(self, peer: &Peer) -> Result<Vec<Node>, String> {
        let cpu = cpu_of_each(peer)?;
        let seconds = self.began.elapsed().as_secs_f64();
        let node = |((pid, after), before): ((u32, f64), f64)| {
            let rss_mib = proc::rss_mib_of(&[pid]).map_err(|e| peer.failure(&e.to_string()))?;
            Ok(Node { rss_mib, cpu: (after - before) / seconds })
        };
        peer.pids().into_iter().zip(cpu).zip(self.cpu).map(node).collect()
    }
}

fn cpu_of_each(peer: &Peer) -> Result<Vec<f64>, String> {
    let of = |pid: u32| proc::cpu_seconds(pid).map_err(|e| peer.failure(&e.to_string()));
    peer.pids().into_iter().map(of).collect()
}
