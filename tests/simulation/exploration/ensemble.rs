//! An ensemble of real replicas, the links between them, and time: what the scopes with Raft have in common.
//!
//! *Owns* who reaches whom, what is under way, and the order in which things happen. *Invariants*: a link is a queue:
//! what one server sends to another arrives in its order, at once, or, while a step holds the link back, when a later
//! step says so; what is under way is part of the state. Links break, and are made anew, only by steps; both ends are
//! told of it. Time passes for all servers alike, a tick ([`TICK_MS`]) at a time, and behind each tick all is
//! delivered that no step holds back. The wall clock stands still: stamps are no part of what is explored.
//!
//! The same steps have the same outcome: nothing is drawn, and nothing depends on an address or a hash.

pub mod host;
pub mod rules;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};
use lockkeeper_core::proto::connect::ConnectRequest;
use lockkeeper_core::proto::request::RequestHeader;
use lockkeeper_core::proto::{Request, frame};
use lockkeeper_core::replica::{
    Append, ClientRequest, ConnId, Entry, Input, Outgoing, PeerMessage, Ready, Replica, TICK_MS,
    Urgency,
};

use super::digest::{BEGIN_US, Digest};
use super::explorer::Violation;
use host::{Disk, Host};
use rules::Rules;

/// What is delivered at most behind one step: servers that never come to rest break a rule.
const DELIVERED_MAX: u32 = 20_000;
const TICK_US: u64 = TICK_MS * 1000;
/// Of a time in which a server stood still, so much counts.
const COUNTS_US_MAX: u64 = 10 * TICK_US;

/// What is on its way from one server to another.
#[derive(Debug, Default)]
pub struct Link {
    pub queue: VecDeque<PeerMessage>,
    /// Nothing of it arrives.
    pub is_held: bool,
}

pub struct World {
    pub now_us: u64,
    pub hosts: Vec<Host>,
    /// By sender and receiver, both of which run.
    pub links: BTreeMap<(u8, u8), Link>,
    pub rules: Rules,
    /// Who voted before the first entry.
    founders: Vec<u8>,
    timeout_ms: i32,
    delivered: u32,
    /// Connections that servers have ended.
    pub ended: u32,
}

impl World {
    /// Servers with these ids, of which the `founders` vote. Those serve, and the others run and belong to nothing yet.
    ///
    /// # Panics
    /// They never do.
    pub fn new(ids: &[u8], founders: &[u8], timeout_ms: i32) -> Self {
        let mut world = Self {
            now_us: BEGIN_US,
            hosts: ids.iter().map(|id| Host::new(*id)).collect(),
            links: BTreeMap::new(),
            rules: Rules::default(),
            founders: founders.to_vec(),
            timeout_ms,
            delivered: 0,
            ended: 0,
        };
        for id in founders {
            world.start(*id, founders).expect("it starts");
        }
        world.until("all serve", |world| founders.iter().all(|id| world.host(*id).is_serving()));
        for id in ids.iter().filter(|id| !founders.contains(id)) {
            world.start(*id, ids).expect("it starts");
        }
        world
    }

    /// Lets time pass until something is so.
    ///
    /// # Panics
    /// It never is.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..400 {
            if is_so(self) {
                return;
            }
            self.pass(TICK_US).unwrap_or_else(|violation| panic!("{what}: {violation}"));
        }
        panic!("{what}: not within 20 s");
    }

    pub fn host(&self, id: u8) -> &Host {
        self.hosts.iter().find(|host| host.id == id).expect("it is there")
    }

    pub fn host_mut(&mut self, id: u8) -> &mut Host {
        self.hosts.iter_mut().find(|host| host.id == id).expect("it is there")
    }

    pub fn runs(&self, id: u8) -> bool {
        self.host(id).replica.is_some()
    }

    /// Who runs, in the order of ids.
    pub fn running(&self) -> impl Iterator<Item = (u8, &Replica)> {
        self.hosts.iter().filter_map(|host| Some((host.id, host.replica.as_ref()?)))
    }

    /// The server that leads in the highest term, as far as it knows.
    pub fn leader(&self) -> Option<u8> {
        let leads = |(id, replica): (u8, &Replica)| {
            let status = replica.status();
            status.leading_ms.map(|_| (status.term, id))
        };
        self.running().filter_map(leads).max().map(|(_, id)| id)
    }

    /// The highest term of all.
    pub fn term(&self) -> u64 {
        self.running().map(|(_, replica)| replica.status().term).max().unwrap_or_default()
    }

    /// Starts a server, and links it with all that run.
    pub fn start(&mut self, id: u8, lines: &[u8]) -> Result<(), Violation> {
        let (founders, timeout_ms) = (self.founders.clone(), self.timeout_ms);
        self.host_mut(id).start(&founders, lines, timeout_ms);
        self.rules.started(id, self.now_us);
        self.turn(id, Vec::new())?;
        let others: Vec<u8> = self.running().map(|(other, _)| other).collect();
        for other in others.into_iter().filter(|other| *other != id) {
            self.connect(id, other)?;
        }
        self.settle()
    }

    /// A process ends; what it has sent on links that are not held back has arrived.
    pub fn kill(&mut self, id: u8) -> Result<(), Violation> {
        self.host_mut(id).kill();
        self.rules.killed(id);
        let others: Vec<u8> = self.running().map(|(other, _)| other).collect();
        for other in others {
            self.links.remove(&(id, other));
            self.links.remove(&(other, id));
            self.turn(other, vec![Input::PeerDown { peer: id.into() }])?;
        }
        self.settle()
    }

    fn connect(&mut self, one: u8, other: u8) -> Result<(), Violation> {
        for (from, to) in [(one, other), (other, one)] {
            self.links.insert((from, to), Link::default());
        }
        self.turn(one, vec![Input::PeerUp { peer: other.into() }])?;
        self.turn(other, vec![Input::PeerUp { peer: one.into() }])
    }

    /// Both links between two servers break, with what is on them, and are made anew.
    pub fn reconnect(&mut self, one: u8, other: u8) -> Result<(), Violation> {
        for (from, to) in [(one, other), (other, one)] {
            self.links.insert((from, to), Link::default());
            self.turn(from, vec![Input::PeerDown { peer: to.into() }])?;
        }
        self.connect(one, other)?;
        self.settle()
    }

    /// What is sent on this link does not arrive for now.
    pub fn hold(&mut self, from: u8, to: u8) {
        self.links.get_mut(&(from, to)).expect("both run").is_held = true;
    }

    /// What waits on this link arrives, in its order.
    pub fn release(&mut self, from: u8, to: u8) -> Result<(), Violation> {
        self.links.get_mut(&(from, to)).expect("both run").is_held = false;
        self.settle()
    }

    /// The first message that waits on this link arrives; the others wait on.
    pub fn deliver(&mut self, from: u8, to: u8) -> Result<(), Violation> {
        let link = self.links.get_mut(&(from, to)).expect("both run");
        let Some(message) = link.queue.pop_front() else { return Ok(()) };
        self.turn(to, vec![Input::Peer { from: from.into(), message }])?;
        self.settle()
    }

    /// All machines stand still for this time, and go on.
    pub fn freeze(&mut self, us: u64) -> Result<(), Violation> {
        self.now_us += us - TICK_US;
        self.rules.stood_still(us.saturating_sub(COUNTS_US_MAX));
        self.pass(TICK_US)
    }

    /// A process goes on that stood still.
    pub fn wake(&mut self, id: u8) -> Result<(), Violation> {
        self.host_mut(id).stands_still = false;
        self.turn(id, Vec::new())?;
        self.settle()
    }

    /// What a disk has held back becomes durable.
    pub fn release_disk(&mut self, id: u8) -> Result<(), Violation> {
        let host = self.host_mut(id);
        host.disk.is_held = false;
        let number = host.disk.sync();
        if let (Some(number), Some(replica)) = (number, &mut host.replica) {
            replica.persisted(number);
        }
        self.turn(id, Vec::new())?;
        self.settle()
    }

    /// Whether a link or a disk is held back, or a process stands still.
    pub fn is_anything_late(&self) -> bool {
        self.links.values().any(|link| link.is_held)
            || self.hosts.iter().any(|host| host.stands_still || host.disk.is_held)
    }

    /// Time passes.
    pub fn pass(&mut self, us: u64) -> Result<(), Violation> {
        for _ in 0..us.div_ceil(TICK_US) {
            self.now_us += TICK_US;
            for at in 0..self.hosts.len() {
                self.turn(self.hosts[at].id, Vec::new())?;
            }
            self.settle()?;
        }
        Ok(())
    }

    /// A client asks a server for a session, or for the one that it has.
    pub fn knock(
        &mut self,
        id: u8,
        conn: ConnId,
        session: Option<(i64, Bytes)>,
    ) -> Result<(), Violation> {
        let (session_id, password) = session.unwrap_or_default();
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: self.timeout_ms,
            session_id,
            password,
            read_only: Some(false),
        };
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.host_mut(id).conns.insert(conn, host::Conn::default());
        let input = Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request };
        self.turn(id, vec![input])?;
        self.settle()
    }

    /// A client's request arrives.
    pub fn ask(
        &mut self,
        id: u8,
        conn: ConnId,
        (xid, request): (i32, &Request),
    ) -> Result<(), Violation> {
        let mut payload = Vec::new();
        RequestHeader { xid, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        let request = ClientRequest::decode(payload.into()).expect("a whole header");
        self.turn(id, vec![Input::Requests { conn, requests: vec![request] }])?;
        self.settle()
    }

    /// Delivers all that no step holds back.
    pub fn settle(&mut self) -> Result<(), Violation> {
        self.delivered = 0;
        loop {
            let is_due = |((_, to), link): (&(u8, u8), &Link)| {
                !link.is_held && !link.queue.is_empty() && !self.host(*to).stands_still
            };
            let due: Vec<(u8, u8)> = self
                .links
                .iter()
                .filter(|link| is_due(*link))
                .map(|(between, _)| *between)
                .collect();
            if due.is_empty() {
                let Self { hosts, rules, .. } = self;
                return rules.look(hosts);
            }
            for (from, to) in due {
                let link = self.links.get_mut(&(from, to));
                let Some(message) = link.and_then(|link| link.queue.pop_front()) else { continue };
                self.delivered += 1;
                if self.delivered > DELIVERED_MAX {
                    return Err("the servers never come to rest".to_owned());
                }
                self.turn(to, vec![Input::Peer { from: from.into(), message }])?;
            }
        }
    }

    /// One turn of a server's driver, unless it stands still.
    fn turn(&mut self, id: u8, inputs: Vec<Input>) -> Result<(), Violation> {
        let now_us = self.now_us;
        let host = self.host_mut(id);
        if host.stands_still {
            return Ok(());
        }
        let Some(replica) = &mut host.replica else { return Ok(()) };
        replica.step(Input::Tick { now_us, wall_ms: 1_000_000 });
        inputs.into_iter().for_each(|input| replica.step(input));
        loop {
            let Some(replica) = &mut self.host_mut(id).replica else { return Ok(()) };
            let Some(ready) = replica.ready()? else { break };
            self.act(id, ready)?;
        }
        let Self { hosts, rules, .. } = self;
        let host = hosts.iter().find(|host| host.id == id);
        host.and_then(|host| host.replica.as_ref())
            .map_or(Ok(()), |replica| rules.had_turn(id, replica))
    }

    /// Does what a replica wants.
    fn act(&mut self, id: u8, ready: Ready) -> Result<(), Violation> {
        let now_us = self.now_us;
        let Ready {
            append,
            client,
            audit,
            send,
            fetch,
            images,
            cut,
            inspected: _,
            tokens: _,
            members: _,
            turned_away: _,
            audit_clients: _,
            zookeeper: _,
            replaced: _,
        } = ready;
        self.rules.applied(id, &audit)?;
        for outgoing in client {
            self.told(id, outgoing)?;
        }
        if !images.is_empty() || !cut.is_empty() {
            return Err(format!("server {id} sends images {images:?} or cuts links of {cut:?}"));
        }
        let host = self.hosts.iter_mut().find(|host| host.id == id).expect("it is there");
        if let Some(append) = append {
            self.rules.appended(id, &append, now_us)?;
            // Nothing waits for what only says up to where the log is committed: it is written with the next.
            let is_waited_for = append.urgency != Urgency::None;
            host.disk.waits.push(append);
            if is_waited_for
                && !host.disk.is_held
                && let (Some(number), Some(replica)) = (host.disk.sync(), &mut host.replica)
            {
                replica.persisted(number);
            }
        }
        for fetch in fetch {
            let entries = host.disk.entries.range(fetch.from..=fetch.to);
            let entries = entries.map(|(_, entry)| entry.clone()).collect();
            if let Some(replica) = &mut host.replica {
                replica.step(Input::Fetched { fetch, entries });
            }
        }
        for (to, message) in send {
            if let Some(link) = self.links.get_mut(&(id, to as u8)) {
                link.queue.push_back(message);
            }
        }
        Ok(())
    }

    /// A server has written to one of its clients.
    fn told(&mut self, id: u8, outgoing: Outgoing) -> Result<(), Violation> {
        let now_us = self.now_us;
        let Some(conn) = self.host_mut(id).conns.get_mut(&outgoing.conn) else { return Ok(()) };
        let mut bytes = BytesMut::from(&outgoing.frames[..]);
        while let Some(payload) = frame::next(&mut bytes, usize::MAX).map_err(|_| "no frame")? {
            conn.frames.push((now_us, payload));
        }
        conn.is_closed |= outgoing.close;
        self.ended += u32::from(outgoing.close);
        Ok(())
    }

    /// Everything that a further step may depend on.
    pub fn digest(&self) -> Digest {
        let Self {
            now_us,
            hosts,
            links,
            rules,
            founders: _,
            timeout_ms: _,
            delivered: _,
            ended: _,
        } = self;
        let mut digest = Digest::at(*now_us);
        for host in hosts {
            let Host { id, disk, replica, stands_still, conns, lives } = host;
            digest = digest.and(&(id, stands_still, conns, lives));
            match replica {
                // What is on its disk is in its log, too.
                Some(replica) => {
                    digest = digest.and_text(&replica.canonical()).and(&disk.is_held);
                    // Their numbers only say which is which, and they are in their order.
                    for Append { number: _, install, entries, hard_state, urgency } in &disk.waits {
                        digest = digest.and(&(install, entries, hard_state, urgency));
                    }
                    digest = digest.and(&"the end of what waits");
                }
                None => {
                    let Disk { entries, hard_state, waits, is_held } = disk;
                    for Entry { term, index, kind, data } in entries.values() {
                        let data = Replica::canonical_entry(data);
                        digest = digest.and(&(term, index, kind)).and_text(&data);
                    }
                    digest = digest.and(&(hard_state, waits, is_held));
                }
            }
        }
        for (between, link) in links {
            let Link { queue, is_held } = link;
            digest = digest.and(&(between, is_held, queue));
        }
        digest.and_text(&rules.canonical(*now_us))
    }
}
