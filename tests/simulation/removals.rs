//! Removals of members: an operator removes servers of an ensemble, and others stop at the very answer.
//!
//! *Owns* a world of its own: replicas, links that deliver in order and late, disks that sync late and forget
//! what was not synced, and nothing else that goes wrong before the answer. *Rule*: after the answer to a
//! removal, any majority of those that stay elects a leader and takes a write, whichever servers stop at that
//! moment and whatever they had still to send, and also if those that go on lose their power then.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};
use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::proto::connect::ConnectRequest;
use lockkeeper_core::proto::request::{Create, CreateKind, RequestHeader};
use lockkeeper_core::proto::response::ReplyHeader;
use lockkeeper_core::proto::{Acl, Reader, Request, Text, frame};
use lockkeeper_core::replica::{
    Append, ClientRequest, Entry, HardState, Input, Machine, Membership, PeerMessage, Replica,
    Restored, Setup, Status, TICK_MS, Urgency,
};
use lockkeeper_core::tree;

use super::conn::Violation;
use super::rng::Rng;

/// How long anything may take that must happen, in microseconds.
const PATIENCE_US: u64 = 30_000_000;
/// How long an attempt to write may take, and how many there may be.
const ATTEMPT_US: u64 = 5_000_000;
const ATTEMPTS_MAX: u64 = 10;
/// The operator's connection, and that of a client that writes all the time.
const OPERATOR: u64 = 1;
const WRITER: u64 = 2;
/// The operator's request.
const REMOVAL: i32 = 1000;

/// A seed that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    pub outcome: Outcome,
    pub simulated_ms: u64,
}

/// What became of the removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The removal was answered, and those that stay went on.
    Acknowledged,
    /// It was refused, or its connection was closed.
    Unknown,
}

/// Plays a seed.
///
/// # Errors
/// The rule that was broken.
pub fn run(seed: u64) -> Result<Played, Violation> {
    let mut world = World::new(seed);
    let outcome = play(&mut world)?;
    Ok(Played { outcome, simulated_ms: world.now_us / 1000 })
}

/// For how long a seed that went well was simulated.
pub fn simulated_ms(played: &Result<Played, Violation>) -> Option<u64> {
    played.as_ref().ok().map(|played| played.simulated_ms)
}

fn play(world: &mut World) -> Result<Outcome, Violation> {
    world.until("a leader", |world| world.serving().is_some())?;
    let count = world.servers.len();
    let leaves = world.draw_leaving();
    // As many as may be down are, of those that leave.
    let mut down: Vec<u8> = leaves.clone();
    down.truncate((count - 1) / 2);
    let is_down = world.rng.chance(700);
    if is_down {
        down.iter().for_each(|server| world.kill(*server));
    }
    let stays: Vec<u8> = (1..=count as u8).filter(|id| !leaves.contains(id)).collect();
    world.until("a leader", |world| world.serving().is_some())?;
    let asked = *world.rng.pick(&stays);
    world.until("it serves", |world| world.replica(asked).is_some_and(Replica::is_serving))?;
    for conn in [OPERATOR, WRITER] {
        world.connect(asked, conn);
        let is_open = |world: &World| !world.answers(asked, conn).is_empty();
        world.until(&format!("session {conn} of {asked}"), |world| {
            is_open(world) || world.is_closed(asked, conn)
        })?;
        if !is_open(world) {
            return Ok(Outcome::Unknown);
        }
    }
    let auth = Bytes::from_static(b"super:test");
    world.ask(
        asked,
        OPERATOR,
        -4,
        &Request::Auth { scheme: Some("digest".into()), auth: Some(auth) },
    );
    let leaving: Vec<String> = leaves.iter().map(ToString::to_string).collect();
    let leaving = Some(Text::from(leaving.join(",")));
    let removal = Request::Reconfig { joining: None, leaving, members: None, version: -1 };
    world.writer = Some(asked);
    let pause_us = world.rng.below(300_000);
    let asks_at_us = world.now_us + pause_us;
    world.until("time passes", |world| world.now_us >= asks_at_us)?;
    world.ask(asked, OPERATOR, REMOVAL, &removal);
    world.until("an answer", |world| {
        world.is_closed(asked, OPERATOR) || world.answer_to_removal(asked).is_some()
    })?;
    if world.answer_to_removal(asked) != Some(0) {
        return Ok(Outcome::Unknown);
    }
    world.any_majority_goes_on(&stays)?;
    Ok(Outcome::Acknowledged)
}

#[derive(Debug)]
enum Event {
    Tick(u8),
    Write,
    Persisted { server: u8, life: u64 },
    Deliver { from: u8, to: u8, link: u64, message: PeerMessage },
}

/// A disk: what is on it for good, and what is on its way there.
#[derive(Debug, Default)]
struct Disk {
    entries: BTreeMap<u64, Entry>,
    hard_state: HardState,
    /// Whether the last of them are to be made durable now, or with the next that are.
    writing: Vec<(Append, bool)>,
}

impl Disk {
    /// The oldest append that is on its way is there: its number, if somebody waits for it.
    fn advance(&mut self) -> Option<u64> {
        let until = self.writing.iter().position(|(_, is_synced)| *is_synced)?;
        let mut number = None;
        for (append, _) in self.writing.drain(..=until) {
            for entry in append.entries {
                self.entries.split_off(&entry.index);
                self.entries.insert(entry.index, entry);
            }
            self.hard_state = append.hard_state.unwrap_or(self.hard_state);
            number = Some(append.number);
        }
        number
    }
}

#[derive(Debug)]
struct Server {
    replica: Option<Replica>,
    life: u64,
    disk: Disk,
    durable_us: u64,
    /// Frames that each connection was sent, and whether it was closed.
    seen: BTreeMap<u64, (Vec<Bytes>, bool)>,
}

struct World {
    rng: Rng,
    now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    servers: Vec<Server>,
    /// By sender and receiver: the number of the link, and when the last message arrives.
    links: BTreeMap<(u8, u8), (u64, u64)>,
    latency_us_max: u64,
    sync_us_max: u64,
    /// The server that a client writes to.
    writer: Option<u8>,
    next_xid: i32,
}

fn line(id: u8) -> String {
    format!("127.0.0.1:{id}:10{id};20{id}")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 40);
        let count = *rng.pick(&[3, 4, 5, 5, 6, 7]);
        let latency_us_max = *rng.pick(&[100, 2000, 20_000]);
        let sync_us_max = *rng.pick(&[1, 1000, 30_000]);
        let mut world = Self {
            rng,
            now_us: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            servers: Vec::new(),
            links: BTreeMap::new(),
            latency_us_max,
            sync_us_max,
            writer: None,
            next_xid: 1,
        };
        for _ in 1..=count {
            world.servers.push(Server {
                replica: None,
                life: 0,
                disk: Disk::default(),
                durable_us: 0,
                seen: BTreeMap::new(),
            });
        }
        for id in 1..=count {
            world.start(id);
        }
        world.at(1000, Event::Write);
        world
    }

    /// At least two stay.
    fn draw_leaving(&mut self) -> Vec<u8> {
        let count = self.servers.len();
        let mut ids: Vec<u8> = (1..=count as u8).collect();
        let leave = 1 + self.rng.index(count - 2);
        (0..leave).map(|_| ids.swap_remove(self.rng.index(ids.len()))).collect()
    }

    /// Starts a server from what is on its disk.
    fn start(&mut self, id: u8) {
        let count = self.servers.len() as u8;
        let specs = (1..=count).map(|id| ServerSpec::parse(id, &line(id)).expect("a line"));
        let life = self.servers[usize::from(id) - 1].life;
        let setup = Setup {
            raft_id: id.into(),
            server_id: id,
            seed: [id ^ (life as u8) << 4; 32],
            ensemble: Some(specs.collect()),
            reconfig_enabled: true,
            ..Setup::default()
        };
        let options = tree::Options {
            super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
            ..tree::Options::default()
        };
        let disk = &self.servers[usize::from(id) - 1].disk;
        let restored = Restored {
            hard_state: disk.hard_state,
            membership: Membership {
                voters: (1..=u64::from(count)).collect(),
                learners: Vec::new(),
            },
            tail: disk.entries.values().cloned().collect(),
            ..Restored::default()
        };
        let replica = Replica::new(setup, Machine::fresh(options), restored).expect("it fits");
        self.servers[usize::from(id) - 1].replica = Some(replica);
        for other in (1..=count).filter(|other| *other != id) {
            if self.replica(other).is_some() {
                self.link(id, other);
            }
        }
        let in_us = self.rng.below(TICK_MS * 1000);
        self.at(in_us, Event::Tick(id));
    }

    fn link(&mut self, one: u8, other: u8) {
        for (from, to) in [(one, other), (other, one)] {
            self.next_event += 1;
            self.links.insert((from, to), (self.next_event, self.now_us));
            self.step(from, Input::PeerUp { peer: to.into() });
        }
    }

    /// Ends a server: what it was to write, and some or all of what it has sent, is lost.
    fn kill(&mut self, id: u8) {
        let server = &mut self.servers[usize::from(id) - 1];
        if server.replica.take().is_none() {
            return;
        }
        server.life += 1;
        server.disk.writing.clear();
        server.seen.clear();
        for other in 1..=self.servers.len() as u8 {
            self.links.remove(&(other, id));
            if self.links.remove(&(id, other)).is_some() {
                self.step(other, Input::PeerDown { peer: id.into() });
            }
        }
    }

    fn replica(&self, id: u8) -> Option<&Replica> {
        self.servers[usize::from(id) - 1].replica.as_ref()
    }

    fn serving(&self) -> Option<u8> {
        (1..=self.servers.len() as u8).find(|id| {
            self.replica(*id)
                .is_some_and(|replica| replica.is_serving() && replica.status().leader == Some(*id))
        })
    }

    fn at(&mut self, in_us: u64, event: Event) {
        self.next_event += 1;
        self.queue.insert((self.now_us + in_us, self.next_event), event);
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        let deadline_us = self.now_us + PATIENCE_US;
        while !done(self) {
            let ((at_us, _), event) = self.queue.pop_first().expect("servers tick");
            if at_us > deadline_us {
                let shown = |server: &Server| {
                    let Some(replica) = &server.replica else { return "down".to_owned() };
                    let status = replica.status();
                    let Status { mode, term, leader, serving, zxid, peers, .. } = status;
                    format!(
                        "{mode:?} term {term} leader {leader:?} serving {serving} {zxid:#x} {peers:?}"
                    )
                };
                let shown: Vec<String> = self.servers.iter().map(shown).collect();
                return Err(format!("still waiting for {what}: {}", shown.join("; ")));
            }
            self.now_us = at_us;
            self.happen(event);
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(id) => {
                self.step_all(id, Vec::new());
                self.at(TICK_MS * 1000, Event::Tick(id));
            }
            Event::Write => {
                if let Some(id) = self.writer
                    && !self.is_closed(id, WRITER)
                {
                    self.next_xid += 1;
                    self.ask(id, WRITER, self.next_xid, &create(self.next_xid));
                }
                let in_us = 1 + self.rng.below(20_000);
                self.at(in_us, Event::Write);
            }
            Event::Persisted { server, life } => {
                let known = &mut self.servers[usize::from(server) - 1];
                if known.life == life
                    && let Some(number) = known.disk.advance()
                    && let Some(replica) = &mut known.replica
                {
                    replica.persisted(number);
                    self.act(server);
                }
            }
            Event::Deliver { from, to, link, message } => {
                if self.links.get(&(from, to)).is_some_and(|(known, _)| *known == link) {
                    self.step(to, Input::Peer { from: from.into(), message });
                }
            }
        }
    }

    fn step(&mut self, id: u8, input: Input) {
        self.step_all(id, vec![input]);
    }

    fn step_all(&mut self, id: u8, inputs: Vec<Input>) {
        let now_us = self.now_us;
        let wall_ms = 1_000_000 + (now_us / 1000) as i64;
        let Some(replica) = &mut self.servers[usize::from(id) - 1].replica else { return };
        replica.step(Input::Tick { now_us, wall_ms });
        inputs.into_iter().for_each(|input| replica.step(input));
        self.act(id);
    }

    /// Does what a replica wants.
    fn act(&mut self, id: u8) {
        loop {
            let server = &mut self.servers[usize::from(id) - 1];
            let Some(replica) = &mut server.replica else { return };
            let Some(ready) = replica.ready().expect("no invariant is broken") else { return };
            for outgoing in ready.client {
                let seen = server.seen.entry(outgoing.conn).or_default();
                let mut bytes = BytesMut::from(&outgoing.frames[..]);
                while let Some(payload) = frame::next(&mut bytes, usize::MAX).expect("frames") {
                    seen.0.push(payload);
                }
                seen.1 |= outgoing.close;
            }
            for fetch in ready.fetch {
                let entries = server.disk.entries.range(fetch.from..=fetch.to);
                let entries = entries.map(|(_, entry)| entry.clone()).collect();
                replica.step(Input::Fetched { fetch, entries });
            }
            if let Some(append) = ready.append {
                let is_synced = append.urgency != Urgency::None;
                server.disk.writing.push((append, is_synced));
                if is_synced {
                    let late_us = self.rng.below(self.sync_us_max);
                    let done_us = server.durable_us.max(self.now_us + late_us);
                    server.durable_us = done_us;
                    let life = server.life;
                    self.at(done_us - self.now_us, Event::Persisted { server: id, life });
                }
            }
            for (to, message) in ready.send {
                let to = to as u8;
                let late_us = 1 + self.rng.below(self.latency_us_max);
                let Some((link, last_us)) = self.links.get_mut(&(id, to)) else { continue };
                *last_us = (self.now_us + late_us).max(*last_us);
                let (link, in_us) = (*link, *last_us - self.now_us);
                self.at(in_us, Event::Deliver { from: id, to, link, message });
            }
        }
    }

    fn connect(&mut self, id: u8, conn: u64) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 40_000,
            session_id: 0,
            password: Bytes::new(),
            read_only: None,
        };
        self.servers[usize::from(id) - 1].seen.remove(&conn);
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.step(
            id,
            Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request },
        );
    }

    fn ask(&mut self, id: u8, conn: u64, xid: i32, request: &Request) {
        let mut payload = Vec::new();
        RequestHeader { xid, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        let request = ClientRequest::decode(payload.into()).expect("a request");
        self.step(id, Input::Requests { conn, requests: vec![request] });
    }

    fn answers(&self, id: u8, conn: u64) -> &[Bytes] {
        self.servers[usize::from(id) - 1].seen.get(&conn).map_or(&[], |seen| &seen.0)
    }

    fn is_closed(&self, id: u8, conn: u64) -> bool {
        self.servers[usize::from(id) - 1].seen.get(&conn).is_some_and(|seen| seen.1)
    }

    /// The error code of the answer to a request.
    fn answer(&self, id: u8, conn: u64, xid: i32) -> Option<i32> {
        let header = |payload: &Bytes| ReplyHeader::decode(&mut Reader::new(payload.clone())).ok();
        let mut headers = self.answers(id, conn).iter().skip(1).filter_map(header);
        headers.find(|header| header.xid == xid).map(|header| header.err)
    }

    fn answer_to_removal(&self, id: u8) -> Option<i32> {
        self.answer(id, OPERATOR, REMOVAL)
    }

    /// Now, at the answer: a majority of those that stay goes on, and nothing else does.
    fn any_majority_goes_on(&mut self, stays: &[u8]) -> Result<(), Violation> {
        self.writer = None;
        let mut goes_on = stays.to_vec();
        while goes_on.len() > stays.len() / 2 + 1 {
            goes_on.swap_remove(self.rng.index(goes_on.len()));
        }
        // Those that stop have sent what they have sent, or the links have lost it.
        let loses_all = self.rng.chance(700);
        if loses_all {
            self.queue.retain(|_, event| !matches!(event, Event::Deliver { .. }));
            let pairs: Vec<(u8, u8)> = self.links.keys().copied().collect();
            for (one, other) in pairs.into_iter().filter(|(one, other)| one < other) {
                for (from, to) in [(one, other), (other, one)] {
                    self.step(from, Input::PeerDown { peer: to.into() });
                }
                self.link(one, other);
            }
        }
        for id in 1..=self.servers.len() as u8 {
            if !goes_on.contains(&id) {
                self.kill(id);
            }
        }
        if self.rng.chance(400) {
            for id in &goes_on {
                self.kill(*id);
            }
            for id in &goes_on {
                self.start(*id);
            }
        }
        let what = format!("a leader of {goes_on:?}, after the answer to a removal left {stays:?}");
        // One that was sent away, or asked a leader that is none any more, asks again.
        for conn in WRITER + 1..WRITER + 1 + ATTEMPTS_MAX {
            self.until(&what, |world| world.serving().is_some())?;
            let leader = self.serving().expect("waited for");
            self.connect(leader, conn);
            self.next_xid += 1;
            let xid = self.next_xid;
            let given_up_us = self.now_us + ATTEMPT_US;
            let is_over =
                |world: &Self| world.is_closed(leader, conn) || world.now_us > given_up_us;
            let is_open = |world: &Self| !world.answers(leader, conn).is_empty();
            self.until(&what, |world| is_open(world) || is_over(world))?;
            self.ask(leader, conn, xid, &create(xid));
            let is_written = |world: &Self| world.answer(leader, conn, xid) == Some(0);
            self.until(&what, |world| is_written(world) || is_over(world))?;
            if is_written(self) {
                return Ok(());
            }
        }
        Err(format!("no write is taken by {what}"))
    }
}

fn create(number: i32) -> Request {
    Request::Create(Create {
        path: format!("/n{number}").into(),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags: 0,
        ttl_ms: 0,
        kind: CreateKind::Create,
    })
}
