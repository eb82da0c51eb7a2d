//! One parent with very many children: how fast they are created and deleted, what a list of them takes, and
//! what that does to another client.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::{Fault, PATIENCE, Session, proc, wire};

use crate::children_figures::{ManyChildren, Parent};
use crate::kinds::Kind;
use crate::peers::{self, Peer};
use crate::witness::Witness;
use crate::{load, machine};

/// The parent, and how long the names of its children are.
const PARENT: &str = "/parent";
const NAME_DIGITS: usize = 9;
/// Data in each.
const SIZE: usize = 100;
/// Lists that are measured.
const LISTS: usize = 5;
/// How long the well-behaved client is measured alone.
const ALONE: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const FRAME_MAX: usize = 1 << 30;

pub struct Settings {
    pub kinds: Vec<Kind>,
    pub children: usize,
    pub first_warm_up: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Measures one kind after the other; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<ManyChildren, String> {
    let mut figures = ManyChildren {
        site: machine::site(&settings.data),
        children: settings.children,
        peers: Vec::new(),
    };
    let mut port = settings.base_port;
    for kind in &settings.kinds {
        let mut peer = Peer::new(kind.clone(), 1, port, &settings.data)?;
        port += peers::PORTS_PER_SERVER;
        peer.start("/")?;
        load::first_warm_up(&peer, settings.first_warm_up, true)?;
        let parent = measure(settings, &peer).map_err(|e| peer.failure(&e))?;
        note(&format!("{}: {parent:.2?}", kind.name()));
        figures.peers.push(parent);
    }
    Ok(figures)
}

fn measure(settings: &Settings, peer: &Peer) -> Result<Parent, String> {
    let failed = |e: Fault| e.to_string();
    let count = settings.children;
    let mut session = Session::open(peer.addrs()[0], PATIENCE).map_err(failed)?;
    session.set_frame_max(FRAME_MAX);
    session.ensure(PARENT, b"").map_err(failed)?;
    let path = |number: usize| format!("{PARENT}/c{number:0NAME_DIGITS$}");
    let data = [0x5a; SIZE];
    let rss_before = proc::rss_mib_of(&peer.pids()).map_err(failed)?;
    let created_s = all(&mut session, count, |number| wire::create(&path(number), &data))?;
    let rss_mib = proc::rss_mib_of(&peer.pids()).map_err(failed)?;
    load::rest([peer]);
    let mut witness = Witness::begin(peer.addrs());
    let alone = witness.measure(ALONE)?;
    witness.mark();
    let (mut lists_ms, mut list_bytes) = (Vec::new(), 0);
    for _ in 0..LISTS {
        let began = Instant::now();
        let answer = session.call(wire::children(PARENT, false)).map_err(failed)?;
        lists_ms.push(began.elapsed().as_secs_f64() * 1e3);
        list_bytes = answer.body.len();
        let listed = wire::int_at(&answer.body, 0).unwrap_or(-1);
        if answer.err != 0 || listed as usize != count {
            return Err(format!("a list of {count} has {listed}, error {}", answer.err));
        }
    }
    let beside = witness.waited()?;
    witness.end()?;
    let began = Instant::now();
    if session.children(PARENT).map_err(failed)? as usize != count {
        return Err("a Stat has another number of children".to_owned());
    }
    let stat_ms = began.elapsed().as_secs_f64() * 1e3;
    let deleted_s = all(&mut session, count, |number| wire::delete(&path(number)))?;
    session.close().map_err(failed)?;
    Ok(Parent {
        peer: peer.kind.peer(),
        created_per_second: count as f64 / created_s,
        rss_before_mib: rss_before,
        rss_mib,
        lists_ms,
        list_bytes,
        stat_ms,
        alone,
        beside,
        deleted_per_second: count as f64 / deleted_s,
    })
}

/// Asks for something of each child, with some of it in flight; returns the seconds that this took.
fn all(
    session: &mut Session,
    count: usize,
    request: impl Fn(usize) -> Vec<u8>,
) -> Result<f64, String> {
    let began = Instant::now();
    let requests = (0..count).map(|number| (number.to_string(), request(number)));
    let done = session.call_all(requests, |number, answer| match answer.err {
        0 => Ok(()),
        err => Err(Fault::Wrong(format!("child {number}: error {err}"))),
    });
    done.map_err(|e| e.to_string())?;
    Ok(began.elapsed().as_secs_f64())
}
