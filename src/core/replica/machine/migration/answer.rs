//! What a transaction of ZooKeeper answers the client that asked for it, and how it reads.
//!
//! *Owns* the answers that ZooKeeper's server would give. *Invariant*: a request that came on a connection that its
//! session has left gets no answer, alone or in a multi. *Never* changes anything.
//!
//! Reproduces the answering half of `FinalRequestProcessor`.

use crate::proto::{ErrorCode, MultiResult, OpCode, Response};
use crate::replica::machine::foreign::ForeignResult;
use crate::zookeeper::txn::kind;
use crate::zookeeper::{SubTxn, Txn as ForeignTxn, TxnBody, TxnHeader};

/// Whether the transaction is that of a request that failed.
pub(super) fn is_failure(foreign: &ForeignTxn) -> bool {
    match &foreign.body {
        TxnBody::Error { .. } => true,
        TxnBody::Multi(subs) => subs.iter().any(|sub| matches!(sub.body, TxnBody::Error { .. })),
        _ => false,
    }
}

/// Whether ZooKeeper has refused it because the session belongs to another link than the one that it came over, or to
/// none since that one broke: nothing of it was done, and its client gets no answer.
#[must_use]
pub fn is_moved(foreign: &ForeignTxn) -> bool {
    let moved = ErrorCode::SessionMoved as i32;
    let is_it = |body: &TxnBody| matches!(body, TxnBody::Error { code } if *code == moved);
    match &foreign.body {
        TxnBody::Multi(subs) => subs.iter().any(|sub| is_it(&sub.body)),
        body => is_it(body),
    }
}

pub(super) fn op_of(kind: i32) -> OpCode {
    match kind {
        kind::CREATE_SESSION => OpCode::CreateSession,
        kind::CLOSE_SESSION => OpCode::CloseSession,
        // No reconfiguration of this ensemble.
        kind::RECONFIG => OpCode::SetData,
        other => OpCode::from_wire(other).unwrap_or(OpCode::Check),
    }
}

/// What a transaction does, for people: the paths that may differ.
pub(super) fn describe(foreign: &ForeignTxn) -> String {
    let TxnHeader { client_id, .. } = foreign.header;
    fn one(kind: i32, body: &TxnBody, session: i64) -> String {
        match body {
            TxnBody::Create(create) => format!("create of {}", create.path),
            TxnBody::Delete { path } => format!("delete of {path}"),
            TxnBody::SetData { path, .. } => format!("setData of {path}"),
            TxnBody::SetAcl { path, .. } => format!("setACL of {path}"),
            TxnBody::Check { path, .. } => format!("check of {path}"),
            TxnBody::CreateSession { .. } => format!("begin of session {session:#x}"),
            TxnBody::CloseSession { .. } => format!("end of session {session:#x}"),
            TxnBody::Error { code } => format!("error {code}"),
            TxnBody::Multi(_) => format!("kind {kind}"),
        }
    }
    match &foreign.body {
        TxnBody::Multi(subs) => {
            let parts: Vec<String> =
                subs.iter().map(|sub| one(sub.kind, &sub.body, client_id)).collect();
            format!("multi: {}", parts.join(", "))
        }
        body => one(foreign.header.kind, body, client_id),
    }
}

/// The answer that ZooKeeper would give the client whose request became this transaction.
pub(super) fn response(
    foreign: &ForeignTxn,
    mut results: Vec<Result<ForeignResult, ErrorCode>>,
) -> Result<Response, ErrorCode> {
    if let TxnBody::Multi(subs) = &foreign.body {
        let failed = subs.iter().position(|sub| matches!(sub.body, TxnBody::Error { .. }));
        if results.contains(&Err(ErrorCode::SessionMoved)) {
            // As for every other request: its connection is closed, and gets no answer.
            return Err(ErrorCode::SessionMoved);
        }
        let parts = subs.iter().zip(results).enumerate();
        let parts = parts.map(|(place, (sub, result))| multi_result(sub, result, (place, failed)));
        return Ok(Response::Multi(parts.collect()));
    }
    let result = results.pop().unwrap_or(Ok(ForeignResult::Done))?;
    Ok(match (foreign.header.kind, result) {
        (kind::CREATE, ForeignResult::Created { path, .. }) => Response::Path(path),
        (_, ForeignResult::Created { path, stat }) => Response::PathStat(path, stat),
        (_, ForeignResult::Changed { stat }) => Response::Stat(stat),
        (_, ForeignResult::Done) => Response::Empty,
    })
}

fn multi_result(
    sub: &SubTxn,
    result: Result<ForeignResult, ErrorCode>,
    (place, failed): (usize, Option<usize>),
) -> MultiResult {
    match (failed, result) {
        (Some(failed), _) if place < failed => MultiResult::Error(None),
        (_, Err(code)) => MultiResult::Error(Some(code)),
        (Some(_), Ok(_)) => MultiResult::Error(Some(ErrorCode::RuntimeInconsistency)),
        (None, Ok(ForeignResult::Created { path, stat })) => match sub.kind {
            kind::CREATE => MultiResult::Create { path },
            _ => MultiResult::Create2 { path, stat },
        },
        (None, Ok(ForeignResult::Changed { stat })) => MultiResult::SetData { stat },
        (None, Ok(ForeignResult::Done)) => match sub.kind {
            kind::CHECK => MultiResult::Check,
            _ => MultiResult::Delete,
        },
    }
}
