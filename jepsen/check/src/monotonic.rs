//! Monotonic reads (C14): a session never goes back in time, whichever server it talks to, and sees
//! its own writes.
//!
//! *Owns* the zxids of each session's replies in the order in which they came.

use std::collections::BTreeMap;

use crate::history::{History, Operation};
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// Checks that no reply of a session is older than one before it.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let mut replies: Vec<(u64, i64, &Operation)> = history
        .operations
        .iter()
        .filter(|operation| operation.session != 0)
        .filter_map(|operation| {
            let (at, zxid, result) = operation.reply()?;
            let speaks = result.as_ref().err().is_none_or(|code| code.is_of_the_znodes());
            (speaks && zxid > 0).then_some((at.index, zxid, operation))
        })
        .collect();
    replies.sort_by_key(|(index, _, _)| *index);
    let mut latest: BTreeMap<i64, (i64, &Operation)> = BTreeMap::new();
    let mut is_checked = false;
    for (_, zxid, operation) in replies {
        if let Some((newest, before)) = latest.get(&operation.session) {
            is_checked = true;
            if zxid < *newest {
                return Verdict::Invalid(Violation {
                    rule: Rule::Monotonic,
                    what: format!("zxid {zxid:#x} came after {newest:#x}"),
                    around: vec![
                        report::operation(before),
                        format!("> {}", report::operation(operation)),
                    ],
                });
            }
        }
        latest.insert(operation.session, (zxid, operation));
    }
    match is_checked {
        true => Verdict::Valid,
        false => Verdict::Moot("no session had two replies".to_owned()),
    }
}
