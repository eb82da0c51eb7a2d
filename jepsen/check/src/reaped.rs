//! Reaping (C20): a server removes by itself only containers that had children, and znodes with a time to live, and
//! those not before that time is over since they were last written.
//!
//! *Owns* when each such znode was written. It errs on the side of the servers: a write was done no earlier than it
//! was asked for, and a znode was gone no later than anybody was shown a state without it; both by the
//! clients' clock, so that it does not matter what the servers' clocks do.

use std::collections::BTreeMap;

use crate::account::{self, Transaction};
use crate::audit::AuditLine;
use crate::clock::ms;
use crate::history::{EventKind, History};
use crate::op::Mode;
use crate::path;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// A znode that the servers may remove by themselves.
#[derive(Clone, Copy, Debug)]
enum Mortal {
    Container {
        had_child: bool,
    },
    Ttl {
        ttl_ms: i64,
        /// When its last write was asked for.
        written_ms: i64,
    },
}

/// Checks what the servers have removed by themselves.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    let transactions = match account::replay(history, audit) {
        Ok(transactions) => transactions,
        Err(verdict) => return verdict,
    };
    let shown = shown(history);
    let mut mortals: BTreeMap<String, Mortal> = BTreeMap::new();
    let mut is_checked = false;
    for transaction in &transactions {
        if transaction.line.op == "deleteContainer" && transaction.line.result.is_ok() {
            is_checked = true;
            let path = transaction.line.path.as_deref().unwrap_or_default();
            if let Err(what) = may_go(mortals.get(path), shown_ms(&shown, transaction.zxid)) {
                let around = vec![format!("> {}", report::line(transaction.line))];
                let what = format!("{path} was removed: {what}");
                return Verdict::Invalid(Violation { rule: Rule::Reaped, what, around });
            }
        }
        note(&mut mortals, transaction);
    }
    match is_checked {
        true => Verdict::Valid,
        false => Verdict::Moot("the servers removed nothing by themselves".to_owned()),
    }
}

/// Whether a znode may be gone when somebody was shown that it is.
fn may_go(mortal: Option<&Mortal>, shown_ms: Option<i64>) -> Result<(), String> {
    match mortal {
        None => Err("it is no container, and has no time to live".to_owned()),
        Some(Mortal::Container { had_child: true }) => Ok(()),
        Some(Mortal::Container { had_child: false }) => Err("it never had a child".to_owned()),
        Some(Mortal::Ttl { ttl_ms, written_ms }) => {
            match shown_ms.map(|shown| shown - written_ms) {
                Some(age_ms) if age_ms < *ttl_ms => {
                    Err(format!("{age_ms} ms after it was written, time to live {ttl_ms} ms"))
                }
                Some(_) | None => Ok(()),
            }
        }
    }
}

/// What a transaction makes of the znodes that may go.
fn note(mortals: &mut BTreeMap<String, Mortal>, transaction: &Transaction<'_>) {
    let asked_ms = transaction.operation.map_or(0, |operation| ms(operation.invoked.time_ns));
    let made = transaction.creates();
    for change in &transaction.changes {
        match change.kind {
            EventKind::Created => {
                if let Some((parent, _)) = path::split(&change.path)
                    && let Some(Mortal::Container { had_child }) = mortals.get_mut(parent)
                {
                    *had_child = true;
                }
                let found = made.iter().find(|(_, path)| *path == change.path);
                let Some((create, path)) = found else { continue };
                let mortal = match create.mode {
                    Mode::Container => Mortal::Container { had_child: false },
                    mode if mode.has_ttl() => {
                        Mortal::Ttl { ttl_ms: create.ttl_ms, written_ms: asked_ms }
                    }
                    _ => continue,
                };
                mortals.insert(path.clone(), mortal);
            }
            EventKind::DataChanged => {
                if let Some(Mortal::Ttl { written_ms, .. }) = mortals.get_mut(&change.path) {
                    *written_ms = asked_ms;
                }
            }
            EventKind::Deleted => drop(mortals.remove(&change.path)),
            EventKind::ChildrenChanged => {}
        }
    }
}

/// By zxid, the first time at which anybody was shown that state or a later one.
fn shown(history: &History) -> Vec<(i64, i64)> {
    let replies = history.operations.iter().filter_map(|operation| operation.reply());
    let mut shown: Vec<(i64, i64)> = replies.map(|(at, zxid, _)| (zxid, ms(at.time_ns))).collect();
    shown.sort_unstable();
    let mut first = i64::MAX;
    for (_, at_ms) in shown.iter_mut().rev() {
        first = first.min(*at_ms);
        *at_ms = first;
    }
    shown
}

fn shown_ms(shown: &[(i64, i64)], zxid: i64) -> Option<i64> {
    shown.get(shown.partition_point(|(of, _)| *of < zxid)).map(|(_, at_ms)| *at_ms)
}
