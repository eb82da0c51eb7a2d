//! Locks (C6): at every zxid a lock has one holder, the lowest of its sequential znodes; it changes
//! only when that one goes, and its fencing token rises with each grant. Of a shared lock the holders
//! are the lowest and, if that one is a reader, all readers before the first writer.
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
    /// Who holds it, by number.
    holders: BTreeMap<u64, String>,
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
            grants.extend(of_lock.next(lock, transaction)?);
        }
    }
    Ok(grants)
}

impl Lock {
    /// Who is to hold it now.
    fn entitled(&self) -> BTreeMap<u64, String> {
        let is_first_shared =
            self.waiting.first_key_value().is_some_and(|(_, (path, _, _))| path::is_shared(path));
        let count = match is_first_shared {
            true => usize::MAX,
            false => 1,
        };
        let run = self.waiting.iter().take(count);
        run.take_while(|(_, (path, _, _))| !is_first_shared || path::is_shared(path))
            .map(|(number, (path, _, _))| (*number, path.clone()))
            .collect()
    }

    /// The grants that a transaction brought about.
    fn next(
        &mut self,
        lock: &str,
        transaction: &Transaction<'_>,
    ) -> Result<Vec<(String, Grant)>, Violation> {
        let now = self.entitled();
        let before = std::mem::replace(&mut self.holders, now.clone());
        let wrong = |rule: Rule, what: String| {
            Err(Violation {
                rule,
                what,
                around: vec![format!("> {}", report::line(transaction.line))],
            })
        };
        let mut passed_over = before.iter().filter(|(number, _)| !now.contains_key(number));
        if let Some((_, path)) = passed_over.find(|(number, _)| self.waiting.contains_key(number)) {
            let after = now.values().next().map_or("nobody", String::as_str);
            let what = format!("{lock} went to {after} while {path} was there");
            return wrong(Rule::LockHolder, what);
        }
        let mut granted = Vec::new();
        for (number, path) in now.into_iter().filter(|(number, _)| !before.contains_key(number)) {
            let (_, token, session) = self.waiting[&number];
            if token <= self.token {
                let what =
                    format!("{lock} was granted with the token {token:#x} after {:#x}", self.token);
                return wrong(Rule::LockToken, what);
            }
            self.token = token;
            granted.push((path, Grant { session, token, from: transaction.zxid, until: i64::MAX }));
        }
        Ok(granted)
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
