//! Locks (C6): at every zxid a lock has one holder, the lowest of its sequential znodes; it changes
//! only when that one goes, and its fencing token rises with each grant.
//!
//! *Owns* the grants of every lock by the servers' account, and whether each client that took itself
//! for the holder was shown that it is. This is the layer that can be and must be perfect; what paused
//! clients believe is the part of [`belief`](crate::belief).

use std::collections::{BTreeMap, BTreeSet};

use crate::account::{self, Transaction};
use crate::audit::AuditLine;
use crate::history::{EventKind, History, Notice, NoticeKind};
use crate::path;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// Somebody holds a lock, by the servers' account.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) session: i64,
    /// The czxid of its znode.
    pub(crate) token: i64,
    /// The zxid at which it became the lowest.
    pub(crate) from: i64,
    /// The zxid at which it was gone.
    pub(crate) until: i64,
}

/// The children of a lock, in order of their numbers.
#[derive(Debug, Default)]
struct Lock {
    waiting: BTreeMap<u64, (String, i64, i64)>,
    holder: Option<(u64, String)>,
    token: i64,
}

/// Checks the grants of all locks that clients speak of.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    let names = names(history);
    if names.is_empty() {
        return Verdict::Moot("nobody held a lock".to_owned());
    }
    let transactions = match account::replay(history, audit) {
        Ok(transactions) => transactions,
        Err(verdict) => return verdict,
    };
    let grants = match grants(&transactions, &names) {
        Ok(grants) => grants,
        Err(violation) => return Verdict::Invalid(violation),
    };
    shown(history, &grants).into()
}

/// The locks that somebody held.
pub(crate) fn names(history: &History) -> BTreeSet<String> {
    let held = |notice: &Notice| match &notice.kind {
        NoticeKind::Holds { lock, .. } => Some(lock.clone()),
        _ => None,
    };
    history.notices.iter().filter_map(held).collect()
}

/// Who held each lock, by the path of the znode.
pub(crate) fn grants(
    transactions: &[Transaction<'_>],
    names: &BTreeSet<String>,
) -> Result<BTreeMap<String, Grant>, Violation> {
    let mut locks: BTreeMap<&str, Lock> = BTreeMap::new();
    let mut grants: BTreeMap<String, Grant> = BTreeMap::new();
    for transaction in transactions {
        let mut touched: BTreeSet<&str> = BTreeSet::new();
        for change in &transaction.changes {
            let Some((parent, name)) = path::split(&change.path) else { continue };
            let (Some(lock), Some(number)) = (names.get(parent), path::trailing_number(name))
            else {
                continue;
            };
            touched.insert(lock);
            let waiting = &mut locks.entry(lock).or_default().waiting;
            match change.kind {
                EventKind::Created => {
                    let entry = (change.path.clone(), transaction.zxid, transaction.line.session);
                    waiting.insert(number, entry);
                }
                EventKind::Deleted => {
                    waiting.remove(&number);
                    if let Some(grant) = grants.get_mut(&change.path) {
                        grant.until = grant.until.min(transaction.zxid);
                    }
                }
                EventKind::DataChanged | EventKind::ChildrenChanged => {}
            }
        }
        for lock in touched {
            let of_lock = locks.entry(lock).or_default();
            if let Some((path, grant)) = of_lock.next(lock, transaction)? {
                grants.insert(path, grant);
            }
        }
    }
    Ok(grants)
}

impl Lock {
    /// The grant that a transaction brought about, if it did.
    fn next(
        &mut self,
        lock: &str,
        transaction: &Transaction<'_>,
    ) -> Result<Option<(String, Grant)>, Violation> {
        let lowest = self.waiting.first_key_value();
        let now = lowest.map(|(number, (path, _, _))| (*number, path.clone()));
        if now == self.holder {
            return Ok(None);
        }
        let wrong = |rule: Rule, what: String| {
            Err(Violation {
                rule,
                what,
                around: vec![format!("> {}", report::line(transaction.line))],
            })
        };
        if let Some((number, before)) = &self.holder
            && self.waiting.contains_key(number)
        {
            let after = now.map_or_else(|| "nobody".to_owned(), |(_, path)| path);
            let what = format!("{lock} went to {after} while {before} was there");
            return wrong(Rule::LockHolder, what);
        }
        let granted = lowest.map(|(_, (path, token, session))| {
            let (token, from) = (*token, transaction.zxid);
            (path.clone(), Grant { session: *session, token, from, until: i64::MAX })
        });
        self.holder = now;
        let Some((path, grant)) = granted else { return Ok(None) };
        if grant.token <= self.token {
            let what = format!(
                "{lock} was granted with the token {:#x} after {:#x}",
                grant.token, self.token
            );
            return wrong(Rule::LockToken, what);
        }
        self.token = grant.token;
        Ok(Some((path, grant)))
    }
}

/// Who holds a lock was shown a state in which its own znode was the lowest.
fn shown(history: &History, grants: &BTreeMap<String, Grant>) -> Result<(), Violation> {
    let mut replies: BTreeMap<u64, Vec<(i64, u64)>> = BTreeMap::new();
    for operation in &history.operations {
        if let Some((at, zxid, _)) = operation.reply() {
            replies.entry(operation.process).or_default().push((zxid, at.index));
        }
    }
    replies.values_mut().for_each(|replies| replies.sort_unstable());
    for notice in &history.notices {
        let NoticeKind::Holds { lock, znode, token } = &notice.kind else { continue };
        let wrong = |rule: Rule, what: String| {
            let around = vec![format!("> {}", report::notice(notice))];
            Err(Violation { rule, what: format!("{lock}: {what}"), around })
        };
        let Some(grant) = grants.get(znode) else {
            return wrong(Rule::LockHolder, format!("{znode} was never the lowest"));
        };
        if grant.session != notice.session {
            let what = format!("{znode} is session {:#x}'s", grant.session);
            return wrong(Rule::LockHolder, what);
        }
        if grant.token != *token {
            return wrong(Rule::LockToken, format!("the token is {:#x}", grant.token));
        }
        let of_process = replies.get(&notice.process).map_or(&[][..], Vec::as_slice);
        let first = of_process.partition_point(|(zxid, _)| *zxid < grant.from);
        let seen = of_process[first..].iter().take_while(|(zxid, _)| *zxid < grant.until);
        if !seen.clone().any(|(_, index)| *index < notice.at.index) {
            return wrong(Rule::LockHolder, format!("nobody told it that {znode} is the lowest"));
        }
    }
    Ok(())
}
