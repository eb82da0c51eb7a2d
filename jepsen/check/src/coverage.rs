//! Coverage: what happened in a run, for a run that was to show something and in which it never
//! happened has shown nothing.
//!
//! *Owns* the counts. *Never* makes a verdict worse than unknown.

use std::collections::{BTreeMap, BTreeSet};

use crate::account;
use crate::audit::AuditLine;
use crate::fencing;
use crate::history::{History, NoticeKind, Outcome};
use crate::op::Call;
use crate::verdict::Verdict;

/// What a run may be meant to bring about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A fault, by name.
    Fault(String),
    /// An operation that succeeded.
    Answered,
    /// An operation with unknown outcome.
    Unknown,
    /// A session that the servers ended.
    Expiry,
    /// A term in which something was applied, beyond the first.
    Election,
    /// A leap of the servers' clock from one transaction to the next, forth or back.
    ClockJump,
    /// A client that came back with its session.
    Reconnect,
    /// A client that was told of a change.
    WatchFired,
    /// A client that took itself for the holder of a lock.
    LockGranted,
    /// A write that a store lost which asks for no token.
    LostWithoutFencing,
}

/// What must have happened, and how often at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub event: Event,
    pub at_least: u64,
}

/// Transactions of servers at work do not lie so far apart, milliseconds.
const LEAP_MS: u64 = 20_000;

/// How often each event happened; those that never did are not in it.
#[must_use]
pub fn count(history: &History, audit: Option<&[AuditLine]>) -> BTreeMap<Event, u64> {
    let mut counts: BTreeMap<Event, u64> = BTreeMap::new();
    let mut add = |event: Event, times: usize| {
        if times > 0 {
            *counts.entry(event).or_default() += times as u64;
        }
    };
    for fault in &history.faults {
        add(Event::Fault(fault.name.clone()), 1);
    }
    for operation in &history.operations {
        match &operation.outcome {
            Outcome::Replied { result: Ok(_), .. } => {
                add(Event::Answered, 1);
                let is_back =
                    matches!(operation.call, Call::Connect { session, .. } if session != 0);
                add(Event::Reconnect, usize::from(is_back && operation.session_after() != 0));
            }
            Outcome::Unknown { .. } => add(Event::Unknown, 1),
            Outcome::Replied { .. } | Outcome::NotSent { .. } => {}
        }
    }
    for notice in &history.notices {
        match &notice.kind {
            NoticeKind::Watch { .. } => add(Event::WatchFired, 1),
            NoticeKind::Holds { .. } => add(Event::LockGranted, 1),
            NoticeKind::Disconnected
            | NoticeKind::Expired
            | NoticeKind::HoldsNoMore { .. }
            | NoticeKind::Stored(_) => {}
        }
    }
    let lost = usize::try_from(fencing::lost_without(history)).expect("as many as notices");
    add(Event::LostWithoutFencing, lost);
    if let Some(lines) = audit {
        let is_expiry =
            |line: &&AuditLine| account::ends_session(line) && line.op == "expireSession";
        add(Event::Expiry, lines.iter().filter(is_expiry).count());
        let terms: BTreeSet<u64> = lines.iter().map(|line| line.term).collect();
        add(Event::Election, terms.len().saturating_sub(1));
        let leaps = |pair: &&[AuditLine]| pair[0].time_ms.abs_diff(pair[1].time_ms) >= LEAP_MS;
        add(Event::ClockJump, lines.windows(2).filter(leaps).count());
    }
    counts
}

/// Checks that all that was planned has happened.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>, planned: &[Planned]) -> Verdict {
    let counts = count(history, audit);
    for Planned { event, at_least } in planned {
        let times = counts.get(event).copied().unwrap_or_default();
        if times < *at_least {
            return Verdict::Unknown(format!(
                "planned was {event:?} {at_least} times or more, it happened {times} times"
            ));
        }
    }
    match planned.is_empty() {
        true => Verdict::Moot("nothing was planned".to_owned()),
        false => Verdict::Valid,
    }
}
