//! Judges everything that a server says, against the model.
//!
//! *Owns* the model, the sessions and what was ever promised. The audit lines are the witness: they
//! say in which order transactions took effect, and everything else must fit: every result, every
//! Stat, every read at the zxid of its reply, every event. *Invariants* checked here: what was once
//! applied is there after every crash, with the same digest; zxids only rise; a session's requests
//! take effect in order, each at most once; a session ends neither too early nor too late.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use lockkeeper::proto::connect::ConnectResponse;
use lockkeeper::proto::{Request, Response, frame};
use lockkeeper::replica::{Append, AuditLine, ClientRequest, ConnId, Outgoing};
use lockkeeper::tree::{Identity, Tree};

use super::conn::{Conn, Frame, Phase, Took, Violation};
use super::coverage::Coverage;
use super::model::{self, Code, Event, Id, Model, Owner, Txn};

/// A write that the server was given.
#[derive(Clone, Debug)]
struct Write {
    conn: ConnId,
    order: u64,
    /// When the server was given it, counted in inputs.
    given: u64,
    request: Request,
    ids: Vec<Id>,
    is_applied: bool,
    /// A crash took it before it was durable.
    is_lost: bool,
}

/// A session, open or not.
#[derive(Debug)]
struct Session {
    timeout_us: u64,
    opened_timeout_us: u64,
    password: [u8; 16],
    is_open: bool,
    is_attached: bool,
    conn: Option<ConnId>,
    /// When it was heard from, and its timeout from then on.
    heard: Vec<(u64, u64)>,
    /// It was refused because its end was on its way, so it must come.
    refused_us: Option<u64>,
    writes: BTreeMap<i32, Write>,
    /// Connection and xid of those that are on their way.
    under_way: BTreeSet<(ConnId, i32)>,
    last_applied: (ConnId, u64),
}

/// The checker.
#[derive(Debug)]
pub struct Checker {
    pub model: Model,
    sessions: BTreeMap<i64, Session>,
    conns: BTreeMap<ConnId, Conn>,
    /// Every transaction ever applied.
    lines: Vec<AuditLine>,
    /// How many of them the running server has gone through again.
    replayed: usize,
    /// When an entry was handed to the log, and the zxid then.
    appended: BTreeMap<u64, (u64, i64)>,
    serving_since: Option<u64>,
    /// How many inputs servers were given.
    inputs: u64,
    server_id: i64,
    timeouts_ms: (i32, i32),
    container_never_used_ms: i64,
    /// How much later than its timeout a session may end.
    grace_us: u64,
    pub coverage: Coverage,
}

/// What is fixed for a run.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub server_id: u8,
    pub timeouts_ms: (i32, i32),
    pub container_never_used_ms: i64,
    pub extended_types: bool,
    pub grace_us: u64,
}

impl Checker {
    pub fn new(rules: Rules) -> Self {
        Self {
            model: Model::new(rules.extended_types),
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            lines: Vec::new(),
            replayed: 0,
            appended: BTreeMap::new(),
            serving_since: None,
            inputs: 0,
            server_id: rules.server_id.into(),
            timeouts_ms: rules.timeouts_ms,
            container_never_used_ms: rules.container_never_used_ms,
            grace_us: rules.grace_us,
            coverage: Coverage::default(),
        }
    }

    /// zxid of the last transaction ever applied.
    pub fn zxid(&self) -> i64 {
        self.lines.last().map_or(0, |line| line.zxid)
    }

    /// Index of the entry with the last transaction ever applied.
    pub fn last_index(&self) -> u64 {
        self.lines.last().map_or(0, |line| line.index)
    }

    /// The server died: connections and watches are gone, outcomes of what was in flight unknown.
    pub fn crashed(&mut self) {
        self.conns.clear();
        self.serving_since = None;
        for session in self.sessions.values_mut() {
            session.conn = None;
        }
    }

    /// A server has recovered its state up to `zxid`.
    pub fn recovered(&mut self, zxid: i64, digest: u128, tree: &Tree) -> Result<(), Violation> {
        self.replayed = self.lines.partition_point(|line| line.zxid <= zxid);
        let known = self.replayed.checked_sub(1).map(|at| &self.lines[at]);
        match known {
            None if zxid == 0 => {}
            Some(line) if line.zxid == zxid && line.digest == digest => {}
            known => {
                return Err(format!(
                    "recovered zxid {zxid:#x} with digest {digest:032x}, but known is {known:?}"
                ));
            }
        }
        if self.replayed == self.lines.len() {
            self.compare(tree)?;
        }
        Ok(())
    }

    /// The server serves from now on.
    pub fn serves(&mut self, now_us: u64, zxid: i64) -> Result<(), Violation> {
        if self.serving_since.is_some() {
            return Ok(());
        }
        if zxid < self.zxid() {
            let (last, missing) = (self.zxid(), &self.lines[self.replayed..]);
            return Err(format!(
                "it serves at zxid {zxid:#x}, but {last:#x} was applied before: lost {missing:?}"
            ));
        }
        self.serving_since = Some(now_us);
        for session in self.sessions.values_mut().filter(|session| session.is_open) {
            session.timeout_us = session.opened_timeout_us;
            session.refused_us = None;
            session.hear(now_us);
            for (_, xid) in std::mem::take(&mut session.under_way) {
                session.writes.get_mut(&xid).expect("it was given").is_lost = true;
            }
        }
        Ok(())
    }

    /// The server was told of a connection.
    pub fn connected(
        &mut self,
        conn: ConnId,
        remote: String,
        request: lockkeeper::proto::ConnectRequest,
    ) {
        self.inputs += 1;
        self.conns.insert(conn, Conn::new(remote, request, self.inputs));
    }

    /// The server was told that a connection is gone.
    pub fn closed(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        for session in self.sessions.values_mut().filter(|session| session.conn == Some(conn)) {
            session.conn = None;
        }
    }

    /// The server was given requests.
    pub fn requests(&mut self, conn: ConnId, requests: &[ClientRequest], now_us: u64) {
        self.inputs += 1;
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let Some(id) = known.session() else { return };
        let session = self.sessions.get_mut(&id).expect("a connection's session is known");
        for request in requests {
            if !request.is_auth() && known.must_close.is_none() {
                session.hear(now_us);
            }
            let sets_watches = matches!(request.decoded, Ok(Request::SetWatches { .. }));
            self.coverage.setwatches += u64::from(sets_watches);
            if !known.request(request, session.owes_before(conn)) {
                continue;
            }
            let decoded = request.decoded.clone().expect("a write was decoded");
            let write = Write {
                conn,
                order: known.writes,
                given: self.inputs,
                request: decoded,
                ids: known.ids.clone(),
                is_applied: false,
                is_lost: false,
            };
            session.writes.insert(request.xid, write);
            session.under_way.insert((conn, request.xid));
        }
    }

    /// The replica wants this to be durable.
    pub fn appended(&mut self, append: &Append, now_us: u64) {
        for entry in &append.entries {
            self.appended.insert(entry.index, (now_us, self.zxid()));
        }
    }

    /// What the replica wants done. Everything in it must be true.
    pub fn ready(
        &mut self,
        audit: &[AuditLine],
        client: &[Outgoing],
        now_us: u64,
    ) -> Result<(), Violation> {
        let mut touched = BTreeSet::new();
        for outgoing in client {
            // It was closed in this batch.
            let Some(conn) = self.conns.get_mut(&outgoing.conn) else { continue };
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
        self.explain(&touched, now_us)?;
        for line in audit {
            self.apply(line, now_us)?;
            self.explain(&touched, now_us)?;
        }
        for id in touched {
            self.finish(id)?;
        }
        Ok(())
    }

    /// Explains every frame that belongs to the model's zxid.
    fn explain(&mut self, touched: &BTreeSet<ConnId>, now_us: u64) -> Result<(), Violation> {
        let zxid = self.zxid();
        let mut progress = true;
        while std::mem::take(&mut progress) {
            for id in touched {
                let Some(conn) = self.conns.get_mut(id) else { continue };
                while conn.session().is_some() {
                    let took = conn.take(&self.model, zxid);
                    match took.map_err(|what| format!("connection {id}: {what}"))? {
                        Took::Later => break,
                        Took::Event => self.coverage.events += 1,
                        Took::Reply => self.coverage.replies += 1,
                        Took::Read => {
                            self.coverage.replies += 1;
                            let session = conn.session().and_then(|s| self.sessions.get(&s));
                            if session.is_some_and(|session| session.owes_before(*id)) {
                                return Err(format!(
                                    "connection {id}: a read passed an earlier write of its session"
                                ));
                            }
                        }
                    }
                    progress = true;
                }
            }
            for id in touched {
                progress |= self.take_connect_response(*id, now_us)?;
            }
        }
        Ok(())
    }

    /// A connection must end exactly when it must.
    fn finish(&mut self, id: ConnId) -> Result<(), Violation> {
        let Some(conn) = self.conns.get(&id) else { return Ok(()) };
        if let Some(frame) = conn.inbox.front() {
            return Err(format!("connection {id}: a frame from the future: {frame:?}"));
        }
        let refused = match &conn.phase {
            Phase::Connecting(_) => conn.closes,
            Phase::Open(_) => false,
        };
        if refused && conn.must_close.is_none() && self.serving_since.is_some() {
            return Err(format!("connection {id}: {:?} was sent away", conn.phase));
        }
        match (conn.closes, conn.must_close) {
            (true, None) if !refused => Err(format!("connection {id} was ended for no reason")),
            (false, Some(why)) => Err(format!("connection {id} goes on after: {why}")),
            (true, _) => {
                self.coverage.hang_ups += 1;
                self.closed(id);
                Ok(())
            }
            (false, None) => Ok(()),
        }
    }

    /// The first frame of a connection.
    fn take_connect_response(&mut self, id: ConnId, now_us: u64) -> Result<bool, Violation> {
        let zxid = self.zxid();
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(false) };
        let Phase::Connecting(request) = &conn.phase else { return Ok(false) };
        let Some(frame) = conn.inbox.front() else { return Ok(false) };
        let request = request.clone();
        let response = ConnectResponse::decode(frame.payload.clone())
            .map_err(|e| format!("connection {id}: a connect response: {e}"))?;
        if response.session_id == 0 {
            conn.inbox.pop_front();
            conn.end("the session is gone");
            let known = self.sessions.get(&request.session_id);
            let is_alive = known.is_some_and(|session| {
                session.is_open
                    && session.password[..] == request.password[..]
                    && !session.may_be_closing(now_us)
            });
            self.coverage.sessions_refused += 1;
            if let Some(session) = self.sessions.get_mut(&request.session_id)
                && session.password[..] == request.password[..]
            {
                session.refused_us.get_or_insert(now_us);
            }
            return match is_alive || request.session_id == 0 {
                true => Err(format!("connection {id}: {request:?} was refused")),
                false => Ok(true),
            };
        }
        let Some(session) = self.sessions.get_mut(&response.session_id) else { return Ok(false) };
        conn.inbox.pop_front();
        let asked = request.timeout_ms.clamp(self.timeouts_ms.0, self.timeouts_ms.1);
        let is_new = request.session_id == 0;
        let is_right = session.is_open
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
        session.hear(now_us);
        let old = session.conn.replace(id);
        // What came over the old connection behind this one was not looked at.
        let since = conn.since;
        let unseen = |(_, xid): &(ConnId, i32)| session.writes[xid].given > since;
        let unseen: Vec<_> = session.under_way.iter().copied().filter(unseen).collect();
        for (conn, xid) in unseen {
            session.under_way.remove(&(conn, xid));
            session.writes.get_mut(&xid).expect("it was given").is_lost = true;
        }
        if let Some(old) = old.and_then(|old| self.conns.get_mut(&old)) {
            old.end("its session moved");
            self.coverage.sessions_moved += 1;
        }
        Ok(true)
    }

    /// A transaction was applied.
    fn apply(&mut self, line: &AuditLine, now_us: u64) -> Result<(), Violation> {
        if self.replayed < self.lines.len() {
            let known = &self.lines[self.replayed];
            if known != line {
                return Err(format!("replayed {line:?}, but it was {known:?}"));
            }
            self.replayed += 1;
            self.coverage.replayed += 1;
            return Ok(());
        }
        let last = self.lines.last();
        if line.zxid <= self.zxid() || (line.zxid >> 32) as u64 != line.term {
            return Err(format!("zxid {:#x} in {line:?} after {:#x}", line.zxid, self.zxid()));
        }
        if last.is_some_and(|last| {
            line.index < last.index || line.term < last.term || line.time_ms < last.time_ms
        }) {
            return Err(format!("{line:?} after {last:?}"));
        }
        let mut events = Vec::new();
        self.carry_out(line, now_us, &mut events)
            .map_err(|what| format!("transaction {line:?}: {what}"))?;
        for conn in self.conns.values_mut() {
            for event in &events {
                conn.witness(line.zxid, event);
            }
        }
        if let "expireSession" | "closeSession" = line.op {
            self.end_connection(line.session, line.result == "ok");
        }
        self.lines.push(line.clone());
        self.replayed += 1;
        self.coverage.txns += 1;
        self.coverage.count_txn(line.op, line.result);
        Ok(())
    }

    /// Does to the model what the line says was done, and compares the outcome.
    fn carry_out(
        &mut self,
        line: &AuditLine,
        now_us: u64,
        events: &mut Vec<Event>,
    ) -> Result<(), Violation> {
        match line.op {
            "createSession" => self.open_session(line, now_us),
            "expireSession" => {
                self.expires_in_time(line)?;
                self.close_session(line, events)
            }
            "deleteContainer" => self.reap(line, events),
            _ => self.client_write(line, events),
        }
    }

    fn open_session(&mut self, line: &AuditLine, now_us: u64) -> Result<(), Violation> {
        agree(line, None, Ok(()))?;
        if self.sessions.contains_key(&line.session) || line.session >> 56 != self.server_id {
            return Err("that id was used before, or is not of this server".to_owned());
        }
        let session = Session {
            timeout_us: self.timeouts_ms.0 as u64 * 1000,
            opened_timeout_us: self.timeouts_ms.0 as u64 * 1000,
            password: [0; 16],
            is_open: true,
            is_attached: false,
            conn: None,
            heard: vec![(now_us, self.timeouts_ms.0 as u64 * 1000)],
            refused_us: None,
            writes: BTreeMap::new(),
            under_way: BTreeSet::new(),
            last_applied: (0, 0),
        };
        self.sessions.insert(line.session, session);
        Ok(())
    }

    /// Neither in front of its timeout after the last sign of life, nor before this server gave it
    /// its full timeout again.
    fn expires_in_time(&self, line: &AuditLine) -> Result<(), Violation> {
        let Some(session) = self.sessions.get(&line.session) else {
            return Err("a session that never was".to_owned());
        };
        let Some((proposed_us, _)) = self.appended.get(&line.index).copied() else { return Ok(()) };
        let heard = session.heard.iter().rev().find(|(heard_us, _)| *heard_us < proposed_us);
        let Some((last_us, timeout_us)) = heard else { return Ok(()) };
        let silent_us = proposed_us - last_us;
        if silent_us < *timeout_us {
            return Err(format!(
                "expired after {silent_us} us of silence, timeout {timeout_us} us"
            ));
        }
        Ok(())
    }

    fn close_session(
        &mut self,
        line: &AuditLine,
        events: &mut Vec<Event>,
    ) -> Result<(), Violation> {
        let session = self.sessions.get_mut(&line.session).ok_or("a session that never was")?;
        let was_open = std::mem::take(&mut session.is_open);
        if was_open {
            self.model.close_session(line.zxid, line.session, events);
        }
        agree(line, None, if was_open { Ok(()) } else { Err(model::SESSION_EXPIRED) })
    }

    fn end_connection(&mut self, session: i64, closed: bool) {
        let Some(session) = self.sessions.get_mut(&session).filter(|_| closed) else { return };
        let Some(conn) = session.conn.and_then(|conn| self.conns.get_mut(&conn)) else { return };
        let closing = conn.pending.pop_front().filter(|pending| {
            pending.applied.is_some() && matches!(pending.request, Ok(Request::CloseSession))
        });
        conn.end("its session is closed");
        // Its own wish is answered before the end.
        conn.pending.extend(closing);
    }

    fn reap(&mut self, line: &AuditLine, events: &mut Vec<Event>) -> Result<(), Violation> {
        let path = line.path.clone().ok_or("no path")?;
        if let Some(znode) = self.model.find(&path) {
            let age_ms = line.time_ms - znode.mtime;
            let is_early = znode.owner == Owner::Container
                && znode.creates == 0
                && age_ms <= self.container_never_used_ms;
            // What was done to it since the reaper looked does not stop it, as in ZooKeeper.
            let looked = self.appended.get(&line.index).map_or(0, |(_, zxid)| *zxid);
            if is_early && znode.mzxid <= looked {
                return Err(format!("a container that was never used, {age_ms} ms old"));
            }
        }
        let outcome = self.model.reap(line.zxid, line.time_ms, &path, events);
        self.coverage.reaped += u64::from(outcome.is_ok());
        agree(line, Some(path), outcome)
    }

    fn client_write(&mut self, line: &AuditLine, events: &mut Vec<Event>) -> Result<(), Violation> {
        let session = self.sessions.get_mut(&line.session).ok_or("a session that never was")?;
        let is_open = session.is_open;
        let write = session.writes.get_mut(&line.cxid).ok_or("nobody asked for it")?;
        if std::mem::replace(&mut write.is_applied, true) {
            return Err("applied twice".to_owned());
        }
        if write.is_lost {
            return Err("a crash took it, and still it comes".to_owned());
        }
        if (write.conn, write.order) <= session.last_applied
            || write.conn == session.last_applied.0 && write.order != session.last_applied.1 + 1
            || write.conn != session.last_applied.0 && write.order != 1
        {
            let (last, order) = (session.last_applied, (write.conn, write.order));
            return Err(format!("out of order: (connection, number) {order:?} after {last:?}"));
        }
        session.last_applied = (write.conn, write.order);
        session.under_way.remove(&(write.conn, line.cxid));
        let write = write.clone();
        let (path, outcome) = if write.request == Request::CloseSession {
            self.close_session(line, events)?;
            let outcome = if is_open { Ok(Response::Empty) } else { Err(model::SESSION_EXPIRED) };
            (None, outcome)
        } else if is_open {
            let txn = Txn {
                zxid: line.zxid,
                time_ms: line.time_ms,
                session: line.session,
                ids: &write.ids,
            };
            let outcome = self.model.write(&txn, &write.request, events);
            (shown_path(&write.request, &outcome), outcome)
        } else {
            (shown_path(&write.request, &Err(0)), Err(model::SESSION_EXPIRED))
        };
        agree(line, path, audited(&outcome))?;
        if let Some(conn) = self.conns.get_mut(&write.conn) {
            conn.writes_applied += 1;
            let pending = conn.pending.iter_mut().find(|p| p.is_write && p.applied.is_none());
            if let Some(pending) = pending {
                if pending.xid != line.cxid {
                    return Err(format!("before {pending:?}, which came first"));
                }
                pending.applied = Some((line.zxid, outcome));
            }
        }
        Ok(())
    }

    /// After a batch: nothing may be owed.
    pub fn settled(&mut self, now_us: u64) -> Result<(), Violation> {
        for (id, conn) in &self.conns {
            let session = conn.session().and_then(|session| self.sessions.get(&session));
            let waits = session.is_some_and(|session| session.owes_before(*id));
            conn.settled(waits).map_err(|what| format!("connection {id}: {what}"))?;
        }
        let Some(since) = self.serving_since else { return Ok(()) };
        for (id, session) in self.sessions.iter().filter(|(_, session)| session.is_open) {
            let last = session.heard.last().map_or(0, |(heard, _)| *heard).max(since);
            // Of a session that nobody was told of, the timeout is not known either.
            let most_us = self.timeouts_ms.1 as u64 * 1000;
            let timeout_us = if session.is_attached { session.timeout_us } else { most_us };
            let late = now_us.saturating_sub(last + timeout_us);
            let refused = session.refused_us.map_or(0, |refused| now_us - refused);
            if late.max(refused) > self.grace_us {
                return Err(format!("session {id:#x} should have ended {late} us ago"));
            }
        }
        Ok(())
    }

    /// The whole state of the server, against the model.
    pub fn compare(&self, tree: &Tree) -> Result<(), Violation> {
        let all_powerful = [Identity { scheme: "super".into(), id: "".into() }];
        if tree.node_count() != self.model.znodes.len() {
            let (theirs, ours) = (tree.node_count(), self.model.znodes.len());
            return Err(format!("{theirs} znodes, expected {ours}"));
        }
        for (path, znode) in &self.model.znodes {
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
                && !self.sessions.get(&owner).is_some_and(|session| session.is_open)
            {
                return Err(format!("{path} belongs to the closed session {owner:#x}"));
            }
        }
        Ok(())
    }

    /// Open sessions.
    pub fn open_sessions(&self) -> impl Iterator<Item = i64> + '_ {
        self.sessions.iter().filter(|(_, session)| session.is_open).map(|(id, _)| *id)
    }
}

impl Session {
    fn hear(&mut self, now_us: u64) {
        const KEPT: usize = 64;
        let now = (now_us, self.timeout_us);
        if self.heard.last() == Some(&now) {
            return;
        }
        if self.heard.len() == KEPT {
            self.heard.remove(0);
        }
        self.heard.push(now);
    }

    /// Whether writes that came over an earlier connection are on their way.
    fn owes_before(&self, conn: ConnId) -> bool {
        self.under_way.first().is_some_and(|(of, _)| *of < conn)
    }

    /// Whether its end may be on its way without our knowing.
    fn may_be_closing(&self, now_us: u64) -> bool {
        let next = self.heard.iter().map(|(at, _)| *at).skip(1).chain([now_us]);
        let silent = self.heard.iter().zip(next).any(|((at, timeout), next)| next - at >= *timeout);
        let closes = |(_, xid): &(ConnId, i32)| self.writes[xid].request == Request::CloseSession;
        let asked = self.under_way.iter().any(closes);
        silent || asked
    }
}

/// The audit's result and path must be the model's.
fn agree(
    line: &AuditLine,
    path: Option<String>,
    outcome: Result<(), Code>,
) -> Result<(), Violation> {
    let expected = match outcome {
        Ok(()) => "ok",
        Err(code) => lockkeeper::proto::ErrorCode::from_wire(code).map_or("?", |code| code.name()),
    };
    if line.result != expected || line.path != path {
        return Err(format!("expected {expected} and path {path:?}"));
    }
    Ok(())
}

/// What the audit says of an outcome: a multi succeeds only as a whole.
fn audited(outcome: &Result<Response, Code>) -> Result<(), Code> {
    match outcome {
        Err(code) => Err(*code),
        Ok(Response::Multi(results)) => {
            let error = results.iter().find_map(|result| match result {
                lockkeeper::proto::MultiResult::Error(code) => *code,
                _ => None,
            });
            error.map_or(Ok(()), |code| Err(code.wire()))
        }
        Ok(_) => Ok(()),
    }
}

/// The path that the audit shows.
fn shown_path(request: &Request, outcome: &Result<Response, Code>) -> Option<String> {
    use lockkeeper::proto::MultiOp;
    if let Ok(Response::Path(path) | Response::PathStat(path, _)) = outcome {
        return Some(path.to_string());
    }
    match request {
        Request::Create(create) => Some(create.path.to_string()),
        Request::Delete { path, .. }
        | Request::SetData { path, .. }
        | Request::SetAcl { path, .. } => Some(path.to_string()),
        Request::Multi(ops) => {
            let paths = ops.iter().map(|op| match op {
                MultiOp::Create(create) => create.path.as_str(),
                MultiOp::Delete { path, .. }
                | MultiOp::SetData { path, .. }
                | MultiOp::Check { path, .. } => path.as_str(),
            });
            Some(paths.collect::<Vec<_>>().join(","))
        }
        _ => None,
    }
}
