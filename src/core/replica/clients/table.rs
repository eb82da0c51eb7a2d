//! All connections of this server: requests in, replies and events out.
//!
//! *Owns* the connections, their watches, and the order between a change and its news. *Invariants*:
//! a change's events are queued before any reply that could show it; one registration in the same
//! call that reads, so that no change falls between. *Never* changes the machine.
//!
//! Reproduces `FinalRequestProcessor` (reads) and the notification half of `DataTree`.

mod answers;
mod authenticate;
mod events;

use std::collections::BTreeMap;

use super::authentication::Authentication;
use super::connection::{Answer, Asked, Connection, Pending, Phase};
use super::turn::{Dearest, Turn, Work, too_deep};
use super::watches::Watches;
use crate::proto::connect::ConnectResponse;
use crate::proto::request::{Request, Undecodable};
use crate::proto::{ErrorCode, OpCode, RequestClass, Response};
use crate::replica::inspect::{
    ConnectionReport, Measure, Measurement, Measurements, Namespaces, WatchReport,
};
use crate::replica::machine::{Decider, Machine, TxnOp, changes_members, version as txn_version};
use crate::replica::ready::Outgoing;
use crate::replica::request::{ClientRequest, ConnId};
use crate::replica::setup::Setup;
use crate::tree::acl::Identity;

/// What a request needs that only the replica can do.
#[derive(Debug)]
pub(in crate::replica) enum Wanted {
    Txn(Unsent),
    /// A confirmed read index.
    ReadIndex,
}

/// A transaction that sets out, numbered on its connection.
#[derive(Debug)]
pub(in crate::replica) struct Unsent {
    pub(in crate::replica) conn: ConnId,
    pub(in crate::replica) sequence: u64,
    pub(in crate::replica) session: i64,
    pub(in crate::replica) asked: Asked,
    pub(in crate::replica) op: TxnOp,
}

/// Rules of this server that requests meet.
#[derive(Clone, Copy, Debug)]
pub(in crate::replica) struct Rules {
    /// Whether writes that an ACL refuses are answered before they are proposed: only where this server leads, because
    /// the leader's rules decide them.
    pub(in crate::replica) eager_acl_check: bool,
    /// Whether reconfig is answered by anything but "disabled" where this server judges that: alone, or in an ensemble
    /// of the first version.
    pub(in crate::replica) reconfig_enabled: bool,
    pub(in crate::replica) is_ensemble: bool,
    pub(in crate::replica) linearizable_reads: bool,
    /// Whether the connections of one address share what makes their load a small one.
    pub(in crate::replica) shares_by_address: bool,
}

impl Rules {
    /// Rules of a server that does not lead yet.
    pub(in crate::replica) fn of(setup: &Setup) -> Self {
        Self {
            eager_acl_check: false,
            reconfig_enabled: setup.reconfig_enabled,
            is_ensemble: setup.ensemble.is_some(),
            linearizable_reads: setup.linearizable_reads,
            shares_by_address: setup.shares_by_address,
        }
    }
}

/// The connections.
#[derive(Debug)]
pub(in crate::replica) struct Clients {
    pub(super) connections: BTreeMap<ConnId, Connection>,
    pub(super) watches: Watches,
    pub(super) rules: Rules,
    /// Who may be who.
    pub(in crate::replica) authentication: Authentication,
    now_us: u64,
    pub(super) figures: Figures,
    pub(super) measured: Measurements,
    pub(in crate::replica) namespaces: Namespaces,
    /// Connections whose requests wait.
    pub(super) waiting: u64,
    by_session: BTreeMap<i64, ConnId>,
    with_output: Vec<ConnId>,
    /// Room of this turn, and who waits for the next.
    turn: Turn,
    /// Transactions that were held, and set out.
    unsent: Vec<Unsent>,
    sync_waiting: Vec<ConnId>,
    /// Connections whose answers wait for the voters to follow a change of members.
    wait_for_members: Vec<ConnId>,
    /// Context of the newest read index asked for, and of the newest confirmed and applied.
    sync_asked: u64,
    sync_confirmed: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::replica) struct Figures {
    pub(in crate::replica) outstanding: u64,
    pub(in crate::replica) reads_answered: u64,
    pub(in crate::replica) writes_answered: u64,
    /// Writes that were applied with requests waiting behind them.
    pub(in crate::replica) queues_drained: u64,
    pub(in crate::replica) auth_failed: u64,
    pub(in crate::replica) events_fired: [u64; 4],
    pub(in crate::replica) watch_bytes: u64,
    /// Answers that waited for their turn.
    pub(in crate::replica) postponed: u64,
}

impl Figures {
    /// Starts again, but for what is a state, and for failed authentications: ZooKeeper keeps
    /// those over `srst` too.
    fn reset(&mut self) {
        let Figures { outstanding, auth_failed, .. } = *self;
        *self = Figures { outstanding, auth_failed, ..Figures::default() };
    }
}

canonical! {
    // Without what is counted.
    Clients: rules, by_session, with_output, unsent, sync_waiting, wait_for_members, sync_asked,
    sync_confirmed; without now_us, figures, measured, namespaces, waiting;
    |out, connections, watches, authentication, turn| {
        turn.canonical(out);
        for (conn, connection) in connections {
            out.value(conn);
            connection.canonical(out);
        }
        watches.canonical(out);
        authentication.canonical(out);
    }
}

impl Clients {
    /// Whether writes that an ACL refuses are answered before they are proposed.
    pub(in crate::replica) fn check_acls_early(&mut self, on: bool) {
        self.rules.eager_acl_check = on;
    }

    pub(in crate::replica) fn new(
        rules: Rules,
        authentication: Authentication,
        hash_seed: u64,
    ) -> Self {
        Self {
            connections: BTreeMap::new(),
            watches: Watches::new(hash_seed),
            rules,
            authentication,
            now_us: 0,
            figures: Figures::default(),
            measured: Measurements::default(),
            namespaces: Namespaces::default(),
            waiting: 0,
            by_session: BTreeMap::new(),
            with_output: Vec::new(),
            turn: Turn::default(),
            unsent: Vec::new(),
            sync_waiting: Vec::new(),
            wait_for_members: Vec::new(),
            sync_asked: 0,
            sync_confirmed: 0,
        }
    }

    /// It is this late.
    pub(in crate::replica) fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// A client's first frame arrived on this connection.
    pub(in crate::replica) fn opened(&mut self, conn: ConnId, mut connection: Connection) {
        self.authentication.mark(&mut connection);
        if self.rules.shares_by_address {
            self.turn.opened(connection.address);
        }
        self.connections.insert(conn, connection);
    }

    /// One of the connections.
    pub(in crate::replica) fn connection(&self, conn: ConnId) -> Option<&Connection> {
        self.connections.get(&conn)
    }

    /// A session is being opened for a connection.
    pub(in crate::replica) fn open_session(&mut self, conn: ConnId, phase: Phase) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.phase = phase;
        }
    }

    /// The session of a connection is to be one that only this server knows, and may only read.
    pub(in crate::replica) fn set_read_only(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.is_read_only = true;
        }
    }

    /// What is registered.
    pub(in crate::replica) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// What is counted.
    pub(in crate::replica) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Hands out what was measured.
    pub(in crate::replica) fn take_measurements(&mut self, into: &mut Vec<Measurement>) {
        self.measured.take(into);
    }

    /// An operator wants the counters to begin anew.
    pub(in crate::replica) fn reset_figures(&mut self) {
        self.figures.reset();
        self.namespaces.reset();
    }

    /// Bytes of answers and events that wait to be taken, of all connections.
    pub(in crate::replica) fn output_bytes(&self) -> usize {
        self.turn.output_bytes
    }

    /// The dearest request or transaction since the last call.
    pub(in crate::replica) fn take_dearest(&mut self) -> Option<Dearest> {
        self.turn.take_dearest()
    }

    /// Work of all turns, in nanoseconds.
    pub(in crate::replica) fn total_work(&self) -> Work {
        self.turn.total
    }

    /// Transactions that set out now, after the reads in front of them.
    pub(in crate::replica) fn take_unsent(&mut self) -> Vec<Unsent> {
        let mut unsent = std::mem::take(&mut self.unsent);
        let is_open = |known: &Connection| known.phase == Phase::Open;
        unsent.retain(|unsent| self.connections.get(&unsent.conn).is_some_and(is_open));
        unsent
    }

    /// The connection that a session uses here.
    pub(in crate::replica) fn connection_of(&self, session: i64) -> Option<ConnId> {
        self.by_session.get(&session).copied()
    }

    /// Gives a connection its session and says so to the client.
    pub(in crate::replica) fn attach(
        &mut self,
        conn: ConnId,
        session: i64,
        response: &ConnectResponse,
    ) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.phase = Phase::Open;
        connection.session = Some(session);
        connection.send_connect_response(response);
        self.by_session.insert(session, conn);
        self.touch(conn);
    }

    /// Ends all connections, or all that may only read.
    pub(in crate::replica) fn hang_up_all(&mut self, only_read_only: bool) {
        let ends = |(conn, known): (&ConnId, &Connection)| {
            (!only_read_only || known.is_read_only).then_some(*conn)
        };
        let conns: Vec<ConnId> = self.connections.iter().filter_map(ends).collect();
        for conn in conns {
            self.hang_up(conn);
        }
    }

    /// Sends a last answer to the handshake and closes.
    pub(in crate::replica) fn refuse(&mut self, conn: ConnId, response: Option<&ConnectResponse>) {
        if let (Some(connection), Some(response)) = (self.connections.get_mut(&conn), response) {
            connection.send_connect_response(response);
        }
        self.hang_up(conn);
    }

    /// Ends a connection from this side. What was queued for it before is still sent.
    pub(in crate::replica) fn hang_up(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        self.figures.outstanding -= connection.queue.len() as u64;
        self.waiting -= u64::from(!connection.queue.is_empty());
        connection.hang_up();
        self.detach(conn);
        self.touch(conn);
    }

    /// Drops what is queued for all clients: it may show a state that is wrong.
    pub(in crate::replica) fn drop_output(&mut self) {
        for connection in self.connections.values_mut() {
            connection.drop_output();
        }
    }

    /// The connection is gone.
    pub(in crate::replica) fn closed(&mut self, conn: ConnId) {
        self.detach(conn);
        if let Some(connection) = self.forget(conn) {
            self.figures.outstanding -= connection.queue.len() as u64;
            self.waiting -= u64::from(!connection.queue.is_empty());
        }
    }

    /// Has a request of a connection wait behind those in front of it.
    fn wait(&mut self, conn: ConnId, pending: Pending) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        self.waiting += u64::from(connection.queue.is_empty());
        connection.push(pending);
        self.measured.note(Measure::RequestsInQueue, connection.queue.len() as u64);
    }

    fn forget(&mut self, conn: ConnId) -> Option<Connection> {
        let connection = self.connections.remove(&conn)?;
        if self.rules.shares_by_address {
            self.turn.closed(connection.address);
        }
        Some(connection)
    }

    fn detach(&mut self, conn: ConnId) {
        self.watches.close(conn);
        if let Some(session) = self.connections.get(&conn).and_then(|known| known.session)
            && self.by_session.get(&session) == Some(&conn)
        {
            self.by_session.remove(&session);
        }
    }

    pub(super) fn touch(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        self.turn.output_bytes += connection.uncounted_bytes();
        if connection.touch_output() {
            self.with_output.push(conn);
        }
    }

    /// Everything to be sent, one element per connection.
    pub(in crate::replica) fn take_output(&mut self) -> Vec<Outgoing> {
        self.turn.take_output();
        let mut output = Vec::with_capacity(self.with_output.len());
        for conn in std::mem::take(&mut self.with_output) {
            let Some(connection) = self.connections.get_mut(&conn) else { continue };
            let outgoing = connection.take_output();
            if outgoing.close {
                self.forget(conn);
            }
            output.push(outgoing);
        }
        output
    }

    /// Takes one request. Says what must happen before it can be answered, if anything.
    pub(in crate::replica) fn request(
        &mut self,
        machine: &Machine,
        decider: Decider,
        conn: ConnId,
        request: ClientRequest,
    ) -> Option<Wanted> {
        // When it was read, that is not behind now: the shell's clock goes on while the replica works.
        let at_us = request.arrived_us.map_or(self.now_us, |read_us| read_us.min(self.now_us));
        let connection = self.connections.get_mut(&conn)?;
        if connection.phase != Phase::Open || connection.closing {
            return None;
        }
        let xid = request.xid;
        let asked = Asked { xid, at_us, identities: connection.ids.len() };
        let op = OpCode::from_wire(request.op);
        connection.note_request(xid, op, self.now_us);
        if request.is_auth() {
            self.authenticate(machine, conn, xid, request.decoded);
            return None;
        }
        if self.authentication.turns_away(&connection.ids) {
            connection.send(xid, 0, &Err(ErrorCode::SessionClosedRequireSaslAuth));
            self.hang_up(conn);
            return None;
        }
        self.figures.outstanding += 1;
        let answer = match request.decoded {
            Err(Undecodable::UnknownOp) => {
                connection.closing = true;
                Answer::UnknownOp
            }
            Err(Undecodable::Malformed(_)) => Answer::Failure(ErrorCode::Marshalling),
            Ok(request) if connection.is_read_only && !may_be_read_only(request.class()) => {
                Answer::Failure(ErrorCode::NotReadOnly)
            }
            Ok(Request::CloseSession) if connection.is_read_only => {
                connection.send(xid, machine.last_zxid(), &Ok(Response::Empty));
                self.figures.outstanding -= 1;
                self.touch(conn);
                self.hang_up(conn);
                return None;
            }
            Ok(request) if self.rules.must_confirm(request.class(), decider) => {
                self.sync_asked += 1;
                let (context, answer) = (self.sync_asked, Answer::Read(request));
                self.wait(conn, Pending::Confirmed { context, asked, answer });
                self.sync_waiting.push(conn);
                return Some(Wanted::ReadIndex);
            }
            Ok(Request::CloseSession) => {
                connection.closing = true;
                return self.write(conn, asked, OpCode::CloseSession, TxnOp::CloseSession);
            }
            Ok(write) if self.rules.is_logged(write.class(), machine) => {
                let refused = match decider {
                    Decider::Ensemble => too_deep(&write),
                    Decider::ZooKeeper => changes_members(&write),
                };
                if let Some(refused) = refused {
                    let answer = refused.map_or_else(Answer::Failure, Answer::Results);
                    self.answer_in_turn(machine, conn, asked, answer);
                    return None;
                }
                let refused = self.rules.eager_acl_check
                    && machine.tree().acl_refuses(&connection.ids, &write);
                if refused {
                    Answer::EagerFailure(ErrorCode::NoAuth)
                } else {
                    let txn = TxnOp::Client { op: request.op, body: request.body };
                    return self.write(conn, asked, write.op(), txn);
                }
            }
            Ok(read) => Answer::Read(read),
        };
        self.answer_in_turn(machine, conn, asked, answer);
        None
    }

    /// Answers what was asked last, or keeps it for its turn.
    fn answer_in_turn(&mut self, machine: &Machine, conn: ConnId, asked: Asked, answer: Answer) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let is_next = connection.queue.is_empty() || mutant!("read-overtakes-write");
        if !is_next || connection.is_full() {
            self.wait(conn, Pending::Answer { asked, answer });
        } else {
            let pending = Pending::Answer { asked, answer };
            let is_dear = pending.is_dear(machine.tree());
            if !self.has_room(conn, is_dear) {
                self.wait(conn, pending);
                return self.postpone(conn, is_dear);
            }
            let Pending::Answer { answer, .. } = pending else { return };
            self.answer(machine, conn, asked, answer);
        }
    }

    /// A connection's next answer waits until the voters have followed a change of members, at most
    /// until `until_us`.
    pub(in crate::replica) fn hold_for_members(&mut self, conn: ConnId, until_us: u64) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.hold_for_members(until_us);
            self.wait_for_members.push(conn);
        }
    }

    /// The voters have followed the members.
    pub(in crate::replica) fn members_settled(&mut self) {
        for conn in std::mem::take(&mut self.wait_for_members) {
            if let Some(connection) = self.connections.get_mut(&conn) {
                connection.members_settled();
                self.touch(conn);
            }
        }
    }

    /// Ends those connections for which the voters were waited for long enough: what became of their
    /// request is for their clients to find out.
    pub(in crate::replica) fn give_up_members(&mut self) {
        let now_us = self.now_us;
        let waits = |conn: &ConnId| {
            let connection = self.connections.get(conn);
            connection.and_then(Connection::waits_for_members_until)
        };
        let is_overdue = |conn: &ConnId| waits(conn).is_some_and(|until_us| until_us <= now_us);
        let overdue: Vec<ConnId> =
            self.wait_for_members.iter().copied().filter(is_overdue).collect();
        for conn in overdue {
            self.hang_up(conn);
        }
        let connections = &self.connections;
        self.wait_for_members.retain(|conn| {
            let connection = connections.get(conn);
            connection.is_some_and(|known| known.waits_for_members_until().is_some())
        });
    }

    /// Requests whose read index is not confirmed and applied yet, about: a connection that asked
    /// more than once may be counted for each.
    pub(in crate::replica) fn syncs_waiting(&self) -> u64 {
        self.sync_waiting.len() as u64
    }

    /// Since when the oldest request waits that has to be committed and applied before it is answered.
    pub(in crate::replica) fn waiting_since_us(&self) -> Option<u64> {
        let of_queue = |pending: &Pending| match pending {
            Pending::Write { asked, .. } | Pending::Confirmed { asked, .. } => Some(asked.at_us),
            Pending::Applied { .. } | Pending::Answer { .. } | Pending::Held { .. } => None,
        };
        let connections = self.connections.values();
        let oldest = connections.filter_map(|known| match known.phase {
            Phase::Opening { .. } => Some(known.heard_us),
            Phase::Open => known.queue.iter().find_map(of_queue),
            Phase::Closing => None,
        });
        oldest.min()
    }

    /// The server itself wants a read index: its number.
    pub(in crate::replica) fn ask_sync(&mut self) -> u64 {
        self.sync_asked += 1;
        self.sync_asked
    }

    /// Number of the newest read index that is wanted.
    pub(in crate::replica) fn sync_asked(&self) -> u64 {
        self.sync_asked
    }

    /// Connections with a session.
    pub(in crate::replica) fn open_count(&self) -> u64 {
        self.by_session.len() as u64
    }

    pub(in crate::replica) fn reports(&self) -> Vec<ConnectionReport> {
        self.connections.values().map(Connection::report).collect()
    }

    pub(in crate::replica) fn watch_report(&self, is_full: bool) -> WatchReport {
        if !is_full {
            return self.watches.summary();
        }
        self.watches.report(|conn| self.connections.get(&conn).and_then(|known| known.session))
    }

    pub(in crate::replica) fn reset_reports(&mut self) {
        for connection in self.connections.values_mut() {
            connection.reset_report();
        }
    }

    /// The identities of a request of a connection that had so many of them when it was asked.
    pub(in crate::replica) fn identities(&self, conn: ConnId, count: usize) -> &[Identity] {
        self.connections.get(&conn).map_or(&[], |connection| connection.identities(count))
    }
}

impl Rules {
    /// Whether a request is answered only when a quorum has confirmed that it shows all that was
    /// acknowledged before.
    fn must_confirm(self, class: RequestClass, decider: Decider) -> bool {
        match class {
            RequestClass::Sync => decider == Decider::Ensemble && !mutant!("sync-without-quorum"),
            RequestClass::Read => self.linearizable_reads,
            RequestClass::Write
            | RequestClass::Reconfig
            | RequestClass::Watch
            | RequestClass::Auth
            | RequestClass::Connection
            | RequestClass::CloseSession => false,
        }
    }

    /// Whether the log decides it, or ZooKeeper, which knows what was acknowledged.
    fn is_logged(self, class: RequestClass, machine: &Machine) -> bool {
        let leader_judges = machine.version() > txn_version::FIRST;
        let offers_reconfig = self.is_ensemble && (self.reconfig_enabled || leader_judges);
        match machine.decider() {
            Decider::Ensemble => {
                class == RequestClass::Write || class == RequestClass::Reconfig && offers_reconfig
            }
            Decider::ZooKeeper => {
                matches!(class, RequestClass::Write | RequestClass::Sync | RequestClass::Reconfig)
            }
        }
    }
}

/// Whether a connection that may only read may ask for it.
fn may_be_read_only(class: RequestClass) -> bool {
    !matches!(class, RequestClass::Write | RequestClass::Sync | RequestClass::Reconfig)
}
