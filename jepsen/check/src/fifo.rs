//! Client order (C13): the requests of a connection are answered in the order in which they were
//! sent, the writes of a session take effect in that order, and none is left out before another.
//!
//! *Owns* the connections of a history: what a process does between two connects.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::AuditLine;
use crate::history::{History, Operation, Outcome};
use crate::op::Call;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};
use crate::witness::is_transaction;

/// Checks the order of requests. With the servers' account also that none was skipped.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    let connections = connections(history);
    let applied: Option<BTreeSet<(i64, i32)>> =
        audit.map(|lines| lines.iter().map(|line| (line.session, line.cxid)).collect());
    let mut is_checked = false;
    for operations in connections.values() {
        let checked = answered_in_order(operations)
            .and_then(|()| applied_in_order(operations))
            .and_then(|()| none_skipped(operations, applied.as_ref()));
        if let Err(violation) = checked {
            return Verdict::Invalid(violation);
        }
        is_checked |= operations.len() > 1;
    }
    match is_checked {
        true => Verdict::Valid,
        false => Verdict::Moot("no connection had two requests".to_owned()),
    }
}

/// What was sent over each connection, in order.
fn connections(history: &History) -> BTreeMap<(u64, u64), Vec<&Operation>> {
    let mut connections: BTreeMap<(u64, u64), Vec<&Operation>> = BTreeMap::new();
    let mut number: BTreeMap<u64, u64> = BTreeMap::new();
    for operation in &history.operations {
        let number = number.entry(operation.process).or_default();
        match (&operation.call, &operation.outcome) {
            (Call::Connect { .. }, _) => *number += 1,
            // Pings have an order of their own.
            (Call::Ping, _) | (_, Outcome::NotSent { .. }) => {}
            _ => connections.entry((operation.process, *number)).or_default().push(operation),
        }
    }
    connections
}

fn violation(what: &str, first: &Operation, second: &Operation) -> Violation {
    let around = vec![report::operation(first), format!("> {}", report::operation(second))];
    Violation { rule: Rule::Fifo, what: what.to_owned(), around }
}

fn answered_in_order(operations: &[&Operation]) -> Result<(), Violation> {
    let mut before: Option<&Operation> = None;
    for operation in operations {
        let Some((at, _, _)) = operation.reply() else { continue };
        if let Some(before) = before
            && before.completed().is_some_and(|earlier| earlier.index > at.index)
        {
            return Err(violation(
                "it was answered before one that was sent earlier",
                before,
                operation,
            ));
        }
        before = Some(operation);
    }
    Ok(())
}

/// Writes take effect in order, and a read shows nothing of a write that was sent behind it.
fn applied_in_order(operations: &[&Operation]) -> Result<(), Violation> {
    let mut before: Option<(&Operation, i64)> = None;
    let mut shown: Option<(&Operation, i64)> = None;
    for operation in operations {
        let Some((_, zxid, said)) = operation.reply() else { continue };
        let speaks = said.as_ref().err().is_none_or(|code| code.is_of_the_znodes());
        if operation.call.is_read() && speaks && shown.is_none_or(|(_, newest)| newest < zxid) {
            shown = Some((operation, zxid));
        }
        if !is_transaction(operation) {
            continue;
        }
        if let Some((read, newest)) = shown
            && newest >= zxid
        {
            return Err(violation("a read that was sent earlier shows it", read, operation));
        }
        if let Some((before, earlier)) = before
            && earlier >= zxid
        {
            return Err(violation(
                "it took effect before one that was sent earlier",
                before,
                operation,
            ));
        }
        before = Some((operation, zxid));
    }
    Ok(())
}

fn none_skipped(
    operations: &[&Operation],
    applied: Option<&BTreeSet<(i64, i32)>>,
) -> Result<(), Violation> {
    let Some(applied) = applied else { return Ok(()) };
    let mut skipped: Option<&Operation> = None;
    for operation in operations.iter().filter(|operation| operation.call.is_write()) {
        let Some(xid) = operation.xid else { continue };
        let is_applied = applied.contains(&(operation.session, xid));
        match (skipped, &operation.outcome) {
            (Some(skipped), _) if is_applied => {
                return Err(violation(
                    "it took effect, one that was sent earlier did not",
                    skipped,
                    operation,
                ));
            }
            (None, Outcome::Unknown { .. }) if !is_applied => skipped = Some(operation),
            _ => {}
        }
    }
    Ok(())
}
