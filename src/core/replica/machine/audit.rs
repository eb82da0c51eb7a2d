//! What the audit log says of a transaction: operation, path and outcome.
//!
//! *Owns* the names that its lines use. *Never* decides anything: it reads what was applied.

use bytes::Bytes;

use super::state::{Applied, Machine, SessionChange};
use super::txn::{Batch, Txn, TxnOp};
use crate::proto::request::Request;
use crate::proto::{ErrorCode, MultiOp, MultiResult, OpCode, Response, Text};
use crate::replica::audit_line::AuditLine;
use crate::zookeeper::TxnBody;
use crate::zookeeper::txn::kind;

impl Machine {
    /// What the audit log says of a transaction just applied.
    pub(in crate::replica) fn audit_line(
        &self,
        entry: (u64, u64),
        txn: &Txn,
        applied: &Applied,
    ) -> AuditLine {
        AuditLine {
            index: entry.0,
            term: entry.1,
            zxid: applied.zxid,
            time_ms: self.last_time_ms,
            session: match applied.session_change {
                Some(SessionChange::Opened(id, _)) => id,
                Some(SessionChange::Attached(..) | SessionChange::Closed(_)) | None => txn.session,
            },
            cxid: txn.cxid,
            op: name(txn, applied.op),
            path: path(txn, applied),
            result: match &applied.result {
                Ok(Response::Multi(results)) => multi_outcome(results),
                Ok(_) => "ok",
                Err(code) => code.name(),
            },
            digest: self.digest(),
        }
    }
}

/// Name of the operation.
fn name(txn: &Txn, op: OpCode) -> &'static str {
    match (&txn.op, op) {
        (TxnOp::ExpireSession, _) => "expireSession",
        (TxnOp::CloseSession, _) => "closeSession",
        (TxnOp::OpenSession { .. }, _) => "createSession",
        (TxnOp::AttachSession { .. }, _) => "attachSession",
        (TxnOp::Reap { .. }, _) => "deleteContainer",
        (TxnOp::Found { .. }, _) => "found",
        (TxnOp::Upgrade { .. }, _) => "upgrade",
        (TxnOp::Refuse { .. }, _) => "refuse",
        (TxnOp::Migrate(step), _) => step.name(),
        (TxnOp::Foreign(foreign), _) => foreign_name(foreign.header.kind),
        (TxnOp::Client { .. }, OpCode::Reconfig) => "reconfig",
        (TxnOp::Client { .. }, OpCode::Create) => "create",
        (TxnOp::Client { .. }, OpCode::Create2) => "create2",
        (TxnOp::Client { .. }, OpCode::CreateContainer) => "createContainer",
        (TxnOp::Client { .. }, OpCode::CreateTtl) => "createTTL",
        (TxnOp::Client { .. }, OpCode::Delete) => "delete",
        (TxnOp::Client { .. }, OpCode::SetData) => "setData",
        (TxnOp::Client { .. }, OpCode::SetAcl) => "setACL",
        (TxnOp::Client { .. }, OpCode::Multi) => "multi",
        (TxnOp::Client { .. }, _) => "unknown",
    }
}

/// The path that it concerned, if one.
fn path(txn: &Txn, applied: &Applied) -> Option<String> {
    if let Ok(Response::Path(path) | Response::PathStat(path, _)) = &applied.result {
        return Some(path.as_str().to_owned());
    }
    asked_path(txn)
}

/// Operations and paths of an entry, for people: a few of them.
pub(in crate::replica) fn asked(data: &Bytes) -> String {
    const SHOWN_MAX: usize = 8;
    let txns = Batch::decode(data).map_or_else(|_| Vec::new(), |batch| batch.txns);
    let shown = txns.iter().take(SHOWN_MAX).map(|txn| {
        let op = match &txn.op {
            TxnOp::Client { op, .. } => OpCode::from_wire(*op).unwrap_or(OpCode::Check),
            _ => OpCode::Check,
        };
        asked_path(txn)
            .map_or_else(|| name(txn, op).to_owned(), |of| format!("{} {of}", name(txn, op)))
    });
    let mut shown: Vec<String> = shown.collect();
    if txns.len() > SHOWN_MAX {
        shown.push(format!("and {} more", txns.len() - SHOWN_MAX));
    }
    shown.join(", ")
}

/// The path that it asks for, if it asks for one.
fn asked_path(txn: &Txn) -> Option<String> {
    let path = |path: &Text| Some(path.as_str().to_owned());
    match &txn.op {
        TxnOp::Reap { path: reaped } => path(reaped),
        TxnOp::OpenSession { .. }
        | TxnOp::AttachSession { .. }
        | TxnOp::CloseSession
        | TxnOp::ExpireSession
        | TxnOp::Found { .. }
        | TxnOp::Upgrade { .. }
        | TxnOp::Refuse { .. }
        | TxnOp::Migrate(_) => None,
        TxnOp::Foreign(foreign) => foreign_path(&foreign.body),
        TxnOp::Client { op, body } => match Request::decode(*op, body.clone()).ok()? {
            Request::Create(create) => path(&create.path),
            Request::Delete { path: of, .. }
            | Request::SetData { path: of, .. }
            | Request::SetAcl { path: of, .. } => path(&of),
            Request::Multi(ops) => Some(multi_paths(&ops)),
            _ => None,
        },
    }
}

fn foreign_name(of: i32) -> &'static str {
    match of {
        kind::ERROR => "error",
        kind::CREATE_SESSION => "createSession",
        kind::CLOSE_SESSION => "closeSession",
        kind::CREATE => "create",
        kind::DELETE => "delete",
        kind::SET_DATA => "setData",
        kind::SET_ACL => "setACL",
        kind::MULTI => "multi",
        kind::CREATE2 => "create2",
        kind::RECONFIG => "reconfig",
        kind::CREATE_CONTAINER => "createContainer",
        kind::DELETE_CONTAINER => "deleteContainer",
        kind::CREATE_TTL => "createTTL",
        _ => "unknown",
    }
}

fn foreign_path(body: &TxnBody) -> Option<String> {
    match body {
        TxnBody::Create(create) => Some(create.path.as_str().to_owned()),
        TxnBody::Delete { path }
        | TxnBody::SetData { path, .. }
        | TxnBody::SetAcl { path, .. }
        | TxnBody::Check { path, .. } => Some(path.as_str().to_owned()),
        TxnBody::Multi(subs) => {
            let paths: Vec<String> =
                subs.iter().filter_map(|sub| foreign_path(&sub.body)).collect();
            Some(paths.join(","))
        }
        TxnBody::CreateSession { .. } | TxnBody::CloseSession { .. } | TxnBody::Error { .. } => {
            None
        }
    }
}

/// Paths of a multi, in order, separated by commas.
fn multi_paths(ops: &[MultiOp]) -> String {
    let paths: Vec<&str> = ops
        .iter()
        .map(|op| match op {
            MultiOp::Create(create) => create.path.as_str(),
            MultiOp::Delete { path, .. }
            | MultiOp::SetData { path, .. }
            | MultiOp::Check { path, .. } => path.as_str(),
        })
        .collect();
    paths.join(",")
}

/// `ok`, or the first error.
fn multi_outcome(results: &[MultiResult]) -> &'static str {
    let mut codes = results.iter().filter_map(|result| match result {
        MultiResult::Error(code) => *code,
        _ => None,
    });
    codes.next().map_or("ok", ErrorCode::name)
}
