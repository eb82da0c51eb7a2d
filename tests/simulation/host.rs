//! One machine: its disk, its clocks, and the server on it, if one runs.
//!
//! *Owns* what the scheduler of a machine does: the turns of a server's threads. *Invariant*: an
//! event of a process that is gone does nothing; a process that stands still gets all of its events
//! when it goes on, in order.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use lockkeeper_core::replica::ConnId;
use lockkeeper_core::replica::founding::Founding;
use lockkeeper_storage::Outcome;

use super::config::Config;
use super::conn::Violation;
use super::disk::SimFs;
use super::faults::Flip;
use super::rng::Rng;
use super::server::{Arrival, LinkId, Server, Stop, Turn};
use super::sled::SimState;
use super::world::{Event, World};

/// The wall clock when a world begins.
pub(super) const WALL_MS: i64 = 1_700_000_000_000;
/// Longest time between two turns of the driver.
const TURN_US_MAX: u64 = 50_000;
/// How often a disk that hangs is looked at.
const HANG_STEP_US: u64 = 100_000;
/// How long a log thread rests at most.
const LOG_REST_US: u64 = 2_000;

/// A machine.
#[derive(Debug)]
pub struct Host {
    /// The server's myid.
    pub id: u8,
    pub fs: SimFs,
    pub state: SimState,
    pub server: Option<Server>,
    /// How many servers ran here.
    pub incarnation: u64,
    /// Chance, for what happens on this machine.
    pub(super) rng: Rng,
    /// The next turn of the driver: when, and the number of its event.
    turn: Option<(u64, u64)>,
    turns: u64,
    log_is_busy: bool,
    pub(super) wall_offset_ms: i64,
    /// And by how much it is wrong besides.
    pub(super) wall_error_ms: i64,
    /// How fast the monotonic clock runs, in 1000.
    pub(super) clock_rate: u64,
    /// It stands still until then, and this happens when it goes on.
    pub(super) paused_until_us: u64,
    paused_since_us: u64,
    /// Its log's syncs return not before this.
    pub(super) hangs_until_us: u64,
    /// What others have applied and its disk lacks while it leads: index, term, and since when.
    pub(super) behind: Option<(u64, u64, u64)>,
    backlog: VecDeque<(u64, HostEvent)>,
    /// Bits that were turned over on the stopped server's disk.
    pub(super) flips: Vec<Flip>,
    /// Images as they were before that, until two good ones are there again.
    pub(super) copies: BTreeMap<PathBuf, Vec<u8>>,
    /// Failed syncs and full disks that a death was put down to.
    pub(super) known_faults: (u64, u64),
    /// Its disk was emptied, now or earlier.
    pub(super) was_wiped: bool,
    /// What it asks the others before it has data.
    pub(super) founding: Option<Founding>,
}

/// What happens on a machine, to the process that was running when it was scheduled.
#[derive(Debug)]
pub(super) enum HostEvent {
    /// The driver's turn, by number.
    Drive(u64),
    LogDone,
    Told(u64),
    State,
    Accept(ConnId, Ipv4Addr),
    Bytes(ConnId, Vec<u8>),
    Closed(ConnId),
    /// Tries to connect to another server.
    Dial(usize),
    /// A link was made or broke.
    Link(Arrival),
    FromPeer(LinkId, Vec<u8>),
    /// The same, of a program that is no server.
    Forged(LinkId, Vec<u8>),
}

impl Host {
    pub fn new(seed: u64, index: usize, config: &Config) -> Self {
        let stream = 1000 * index as u64;
        let state = SimState::new(Rng::new(seed, stream + 3));
        state.sled().fail_one_in(config.sled_error_one_in);
        Self {
            id: index as u8 + 1,
            fs: SimFs::new(Rng::new(seed, stream + 2)),
            state,
            server: None,
            incarnation: 0,
            rng: Rng::new(seed, stream + 1),
            turn: None,
            turns: 0,
            log_is_busy: false,
            wall_offset_ms: 0,
            wall_error_ms: 0,
            clock_rate: config.clock_rates[index],
            paused_until_us: 0,
            paused_since_us: 0,
            hangs_until_us: 0,
            behind: None,
            backlog: VecDeque::new(),
            flips: Vec::new(),
            copies: BTreeMap::new(),
            known_faults: (0, 0),
            was_wiped: false,
            founding: None,
        }
    }

    /// Its monotonic clock.
    pub fn local_us(&self, now_us: u64) -> u64 {
        now_us * self.clock_rate / 1000
    }

    /// What waits until it goes on.
    pub(super) fn backlog(&self) -> impl Iterator<Item = &HostEvent> {
        self.backlog.iter().map(|(_, what)| what)
    }

    /// It stands still no longer. What has waited.
    pub(super) fn go_on(&mut self) -> VecDeque<(u64, HostEvent)> {
        self.paused_until_us = 0;
        std::mem::take(&mut self.backlog)
    }

    fn wall_ms(&self, now_us: u64) -> i64 {
        WALL_MS + now_us as i64 / 1000 + self.wall_offset_ms + self.wall_error_ms
    }
}

impl World {
    /// Schedules something on a machine, for the process that runs there now.
    pub(super) fn at_host(&mut self, host: usize, in_us: u64, what: HostEvent) {
        let of = self.hosts[host].incarnation;
        self.at(in_us, Event::Host { host, of, what });
    }

    /// Something happens on a machine.
    pub(super) fn on_host(
        &mut self,
        host: usize,
        of: u64,
        what: HostEvent,
    ) -> Result<(), Violation> {
        let machine = &self.hosts[host];
        if of != machine.incarnation {
            return Ok(());
        }
        if machine.paused_until_us > 0 {
            self.hosts[host].backlog.push_back((of, what));
            return Ok(());
        }
        match what {
            HostEvent::Drive(turn) => return self.drive(host, turn),
            HostEvent::LogDone => return self.log_done(host),
            HostEvent::State => return self.state(host),
            HostEvent::Bytes(conn, bytes) => self.arrive_at_server(host, conn, &bytes),
            HostEvent::Dial(other) => {
                self.dial(host, other)?;
                return Ok(());
            }
            HostEvent::Link(arrival) => {
                if !self.is_news(&arrival) {
                    return Ok(());
                }
                if let Some(server) = &mut self.hosts[host].server {
                    server.arrive(arrival);
                }
            }
            HostEvent::FromPeer(link, bytes) => self.arrive_from_peer(link, bytes, false)?,
            HostEvent::Forged(link, bytes) => self.arrive_from_peer(link, bytes, true)?,
            HostEvent::Told(number) => {
                if let Some(server) = &mut self.hosts[host].server {
                    server.tell(number);
                }
            }
            HostEvent::Accept(conn, ip) => {
                if let Some(server) = &mut self.hosts[host].server {
                    server.accept(conn, ip);
                }
                return Ok(());
            }
            HostEvent::Closed(conn) => {
                if let Some(server) = &mut self.hosts[host].server {
                    server.disconnect(conn);
                }
            }
        }
        self.drive_soon(host);
        Ok(())
    }

    /// A machine stands still.
    pub(super) fn pause(&mut self, host: usize, us: u64) {
        let machine = &mut self.hosts[host];
        if machine.paused_until_us > 0 || machine.server.is_none() {
            return;
        }
        machine.paused_since_us = self.now_us;
        machine.paused_until_us = self.now_us + us;
        self.coverage.pauses += 1;
        self.trace.note(self.now_us, format_args!("{} stands still for {us}", host + 1));
        self.at(us, Event::Resume(host));
    }

    /// It goes on: what has waited happens, in order. But nothing says which connections are looked at
    /// first: the driver may see all that clients asked for before it hears of any other server.
    pub(super) fn resume(&mut self, host: usize) -> Result<(), Violation> {
        let machine = &mut self.hosts[host];
        if machine.paused_until_us == 0 || machine.paused_until_us > self.now_us {
            return Ok(());
        }
        self.disturbed();
        let machine = &mut self.hosts[host];
        self.checker.stood_still(host, machine.paused_since_us, self.now_us);
        self.trace.note(self.now_us, format_args!("{} goes on", host + 1));
        let clients_first = machine.rng.chance(500);
        let is_late = |(_, what): &(u64, HostEvent)| {
            clients_first
                && matches!(
                    what,
                    HostEvent::Link(_) | HostEvent::FromPeer(..) | HostEvent::Forged(..)
                )
        };
        let (late, first): (Vec<_>, Vec<_>) = machine.go_on().into_iter().partition(is_late);
        for (of, what) in first {
            self.on_host(host, of, what)?;
        }
        if let Some((_, turn)) = self.hosts[host].turn.filter(|_| clients_first) {
            self.drive(host, turn)?;
        }
        for (of, what) in late {
            self.on_host(host, of, what)?;
        }
        Ok(())
    }

    /// A server runs.
    pub(super) fn started(&mut self, host: usize, server: Server) {
        let machine = &mut self.hosts[host];
        machine.server = Some(server);
        machine.turn = None;
        machine.log_is_busy = false;
        self.drive_soon(host);
        self.at_host(host, 1, HostEvent::State);
        self.dial_all(host);
    }

    pub(super) fn drive_soon(&mut self, host: usize) {
        let in_us = self.hosts[host].rng.below(100);
        self.drive_in(host, in_us);
    }

    /// The driver's next turn is then, or earlier.
    fn drive_in(&mut self, host: usize, in_us: u64) {
        let due_us = self.now_us + in_us;
        let machine = &mut self.hosts[host];
        if machine.turn.is_some_and(|(known_us, _)| known_us <= due_us) {
            return;
        }
        machine.turns += 1;
        let turn = machine.turns;
        machine.turn = Some((due_us, turn));
        self.at_host(host, in_us, HostEvent::Drive(turn));
    }

    fn drive(&mut self, host: usize, turn: u64) -> Result<(), Violation> {
        let now_us = self.now_us;
        let Self { hosts, config, checker, trace, .. } = self;
        let machine = &mut hosts[host];
        // An earlier turn than this one was due, and took its place.
        if machine.turn.is_none_or(|(_, due)| due != turn) {
            return Ok(());
        }
        machine.turn = None;
        if config.wall_jumps && machine.rng.chance(5) {
            machine.wall_offset_ms = machine.rng.below(4000) as i64 - 2000;
        }
        let (local_us, wall_ms) = (machine.local_us(now_us), machine.wall_ms(now_us));
        let Host { server: Some(server), fs, .. } = machine else { return Ok(()) };
        let turn = Turn { index: host, now_us: local_us, wall_ms, world_us: now_us, config };
        let driven = server.drive(&turn, checker, trace, fs);
        let more = server.has_inputs() || server.replica.is_underway();
        let zxid = server.replica.machine().last_zxid();
        let may_rest = server.log_may_rest();
        let has_log_work = match driven {
            Err(stop) => return self.stopped(host, stop),
            Ok(todo) => {
                for outgoing in todo.client {
                    self.deliver(&outgoing);
                }
                for (link, bytes) in todo.peers {
                    self.send_to_peer(link, bytes);
                }
                self.counted_votes(&todo.voters);
                for link in todo.cut {
                    self.cut_by_receiver(link);
                }
                for image in todo.images {
                    self.send_image(host, image);
                }
                todo.log
            }
        };
        let machine = &mut self.hosts[host];
        if has_log_work && !machine.log_is_busy {
            machine.log_is_busy = true;
            let (least, most) = self.config.log_us;
            let rest_us = if may_rest { LOG_REST_US } else { 0 };
            let in_us = machine.rng.range(least, most + rest_us);
            self.at_host(host, in_us, HostEvent::LogDone);
        }
        self.trace.note(now_us, format_args!("turn of {} zxid {zxid:#x}", host + 1));
        self.sometimes_check(host)?;
        if self.config.hang_every_us.is_some() && self.config.servers > 1 {
            self.judge_hung_leader(host)?;
        }
        if more {
            self.drive_soon(host);
        } else {
            let in_us = self.hosts[host].rng.range(TURN_US_MAX / 2, TURN_US_MAX);
            self.drive_in(host, in_us);
        }
        Ok(())
    }

    /// Compares the whole state, and opens a copy of what is durable, now and then.
    fn sometimes_check(&mut self, host: usize) -> Result<(), Violation> {
        let machine = &mut self.hosts[host];
        let Some(server) = &machine.server else { return Ok(()) };
        if server.replica.is_underway() {
            return Ok(());
        }
        // The digests of all servers are compared all the time.
        if machine.rng.chance(if self.config.servers == 1 { 20 } else { 5 }) {
            self.checker.compare(host, server.replica.machine().tree())?;
        }
        if self.config.servers == 1 && machine.rng.chance(5) {
            let durable = super::server::durable_last_index(&machine.fs, &self.config)?;
            let last = self.checker.last_index(host);
            if durable < last {
                return Err(format!("entry {last} was applied, but {durable} is the last durable"));
            }
        }
        Ok(())
    }

    fn log_done(&mut self, host: usize) -> Result<(), Violation> {
        let machine = &mut self.hosts[host];
        if let Some(in_us) = machine.hangs_until_us.checked_sub(self.now_us).filter(|us| *us > 0) {
            // It may end earlier.
            self.at_host(host, in_us.min(HANG_STEP_US), HostEvent::LogDone);
            return Ok(());
        }
        machine.log_is_busy = false;
        let Some(server) = &mut machine.server else { return Ok(()) };
        let (number, batches) = match server.log_step(host, &mut self.checker) {
            Err(stop) => return self.stopped(host, stop),
            Ok(done) => done,
        };
        let late_us = 1 + machine.rng.below(self.config.told_late_us_max);
        let name = host + 1;
        self.trace.note(self.now_us, format_args!("log of {name} {batches} batches, {number:?}"));
        self.coverage.batches_of_many += u64::from(batches > 1);
        if let Some(number) = number {
            self.at_host(host, late_us, HostEvent::Told(number));
        }
        if self.is_killed_behind_a_cut(host) {
            return Ok(());
        }
        self.died_at_an_operation(host)
    }

    fn state(&mut self, host: usize) -> Result<(), Violation> {
        let machine = &mut self.hosts[host];
        let Some(server) = &mut machine.server else { return Ok(()) };
        let outcome = match server.state_step() {
            Err(stop) => return self.stopped(host, stop),
            Ok(outcome) => outcome,
        };
        let mut in_us = 1 + machine.rng.below(self.config.state_us_max);
        if outcome.is_none() && self.config.servers > 1 {
            // Nothing happens by looking more often.
            in_us += 3000;
        }
        if let Some(outcome) = outcome {
            self.trace.note(self.now_us, format_args!("state of {} {outcome:?}", host + 1));
            self.drive_soon(host);
            if let Outcome::CutLog(index) = outcome {
                self.coverage.log_cuts += 1;
                self.hosts[host].copies.clear();
                self.images_reach_back_to(host, index)?;
            }
            self.coverage.sled_refilled += u64::from(outcome == Outcome::RecordsLost);
        }
        self.at_host(host, in_us, HostEvent::State);
        self.died_at_an_operation(host)
    }

    /// The disk went off in the middle of what was just done, and only the disk knows yet.
    pub(super) fn died_at_an_operation(&mut self, host: usize) -> Result<(), Violation> {
        if self.hosts[host].fs.disk().down().is_some() {
            return self.stopped(host, Stop::Died("the machine went off".to_owned()));
        }
        Ok(())
    }

    fn arrive_at_server(&mut self, host: usize, conn: ConnId, bytes: &[u8]) {
        let Some(server) = &mut self.hosts[host].server else { return };
        if !server.receive(conn, bytes) {
            self.trace.note(self.now_us, format_args!("conn {conn} sent what is no frame"));
            self.coverage.malformed += 1;
            self.close_towards_client(conn);
        }
    }
}
