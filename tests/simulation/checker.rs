//! Judges everything that servers say, against the model.
//!
//! *Owns* the history, what every server has shown of it, the sessions and what was ever promised.
//! The audit lines are the witness: they say in which order transactions took effect, and everything
//! else must fit: every result, every Stat, every read at the zxid of its reply, every event.
//! *Invariants* checked here and in `judge.rs`: what was once applied is there after every crash and
//! on every server, with the same digest; zxids only rise; a session's requests take effect in
//! order, each at most once; a session ends neither too early nor too late; what is read after a
//! `sync` is no older than what anybody had been told before it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use lockkeeper::proto::connect::ConnectResponse;
use lockkeeper::proto::{ConnectRequest, Request, frame};
use lockkeeper::replica::{Append, AuditLine, ClientRequest, ConnId, Outgoing};
use lockkeeper::tree::{Identity, Tree};

use super::conn::{Conn, Frame, Phase, Took, Violation};
use super::coverage::Coverage;
use super::history::History;
use super::model::{Model, Owner};
use super::sessions::{Session, Write};
use super::view::View;

/// The checker.
#[derive(Debug)]
pub struct Checker {
    pub history: History,
    pub(super) sessions: BTreeMap<i64, Session>,
    pub(super) views: Vec<View>,
    /// By index and term: who handed the entry to a log first, when by that server's clock, and the
    /// zxid there. That is the leader of the term.
    pub(super) proposed: BTreeMap<(u64, u64), (usize, u64, i64)>,
    /// How many inputs servers were given.
    inputs: u64,
    /// The highest zxid of a write that anybody was told of.
    told: i64,
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
    pub extended_types: bool,
    /// How much later than its timeout a session may end.
    pub grace_us: u64,
}

impl Checker {
    pub fn new(rules: Rules) -> Self {
        let model = Model::new(rules.extended_types);
        Self {
            views: (0..rules.servers).map(|_| View::new(model.clone())).collect(),
            history: History::new(model),
            sessions: BTreeMap::new(),
            proposed: BTreeMap::new(),
            inputs: 0,
            told: 0,
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
    }

    /// A server has recovered its state up to `zxid`.
    pub fn recovered(
        &mut self,
        server: usize,
        zxid: i64,
        digest: u128,
        tree: &Tree,
    ) -> Result<(), Violation> {
        let place = self.history.place_of(zxid);
        match place.checked_sub(1).map(|last| &self.history.lines[last].audit) {
            None if zxid == 0 => {}
            Some(line) if line.zxid == zxid && line.digest == digest => {}
            known => {
                return Err(format!(
                    "recovered zxid {zxid:#x} with digest {digest:032x}, but known is {known:?}"
                ));
            }
        }
        self.views[server].jump(&self.history, place);
        self.compare(server, tree)
    }

    /// A server serves from now on, alone or as the leader.
    pub fn leads(&mut self, server: usize, now_us: u64) -> Result<(), Violation> {
        let view = &mut self.views[server];
        if view.serving_since.is_some() {
            return Ok(());
        }
        if let Some(missing) = self.history.lines.get(view.place..).filter(|m| !m.is_empty()) {
            let zxid = self.history.zxid_at(view.place);
            return Err(format!("it leads at zxid {zxid:#x}, but has not applied {missing:?}"));
        }
        view.serving_since = Some(now_us);
        for session in self.sessions.values_mut().filter(|session| session.is_open()) {
            session.timeout_us = session.opened_timeout_us;
            session.refused_us = None;
            session.hear(server, now_us);
            session.lose(|_| true);
        }
        Ok(())
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
        self.views[server].conns.insert(conn, Conn::new(remote, request, self.inputs));
    }

    /// A server was told that a connection is gone.
    pub fn closed(&mut self, server: usize, conn: ConnId) {
        self.views[server].conns.remove(&conn);
        for session in self.sessions.values_mut().filter(|session| session.conn == Some(conn)) {
            session.conn = None;
        }
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
        let Some(known) = self.views[server].conns.get_mut(&conn) else { return };
        let Some(id) = known.session() else { return };
        let session = self.sessions.get_mut(&id).expect("a connection's session is known");
        for request in requests {
            if !request.is_auth() && known.must_close.is_none() {
                session.hear(server, now_us);
            }
            let sets_watches = matches!(request.decoded, Ok(Request::SetWatches { .. }));
            self.coverage.setwatches += u64::from(sets_watches);
            if !known.request(request, session.owes_before(conn), self.told) {
                continue;
            }
            let decoded = request.decoded.clone().expect("a write was decoded");
            let write = Write {
                conn,
                order: known.writes,
                given: self.inputs,
                floor: self.told,
                request: decoded,
                ids: known.ids.clone(),
                is_applied: false,
                is_lost: false,
            };
            session.writes.insert(request.xid, write);
            session.under_way.insert((conn, request.xid));
        }
    }

    /// A replica wants this to be durable.
    pub fn appended(&mut self, server: usize, append: &Append, now_us: u64) {
        let zxid = self.history.zxid_at(self.views[server].place);
        for entry in &append.entries {
            let proposal = (server, now_us, zxid);
            self.proposed.entry((entry.index, entry.term)).or_insert(proposal);
        }
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
        self.explain(server, &touched, now_us)?;
        for line in audit {
            self.apply(server, line, now_us)?;
            self.explain(server, &touched, now_us)?;
        }
        for id in touched {
            self.finish(server, id)?;
        }
        Ok(())
    }

    /// Explains every frame that belongs to the server's zxid.
    fn explain(
        &mut self,
        server: usize,
        touched: &BTreeSet<ConnId>,
        now_us: u64,
    ) -> Result<(), Violation> {
        let mut progress = true;
        while std::mem::take(&mut progress) {
            for id in touched {
                progress |= self.explain_connection(server, *id)?;
            }
            for id in touched {
                progress |= self.take_connect_response(server, *id, now_us)?;
            }
        }
        Ok(())
    }

    fn explain_connection(&mut self, server: usize, id: ConnId) -> Result<bool, Violation> {
        let View { place, model, conns, .. } = &mut self.views[server];
        let zxid = self.history.zxid_at(*place);
        let Some(conn) = conns.get_mut(&id) else { return Ok(false) };
        let mut progress = false;
        while let Some(session) = conn.session() {
            let took = conn.take(model, zxid);
            match took.map_err(|what| format!("connection {id}: {what}"))? {
                Took::Later => break,
                Took::Event => self.coverage.events += 1,
                Took::Reply => {
                    self.coverage.replies += 1;
                    self.told = self.told.max(zxid);
                }
                Took::Read => {
                    self.coverage.replies += 1;
                    let session = self.sessions.get(&session);
                    if session.is_some_and(|session| session.owes_before(id)) {
                        return Err(format!(
                            "connection {id}: a read passed an earlier write of its session"
                        ));
                    }
                }
            }
            progress = true;
        }
        Ok(progress)
    }

    /// A connection must end exactly when it must.
    fn finish(&mut self, server: usize, id: ConnId) -> Result<(), Violation> {
        let view = &self.views[server];
        let Some(conn) = view.conns.get(&id) else { return Ok(()) };
        if let Some(frame) = conn.inbox.front() {
            return Err(format!("connection {id}: a frame from the future: {frame:?}"));
        }
        let refused = match &conn.phase {
            Phase::Connecting(_) => conn.closes,
            Phase::Open(_) => false,
        };
        if refused && conn.must_close.is_none() && view.serving_since.is_some() {
            return Err(format!("connection {id}: {:?} was sent away", conn.phase));
        }
        match (conn.closes, conn.must_close) {
            (true, None) if !refused => Err(format!("connection {id} was ended for no reason")),
            (false, Some(why)) => Err(format!("connection {id} goes on after: {why}")),
            (true, _) => {
                self.coverage.hang_ups += 1;
                self.closed(server, id);
                Ok(())
            }
            (false, None) => Ok(()),
        }
    }

    /// The first frame of a connection.
    fn take_connect_response(
        &mut self,
        server: usize,
        id: ConnId,
        now_us: u64,
    ) -> Result<bool, Violation> {
        let View { place, conns, .. } = &mut self.views[server];
        let zxid = self.history.zxid_at(*place);
        let Some(conn) = conns.get_mut(&id) else { return Ok(false) };
        let Phase::Connecting(request) = &conn.phase else { return Ok(false) };
        let Some(frame) = conn.inbox.front() else { return Ok(false) };
        let request = request.clone();
        let response = ConnectResponse::decode(frame.payload.clone())
            .map_err(|e| format!("connection {id}: a connect response: {e}"))?;
        if response.session_id == 0 {
            conn.inbox.pop_front();
            conn.end("the session is gone");
            return self.refused(server, id, &request, now_us).map(|()| true);
        }
        let Some(session) = self.sessions.get_mut(&response.session_id) else { return Ok(false) };
        if session.opened >= *place {
            return Ok(false);
        }
        conn.inbox.pop_front();
        let (min, max) = self.rules.timeouts_ms;
        let asked = request.timeout_ms.clamp(min, max);
        let is_new = request.session_id == 0;
        let is_right = session.is_open_at(*place)
            && response.timeout_ms == asked
            && response.read_only == request.read_only.map(|_| false)
            && is_new != session.is_attached
            && (is_new || response.session_id == request.session_id)
            && (is_new || session.password == response.password)
            && (is_new || request.password[..] == response.password[..])
            && request.last_zxid_seen <= zxid;
        if !is_right {
            return Err(format!("connection {id}: {request:?} answered by {response:?}"));
        }
        conn.phase = Phase::Open(response.session_id);
        session.password = response.password;
        session.timeout_us = asked as u64 * 1000;
        if !std::mem::replace(&mut session.is_attached, true) {
            session.opened_timeout_us = session.timeout_us;
        }
        session.hear(server, now_us);
        let old = session.conn.replace(id);
        // What came over the old connection behind this one was not looked at.
        let since = conn.since;
        session.lose(|write| write.given > since);
        if let Some(old) = old.and_then(|old| conns.get_mut(&old)) {
            old.end("its session moved");
            self.coverage.sessions_moved += 1;
        }
        Ok(true)
    }

    /// A client was told that its session is gone.
    fn refused(
        &mut self,
        server: usize,
        id: ConnId,
        request: &ConnectRequest,
        now_us: u64,
    ) -> Result<(), Violation> {
        self.coverage.sessions_refused += 1;
        let place = self.views[server].place;
        let known = self.sessions.get_mut(&request.session_id);
        let known = known.filter(|session| session.password[..] == request.password[..]);
        let is_alive = known.as_ref().is_some_and(|session| {
            session.is_open_at(place) && !session.may_be_closing(server, now_us)
        });
        if let Some(session) = known {
            session.refused_us.get_or_insert(now_us);
        }
        if is_alive || request.session_id == 0 {
            return Err(format!("connection {id}: {request:?} was refused"));
        }
        Ok(())
    }

    /// After a batch: nothing may be owed.
    pub fn settled(&mut self, server: usize, now_us: u64) -> Result<(), Violation> {
        let view = &self.views[server];
        for (id, conn) in &view.conns {
            let session = conn.session().and_then(|session| self.sessions.get(&session));
            let waits = session.is_some_and(|session| session.owes_before(*id));
            conn.settled(waits).map_err(|what| format!("connection {id}: {what}"))?;
        }
        let Some(since) = view.serving_since else { return Ok(()) };
        for (id, session) in self.sessions.iter().filter(|(_, session)| session.is_open()) {
            let heard = session.last_heard(server, u64::MAX);
            let last = heard.map_or(0, |(heard, _)| heard).max(since);
            // Of a session that nobody was told of, the timeout is not known either.
            let most_us = self.rules.timeouts_ms.1 as u64 * 1000;
            let timeout_us = if session.is_attached { session.timeout_us } else { most_us };
            let late = now_us.saturating_sub(last + timeout_us);
            let refused = session.refused_us.map_or(0, |refused| now_us - refused);
            if late.max(refused) > self.rules.grace_us {
                return Err(format!("session {id:#x} should have ended {late} us ago"));
            }
        }
        Ok(())
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
                let plain = |acl: &lockkeeper::proto::Acl| {
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

    /// Open sessions.
    pub fn open_sessions(&self) -> impl Iterator<Item = i64> + '_ {
        self.sessions.iter().filter(|(_, session)| session.is_open()).map(|(id, _)| *id)
    }
}
