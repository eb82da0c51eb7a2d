//! Liveness (C9): once the faults are over, whoever waits for a lock comes closer to it within
//! [`limit_ms`], turn by turn, and is told when it is there; and no znode asks for a lock on behalf of
//! a session that its client was told is gone.
//!
//! *Owns* who waits for a lock and since when one ahead of it has gone. It errs on the side of the
//! servers: a transaction happened no later than anybody was shown its state, and who waits in vain
//! for less than the limit, because the run ended, proves nothing. *Relies* on clients that hold a
//! lock for no longer than their session may outlive them. That a znode outlives a session whose end
//! is in the account is the part of [`ephemerals`](crate::ephemerals).

use std::collections::{BTreeMap, BTreeSet};

use crate::account::{self, Transaction};
use crate::audit::AuditLine;
use crate::history::{EventKind, History, NoticeKind};
use crate::locks::{self, Grant};
use crate::op::{Answer, Call};
use crate::path;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// The name of the end of all faults.
pub const HEAL: &str = "heal";
/// What an election, a start of a server and a busy machine add to a turn, milliseconds.
const BOUND_MS: u64 = 6000;

/// A znode that asks for a lock.
#[derive(Debug)]
struct Contender<'a> {
    lock: &'a str,
    number: u64,
    /// The zxids at which it came and went.
    born: i64,
    gone: i64,
    line: &'a AuditLine,
}

type Contenders<'a> = BTreeMap<String, Contender<'a>>;

/// When things happened at the latest, nanoseconds of the run's clock.
#[derive(Debug, Default)]
struct Sight<'a> {
    /// The newest state that anybody was shown by then: zxid and time, both rising.
    shown: Vec<(i64, u64)>,
    /// When a client took itself for the holder, by its znode.
    holds: BTreeMap<&'a str, u64>,
    /// When a session's client asked for something, the last time.
    asked: BTreeMap<i64, u64>,
}

/// How long a turn may take, milliseconds: the session of who is ahead has to end, and a new leader
/// gives it its timeout once more.
#[must_use]
pub fn limit_ms(timeout_ms: u64) -> u64 {
    2 * timeout_ms + BOUND_MS
}

/// Checks all locks that clients speak of, from the end of the last fault on.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    let names = locks::names(history);
    let healed = history.faults.iter().rfind(|fault| fault.name == HEAL);
    let (Some(healed), Some(timeout_ms)) = (healed, longest_timeout_ms(history)) else {
        return Verdict::Moot("the faults have no end, or nobody has a session".to_owned());
    };
    let transactions = match account::replay(history, audit) {
        Ok(transactions) => transactions,
        Err(verdict) => return verdict,
    };
    let Ok(grants) = locks::grants(&transactions, &names) else {
        return Verdict::Unknown("the locks were not granted in their order".to_owned());
    };
    let contenders = contenders(&transactions, &names);
    if let Err(violation) = no_orphans(history, &contenders) {
        return Verdict::Invalid(violation);
    }
    let (sight, calm) = (Sight::of(history), healed.at.time_ns);
    let mut waiting =
        contenders.iter().filter(|(path, one)| sight.end(path, one) > calm).peekable();
    if waiting.peek().is_none() {
        return Verdict::Moot("nobody asked for a lock once the faults were over".to_owned());
    }
    let limit_ms = limit_ms(timeout_ms);
    let mut judged = waiting.map(|(path, one)| {
        let granted = grants.get(path);
        let turns = turns(path, one, granted, &contenders, &sight, calm);
        let longest = turns.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).max();
        match longest.filter(|longest_ms| *longest_ms > limit_ms) {
            None => Ok(()),
            Some(longest_ms) => Err(Violation {
                rule: Rule::LockLiveness,
                what: format!(
                    "{path} came no closer to its lock for {longest_ms} ms of {limit_ms}"
                ),
                around: vec![format!("> {}", report::line(one.line))],
            }),
        }
    });
    judged.find(Result::is_err).unwrap_or(Ok(())).into()
}

/// When a contender came closer to its lock: it asked for it, one ahead went, it was the holder's or
/// its client gave up. Nothing counts before `calm`.
fn turns(
    path: &str,
    one: &Contender<'_>,
    granted: Option<&Grant>,
    contenders: &Contenders<'_>,
    sight: &Sight<'_>,
    calm: u64,
) -> Vec<u64> {
    let end = sight.end(path, one);
    let until = granted.map_or(i64::MAX, |grant| grant.from);
    let is_ahead = |other: &&Contender<'_>| {
        other.lock == one.lock
            && other.number < one.number
            && (one.born..=until).contains(&other.gone)
    };
    let left = contenders.values().filter(is_ahead).map(|other| sight.seen(other.gone));
    let all = left.chain([calm, sight.seen(one.born), end]);
    let mut turns: Vec<u64> = all.map(|at| at.clamp(calm, end)).collect();
    turns.sort_unstable();
    turns
}

fn longest_timeout_ms(history: &History) -> Option<u64> {
    let granted = history.operations.iter().filter_map(|operation| match operation.reply() {
        Some((_, _, Ok(Answer::Session { timeout_ms, .. }))) => u64::try_from(*timeout_ms).ok(),
        _ => None,
    });
    granted.max().filter(|longest| *longest > 0)
}

/// All who ever asked for one of the locks, by path.
fn contenders<'a>(transactions: &[Transaction<'a>], names: &'a BTreeSet<String>) -> Contenders<'a> {
    let mut all = Contenders::new();
    for Transaction { zxid, line, changes, .. } in transactions {
        for change in changes {
            let Some((parent, name)) = path::split(&change.path) else { continue };
            let place = names.get(parent).zip(path::trailing_number(name));
            match (change.kind, place) {
                (EventKind::Created, Some((lock, number))) => {
                    let one = Contender { lock, number, born: *zxid, gone: i64::MAX, line };
                    all.insert(change.path.clone(), one);
                }
                (EventKind::Deleted, Some(_)) => {
                    if let Some(one) = all.get_mut(&change.path) {
                        one.gone = *zxid;
                    }
                }
                (EventKind::DataChanged | EventKind::ChildrenChanged, _) | (_, None) => {}
            }
        }
    }
    all
}

/// Whose client was told that its session is gone has no place in a queue at the end of the run.
fn no_orphans(history: &History, contenders: &Contenders<'_>) -> Result<(), Violation> {
    let told = history.notices.iter().filter(|notice| notice.kind == NoticeKind::Expired);
    let closed = history.operations.iter().filter(|operation| {
        operation.call == Call::Close && operation.reply().is_some_and(|(_, _, said)| said.is_ok())
    });
    let told = told.map(|notice| notice.session);
    let over: BTreeSet<i64> = told.chain(closed.map(|operation| operation.session)).collect();
    let is_orphan = |one: &Contender<'_>| one.gone == i64::MAX && over.contains(&one.line.session);
    match contenders.iter().find(|(_, one)| is_orphan(one)) {
        None => Ok(()),
        Some((path, one)) => Err(Violation {
            rule: Rule::LockOrphan,
            what: format!("{path} stays, and session {:#x} is gone", one.line.session),
            around: vec![format!("> {}", report::line(one.line))],
        }),
    }
}

impl<'a> Sight<'a> {
    fn of(history: &'a History) -> Self {
        let mut sight = Self::default();
        let mut told: Vec<(u64, i64)> = Vec::new();
        for operation in &history.operations {
            told.extend(operation.reply().map(|(at, zxid, _)| (at.time_ns, zxid)));
            let asked = sight.asked.entry(operation.session).or_default();
            *asked = operation.invoked.time_ns.max(*asked);
        }
        for notice in &history.notices {
            match &notice.kind {
                NoticeKind::Watch { zxid, .. } => told.push((notice.at.time_ns, *zxid)),
                NoticeKind::Holds { znode, .. } => {
                    sight.holds.entry(znode).or_insert(notice.at.time_ns);
                }
                NoticeKind::Disconnected
                | NoticeKind::Expired
                | NoticeKind::HoldsNoMore { .. }
                | NoticeKind::Stored(_) => {}
            }
        }
        told.sort_unstable();
        for (at, zxid) in told {
            if sight.shown.last().is_none_or(|(newest, _)| zxid > *newest) {
                sight.shown.push((zxid, at));
            }
        }
        sight
    }

    /// When a transaction had happened, as far as anybody knows.
    fn seen(&self, zxid: i64) -> u64 {
        let at = self.shown.partition_point(|(newest, _)| *newest < zxid);
        self.shown.get(at).map_or(u64::MAX, |(_, at)| *at)
    }

    /// When a contender's client had the lock or waited for it no more.
    fn end(&self, path: &str, one: &Contender<'_>) -> u64 {
        let gave_up = self.asked.get(&one.line.session).copied().unwrap_or_default();
        let left = self.seen(one.gone).min(gave_up);
        self.holds.get(path).copied().unwrap_or(left)
    }
}
