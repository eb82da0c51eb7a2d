//! ONE SERVER, deterministic: given time, bytes and a seed, says what is to be done.
//!
//! *Owns* [`Replica`], the seam between the core and the shell: [`Replica::step`] takes an
//! [`Input`], [`Replica::ready`] says what is to be done, [`Replica::persisted`] reports what is
//! durable. *Invariants*: the same inputs and the same seed give the same outputs; `step` never
//! fails and never waits; a reply that says a write happened leaves only when the write is
//! committed. *Never*: tokio, sled, sockets, files, clocks, threads, or an order that depends on a
//! hash.
//!
//! Rooms: `messages/` (what servers say to each other), `machine/` (what all servers agree on), `consensus/`
//! (Raft and what is proposed), `sessions/`, `clients/` (connections of this server), `ensemble/` (its servers),
//! `inspect/` (what operators see).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod bounds;
mod clients;
#[cfg(test)]
mod cluster;
mod consensus;
pub mod durable;
mod ensemble;
pub mod input;
pub mod inspect;
pub mod machine;
mod messages;
mod output;
pub mod ready;
pub mod records;
mod request;
mod sessions;
mod setup;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use raft::eraftpb::Message;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

pub use bounds::TICK_MS;
pub use clients::OUTPUT_BYTES_PER_TURN_MAX;
pub use consensus::{Refusal, clocks, leadership, promises};
pub use durable::{
    Append, Changes, Drained, Entry, EntryKind, HardState, Mark, Membership, RecordDigest, Restore,
    Urgency,
};
pub use ensemble::founding;
pub use input::{ClientRequest, ConnId, Input};
pub use inspect::{Inspect, Report, Status};
pub use machine::{Machine, txn};
pub use messages::{Member, PeerMessage, peer, peer_codec};
pub use ready::{AuditLine, Fetch, Outgoing, Ready, SendImage};
pub use records::{Record, Records};
pub use setup::{Restored, Setup};

use clients::{Clients, Connection, Forwarding, Rules, Wanted};
use consensus::{Clocks, Consensus, Pace, ReadIndex, Standing, Tail, from_raft};
use inspect::{Departures, PeerStatus, ProposalSizes};
use machine::{Applied, EntryTime, Origin, SessionChange, Txn, TxnOp, open_entry};
use output::Output;
use sessions::{Expiry, Liveness, Moves, Touches};

use crate::config::Role;
use crate::proto::OpCode;

/// A gap between two ticks counts as at most this many, so that a process that was stopped does
/// not hold an election with itself.
const TICKS_AT_ONCE_MAX: u64 = 4;

/// One server's whole deterministic state.
#[derive(Debug)]
pub struct Replica {
    setup: Setup,
    consensus: Consensus,
    machine: Machine,
    clients: Clients,
    /// Deadlines of all sessions, while this server leads.
    expiry: Expiry,
    /// Whether they are to be looked at before the next proposal.
    expiry_is_due: bool,
    /// Those of sessions that only this server knows.
    local_expiry: Expiry,
    random: ChaCha20Rng,
    /// This process, in the origins of its clients' transactions.
    origin: u64,
    forwarding: Forwarding,
    standing: Standing,
    /// Index and term of the last entry applied.
    applied: (u64, u64),
    /// Last entry that was in the log at the start: before it is applied, the disk may hold a
    /// later state than this one.
    log_end_at_start: u64,
    /// Term in which this replica leads and has applied everything from before.
    leading: Option<u64>,
    wall_ms: i64,
    clocks: Clocks,
    now_us: u64,
    ticked_us: Option<u64>,
    reap_at_us: u64,
    /// How many it may remove then.
    reap_allowance: sessions::Allowance,
    reads: ReadIndex,
    /// What the leader knows of whom the others hear from.
    liveness: Liveness,
    /// Sessions that are moving to other servers.
    moves: Moves,
    /// Whom the leader was not told of.
    touches: Touches,
    /// Raft ids of the servers that there is a link with, by server.
    connected: BTreeMap<u8, u64>,
    /// A received state that waits for the consensus to accept it.
    incoming: Option<(Mark, Box<Machine>)>,
    /// Index of the entry that asks for other members and was proposed here, until it is applied.
    reconfig_proposed: Option<u64>,
    /// When this leader proposes.
    pace: Pace,
    /// The members or the voters have changed, and no mark in the log says yet that the voters follow
    /// (see `ensemble/membership.rs`).
    owes_mark: bool,
    /// The term in which this leader has proposed it.
    mark_proposed: Option<u64>,
    members_changed: bool,
    announced: Vec<Member>,
    /// The version that these members had.
    announced_version: i64,
    /// Members no longer, but still learning.
    leaving: Vec<Member>,
    /// As of the last tick.
    peer_status: Vec<PeerStatus>,
    departures: Departures,
    own_role: Role,
    led_since_us: u64,
    /// Why clients are not served that will not be by waiting, as of the last tick.
    obstacle: Option<String>,
    output: Output,
    figures: Figures,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    proposals: u64,
    proposal_sizes: Option<ProposalSizes>,
    sessions_expired: u64,
    connections_refused: u64,
    /// Transactions that were given to another server.
    forwards: u64,
    /// Connections closed because a request was lost on the way to the leader.
    forwards_lost: u64,
    /// Messages of other servers that made no sense.
    peer_messages_dropped: u64,
    /// Times that this server handed its leadership over because its disk hung.
    disk_handovers: u64,
    /// Entries whose stamp is before that of the entry in front of them.
    time_returns: u64,
    /// By how much the last one is.
    time_returned_ms: u64,
}

impl Replica {
    /// Continues from what the disk gave back. A lone voter stands for election at once.
    ///
    /// # Errors
    /// What the disk gave back does not fit together.
    pub fn new(setup: Setup, mut machine: Machine, restored: Restored) -> Result<Self, String> {
        let mut random = ChaCha20Rng::from_seed(setup.seed);
        let mut membership = restored.membership.clone();
        if membership == Membership::default() && setup.ensemble.is_none() {
            membership.voters = vec![setup.raft_id];
        }
        consensus::check(setup.raft_id, &membership, &restored)?;
        let log_end_at_start = restored.tail.last().map_or(restored.applied, |last| last.index);
        let applied = (restored.applied, restored.applied_term);
        let replayed = machine.take_replayed();
        let mut tail = Tail::new(
            restored.hard_state,
            &membership,
            applied,
            // The terms of what lies before are not known: nothing of it is sent.
            restored.begun_after,
            replayed.runs,
            restored.tail,
        );
        if let Some(image) = restored.image {
            tail.set_image(image);
        }
        // Until everything was drained once, the disk may hold znodes that this process never stored.
        machine.keep_all_tombstones(setup.durable && log_end_at_start > 0);
        let id = setup.raft_id;
        let mut consensus =
            Consensus::new(id, applied.0, tail, &replayed.conf_changes, setup.disk_stall_ms)?;
        let voters = consensus.membership().voters;
        if setup.ensemble.is_none() && voters != [id] {
            let mut servers: Vec<u8> = voters.iter().map(|id| messages::server_of(*id)).collect();
            servers.sort_unstable();
            let servers: Vec<String> = servers.iter().map(u8::to_string).collect();
            return Err(format!(
                "the data is that of an ensemble, in which these servers vote: {}. Start it with \
                 the server lines that name them",
                servers.join(", ")
            ));
        }
        if voters == [id] {
            if consensus.term() >= bounds::TERM_MAX {
                return Err(format!(
                    "the data has come to term {}, the last one",
                    consensus.term()
                ));
            }
            consensus.campaign();
        }
        // A lone voter has promised nothing to anybody.
        let is_asking = voters != [id];
        consensus.let_vote(!is_asking || mutant!("votes-before-asking"));
        if is_asking {
            consensus.begin_to_ask(random.next_u64());
        }
        let rules = Rules {
            eager_acl_check: setup.eager_acl_check,
            reconfig_enabled: setup.reconfig_enabled,
            is_ensemble: setup.ensemble.is_some(),
            linearizable_reads: setup.linearizable_reads,
        };
        let clients = Clients::new(rules, random.next_u64());
        let origin = random.next_u64() << 8 | u64::from(setup.server_id);
        Ok(Self {
            clients,
            consensus,
            departures: Departures::since(machine.last_time_ms()),
            machine,
            expiry: Expiry::default(),
            expiry_is_due: false,
            local_expiry: Expiry::default(),
            origin,
            random,
            forwarding: Forwarding::default(),
            standing: Standing::default(),
            applied,
            log_end_at_start,
            leading: None,
            wall_ms: 0,
            clocks: Clocks::default(),
            now_us: 0,
            ticked_us: None,
            reap_at_us: 0,
            reap_allowance: sessions::Allowance::default(),
            reads: ReadIndex::new(origin),
            liveness: Liveness::default(),
            moves: Moves::default(),
            touches: Touches::default(),
            connected: BTreeMap::new(),
            incoming: None,
            reconfig_proposed: None,
            owes_mark: !replayed.conf_changes.is_empty(),
            mark_proposed: None,
            pace: Pace::default(),
            members_changed: true,
            announced: Vec::new(),
            announced_version: 0,
            leaving: Vec::new(),
            peer_status: Vec::new(),
            own_role: Role::Participant,
            led_since_us: 0,
            obstacle: None,
            output: Output::default(),
            figures: Figures::default(),
            setup,
        })
    }

    /// Takes one input. Bad requests become replies, bad messages of other servers are dropped;
    /// nothing here fails.
    pub fn step(&mut self, input: Input) {
        match input {
            Input::Connected { conn, remote, remote_port, request } => {
                let times = (self.now_us, self.wall_ms);
                let connection = Connection::new(conn, (remote, remote_port), times);
                self.clients.connections.insert(conn, connection);
                self.connect(conn, &request);
            }
            Input::Requests { conn, requests } => self.requests(conn, requests),
            Input::Closed { conn } => self.clients.closed(conn),
            Input::Room { conn } => self.clients.room(&self.machine, conn),
            Input::Tick { now_us, wall_ms } => self.tick(now_us, wall_ms),
            Input::Inspect { token, what } => {
                let report = self.inspect(what);
                self.output.inspected(token, report);
            }
            Input::RecordsLost => self.machine.mark_all_changed(),
            Input::Peer { from, message } => self.peer(from, message),
            Input::Introduced { peer, term } => self.introduced(peer, term),
            Input::PeerUp { peer } => self.peer_up(peer),
            Input::PeerDown { peer } => self.peer_down(peer),
            Input::Fetched { fetch, entries } => self.consensus.fetched(&fetch, entries),
            Input::LogCut { before } => self.consensus.disk_cut(before),
            Input::ImageWritten { mark } => self.consensus.image_written(mark),
            Input::ImageSent { to, ok } => self.consensus.image_sent(to, ok),
            Input::ImageReceived { message, mark, machine } => {
                self.image_received(*message, mark, machine);
            }
            Input::Resign => self.resign(),
        }
    }

    /// Bytes of answers and events that the next [`Ready`] holds so far: whoever steps on and on makes
    /// all of them wait. Beyond 8 MiB (`OUTPUT_BYTES_PER_TURN_MAX`) there are few more.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.clients.output_bytes
    }

    /// Requests of clients that are not answered yet.
    #[must_use]
    pub fn requests_in_flight(&self) -> u64 {
        self.clients.figures.outstanding
    }

    /// Whether there are answers that only wait for the next [`Input::Tick`], because too many would be
    /// held in memory at once: it should come when those that are there have left, not later.
    #[must_use]
    pub fn owes_answers(&self) -> bool {
        self.clients.has_postponed()
    }

    /// Says what is to be done. To be called until it gives `None`, after every batch of inputs and
    /// after every [`Replica::persisted`].
    ///
    /// # Errors
    /// A broken invariant, in words. The server must stop.
    pub fn ready(&mut self) -> Result<Option<Ready>, String> {
        if self.consensus.refusal().is_some() {
            return Ok(None);
        }
        loop {
            self.propose();
            let progressed = self.progress()?;
            self.follow_leadership();
            self.release_reads();
            if self.members_changed {
                self.write_members();
                self.reconcile();
            }
            let client = self.clients.take_output();
            let members = self.changed_members();
            let ready = self.output.take(client, members);
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
        self.output.disk(progress.append, progress.fetch, progress.images);
        if let Some(at) = progress.installed {
            self.install(at)?;
        }
        let raft = |message: Message| (message.to, PeerMessage::Raft(Box::new(message)));
        self.output.send_all(progress.send.into_iter().map(raft));
        for read in progress.reads {
            self.reads.confirmed(&read);
        }
        for entry in &progress.committed {
            self.apply(&from_raft(entry))?;
        }
        if let Some(last) = progress.committed.last() {
            self.consensus.applied(last.index);
        }
        Ok(true)
    }

    /// Every append up to this number is durable.
    pub fn persisted(&mut self, number: u64) {
        self.consensus.persisted(number);
    }

    /// Hands out records that changed, at most about `records_max` of them. The changes that carry
    /// a mark complete a checkpoint. To be called only while the disk has room for them.
    pub fn drain_changes(&mut self, records_max: usize) -> Drained {
        if !self.setup.durable || self.applied.0 < self.log_end_at_start {
            return Drained::Nothing;
        }
        // A mark names who takes part; while that changes, there is none.
        let Some(membership) = self.consensus.settled_membership() else { return Drained::Nothing };
        let is_durable =
            self.applied.0 <= self.consensus.durable_index() || mutant!("checkpoint-ahead-of-log");
        let at = is_durable.then_some(self.applied);
        let drained = self.machine.drain_changes(records_max, at, membership);
        // Under load there would always be something that is applied and not durable yet.
        let lacks_mark = drained != Drained::Nothing && self.machine.changes_waiting() == 0;
        self.consensus.wait_for_disk(lacks_mark && !is_durable);
        if let Drained::Changes(Changes { mark: Some(_), .. }) = drained {
            self.machine.keep_all_tombstones(false);
        }
        drained
    }

    /// The state, for checkers.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tick(&mut self, now_us: u64, wall_ms: i64) {
        self.now_us = now_us;
        self.wall_ms = wall_ms;
        self.clients.now_us = now_us;
        self.expiry.tick(now_us);
        self.local_expiry.tick(now_us);
        self.mind_doubts();
        self.clients.give_up_members();
        self.clients.resume(&self.machine);
        self.consensus.await_answers(now_us);
        let ticked_us = self.ticked_us.get_or_insert(now_us);
        let due = now_us.saturating_sub(*ticked_us) / (TICK_MS * 1000);
        *ticked_us += due * TICK_MS * 1000;
        let ticks = due.min(TICKS_AT_ONCE_MAX);
        let mut beats = false;
        for _ in 0..ticks {
            beats |= self.consensus.tick();
        }
        self.mind_silence(ticks);
        self.mind_disk();
        self.follow_hint();
        if due == 0 {
            return;
        }
        // What was asked for may have been lost on the way.
        self.reads.ask_again();
        self.observe_peers();
        self.look_for_obstacle();
        let questions = self.consensus.ask_again(now_us);
        self.output.send_all(questions);
        self.close_overdue_local();
        self.follow_resignation();
        if self.leading.is_some() {
            self.touches.forget_old(now_us);
            // In one packet with the heartbeats: nobody is woken up twice.
            if beats {
                self.ping_others();
            }
            self.give_up_silent();
            self.expiry_is_due = true;
            self.reap();
            self.write_members();
            self.reconcile();
        }
    }

    fn requests(&mut self, conn: ConnId, requests: Vec<ClientRequest>) {
        let session = self.clients.connections.get(&conn).and_then(|known| known.session);
        let Some(session) = session else { return };
        for request in requests {
            let (xid, auth) = (request.xid, request.is_auth());
            let wanted = self.clients.request(&self.machine, conn, request);
            if !auth {
                // Auth packets do not keep a session alive, as in ZooKeeper.
                self.touch(session);
            }
            match wanted {
                None | Some(Wanted::ReadIndex) => {}
                Some(Wanted::Txn { sequence, op }) => {
                    if op == TxnOp::CloseSession {
                        self.expiry.set_closing(session);
                    }
                    let origin = Origin { server: self.origin, conn, sequence };
                    self.push(origin, session, xid, conn, &op);
                }
            }
        }
    }

    /// Adds a client's transaction to those that wait for the leader.
    fn push(&mut self, origin: Origin, session: i64, cxid: i32, conn: ConnId, op: &TxnOp) {
        let ids = self.clients.identities(conn);
        self.forwarding.push(origin, session, cxid, ids, op);
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.term > self.applied.1 {
            let lost = self.forwarding.lost_before(entry.term);
            self.close_lost(&lost);
        }
        match entry.kind {
            EntryKind::ConfChange => {
                self.consensus.apply_change(entry.index, &entry.data)?;
                self.voters_changed();
            }
            EntryKind::Normal => self.apply_batch(entry)?,
        }
        self.applied = (entry.index, entry.term);
        self.reconfig_proposed = self.reconfig_proposed.filter(|index| *index > entry.index);
        Ok(())
    }

    fn apply_batch(&mut self, entry: &Entry) -> Result<(), String> {
        let before_ms = self.machine.last_time_ms();
        let batch = open_entry(&mut self.machine, entry)?;
        let returned_ms = before_ms.saturating_sub(self.machine.last_time_ms());
        if returned_ms > 0 {
            self.figures.time_returns += 1;
            self.figures.time_returned_ms = returned_ms.unsigned_abs();
        }
        if machine::txn::is_members_mark(&entry.data) {
            self.voters_marked();
        }
        if mutant!("time-of-each-server") {
            self.machine.begin_entry(&EntryTime { wall_ms: self.wall_ms, ..EntryTime::default() });
        }
        for txn in &batch {
            let Origin { server, conn, sequence } = txn.origin;
            if server == self.origin {
                self.clients.about_to_apply(&self.machine, conn, sequence);
            }
            let applied = self.machine.apply(entry.term, txn);
            if server != self.origin && matches!(txn.op, TxnOp::AttachSession { .. }) {
                self.moves.applied(entry.term, txn.session);
            }
            if self.setup.audit {
                let at = (entry.index, entry.term);
                self.output.audit(self.machine.audit_line(at, txn, &applied));
            }
            if !mutant!("event-behind-reply") {
                self.clients.notify(&self.machine, &applied);
            }
            self.departures.note(&applied.events, self.machine.last_time_ms());
            self.settle(txn, &applied);
            if mutant!("event-behind-reply") {
                self.clients.notify(&self.machine, &applied);
            }
        }
        Ok(())
    }

    /// What an applied transaction means for the connections here and for the session's deadline.
    fn settle(&mut self, txn: &Txn, applied: &Applied) {
        let Origin { server, conn, sequence } = txn.origin;
        let is_here = server == self.origin;
        if is_here {
            self.forwarding.applied(conn, sequence);
        }
        if applied.op == OpCode::Reconfig && applied.result.is_ok() {
            let is_asked_for = matches!(txn.op, TxnOp::Client { .. });
            self.members_applied(is_asked_for, is_here.then_some(conn));
        }
        match applied.session_change {
            Some(SessionChange::Opened(id, session) | SessionChange::Attached(id, session)) => {
                return self.attached(id, session);
            }
            Some(SessionChange::Closed(id)) => {
                self.expiry.forget(id);
                let (clients, machine) = (&mut self.clients, &self.machine);
                let is_answered = !is_here || clients.applied(machine, conn, sequence, applied);
                // Expired, or closed by another connection: no message, just the end. One that
                // closed the session itself and has answers to come ends behind them.
                if let Some(current) = clients.connection_of(id)
                    && (is_answered || current != conn)
                {
                    clients.hang_up(current);
                }
                return;
            }
            None => {}
        }
        match txn.op {
            TxnOp::OpenSession { .. } | TxnOp::AttachSession { .. } => {
                self.not_attached(txn.origin);
            }
            _ if is_here => {
                self.clients.applied(&self.machine, conn, sequence, applied);
            }
            _ => {}
        }
    }
}
