//! ONE SERVER, deterministic: given time, bytes and a seed, says what is to be done.
//!
//! *Owns* [`Replica`], the seam between the core and the shell: [`Replica::step`] takes an
//! [`Input`], [`Replica::ready`] says what is to be done, [`Replica::persisted`] reports what is
//! durable. *Invariants*: the same inputs and the same seed give the same outputs; `step` never
//! fails and never waits; a reply that says a write happened leaves only when the write is
//! committed. *Never*: tokio, sled, sockets, files, clocks, threads, or an order that depends on a
//! hash.
//!
//! Rooms: `messages/` (what servers say to each other), `machine/` (what all servers agree on), `consensus/` (Raft),
//! `sessions/`, `clients/` (connections of this server), `ensemble/` (its servers), `inspect/` (what operators see).
//! They hold the owners of the state, none of which knows the replica; `steps/` joins them.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod audit_line;
pub mod bounds;
/// Writes nothing: the dumps of the owners (`canonical.rs`) are of no release.
#[cfg(not(feature = "internals"))]
macro_rules! canonical {
    ($($part:tt)*) => {};
}
#[cfg(feature = "internals")]
#[macro_use]
mod canonical;
mod clients;
#[cfg(test)]
mod cluster;
mod comparison;
mod consensus;
pub mod durable;
mod ensemble;
pub mod input;
pub mod inspect;
pub mod machine;
mod messages;
mod migration;
mod output;
pub mod ready;
pub mod records;
mod request;
mod sessions;
mod setup;
mod steps;
#[cfg(test)]
mod tests;
pub mod timing;

use std::collections::VecDeque;

use raft::eraftpb::{Entry as RaftEntry, Message};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

pub use audit_line::AuditLine;
pub use clients::{Dearest, OUTPUT_BYTES_PER_TURN_MAX};
pub use comparison::{
    DEFINITION as DIGEST_DEFINITION, DigestReport, Value as DigestValue, Window as DigestWindow,
};
pub use consensus::{Refusal, RefusalKind, clocks, promises};
pub use durable::{
    Append, Changes, Drained, Entry, EntryKind, HardState, Mark, Membership, RecordDigest, Restore,
    Urgency,
};
pub use ensemble::{founding, lost_majority};
pub use input::{ClientRequest, ConnId, Input};
pub use inspect::{Inspect, Measure, Measurement, Report, Status};
pub use machine::{
    ADDRESSES_MAX, ForeignApplied, ForeignLoad, ForeignResult, Machine, Migration, Phase,
    new_ensemble, txn, version as txn_version,
};
pub use messages::{Member, PeerMessage, peer, peer_codec};
pub use migration::{LinkInput, MigrateOrder, ZooKeeperHost, ZooKeeperWork};
pub use ready::{Answered, AnsweredList, Fetch, Outgoing, Ready, SendImage, TurnedAway, WhyAway};
pub use records::{Record, Records};
pub use setup::{Restored, Setup};
pub use timing::TICK_MS;

use clients::{Authentication, Clients, Connection, Forwarding, Rules};
use comparison::Comparison;
use consensus::{Clocks, Consensus, Leadership, ReadIndex, Tail, from_raft};
use ensemble::Ensemble;
use inspect::Figures;
use machine::AppliedState;
use machine::members::Members;
use migration::Following;
use output::Output;
use sessions::SessionTracker;

/// One server's whole deterministic state: its owners, each of which keeps what changes together.
#[derive(Debug)]
pub struct Replica {
    setup: Setup,
    /// What time it is here, in the ensemble, and at the other servers.
    clocks: Clocks,
    /// Raft.
    consensus: Consensus,
    /// Who leads, and whether clients are served.
    leadership: Leadership,
    reads: ReadIndex,
    /// What all servers agree on, and up to where this one has applied it.
    state: AppliedState,
    /// The connections.
    clients: Clients,
    /// Transactions on their way to the leader.
    forwarding: Forwarding,
    sessions: SessionTracker,
    /// The link with ZooKeeper's leader, where this ensemble moves from one.
    following: Following,
    /// The other servers, and a change of the members that is on its way.
    ensemble: Ensemble,
    /// Digests of this server's states and of the others'.
    comparison: Comparison,
    output: Output,
    /// Committed entries that are applied next.
    unapplied: VecDeque<RaftEntry>,
    /// Inputs of clients and operators that came while a part of an entry was applied.
    deferred: VecDeque<Input>,
    figures: Figures,
}

/// Estimated work of the entries that are applied at once, in nanoseconds, and of one more: a server that was away has
/// thousands to apply, and others hear from it in between.
const APPLY_WORK_NS_MAX: u64 = 5_000_000;

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
        let voters = consensus.counting();
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
        let rules = Rules::of(&setup);
        let authentication =
            Authentication::new(setup.sasl.clone(), setup.enforced_schemes.clone(), setup.seed);
        let clients = Clients::new(rules, authentication, random.next_u64());
        let before = members_before(&setup, replayed.members, &consensus);
        let origin = random.next_u64() << 8 | u64::from(setup.server_id);
        let mut comparison = Comparison::default();
        comparison.begin(applied, machine.last_zxid(), machine.digest());
        Ok(Self {
            figures: Figures::new(machine.last_time_ms()),
            clocks: Clocks::default(),
            consensus,
            leadership: Leadership::default(),
            reads: ReadIndex::new(origin),
            state: AppliedState::new(machine, applied, log_end_at_start),
            clients,
            forwarding: Forwarding::new(origin),
            following: Following::default(),
            sessions: SessionTracker::new(origin, setup.expiry_grace_ms, random),
            ensemble: Ensemble::new(setup.server_id, !replayed.conf_changes.is_empty(), before),
            comparison,
            output: Output::default(),
            unapplied: VecDeque::new(),
            deferred: VecDeque::new(),
            setup,
        })
    }

    /// Takes one input. Bad requests become replies, bad messages of other servers are dropped;
    /// nothing here fails.
    pub fn step(&mut self, input: Input) {
        let must_wait = self.is_underway() && !mutant!("reads-between-portions");
        if must_wait && !input.is_of_servers() {
            return self.defer(input);
        }
        match input {
            Input::Connected { conn, remote, remote_port, proven, request } => {
                let times = (self.clocks.now_us(), self.clocks.wall_ms());
                let connection = Connection::new(conn, (remote, remote_port), proven, times);
                self.clients.opened(conn, connection);
                self.connect(conn, &request);
            }
            Input::Requests { conn, requests } => self.requests(conn, requests),
            Input::Closed { conn } => self.clients.closed(conn),
            Input::Room { conn } => self.clients.room(self.state.machine(), conn),
            Input::Tick { now_us, wall_ms } => self.tick(now_us, wall_ms),
            Input::Inspect { token, what: Inspect::Synced } => {
                self.reads.inspected(self.clients.ask_sync(), token);
            }
            Input::Inspect { token, what } => {
                let report = self.inspect(what);
                self.output.inspected(token, report);
            }
            Input::RecordsLost => self.state.machine_mut().mark_all_changed(),
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
            Input::SaslUsers { users } => self.clients.authentication.replace_users(users),
            Input::SaslJudged { conn, verdict } => self.clients.judged(conn, verdict),
            Input::FinishUpgrade { version } => self.finish_upgrade(version),
            Input::Resign => self.resign(),
            Input::Migrate { token, order } => self.order_migration(token, order),
            Input::ZooKeeper(input) => self.zookeeper(input),
            Input::ZooKeeperClosed { attempt, closed } => self.zookeeper_closed(attempt, closed),
        }
    }

    /// Whether a part of an entry is applied: [`Replica::ready`] goes on with it. What clients and operators say waits
    /// meanwhile.
    #[must_use]
    pub fn is_underway(&self) -> bool {
        self.state.underway.is_some()
    }

    /// Keeps an input for the state behind an entry of which a part is applied. Its session is heard now.
    fn defer(&mut self, input: Input) {
        if let Input::Requests { conn, requests } = &input
            && let Some(session) = self.clients.connection(*conn).and_then(|known| known.session)
            && requests.iter().any(|request| !request.is_auth())
        {
            self.touch(session);
        }
        self.deferred.push_back(input);
    }

    /// Bytes of answers and events that the next [`Ready`] holds so far: a caller that steps on and on makes
    /// all of them wait. Beyond 8 MiB (`OUTPUT_BYTES_PER_TURN_MAX`) there are few more.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.clients.output_bytes()
    }

    /// Requests of clients that are not answered yet.
    #[must_use]
    pub fn requests_in_flight(&self) -> u64 {
        self.clients.figures().outstanding
    }

    /// Whether there are answers that only wait for the next [`Input::Tick`], because too many would be
    /// held in memory at once: it should come when those that are there have left, not later.
    #[must_use]
    pub fn owes_answers(&self) -> bool {
        self.clients.has_postponed()
    }

    /// Estimated work of all requests and transactions so far, in nanoseconds of one core.
    #[must_use]
    pub fn work_ns(&self) -> u64 {
        self.clients.total_work()
    }

    /// The dearest request or transaction since the last call.
    pub fn take_dearest(&mut self) -> Option<Dearest> {
        self.clients.take_dearest()
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
            if !self.is_underway() {
                std::mem::take(&mut self.deferred).into_iter().for_each(|input| self.step(input));
                self.release_reads();
            }
            self.report_digests();
            if self.ensemble.is_changed() {
                self.write_members();
                self.reconcile();
            }
            let tokens = self.clients.authentication.take_tokens();
            // What clients hear of an entry leaves when all of it is applied.
            let is_half = self.state.underway.as_ref().is_some_and(|underway| underway.has_begun);
            let output = if is_half { Vec::new() } else { self.clients.take_output() };
            let client = (output, tokens);
            let members = self.changed_members();
            self.advance_cutover();
            let zookeeper = self.following.take_work();
            let ready = self.output.take(client, members, zookeeper);
            // Where more is to be applied, others may have something to say first.
            if !ready.is_empty() || !self.unapplied.is_empty() || self.is_underway() {
                return Ok(Some(ready));
            }
            if !progressed && !self.clients.end_turn(self.state.machine()) {
                return Ok(None);
            }
        }
    }

    /// Applies what was committed, or takes one step of the consensus.
    fn progress(&mut self) -> Result<bool, String> {
        let has_applied = self.apply_committed()?;
        // In the middle of an entry others hear from this server.
        if has_applied && !self.is_underway() {
            return Ok(true);
        }
        let Some(progress) = self.consensus.ready() else { return Ok(has_applied) };
        self.measure(progress.append.as_ref());
        self.output.disk(progress.append, progress.fetch, progress.images);
        if let Some(at) = progress.installed {
            self.install(at)?;
        }
        let raft = |message: Message| (message.to, PeerMessage::Raft(Box::new(message)));
        self.output.send_all(progress.send.into_iter().map(raft));
        for read in progress.reads {
            self.reads.confirmed(&read);
        }
        // They are applied once the others are told that they are committed: these do the same work at the same time.
        self.unapplied.extend(progress.committed);
        Ok(true)
    }

    /// Applies what the consensus has committed last, as much as there is time for. False: nothing.
    fn apply_committed(&mut self) -> Result<bool, String> {
        // A state that differs goes nowhere, and shows nothing more.
        if self.is_diverged() {
            self.unapplied.clear();
        }
        // One that is to be replaced is not changed any more.
        if self.is_underway() && self.state.has_received() {
            return Ok(false);
        }
        let work_before_ns = self.work_ns();
        let at_before = self.state.at();
        if let Some(underway) = self.state.underway.take() {
            self.go_on(underway);
            self.note_applied(at_before);
            return Ok(true);
        }
        while self.work_ns() - work_before_ns < APPLY_WORK_NS_MAX
            && !self.is_underway()
            && let Some(entry) = self.unapplied.pop_front()
        {
            self.apply(&from_raft(&entry))?;
        }
        Ok(self.note_applied(at_before))
    }

    /// Tells the consensus up to where the log is applied. Whether something has happened to that since.
    fn note_applied(&mut self, before: (u64, u64)) -> bool {
        let at = self.state.at();
        if at != before {
            self.consensus.applied(at.0);
            self.following.applied(at.0);
        }
        at != before || self.is_underway()
    }

    /// Every append up to this number is durable.
    pub fn persisted(&mut self, number: u64) {
        self.consensus.persisted(number);
        self.figures.durable(self.consensus.durable_index(), self.clocks.now_us());
    }

    /// Moves what was measured since the last call behind what is in `into`. What is never taken is bounded.
    pub fn take_measurements(&mut self, into: &mut Vec<Measurement>) {
        self.figures.take_measurements(into);
        self.clients.take_measurements(into);
    }

    /// Hands out records that changed, at most about `records_max` of them. The changes that carry
    /// a mark complete a checkpoint. To be called only while the disk has room for them.
    pub fn drain_changes(&mut self, records_max: usize) -> Drained {
        let is_between = self.is_underway() || self.is_diverged();
        if !self.setup.durable || self.state.is_behind_disk() || is_between {
            return Drained::Nothing;
        }
        // A mark names who takes part, and what the log says before it is forgotten: also where those are that leave.
        if self.ensemble.has_leaving_voters() && !mutant!("checkpoint-forgets-leaving") {
            return Drained::Nothing;
        }
        let Some(membership) = self.consensus.settled_membership() else { return Drained::Nothing };
        let is_durable = self.state.at().0 <= self.consensus.durable_index()
            || mutant!("checkpoint-ahead-of-log");
        let at = is_durable.then_some(self.state.at());
        let drained = self.state.machine_mut().drain_changes(records_max, at, membership);
        // Under load there would always be something that is applied and not durable yet.
        let lacks_mark = drained != Drained::Nothing && self.state.machine().changes_waiting() == 0;
        self.consensus.wait_for_disk(lacks_mark && !is_durable);
        if let Drained::Changes(Changes { mark: Some(_), .. }) = drained {
            self.state.machine_mut().keep_all_tombstones(false);
        }
        drained
    }

    /// The state, for checkers.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        self.state.machine()
    }
}

/// Servers that take part, by the last texts of the members and before those by the configuration: this server goes on
/// to link with those that leave, as long as their votes count.
fn members_before(setup: &Setup, replayed: Members, consensus: &Consensus) -> Vec<Member> {
    let Some(configured) = &setup.ensemble else { return Vec::new() };
    let mut known: Members = configured.iter().map(|spec| (spec.id, spec.clone())).collect();
    known.extend(replayed);
    let member = |raft_id: u64| {
        let spec = known.get(&messages::server_of(raft_id))?.clone();
        Some(Member { spec, raft_id: Some(raft_id), votes: true })
    };
    let others = consensus.taking_part().into_iter().filter(|id| *id != setup.raft_id);
    others.filter_map(member).collect()
}
