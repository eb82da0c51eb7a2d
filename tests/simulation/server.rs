//! One server: the replica and the disk code as they are, and the part of the shell around them.
//!
//! *Owns* what the driver, the log thread, the state thread, the links to other servers and a
//! connection's reader do in the real server, in steps that the world calls when it likes.
//! *Invariants*: as there: every batch begins with a tick; appends are made durable in order, many at
//! once; a link takes messages only while the driver knows of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::replica::peer::server_of;
use lockkeeper_core::replica::{
    Append, AuditLine, Changes, ClientRequest, ConnId, Drained, Fetch, Input, Machine, Mark,
    Member, Membership, Outgoing, PeerMessage, Ready, Replica, SendImage, Setup, Urgency,
};
use lockkeeper_core::tree;
use lockkeeper_storage::{
    self as storage, Checkpointer, Identity, Images, Lock, Log, LogOptions, OpenError, Outcome,
    Report,
};
use raft::eraftpb::MessageType;

use super::bounds::OUTPUTS_MAX;
use super::checker::Checker;
use super::config::Config;
use super::conn::Violation;
use super::disk::SimFs;
use super::hangs::Probation;
use super::host::Host;
use super::rollback::Evidence;
use super::trace::{Shown, Trace};
use super::wires::Wires;

/// Directory of the data.
pub const DATA: &str = "/data";
/// Directory of the log.
pub const LOG: &str = "/data/log";
const CLUSTER: u128 = 0x51a7_ed00_0000_0000_0000_0000_0000_0001;

/// Why a server ends.
#[derive(Debug)]
pub enum Stop {
    /// A rule was broken.
    Violation(Violation),
    /// The disk failed it, as far as it knows.
    Died(String),
    /// It must not take part, and says why.
    Refused(String),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
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
    /// For other servers, on these links.
    pub peers: Vec<(LinkId, Vec<u8>)>,
    /// Images to be sent.
    pub images: Vec<SendImage>,
    /// Those whose votes were counted.
    pub voters: Vec<u64>,
    /// Links to be cut, because of what came on them.
    pub cut: Vec<LinkId>,
    /// The log has work.
    pub log: bool,
}

/// One connection between two servers, as long as it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId {
    /// Who connected, and sends.
    pub from: usize,
    pub to: usize,
    pub number: u64,
    /// Who they are for Raft.
    pub from_id: u64,
    pub to_id: u64,
}

impl LinkId {
    /// Who is at the other end.
    fn other(&self, own: usize) -> u64 {
        if self.from == own { self.to_id } else { self.from_id }
    }
}

/// What waits for the driver.
#[derive(Debug)]
pub enum Arrival {
    Input(Input),
    /// A link was made, or broke.
    Up(LinkId),
    Down(LinkId),
    Peer(LinkId, PeerMessage),
}

/// What waits for the state thread.
#[derive(Debug)]
enum Task {
    Changes(Changes),
    /// An image that the append of this number installs.
    Installed(Mark, u64),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub identity: Identity,
    pub replica: Replica,
    pub log: Log,
    pub images: Images,
    checkpointer: Checkpointer,
    _lock: Lock,
    arrivals: VecDeque<Arrival>,
    /// Links that the driver knows of, by raft id: to others and from others.
    outgoing: BTreeMap<u64, LinkId>,
    incoming: BTreeMap<u64, LinkId>,
    /// As the replica named them last.
    pub members: Vec<Member>,
    log_queue: Vec<Append>,
    fetches: Vec<Fetch>,
    told: Option<u64>,
    /// Number of the last append that is durable.
    durable: u64,
    /// Index of the last image behind which the log began anew.
    installed: u64,
    cut: Option<u64>,
    tasks: VecDeque<Task>,
    changes_queue_max: usize,
    /// The state thread has looked at what it has.
    has_begun: bool,
    /// Index of the newest image that the replica was told of.
    told_of_image: Option<u64>,
    wires: Wires,
    probation: Probation,
    /// What others were seen to promise this process.
    pub evidence: Evidence,
}

/// A server that has recovered what its disk has.
#[derive(Debug)]
pub struct Opened {
    pub server: Server,
    pub report: Report,
    /// The transactions that it applied on the way.
    pub audit: Vec<AuditLine>,
}

/// The lines of the servers in everybody's configuration.
pub fn ensemble(config: &Config) -> Vec<ServerSpec> {
    let spec = |index: usize| {
        let id = index as u8 + 1;
        let role = if config.observers.contains(&index) { "observer" } else { "participant" };
        ServerSpec::parse(id, &format!("10.1.0.{id}:1:2:{role};2181")).expect("it is well-formed")
    };
    (0..config.servers).map(spec).collect()
}

/// Who takes part before the first entry.
pub fn initial_membership(config: &Config) -> Membership {
    let is_learner = |id: &u64| config.observers.contains(&(*id as usize - 1));
    let (learners, voters) = (1..=config.servers as u64).partition(is_learner);
    Membership { voters, learners }
}

/// What a server that is started the first time is.
pub fn new_identity(id: u8, config: &Config) -> Identity {
    let membership = initial_membership(config);
    Identity { membership, ..Identity::standalone(CLUSTER, id) }
}

/// Where a machine keeps a server's data.
pub fn place(host: &Host) -> storage::Place {
    storage::Place {
        fs: Arc::new(host.fs.clone()),
        state: Box::new(host.state.clone()),
        data: DATA.into(),
        log: DATA.into(),
    }
}

fn storage_options(new: Identity, config: &Config) -> storage::Options {
    storage::Options {
        new,
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
    let copy = Arc::new(fs.durable_copy(Path::new(LOG)));
    let opened = Log::open(copy, Path::new(LOG), options).map_err(|error| error.to_string())?;
    Ok(opened.1.last.index)
}

impl Server {
    /// Recovers what the disk has, and begins to run. `new` is what an empty disk becomes, `seed` is
    /// the server's own, its program knows versions of the ensemble up to `known_version`, and `rules` are in its
    /// file. Also what it has applied on the way.
    pub fn open(
        host: &Host,
        config: &Config,
        new: Identity,
        (seed, known_version, rules): ([u8; 32], u8, tree::Rules),
    ) -> Result<Opened, OpenError> {
        let id = host.id;
        let options = tree::Options {
            rules,
            hash_seed: u64::from_le_bytes(*seed.first_chunk().expect("32 bytes")),
            ..tree::Options::default()
        };
        let mut machine = Machine::fresh(options).knowing(known_version);
        machine.audit_replay(i64::MIN);
        let opened = storage::open(place(host), &storage_options(new, config), &mut machine)?;
        let audit = machine.take_replayed_audit();
        let setup = Setup {
            raft_id: opened.identity.raft_id,
            server_id: id,
            seed,
            session_timeout_ms_min: config.timeouts_ms.0,
            session_timeout_ms_max: config.timeouts_ms.1,
            container_check_interval_ms: config.container_interval_ms,
            container_max_per_minute: config.reaped_per_minute,
            container_never_used_ms: config.container_never_used_ms,
            audit: true,
            durable: true,
            ensemble: (config.servers > 1).then(|| ensemble(config)),
            linearizable_reads: config.linearizable_reads,
            expiry_grace_ms: config.expiry_grace_ms,
            disk_stall_ms: config.disk_stall_ms,
            leaving_at_once: config.leaving_at_once,
            ..Setup::default()
        };
        let server = Self {
            identity: opened.identity,
            replica: Replica::new(setup, machine, opened.restored).expect("it fits together"),
            log: opened.log,
            images: opened.images,
            checkpointer: opened.checkpointer,
            _lock: opened.lock,
            arrivals: VecDeque::new(),
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            members: Vec::new(),
            log_queue: Vec::new(),
            fetches: Vec::new(),
            told: None,
            durable: 0,
            installed: 0,
            cut: None,
            tasks: VecDeque::new(),
            changes_queue_max: config.changes_queue_max,
            has_begun: false,
            told_of_image: None,
            wires: Wires::default(),
            probation: Probation::default(),
            evidence: Evidence::default(),
        };
        Ok(Opened { server, report: opened.report, audit })
    }

    /// A client connects.
    pub fn accept(&mut self, conn: ConnId, remote: Ipv4Addr) {
        self.wires.accept(conn, remote);
    }

    /// Bytes of a client arrive. False: they are none that a client may send, the connection ends.
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) -> bool {
        let (inputs, goes_on) = self.wires.receive(conn, bytes);
        self.arrivals.extend(inputs.into_iter().map(Arrival::Input));
        goes_on
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.arrivals.extend(self.wires.disconnect(conn).map(Arrival::Input));
    }

    /// Something for the driver's next turn.
    pub fn arrive(&mut self, arrival: Arrival) {
        self.arrivals.push_back(arrival);
    }

    fn input(&mut self, input: Input) {
        self.arrive(Arrival::Input(input));
    }

    /// One turn of the driver.
    pub fn drive(
        &mut self,
        turn: &Turn<'_>,
        checker: &mut Checker,
        trace: &mut Trace,
        fs: &SimFs,
    ) -> Result<Todo, Stop> {
        let Turn { index, now_us, wall_ms, config, .. } = *turn;
        checker.observer.now_us = turn.world_us;
        self.replica.step(Input::Tick { now_us, wall_ms });
        for _ in 0..config.batch_max {
            let Some(arrival) = self.arrivals.pop_front() else { break };
            self.take(turn, arrival, checker, trace)?;
        }
        if let Some(number) = self.told.take() {
            self.replica.persisted(number);
        }
        let mut todo = Todo::default();
        let mut outputs = 0;
        while let Some(ready) = self.replica.ready().map_err(Stop::Violation)? {
            self.act(turn, ready, &mut todo, checker, trace, fs)?;
            // The next turn goes on with an entry of which a part is applied.
            if self.replica.is_underway() {
                checker.coverage.entries_in_portions += 1;
                break;
            }
            outputs += 1;
            if outputs > OUTPUTS_MAX {
                return Err(Stop::Violation(format!("more than {OUTPUTS_MAX} outputs in a turn")));
            }
        }
        if let Some(refusal) = self.replica.refused() {
            return Err(Stop::Refused(refusal.words.clone()));
        }
        let status = self.replica.status();
        let has_yielded = self.probation.look(&status, config.disk_stall_ms, now_us);
        checker.coverage.disk_handovers += u64::from(has_yielded);
        if config.old_copies_every_us.is_some() {
            todo.voters = self.evidence.settle(index as u8 + 1, &status);
        }
        if status.leading_ms.is_some() {
            checker.leads(index, status.term, now_us)?;
        } else {
            checker.follows(index);
        }
        if !self.replica.is_underway() {
            checker.settled(index, now_us)?;
            checker.watches(index, status.watch_count)?;
        }
        for outgoing in &todo.client {
            let inputs = self.wires.answered(outgoing.conn, outgoing.close);
            self.arrivals.extend(inputs.into_iter().map(Arrival::Input));
        }
        if self.tasks.len() < self.changes_queue_max
            && let Drained::Changes(changes) = self.replica.drain_changes(config.drain_records_max)
        {
            self.tasks.push_back(Task::Changes(changes));
        }
        todo.log = !self.log_queue.is_empty() || self.cut.is_some() || !self.fetches.is_empty();
        Ok(todo)
    }

    fn take(
        &mut self,
        turn: &Turn<'_>,
        arrival: Arrival,
        checker: &mut Checker,
        trace: &mut Trace,
    ) -> Result<(), Stop> {
        let Turn { index, now_us, world_us, .. } = *turn;
        match arrival {
            Arrival::Input(input) => {
                if let Input::Requests { conn, requests } = &input {
                    for ClientRequest { xid, op, decoded, .. } in requests {
                        let decoded = decoded.as_ref().ok();
                        trace.note(
                            world_us,
                            format_args!("  in conn {conn} {xid} {op} {decoded:?}"),
                        );
                    }
                }
                tell(checker, index, &input, now_us);
                self.replica.step(input);
            }
            Arrival::Up(link) => {
                let peer = link.other(index);
                let known = self.links(&link, index).insert(peer, link);
                trace.note(world_us, format_args!("  {} up: {link:?}", index + 1));
                if known.is_some() {
                    // It takes the place of an older one.
                    self.replica.step(Input::PeerDown { peer });
                }
                self.replica.step(Input::PeerUp { peer });
            }
            Arrival::Down(link) => {
                let peer = link.other(index);
                let links = self.links(&link, index);
                if links.get(&peer) != Some(&link) {
                    return Ok(());
                }
                links.remove(&peer);
                trace.note(world_us, format_args!("  {} down: {link:?}", index + 1));
                self.replica.step(Input::PeerDown { peer });
            }
            Arrival::Peer(link, message) => {
                if self.incoming.get(&link.from_id) != Some(&link) {
                    return Ok(());
                }
                let name = index + 1;
                trace.note(
                    world_us,
                    format_args!("  {name} from {} {}", link.from + 1, Shown(&message)),
                );
                let rates = &checker.rules.clock_rates;
                checker.observer.arrived(index, link.from, &message, rates);
                if let PeerMessage::Touch { sessions, .. } = &message {
                    checker.touched(index, link.from, sessions, now_us);
                }
                if let PeerMessage::Ping { term, steady_ms, .. } = &message {
                    let status = self.replica.status();
                    let is_from_leader = status.leader == Some(server_of(link.from_id));
                    if status.term == *term && is_from_leader {
                        checker.clocks.told(index, *steady_ms);
                    }
                }
                if let PeerMessage::Raft(message) = &message
                    && message.get_msg_type() == MessageType::MsgTimeoutNow
                {
                    self.probation.asked(message.term);
                }
                if turn.config.old_copies_every_us.is_some() {
                    self.evidence.hears(link.from_id, &message);
                }
                self.replica.step(Input::Peer { from: link.from_id, message });
            }
        }
        Ok(())
    }

    /// The links in this one's direction.
    fn links(&mut self, link: &LinkId, index: usize) -> &mut BTreeMap<u64, LinkId> {
        if link.from == index { &mut self.outgoing } else { &mut self.incoming }
    }

    fn act(
        &mut self,
        turn: &Turn<'_>,
        ready: Ready,
        todo: &mut Todo,
        checker: &mut Checker,
        trace: &mut Trace,
        fs: &SimFs,
    ) -> Result<(), Stop> {
        let Turn { index, now_us, world_us, config, .. } = *turn;
        if let Some(append) = ready.append {
            checker.appended(index, &append, now_us)?;
            if let Some(mark) = &append.install {
                trace.note(world_us, format_args!("  {} installs {mark:?}", index + 1));
                self.images.hold_received(mark.index);
                self.tasks.push_back(Task::Installed(mark.clone(), append.number));
            }
            self.log_queue.push(append);
        }
        for line in &ready.audit {
            let AuditLine { zxid, session, cxid, op, path, result, .. } = line;
            let path = path.as_deref().unwrap_or("-");
            let name = index + 1;
            trace.note(
                world_us,
                format_args!("  txn {name} {zxid:#x} {session:#x} {cxid} {op} {path} {result}"),
            );
        }
        if let Some(line) = ready.audit.last()
            && config.servers == 1
        {
            self.is_durable(line.index, fs)?;
        }
        let mut cut = BTreeSet::new();
        for (to, message) in ready.send {
            if let PeerMessage::Raft(message) = &message {
                checker.agreement.sent(index, message)?;
                self.probation.judge(message, &self.replica, now_us)?;
                self.evidence.says(message);
            }
            trace.note(world_us, format_args!("  {} to {to:#x} {}", index + 1, Shown(&message)));
            if let Some(link) = self.outgoing.get(&to) {
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                todo.peers.push((*link, bytes));
            } else if let PeerMessage::Forward { .. } = message {
                cut.insert(to);
            }
        }
        for peer in cut {
            self.replica.step(Input::PeerDown { peer });
        }
        for peer in ready.cut {
            if let Some(link) = self.incoming.remove(&peer) {
                trace.note(world_us, format_args!("  {} cuts {link:?}", index + 1));
                todo.cut.push(link);
                self.replica.step(Input::PeerDown { peer });
            }
        }
        if let Some(members) = ready.members {
            self.members = members;
        }
        self.fetches.extend(ready.fetch);
        todo.images.extend(ready.images);
        checker.ready(index, &ready.audit, &ready.client, now_us)?;
        todo.client.extend(ready.client);
        Ok(())
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

    /// Index and term of everything in the log, and of the entry that it begins after.
    pub fn log_entries(&self) -> Result<BTreeMap<u64, u64>, Violation> {
        let (base, last) = (self.log.base(), self.log.last().index);
        let mut known = BTreeMap::new();
        if base.index > 0 {
            known.insert(base.index, base.term);
        }
        if base.index < last {
            let entries = self.log.read(base.index + 1, last, usize::MAX);
            let entries = entries.map_err(|error| error.to_string())?;
            known.extend(entries.into_iter().map(|entry| (entry.index, entry.term)));
        }
        Ok(known)
    }

    /// Whether inputs wait for a turn.
    pub fn has_inputs(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Whether nobody waits for anything that the log thread has to do: it may rest before it does.
    pub fn log_may_rest(&self) -> bool {
        let no_urgency = |append: &Append| append.urgency != Urgency::High;
        self.log_queue.iter().all(no_urgency)
    }

    /// The log thread: everything that waits becomes durable. The number to tell the driver, and
    /// how many batches it was.
    pub fn log_step(
        &mut self,
        index: usize,
        checker: &mut Checker,
    ) -> Result<(Option<u64>, usize), Stop> {
        let queue = std::mem::take(&mut self.log_queue);
        let number = queue.last().map(|append| append.number);
        let base = self.log.base();
        if let Some(number) = number {
            storage::append(&mut self.log, &self.images, &queue)
                .map_err(|error| Stop::Died(error.to_string()))?;
            checker.agreement.synced(index, &queue);
            self.durable = number;
            let installs = queue.iter().filter_map(|append| append.install.as_ref());
            self.installed = installs.map(|mark| mark.index).next_back().unwrap_or(self.installed);
        }
        for fetch in std::mem::take(&mut self.fetches) {
            let to = fetch.to.min(self.log.last().index);
            let entries = match fetch.from <= to {
                // What the log does not hold any more is an answer, too.
                true => self.log.read(fetch.from, to, fetch.bytes_max).unwrap_or_default(),
                false => Vec::new(),
            };
            self.input(Input::Fetched { fetch, entries });
        }
        if let Some(covered) = self.cut.take() {
            // The rest comes behind other appends, as it does in the server.
            if self.log.cut(covered).map_err(|error| Stop::Died(error.to_string()))? {
                self.cut = Some(covered);
            }
            let base = self.log.base().index;
            // An image may have been installed since the cut was asked for.
            if base > covered.max(self.installed) {
                let what = format!("cut for an image at {covered}, the log begins after {base}");
                return Err(Stop::Violation(what));
            }
        }
        let now = self.log.base();
        if now != base {
            self.input(Input::LogCut { before: (now.index, now.term) });
        }
        self.log.prepare();
        Ok((number, queue.len()))
    }

    /// The driver is told of durability with its next turn.
    pub fn tell(&mut self, number: u64) {
        // The number only grows, in whatever order its readers look.
        self.told = self.told.max(Some(number));
    }

    /// The state thread takes one step. What it asks for.
    pub fn state_step(&mut self) -> Result<Option<Outcome>, Stop> {
        let outcome = if !std::mem::replace(&mut self.has_begun, true) {
            self.tell_of_image();
            self.checkpointer.begin()
        } else {
            match self.tasks.front() {
                None => return Ok(None),
                // It waits for the log thread.
                Some(Task::Installed(_, number)) if *number > self.durable => return Ok(None),
                Some(Task::Installed(..) | Task::Changes(_)) => {}
            }
            match self.tasks.pop_front() {
                Some(Task::Changes(changes)) => self.checkpointer.apply(changes),
                Some(Task::Installed(mark, _)) => {
                    self.checkpointer.installed(&mark);
                    Ok(Outcome::Continue)
                }
                None => return Ok(None),
            }
        };
        let outcome = outcome.map_err(|error| Stop::Violation(error.to_string()))?;
        // Before the log is cut: whoever needs what is gone then is sent this image.
        self.tell_of_image();
        match outcome {
            Outcome::Continue => {}
            Outcome::CutLog(index) => self.cut = Some(index),
            Outcome::RecordsLost => self.input(Input::RecordsLost),
        }
        Ok(Some(outcome))
    }

    fn tell_of_image(&mut self) {
        let Some(mark) = self.checkpointer.newest().cloned() else { return };
        if self.told_of_image != Some(mark.index) {
            self.told_of_image = Some(mark.index);
            self.input(Input::ImageWritten { mark });
        }
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
        | Input::Introduced { .. }
        | Input::PeerUp { .. }
        | Input::PeerDown { .. }
        | Input::Fetched { .. }
        | Input::LogCut { .. }
        | Input::ImageWritten { .. }
        | Input::ImageSent { .. }
        | Input::ImageReceived { .. }
        | Input::SaslUsers { .. }
        | Input::SaslJudged { .. }
        | Input::FinishUpgrade { .. }
        | Input::Migrate { .. }
        | Input::ZooKeeper(_)
        | Input::ZooKeeperClosed { .. }
        | Input::Resign => {}
    }
}
