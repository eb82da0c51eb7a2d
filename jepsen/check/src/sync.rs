//! Sync (C15): what a session reads behind a `sync` has every write that had returned, to anybody,
//! before that `sync` was asked for.
//!
//! *Owns* the newest write that had returned at each time. ZooKeeper itself may break this rule while
//! a leader is cut off: its `sync` asks nobody else.

use std::collections::BTreeMap;

use crate::history::{History, Operation};
use crate::op::Call;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};
use crate::witness::is_transaction;

/// Checks reads behind a `sync` of their connection.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let returned = returned(history);
    // Of each session: the node of its last sync, and what its reads must have.
    let mut synced: BTreeMap<(u64, i64), (&Option<String>, i64, &Operation)> = BTreeMap::new();
    let mut is_checked = false;
    for operation in &history.operations {
        let key = (operation.process, operation.session);
        match (&operation.call, operation.reply()) {
            (Call::Sync { .. }, Some((_, _, Ok(_)))) => {
                let before = returned.partition_point(|(at, _)| *at < operation.invoked.index);
                if before > 0 {
                    synced.insert(key, (&operation.node, returned[before - 1].1, operation));
                }
            }
            (Call::Connect { .. }, _) => {
                synced.remove(&key);
            }
            (call, Some((_, zxid, result))) if call.is_read() => {
                let judged = result.as_ref().err().is_none_or(|code| code.is_of_the_znodes());
                let Some((node, newest, sync)) = synced.get(&key).filter(|_| judged) else {
                    continue;
                };
                is_checked |= **node == operation.node;
                if **node == operation.node && zxid < *newest {
                    return Verdict::Invalid(Violation {
                        rule: Rule::Sync,
                        what: format!(
                            "zxid {newest:#x} had returned before the sync, {zxid:#x} was read"
                        ),
                        around: vec![
                            report::operation(sync),
                            format!("> {}", report::operation(operation)),
                        ],
                    });
                }
            }
            _ => {}
        }
    }
    match is_checked {
        true => Verdict::Valid,
        false => Verdict::Moot("nothing was read behind a sync".to_owned()),
    }
}

/// Index of each return of a write, and the highest zxid that had returned by then.
fn returned(history: &History) -> Vec<(u64, i64)> {
    let writes = history.operations.iter().filter(|operation| is_transaction(operation));
    let mut returned: Vec<(u64, i64)> = writes
        .map(|operation| {
            let (at, zxid, _) = operation.reply().expect("a transaction has one");
            (at.index, zxid)
        })
        .collect();
    returned.sort_unstable();
    let mut newest = 0;
    for (_, zxid) in &mut returned {
        newest = newest.max(*zxid);
        *zxid = newest;
    }
    returned
}
