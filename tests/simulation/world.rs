//! The world: time, the network between clients and servers, and what happens when.
//!
//! *Owns* the queue of events, from which everything follows: the same seed gives the same events in
//! the same order. *Invariant*: bytes of one direction of a connection arrive in order, in pieces
//! and late as they like, or not at all once the connection is gone.

use std::collections::BTreeMap;

use lockkeeper_core::replica::{ConnId, Outgoing};

use super::checker::{Checker, Rules};
use super::client::{Act, Client};
use super::config::Config;
use super::conn::Violation;
use super::coverage::Coverage;
use super::disk::Crash;
use super::foreign::Foreign;
use super::host::{Host, HostEvent};
use super::network::Network;
use super::rng::Rng;
use super::rollback::Rollbacks;
use super::server::{LinkId, initial_membership};
use super::trace::Trace;
use super::transfer::Transfer;

/// The time at which a world begins.
pub(super) const BEGIN_US: u64 = 1_000_000;

/// What happens at some time.
#[derive(Debug)]
pub(super) enum Event {
    /// On a machine, to a process that runs there.
    Host {
        host: usize,
        of: u64,
        what: HostEvent,
    },
    ToClient(ConnId, Vec<u8>),
    ClosedAtClient(ConnId),
    Client(usize),
    Fault(usize),
    Restart(usize),
    /// Something happens to the network between servers, or to a machine's time.
    Trouble,
    /// It is over.
    Relief(u64),
    Patience(LinkId),
    /// A machine stands still for so long.
    Pause(usize, u64),
    /// A machine goes on.
    Resume(usize),
    /// An image has arrived, or has not.
    Image(usize),
    /// The operator looks after the servers.
    Operator,
    /// The operator would finish the upgrade.
    Upgrade,
    /// Disks hang.
    Hang,
    /// Wall clocks go wrong, or are set right.
    Clocks,
    /// A copy of a disk is made, or put back.
    Backup,
    /// A good time to put back the copy of this server's disk.
    OldCopy(usize),
    /// A server that was put back to an old copy then must have been recognised by now.
    OldCopyKnown(u64),
}

/// One connection in the network.
#[derive(Debug)]
struct Link {
    client: usize,
    host: usize,
    /// When the last bytes in each direction arrive.
    to_server_us: u64,
    to_client_us: u64,
}

/// Everything there is.
#[derive(Debug)]
pub struct World {
    pub(super) config: Config,
    pub(super) network: Network,
    /// Chance, for what happens between clients and servers.
    wire: Rng,
    pub(super) now_us: u64,
    /// Events so far.
    pub(super) steps: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) clients: Vec<Client>,
    links: BTreeMap<ConnId, Link>,
    next_conn: ConnId,
    pub(super) checker: Checker,
    pub(super) trace: Trace,
    pub(super) coverage: Coverage,
    pub(super) faults_are_on: bool,
    /// Images on their way, by number.
    pub(super) transfers: Vec<Transfer>,
    /// The operator's chance, and the server that was emptied and is not back yet.
    pub(super) operator: Rng,
    pub(super) missing: Option<usize>,
    /// Copies of disks that are put back.
    pub(super) rollbacks: Rollbacks,
    /// How often there was trouble.
    pub(super) troubles: u64,
    /// Chance, for disks that hang; until when they have the world for themselves, and since when
    /// nothing else has gone wrong.
    pub(super) fate: Rng,
    pub(super) spared_until_us: u64,
    pub(super) calm_since_us: u64,
    /// Chance, for clocks that are wrong.
    pub(super) time: Rng,
    /// The operator has asked for the end of the upgrade.
    pub(super) is_upgraded: bool,
    /// The ensemble has begun to write.
    pub(super) is_begun: bool,
    /// The program in the network that is no server, in worlds that have one.
    pub(super) foreign: Option<Foreign>,
    /// Fencing tokens by lock, in order of the reads that showed them.
    grants: BTreeMap<String, BTreeMap<i64, i64>>,
}

impl World {
    pub fn new(config: Config) -> Self {
        let seed = config.seed;
        let rules = Rules {
            servers: config.servers,
            timeouts_ms: config.timeouts_ms,
            container_never_used_ms: match config.container_never_used_ms {
                0 => i64::MAX,
                ms => ms,
            },
            of_files: config.rules(0, 0),
            upgrades: config.upgrades,
            linearizable_reads: config.linearizable_reads,
            grace_us: config.grace_us(),
            clock_rates: std::array::from_fn(|at| *config.clock_rates.get(at).unwrap_or(&1000)),
            peer_latency_us_max: config.peer_latency_us_max,
            expiry_grace_us: config.expiry_grace_ms * 1000,
            reaped_per_minute: config.reaped_per_minute,
            reaped_late_us: config.reaped_late_us(),
        };
        let clients = (0..config.clients + config.lock_clients + config.quiet_clients)
            .map(|number| Client::new(number, &config))
            .collect();
        let hosts: Vec<Host> =
            (0..config.servers).map(|index| Host::new(seed, index, &config)).collect();
        Self {
            network: Network::new(Rng::new(seed, 5), config.servers),
            wire: Rng::new(seed, 4),
            now_us: BEGIN_US,
            steps: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            hosts,
            clients,
            links: BTreeMap::new(),
            next_conn: 1,
            checker: Checker::new(rules, &initial_membership(&config)),
            trace: Trace::default(),
            coverage: Coverage::default(),
            faults_are_on: true,
            transfers: Vec::new(),
            operator: Rng::new(seed, 7),
            missing: None,
            fate: Rng::new(seed, 9),
            time: Rng::new(seed, 14),
            spared_until_us: 0,
            calm_since_us: 0,
            rollbacks: Rollbacks::new(Rng::new(seed, 12)),
            troubles: 0,
            is_upgraded: false,
            is_begun: false,
            foreign: config.is_foreign.then(|| Foreign::new(seed)),
            grants: BTreeMap::new(),
            config,
        }
    }

    /// Lets everything begin.
    pub fn begin(&mut self) {
        for host in 0..self.hosts.len() {
            self.at(0, Event::Restart(host));
            if let Some(every_us) = self.config.crash_every_us {
                self.at(every_us + host as u64, Event::Fault(host));
            }
        }
        if let Some(every_us) = self.config.trouble_every_us {
            self.at(every_us, Event::Trouble);
        }
        if let Some(every_us) = self.config.hang_every_us {
            self.at(every_us, Event::Hang);
        }
        if let Some(every_us) = self.config.wrong_clocks_every_us {
            self.at(every_us, Event::Clocks);
        }
        if let Some(every_us) = self.config.wipe_every_us {
            self.at(every_us, Event::Operator);
        }
        if self.config.upgrades {
            self.at(1, Event::Upgrade);
        }
        if let Some(every_us) = self.config.old_copies_every_us {
            self.at(every_us, Event::Backup);
        }
        for client in 0..self.clients.len() {
            self.at(1000 + client as u64, Event::Client(client));
        }
    }

    /// Schedules an event.
    pub(super) fn at(&mut self, in_us: u64, event: Event) {
        self.next_event += 1;
        self.queue.insert((self.now_us + in_us, self.next_event), event);
    }

    /// What is to happen, and how much that is.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Event> {
        self.queue.values()
    }

    pub(super) fn event_count(&self) -> usize {
        self.queue.len()
    }

    /// Lets the next thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        let ((at_us, _), event) = self.queue.pop_first().expect("clients always come again");
        self.now_us = at_us;
        match event {
            Event::Host { host, of, what } => {
                if let HostEvent::Closed(conn) = what {
                    self.links.remove(&conn);
                }
                self.on_host(host, of, what)
            }
            Event::ToClient(conn, bytes) => self.arrive_at_client(conn, &bytes),
            Event::ClosedAtClient(conn) => {
                if let Some(link) = self.links.remove(&conn) {
                    let client = &mut self.clients[link.client];
                    if client.conn == Some(conn) {
                        client.disconnected();
                    }
                }
                Ok(())
            }
            Event::Client(client) => {
                self.client(client);
                Ok(())
            }
            Event::Fault(host) => self.fault(host),
            Event::Restart(host) => self.restart(host),
            Event::Trouble => {
                self.trouble();
                Ok(())
            }
            Event::Relief(number) => {
                self.relief(number);
                Ok(())
            }
            Event::Patience(link) => {
                self.patience_is_over(link);
                Ok(())
            }
            Event::Pause(host, us) => {
                self.stand_still(host, us);
                Ok(())
            }
            Event::Resume(host) => self.resume(host),
            Event::Image(transfer) => self.image_arrives(transfer),
            Event::Hang => {
                self.hang();
                Ok(())
            }
            Event::Clocks => {
                self.clocks_change();
                Ok(())
            }
            Event::Backup => {
                self.back_up();
                Ok(())
            }
            Event::OldCopy(host) => {
                self.put_back(host);
                Ok(())
            }
            Event::OldCopyKnown(put_back_us) => self.must_be_recognised(put_back_us),
            Event::Upgrade => {
                self.finish_upgrade();
                Ok(())
            }
            Event::Operator => {
                self.operate();
                Ok(())
            }
        }
    }

    /// A server is gone, and every connection with it.
    pub(super) fn cut_links(&mut self, host: usize, crash: Crash) {
        let machine = &mut self.hosts[host];
        machine.server = None;
        machine.incarnation += 1;
        machine.go_on();
        self.unlink(host, crash);
        let of_host = self.links.iter().filter(|(_, link)| link.host == host);
        let conns: Vec<ConnId> = of_host.map(|(conn, _)| *conn).collect();
        for conn in conns {
            self.close_towards_client(conn);
        }
    }

    fn arrive_at_client(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Violation> {
        let Some(link) = self.links.get(&conn) else { return Ok(()) };
        let number = link.client;
        if self.clients[number].conn != Some(conn) {
            return Ok(());
        }
        let grants = self.clients[number].receive(bytes, self.now_us)?;
        if let Some(lock) = &mut self.clients[number].lock {
            for (zxid, names) in std::mem::take(&mut lock.listed) {
                self.checker.observer.listed(&lock.dir, zxid, names);
            }
        }
        for grant in grants {
            self.coverage.locks_granted += 1;
            self.granted(number, grant)?;
        }
        Ok(())
    }

    /// A client believes that it holds its lock: nobody whose znode is there may believe the same.
    fn granted(&mut self, number: usize, grant: super::lock::Grant) -> Result<(), Violation> {
        let lock = self.clients[number].lock.as_ref().expect("only lock clients get grants");
        self.checker.observer.held(&lock.dir, grant.zxid, grant.token);
        let newest = self.checker.newest();
        let exists = |lock: &super::lock::Lock| {
            lock.own.as_ref().is_some_and(|(path, czxid)| {
                newest.find(path).is_some_and(|znode| znode.czxid == *czxid)
            })
        };
        for (other, client) in self.clients.iter().enumerate() {
            let Some(theirs) = client.lock.as_ref().filter(|theirs| theirs.dir == lock.dir) else {
                continue;
            };
            if other != number && theirs.is_held && exists(theirs) && exists(lock) {
                return Err(format!("clients {other} and {number} both hold {}", lock.dir));
            }
        }
        self.trace.note(self.now_us, format_args!("client {number} holds {} {grant:?}", lock.dir));
        let tokens = self.grants.entry(lock.dir.clone()).or_default();
        let before = tokens.range(..grant.zxid).next_back().map_or(0, |(_, token)| *token);
        let after = tokens.range(grant.zxid + 1..).next().map_or(i64::MAX, |(_, token)| *token);
        if !(before..=after).contains(&grant.token) {
            return Err(format!("fencing token {grant:?} between {before:#x} and {after:#x}"));
        }
        tokens.insert(grant.zxid, grant.token);
        Ok(())
    }

    fn client(&mut self, number: usize) {
        let act = self.clients[number].act(self.now_us, &self.config);
        let Act { connect, drop, bytes, mut again_in_us } = act;
        let host = self.clients[number].server;
        let is_there = self.hosts[host].server.is_some();
        if !is_there && self.clients[number].conn.is_none() {
            again_in_us += 20_000;
        }
        self.at(again_in_us, Event::Client(number));
        if connect && is_there {
            let conn = self.next_conn;
            self.next_conn += 1;
            let link = Link { client: number, host, to_server_us: 0, to_client_us: 0 };
            self.links.insert(conn, link);
            self.clients[number].conn = Some(conn);
            let ip = self.clients[number].ip;
            self.at_host(host, 0, HostEvent::Accept(conn, ip));
            let name = host + 1;
            self.trace.note(
                self.now_us,
                format_args!("client {number} connects to {name} as conn {conn}"),
            );
        }
        let Some(conn) = self.clients[number].conn else {
            // Nobody listens.
            self.clients[number].disconnected();
            return;
        };
        if !bytes.is_empty() {
            self.trace.note(self.now_us, format_args!("client {number} sends {}", bytes.len()));
            self.send_to_server(conn, bytes);
        }
        if drop {
            self.trace.note(self.now_us, format_args!("client {number} drops conn {conn}"));
            self.clients[number].disconnected();
            let in_us = self.wire.below(self.config.latency_us_max);
            let Some(link) = self.links.get(&conn) else { return };
            let (host, last_us) = (link.host, link.to_server_us);
            let in_us = in_us.max(last_us.saturating_sub(self.now_us));
            self.at_host(host, in_us, HostEvent::Closed(conn));
        }
    }

    fn send_to_server(&mut self, conn: ConnId, bytes: Vec<u8>) {
        for piece in self.pieces(bytes) {
            let Some(link) = self.links.get_mut(&conn) else { return };
            let late_us = self.wire.below(self.config.latency_us_max);
            link.to_server_us = link.to_server_us.max(self.now_us + late_us);
            let (host, in_us) = (link.host, link.to_server_us - self.now_us);
            self.at_host(host, in_us, HostEvent::Bytes(conn, piece));
        }
    }

    /// What a server has for a client goes into the network.
    pub(super) fn deliver(&mut self, outgoing: &Outgoing) {
        let Outgoing { conn, frames, replies, close, .. } = outgoing;
        self.trace.note(
            self.now_us,
            format_args!("out conn {conn} bytes {} replies {replies} close {close}", frames.len()),
        );
        self.trace.bytes(frames);
        for piece in self.pieces(frames.clone()) {
            let Some(link) = self.links.get_mut(conn) else { break };
            let late_us = self.wire.below(self.config.latency_us_max);
            link.to_client_us = link.to_client_us.max(self.now_us + late_us);
            let in_us = link.to_client_us - self.now_us;
            self.at(in_us, Event::ToClient(*conn, piece));
        }
        if *close {
            self.close_towards_client(*conn);
        }
    }

    pub(super) fn close_towards_client(&mut self, conn: ConnId) {
        let Some(link) = self.links.get(&conn) else { return };
        let in_us = link.to_client_us.saturating_sub(self.now_us)
            + self.wire.below(self.config.latency_us_max);
        self.at(in_us, Event::ClosedAtClient(conn));
    }

    fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        if bytes.is_empty() {
            return Vec::new();
        }
        if !self.config.splits_bytes || !self.wire.chance(300) {
            return vec![bytes];
        }
        let at = self.wire.index(bytes.len());
        let (head, tail) = bytes.split_at(at);
        [head, tail].iter().filter(|part| !part.is_empty()).map(|part| part.to_vec()).collect()
    }
}
