//! The world: time, the network between clients and servers, and what happens when.
//!
//! *Owns* the queue of events, from which everything follows: the same seed gives the same events in
//! the same order. *Invariant*: bytes of one direction of a connection arrive in order, in pieces
//! and late as they like, or not at all once the connection is gone.

use std::collections::BTreeMap;

use lockkeeper::replica::ConnId;

use super::checker::{Checker, Rules};
use super::client::{Act, Client};
use super::config::Config;
use super::conn::Violation;
use super::coverage::Coverage;
use super::disk::SimFs;
use super::rng::Rng;
use super::server::{Server, Stop};
use super::sled::SimState;
use super::trace::Trace;

/// The wall clock when a world begins.
const WALL_MS: i64 = 1_700_000_000_000;
/// Longest time between two turns of the driver.
const TURN_US_MAX: u64 = 50_000;

/// What happens at some time.
#[derive(Debug)]
pub(super) enum Event {
    /// The driver's turn. Events of the server carry its incarnation.
    Drive(u64),
    LogDone(u64),
    Told(u64, u64),
    State(u64),
    ToServer(ConnId, Vec<u8>),
    ToClient(ConnId, Vec<u8>),
    ClosedAtServer(ConnId),
    ClosedAtClient(ConnId),
    Client(usize),
    Fault,
    Restart,
}

/// One connection in the network.
#[derive(Debug)]
struct Link {
    client: usize,
    /// When the last bytes in each direction arrive.
    to_server_us: u64,
    to_client_us: u64,
}

/// Everything there is.
#[derive(Debug)]
pub struct World {
    pub(super) config: Config,
    pub(super) rng: Rng,
    network: Rng,
    pub(super) now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub(super) fs: SimFs,
    pub(super) state: SimState,
    pub(super) server: Option<Server>,
    pub(super) incarnation: u64,
    /// A turn of the driver is due at this time.
    drive_due_us: Option<u64>,
    log_is_busy: bool,
    pub(super) wall_offset_ms: i64,
    pub(super) clients: Vec<Client>,
    links: BTreeMap<ConnId, Link>,
    next_conn: ConnId,
    pub(super) checker: Checker,
    pub(super) trace: Trace,
    pub(super) coverage: Coverage,
    pub(super) faults_are_on: bool,
    /// Bits that were turned over on the stopped server's disk.
    pub(super) flips: Vec<super::faults::Flip>,
    /// Images as they were before that, until two good ones are there again.
    pub(super) copies: BTreeMap<std::path::PathBuf, Vec<u8>>,
    /// Fencing tokens by lock, in order of the reads that showed them.
    grants: BTreeMap<String, BTreeMap<i64, i64>>,
}

impl World {
    pub fn new(config: Config) -> Self {
        let seed = config.seed;
        let rules = Rules {
            server_id: 1,
            timeouts_ms: config.timeouts_ms,
            container_never_used_ms: match config.container_never_used_ms {
                0 => i64::MAX,
                ms => ms,
            },
            extended_types: config.extended_types,
            grace_us: config.grace_us(),
        };
        let clients = (0..config.clients + config.lock_clients)
            .map(|number| Client::new(number, &config))
            .collect();
        let state = SimState::new(Rng::new(seed, 3));
        state.sled().fail_one_in(config.sled_error_one_in);
        Self {
            rng: Rng::new(seed, 1),
            network: Rng::new(seed, 4),
            now_us: 1_000_000,
            queue: BTreeMap::new(),
            next_event: 0,
            fs: SimFs::new(Rng::new(seed, 2)),
            state,
            server: None,
            incarnation: 0,
            drive_due_us: None,
            log_is_busy: false,
            wall_offset_ms: 0,
            clients,
            links: BTreeMap::new(),
            next_conn: 1,
            checker: Checker::new(rules),
            trace: Trace::default(),
            coverage: Coverage::default(),
            faults_are_on: true,
            flips: Vec::new(),
            copies: BTreeMap::new(),
            grants: BTreeMap::new(),
            config,
        }
    }

    /// Lets everything begin.
    pub fn begin(&mut self) {
        self.at(0, Event::Restart);
        for client in 0..self.clients.len() {
            self.at(1000 + client as u64, Event::Client(client));
        }
        if let Some(every_us) = self.config.crash_every_us {
            self.at(every_us, Event::Fault);
        }
    }

    /// Schedules an event.
    pub(super) fn at(&mut self, in_us: u64, event: Event) {
        self.next_event += 1;
        self.queue.insert((self.now_us + in_us, self.next_event), event);
    }

    /// Lets the next thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        let ((at_us, _), event) = self.queue.pop_first().expect("clients always come again");
        self.now_us = at_us;
        match event {
            Event::Drive(of) if of == self.incarnation => self.drive(),
            Event::LogDone(of) if of == self.incarnation => self.log_done(),
            Event::Told(of, number) if of == self.incarnation => {
                if let Some(server) = &mut self.server {
                    server.tell(number);
                    self.drive_soon();
                }
                Ok(())
            }
            Event::State(of) if of == self.incarnation => self.state(),
            Event::Drive(_) | Event::LogDone(_) | Event::Told(..) | Event::State(_) => Ok(()),
            Event::ToServer(conn, bytes) => {
                self.arrive_at_server(conn, &bytes);
                Ok(())
            }
            Event::ToClient(conn, bytes) => self.arrive_at_client(conn, &bytes),
            Event::ClosedAtServer(conn) => {
                if let Some(server) = &mut self.server {
                    server.disconnect(conn);
                    self.drive_soon();
                }
                self.links.remove(&conn);
                Ok(())
            }
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
            Event::Fault => self.fault(),
            Event::Restart => self.restart(),
        }
    }

    pub(super) fn wall_ms(&self) -> i64 {
        WALL_MS + self.now_us as i64 / 1000 + self.wall_offset_ms
    }

    /// A server runs.
    pub(super) fn started(&mut self, server: Server) {
        self.server = Some(server);
        self.drive_due_us = None;
        self.log_is_busy = false;
        self.drive_soon();
        let of = self.incarnation;
        self.at(1, Event::State(of));
    }

    /// The server is gone, and every connection with it.
    pub(super) fn cut_links(&mut self) {
        self.server = None;
        self.incarnation += 1;
        let conns: Vec<ConnId> = self.links.keys().copied().collect();
        for conn in conns {
            self.close_towards_client(conn);
        }
    }

    fn drive_soon(&mut self) {
        let due_us = self.now_us + self.rng.below(100);
        if self.drive_due_us.is_some_and(|known| known <= due_us) {
            return;
        }
        self.drive_due_us = Some(due_us);
        let of = self.incarnation;
        self.at(due_us - self.now_us, Event::Drive(of));
    }

    fn drive(&mut self) -> Result<(), Violation> {
        // An earlier turn than this one was due, and took its place.
        if self.drive_due_us != Some(self.now_us) {
            return Ok(());
        }
        self.drive_due_us = None;
        if self.config.wall_jumps && self.rng.chance(5) {
            self.wall_offset_ms = self.rng.below(4000) as i64 - 2000;
        }
        let now = (self.now_us, self.wall_ms());
        let Some(server) = &mut self.server else { return Ok(()) };
        let mut out = Vec::new();
        let (checker, trace) = (&mut self.checker, &mut self.trace);
        let turn = server.drive(now, &self.config, checker, trace, &self.fs, &mut out);
        let (zxid, more) = (server.replica.machine().last_zxid(), server.has_inputs());
        for outgoing in out {
            self.trace.note(
                self.now_us,
                format_args!(
                    "out conn {} bytes {} replies {} close {}",
                    outgoing.conn,
                    outgoing.frames.len(),
                    outgoing.replies,
                    outgoing.close
                ),
            );
            self.trace.bytes(&outgoing.frames);
            self.send_to_client(outgoing.conn, &outgoing.frames);
            if outgoing.close {
                self.close_towards_client(outgoing.conn);
            }
        }
        match turn {
            Err(stop) => return self.stopped(stop),
            Ok(true) if !self.log_is_busy => {
                self.log_is_busy = true;
                let (least, most) = self.config.log_us;
                let (of, in_us) = (self.incarnation, self.rng.range(least, most));
                self.at(in_us, Event::LogDone(of));
            }
            Ok(_) => {}
        }
        self.trace.note(self.now_us, format_args!("turn zxid {zxid:#x}"));
        self.sometimes_check(zxid)?;
        if more {
            self.drive_soon();
        } else {
            let due_us = self.now_us + self.rng.range(TURN_US_MAX / 2, TURN_US_MAX);
            self.drive_due_us = Some(due_us);
            let of = self.incarnation;
            self.at(due_us - self.now_us, Event::Drive(of));
        }
        Ok(())
    }

    /// Compares the whole state, and opens a copy of what is durable, now and then.
    fn sometimes_check(&mut self, zxid: i64) -> Result<(), Violation> {
        let Some(server) = &self.server else { return Ok(()) };
        if zxid == self.checker.zxid() && self.rng.chance(20) {
            self.checker.compare(server.replica.machine().tree())?;
        }
        if self.rng.chance(5) {
            let durable = super::server::durable_last_index(&self.fs, &self.config)?;
            if durable < self.checker.last_index() {
                let last = self.checker.last_index();
                return Err(format!("entry {last} was applied, but {durable} is the last durable"));
            }
        }
        Ok(())
    }

    fn log_done(&mut self) -> Result<(), Violation> {
        self.log_is_busy = false;
        let Some(server) = &mut self.server else { return Ok(()) };
        match server.log_step() {
            Err(stop) => self.stopped(stop),
            Ok((number, batches)) => {
                self.trace.note(self.now_us, format_args!("log {batches} batches, {number:?}"));
                self.coverage.batches_of_many += u64::from(batches > 1);
                if let Some(number) = number {
                    let late_us = 1 + self.rng.below(self.config.told_late_us_max);
                    let of = self.incarnation;
                    self.at(late_us, Event::Told(of, number));
                }
                self.died_at_an_operation()
            }
        }
    }

    fn state(&mut self) -> Result<(), Violation> {
        let Some(server) = &mut self.server else { return Ok(()) };
        match server.state_step() {
            Err(stop) => return self.stopped(stop),
            Ok(None) => {}
            Ok(Some(outcome)) => {
                self.trace.note(self.now_us, format_args!("state {outcome:?}"));
                self.drive_soon();
                if let lockkeeper::storage::Outcome::CutLog(index) = outcome {
                    self.coverage.log_cuts += 1;
                    self.copies.clear();
                    self.images_reach_back_to(index)?;
                }
                self.coverage.sled_refilled +=
                    u64::from(outcome == lockkeeper::storage::Outcome::RecordsLost);
            }
        }
        let (of, in_us) = (self.incarnation, 1 + self.rng.below(self.config.state_us_max));
        self.at(in_us, Event::State(of));
        self.died_at_an_operation()
    }

    /// The disk went off in the middle of what was just done, and only the disk knows yet.
    fn died_at_an_operation(&mut self) -> Result<(), Violation> {
        if self.fs.disk().down().is_some() {
            return self.stopped(Stop::Died("the machine went off".to_owned()));
        }
        Ok(())
    }

    fn arrive_at_server(&mut self, conn: ConnId, bytes: &[u8]) {
        if !self.links.contains_key(&conn) {
            return;
        }
        let Some(server) = &mut self.server else { return };
        if !server.receive(conn, bytes) {
            self.trace.note(self.now_us, format_args!("conn {conn} sent what is no frame"));
            self.coverage.malformed += 1;
            self.close_towards_client(conn);
        }
        self.drive_soon();
    }

    fn arrive_at_client(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Violation> {
        let Some(link) = self.links.get(&conn) else { return Ok(()) };
        let number = link.client;
        if self.clients[number].conn != Some(conn) {
            return Ok(());
        }
        for grant in self.clients[number].receive(bytes, self.now_us) {
            self.coverage.locks_granted += 1;
            self.granted(number, grant)?;
        }
        Ok(())
    }

    /// A client believes that it holds its lock: nobody whose znode is there may believe the same.
    fn granted(&mut self, number: usize, grant: super::lock::Grant) -> Result<(), Violation> {
        let lock = self.clients[number].lock.as_ref().expect("only lock clients get grants");
        let exists = |lock: &super::lock::Lock| {
            lock.own.as_ref().is_some_and(|(path, czxid)| {
                self.checker.model.find(path).is_some_and(|znode| znode.czxid == *czxid)
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
        if self.server.is_none() {
            again_in_us += 20_000;
        }
        self.at(again_in_us, Event::Client(number));
        if connect && self.server.is_some() {
            let conn = self.next_conn;
            self.next_conn += 1;
            let link = Link { client: number, to_server_us: 0, to_client_us: 0 };
            self.links.insert(conn, link);
            self.clients[number].conn = Some(conn);
            let ip = self.clients[number].ip;
            if let Some(server) = &mut self.server {
                server.accept(conn, ip);
            }
            self.trace.note(self.now_us, format_args!("client {number} connects as conn {conn}"));
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
            let in_us = self.network.below(self.config.latency_us_max);
            let last_us = self.links.get(&conn).map_or(0, |link| link.to_server_us);
            let in_us = in_us.max(last_us.saturating_sub(self.now_us));
            self.at(in_us, Event::ClosedAtServer(conn));
        }
    }

    fn send_to_server(&mut self, conn: ConnId, bytes: Vec<u8>) {
        for piece in self.pieces(bytes) {
            let Some(link) = self.links.get_mut(&conn) else { return };
            let late_us = self.network.below(self.config.latency_us_max);
            link.to_server_us = link.to_server_us.max(self.now_us + late_us);
            let in_us = link.to_server_us - self.now_us;
            self.at(in_us, Event::ToServer(conn, piece));
        }
    }

    fn send_to_client(&mut self, conn: ConnId, bytes: &[u8]) {
        for piece in self.pieces(bytes.to_vec()) {
            let Some(link) = self.links.get_mut(&conn) else { return };
            let late_us = self.network.below(self.config.latency_us_max);
            link.to_client_us = link.to_client_us.max(self.now_us + late_us);
            let in_us = link.to_client_us - self.now_us;
            self.at(in_us, Event::ToClient(conn, piece));
        }
    }

    fn close_towards_client(&mut self, conn: ConnId) {
        let Some(link) = self.links.get(&conn) else { return };
        let in_us = link.to_client_us.saturating_sub(self.now_us)
            + self.network.below(self.config.latency_us_max);
        self.at(in_us, Event::ClosedAtClient(conn));
    }

    fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        if bytes.is_empty() {
            return Vec::new();
        }
        if !self.config.splits_bytes || !self.network.chance(300) {
            return vec![bytes];
        }
        let at = self.network.index(bytes.len());
        let (head, tail) = bytes.split_at(at);
        [head, tail].iter().filter(|part| !part.is_empty()).map(|part| part.to_vec()).collect()
    }
}
