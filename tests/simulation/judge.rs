//! Judges transactions: each when the first server applies it.
//!
//! *Owns* the rules that concern the order of everything: who may do what when, and what comes of it.

use lockkeeper_core::proto::{ErrorCode, MultiOp, MultiResult, Request, Response};
use lockkeeper_core::replica::AuditLine;
use lockkeeper_core::replica::txn::{Origin, Txn, TxnOp};
use lockkeeper_core::zookeeper;

use super::agreement::Proposal;
use super::checker::Checker;
use super::conn::Violation;
use super::history::{Effect, Line};
use super::model::{self, Code, Owner};
use super::sessions::{Grant, Session};

/// Longest time that a server keeps to itself whom it heard of: some ticks, and turns of its driver.
const TOUCH_US_MAX: u64 = 300_000;
/// How much of the time for which a server stands still counts at most: ten ticks.
const STANDSTILL_US: u64 = 500_000;

impl Checker {
    /// A server has applied a transaction.
    pub(super) fn apply(
        &mut self,
        server: usize,
        audit: &AuditLine,
        now_us: u64,
    ) -> Result<(), Violation> {
        let place = self.views[server].place;
        let known = self.history.lines.get(place).cloned();
        let is_new = known.is_none();
        if is_new {
            self.observe(audit);
        }
        let line = match known {
            Some(known) if known.audit == *audit => {
                self.coverage.replayed += u64::from(place < self.views[server].farthest);
                known
            }
            Some(known) => return Err(format!("applied {audit:?}, but it was {:?}", known.audit)),
            None => self.judge(audit).map_err(|what| format!("transaction {audit:?}: {what}"))?,
        };
        let mut events = Vec::new();
        let view = &mut self.views[server];
        let outcome = line.apply(&mut view.model, &mut events);
        if is_new {
            self.history.push(line.clone(), &view.model);
            let path = match &line.effect {
                Effect::Reap(path) => Some(path.clone()),
                _ => self.request_of(&line).and_then(|request| shown_path(request, &outcome)),
            };
            agree(audit, path, audited(&outcome))?;
            self.coverage.txns += 1;
            self.coverage.count_txn(audit.op, audit.result);
            let reaped = audit.op == "deleteContainer" && outcome.is_ok();
            self.coverage.reaped += u64::from(reaped);
        }
        if let Some(grant) = &line.grant
            && let Some(session) = self.sessions.get_mut(&grant.session)
        {
            session.hear(server, self.views[server].place + 1, now_us);
        }
        self.views[server].advance(&line, outcome, &events)
    }

    fn observe(&mut self, line: &AuditLine) {
        let before = self.history.lines.iter().rev();
        let number = before.take_while(|other| other.audit.index == line.index).count();
        let proposal = self.agreement.proposal(line.index, line.term);
        let txn = proposal.and_then(|proposal| proposal.txns.get(number));
        self.observer.applied(line, txn.map(|txn| (&txn.op, txn.origin.conn)));
    }

    /// Is it in order, and may it be? What it does, if so.
    fn judge(&mut self, line: &AuditLine) -> Result<Line, Violation> {
        if line.zxid <= self.zxid() || (line.zxid >> 32) as u64 != line.term {
            return Err(format!("its zxid comes after {:#x}", self.zxid()));
        }
        let last = self.history.lines.last().map(|last| &last.audit);
        if let Some(last) = last
            && (line.index < last.index || line.term < last.term)
        {
            return Err(format!("it comes after {last:?}"));
        }
        let before = self.history.lines.iter().rev();
        let number = before.take_while(|other| other.audit.index == line.index).count();
        let proposal = self.agreement.proposal(line.index, line.term);
        let proposal = proposal.ok_or("nobody has proposed it")?.clone();
        if number == 0 {
            self.agreement.applied(line.index, line.term)?;
        }
        let txn = proposal.txns.get(number).ok_or("its entry has fewer transactions")?;
        let is_whole = self.history.lines.last().is_none_or(|last| {
            let entry = (last.audit.index, last.audit.term);
            let of_last = self.agreement.proposal(entry.0, entry.1);
            number > 0 || of_last.is_none_or(|of| of.txns.len() == self.history.in_last_entry())
        });
        if !is_whole {
            return Err("the entry before has more transactions".to_owned());
        }
        let steady_ms = self.time_of(line, &proposal)?;
        let before_ms = self.history.lines.last().map_or(0, |last| last.audit.time_ms);
        self.coverage.time_returns += u64::from(line.time_ms < before_ms);
        self.effect_of((line, steady_ms), txn, &proposal)
    }

    fn effect_of(
        &mut self,
        (line, steady_ms): (&AuditLine, i64),
        txn: &Txn,
        proposal: &Proposal,
    ) -> Result<Line, Violation> {
        let conn = (txn.origin.server != 0).then_some(txn.origin.conn);
        let mut grant = None;
        let (op, effect) = match &txn.op {
            TxnOp::OpenSession { timeout_ms, password } => {
                let asked = Grant {
                    session: line.session,
                    conn: txn.origin.conn,
                    timeout_ms: *timeout_ms,
                    password: password.unwrap_or_else(|| zookeeper::password(line.session)),
                };
                self.open_session(asked)?;
                grant = Some(asked);
                ("createSession", Effect::Nothing)
            }
            TxnOp::AttachSession { timeout_ms, password } => {
                let asked = Grant {
                    session: txn.session,
                    conn: txn.origin.conn,
                    timeout_ms: *timeout_ms,
                    password: *password,
                };
                let effect = self.attach_session(asked)?;
                grant = matches!(effect, Effect::Nothing).then_some(asked);
                ("attachSession", effect)
            }
            TxnOp::ExpireSession => {
                self.expires_in_time(txn.session, proposal)?;
                ("expireSession", self.close_session(txn.session)?)
            }
            TxnOp::Reap { path } => {
                ("deleteContainer", self.reap(steady_ms, path.as_str(), proposal)?)
            }
            TxnOp::Found { members, .. } => ("found", Effect::Found(members.to_string())),
            TxnOp::Upgrade { .. } => ("upgrade", Effect::Nothing),
            TxnOp::Client { .. } | TxnOp::CloseSession | TxnOp::Refuse { .. } => {
                (line.op, self.client_write(line, txn)?)
            }
            TxnOp::Foreign(_) | TxnOp::Migrate(_) => {
                return Err("no ensemble is followed in this world".to_owned());
            }
        };
        if line.op != op {
            return Err(format!("it is {txn:?}"));
        }
        let rules = proposal.rules.unwrap_or(self.rules.of_files);
        Ok(Line { audit: line.clone(), steady_ms, rules, effect, conn, grant })
    }

    /// The connection must have asked for it, once.
    fn handshake(&mut self, asked: &Grant, session: i64) -> Result<(), Violation> {
        let (_, request) = self.handshakes.get(&asked.conn).ok_or("nobody asked for it")?;
        let (min, max) = self.rules.timeouts_ms;
        if request.session_id != session || request.timeout_ms.clamp(min, max) != asked.timeout_ms {
            return Err(format!("asked for by {request:?}"));
        }
        if self.applied.insert(asked.conn, 0).is_some() {
            return Err("applied twice".to_owned());
        }
        Ok(())
    }

    fn open_session(&mut self, asked: Grant) -> Result<(), Violation> {
        self.handshake(&asked, 0)?;
        let by = (asked.session >> 56) as usize;
        let (host, _) = &self.handshakes[&asked.conn];
        if self.sessions.contains_key(&asked.session) || by != host + 1 {
            return Err("that id was used before, or is of another server".to_owned());
        }
        self.sessions.insert(asked.session, Session::new(self.history.len(), asked));
        Ok(())
    }

    fn attach_session(&mut self, asked: Grant) -> Result<Effect, Violation> {
        self.handshake(&asked, asked.session)?;
        let (_, request) = &self.handshakes[&asked.conn];
        if request.password[..] != asked.password[..] {
            return Err("nobody said that password".to_owned());
        }
        let place = self.history.len();
        let known = self.sessions.get_mut(&asked.session);
        let known = known.filter(|known| known.is_open() && known.password == asked.password);
        let Some(session) = known else { return Ok(Effect::Fail(model::SESSION_EXPIRED)) };
        session.grant(place, asked);
        self.coverage.sessions_moved += 1;
        Ok(Effect::Nothing)
    }

    /// Neither in front of its timeout after the last sign of life, nor before the leader gave it
    /// its full timeout again.
    fn expires_in_time(&self, session: i64, proposal: &Proposal) -> Result<(), Violation> {
        let session = self.sessions.get(&session).ok_or("a session that never was")?;
        let Some((last_us, timeout_us)) = session.last_heard(proposal.server, proposal.at_us)
        else {
            return Ok(());
        };
        let stood_still_us = self.stood_still_us(proposal.server, last_us, proposal.at_us);
        let silent_us = proposal.at_us - last_us - stood_still_us;
        let timeout_us = timeout_us + self.rules.expiry_grace_us;
        if silent_us < timeout_us {
            return Err(format!(
                "expired after {silent_us} us of silence, timeout {timeout_us} us"
            ));
        }
        self.is_silent_everywhere(session, proposal)
    }

    /// Whatever fails, a session has its timeout after its server last heard from it, but for the time
    /// that it takes to tell the leader. One that stood still decides, when it goes on, on what it was told
    /// before.
    fn is_silent_everywhere(
        &self,
        session: &Session,
        proposal: &Proposal,
    ) -> Result<(), Violation> {
        let of_world = |us: u64, server: usize| us * 1000 / self.rules.clock_rates[server];
        let Some(owner) = session.owner_at(self.history.len()) else { return Ok(()) };
        let Some((server, _)) = self.handshakes.get(&owner.conn) else { return Ok(()) };
        let late_us = TOUCH_US_MAX + self.rules.peer_latency_us_max;
        let proposed_us = of_world(proposal.at_us, proposal.server);
        let asked_us = self.fell_asleep_us(proposal.server, proposed_us, late_us);
        let told_us = self.rules.clock_rates[*server] * asked_us.saturating_sub(late_us) / 1000;
        let Some((heard_us, timeout_us)) = session.last_answered(*server, told_us) else {
            return Ok(());
        };
        let silent_us = proposed_us - of_world(heard_us, *server);
        // A client that comes back may have asked for less, and so may it have done on another server in between.
        let since = session.least_timeout_since(*server, heard_us).unwrap_or(u64::MAX);
        let timeout_us = timeout_us.min(owner.timeout_ms as u64 * 1000).min(since);
        let timeout_us = timeout_us + self.rules.expiry_grace_us;
        let timeout_us = of_world(timeout_us, proposal.server);
        if silent_us < timeout_us {
            let server = server + 1;
            return Err(format!(
                "expired, but server {server} answered its client {silent_us} us before, timeout \
                 {timeout_us} us"
            ));
        }
        Ok(())
    }

    /// For how long a server stood still between these times, both by its own clock, beyond what counts: no client
    /// can be heard meanwhile.
    fn stood_still_us(&self, server: usize, from_us: u64, to_us: u64) -> u64 {
        let rate = self.rules.clock_rates[server];
        let own = self.pauses.iter().filter(|(of, ..)| *of == server);
        let own =
            own.map(|(_, since_us, until_us)| (since_us * rate / 1000, until_us * rate / 1000));
        let between = own.filter(|(since_us, until_us)| *since_us > from_us && *until_us <= to_us);
        between
            .map(|(since_us, until_us)| (until_us - since_us).saturating_sub(STANDSTILL_US))
            .sum()
    }

    /// When a server began to stand still, if it went on less than `late_us` before that time; else that time.
    fn fell_asleep_us(&self, server: usize, before_us: u64, late_us: u64) -> u64 {
        let own = self.pauses.iter().rev().filter(|(of, ..)| *of == server);
        own.fold(before_us, |before_us, (_, since_us, until_us)| {
            let is_just_before = *since_us < before_us && before_us < *until_us + late_us;
            if is_just_before { *since_us } else { before_us }
        })
    }

    fn close_session(&mut self, session: i64) -> Result<Effect, Violation> {
        let place = self.history.len();
        let session = self.sessions.get_mut(&session).ok_or("a session that never was")?;
        if !session.is_open() {
            return Ok(Effect::Fail(model::SESSION_EXPIRED));
        }
        session.closed = Some(place);
        Ok(Effect::CloseSession)
    }

    fn reap(
        &mut self,
        steady_ms: i64,
        path: &str,
        proposal: &Proposal,
    ) -> Result<Effect, Violation> {
        self.are_reaped_in_measure(proposal)?;
        // What was done to it since the reaper looked does not stop it, as in ZooKeeper.
        let looked = self.history.zxid_at(proposal.place);
        if let Some(znode) = self.newest().find(path) {
            let age_ms = steady_ms - znode.steady_ms;
            let is_early = znode.owner == Owner::Container
                && znode.creates == 0
                && age_ms <= self.rules.container_never_used_ms;
            if is_early && znode.mzxid <= looked {
                return Err(format!("a container that was never used, {age_ms} ms old"));
            }
        }
        Ok(Effect::Reap(path.to_owned()))
    }

    fn client_write(&mut self, line: &AuditLine, txn: &Txn) -> Result<Effect, Violation> {
        let Origin { conn, sequence, .. } = txn.origin;
        let write = self.writes.get(&(conn, sequence)).ok_or("nobody asked for it")?;
        let applied = self.applied.entry(conn).or_insert(0);
        if sequence != *applied + 1 {
            return Err(format!("number {sequence} of connection {conn} after {applied}"));
        }
        *applied = sequence;
        if write.given <= self.lost {
            return Err("a crash took it, and still it comes".to_owned());
        }
        if line.zxid <= write.floor {
            let floor = write.floor;
            return Err(format!("{floor:#x} was over when it was asked for"));
        }
        if (write.session, write.xid) != (line.session, line.cxid) {
            return Err(format!("it is {write:?}"));
        }
        if let TxnOp::Refuse { code, .. } = txn.op {
            return Ok(Effect::Fail(code));
        }
        let write = write.clone();
        let session = self.sessions.get(&write.session).ok_or("a session that never was")?;
        let owner = session.owner_at(self.history.len()).map(|grant| grant.conn);
        if !session.is_open() {
            return Ok(Effect::Fail(model::SESSION_EXPIRED));
        }
        if owner != Some(conn) {
            self.coverage.writes_moved += 1;
            return Ok(Effect::Fail(model::SESSION_MOVED));
        }
        if write.request == Request::CloseSession {
            return self.close_session(write.session);
        }
        Ok(Effect::Write { ids: write.ids, request: write.request })
    }

    /// The request that a line carries out.
    fn request_of(&self, line: &Line) -> Option<&Request> {
        let conn = line.conn?;
        let number = self.applied.get(&conn)?;
        self.writes.get(&(conn, *number)).map(|write| &write.request)
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
        Err(code) => ErrorCode::from_wire(code).map_or("?", |code| code.name()),
    };
    if line.result != expected || line.path != path {
        return Err(format!("transaction {line:?}: expected {expected} and path {path:?}"));
    }
    Ok(())
}

/// What the audit says of an outcome: a multi succeeds only as a whole.
fn audited(outcome: &Result<Response, Code>) -> Result<(), Code> {
    match outcome {
        Err(code) => Err(*code),
        Ok(Response::Multi(results)) => {
            let error = results.iter().find_map(|result| match result {
                MultiResult::Error(code) => *code,
                _ => None,
            });
            error.map_or(Ok(()), |code| Err(code.wire()))
        }
        Ok(_) => Ok(()),
    }
}

/// The path that the audit shows.
fn shown_path(request: &Request, outcome: &Result<Response, Code>) -> Option<String> {
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
