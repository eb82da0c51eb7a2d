//! One server: the replica and the disk code as they are, and the part of the shell around them.
//!
//! *Owns* what the driver, the log thread, the state thread and a connection's reader do in the real
//! server, in steps that the world calls when it likes. *Invariants*: as there: every batch begins
//! with a tick; appends are made durable in order, many at once; behind a ConnectRequest nothing is
//! read until the session is answered.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use lockkeeper::proto::{ConnectRequest, frame};
use lockkeeper::replica::{
    Append, AuditLine, Changes, ClientRequest, ConnId, Input, Machine, Outgoing, Replica, Restored,
    Setup,
};
use lockkeeper::storage::{self, Checkpointer, Lock, Log, LogOptions, OpenError, Outcome, Report};
use lockkeeper::tree;

use super::checker::Checker;
use super::config::Config;
use super::conn::Violation;
use super::disk::SimFs;
use super::host::Host;
use super::trace::Trace;

/// Directory of the data.
pub const DATA: &str = "/data";
/// Directory of the log.
pub const LOG: &str = "/data/log";
/// Longest frame that the simulated server takes.
const FRAME_BYTES_MAX: usize = 1 << 16;
const CLUSTER: u128 = 0x51a7_ed00_0000_0000_0000_0000_0000_0001;

/// Why a server ends.
#[derive(Debug)]
pub enum Stop {
    /// A rule was broken.
    Violation(Violation),
    /// The disk failed it, as far as it knows.
    Died(String),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// One connection's reading half.
#[derive(Debug)]
struct Wire {
    buffer: BytesMut,
    remote: Ipv4Addr,
    is_connecting: bool,
    is_attached: bool,
}

/// A turn of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Which server's.
    pub index: usize,
    /// Its monotonic clock.
    pub now_us: u64,
    /// Its wall clock.
    pub wall_ms: i64,
    /// The time that only the world knows.
    pub world_us: u64,
    pub config: &'a Config,
}

/// What a turn leaves to be done.
#[derive(Debug, Default)]
pub struct Todo {
    pub client: Vec<Outgoing>,
    /// The log has work.
    pub log: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub replica: Replica,
    pub log: Log,
    checkpointer: Checkpointer,
    _lock: Lock,
    inputs: VecDeque<Input>,
    log_queue: Vec<Append>,
    told: Option<u64>,
    cut: Option<u64>,
    changes: VecDeque<Changes>,
    changes_queue_max: usize,
    /// The state thread has looked at what it has.
    has_begun: bool,
    wires: BTreeMap<ConnId, Wire>,
}

fn storage_options(id: u8, config: &Config) -> storage::Options {
    storage::Options {
        new: storage::Identity::standalone(CLUSTER, id),
        ensemble: config.servers > 1,
        segment_bytes: config.segment_bytes,
        image_every_bytes: config.image_every_bytes,
    }
}

/// Index of the last entry in a log that consists of what is durable now.
pub fn durable_last_index(fs: &SimFs, config: &Config) -> Result<u64, String> {
    let options = LogOptions {
        cluster_id: CLUSTER,
        node_id: 1,
        segment_bytes: config.segment_bytes,
        ensemble: false,
    };
    let copy = Arc::new(fs.durable_copy());
    let opened = Log::open(copy, Path::new(LOG), options).map_err(|error| error.to_string())?;
    Ok(opened.1.last.index)
}

impl Server {
    /// Recovers what the disk has, and begins to run. `seed` is the server's own.
    pub fn open(host: &Host, config: &Config, seed: [u8; 32]) -> Result<(Self, Report), OpenError> {
        let Host { id, fs, state, .. } = host;
        let options = tree::Options {
            extended_types: config.extended_types,
            hash_seed: u64::from_le_bytes(*seed.first_chunk().expect("32 bytes")),
            ..tree::Options::default()
        };
        let mut machine = Machine::fresh(options);
        let place = storage::Place {
            fs: Arc::new(fs.clone()),
            state: Box::new(state.clone()),
            data: DATA.into(),
            log: DATA.into(),
        };
        let opened = storage::open(place, &storage_options(*id, config), &mut machine)?;
        let restored = Restored {
            hard_state: opened.hard_state,
            membership: opened.membership,
            image: opened.image,
            log_before: opened.log_before,
            applied: opened.applied,
            applied_term: opened.applied_term,
            tail: opened.tail,
        };
        let setup = Setup {
            raft_id: (*id).into(),
            server_id: *id,
            seed,
            session_timeout_ms_min: config.timeouts_ms.0,
            session_timeout_ms_max: config.timeouts_ms.1,
            container_check_interval_ms: config.container_interval_ms,
            container_max_per_minute: 60_000,
            container_never_used_ms: config.container_never_used_ms,
            audit: true,
            durable: true,
            ..Setup::default()
        };
        let server = Self {
            replica: Replica::new(setup, machine, restored).expect("it fits together"),
            log: opened.log,
            checkpointer: opened.checkpointer,
            _lock: opened.lock,
            inputs: VecDeque::new(),
            log_queue: Vec::new(),
            told: None,
            cut: None,
            changes: VecDeque::new(),
            changes_queue_max: config.changes_queue_max,
            has_begun: false,
            wires: BTreeMap::new(),
        };
        Ok((server, opened.report))
    }

    /// A client connects.
    pub fn accept(&mut self, conn: ConnId, remote: Ipv4Addr) {
        let wire =
            Wire { buffer: BytesMut::new(), remote, is_connecting: false, is_attached: false };
        self.wires.insert(conn, wire);
    }

    /// Bytes of a client arrive. False: they are none that a client may send, the connection ends.
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) -> bool {
        let Some(wire) = self.wires.get_mut(&conn) else { return true };
        wire.buffer.extend_from_slice(bytes);
        self.decode(conn)
    }

    fn decode(&mut self, conn: ConnId) -> bool {
        let Some(wire) = self.wires.get_mut(&conn) else { return true };
        if wire.is_connecting && !wire.is_attached {
            return true;
        }
        if !wire.is_connecting {
            let payload = match frame::next(&mut wire.buffer, FRAME_BYTES_MAX) {
                Ok(Some(payload)) => payload,
                Ok(None) => return true,
                Err(_) => return self.disconnect(conn),
            };
            let Ok(request) = ConnectRequest::decode(payload) else { return self.disconnect(conn) };
            wire.is_connecting = true;
            let remote = IpAddr::V4(wire.remote);
            self.inputs.push_back(Input::Connected { conn, remote, remote_port: 1, request });
            return true;
        }
        let mut requests = Vec::new();
        let goes_on = loop {
            match frame::next(&mut wire.buffer, FRAME_BYTES_MAX) {
                Ok(None) => break true,
                Ok(Some(payload)) => match ClientRequest::decode(payload) {
                    Some(request) => requests.push(request),
                    None => break false,
                },
                Err(_) => break false,
            }
        };
        if !requests.is_empty() {
            self.inputs.push_back(Input::Requests { conn, requests });
        }
        goes_on || self.disconnect(conn)
    }

    /// A connection is gone. Always false, for [`Server::decode`].
    pub fn disconnect(&mut self, conn: ConnId) -> bool {
        if self.wires.remove(&conn).is_some_and(|wire| wire.is_connecting) {
            self.inputs.push_back(Input::Closed { conn });
        }
        false
    }

    /// One turn of the driver.
    pub fn drive(
        &mut self,
        turn: &Turn<'_>,
        checker: &mut Checker,
        trace: &mut Trace,
        fs: &SimFs,
    ) -> Result<Todo, Stop> {
        let Turn { index, now_us, wall_ms, world_us, config } = *turn;
        self.replica.step(Input::Tick { now_us, wall_ms });
        for _ in 0..config.batch_max {
            let Some(input) = self.inputs.pop_front() else { break };
            if let Input::Requests { conn, requests } = &input {
                for ClientRequest { xid, op, decoded, .. } in requests {
                    let decoded = decoded.as_ref().ok();
                    trace.note(world_us, format_args!("  in conn {conn} {xid} {op} {decoded:?}"));
                }
            }
            tell(checker, index, &input, now_us);
            self.replica.step(input);
        }
        if let Some(number) = self.told.take() {
            self.replica.persisted(number);
        }
        let mut todo = Todo::default();
        while let Some(ready) = self.replica.ready().map_err(Stop::Violation)? {
            if let Some(append) = ready.append {
                checker.appended(index, &append, now_us)?;
                self.log_queue.push(append);
            }
            for line in &ready.audit {
                let AuditLine { zxid, session, cxid, op, path, result, .. } = line;
                let path = path.as_deref().unwrap_or("-");
                trace.note(
                    world_us,
                    format_args!("  txn {zxid:#x} {session:#x} {cxid} {op} {path} {result}"),
                );
            }
            if let Some(line) = ready.audit.last() {
                self.is_durable(line.index, fs)?;
            }
            checker.ready(index, &ready.audit, &ready.client, now_us)?;
            todo.client.extend(ready.client);
        }
        let status = self.replica.status();
        if status.leading_ms.is_some() {
            checker.agreement.leads(index, status.term)?;
            checker.leads(index, status.term, now_us)?;
        } else {
            checker.follows(index);
        }
        checker.settled(index, now_us)?;
        for outgoing in &todo.client {
            self.answered(outgoing.conn, outgoing.close);
        }
        if self.changes.len() < self.changes_queue_max {
            let changes = self.replica.drain_changes(config.drain_records_max);
            self.changes.extend(changes);
        }
        todo.log = !self.log_queue.is_empty() || self.cut.is_some();
        Ok(todo)
    }

    /// Whatever is applied, and therefore shown, is on the disk at this instant.
    fn is_durable(&self, index: u64, fs: &SimFs) -> Result<(), Stop> {
        let last = self.log.last().index;
        if index > last {
            let what = format!("entry {index} is applied, but the log ends with {last}");
            return Err(Stop::Violation(what));
        }
        if let Some(what) = fs.disk().unsynced(Path::new(LOG), ".log") {
            let what = format!("entry {index} is applied, but this is not synced: {what}");
            return Err(Stop::Violation(what));
        }
        Ok(())
    }

    /// The session was answered, or the end announced: reading goes on, or is over.
    fn answered(&mut self, conn: ConnId, close: bool) {
        if close {
            self.wires.remove(&conn);
            return;
        }
        if let Some(wire) = self.wires.get_mut(&conn)
            && !wire.is_attached
        {
            wire.is_attached = true;
            self.decode(conn);
        }
    }

    /// Index and term of everything in the log.
    pub fn log_entries(&self) -> Result<BTreeMap<u64, u64>, Violation> {
        let (first, last) = (self.log.base().index + 1, self.log.last().index);
        if first > last {
            return Ok(BTreeMap::new());
        }
        let entries = self.log.read(first, last, usize::MAX).map_err(|error| error.to_string())?;
        Ok(entries.into_iter().map(|entry| (entry.index, entry.term)).collect())
    }

    /// Whether inputs wait for a turn.
    pub fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// The log thread: everything that waits becomes durable. The number to tell the driver, and
    /// how many batches it was.
    pub fn log_step(
        &mut self,
        index: usize,
        checker: &mut Checker,
    ) -> Result<(Option<u64>, usize), Stop> {
        let queue = std::mem::take(&mut self.log_queue);
        let died = |error: storage::LogError| Stop::Died(error.to_string());
        let number = queue.last().map(|append| append.number);
        if number.is_some() {
            self.log.append(&queue).map_err(died)?;
            checker.agreement.synced(index, &queue);
        }
        if let Some(covered) = self.cut.take() {
            self.log.cut(covered).map_err(died)?;
            let base = self.log.base().index;
            if base > covered {
                let what = format!("cut for an image at {covered}, the log begins after {base}");
                return Err(Stop::Violation(what));
            }
        }
        self.log.prepare();
        Ok((number, queue.len()))
    }

    /// The driver is told of durability with its next turn.
    pub fn tell(&mut self, number: u64) {
        self.told = Some(number);
    }

    /// The state thread takes one step. What it asks for.
    pub fn state_step(&mut self) -> Result<Option<Outcome>, Stop> {
        let outcome = if !std::mem::replace(&mut self.has_begun, true) {
            self.checkpointer.begin()
        } else if let Some(changes) = self.changes.pop_front() {
            self.checkpointer.apply(changes)
        } else {
            return Ok(None);
        };
        let outcome = outcome.map_err(|error| Stop::Violation(error.to_string()))?;
        match outcome {
            Outcome::Continue => {}
            Outcome::CutLog(index) => self.cut = Some(index),
            Outcome::RecordsLost => self.inputs.push_back(Input::RecordsLost),
        }
        Ok(Some(outcome))
    }

    /// A clean stop: what waits becomes durable.
    pub fn stop(mut self, index: usize, checker: &mut Checker) -> Result<(), Stop> {
        self.log_step(index, checker)?;
        self.log.close().map_err(|error| Stop::Died(error.to_string()))
    }
}

/// The checker learns what the replica is about to be given.
fn tell(checker: &mut Checker, server: usize, input: &Input, now_us: u64) {
    match input {
        Input::Connected { conn, remote, request, .. } => {
            checker.connected(server, *conn, remote.to_string(), request.clone());
        }
        Input::Requests { conn, requests } => checker.requests(server, *conn, requests, now_us),
        Input::Closed { conn } => checker.closed(server, *conn),
        Input::Room { .. }
        | Input::Tick { .. }
        | Input::Inspect { .. }
        | Input::RecordsLost
        | Input::Peer { .. }
        | Input::PeerUp { .. }
        | Input::PeerDown { .. }
        | Input::Fetched { .. }
        | Input::LogCut { .. }
        | Input::ImageWritten { .. }
        | Input::ImageSent { .. }
        | Input::ImageReceived { .. }
        | Input::Resign => {}
    }
}
