//! Many sessions, each with an ephemeral znode and a watch: what servers take for them, and what happens when
//! all lose their connections at one moment, when the leader dies, and when all expire.
//!
//! A well-behaved client has lock cycles beside them. *Invariants*, checked: all sessions are served again
//! and none is lost, each with its znode and its watch; none ends before its timeout, and all znodes go.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::{Fault, PATIENCE, Session, proc, wire};

use crate::crowd::Gathering;
use crate::crowds::{Crowds, Measured};
use crate::idle::Watch;
use crate::kinds::Kind;
use crate::peers::{self, Peer};
use crate::sessions_figures::{Event, ManySessions, Quantiles, SessionsPeer};
use crate::witness::{Retrying, Waited, Witness};
use crate::{load, machine};

/// The znodes of the sessions, and the one that they watch.
const ROOM: &str = "/crowd";
const WATCHED: &str = "/watched";
/// The one that a client sets while the leader is killed.
const SET: &str = "/set";
/// How long everything may take beside timeouts.
const PATIENCE_MAX: Duration = Duration::from_secs(180);
/// How long the well-behaved client is measured alone, and how long it has after an event, so that what
/// has waited is among what is measured.
const ALONE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(2);
/// Time between two counts of the znodes that are left.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);
/// Files that a server needs beside its clients' connections.
const FILES_OTHER: usize = 300;

pub struct Settings {
    pub kinds: Vec<Kind>,
    pub servers: u16,
    pub sessions: usize,
    pub timeout: Duration,
    /// Rest before figures are taken.
    pub settle: Duration,
    /// How long CPU time is counted.
    pub window: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Measures one kind after the other; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<ManySessions, String> {
    let mut figures = ManySessions {
        site: machine::site(&settings.data),
        servers: settings.servers,
        sessions: settings.sessions,
        timeout_ms: settings.timeout.as_millis() as u64,
        window_ms: settings.window.as_millis() as u64,
        peers: Vec::new(),
    };
    let mut port = settings.base_port;
    for kind in &settings.kinds {
        let mut peer = Peer::new(kind.clone(), settings.servers, port, &settings.data)?;
        port += peers::PORTS_PER_SERVER * settings.servers;
        peer.start("/")?;
        let measured = measure(settings, &mut peer, &note);
        figures.peers.push(measured.map_err(|e| peer.failure(&e))?);
    }
    Ok(figures)
}

fn measure(
    settings: &Settings,
    peer: &mut Peer,
    note: &impl Fn(&str),
) -> Result<SessionsPeer, String> {
    let name = peer.kind.name();
    prepare(peer).map_err(|e| e.to_string())?;
    load::rest([&*peer]);
    std::thread::sleep(settings.settle);
    let watch = Watch::begin(peer)?;
    std::thread::sleep(settings.window);
    let without = watch.end(peer)?;
    let began = Instant::now();
    let mut crowds = Crowds::start(&Gathering {
        addrs: peer.addrs(),
        count: settings.sessions,
        number: 0,
        room: ROOM.to_owned(),
        watched: WATCHED.to_owned(),
        timeout: settings.timeout,
    })?;
    crowds.wait_for_all(PATIENCE_MAX)?;
    let opened_s = began.elapsed().as_secs_f64();
    let opened = crowds.measured()?;
    check_znodes(peer, settings.sessions)?;
    note(&format!("{name}: {} sessions are there after {opened_s:.1} s", settings.sessions));
    std::thread::sleep(settings.settle);
    crowds.mark()?;
    let watch = Watch::begin(peer)?;
    std::thread::sleep(settings.window);
    let with = watch.end(peer)?;
    let pings = Quantiles::of(&crowds.measured()?.pings);
    let nodes: Vec<String> = with.iter().map(ToString::to_string).collect();
    note(&format!("{name}: {}; pings {pings:?}", nodes.join("; ")));
    let witness = Some(Witness::begin(peer.addrs()));
    let (events, overflows) = (Vec::new(), None);
    let mut storms = Storms { settings, peer, crowds, witness, events, overflows, note };
    let alone = storms.witness()?.measure(ALONE)?;
    storms.all()?;
    storms.take_witness()?;
    let events = storms.events;
    let opens = Quantiles::of(&opened.returns);
    Ok(SessionsPeer {
        peer: peer.kind.peer(),
        opened_s,
        opens,
        without,
        with,
        pings,
        alone,
        events,
    })
}

/// The znodes that must be there.
fn prepare(peer: &Peer) -> Result<(), Fault> {
    let mut session = Session::open(peer.addrs()[0], PATIENCE)?;
    session.ensure(ROOM, b"")?;
    session.ensure(WATCHED, b"")?;
    session.ensure(SET, b"")?;
    session.close()
}

/// Whether each session has its znode.
fn check_znodes(peer: &Peer, sessions: usize) -> Result<(), String> {
    let left = count(peer).map_err(|e| e.to_string())?;
    match left as usize == sessions {
        true => Ok(()),
        false => Err(format!("{left} ephemeral znodes of {sessions} sessions")),
    }
}

fn count(peer: &Peer) -> Result<u32, Fault> {
    let mut session = Session::open(peer.addrs()[0], PATIENCE)?;
    // Left to expire, for the same reason as the one that changes the watched znode.
    session.children(ROOM)
}

/// What happens to all sessions, one after the other.
struct Storms<'a, N: Fn(&str)> {
    settings: &'a Settings,
    peer: &'a mut Peer,
    crowds: Crowds,
    witness: Option<Witness>,
    events: Vec<Event>,
    /// Handshakes that had been dropped when the event began.
    overflows: Option<u64>,
    note: &'a N,
}

impl<N: Fn(&str)> Storms<'_, N> {
    fn all(&mut self) -> Result<(), String> {
        self.notify("all are notified")?;
        self.reconnect()?;
        self.notify("all are notified, after that")?;
        let servers = usize::from(self.settings.servers);
        // A server has all files that this process may have, and the sessions of the leader all go to the next one.
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let room = files.map_or(usize::MAX, |files| (files as usize).saturating_sub(FILES_OTHER));
        if servers > 1 && 2 * self.settings.sessions.div_ceil(servers) <= room {
            self.fail_over()?;
        }
        self.expire()
    }

    /// The watched znode changes, and each session is told of it.
    fn notify(&mut self, what: &str) -> Result<(), String> {
        self.begin()?;
        let began = Instant::now();
        // Its session is left to expire: a server that is busy with the events may end the connection before
        // it has answered that the session is closed.
        let changed = Session::open(self.peer.addrs()[0], PATIENCE)
            .and_then(|mut session| session.call(wire::set(WATCHED, b"")));
        match changed.map_err(|e| e.to_string())?.err {
            0 => {}
            err => return Err(format!("the watched znode is not changed: error {err}")),
        }
        self.crowds.wait_for_events(1, PATIENCE_MAX)?;
        self.end(what, began.elapsed(), None, 0)
    }

    /// All lose their connections at one moment and come back.
    fn reconnect(&mut self) -> Result<(), String> {
        self.begin()?;
        let began = Instant::now();
        self.crowds.drop_all(true)?;
        let expired = self.crowds.wait_for_all(self.settings.timeout + PATIENCE_MAX)?;
        let took = began.elapsed();
        check_znodes(self.peer, self.settings.sessions - expired)?;
        self.end("all lose their connections and come back", took, None, expired)
    }

    /// The leader is killed, and its sessions go to the others. Then it comes back.
    fn fail_over(&mut self) -> Result<(), String> {
        let leader = self.peer.leader()?;
        let addrs = self.peer.addrs();
        let others: Vec<SocketAddr> = addrs
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != leader)
            .map(|(_, addr)| *addr)
            .collect();
        // A client whose writes are in flight then may lose its connection, so this one begins again.
        self.take_witness()?;
        let retrying = Retrying::begin(others, SET);
        std::thread::sleep(AFTER);
        self.crowds.mark()?;
        self.overflows = machine::listen_overflows();
        let began = Instant::now();
        self.peer.kill_one(leader);
        self.crowds.wait_for_loss(PATIENCE_MAX)?;
        let expired = self.crowds.wait_for_all(self.settings.timeout + PATIENCE_MAX)?;
        let took = began.elapsed();
        std::thread::sleep(AFTER);
        let beside = retrying.end()?;
        self.keep("the leader is killed (beside it sets, repeated)", took, None, expired, beside)?;
        self.peer.start_one(leader)?;
        check_znodes(self.peer, self.settings.sessions - expired)?;
        self.witness = Some(Witness::begin(addrs));
        Ok(())
    }

    /// All lose their connections at one moment, and none comes back.
    fn expire(&mut self) -> Result<(), String> {
        self.begin()?;
        let began = Instant::now();
        let earliest = self.crowds.drop_all(false)?;
        let failed = |e: Fault| e.to_string();
        let mut counter = Session::open(self.peer.addrs()[0], PATIENCE).map_err(failed)?;
        let mut first = None;
        loop {
            let left = counter.children(ROOM).map_err(failed)? as usize;
            let now = Instant::now();
            if left < self.settings.sessions && first.is_none() {
                if now < earliest {
                    return Err("a session has ended before its timeout".to_owned());
                }
                first = Some(now - began);
            }
            if left == 0 {
                break;
            }
            if now - began > self.settings.timeout + PATIENCE_MAX {
                return Err(format!("{left} ephemeral znodes outlast their sessions"));
            }
            std::thread::sleep(COUNT_INTERVAL);
        }
        let took = began.elapsed();
        counter.close().map_err(failed)?;
        self.end("all expire; until the znodes are gone", took, first, 0)
    }

    fn begin(&mut self) -> Result<(), String> {
        self.crowds.mark()?;
        self.overflows = machine::listen_overflows();
        self.witness()?.mark();
        Ok(())
    }

    fn witness(&mut self) -> Result<&mut Witness, String> {
        self.witness.as_mut().ok_or_else(|| "there is no well-behaved client".to_owned())
    }

    fn take_witness(&mut self) -> Result<(), String> {
        self.witness.take().map_or(Ok(()), Witness::end)
    }

    fn end(
        &mut self,
        what: &str,
        took: Duration,
        first: Option<Duration>,
        expired: usize,
    ) -> Result<(), String> {
        std::thread::sleep(AFTER);
        let beside = self.witness()?.waited()?;
        self.keep(what, took, first, expired, beside)
    }

    fn keep(
        &mut self,
        what: &str,
        took: Duration,
        first: Option<Duration>,
        expired: usize,
        beside: Waited,
    ) -> Result<(), String> {
        let Measured { returns, .. } = self.crowds.measured()?;
        let rss = proc::rss_mib_of(&self.peer.pids()).map_err(|e| e.to_string())?;
        let event = Event {
            what: what.to_owned(),
            seconds: took.as_secs_f64(),
            first_s: first.map(|first| first.as_secs_f64()),
            expired,
            returns: (!returns.is_empty()).then(|| Quantiles::of(&returns)),
            returned: returns.len(),
            overflows: machine::listen_overflows()
                .zip(self.overflows)
                .map(|(now, then)| now - then),
            beside,
            rss_mib: rss,
        };
        (self.note)(&format!("{}: {event:.2?}", self.peer.kind.name()));
        self.events.push(event);
        Ok(())
    }
}
