//! What ZooKeeper has decided, applied to the state: its sessions, its znodes, its transactions as they are.
//!
//! *Owns* the one function that applies a transaction of ZooKeeper.
//! *Invariants*: the same transactions on the same state give the same state, results and events on every
//! server; the
//! zxid, the time and the versions are ZooKeeper's; a session of ZooKeeper has the password that ZooKeeper
//! computes of
//! its id, and no connection. The last zxid only rises. *Never* decides whether something is allowed.
//!
//! Reproduces `DataTree.processTxn`, `ZKDatabase.processTxn` and `FileTxnSnapLog.processTransaction`.

use std::collections::BTreeMap;

use super::foreign_load::ForeignLoad;
use super::state::{Machine, SessionChange, steady_without_one};
use super::version;
use crate::proto::{ErrorCode, Stat, Text};
use crate::tree::{Context, Event, ForeignCreate, Options, Owner, Rules};
use crate::zookeeper::txn::kind;
use crate::zookeeper::{Lifetime, Txn, TxnBody, TxnHeader, password};

/// What became of one transaction of ZooKeeper.
#[derive(Debug)]
pub struct ForeignApplied {
    /// Of the transaction itself; of a multi, of each of its operations.
    pub results: Vec<Result<ForeignResult, ErrorCode>>,
    /// In the order in which watchers are to see them.
    pub events: Vec<Event>,
    /// The session that it opened or closed.
    pub(in crate::replica) session_change: Option<SessionChange>,
}

/// What one operation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignResult {
    /// A znode came.
    Created {
        /// Its path.
        path: Text,
        /// Its stat.
        stat: Stat,
    },
    /// A znode was changed.
    Changed {
        /// Its stat.
        stat: Stat,
    },
    /// Nothing that could be shown: a delete, a check, a session.
    Done,
}

impl ForeignLoad {
    /// The state of a server of ZooKeeper that was never written to.
    #[must_use]
    pub fn fresh(options: Options) -> Machine {
        let mut machine = Machine::fresh(options);
        machine.raise_version(version::NEWEST);
        machine
    }

    /// The state, at the zxid that the snapshot says. Transactions behind it may follow.
    ///
    /// # Errors
    /// It is no whole tree.
    pub fn finish(self, zxid: i64) -> Result<Machine, String> {
        let (tree, sessions) = self.complete()?;
        let mut machine = Machine::around(tree);
        (machine.sessions, machine.last_zxid) = (sessions, zxid);
        machine.raise_version(version::NEWEST);
        Ok(machine)
    }
}

impl Machine {
    /// Applies a transaction of ZooKeeper.
    pub fn apply_foreign(&mut self, txn: &Txn) -> ForeignApplied {
        self.last_zxid = self.last_zxid.max(txn.header.zxid);
        self.clock_dirty = true;
        self.txns_applied += 1;
        let mut applied =
            ForeignApplied { results: Vec::new(), events: Vec::new(), session_change: None };
        match &txn.body {
            TxnBody::Multi(subs) => {
                let failed = subs.iter().any(|sub| matches!(sub.body, TxnBody::Error { .. }));
                for sub in subs {
                    let result = match &sub.body {
                        TxnBody::Error { code } => Err(code_of(*code)),
                        _ if failed => Ok(ForeignResult::Done),
                        body => self.one_foreign(&txn.header, body, &mut applied.events),
                    };
                    applied.results.push(result);
                }
            }
            TxnBody::CreateSession { timeout_ms } => {
                let session = self.sessions.open_foreign(txn.header.client_id, *timeout_ms);
                applied.session_change = Some(SessionChange::Opened(txn.header.client_id, session));
                applied.results.push(Ok(ForeignResult::Done));
            }
            TxnBody::CloseSession { paths } => {
                let paths = paths.as_deref().unwrap_or_default();
                self.close_foreign(&txn.header, paths, &mut applied);
            }
            body => {
                let result = self.one_foreign(&txn.header, body, &mut applied.events);
                applied.results.push(result);
            }
        }
        self.remember_digest(txn.header.zxid);
        applied
    }

    /// Moves both clocks to a time of ZooKeeper's, where no entry of a log of our own does: by the steady
    /// clock, znodes
    /// are as old as their stamps say. They never go back, so who calls it leaves out times that cannot be.
    pub fn see_foreign_time(&mut self, time_ms: i64) {
        self.last_time_ms = self.last_time_ms.max(time_ms);
        self.steady_ms = self.steady_ms.max(steady_without_one(self.last_time_ms));
        self.clock_dirty = true;
    }

    /// Ends the life of ephemerals whose session is not open, and gives their sessions and paths.
    pub fn remove_foreign_orphans(&mut self) -> Vec<(i64, Text)> {
        let owners: Vec<i64> = self.tree.sessions_with_ephemerals().map(|(id, _)| id).collect();
        let mut removed = Vec::new();
        for session in owners.into_iter().filter(|id| !self.sessions.is_open(*id)) {
            let header =
                TxnHeader { client_id: session, zxid: self.last_zxid, ..self.now_header() };
            let context = context(&header, self.steady_ms);
            let mut events = Vec::new();
            self.tree.close_session_foreign(&context, &mut events);
            let gone = events.into_iter().filter(|event| event.life.is_some());
            removed.extend(gone.map(|event| (session, event.path)));
        }
        removed
    }

    /// Makes the state that of a new ensemble: the members of the other one are forgotten, and usage of quotas
    /// is counted.
    ///
    /// # Errors
    /// A znode has no list: the snapshot was written while it came, and the log behind it is missing.
    pub fn settle_foreign(&mut self) -> Result<(), String> {
        if let Some(path) = self.tree.find_without_acl() {
            return Err(format!(
                "znode {path:?} has no access control list: the log behind the snapshot is missing"
            ));
        }
        self.tree.forget_config();
        self.tree.recount_usage();
        Ok(())
    }

    /// Closes the sessions that ZooKeeper would not know the password of, and gives each with its ephemerals.
    pub fn leave_out_sessions(&mut self) -> Vec<(i64, Vec<Text>)> {
        let open = self.foreign_sessions();
        let other: Vec<i64> = open.filter(|(.., is_known)| !is_known).map(|(id, ..)| id).collect();
        let mut owned: BTreeMap<i64, Vec<Text>> = self.tree.sessions_with_ephemerals().collect();
        let mut left_out = Vec::with_capacity(other.len());
        for client_id in other {
            let (zxid, kind) = (self.last_zxid + 1, kind::CLOSE_SESSION);
            let header = TxnHeader { client_id, zxid, kind, ..self.now_header() };
            let paths = owned.remove(&client_id).unwrap_or_default();
            let body = TxnBody::CloseSession { paths: None };
            self.apply_foreign(&Txn { header, body, digest: None });
            left_out.push((client_id, paths));
        }
        left_out
    }

    /// The open sessions: id, timeout, and whether the password is the one that ZooKeeper computes.
    pub fn foreign_sessions(&self) -> impl Iterator<Item = (i64, i32, bool)> + '_ {
        self.sessions
            .iter()
            .map(|(id, session)| (id, session.timeout_ms, session.password == password(id)))
    }

    fn now_header(&self) -> TxnHeader {
        TxnHeader { time_ms: self.last_time_ms, ..TxnHeader::default() }
    }

    /// The paths that the transaction names, then what the session owns besides.
    fn close_foreign(&mut self, header: &TxnHeader, paths: &[Text], applied: &mut ForeignApplied) {
        let context = context(header, self.steady_ms);
        for path in paths {
            // One that is not there is gone already.
            let _ = self.tree.delete_foreign(&context, path, &mut applied.events);
        }
        self.tree.close_session_foreign(&context, &mut applied.events);
        let id = header.client_id;
        applied.session_change = self.sessions.close(id).then_some(SessionChange::Closed(id));
        applied.results.push(Ok(ForeignResult::Done));
    }

    fn one_foreign(
        &mut self,
        header: &TxnHeader,
        body: &TxnBody,
        events: &mut Vec<Event>,
    ) -> Result<ForeignResult, ErrorCode> {
        let context = context(header, self.steady_ms);
        let changed = |stat| ForeignResult::Changed { stat };
        match body {
            TxnBody::Create(create) => {
                let foreign = ForeignCreate {
                    path: &create.path,
                    data: create.data.as_deref(),
                    acl: &create.acl,
                    owner: match create.lifetime {
                        Lifetime::Persistent => Owner::Persistent,
                        Lifetime::Ephemeral => Owner::from_encoded(header.client_id),
                        Lifetime::Container => Owner::Container,
                        Lifetime::Ttl(ttl_ms) => Owner::Ttl(ttl_ms),
                    },
                    parent_cversion: create.parent_cversion,
                };
                let stat = self.tree.create_foreign(&context, &foreign, events)?;
                Ok(ForeignResult::Created { path: create.path.clone(), stat })
            }
            TxnBody::Delete { path } => {
                self.tree.delete_foreign(&context, path, events).map(|()| ForeignResult::Done)
            }
            TxnBody::SetData { path, data, version } => {
                let data = data.as_deref();
                self.tree.set_data_foreign(&context, path, data, *version, events).map(changed)
            }
            TxnBody::SetAcl { path, acl, version } => {
                self.tree.set_acl_foreign(path, acl, *version).map(changed)
            }
            TxnBody::Check { .. } => Ok(ForeignResult::Done),
            TxnBody::Error { code } => Err(code_of(*code)),
            // Those of sessions are no operations, and no multi is inside of another one.
            TxnBody::CreateSession { .. } | TxnBody::CloseSession { .. } | TxnBody::Multi(_) => {
                Err(ErrorCode::BadArguments)
            }
        }
    }
}

fn context(header: &TxnHeader, steady_ms: i64) -> Context<'static> {
    Context {
        zxid: header.zxid,
        time_ms: header.time_ms,
        steady_ms,
        session: header.client_id,
        ids: &[],
        rules: Rules::DEFAULT,
    }
}

fn code_of(code: i32) -> ErrorCode {
    ErrorCode::from_wire(code).unwrap_or(ErrorCode::SystemError)
}

#[cfg(test)]
mod tests;
