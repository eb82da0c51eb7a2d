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
use lockkeeper_core::replica::inspect::PeerStatus;
use lockkeeper_core::replica::peer::{RaftMessage, RaftMessageType, server_of};
use lockkeeper_core::replica::{
    Append, ClientRequest, Drained, Entry, EntryKind, HardState, Input, Machine, Mark, Membership,
    PeerMessage, Replica, Restored, SendImage, Setup, Status, TICK_MS, Urgency,
};
use lockkeeper_core::tree;

use crate::conn::Violation;
use crate::membership::Membership as Voters;
use crate::rng::Rng;
use crate::rollback::Evidence;

/// How long anything may take that must happen, in microseconds.
const PATIENCE_US: u64 = 30_000_000;
/// Time between two writes of the client that writes all the time, microseconds.
const WRITE_US_MAX: u64 = 20_000;
/// Connections of that client behind its first one have higher numbers.
const RECONNECTED: u64 = 10_000_000;
/// Longest time that an image is on its way, microseconds.
const IMAGE_US_MAX: u64 = 300_000;
/// Longest time for which a server leads that has no vote any more, microseconds.
const VOTELESS_US_MAX: u64 = 1_000_000;
/// Records that are handed to a disk at once.
const RECORDS_MAX: usize = 1000;

#[derive(Debug)]
enum Event {
    Tick(u8),
    Write,
    Persisted { server: u8, life: u64 },
    Deliver { from: u8, to: u8, link: u64, message: PeerMessage },
    Image { from: u8, image: SendImage },
}

/// Records of a state.
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A disk: what is on it for good, and what is on its way there.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub entries: BTreeMap<u64, Entry>,
    pub hard_state: HardState,
    /// Whether the last of them are to be made durable now, or with the next that are.
    writing: Vec<(Append, bool)>,
    /// Records of the last checkpoint, and its mark.
    state: Records,
    mark: Option<Mark>,
    /// Those of the next one, as far as they have come.
    next: Records,
    /// An image that was received.
    received: Option<(Mark, Records)>,
}

impl Disk {
    /// The oldest append that is on its way is there: its number, if somebody waits for it.
    fn advance(&mut self) -> Option<u64> {
        let until = self.writing.iter().position(|(_, is_synced)| *is_synced)?;
        let mut number = None;
        for (append, _) in self.writing.drain(..=until) {
            if append.install.is_some() {
                let (mark, state) = self.received.take().expect("it was received");
                (self.mark, self.state, self.next) = (Some(mark), state.clone(), state);
                self.entries.clear();
            }
            for entry in append.entries {
                self.entries.split_off(&entry.index);
                self.entries.insert(entry.index, entry);
            }
            self.hard_state = append.hard_state.unwrap_or(self.hard_state);
            number = Some(append.number);
        }
        number
    }

    /// The process has ended.
    fn forget(&mut self) {
        self.writing.clear();
        self.next = self.state.clone();
        self.received = None;
    }

    /// The state of the last checkpoint, if there is one.
    fn restored(&self, mut machine: Machine) -> Machine {
        if let Some(mark) = &self.mark {
            for (key, value) in &self.state {
                machine.record(key, value).expect("it was stored");
            }
            machine.finish(mark).expect("it was stored");
        }
        machine
    }
}

fn fresh() -> Machine {
    Machine::fresh(tree::Options {
        super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
        ..tree::Options::default()
    })
}

#[derive(Debug)]
pub struct Server {
    pub replica: Option<Replica>,
    pub raft_id: u64,
    life: u64,
    pub disk: Disk,
    durable_us: u64,
    /// Whom it has links with, if they follow it, too.
    follows: BTreeSet<u8>,
    /// The server lines with which it starts.
    lines: Vec<ServerSpec>,
    /// What others have promised to this process.
    pub evidence: Evidence,
    /// Raft ids of those that have answered what they remember of it.
    answered: BTreeSet<u64>,
    /// Frames that each connection was sent, and whether it was closed.
    seen: BTreeMap<u64, (Vec<Bytes>, bool)>,
}

/// See the module.
pub struct World {
    pub rng: Rng,
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub servers: Vec<Server>,
    /// Who votes before the first entry.
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
    /// Since when servers lead without a vote.
    voteless: BTreeMap<u8, u64>,
    /// What was broken in the middle of a step.
    broken: Option<Violation>,
}

/// The line of a server.
pub fn line(id: u8, votes: bool) -> ServerSpec {
    let role = if votes { "participant" } else { "observer" };
    ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id}:{role};20{id}")).expect("a line")
}

impl World {
    /// So many servers, all of which run, and of which these vote. `has_checkpoints`: their disks are given some.
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
            voteless: BTreeMap::new(),
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
                seen: BTreeMap::new(),
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
        let mut machine = disk.restored(fresh());
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

    /// All links are cut, with what is on them, and made anew.
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
            self.happen(event);
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
        }
        Ok(())
    }

    /// So much time passes.
    pub fn pass(&mut self, us: u64) -> Result<(), Violation> {
        let until_us = self.now_us + us;
        self.until("time passes", |world| world.now_us >= until_us)
    }

    /// How all servers are.
    pub fn all_shown(&self) -> String {
        let shown: Vec<String> = self.ids().map(|id| self.shown(id)).collect();
        shown.join("; ")
    }

    fn shown(&self, id: u8) -> String {
        let Server { replica: Some(replica), follows, raft_id, .. } = self.server(id) else {
            return format!("\n{id} is down");
        };
        let status = replica.status();
        let Status { mode, term, leader, applied, .. } = status;
        let peer = |peer: &PeerStatus| {
            let PeerStatus { server, votes, is_connected, is_synced, .. } = peer;
            format!("{server}:{}{}{}", *votes as u8, *is_connected as u8, *is_synced as u8)
        };
        let peers: Vec<String> = status.peers.iter().map(peer).collect();
        let voters = self.voters(id, applied);
        let text = replica.machine().members_text().replace('\n', " ").replace("127.0.0.1", "");
        let why = replica.obstacle().or(replica.refused().map(|refusal| refusal.words.as_str()));
        format!(
            "\n{id} ({raft_id:x}): {mode:?} term {term} leader {leader:?} applied {applied} follows {follows:?} {} \
             {voters:?} {text} {why:?}",
            peers.join(" ")
        )
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(id) => {
                self.step_all(id, Vec::new());
                self.follow_links();
                self.at(TICK_MS * 1000, Event::Tick(id));
            }
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
                    if matches!(message, PeerMessage::Recall { .. }) {
                        server.answered.insert(from);
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
        let image = image
            .map(|mark| (mark, state.clone(), Box::new(self.server(from).disk.restored(fresh()))));
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
        let Some(replica) = &mut self.server_mut(id).replica else { return };
        replica.step(Input::Tick { now_us, wall_ms });
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
                if let PeerMessage::Raft(message) = &message {
                    self.server_mut(id).evidence.says(message);
                    self.judge_vote(id, message);
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
        let has_checkpoints = self.has_checkpoints;
        let server = self.server_mut(id);
        let Some(replica) = &mut server.replica else { return };
        let status = replica.status();
        server.evidence.settle(id, &status);
        while has_checkpoints && let Drained::Changes(changes) = replica.drain_changes(RECORDS_MAX)
        {
            if changes.begins_full_pass {
                server.disk.next.clear();
            }
            for record in changes.records.iter() {
                match record.value {
                    Some(value) => server.disk.next.insert(record.key.to_vec(), value.to_vec()),
                    None => server.disk.next.remove(record.key),
                };
            }
            if let Some(mark) = changes.mark {
                server.disk.mark = Some(mark.clone());
                server.disk.state = server.disk.next.clone();
                replica.step(Input::ImageWritten { mark });
            }
        }
        let raft_id = server.raft_id;
        let has_vote = |voters: Voters| voters.has_vote(raft_id);
        let leads = status.leading_ms.is_some();
        if !leads || self.voters(id, status.applied).is_ok_and(has_vote) {
            self.voteless.remove(&id);
        } else if *self.voteless.entry(id).or_insert(self.now_us) + VOTELESS_US_MAX < self.now_us {
            self.broken = Some(format!("server {id} leads without a vote: {}", self.shown(id)));
        }
    }

    /// Who votes, by the log of a server up to an index.
    ///
    /// # Errors
    /// A change in the log makes no sense.
    pub fn voters(&self, id: u8, applied: u64) -> Result<Voters, Violation> {
        let mut voters = self.voters_from(id, applied)?;
        Ok(voters.swap_remove(0))
    }

    /// The same, and behind each change that follows in its log.
    fn voters_from(&self, id: u8, applied: u64) -> Result<Vec<Voters>, Violation> {
        let Disk { entries, writing, mark, .. } = &self.server(id).disk;
        let late = writing.iter().flat_map(|(append, _)| &append.entries);
        let mut all: BTreeMap<u64, &Entry> =
            entries.iter().map(|(at, entry)| (*at, entry)).collect();
        for entry in late {
            all.split_off(&entry.index);
            all.insert(entry.index, entry);
        }
        let (from, begun) = match mark {
            Some(mark) => (mark.index, &mark.membership),
            None => (0, &self.founders),
        };
        let mut known = vec![Voters::from(begun)];
        let changes =
            all.range(from + 1..).filter(|(_, entry)| entry.kind == EntryKind::ConfChange);
        for (index, entry) in changes {
            let next = known[known.len() - 1].changed(&entry.data)?;
            if *index <= applied {
                known.clear();
            }
            known.push(next);
        }
        Ok(known)
    }

    /// A server votes, or asks for votes: not before a majority has answered what it remembers, of those who vote by
    /// its own knowledge, or behind some change that it does not know to be committed.
    fn judge_vote(&mut self, id: u8, message: &RaftMessage) {
        let kind = message.get_msg_type();
        let votes = match kind {
            RaftMessageType::MsgRequestVoteResponse => !message.reject,
            kind => kind == RaftMessageType::MsgRequestVote,
        };
        let Some(replica) = self.replica(id).filter(|_| votes) else { return };
        let Server { raft_id, answered, .. } = self.server(id);
        let has_answered = |other: u64| other == *raft_id || answered.contains(&other);
        let known = self.voters_from(id, replica.status().applied);
        let is_enough =
            known.is_ok_and(|known| known.iter().any(|voters| voters.is_quorum(has_answered)));
        if !is_enough {
            self.broken = Some(format!(
                "server {id} votes, and only {answered:?} have answered: {}",
                self.shown(id)
            ));
        }
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
        let mut payload = Vec::new();
        RequestHeader { xid, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        let request = ClientRequest::decode(payload.into()).expect("a request");
        self.step(id, Input::Requests { conn, requests: vec![request] });
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
