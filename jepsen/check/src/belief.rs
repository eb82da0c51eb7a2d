//! Belief (C7): two clients may both believe that they hold a lock only while the older one's session
//! has ended and it could not have heard of that.
//!
//! *Owns* the times during which clients took themselves for holders. No service can keep a paused
//! client from believing what was true before; it can only be bounded, and fenced off
//! ([`fencing`](crate::fencing)). So this is told apart from what the servers did
//! ([`locks`](crate::locks)).

use std::collections::BTreeMap;

use crate::account;
use crate::audit::AuditLine;
use crate::history::{History, Moment, Notice, NoticeKind};
use crate::path;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// A client takes itself for the holder.
#[derive(Clone, Debug)]
pub struct Belief<'a> {
    pub lock: &'a str,
    /// Others may hold it too, if they also share it.
    pub is_shared: bool,
    pub process: u64,
    pub session: i64,
    /// The fencing token.
    pub token: i64,
    pub from: Moment,
    /// `None`: to the end of the run.
    pub until: Option<Moment>,
    notice: &'a Notice,
}

/// Two clients at once: the older one, and for how long.
#[derive(Clone, Debug)]
pub struct Overlap<'a> {
    pub older: Belief<'a>,
    pub newer: Belief<'a>,
    /// Nanoseconds; `None`: the older one never learned.
    pub for_ns: Option<u64>,
}

/// Checks that every overlap is one that nobody could have helped.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    if beliefs(history).is_empty() {
        return Verdict::Moot("nobody held a lock".to_owned());
    }
    let overlaps = overlaps(history);
    let transactions = match account::replay(history, audit) {
        Ok(transactions) => transactions,
        Err(verdict) => return verdict,
    };
    let ended = transactions.iter().filter(|one| account::ends_session(one.line));
    let ends: BTreeMap<i64, i64> = ended.map(|one| (one.line.session, one.zxid)).collect();
    for Overlap { older, newer, .. } in &overlaps {
        let wrong = |what: String| {
            let around =
                vec![report::notice(older.notice), format!("> {}", report::notice(newer.notice))];
            Verdict::Invalid(Violation { rule: Rule::LockBelief, what, around })
        };
        let Some(end) = ends.get(&older.session) else {
            let what = "two clients hold it, and the session of the first lives";
            return wrong(format!("{}: {what}", older.lock));
        };
        if knew(history, older, *end, newer.from) {
            let what = "two clients hold it, and the first could have known better";
            return wrong(format!("{}: {what}", older.lock));
        }
    }
    Verdict::Valid
}

/// Whether a client was told of its session's end, or shown a state after it, before a moment.
fn knew(history: &History, older: &Belief<'_>, end: i64, before: Moment) -> bool {
    let told = history.notices.iter().any(|notice| {
        (notice.process, notice.session) == (older.process, older.session)
            && notice.kind == NoticeKind::Expired
            && notice.at < before
    });
    let is_of_it =
        |session: i64, process: u64| (process, session) == (older.process, older.session);
    let shown = history.operations.iter().any(|operation| {
        let shows = |(at, zxid): (Moment, i64)| zxid >= end && at < before && at > older.from;
        is_of_it(operation.session, operation.process)
            && operation.reply().is_some_and(|(at, zxid, _)| shows((at, zxid)))
    });
    told || shown
}

/// Who took itself for the holder and when, in the order in which that began.
#[must_use]
pub fn beliefs(history: &History) -> Vec<Belief<'_>> {
    let mut all: Vec<Belief<'_>> = Vec::new();
    let mut open: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for notice in &history.notices {
        match &notice.kind {
            NoticeKind::Holds { lock, znode, token } => {
                open.insert((lock, notice.process), all.len());
                let is_shared = path::is_shared(znode);
                let (process, session) = (notice.process, notice.session);
                let (from, until) = (notice.at, None);
                let token = *token;
                let belief =
                    Belief { lock, is_shared, process, session, token, from, until, notice };
                all.push(belief);
            }
            NoticeKind::HoldsNoMore { lock } => {
                if let Some(at) = open.remove(&(lock.as_str(), notice.process)) {
                    all[at].until = Some(notice.at);
                }
            }
            NoticeKind::Watch { .. }
            | NoticeKind::Disconnected
            | NoticeKind::Expired
            | NoticeKind::Stored(_) => {}
        }
    }
    all
}

/// All overlaps of which one could not be shared.
#[must_use]
pub fn overlaps(history: &History) -> Vec<Overlap<'_>> {
    let mut overlaps = Vec::new();
    let mut running: BTreeMap<&str, Vec<Belief<'_>>> = BTreeMap::new();
    for newer in beliefs(history) {
        let of_lock = running.entry(newer.lock).or_default();
        of_lock.retain(|older| older.until.is_none_or(|until| until > newer.from));
        let excludes = |older: &&Belief<'_>| !(older.is_shared && newer.is_shared);
        for older in of_lock.iter().filter(excludes) {
            let for_ns = older.until.map(|until| until.time_ns - newer.from.time_ns);
            overlaps.push(Overlap { older: older.clone(), newer: newer.clone(), for_ns });
        }
        of_lock.push(newer);
    }
    overlaps
}
