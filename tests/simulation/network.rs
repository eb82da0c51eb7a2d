//! The network between servers: links, and what breaks them.
//!
//! *Owns* every link from one server to another, and what is on its way there. *Invariants*: between
//! the making of a link and its end its messages arrive completely and in order; what was on its way
//! when it ended is lost from some message on; each end learns of the end when it does, or never,
//! until its own patience is over.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use lockkeeper_core::replica::PeerMessage;

use super::conn::Violation;
use super::disk::Crash;
use super::foreign::{Fate, Taken};
use super::host::{Host, HostEvent};
use super::rng::Rng;
use super::server::{Arrival, LinkId};
use super::world::{Event, World};

/// Shortest and longest time between two attempts to connect.
const DIAL_US: (u64, u64) = (20_000, 1_000_000);
/// How long an end waits for a sign of the other one: least and most.
const PATIENCE_US: (u64, u64) = (1_000_000, 4_000_000);

/// One link.
#[derive(Debug, Default)]
struct Link {
    /// When the last message arrives.
    last_us: u64,
    /// What cannot pass now.
    held: VecDeque<Vec<u8>>,
    /// It was broken: what arrives later is lost.
    broken_us: Option<u64>,
    /// One of its ends is gone, and the other has not heard.
    is_half_open: bool,
}

/// The network.
#[derive(Debug)]
pub struct Network {
    rng: Rng,
    servers: usize,
    next: u64,
    links: BTreeMap<LinkId, Link>,
    /// From one to another: nothing passes.
    blocked: Vec<Vec<bool>>,
    /// How much longer it takes.
    slow_us: Vec<Vec<u64>>,
    /// How often each server has tried to connect to another one in vain.
    attempts: Vec<Vec<u32>>,
}

impl Network {
    pub fn new(rng: Rng, servers: usize) -> Self {
        Self {
            rng,
            servers,
            next: 0,
            links: BTreeMap::new(),
            blocked: vec![vec![false; servers]; servers],
            slow_us: vec![vec![0; servers]; servers],
            attempts: vec![vec![0; servers]; servers],
        }
    }

    fn of(&self, from: usize, to: usize) -> Option<LinkId> {
        let alive = |(id, link): (&LinkId, &Link)| {
            (id.from == from && id.to == to && link.broken_us.is_none()).then_some(*id)
        };
        self.links.iter().find_map(alive)
    }

    fn is_alive(&self, id: &LinkId, now_us: u64) -> bool {
        let link = self.links.get(id);
        link.is_some_and(|link| link.broken_us.is_none_or(|broken| broken >= now_us))
    }

    /// Bytes that cannot pass now.
    pub fn held_bytes(&self) -> usize {
        self.links.values().flat_map(|link| &link.held).map(Vec::len).sum()
    }

    fn patience_us(&mut self) -> u64 {
        self.rng.range(PATIENCE_US.0, PATIENCE_US.1)
    }
}

impl World {
    /// A server begins to connect to all others.
    pub(super) fn dial_all(&mut self, host: usize) {
        for other in (0..self.config.servers).filter(|other| *other != host) {
            self.network.attempts[host][other] = 0;
            let in_us = self.network.rng.below(5000);
            self.at_host(host, in_us, HostEvent::Dial(other));
        }
    }

    /// A server tries to connect to another one.
    pub(super) fn dial(&mut self, from: usize, to: usize) -> Result<(), Violation> {
        if self.hosts[from].server.is_none() || self.network.of(from, to).is_some() {
            return Ok(());
        }
        let is_there =
            self.hosts[to].server.is_some() && self.now_us >= self.hosts[to].paused_until_us;
        let network = &mut self.network;
        if !is_there || network.blocked[from][to] || network.blocked[to][from] {
            let attempts = &mut network.attempts[from][to];
            *attempts += 1;
            let backoff_us = (DIAL_US.0 << (*attempts).min(6)).min(DIAL_US.1);
            let in_us = network.rng.range(backoff_us / 2, backoff_us);
            self.at_host(from, in_us, HostEvent::Dial(to));
            return Ok(());
        }
        network.attempts[from][to] = 0;
        network.next += 1;
        let raft_id = |host: &Host| host.server.as_ref().map_or(0, |s| s.identity.raft_id);
        let (from_id, to_id) = (raft_id(&self.hosts[from]), raft_id(&self.hosts[to]));
        let id = LinkId { from, to, number: network.next, from_id, to_id };
        let there_us = 1 + network.rng.below(self.config.peer_latency_us_max);
        let back_us = there_us + 1 + network.rng.below(self.config.peer_latency_us_max);
        let link = Link { last_us: self.now_us + there_us, ..Link::default() };
        network.links.insert(id, link);
        self.coverage.links += 1;
        // Whoever still has an older one learns now that it is over.
        let is_older = |old: &&LinkId| {
            (old.from, old.to, old.from_id) == (from, to, from_id) && old.number < id.number
        };
        let older: Vec<LinkId> = network.links.keys().filter(is_older).copied().collect();
        for old in older {
            self.at_host(to, there_us, HostEvent::Link(Arrival::Down(old)));
            self.network.links.remove(&old);
        }
        if let Some(foreign) = &mut self.foreign {
            self.coverage.forged_hellos += foreign.link(id)?;
        }
        self.at_host(to, there_us, HostEvent::Link(Arrival::Up(id)));
        self.at_host(from, back_us, HostEvent::Link(Arrival::Up(id)));
        // Who is connected to connects back at once.
        self.at_host(to, there_us, HostEvent::Dial(from));
        Ok(())
    }

    /// A server hears of a link. Whether there is anything to hear: it may be broken already.
    pub(super) fn is_news(&self, arrival: &Arrival) -> bool {
        match arrival {
            Arrival::Up(id) => self.network.is_alive(id, self.now_us),
            Arrival::Down(_) | Arrival::Input(_) | Arrival::Peer(..) => true,
        }
    }

    /// A server has something for another one.
    pub(super) fn send_to_peer(&mut self, id: LinkId, bytes: Vec<u8>) {
        let network = &mut self.network;
        let Some(link) = network.links.get_mut(&id) else { return };
        if link.broken_us.is_some() {
            // The machine at the other end answers that it knows nothing of it.
            if link.is_half_open && self.hosts[id.to].server.is_some() {
                link.is_half_open = false;
                let in_us = 1 + network.rng.below(self.config.peer_latency_us_max);
                self.at_host(id.from, in_us, HostEvent::Link(Arrival::Down(id)));
                self.redial(id, in_us);
            }
            return;
        }
        if network.blocked[id.from][id.to] {
            link.held.push_back(bytes);
            return;
        }
        self.pass(id, bytes);
    }

    fn pass(&mut self, id: LinkId, bytes: Vec<u8>) {
        let Some(foreign) = &mut self.foreign else { return self.carry(id, bytes, false) };
        match foreign.carry(id, &bytes, self.faults_are_on) {
            Fate::Passes(sealed) => self.carry(id, sealed, false),
            Fate::Preceded(forged, sealed) => {
                self.carry(id, forged, true);
                self.carry(id, sealed, false);
            }
            Fate::Followed(sealed, forged) => {
                self.carry(id, sealed, false);
                self.carry(id, forged, true);
            }
            Fate::Changed(forged) => self.carry(id, forged, true),
            Fate::Swallowed => {}
        }
    }

    fn carry(&mut self, id: LinkId, bytes: Vec<u8>, is_forged: bool) {
        let network = &mut self.network;
        let late_us = 1
            + network.rng.below(self.config.peer_latency_us_max)
            + network.slow_us[id.from][id.to];
        let Some(link) = network.links.get_mut(&id) else { return };
        link.last_us = (link.last_us + 1).max(self.now_us + late_us);
        let in_us = link.last_us - self.now_us;
        let what = match is_forged {
            true => HostEvent::Forged(id, bytes),
            false => HostEvent::FromPeer(id, bytes),
        };
        self.at_host(id.to, in_us, what);
    }

    /// Something from another server arrives, or from one that is none.
    pub(super) fn arrive_from_peer(
        &mut self,
        id: LinkId,
        mut bytes: Vec<u8>,
        is_forged: bool,
    ) -> Result<(), Violation> {
        if !self.network.is_alive(&id, self.now_us) {
            return Ok(());
        }
        if let Some(foreign) = &mut self.foreign {
            match foreign.arrives(id, bytes, is_forged)? {
                Taken::Read(frame) => bytes = frame,
                Taken::Refused => {
                    self.coverage.forged_frames += 1;
                    self.cut_by_receiver(id);
                    return Ok(());
                }
                Taken::Late => return Ok(()),
            }
        }
        let message = PeerMessage::decode(Bytes::from(bytes))
            .map_err(|bad| format!("a message between servers: {bad}"))?;
        self.coverage.peer_messages += 1;
        if let Some(server) = &mut self.hosts[id.to].server {
            server.arrive(Arrival::Peer(id, message));
        }
        Ok(())
    }

    /// A link breaks. Each end learns of it after so long, if it does.
    fn break_link(&mut self, id: LinkId, from_in_us: u64, to_in_us: u64) {
        let lost_in_us = self.network.rng.below(to_in_us.min(2000) + 1);
        let Some(link) = self.network.links.get_mut(&id) else { return };
        if link.broken_us.is_some() {
            return;
        }
        link.broken_us = Some(self.now_us + lost_in_us);
        link.is_half_open = true;
        link.held.clear();
        self.coverage.link_cuts += 1;
        self.at_host(id.from, from_in_us, HostEvent::Link(Arrival::Down(id)));
        self.at_host(id.to, to_in_us, HostEvent::Link(Arrival::Down(id)));
        self.redial(id, from_in_us);
    }

    fn redial(&mut self, id: LinkId, in_us: u64) {
        let in_us = in_us + self.network.rng.range(DIAL_US.0 / 2, DIAL_US.0);
        self.at_host(id.from, in_us, HostEvent::Dial(id.to));
    }

    /// The server at the receiving end ends it: the other one learns of that.
    pub(super) fn cut_by_receiver(&mut self, id: LinkId) {
        let in_us = 1 + self.network.rng.below(self.config.peer_latency_us_max);
        self.coverage.links_refused += 1;
        self.break_link(id, in_us, 0);
    }

    /// Both ends learn of it at once, or nearly so.
    fn reset_link(&mut self, id: LinkId) {
        let most_us = 2 * self.config.peer_latency_us_max;
        let (from, to) = (self.network.rng.below(most_us), self.network.rng.below(most_us));
        self.break_link(id, from, to);
    }

    /// A server is gone.
    pub(super) fn unlink(&mut self, host: usize, crash: Crash) {
        let of_host = self.network.links.keys().filter(|id| id.from == host || id.to == host);
        let of_host: Vec<LinkId> = of_host.copied().collect();
        for id in of_host {
            // A process that dies has a kernel that says so. A machine has none.
            let is_silent = match crash {
                Crash::Kill => false,
                Crash::PowerCut => self.network.rng.chance(500),
            };
            let in_us = match is_silent {
                true => self.network.patience_us(),
                false => 1 + self.network.rng.below(self.config.peer_latency_us_max),
            };
            self.break_link(id, in_us, in_us);
        }
    }

    /// A single link breaks.
    pub(super) fn cut_some_link(&mut self) {
        let alive = self.network.links.iter().filter(|(_, link)| link.broken_us.is_none());
        let alive: Vec<LinkId> = alive.map(|(id, _)| *id).collect();
        if alive.is_empty() {
            return;
        }
        let id = *self.network.rng.pick(&alive);
        self.trace.note(self.now_us, format_args!("cut {id:?}"));
        self.reset_link(id);
    }

    /// Nothing passes any more in these directions.
    pub(super) fn block(&mut self, ways: &[(usize, usize)]) {
        let resets = self.network.rng.chance(300);
        for (from, to) in ways {
            self.network.blocked[*from][*to] = true;
            for id in [self.network.of(*from, *to), self.network.of(*to, *from)] {
                let Some(id) = id else { continue };
                if resets {
                    self.reset_link(id);
                } else {
                    let in_us = self.network.patience_us();
                    self.at(in_us, Event::Patience(id));
                }
            }
        }
    }

    /// Nothing was heard on a link for long: if that is so still, it breaks.
    pub(super) fn patience_is_over(&mut self, id: LinkId) {
        let network = &mut self.network;
        if network.blocked[id.from][id.to] || network.blocked[id.to][id.from] {
            let later_us = network.patience_us() / 2;
            let (from_us, to_us) = match network.rng.chance(500) {
                true => (0, later_us),
                false => (later_us, 0),
            };
            self.break_link(id, from_us, to_us);
        }
    }

    /// Everything passes again.
    pub(super) fn unblock(&mut self) {
        for row in &mut self.network.blocked {
            row.fill(false);
        }
        let held = self.network.links.iter_mut().filter(|(_, link)| !link.held.is_empty());
        let held: Vec<_> = held.map(|(id, link)| (*id, std::mem::take(&mut link.held))).collect();
        for (id, held) in held {
            for bytes in held {
                self.pass(id, bytes);
            }
        }
    }

    /// Whether nothing passes from one to the other.
    pub(super) fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.network.blocked[from][to]
    }

    /// Whether nothing passes in some direction.
    pub(super) fn is_partitioned(&self) -> bool {
        self.network.blocked.iter().flatten().any(|blocked| *blocked)
    }

    /// One direction becomes slow, or all are as before.
    pub(super) fn slow_down(&mut self, on: bool) {
        let network = &mut self.network;
        for row in &mut network.slow_us {
            row.fill(0);
        }
        if on {
            let (from, to) =
                (network.rng.index(network.servers), network.rng.index(network.servers));
            network.slow_us[from][to] = network.rng.range(10_000, 400_000);
        }
    }

    /// What one server sends another one takes so much longer.
    pub(super) fn slow_between(&mut self, from: usize, to: usize, us: u64) {
        self.slow_down(false);
        self.network.slow_us[from][to] = us;
    }

    /// What a server is sent takes so much longer.
    pub(super) fn slow_towards(&mut self, host: usize, us: u64) {
        self.slow_down(false);
        for row in &mut self.network.slow_us {
            row[host] = us;
        }
    }

    /// Draws who cannot speak to whom.
    pub(super) fn draw_partition(&mut self) -> Vec<(usize, usize)> {
        let servers = self.config.servers;
        let leader = self.checker.agreement.newest_leader().unwrap_or(0);
        let rng = &mut self.network.rng;
        let all = (0..servers).flat_map(|from| (0..servers).map(move |to| (from, to)));
        let all = all.filter(|(from, to)| from != to);
        let one = if rng.chance(600) { leader } else { rng.index(servers) };
        let other = (one + 1 + rng.index(servers - 1)) % servers;
        // What the one follower of a leader acknowledges is cut off later, and then it is not to be missed.
        let leaves_one =
            self.config.old_copies_every_us.is_some() && servers > 3 && rng.chance(400);
        let kind = if leaves_one { 6 } else { rng.below(6) };
        let is_with_leader = |server: usize| server == leader || server == other;
        let side: Vec<bool> = (0..servers).map(|_| rng.chance(500)).collect();
        all.filter(|&(from, to)| match kind {
            // Two sides.
            0 => side[from] != side[to],
            // One alone.
            1 => from == one || to == one,
            // One that is not heard, or does not hear.
            2 => from == one,
            3 => to == one,
            // The leader and one other server.
            6 => is_with_leader(from) != is_with_leader(to),
            // A ring: everybody knows a neighbour on each side only.
            4 if servers > 3 => (from + 1) % servers != to && (to + 1) % servers != from,
            // Two that do not reach each other.
            _ => (from, to) == (one, other) || (from, to) == (other, one),
        })
        .collect()
    }
}
