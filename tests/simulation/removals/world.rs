//! The world of changes of members: replicas, the links between them, and their disks.
//!
//! *Owns* servers that are started from what their disks hold, links that deliver in order and late, disks that sync
//! late and forget what was not synced, checkpoints, and clients' connections. *Invariants*: two servers are linked as
//! long as each is one that the other follows, as the product's links are: by its members, or because it is in no
//! earlier term than one that does not serve; a server that starts knows the server lines of the members that it
//! served with last. Nothing goes wrong by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};
use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::proto::connect::ConnectRequest;
use lockkeeper_core::proto::request::{Create, CreateKind, RequestHeader};
use lockkeeper_core::proto::response::ReplyHeader;
use lockkeeper_core::proto::{Acl, Reader, Request, frame};
use lockkeeper_core::replica::durable::Restore as _;
use lockkeeper_core::replica::peer::server_of;
use lockkeeper_core::replica::{
    ClientRequest, Drained, HardState, Input, Membership, PeerMessage, Replica, Restored,
    SendImage, Setup, TICK_MS, Urgency,
};

use super::disk::Disk;
use crate::conn::Violation;
use crate::rng::Rng;
use crate::rollback::Evidence;

/// Longest time for anything that must happen, microseconds.
const PATIENCE_US: u64 = 30_000_000;
/// Time between two writes of the client that writes all the time, microseconds.
const WRITE_US_MAX: u64 = 20_000;
/// Connections of that client behind its first one have higher numbers.
const RECONNECTED: u64 = 10_000_000;
/// Longest time that an image is on its way, microseconds.
const IMAGE_US_MAX: u64 = 300_000;
/// Records that are handed to a disk at once.
const RECORDS_MAX: usize = 1000;

#[derive(Debug)]
enum Event {
    Tick(u8),
    /// A server that is not done goes on.
    GoOn(u8),
    /// A client asks.
    Ask {
        to: u8,
        conn: u64,
        xid: i32,
        request: Request,
    },
    Write,
    Persisted {
        server: u8,
        life: u64,
    },
    Deliver {
        from: u8,
        to: u8,
        link: u64,
        message: PeerMessage,
    },
    Image {
        from: u8,
        image: SendImage,
    },
}

#[derive(Debug)]
pub struct Server {
    pub replica: Option<Replica>,
    pub raft_id: u64,
    life: u64,
    pub disk: Disk,
    durable_us: u64,
    /// Servers that it has links with, if they follow it, too.
    pub follows: BTreeSet<u8>,
    /// The server lines with which it starts.
    lines: Vec<ServerSpec>,
    /// Promises that others gave to this process.
    pub evidence: Evidence,
    /// Raft ids of those that have answered what they remember of it.
    pub answered: BTreeSet<u64>,
    /// Voters behind an entry, by its index, as others have told it.
    pub told: BTreeMap<u64, BTreeSet<u64>>,
    /// Begin of the time for which it leads without a vote.
    pub voteless_since_us: Option<u64>,
    /// Frames that each connection was sent, and whether it was closed.
    seen: BTreeMap<u64, (Vec<Bytes>, bool)>,
    /// Work that its replica has told of, and the end of it.
    worked_ns: u64,
    busy_until_us: u64,
    ticked_us: u64,
}

/// See the module.
pub struct World {
    pub rng: Rng,
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub servers: Vec<Server>,
    /// Voters before the first entry.
    founders: Membership,
    /// By sender and receiver: the number of the link, and when the last message arrives.
    links: BTreeMap<(u8, u8), (u64, u64)>,
    latency_us_max: u64,
    sync_us_max: u64,
    /// Whether disks are given checkpoints.
    has_checkpoints: bool,
    /// The connection over which a client writes all the time.
    pub writer: Option<(u8, u64)>,
    pub next_xid: i32,
    /// Numbers of the writes that were answered.
    pub written: BTreeSet<i32>,
    /// Rule that was broken in the middle of a step.
    broken: Option<Violation>,
}

/// The line of a server.
pub fn line(id: u8, votes: bool) -> ServerSpec {
    let role = if votes { "participant" } else { "observer" };
    ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id}:{role};20{id}")).expect("a line")
}

impl World {
    /// A world of so many servers, all of which run, and of which these vote. `has_checkpoints`: their disks are given
    /// some.
    pub fn new(mut rng: Rng, count: u8, voters: &[u8], has_checkpoints: bool) -> Self {
        let latency_us_max = *rng.pick(&[100, 2000, 20_000]);
        let sync_us_max = *rng.pick(&[1, 1000, 30_000]);
        let founders = voters.iter().map(|id| u64::from(*id)).collect();
        let mut world = Self {
            rng,
            now_us: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            servers: Vec::new(),
            founders: Membership { voters: founders, learners: Vec::new() },
            links: BTreeMap::new(),
            latency_us_max,
            sync_us_max,
            has_checkpoints,
            writer: None,
            next_xid: 1,
            written: BTreeSet::new(),
            broken: None,
        };
        for id in 1..=count {
            world.servers.push(Server {
                replica: None,
                raft_id: id.into(),
                life: 0,
                disk: Disk::default(),
                durable_us: 0,
                follows: BTreeSet::new(),
                lines: (1..=count).map(|id| line(id, voters.contains(&id))).collect(),
                evidence: Evidence::default(),
                answered: BTreeSet::new(),
                told: BTreeMap::new(),
                voteless_since_us: None,
                seen: BTreeMap::new(),
                worked_ns: 0,
                busy_until_us: 0,
                ticked_us: 0,
            });
        }
        for id in 1..=count {
            world.start(id);
        }
        world.at(1000, Event::Write);
        world
    }

    pub fn ids(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.servers.len() as u8
    }

    pub fn server(&self, id: u8) -> &Server {
        &self.servers[usize::from(id) - 1]
    }

    pub fn server_mut(&mut self, id: u8) -> &mut Server {
        &mut self.servers[usize::from(id) - 1]
    }

    pub fn runs(&self, id: u8) -> bool {
        self.replica(id).is_some()
    }

    /// Starts a server from what is on its disk.
    pub fn start(&mut self, id: u8) {
        let Server { disk, raft_id, life, lines, .. } = self.server(id);
        let setup = Setup {
            raft_id: *raft_id,
            server_id: id,
            seed: [id ^ (*life as u8) << 4; 32],
            ensemble: Some(lines.clone()),
            reconfig_enabled: true,
            durable: self.has_checkpoints,
            ..Setup::default()
        };
        let mut machine = disk.restored();
        let begun = disk.mark.as_ref().map_or((0, 0), |mark| (mark.index, mark.term));
        let applied = disk.hard_state.commit.max(begun.0);
        for entry in disk.entries.range(begun.0 + 1..applied + 1).map(|(_, entry)| entry) {
            machine.entry(entry).expect("it was applied before");
        }
        let membership = disk.mark.as_ref().map(|mark| mark.membership.clone());
        let restored = Restored {
            hard_state: HardState { commit: applied, ..disk.hard_state },
            membership: membership.unwrap_or_else(|| self.founders.clone()),
            image: disk.mark.clone(),
            begun_after: begun,
            applied,
            applied_term: disk.entries.get(&applied).map_or(begun.1, |entry| entry.term),
            tail: disk.entries.range(applied + 1..).map(|(_, entry)| entry.clone()).collect(),
        };
        let follows = lines.iter().map(|spec| spec.id).filter(|other| *other != id).collect();
        let replica = Replica::new(setup, machine, restored).expect("it fits");
        let server = self.server_mut(id);
        server.follows = follows;
        server.replica = Some(replica);
        server.evidence = Evidence::default();
        server.answered.clear();
        server.told.clear();
        server.voteless_since_us = None;
        (server.worked_ns, server.busy_until_us) = (0, 0);
        self.act(id);
        self.follow_links();
        let in_us = self.rng.below(TICK_MS * 1000);
        self.at(in_us, Event::Tick(id));
    }

    fn term(&self, id: u8) -> u64 {
        self.replica(id).map_or(0, |replica| replica.status().term)
    }

    fn serves(&self, id: u8) -> bool {
        self.replica(id).is_some_and(Replica::is_serving)
    }

    /// Whether two servers are to be linked.
    fn are_linked(&self, one: u8, other: u8) -> bool {
        let accepts = |own: u8, from: u8| {
            self.server(own).follows.contains(&from)
                || !self.serves(own) && self.term(from) >= self.term(own)
        };
        let is_known =
            self.server(one).follows.contains(&other) || self.server(other).follows.contains(&one);
        is_known && self.runs(one) && self.runs(other) && accepts(one, other) && accepts(other, one)
    }

    /// Makes and ends links, until they are as they are to be.
    fn follow_links(&mut self) {
        loop {
            let ids: Vec<u8> = self.ids().collect();
            let pairs = ids.iter().flat_map(|one| ids.iter().map(move |other| (*one, *other)));
            let mut pairs = pairs.filter(|(one, other)| one < other);
            let is_other = |(one, other): &(u8, u8)| {
                self.links.contains_key(&(*one, *other)) != self.are_linked(*one, *other)
            };
            let Some((one, other)) = pairs.find(is_other) else { return };
            match self.links.contains_key(&(one, other)) {
                true => self.unlink(one, other),
                false => self.link(one, other),
            }
        }
    }

    pub fn is_linked(&self, one: u8, other: u8) -> bool {
        self.links.contains_key(&(one, other))
    }

    fn link(&mut self, one: u8, other: u8) {
        for (from, to) in [(one, other), (other, one)] {
            self.next_event += 1;
            self.links.insert((from, to), (self.next_event, self.now_us));
            let peer = self.server(to).raft_id;
            self.step(from, Input::PeerUp { peer });
        }
    }

    fn unlink(&mut self, one: u8, other: u8) {
        for (from, to) in [(one, other), (other, one)] {
            self.links.remove(&(from, to));
            let peer = self.server(to).raft_id;
            self.step(from, Input::PeerDown { peer });
        }
    }

    /// Cuts all links, with what is on them, and makes them anew.
    pub fn relink(&mut self) {
        self.queue.retain(|_, event| !matches!(event, Event::Deliver { .. }));
        let pairs: Vec<(u8, u8)> = self.links.keys().copied().collect();
        for (one, other) in pairs.into_iter().filter(|(one, other)| one < other) {
            self.unlink(one, other);
            self.link(one, other);
        }
    }

    /// Ends a server: what it was to write, and some or all of what it has sent, is lost.
    pub fn kill(&mut self, id: u8) {
        let server = self.server_mut(id);
        if server.replica.take().is_none() {
            return;
        }
        server.life += 1;
        server.disk.forget();
        server.seen.clear();
        let peer = server.raft_id;
        for other in self.ids() {
            self.links.remove(&(other, id));
            if self.links.remove(&(id, other)).is_some() {
                self.step(other, Input::PeerDown { peer });
            }
        }
    }

    pub fn replica(&self, id: u8) -> Option<&Replica> {
        self.server(id).replica.as_ref()
    }

    pub fn serving(&self) -> Option<u8> {
        self.ids().find(|id| {
            self.replica(*id)
                .is_some_and(|replica| replica.is_serving() && replica.status().leader == Some(*id))
        })
    }

    fn at(&mut self, in_us: u64, event: Event) {
        self.next_event += 1;
        self.queue.insert((self.now_us + in_us, self.next_event), event);
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        let deadline_us = self.now_us + PATIENCE_US;
        while !done(self) {
            let ((at_us, _), event) = self.queue.pop_first().expect("servers tick");
            if at_us > deadline_us {
                return Err(format!("still waiting for {what}: {}", self.all_shown()));
            }
            self.now_us = at_us;
            if let Some(until_us) = self.put_off(&event) {
                self.at(until_us - at_us, event);
                continue;
            }
            self.happen(event);
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
        }
        Ok(())
    }

    /// Lets so much time pass.
    pub fn pass(&mut self, us: u64) -> Result<(), Violation> {
        let until_us = self.now_us + us;
        self.until("time passes", |world| world.now_us >= until_us)
    }

    /// When a server that is busy can do something about an event. It hears what it is told before it sees the time.
    fn put_off(&self, event: &Event) -> Option<u64> {
        let (id, late_us) = match event {
            Event::Tick(id) | Event::GoOn(id) => (*id, 1),
            Event::Deliver { to, .. } => (*to, 0),
            Event::Persisted { server: id, .. } | Event::Ask { to: id, .. } => (*id, 0),
            Event::Write | Event::Image { .. } => return None,
        };
        let until_us = self.server(id).busy_until_us + late_us;
        (until_us > self.now_us + late_us).then_some(until_us)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(id) => {
                self.step_all(id, Vec::new());
                self.follow_links();
                self.at(TICK_MS * 1000, Event::Tick(id));
            }
            Event::GoOn(id) => self.step_all(id, Vec::new()),
            Event::Ask { to, conn, xid, request } => self.ask(to, conn, xid, &request),
            Event::Write => {
                self.write();
                let in_us = 1 + self.rng.below(WRITE_US_MAX);
                self.at(in_us, Event::Write);
            }
            Event::Persisted { server, life } => {
                let known = self.server_mut(server);
                if known.life == life
                    && let Some(number) = known.disk.advance()
                    && let Some(replica) = &mut known.replica
                {
                    replica.persisted(number);
                    self.act(server);
                }
            }
            Event::Image { from, image } => self.take_image(from, image),
            Event::Deliver { from, to, link, message } => {
                if self.links.get(&(from, to)).is_some_and(|(known, _)| *known == link) {
                    let from = self.server(from).raft_id;
                    let server = self.server_mut(to);
                    server.evidence.hears(from, &message);
                    match &message {
                        PeerMessage::Recall { .. } => {
                            server.answered.insert(from);
                        }
                        PeerMessage::Voters { index, voters, .. } => {
                            server.told.insert(*index, voters.iter().copied().collect());
                        }
                        _ => {}
                    }
                    self.step(to, Input::Peer { from, message });
                }
            }
        }
    }

    /// An image has come to its receiver, if both are there and it is the sender's last one.
    fn take_image(&mut self, from: u8, SendImage { to, index, message }: SendImage) {
        let Disk { mark, state, .. } = &self.server(from).disk;
        let id = server_of(to);
        let is_there = self.server(id).raft_id == to && self.links.contains_key(&(from, id));
        let image = mark.clone().filter(|mark| mark.index == index && is_there);
        let image =
            image.map(|mark| (mark, state.clone(), Box::new(self.server(from).disk.restored())));
        self.step(from, Input::ImageSent { to, ok: image.is_some() });
        if let Some((mark, state, machine)) = image {
            self.server_mut(id).disk.received = Some((mark.clone(), state));
            self.step(id, Input::ImageReceived { message, mark, machine });
        }
    }

    /// The client that writes all the time does so, or makes another connection where its last one was ended.
    fn write(&mut self) {
        let Some((id, conn)) = self.writer.filter(|(id, _)| self.runs(*id)) else { return };
        if self.is_closed(id, conn) {
            self.next_event += 1;
            let conn = RECONNECTED + self.next_event;
            self.writer = Some((id, conn));
            self.connect(id, conn);
        } else if !self.answers(id, conn).is_empty() {
            self.next_xid += 1;
            self.ask(id, conn, self.next_xid, &create(self.next_xid));
        }
    }

    fn step(&mut self, id: u8, input: Input) {
        self.step_all(id, vec![input]);
    }

    fn step_all(&mut self, id: u8, inputs: Vec<Input>) {
        let now_us = self.now_us;
        let wall_ms = 1_000_000 + (now_us / 1000) as i64;
        let server = self.server_mut(id);
        // What others said while it was busy comes before the time that has passed.
        let is_heard = inputs.iter().any(|input| matches!(input, Input::Peer { .. }));
        let is_late = now_us - server.ticked_us > TICK_MS * 1000;
        let Some(replica) = &mut server.replica else { return };
        if !(is_late && is_heard) {
            replica.step(Input::Tick { now_us, wall_ms });
            server.ticked_us = now_us;
        }
        inputs.into_iter().for_each(|input| replica.step(input));
        self.act(id);
    }

    /// Does what a replica wants.
    fn act(&mut self, id: u8) {
        loop {
            let server = &mut self.servers[usize::from(id) - 1];
            let Some(replica) = &mut server.replica else { return };
            let Some(ready) = replica.ready().expect("no invariant is broken") else { break };
            for outgoing in ready.client {
                let seen = server.seen.entry(outgoing.conn).or_default();
                let mut bytes = BytesMut::from(&outgoing.frames[..]);
                while let Some(payload) = frame::next(&mut bytes, usize::MAX).expect("frames") {
                    let is_answer = !seen.0.is_empty() && self.writer == Some((id, outgoing.conn));
                    let header = ReplyHeader::decode(&mut Reader::new(payload.clone())).ok();
                    if let Some(header) = header.filter(|header| is_answer && header.err == 0) {
                        self.written.insert(header.xid);
                    }
                    seen.0.push(payload);
                }
                seen.1 |= outgoing.close;
            }
            for fetch in ready.fetch {
                let entries = server.disk.entries.range(fetch.from..=fetch.to);
                let entries = entries.map(|(_, entry)| entry.clone()).collect();
                replica.step(Input::Fetched { fetch, entries });
            }
            if let Some(members) = ready.members {
                let text = replica.machine().members_text();
                let is_member = |spec: &ServerSpec| text.contains(&format!("server.{}=", spec.id));
                if !text.is_empty() {
                    let lines = members.iter().map(|member| member.spec.clone());
                    server.lines = lines.filter(is_member).collect();
                }
                let others = members.iter().map(|member| member.spec.id);
                server.follows = others.filter(|other| *other != id).collect();
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
            for image in ready.images {
                let in_us = 1 + self.rng.below(IMAGE_US_MAX);
                self.at(in_us, Event::Image { from: id, image });
            }
            for (to, message) in ready.send {
                match &message {
                    PeerMessage::Raft(message) => {
                        self.server_mut(id).evidence.says(message);
                        self.judge_vote(id, message);
                    }
                    PeerMessage::Voters { index, voters, .. } => {
                        self.judge_told(id, *index, voters);
                    }
                    _ => {}
                }
                self.send(id, to, message);
            }
        }
        self.end_turn(id);
    }

    fn send(&mut self, from: u8, to: u64, message: PeerMessage) {
        let late_us = 1 + self.rng.below(self.latency_us_max);
        let id = server_of(to);
        let is_it =
            self.servers.get(usize::from(id) - 1).is_some_and(|server| server.raft_id == to);
        let Some((link, last_us)) = self.links.get_mut(&(from, id)).filter(|_| is_it) else {
            return;
        };
        *last_us = (self.now_us + late_us).max(*last_us);
        let (link, in_us) = (*link, *last_us - self.now_us);
        self.at(in_us, Event::Deliver { from, to: id, link, message });
    }

    /// A turn is over: the disk is given a checkpoint, and rules are judged.
    fn end_turn(&mut self, id: u8) {
        let (has_checkpoints, now_us) = (self.has_checkpoints, self.now_us);
        let server = self.server_mut(id);
        let Some(replica) = &mut server.replica else { return };
        let work_ns = replica.work_ns();
        let status = replica.status();
        server.evidence.settle(id, &status);
        while has_checkpoints && let Drained::Changes(changes) = replica.drain_changes(RECORDS_MAX)
        {
            if let Some(mark) = server.disk.take(changes) {
                replica.step(Input::ImageWritten { mark });
            }
        }
        let owes = replica.owes_answers();
        let work_us = work_ns.saturating_sub(server.worked_ns) / 1000;
        server.worked_ns = work_ns;
        server.busy_until_us = now_us + work_us;
        if owes {
            self.at(work_us + 1, Event::GoOn(id));
        }
        self.judge_leader(id, &status);
    }

    /// Voters before the first entry.
    pub(super) fn founders(&self) -> &Membership {
        &self.founders
    }

    /// A rule is broken.
    pub(super) fn breaks(&mut self, words: Violation) {
        self.broken = Some(words);
    }

    pub fn connect(&mut self, id: u8, conn: u64) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 40_000,
            session_id: 0,
            password: Bytes::new(),
            read_only: None,
        };
        self.server_mut(id).seen.remove(&conn);
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.step(
            id,
            Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request },
        );
    }

    pub fn ask(&mut self, id: u8, conn: u64, xid: i32, request: &Request) {
        self.step(id, Input::Requests { conn, requests: vec![encoded(xid, request)] });
    }

    /// Asks as soon as the server is not busy.
    pub fn ask_busy(&mut self, to: u8, conn: u64, xid: i32, request: Request) {
        self.at(0, Event::Ask { to, conn, xid, request });
    }

    /// Asks many things in one go.
    pub fn ask_all(&mut self, id: u8, conn: u64, requests: &[(i32, Request)]) {
        let requests = requests.iter().map(|(xid, request)| encoded(*xid, request)).collect();
        self.step(id, Input::Requests { conn, requests });
    }

    pub fn answers(&self, id: u8, conn: u64) -> &[Bytes] {
        self.server(id).seen.get(&conn).map_or(&[], |seen| &seen.0)
    }

    pub fn is_closed(&self, id: u8, conn: u64) -> bool {
        self.server(id).seen.get(&conn).is_some_and(|seen| seen.1)
    }

    /// The error code of the answer to a request.
    pub fn answer(&self, id: u8, conn: u64, xid: i32) -> Option<i32> {
        let header = |payload: &Bytes| ReplyHeader::decode(&mut Reader::new(payload.clone())).ok();
        let mut headers = self.answers(id, conn).iter().skip(1).filter_map(header);
        headers.find(|header| header.xid == xid).map(|header| header.err)
    }

    /// Makes a session that may change members. False: the server ends it.
    pub fn connect_super_user(&mut self, id: u8, conn: u64) -> Result<bool, Violation> {
        self.connect(id, conn);
        let is_open = |world: &Self| !world.answers(id, conn).is_empty();
        self.until(&format!("session {conn} of {id}"), |world| {
            is_open(world) || world.is_closed(id, conn) || !world.runs(id)
        })?;
        let auth = Bytes::from_static(b"super:test");
        let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(auth) };
        let is_open = is_open(self);
        if is_open {
            self.ask(id, conn, -4, &auth);
        }
        Ok(is_open)
    }
}

fn encoded(xid: i32, request: &Request) -> ClientRequest {
    let mut payload = Vec::new();
    RequestHeader { xid, op: request.op() as i32 }.encode(&mut payload);
    request.encode(&mut payload);
    ClientRequest::decode(payload.into()).expect("a request")
}

pub fn create(number: i32) -> Request {
    Request::Create(Create {
        path: format!("/n{number}").into(),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags: 0,
        ttl_ms: 0,
        kind: CreateKind::Create,
    })
}
