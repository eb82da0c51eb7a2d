//! Judges everything that servers say, against the model.
//!
//! *Owns* the history, what every server has shown of it, the sessions and what was ever promised.
//! The audit lines are the witness: they say in which order transactions took effect, and everything
//! else must fit: every result, every Stat, every read at the zxid of its reply, every event.
//! *Invariants* checked here and in `judge.rs`: what was once applied is there after every crash and
//! on every server, with the same digest; zxids only rise; a session's requests take effect in
//! order, each at most once; a session ends neither too early nor too late; what is read after a
//! `sync` is no older than what anybody could have been told before it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use lockkeeper_core::proto::connect::ConnectResponse;
use lockkeeper_core::proto::{ConnectRequest, Request, frame};
use lockkeeper_core::replica::{
    Append, AuditLine, ClientRequest, ConnId, Machine, Mark, Membership, Outgoing,
};
use lockkeeper_core::tree::{self, Identity, Tree};

use super::agreement::Agreement;
use super::clocks::Clocks;
use super::conn::{Conn, Frame, Phase, Took, Violation};
use super::coverage::Coverage;
use super::history::History;
use super::model::{Model, Owner};
use super::observer::Observer;
use super::reaped::Reaped;
use super::sessions::{Session, Write};
use super::view::View;

/// The checker.
#[derive(Debug)]
pub struct Checker {
    pub history: History,
    pub agreement: Agreement,
    pub clocks: Clocks,
    pub observer: Observer,
    pub(super) sessions: BTreeMap<i64, Session>,
    pub(super) views: Vec<View>,
    /// By server: its newest connection that ended with the process that had it.
    of_earlier: Vec<ConnId>,
    /// What connections asked for when they began, and that server.
    pub(super) handshakes: BTreeMap<ConnId, (usize, ConnectRequest)>,
    /// By connection and number there.
    pub(super) writes: BTreeMap<(ConnId, u64), Write>,
    /// How many transactions of each connection were applied.
    pub(super) applied: BTreeMap<ConnId, u64>,
    /// How many inputs servers were given.
    pub(super) inputs: u64,
    /// What was given to a lone server before this many inputs was lost in a crash, if it was not
    /// applied.
    pub(super) lost: u64,
    /// No connection may be ended without a reason from now on.
    pub is_strict: bool,
    /// Sessions that a server has given to a client in this turn.
    given: Vec<i64>,
    /// When the removals were proposed that the last leader to do so proposed in its term.
    pub(super) reaped: Reaped,
    /// Servers that stood still, and between which times of the world.
    pub(super) pauses: Vec<(usize, u64, u64)>,
    pub(super) rules: Rules,
    pub coverage: Coverage,
}

/// What is fixed for a run.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Servers have the ids from 1 to this.
    pub servers: usize,
    pub timeouts_ms: (i32, i32),
    pub container_never_used_ms: i64,
    /// Rules in all servers' files, in worlds in which these decide.
    pub of_files: tree::Rules,
    /// Whether the ensemble begins with an earlier version.
    pub upgrades: bool,
    pub linearizable_reads: bool,
    /// How much later than its timeout a session may end.
    pub grace_us: u64,
    /// How fast each server's clock runs, in 1000.
    pub clock_rates: [u64; 5],
    /// Longest time on the way from one server to another.
    pub peer_latency_us_max: u64,
    /// How much longer than its timeout a silent session lives.
    pub expiry_grace_us: u64,
    /// How many containers and TTL znodes may be removed in a minute, and how late that may be proposed.
    pub reaped_per_minute: u32,
    pub reaped_late_us: u64,
}

impl Rules {
    /// How fast the clocks of this server and of the fastest one run.
    fn rates(&self, server: usize) -> (u64, u64) {
        let fastest = self.clock_rates.iter().copied().max().unwrap_or(1000);
        (self.clock_rates[server], fastest)
    }
}

impl Checker {
    pub fn new(rules: Rules, initial: &Membership) -> Self {
        let model = Model::new();
        Self {
            views: (0..rules.servers).map(|_| View::new(model.clone())).collect(),
            history: History::new(model),
            agreement: Agreement::new(rules.servers, initial),
            clocks: Clocks::new(rules.servers),
            observer: Observer::default(),
            sessions: BTreeMap::new(),
            of_earlier: vec![0; rules.servers],
            handshakes: BTreeMap::new(),
            writes: BTreeMap::new(),
            applied: BTreeMap::new(),
            inputs: 0,
            lost: 0,
            is_strict: rules.servers == 1,
            given: Vec::new(),
            reaped: Reaped::default(),
            pauses: Vec::new(),
            rules,
            coverage: Coverage::default(),
        }
    }

    /// zxid of the last transaction ever applied.
    pub fn zxid(&self) -> i64 {
        self.history.zxid()
    }

    /// Index of the entry with the last transaction that a server has applied.
    pub fn last_index(&self, server: usize) -> u64 {
        let last = self.views[server].place.checked_sub(1);
        last.map_or(0, |last| self.history.lines[last].audit.index)
    }

    /// What a server shows.
    pub fn view(&self, server: usize) -> &View {
        &self.views[server]
    }

    /// A server died: connections and watches are gone, outcomes of what was in flight unknown.
    pub fn crashed(&mut self, server: usize) {
        self.views[server].crashed();
        self.of_earlier[server] = self.handshakes.last_key_value().map_or(0, |(conn, _)| *conn);
        self.clocks.forget(server);
    }

    /// The disk of a server that does not run was emptied.
    pub fn wiped(&mut self, server: usize) {
        self.views[server].wiped(&self.history);
        self.agreement.wiped(server);
    }

    /// A server has recovered its state; these transactions it has applied on the way.
    pub fn recovered(
        &mut self,
        server: usize,
        audit: &[AuditLine],
        machine: &Machine,
        now_us: u64,
    ) -> Result<(), Violation> {
        self.observer.started(server);
        let known = audit.partition_point(|line| line.zxid <= self.history.zxid());
        let (known, new) = audit.split_at(known);
        for line in known {
            let place = self.history.place_of(line.zxid);
            let last = place.checked_sub(1).map(|last| &self.history.lines[last].audit);
            if last != Some(line) {
                return Err(format!("recovered {line:?}, but it was {last:?}"));
            }
        }
        if !new.is_empty() {
            // It had learnt that all others agree, and died before it could show what came of it.
            self.views[server].jump(&self.history, self.history.len());
            for line in new {
                self.apply(server, line, now_us)?;
            }
            self.coverage.first_applied_at_restart += new.len() as u64;
        }
        let place = self.place_of(machine.last_zxid(), machine.digest())?;
        self.views[server].jump(&self.history, place);
        self.compare(server, machine.tree())
    }

    /// A server has installed the state of another one.
    fn installed(&mut self, server: usize, mark: &Mark) -> Result<(), Violation> {
        let place = self.place_of(mark.zxid, mark.digest)?;
        if place < self.views[server].place {
            return Err(format!("{mark:?} takes server {} back", server + 1));
        }
        self.views[server].jump(&self.history, place);
        self.coverage.installs += 1;
        Ok(())
    }

    fn place_of(&self, zxid: i64, digest: u128) -> Result<usize, Violation> {
        let place = self.history.place_of(zxid);
        match place.checked_sub(1).map(|last| &self.history.lines[last].audit) {
            None if zxid == 0 => Ok(place),
            Some(line) if line.zxid == zxid && line.digest == digest => Ok(place),
            known => Err(format!(
                "recovered zxid {zxid:#x} with digest {digest:032x}, but known is {known:?}"
            )),
        }
    }

    /// A server leads in a term, and serves.
    pub fn leads(&mut self, server: usize, term: u64, now_us: u64) -> Result<(), Violation> {
        self.observer.goes_on_leading(server, self.rules.clock_rates[server]);
        let view = &mut self.views[server];
        if view.leads_in == Some(term) {
            return Ok(());
        }
        self.observer.leads(server, term, self.history.zxid_at(view.place));
        // One that stood still may begin in a term that is over: what it proposed in it, behind its first
        // entry, a later leader may have had applied already.
        let missing = self.history.lines.get(view.place).map(|line| &line.audit);
        if let Some(missing) = missing.filter(|missing| missing.term < term) {
            let zxid = self.history.zxid_at(view.place);
            return Err(format!(
                "it leads in term {term} at zxid {zxid:#x}, but has not applied {missing:?}"
            ));
        }
        view.leads_in = Some(term);
        self.agreement.leads(server, term)?;
        view.serving_since = Some(now_us);
        let place = view.place;
        for session in self.sessions.values_mut().filter(|session| session.is_open_at(place)) {
            session.hear(server, place, now_us);
        }
        if self.rules.servers == 1 {
            self.lost = self.inputs;
        }
        Ok(())
    }

    /// A server stood still between these times of the world.
    pub fn stood_still(&mut self, server: usize, since_us: u64, until_us: u64) {
        self.pauses.push((server, since_us, until_us));
    }

    /// A server leads no longer.
    pub fn follows(&mut self, server: usize) {
        self.views[server].leads_in = None;
        self.views[server].serving_since = None;
    }

    /// A server, if it leads, was told by another one who was heard from there.
    pub fn touched(&mut self, server: usize, by: usize, sessions: &[i64], now_us: u64) {
        let place = self.views[server].place;
        for id in sessions {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            // Who has gone elsewhere is heard of from there, and whose server was started anew belongs to no server
            // before it has the session again.
            let owner = session.owner_at(place).map(|grant| grant.conn);
            let owner = owner.filter(|conn| *conn > self.of_earlier[by]);
            let owner = owner.and_then(|conn| self.handshakes.get(&conn));
            if owner.is_some_and(|(host, _)| *host == by) {
                session.hear(server, place, now_us);
            }
        }
    }

    /// A server was told of a connection.
    pub fn connected(
        &mut self,
        server: usize,
        conn: ConnId,
        remote: String,
        request: ConnectRequest,
    ) {
        self.inputs += 1;
        self.observer.connected(conn, server);
        self.handshakes.insert(conn, (server, request.clone()));
        let View { place, conns, model, .. } = &mut self.views[server];
        let is_ahead = request.last_zxid_seen > self.history.zxid_at(*place);
        let mut known = Conn::new(remote, request, self.rules.linearizable_reads);
        known.own = model.own;
        known.is_ahead = is_ahead;
        conns.insert(conn, known);
    }

    /// A server was told that a connection is gone.
    pub fn closed(&mut self, server: usize, conn: ConnId) {
        self.views[server].conns.remove(&conn);
    }

    /// A server was given requests.
    pub fn requests(
        &mut self,
        server: usize,
        conn: ConnId,
        requests: &[ClientRequest],
        now_us: u64,
    ) {
        self.inputs += 1;
        // Anybody may have been told of that.
        let floor = self.history.zxid();
        let logs_reconfig = self.logs_reconfig(server);
        let View { place, conns, .. } = &mut self.views[server];
        let Some(known) = conns.get_mut(&conn) else { return };
        let Some(id) = known.session() else { return };
        let session = self.sessions.get_mut(&id).expect("a connection's session is known");
        for request in requests {
            if !request.is_auth() && known.must_close.is_none() {
                session.hear(server, *place, now_us);
                self.observer.heard(server, id);
            }
            let sets_watches = matches!(request.decoded, Ok(Request::SetWatches { .. }));
            self.coverage.setwatches += u64::from(sets_watches);
            if !known.request(request, logs_reconfig, floor, now_us) {
                continue;
            }
            let write = Write {
                session: id,
                xid: request.xid,
                given: self.inputs,
                floor,
                request: request.decoded.clone().expect("a write was decoded"),
                ids: known.ids.clone(),
            };
            self.writes.insert((conn, known.writes), write);
        }
    }

    /// Whether a leader judges whether members may be changed: in an ensemble of the second version.
    fn logs_reconfig(&self, server: usize) -> bool {
        let lines = || &self.history.lines[..self.views[server].place];
        let is_second =
            || !self.rules.upgrades || lines().iter().any(|line| line.audit.op == "upgrade");
        self.rules.servers > 1 && is_second()
    }

    /// A server has these rules from now on.
    pub fn configured(&mut self, server: usize, rules: tree::Rules) {
        self.views[server].model.own = rules;
    }

    /// A replica wants this to be durable.
    pub fn appended(
        &mut self,
        server: usize,
        append: &Append,
        now_us: u64,
    ) -> Result<(), Violation> {
        self.observer.appended(append);
        if let Some(mark) = &append.install {
            self.installed(server, mark)?;
        }
        let (place, told_ms) = (self.views[server].place, self.clocks.highest_told(server));
        self.agreement.appended(server, append, now_us, place, told_ms)
    }

    /// What a replica wants done. Everything in it must be true.
    pub fn ready(
        &mut self,
        server: usize,
        audit: &[AuditLine],
        client: &[Outgoing],
        now_us: u64,
    ) -> Result<(), Violation> {
        let mut touched = BTreeSet::new();
        for outgoing in client {
            // It was closed in this batch.
            let Some(conn) = self.views[server].conns.get_mut(&outgoing.conn) else { continue };
            let mut bytes = BytesMut::from(&outgoing.frames[..]);
            while let Ok(Some(payload)) = frame::next(&mut bytes, usize::MAX) {
                conn.inbox.push_back(Frame { payload });
            }
            if !bytes.is_empty() {
                return Err(format!("connection {}: half a frame", outgoing.conn));
            }
            conn.closes |= outgoing.close;
            touched.insert(outgoing.conn);
        }
        self.explain(server, &touched)?;
        for line in audit {
            self.apply(server, line, now_us)?;
            self.explain(server, &touched)?;
        }
        for id in touched {
            self.finish(server, id)?;
        }
        Ok(())
    }

    /// Explains every frame that belongs to the server's zxid.
    fn explain(&mut self, server: usize, touched: &BTreeSet<ConnId>) -> Result<(), Violation> {
        let mut progress = true;
        while std::mem::take(&mut progress) {
            for id in touched {
                progress |= self.explain_connection(server, *id)?;
            }
            for id in touched {
                progress |= self.take_connect_response(server, *id)?;
            }
        }
        Ok(())
    }

    fn explain_connection(&mut self, server: usize, id: ConnId) -> Result<bool, Violation> {
        let rates = self.rules.rates(server);
        let View { place, model, conns, .. } = &mut self.views[server];
        let zxid = self.history.zxid_at(*place);
        let Some(conn) = conns.get_mut(&id) else { return Ok(false) };
        let mut progress = false;
        while let Some(session) = conn.session() {
            let took = conn.take(model, zxid);
            // A server that closes the connection instead has promised its client nothing.
            if let Some(heard_us) = conn.answered_us.take()
                && let Some(session) = self.sessions.get_mut(&session)
            {
                session.answer(server, *place, heard_us, rates);
            }
            match took.map_err(|what| format!("connection {id}: {what}"))? {
                Took::Later => break,
                Took::Event => self.coverage.events += 1,
                Took::Reply => self.coverage.replies += 1,
            }
            progress = true;
        }
        Ok(progress)
    }

    /// A connection must end when it must, and not without a reason.
    fn finish(&mut self, server: usize, id: ConnId) -> Result<(), Violation> {
        let view = &self.views[server];
        let Some(conn) = view.conns.get(&id) else { return Ok(()) };
        if let Some(frame) = conn.inbox.front() {
            return Err(format!("connection {id}: a frame from the future: {frame:?}"));
        }
        let is_reason = match &conn.phase {
            // The client had seen more than this server had, which may have caught up since in the
            // same batch; or nobody leads.
            Phase::Connecting(_) => {
                conn.is_ahead || self.rules.servers == 1 && view.serving_since.is_none()
            }
            Phase::Open(_) => false,
        };
        match (conn.closes, conn.must_close) {
            (true, None) if self.is_strict && !is_reason => {
                Err(format!("connection {id} was ended for no reason: {:?}", conn.phase))
            }
            (false, Some(why)) => Err(format!("connection {id} goes on after: {why}")),
            (true, why) => {
                self.coverage.hang_ups += 1;
                self.coverage.sent_away += u64::from(why.is_none());
                self.closed(server, id);
                Ok(())
            }
            (false, None) => Ok(()),
        }
    }

    /// The first frame of a connection.
    fn take_connect_response(&mut self, server: usize, id: ConnId) -> Result<bool, Violation> {
        let View { place, conns, .. } = &mut self.views[server];
        let zxid = self.history.zxid_at(*place);
        let Some(conn) = conns.get_mut(&id) else { return Ok(false) };
        let Phase::Connecting(request) = &conn.phase else { return Ok(false) };
        let Some(frame) = conn.inbox.front() else { return Ok(false) };
        let request = request.clone();
        let response = ConnectResponse::decode(frame.payload.clone())
            .map_err(|e| format!("connection {id}: a connect response: {e}"))?;
        if response.session_id == 0 {
            // Without a transaction only who does not know the password of an open session.
            let session = self.sessions.get(&request.session_id);
            let is_stranger = session.is_some_and(|session| {
                session.is_open_at(*place) && session.password[..] != request.password[..]
            });
            if !is_stranger && !conn.is_refused {
                return Ok(false);
            }
            conn.inbox.pop_front();
            conn.end("the session is gone");
            self.coverage.sessions_refused += 1;
            return Ok(true);
        }
        let Some(grant) = conn.granted.take() else { return Ok(false) };
        conn.inbox.pop_front();
        let is_right = response.session_id == grant.session
            && response.timeout_ms == grant.timeout_ms
            && response.password == grant.password
            && response.read_only == request.read_only.map(|_| false)
            && request.last_zxid_seen <= zxid;
        if !is_right {
            return Err(format!("connection {id}: {request:?} answered by {response:?}"));
        }
        conn.phase = Phase::Open(response.session_id);
        self.given.push(response.session_id);
        Ok(true)
    }

    /// After a batch: nothing may be owed.
    pub fn settled(&mut self, server: usize, now_us: u64) -> Result<(), Violation> {
        let view = &self.views[server];
        let rates = self.rules.rates(server);
        for id in self.given.drain(..) {
            let session = self.sessions.get_mut(&id).expect("a connection's session is known");
            session.give(server, view.place, now_us, rates);
        }
        for (id, conn) in &view.conns {
            conn.settled().map_err(|what| format!("connection {id}: {what}"))?;
        }
        // A leader alone is never kept from closing it.
        let since = view.serving_since.filter(|_| self.rules.servers == 1);
        let Some(since) = since else { return Ok(()) };
        for (id, session) in self.sessions.iter().filter(|(_, session)| session.is_open()) {
            let (heard_us, timeout_us) =
                session.last_heard(server, u64::MAX).expect("its opening was heard");
            let ends_us = heard_us.max(since) + timeout_us + self.rules.expiry_grace_us;
            let late = now_us.saturating_sub(ends_us);
            if late > self.rules.grace_us {
                return Err(format!("session {id:#x} should have ended {late} us ago"));
            }
        }
        Ok(())
    }

    /// A server has as many watches as its connections have set: one that is left over costs memory for ever.
    pub fn watches(&self, server: usize, count: u64) -> Result<(), Violation> {
        let known = self.views[server].conns.values().map(|conn| conn.watches.len() as u64);
        let known: u64 = known.sum();
        if count == known { Ok(()) } else { Err(format!("{count} watches, expected {known}")) }
    }

    /// The whole state of a server, against the model.
    pub fn compare(&self, server: usize, tree: &Tree) -> Result<(), Violation> {
        let View { place, model, .. } = &self.views[server];
        let all_powerful = [Identity { scheme: "super".into(), id: "".into() }];
        if tree.node_count() != model.znodes.len() {
            let (theirs, ours) = (tree.node_count(), model.znodes.len());
            return Err(format!("{theirs} znodes, expected {ours}"));
        }
        for (path, znode) in &model.znodes {
            let got = tree.get_data(&all_powerful, path);
            let expected = Ok((znode.data.as_deref(), znode.stat()));
            if got != expected {
                return Err(format!("{path}\n  got      {got:?}\n  expected {expected:?}"));
            }
            let acl = tree.get_acl(&all_powerful, path).map(|(acl, _)| {
                let plain = |acl: &lockkeeper_core::proto::Acl| {
                    (acl.perms, acl.scheme.to_string(), acl.id.to_string())
                };
                acl.iter().map(plain).collect::<Vec<_>>()
            });
            if acl.as_ref() != Ok(&znode.acl) {
                return Err(format!("ACL of {path}: {acl:?}, expected {:?}", znode.acl));
            }
            if let Owner::Session(owner) = znode.owner
                && !self.sessions.get(&owner).is_some_and(|session| session.is_open_at(*place))
            {
                return Err(format!("{path} belongs to the closed session {owner:#x}"));
            }
        }
        Ok(())
    }

    /// The state behind everything that was ever applied.
    pub fn newest(&self) -> Cow<'_, Model> {
        let place = self.history.len();
        match self.views.iter().find(|view| view.place == place) {
            Some(view) => Cow::Borrowed(&view.model),
            // Whoever was there is gone.
            None => Cow::Owned(self.history.model_at(place)),
        }
    }

    /// Open sessions.
    pub fn open_sessions(&self) -> impl Iterator<Item = i64> + '_ {
        self.sessions.iter().filter(|(_, session)| session.is_open()).map(|(id, _)| *id)
    }
}
