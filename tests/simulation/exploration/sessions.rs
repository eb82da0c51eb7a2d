//! How the sessions of clients are handed over: three servers, elections, and clients that ask, are silent, or move.
//!
//! *Owns* the steps and what a client knows. What is right is in `ensemble/rules.rs`; here in addition: a server has
//! one connection of a session at a time. *Invariants*: a client uses the newest connection on which it was given its
//! session, and never looks at a server's state.

use std::fmt;

use bytes::Bytes;
use lockkeeper_core::proto::connect::ConnectResponse;
use lockkeeper_core::proto::request::{Create, CreateKind};
use lockkeeper_core::proto::response::ReplyHeader;
use lockkeeper_core::proto::{Acl, Reader, Request};
use lockkeeper_core::replica::ConnId;

use super::digest::BEGIN_US;
use super::ensemble::World as Ensemble;
use super::explorer::{Scope, Violation};

/// Rounds of a second within which all servers must serve, once faults are over.
const ROUNDS_MAX: u32 = 15;
/// Rounds for which they go on to serve, and end no connection.
const CALM_ROUNDS: u32 = 4;
/// How long all machines stand still.
const FROZEN_US: u64 = 1_800_000;

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub crashes: u8,
    /// Directions in which nothing arrives for a while.
    pub holds: u8,
    /// Pairs of links that break, and are made anew at once.
    pub breaks: u8,
    /// Processes that stand still for a while.
    pub stills: u8,
    /// Disks that make nothing durable for a while.
    pub disks: u8,
    /// Times that all machines stand still together.
    pub freezes: u8,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Sessions {
    pub ids: Vec<u8>,
    /// Who of them votes at first.
    pub founders: Vec<u8>,
    pub timeout_ms: i32,
    /// What passes in one step of time, microseconds.
    pub step_us: u64,
    /// One client each, connected to a server of this place in the order of the leader and its followers.
    pub clients: Vec<usize>,
    pub faults: Faults,
    /// The directions in which something may be late; none stands for all.
    pub late: Vec<(u8, u8)>,
    /// Steps of time for which anything is late, or stands still, at most.
    pub late_steps_max: u8,
    /// What is late may also arrive one message at a time.
    pub arrives_singly: bool,
    /// How often clients take their sessions to a server.
    pub moves: u8,
    /// How often clients create a znode.
    pub writes: u8,
    /// Elections beyond which nothing is explored.
    pub elections: u64,
    /// All must become well once faults are over.
    pub must_recover: bool,
}

impl Sessions {
    /// One client of the first follower, and no fault.
    pub fn new() -> Self {
        Self {
            ids: vec![1, 2, 3],
            founders: vec![1, 2, 3],
            timeout_ms: 1200,
            step_us: 600_000,
            clients: vec![1],
            faults: Faults::default(),
            late: Vec::new(),
            late_steps_max: 5,
            arrives_singly: false,
            moves: 0,
            writes: 0,
            elections: 2,
            must_recover: false,
        }
    }
}

/// A client, and what it knows.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its session, until it is told that this has ended.
    session: Option<(i64, Bytes)>,
    pub conn: Option<(u8, ConnId)>,
    /// What it has asked for that was answered, by its number, and with which error.
    pub answers: Vec<(i32, i32)>,
    /// Where it has asked to be given its session.
    knocks: Option<(u8, ConnId)>,
    /// Servers and connections that it was given its session on.
    had: Vec<(u8, ConnId)>,
    next_conn: ConnId,
    pub next_xid: i32,
}

pub struct World {
    pub ensemble: Ensemble,
    pub clients: Vec<Client>,
    pub left: Faults,
    moves_left: u8,
    writes_left: u8,
    /// Steps of time since something is late.
    late_steps: u8,
    first_term: u64,
    timeout_us: u64,
    /// Since faults are over, and of those the last in which all has been well.
    rounds: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Pass(u64),
    Ask(usize),
    Write(usize),
    Move(usize, u8),
    Hold(u8, u8),
    Release(u8, u8),
    Deliver(u8, u8),
    Freeze(u64),
    Break(u8, u8),
    Crash(u8),
    Restart(u8),
    StandStill(u8),
    GoOn(u8),
    HoldDisk(u8),
    ReleaseDisk(u8),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(us) => write!(f, "{} ms pass", us / 1000),
            Self::Ask(client) => write!(f, "client {client} asks for something"),
            Self::Write(client) => write!(f, "client {client} creates a znode"),
            Self::Move(client, to) => write!(f, "client {client} takes its session to server {to}"),
            Self::Hold(from, to) => {
                write!(f, "what server {from} sends to {to} is under way for now")
            }
            Self::Release(from, to) => write!(f, "what server {from} has sent to {to} arrives"),
            Self::Deliver(from, to) => {
                write!(f, "the first of what server {from} has sent to {to} arrives")
            }
            Self::Freeze(us) => write!(f, "all machines stand still for {} ms", us / 1000),
            Self::Break(a, b) => {
                write!(f, "the links between {a} and {b} break, and are made anew")
            }
            Self::Crash(id) => write!(f, "server {id} dies"),
            Self::Restart(id) => write!(f, "server {id} is started again"),
            Self::StandStill(id) => write!(f, "server {id} stands still"),
            Self::GoOn(id) => write!(f, "server {id} goes on"),
            Self::HoldDisk(id) => write!(f, "the disk of server {id} takes its time"),
            Self::ReleaseDisk(id) => write!(f, "the disk of server {id} has written all"),
        }
    }
}

fn create(path: &str, is_ephemeral: bool) -> Request {
    Request::Create(Create {
        path: path.into(),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags: i32::from(is_ephemeral),
        ttl_ms: 0,
        kind: CreateKind::Create,
    })
}

impl Sessions {
    /// The clients have their sessions, and an ephemeral each.
    pub fn world(&self) -> World {
        let mut ensemble = Ensemble::new(&self.ids, &self.founders, self.timeout_ms);
        let leader = ensemble.leader().expect("all serve");
        let mut places = vec![leader];
        places.extend(self.founders.iter().copied().filter(|id| *id != leader));
        let first_term = ensemble.term();
        ensemble.until("time", |ensemble| (ensemble.now_us - BEGIN_US).is_multiple_of(600_000));
        let mut world = World {
            ensemble,
            clients: Vec::new(),
            left: self.faults,
            moves_left: self.moves,
            writes_left: self.writes,
            late_steps: 0,
            first_term,
            timeout_us: self.timeout_ms as u64 * 1000,
            rounds: None,
        };
        for (at, place) in self.clients.iter().enumerate() {
            let next_conn = 100 * (at as u64 + 1);
            world.clients.push(Client {
                session: None,
                conn: None,
                answers: Vec::new(),
                knocks: None,
                had: Vec::new(),
                next_conn,
                next_xid: 1,
            });
            let begun = world.knock(at, places[*place]);
            let begun = begun.and_then(|()| world.ask(at, &create(&format!("/e{at}"), true)));
            begun.expect("it is given a session, and an ephemeral");
            assert!(world.clients[at].conn.is_some(), "client {at} has no session");
        }
        world
    }
}

impl Scope for Sessions {
    type World = World;
    type Choice = Choice;

    fn beginnings(&self) -> Vec<(String, World)> {
        let world = self.world();
        let leader = world.ensemble.leader().expect("it was there");
        let conns: Vec<_> = world.clients.iter().filter_map(|client| client.conn).collect();
        let servers: Vec<u8> = conns.iter().map(|(server, _)| *server).collect();
        vec![(format!("server {leader} leads, clients are connected to {servers:?}"), world)]
    }

    fn begin(&self, _: usize) -> World {
        self.world()
    }

    fn cloned(&self, _: &World) -> Option<World> {
        None
    }

    fn choices(&self, world: &World) -> Vec<Choice> {
        let mut choices = Vec::new();
        let ensemble = &world.ensemble;
        let is_over = ensemble.term() > world.first_term + self.elections
            || world.clients.iter().all(|client| client.session.is_none());
        if is_over {
            return choices;
        }
        if world.late_steps < self.late_steps_max {
            choices.push(Choice::Pass(self.step_us));
        }
        if world.left.freezes > 0 {
            choices.push(Choice::Freeze(FROZEN_US));
        }
        for (at, client) in world.clients.iter().enumerate() {
            if client.session.is_none() {
                continue;
            }
            let can_ask =
                client.conn.is_some_and(|(server, _)| !ensemble.host(server).stands_still);
            if can_ask && client.knocks.is_none() {
                choices.push(Choice::Ask(at));
                if world.writes_left > 0 {
                    choices.push(Choice::Write(at));
                }
            }
            if world.moves_left > 0 && client.knocks.is_none() {
                let to = self
                    .ids
                    .iter()
                    .copied()
                    .filter(|id| ensemble.runs(*id) && !ensemble.host(*id).stands_still);
                choices.extend(to.map(|id| Choice::Move(at, id)));
            }
        }
        for ((from, to), link) in &ensemble.links {
            if link.is_held {
                choices.push(Choice::Release(*from, *to));
                if self.arrives_singly && link.queue.len() > 1 {
                    choices.push(Choice::Deliver(*from, *to));
                }
            } else if world.left.holds > 0
                && (self.late.is_empty() || self.late.contains(&(*from, *to)))
            {
                choices.push(Choice::Hold(*from, *to));
            }
            if from < to && world.left.breaks > 0 {
                choices.push(Choice::Break(*from, *to));
            }
        }
        for id in &self.ids {
            let host = ensemble.host(*id);
            if host.replica.is_none() {
                choices.push(Choice::Restart(*id));
                continue;
            }
            if world.left.crashes > 0 {
                choices.push(Choice::Crash(*id));
            }
            if host.stands_still {
                choices.push(Choice::GoOn(*id));
            } else if world.left.stills > 0 {
                choices.push(Choice::StandStill(*id));
            }
            if host.disk.is_held {
                choices.push(Choice::ReleaseDisk(*id));
            } else if world.left.disks > 0 {
                choices.push(Choice::HoldDisk(*id));
            }
        }
        choices
    }

    fn take(&self, world: &mut World, choice: Choice) -> Result<(), Violation> {
        let (ensemble, left) = (&mut world.ensemble, &mut world.left);
        match choice {
            Choice::Pass(us) => {
                world.late_steps += 1;
                ensemble.pass(us)?;
            }
            Choice::Ask(at) => return world.ask(at, &Request::Ping),
            Choice::Write(at) => {
                world.writes_left -= 1;
                let path = format!("/w{}", world.writes_left);
                return world.ask(at, &create(&path, false));
            }
            Choice::Move(at, to) => {
                world.moves_left -= 1;
                return world.knock(at, to);
            }
            Choice::Hold(from, to) => {
                left.holds -= 1;
                ensemble.hold(from, to);
            }
            Choice::Release(from, to) => ensemble.release(from, to)?,
            Choice::Deliver(from, to) => ensemble.deliver(from, to)?,
            Choice::Freeze(us) => {
                left.freezes -= 1;
                ensemble.freeze(us)?;
            }
            Choice::Break(a, b) => {
                left.breaks -= 1;
                ensemble.reconnect(a, b)?;
            }
            Choice::Crash(id) => {
                left.crashes -= 1;
                ensemble.kill(id)?;
            }
            Choice::Restart(id) => ensemble.start(id, &self.ids)?,
            Choice::StandStill(id) => {
                left.stills -= 1;
                ensemble.host_mut(id).stands_still = true;
            }
            Choice::GoOn(id) => ensemble.wake(id)?,
            Choice::HoldDisk(id) => {
                left.disks -= 1;
                ensemble.host_mut(id).disk.is_held = true;
            }
            Choice::ReleaseDisk(id) => ensemble.release_disk(id)?,
        }
        if !world.ensemble.is_anything_late() {
            world.late_steps = 0;
        }
        world.collect(None)
    }

    fn fingerprint(&self, world: &World) -> u128 {
        let World {
            ensemble,
            clients,
            left,
            moves_left,
            writes_left,
            late_steps,
            first_term: _,
            timeout_us: _,
            rounds,
        } = world;
        let left = (left, moves_left, writes_left, late_steps, rounds);
        ensemble.digest().and(clients).and(&left).finish_128()
    }

    fn recover(&self, world: &mut World) -> Result<bool, Violation> {
        let (rounds, calm) = world.rounds.map_or((0, 0), |(rounds, calm)| (rounds + 1, calm));
        let ensemble = &mut world.ensemble;
        if rounds == 0 {
            (world.left, world.moves_left, world.writes_left) = (Faults::default(), 0, 0);
            for id in &self.ids {
                if !ensemble.runs(*id) {
                    ensemble.start(*id, &self.ids)?;
                }
                ensemble.wake(*id)?;
                ensemble.release_disk(*id)?;
            }
            let held: Vec<(u8, u8)> = ensemble.links.keys().copied().collect();
            for (from, to) in held {
                ensemble.release(from, to)?;
            }
        }
        let ended = ensemble.ended;
        ensemble.pass(1_000_000)?;
        world.collect(None)?;
        let serves = |id: &u8| world.ensemble.host(*id).is_serving();
        let calm = if self.ids.iter().all(serves) { calm + 1 } else { 0 };
        if calm > 1 && world.ensemble.ended > ended {
            return Err("a server ends a connection for no reason".to_owned());
        }
        world.rounds = Some((rounds, calm));
        if rounds >= ROUNDS_MAX && calm == 0 {
            return Err(format!("not all servers serve {ROUNDS_MAX} s after the last fault"));
        }
        for at in 0..world.clients.len() {
            let client = &world.clients[at];
            if calm == 0 || client.session.is_none() {
                continue;
            }
            match client.conn {
                Some(_) => world.ask(at, &Request::Ping)?,
                None => world.knock(at, client.had.last().map_or(1, |(server, _)| *server))?,
            }
        }
        Ok(calm >= CALM_ROUNDS)
    }

    fn must_recover(&self) -> bool {
        self.must_recover
    }
}

impl World {
    fn knock(&mut self, at: usize, to: u8) -> Result<(), Violation> {
        let client = &mut self.clients[at];
        client.next_conn += 1;
        client.knocks = Some((to, client.next_conn));
        // What it had before is of no use to it any more.
        client.conn = None;
        let (conn, session) = (client.next_conn, client.session.clone());
        self.ensemble.knock(to, conn, session)?;
        self.collect(None)
    }

    pub fn ask(&mut self, at: usize, request: &Request) -> Result<(), Violation> {
        let client = &mut self.clients[at];
        let (server, conn) = client.conn.expect("it is connected");
        let xid = match request {
            Request::Ping => -2,
            _ => {
                client.next_xid += 1;
                client.next_xid
            }
        };
        let is_write = matches!(request, Request::Create(_) | Request::Reconfig { .. });
        if let (Some((session, _)), true) = (&client.session, is_write) {
            self.ensemble.rules.wrote(*session, conn, xid);
        }
        self.ensemble.ask(server, conn, (xid, request))?;
        self.collect(Some((at, xid)))
    }

    /// The clients look at what they were sent. One of them has `asked` for something just now.
    fn collect(&mut self, asked: Option<(usize, i32)>) -> Result<(), Violation> {
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            if let Some((server, conn)) = client.knocks {
                let here = self.ensemble.host_mut(server).conns.get_mut(&conn);
                let (frame, is_closed) = here.map_or((None, true), |here| {
                    let frame = (!here.frames.is_empty()).then(|| here.frames.remove(0));
                    (frame, here.is_closed)
                });
                if let Some((at_us, frame)) = frame {
                    client.knocks = None;
                    let response = ConnectResponse::decode(frame).map_err(|bad| bad.to_string())?;
                    if response.session_id == 0 {
                        client.session = None;
                    } else {
                        let password = Bytes::copy_from_slice(&response.password);
                        client.session = Some((response.session_id, password));
                        client.conn = Some((server, conn));
                        client.had.push((server, conn));
                        self.ensemble.rules.given(response.session_id, self.timeout_us, at_us);
                    }
                } else if is_closed {
                    client.knocks = None;
                }
            }
            self.read(at, asked.filter(|(by, _)| *by == at).map(|(_, xid)| xid))?;
            self.one_connection(at)?;
        }
        Ok(())
    }

    fn read(&mut self, at: usize, asked: Option<i32>) -> Result<(), Violation> {
        let client = &mut self.clients[at];
        let Some((server, conn)) = client.conn else { return Ok(()) };
        let here = self.ensemble.host_mut(server).conns.get_mut(&conn);
        let Some(here) = here else {
            client.conn = None;
            return Ok(());
        };
        let is_closed = here.is_closed;
        for (_, frame) in std::mem::take(&mut here.frames) {
            let header =
                ReplyHeader::decode(&mut Reader::new(frame)).map_err(|bad| bad.to_string())?;
            self.ensemble.rules.showed(header.zxid);
            if header.xid >= 0 {
                client.answers.push((header.xid, header.err));
            }
            if asked == Some(header.xid)
                && let Some((session, _)) = &client.session
            {
                self.ensemble.rules.answered(*session, self.ensemble.now_us);
            }
        }
        if is_closed {
            client.conn = None;
        }
        Ok(())
    }

    fn one_connection(&self, at: usize) -> Result<(), Violation> {
        let client = &self.clients[at];
        for host in &self.ensemble.hosts {
            let is_open = |(server, conn): &&(u8, ConnId)| {
                let known = host.conns.get(conn);
                *server == host.id && known.is_some_and(|known| !known.is_closed)
            };
            let open: Vec<ConnId> =
                client.had.iter().filter(is_open).map(|(_, conn)| *conn).collect();
            if open.len() > 1 {
                return Err(format!("server {} has connections {open:?} of one session", host.id));
            }
        }
        Ok(())
    }
}
