//! Judges transactions: each when the first server applies it.
//!
//! *Owns* the rules that concern the order of everything: who may do what when, and what comes of it.

use lockkeeper::proto::{ErrorCode, MultiOp, MultiResult, Request, Response};
use lockkeeper::replica::{AuditLine, ConnId};

use super::checker::Checker;
use super::conn::Violation;
use super::history::{Effect, Line};
use super::model::{self, Code, Owner};
use super::sessions::Session;

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
        let line = match known {
            Some(known) if known.audit == *audit => {
                self.coverage.replayed += u64::from(place < self.views[server].farthest);
                known
            }
            Some(known) => return Err(format!("applied {audit:?}, but it was {:?}", known.audit)),
            None => self
                .judge(server, audit, now_us)
                .map_err(|what| format!("transaction {audit:?}: {what}"))?,
        };
        let mut events = Vec::new();
        let view = &mut self.views[server];
        let outcome = line.effect.apply(audit, &mut view.model, &mut events);
        if is_new {
            self.history.push(line.clone(), &view.model);
            let path = match &line.effect {
                Effect::Reap(path) => Some(path.clone()),
                _ => self.request_of(audit).and_then(|request| shown_path(request, &outcome)),
            };
            agree(audit, path, audited(&outcome))?;
            self.coverage.txns += 1;
            self.coverage.count_txn(audit.op, audit.result);
            let reaped = audit.op == "deleteContainer" && outcome.is_ok();
            self.coverage.reaped += u64::from(reaped);
        }
        self.views[server].advance(&line, outcome, &events)
    }

    /// Is it in order, and may it be? What it does, if so.
    fn judge(&mut self, server: usize, line: &AuditLine, now_us: u64) -> Result<Line, Violation> {
        if line.zxid <= self.zxid() || (line.zxid >> 32) as u64 != line.term {
            return Err(format!("its zxid comes after {:#x}", self.zxid()));
        }
        let last = self.history.lines.last().map(|last| &last.audit);
        if let Some(last) = last
            && (line.index < last.index || line.term < last.term || line.time_ms < last.time_ms)
        {
            return Err(format!("it comes after {last:?}"));
        }
        let mut conn = None;
        let effect = match line.op {
            "createSession" => self.open_session(server, line, now_us)?,
            "expireSession" => {
                self.expires_in_time(line)?;
                self.close_session(line)?
            }
            "deleteContainer" => self.reap(server, line)?,
            _ => {
                let (by, effect) = self.client_write(line)?;
                conn = Some(by);
                effect
            }
        };
        Ok(Line { audit: line.clone(), effect, conn })
    }

    fn open_session(
        &mut self,
        server: usize,
        line: &AuditLine,
        now_us: u64,
    ) -> Result<Effect, Violation> {
        let by = (line.session >> 56) as usize;
        if self.sessions.contains_key(&line.session) || !(1..=self.rules.servers).contains(&by) {
            return Err("that id was used before, or is of no server".to_owned());
        }
        let timeout_us = self.rules.timeouts_ms.0 as u64 * 1000;
        let mut session = Session::new(self.history.len(), timeout_us);
        session.hear(server, now_us);
        self.sessions.insert(line.session, session);
        Ok(Effect::Nothing)
    }

    /// Neither in front of its timeout after the last sign of life, nor before the leader gave it
    /// its full timeout again.
    fn expires_in_time(&self, line: &AuditLine) -> Result<(), Violation> {
        let Some(session) = self.sessions.get(&line.session) else {
            return Err("a session that never was".to_owned());
        };
        let proposed = self.proposed.get(&(line.index, line.term));
        let Some((leader, proposed_us, _)) = proposed.copied() else { return Ok(()) };
        let heard = session.last_heard(leader, proposed_us);
        let Some((last_us, timeout_us)) = heard else { return Ok(()) };
        let silent_us = proposed_us - last_us;
        if silent_us < timeout_us {
            return Err(format!(
                "expired after {silent_us} us of silence, timeout {timeout_us} us"
            ));
        }
        Ok(())
    }

    fn close_session(&mut self, line: &AuditLine) -> Result<Effect, Violation> {
        let place = self.history.len();
        let session = self.sessions.get_mut(&line.session).ok_or("a session that never was")?;
        if !session.is_open() {
            return Ok(Effect::Fail(model::SESSION_EXPIRED));
        }
        session.closed = Some(place);
        Ok(Effect::CloseSession)
    }

    fn reap(&mut self, server: usize, line: &AuditLine) -> Result<Effect, Violation> {
        let path = line.path.clone().ok_or("no path")?;
        if let Some(znode) = self.views[server].model.find(&path) {
            let age_ms = line.time_ms - znode.mtime;
            let is_early = znode.owner == Owner::Container
                && znode.creates == 0
                && age_ms <= self.rules.container_never_used_ms;
            // What was done to it since the reaper looked does not stop it, as in ZooKeeper.
            let proposed = self.proposed.get(&(line.index, line.term));
            let looked = proposed.map_or(0, |(_, _, zxid)| *zxid);
            if is_early && znode.mzxid <= looked {
                return Err(format!("a container that was never used, {age_ms} ms old"));
            }
        }
        Ok(Effect::Reap(path))
    }

    fn client_write(&mut self, line: &AuditLine) -> Result<(ConnId, Effect), Violation> {
        let session = self.sessions.get_mut(&line.session).ok_or("a session that never was")?;
        let is_open = session.is_open();
        let write = session.writes.get_mut(&line.cxid).ok_or("nobody asked for it")?;
        if std::mem::replace(&mut write.is_applied, true) {
            return Err("applied twice".to_owned());
        }
        if write.is_lost {
            return Err("a crash took it, and still it comes".to_owned());
        }
        if line.zxid <= write.floor {
            let floor = write.floor;
            return Err(format!("{floor:#x} was over when it was asked for"));
        }
        let place = (write.conn, write.order);
        let last = session.last_applied;
        let is_next = match write.conn == last.0 {
            true => write.order == last.1 + 1,
            false => write.conn > last.0 && write.order == 1,
        };
        if !is_next {
            return Err(format!("out of order: (connection, number) {place:?} after {last:?}"));
        }
        session.last_applied = place;
        session.under_way.remove(&(write.conn, line.cxid));
        let effect = if write.request == Request::CloseSession {
            self.close_session(line)?
        } else if is_open {
            Effect::Write { ids: write.ids.clone(), request: write.request.clone() }
        } else {
            Effect::Fail(model::SESSION_EXPIRED)
        };
        Ok((place.0, effect))
    }

    /// The request that a line carries out.
    fn request_of(&self, line: &AuditLine) -> Option<&Request> {
        let session = self.sessions.get(&line.session)?;
        session.writes.get(&line.cxid).map(|write| &write.request)
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
