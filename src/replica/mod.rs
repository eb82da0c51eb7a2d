//! ONE SERVER, deterministic: given time, bytes and a seed, says what is to be done.
//!
//! *Owns* [`Replica`], the seam between the core and the shell: [`Replica::step`] takes an
//! [`Input`], [`Replica::ready`] says what is to be done, [`Replica::persisted`] reports what is
//! durable. *Invariants*: the same inputs and the same seed give the same outputs; `step` never
//! fails and never waits; a reply that says a write happened leaves only when the write is
//! committed. *Never*: tokio, sled, sockets, files, clocks, threads, or an order that depends on a
//! hash.
//!
//! Where things are: `consensus.rs` (Raft), `machine.rs` (what all servers agree on), `txn.rs` (what
//! a log entry holds), `clients.rs` and `connection.rs` (order of replies), `reads.rs`, `watch.rs`,
//! `session.rs` and `expiry.rs`, `log.rs` (the log's tail in memory).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod clients;
mod connection;
mod consensus;
pub mod durable;
mod expiry;
pub mod input;
pub mod inspect;
mod log;
pub mod machine;
mod observe;
pub mod peer;
mod reads;
pub mod ready;
mod session;
#[cfg(test)]
mod tests;
pub mod txn;
mod watch;

use std::collections::VecDeque;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

pub use durable::{
    Append, Changes, Entry, EntryKind, HardState, Mark, Membership, Record, Restore,
};
pub use input::{ClientRequest, ConnId, Input};
pub use inspect::{Inspect, Report, Status};
pub use machine::Machine;
pub use peer::{Member, PeerMessage};
pub use ready::{AuditLine, Fetch, Outgoing, Ready, SendImage};

use clients::{Clients, Rules, Wanted};
use connection::{Connection, Phase};
use consensus::Consensus;
use expiry::Expiry;
use log::{Tail, from_raft};
use machine::{Applied, SessionChange, apply_entry};
use txn::{BatchBuilder, Origin, Txn, TxnOp};

use crate::config::ServerSpec;
use crate::proto::Text;
use crate::proto::connect::{ConnectRequest, ConnectResponse, PASSWORD_BYTES};

/// Longest time in milliseconds that may pass between two ticks.
pub const TICK_MS: u64 = 50;
/// A gap between two ticks counts as at most this many, so that a process that was stopped does
/// not hold an election with itself.
const TICKS_AT_ONCE_MAX: u64 = 4;

/// Everything that is fixed for the life of a replica.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Raft id; not 0.
    pub raft_id: u64,
    /// myid: the top byte of the sessions opened here.
    pub server_id: u8,
    /// From the operating system: session passwords, election timeouts, hash seeds.
    pub seed: [u8; 32],
    /// Shortest session timeout granted.
    pub session_timeout_ms_min: i32,
    /// Longest session timeout granted.
    pub session_timeout_ms_max: i32,
    /// Time between two looks for containers and TTL znodes to remove.
    pub container_check_interval_ms: u64,
    /// How many of them are removed in a minute at most.
    pub container_max_per_minute: u32,
    /// Age at which a container that never had a child is removed; 0 is never.
    pub container_never_used_ms: i64,
    /// Whether the ACL is checked before a write is proposed, too.
    pub eager_acl_check: bool,
    /// Whether reconfig is answered by anything but "disabled".
    pub reconfig_enabled: bool,
    /// Whether `Ready::audit` is filled.
    pub audit: bool,
    /// Whether there is a disk: if not, nothing is ever drained.
    pub durable: bool,
    /// The servers of the ensemble as the configuration names them; `None` on its own.
    pub ensemble: Option<Vec<ServerSpec>>,
    /// How much longer than its timeout a silent session lives, in milliseconds.
    pub expiry_grace_ms: u64,
    /// Whether every read is confirmed by a quorum first.
    pub linearizable_reads: bool,
    /// Whether clients that ask for it are served while there is no leader.
    pub read_only_mode: bool,
}

impl Default for Setup {
    /// A standalone server with ZooKeeper's defaults at a tick of 2 s, in memory, with a seed of
    /// zeros: for tests.
    fn default() -> Self {
        Self {
            raft_id: 1,
            server_id: 1,
            seed: [0; 32],
            session_timeout_ms_min: 4000,
            session_timeout_ms_max: 40_000,
            container_check_interval_ms: 60_000,
            container_max_per_minute: 10_000,
            container_never_used_ms: 300_000,
            eager_acl_check: false,
            reconfig_enabled: false,
            audit: false,
            durable: false,
            ensemble: None,
            expiry_grace_ms: 0,
            linearizable_reads: false,
            read_only_mode: false,
        }
    }
}

/// What the disk gave back.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The last hard state that is durable.
    pub hard_state: HardState,
    /// Who took part at the image that was loaded, or at the beginning. Changes in the entries
    /// behind it are in the machine.
    pub membership: Membership,
    /// The image that was loaded, if it can be sent to others.
    pub image: Option<Mark>,
    /// Index and term of the entry that the log on the disk begins after.
    pub log_before: (u64, u64),
    /// Index of the last entry that the machine contains.
    pub applied: u64,
    /// Its term.
    pub applied_term: u64,
    /// The entries behind it, all durable.
    pub tail: Vec<Entry>,
}

/// One server's whole deterministic state.
#[derive(Debug)]
pub struct Replica {
    setup: Setup,
    consensus: Consensus,
    machine: Machine,
    clients: Clients,
    expiry: Expiry,
    random: ChaCha20Rng,
    batch: BatchBuilder,
    /// Payloads that the consensus would not take yet.
    unproposed: VecDeque<Vec<u8>>,
    /// Index and term of the last entry applied.
    applied: (u64, u64),
    /// Last entry that was in the log at the start: before it is applied, the disk may hold a
    /// later state than this one.
    log_end_at_start: u64,
    /// Term in which this replica leads and has applied everything from before.
    leading: Option<u64>,
    wall_ms: i64,
    now_us: u64,
    ticked_us: Option<u64>,
    reap_at_us: u64,
    /// Context of the newest read index asked for from the consensus.
    read_asked: u64,
    /// Confirmed read indexes that are not applied yet.
    read_confirmed: VecDeque<(u64, u64)>,
    inspected: Vec<(u64, Report)>,
    audit: Vec<AuditLine>,
    /// Waits for the next `Ready`.
    append: Option<Append>,
    figures: Figures,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    proposals: u64,
    sessions_expired: u64,
    connections_refused: u64,
}

impl Replica {
    /// Continues from what the disk gave back. A lone voter stands for election at once.
    #[must_use]
    pub fn new(setup: Setup, mut machine: Machine, restored: Restored) -> Self {
        let mut random = ChaCha20Rng::from_seed(setup.seed);
        let mut membership = restored.membership;
        if membership.voters.is_empty() {
            membership.voters = vec![setup.raft_id];
        }
        let alone = membership.voters == [setup.raft_id];
        let log_end_at_start = restored.tail.last().map_or(restored.applied, |last| last.index);
        let applied = (restored.applied, restored.applied_term);
        let tail = Tail::new(restored.hard_state, &membership, applied, restored.tail);
        // Until everything was drained once, the disk may hold znodes that this process never stored.
        machine.keep_all_tombstones(setup.durable && log_end_at_start > 0);
        let mut consensus = Consensus::new(setup.raft_id, random.next_u64(), applied.0, tail);
        if alone {
            consensus.campaign();
        }
        let rules = Rules {
            eager_acl_check: setup.eager_acl_check,
            reconfig_enabled: setup.reconfig_enabled,
        };
        Self {
            clients: Clients::new(rules, random.next_u64()),
            consensus,
            machine,
            expiry: Expiry::default(),
            random,
            batch: BatchBuilder::default(),
            unproposed: VecDeque::new(),
            applied,
            log_end_at_start,
            leading: None,
            wall_ms: 0,
            now_us: 0,
            ticked_us: None,
            reap_at_us: 0,
            read_asked: 0,
            read_confirmed: VecDeque::new(),
            inspected: Vec::new(),
            audit: Vec::new(),
            figures: Figures::default(),
            append: None,
            setup,
        }
    }

    /// Takes one input. Bad requests become replies; nothing here fails.
    pub fn step(&mut self, input: Input) {
        match input {
            Input::Connected { conn, remote, remote_port, request } => {
                let connection = Connection::new(conn, remote, remote_port, self.wall_ms);
                self.clients.connections.insert(conn, connection);
                self.connect(conn, &request);
            }
            Input::Requests { conn, requests } => self.requests(conn, requests),
            Input::Closed { conn } => self.clients.closed(conn),
            Input::Room { conn } => self.clients.room(&self.machine, conn),
            Input::Tick { now_us, wall_ms } => self.tick(now_us, wall_ms),
            Input::Inspect { token, what } => {
                let report = self.inspect(what);
                self.inspected.push((token, report));
            }
            Input::RecordsLost => self.machine.mark_all_changed(),
            Input::Peer { .. }
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

    /// Says what is to be done. To be called until it gives `None`, after every batch of inputs and
    /// after every [`Replica::persisted`].
    ///
    /// # Errors
    /// A broken invariant, in words. The server must stop.
    pub fn ready(&mut self) -> Result<Option<Ready>, String> {
        loop {
            self.propose();
            let progressed = self.progress()?;
            self.release_reads();
            let ready = Ready {
                append: self.append.take(),
                client: self.clients.take_output(),
                audit: std::mem::take(&mut self.audit),
                inspected: std::mem::take(&mut self.inspected),
                ..Ready::default()
            };
            if !ready.is_empty() {
                return Ok(Some(ready));
            }
            if !progressed {
                return Ok(None);
            }
        }
    }

    /// Takes one step of the consensus and applies what it committed.
    fn progress(&mut self) -> Result<bool, String> {
        let Some(progress) = self.consensus.ready() else { return Ok(false) };
        self.append = progress.append;
        for read in progress.reads {
            if let Ok(context) = <[u8; 8]>::try_from(&read.request_ctx[..]) {
                self.read_confirmed.push_back((u64::from_le_bytes(context), read.index));
            }
        }
        for entry in &progress.committed {
            self.apply(&from_raft(entry))?;
        }
        if let Some(last) = progress.committed.last() {
            self.consensus.applied(last.index);
        }
        self.follow_leadership();
        Ok(true)
    }

    /// Every append up to this number is durable.
    pub fn persisted(&mut self, number: u64) {
        self.consensus.persisted(number);
    }

    /// Hands out records that changed, at most about `records_max` of them. The changes that carry
    /// a mark complete a checkpoint. To be called only while the disk has room for them.
    pub fn drain_changes(&mut self, records_max: usize) -> Option<Changes> {
        if !self.setup.durable || self.applied.0 < self.log_end_at_start {
            return None;
        }
        let membership = self.consensus.membership();
        let changes = self.machine.drain_changes(records_max, self.applied, membership);
        if changes.as_ref().is_some_and(|changes| changes.mark.is_some()) {
            self.machine.keep_all_tombstones(false);
        }
        changes
    }

    /// The state, for checkers.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether requests are answered: this replica leads and has applied all that was before.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.leading.is_some()
    }

    fn tick(&mut self, now_us: u64, wall_ms: i64) {
        self.now_us = now_us;
        self.wall_ms = wall_ms;
        self.clients.now_us = now_us;
        self.expiry.tick(now_us);
        let ticked_us = self.ticked_us.get_or_insert(now_us);
        let due = now_us.saturating_sub(*ticked_us) / (TICK_MS * 1000);
        *ticked_us += due * TICK_MS * 1000;
        for _ in 0..due.min(TICKS_AT_ONCE_MAX) {
            self.consensus.tick();
        }
        if due > 0 && self.is_serving() {
            self.expire();
            self.reap();
        }
    }

    /// Proposes to close what was not heard from in time.
    fn expire(&mut self) {
        for session in self.expiry.overdue() {
            self.figures.sessions_expired += 1;
            self.push_own(session, &TxnOp::ExpireSession);
        }
    }

    /// Proposes to remove containers and TTL znodes whose time has come.
    fn reap(&mut self) {
        if self.now_us < self.reap_at_us {
            return;
        }
        let interval_ms = self.setup.container_check_interval_ms;
        self.reap_at_us = self.now_us + interval_ms * 1000;
        let quota = u64::from(self.setup.container_max_per_minute) * interval_ms / 60_000;
        let at_once_max = usize::try_from(quota.max(1)).unwrap_or(usize::MAX);
        let never_used_ms = self.setup.container_never_used_ms;
        let paths = self.machine.tree().reapable(self.wall_ms, never_used_ms, at_once_max);
        for path in paths {
            self.push_own(0, &TxnOp::Reap { path: Text::copy_from(path.as_str()) });
        }
    }

    fn connect(&mut self, conn: ConnId, request: &ConnectRequest) {
        if !self.is_serving() || request.last_zxid_seen > self.machine.last_zxid() {
            self.figures.connections_refused += 1;
            return self.clients.refuse(conn, None);
        }
        let (min, max) = (self.setup.session_timeout_ms_min, self.setup.session_timeout_ms_max);
        let timeout_ms = request.timeout_ms.clamp(min, max);
        if request.session_id == 0 {
            let mut password = [0; PASSWORD_BYTES];
            self.random.fill_bytes(&mut password);
            if let Some(connection) = self.clients.connections.get_mut(&conn) {
                connection.phase = Phase::Opening { timeout_ms, read_only: request.read_only };
            }
            let origin = Origin { server: self.setup.raft_id, conn, sequence: 0 };
            let server = i64::from(self.setup.server_id) << 56;
            let op = TxnOp::OpenSession { timeout_ms, password };
            return self.push(origin, server, 0, conn, &op);
        }
        let known = self.machine.sessions().find(request.session_id);
        let password = match known {
            Some(session) if session.password[..] == request.password[..] => session.password,
            Some(_) | None => return self.refuse_session(conn, request),
        };
        if self.expiry.is_closing(request.session_id) {
            return self.refuse_session(conn, request);
        }
        if let Some(old) = self.clients.connection_of(request.session_id) {
            self.clients.hang_up(old);
        }
        self.expiry.track(request.session_id, timeout_ms);
        let response = ConnectResponse {
            timeout_ms,
            session_id: request.session_id,
            password,
            read_only: request.read_only.map(|_| false),
        };
        self.clients.attach(conn, request.session_id, &response);
    }

    fn refuse_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        self.figures.connections_refused += 1;
        let gone = ConnectResponse::session_gone(request.read_only.is_some());
        self.clients.refuse(conn, Some(&gone));
    }

    fn requests(&mut self, conn: ConnId, requests: Vec<ClientRequest>) {
        let session = self.clients.connections.get(&conn).and_then(|known| known.session);
        let Some(session) = session else { return };
        for request in requests {
            let (xid, auth) = (request.xid, request.is_auth());
            let wanted = self.clients.request(&self.machine, conn, request);
            if !auth {
                // Auth packets do not keep a session alive, as in ZooKeeper.
                self.expiry.touch(session);
            }
            match wanted {
                None | Some(Wanted::ReadIndex) => {}
                Some(Wanted::Txn { sequence, op }) => {
                    if op == TxnOp::CloseSession {
                        self.expiry.set_closing(session);
                    }
                    let origin = Origin { server: self.setup.raft_id, conn, sequence };
                    self.push(origin, session, xid, conn, &op);
                }
            }
        }
    }

    /// Adds a client's transaction to the batch.
    fn push(&mut self, origin: Origin, session: i64, cxid: i32, conn: ConnId, op: &TxnOp) {
        self.batch.push(origin, session, cxid, self.clients.identities(conn), op);
        self.close_full_batch();
    }

    /// Adds a transaction of the server's own to the batch.
    fn push_own(&mut self, session: i64, op: &TxnOp) {
        self.batch.push(Origin::default(), session, 0, &[], op);
        self.close_full_batch();
    }

    fn close_full_batch(&mut self) {
        if self.batch.is_full() {
            self.unproposed.push_back(self.batch.take(self.wall_ms));
        }
    }

    /// Proposes what was collected, and asks for a read index if a sync waits for one.
    fn propose(&mut self) {
        if !self.batch.is_empty() {
            self.unproposed.push_back(self.batch.take(self.wall_ms));
        }
        while let Some(payload) = self.unproposed.pop_front() {
            match self.consensus.propose(payload) {
                Ok(()) => self.figures.proposals += 1,
                Err(payload) => {
                    self.unproposed.push_front(payload);
                    break;
                }
            }
        }
        if self.clients.sync_asked > self.read_asked && self.is_serving() {
            self.read_asked = self.clients.sync_asked;
            self.consensus.read_index(self.read_asked);
        }
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        let Self { machine, clients, expiry, audit, setup, .. } = self;
        apply_entry(machine, entry, |machine, txn, applied| {
            if setup.audit {
                audit.push(machine.audit_line((entry.index, entry.term), &txn, &applied));
            }
            clients.notify(machine, &applied);
            settle(setup.raft_id, machine, clients, expiry, &txn, &applied);
            let Origin { server, conn, sequence } = txn.origin;
            if server == setup.raft_id {
                clients.settled(machine, txn.session, (conn, sequence));
            }
        })?;
        self.applied = (entry.index, entry.term);
        Ok(())
    }

    /// Begins or ends to serve, as leadership comes and goes. A leader serves once it has applied
    /// an entry of its own term: then it knows everything that was ever acknowledged.
    fn follow_leadership(&mut self) {
        let term = self.consensus.term();
        let leads = self.consensus.is_leader() && self.applied.1 == term;
        match (leads, self.leading) {
            (true, Some(known)) if known == term => {}
            (false, None) => {}
            (true, _) => {
                self.leading = Some(term);
                self.reap_at_us = self.now_us + self.setup.container_check_interval_ms * 1000;
                self.expiry.clear();
                for (id, session) in self.machine.sessions().iter() {
                    self.expiry.track(id, session.timeout_ms);
                }
            }
            (false, Some(_)) => self.leading = None,
        }
    }

    /// Answers syncs whose read index is confirmed and applied.
    fn release_reads(&mut self) {
        while let Some((context, index)) = self.read_confirmed.front().copied() {
            if index > self.applied.0 {
                return;
            }
            self.read_confirmed.pop_front();
            self.clients.sync_confirmed(&self.machine, context);
        }
    }
}

/// What an applied transaction means for the connections here and for the session's deadline.
fn settle(
    raft_id: u64,
    machine: &Machine,
    clients: &mut Clients,
    expiry: &mut Expiry,
    txn: &Txn,
    applied: &Applied,
) {
    let here = txn.origin.server == raft_id;
    match applied.session_change {
        Some(SessionChange::Opened(id, session)) => {
            expiry.track(id, session.timeout_ms);
            if !here {
                return;
            }
            let conn = txn.origin.conn;
            let phase = clients.connections.get(&conn).map(|known| known.phase);
            if let Some(Phase::Opening { timeout_ms, read_only }) = phase {
                let response = ConnectResponse {
                    timeout_ms,
                    session_id: id,
                    password: session.password,
                    read_only: read_only.map(|_| false),
                };
                clients.attach(conn, id, &response);
            }
            return;
        }
        Some(SessionChange::Closed(id)) => {
            expiry.forget(id);
            let (conn, sequence) = (txn.origin.conn, txn.origin.sequence);
            let is_answered = !here || clients.applied(machine, conn, sequence, applied);
            // Expired, or closed by an older connection: no message, just the end. One that closed
            // the session itself and has answers to come ends behind them.
            if let Some(current) = clients.connection_of(id)
                && (is_answered || current != conn)
            {
                clients.hang_up(current);
            }
            return;
        }
        None => {}
    }
    if here {
        clients.applied(machine, txn.origin.conn, txn.origin.sequence, applied);
    }
}
