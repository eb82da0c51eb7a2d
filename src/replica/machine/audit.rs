//! What the audit log says of a transaction: operation, path and outcome.
//!
//! *Owns* the names that its lines use. *Never* decides anything: it reads what was applied.

use super::state::Applied;
use super::txn::{Txn, TxnOp};
use crate::proto::request::Request;
use crate::proto::{ErrorCode, MultiOp, MultiResult, OpCode, Response, Text};

/// Name of the operation.
pub(super) fn name(txn: &Txn, op: OpCode) -> &'static str {
    match (&txn.op, op) {
        (TxnOp::ExpireSession, _) => "expireSession",
        (TxnOp::CloseSession, _) => "closeSession",
        (TxnOp::OpenSession { .. }, _) => "createSession",
        (TxnOp::AttachSession { .. }, _) => "attachSession",
        (TxnOp::Reap { .. }, _) => "deleteContainer",
        (TxnOp::Found { .. }, _) => "found",
        (TxnOp::Upgrade { .. }, _) => "upgrade",
        (TxnOp::Refuse { .. }, _) => "refuse",
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
pub(super) fn path(txn: &Txn, applied: &Applied) -> Option<String> {
    if let Ok(Response::Path(path) | Response::PathStat(path, _)) = &applied.result {
        return Some(path.as_str().to_owned());
    }
    let path = |path: &Text| Some(path.as_str().to_owned());
    match &txn.op {
        TxnOp::Reap { path: reaped } => path(reaped),
        TxnOp::OpenSession { .. }
        | TxnOp::AttachSession { .. }
        | TxnOp::CloseSession
        | TxnOp::ExpireSession
        | TxnOp::Found { .. }
        | TxnOp::Upgrade { .. }
        | TxnOp::Refuse { .. } => None,
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
pub(super) fn multi_outcome(results: &[MultiResult]) -> &'static str {
    let mut codes = results.iter().filter_map(|result| match result {
        MultiResult::Error(code) => *code,
        _ => None,
    });
    codes.next().map_or("ok", ErrorCode::name)
}
