//! Session timing (C5): a session is not ended within its timeout after it was last heard of, is
//! ended before long once nobody is heard of, and keeps its id wherever its client goes.
//!
//! *Owns* what is known of each session from its clients. It errs on the side of the servers: they
//! heard of a session no earlier than a request was sent and no later than it was answered, and where
//! their clocks cannot be trusted, they ended it at the best of the moments that clients leave open.

use std::collections::BTreeMap;

use crate::account;
use crate::audit::AuditLine;
use crate::clock::{Clock, Moments, ms};
use crate::history::{History, NoticeKind, Operation, Outcome};
use crate::op::{Answer, Call};
use crate::reigns::Reigns;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// What the check must know of the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The servers' clock when the run's clock was 0, milliseconds since the epoch; `None` if theirs
    /// cannot be compared with the clients'.
    pub started_at_ms: Option<i64>,
    /// How far the clocks may differ, milliseconds.
    pub clock_error_ms: i64,
    /// How much later than its time a session may end, milliseconds: a tick, and what a busy machine
    /// adds. What elections and faults add, their times tell.
    pub late_ms: i64,
    /// There is one server, and no elections.
    pub is_alone: bool,
}

/// What is known of a session.
#[derive(Debug, Default)]
struct Life<'a> {
    /// The longest timeout that any connection was granted.
    longest_ms: i64,
    /// The timeout granted by the last connection.
    timeout_ms: i64,
    /// When the last request that was answered was sent, nanoseconds.
    heard_from_ns: u64,
    /// Until when a server may have heard of it, nanoseconds; `None`: to the end.
    heard_until_ns: Option<u64>,
    has_end: bool,
    /// Its client asked for the end.
    is_closed: bool,
    last: Option<&'a Operation>,
}

/// Checks when sessions end. In the spans of `deaf_ms`, milliseconds of the run's clock, the servers
/// may have ended sessions of which they could not hear: for software of which that is known.
#[must_use]
pub fn check(
    history: &History,
    audit: Option<&[AuditLine]>,
    settings: Settings,
    deaf_ms: &[(i64, i64)],
) -> Verdict {
    let lives = lives(history);
    if let Err(violation) = identity(history).and_then(|()| told(history, &lives, deaf_ms)) {
        return Verdict::Invalid(violation);
    }
    let moot = |why: &str| Verdict::Moot(why.to_owned());
    let Some(lines) = audit else { return moot("there is no account of the servers") };
    if lives.is_empty() {
        return moot("no session was opened");
    }
    let clock = match settings.started_at_ms {
        Some(started_at_ms) => Clock::of_servers(lines, started_at_ms),
        None => Clock::of_clients(history, lines),
    };
    let late_ms = settings.late_ms + settings.clock_error_ms;
    let reigns = Reigns::new(history, lines, &clock, late_ms, settings.is_alone);
    let account = Account { lines, clock: &clock, reigns: &reigns };
    if let Err(violation) = by_account(&lives, &account, settings, deaf_ms) {
        return Verdict::Invalid(violation);
    }
    let is_told = history.notices.iter().any(|notice| notice.kind == NoticeKind::Expired);
    match is_told || clock.is_known() {
        true => Verdict::Valid,
        false => moot("the clocks differ, and nobody was told when the servers did anything"),
    }
}

/// A client that is told that its session is gone was not heard of for the session's timeout.
fn told(
    history: &History,
    lives: &BTreeMap<i64, Life<'_>>,
    deaf_ms: &[(i64, i64)],
) -> Result<(), Violation> {
    let gone = history.notices.iter().filter(|notice| notice.kind == NoticeKind::Expired);
    for notice in gone {
        let Some(life) = lives.get(&notice.session).filter(|life| !life.is_closed) else {
            continue;
        };
        let told_ms = ms(notice.at.time_ns);
        let quiet_ms = told_ms - ms(life.heard_from_ns);
        // It may have been ended at any time before it was told of.
        let is_known = deaf_ms
            .iter()
            .any(|(from, until)| *from <= told_ms && *until >= told_ms - life.longest_ms);
        if quiet_ms < life.timeout_ms && !is_known {
            let session = notice.session;
            return Err(Violation {
                rule: Rule::SessionKept,
                what: format!(
                    "session {session:#x} was called gone {quiet_ms} ms after it was heard of, timeout {}",
                    life.timeout_ms
                ),
                around: life.last.map(report::operation).into_iter().collect(),
            });
        }
    }
    Ok(())
}

/// What the servers tell.
struct Account<'a> {
    lines: &'a [AuditLine],
    clock: &'a Clock,
    reigns: &'a Reigns,
}

/// Checks the ends of sessions by the servers' account.
fn by_account(
    lives: &BTreeMap<i64, Life<'_>>,
    Account { lines, clock, reigns }: &Account<'_>,
    settings: Settings,
    deaf_ms: &[(i64, i64)],
) -> Result<(), Violation> {
    let ends: BTreeMap<i64, usize> = (0..lines.len())
        .filter(|at| account::ends_session(&lines[*at]))
        .map(|at| (lines[at].session, at))
        .collect();
    for (session, life) in lives {
        let end = ends.get(session).copied();
        let expired = end.filter(|at| lines[*at].op == "expireSession").map(|at| clock.at(at));
        let is_deaf = |at: Moments| {
            deaf_ms.iter().any(|(from, until)| at.earliest_ms <= *until && at.latest_ms >= *from)
        };
        if expired.is_some_and(is_deaf) {
            continue;
        }
        let until = match (expired, end.is_some() || life.has_end) {
            (Some(expired), _) => Some(expired),
            (None, true) => None,
            (None, false) => clock.last(),
        };
        let kept = expired.map_or(Ok(()), |expired| is_kept(life, expired, settings));
        let ended = until.map_or(Ok(()), |until| is_ended(life, until, reigns));
        if let Err((rule, what)) = kept.and(ended) {
            let mut around: Vec<String> = life.last.map(report::operation).into_iter().collect();
            around.extend(end.map(|at| format!("> {}", report::line(&lines[at]))));
            let what = format!("session {session:#x} {what}");
            return Err(Violation { rule, what, around });
        }
    }
    Ok(())
}

fn is_kept(life: &Life<'_>, expired: Moments, settings: Settings) -> Result<(), (Rule, String)> {
    let quiet_ms = expired.latest_ms - ms(life.heard_from_ns);
    if quiet_ms + settings.clock_error_ms >= life.timeout_ms {
        return Ok(());
    }
    let timeout_ms = life.timeout_ms;
    let what = format!("was ended {quiet_ms} ms after it was heard of, timeout {timeout_ms}");
    Err((Rule::SessionKept, what))
}

/// `until`: when it was ended, or is known to be there.
fn is_ended(life: &Life<'_>, until: Moments, reigns: &Reigns) -> Result<(), (Rule, String)> {
    let (heard_ms, timeout_ms) = (life.heard_until_ns.map(ms), life.longest_ms);
    let late = heard_ms.and_then(|heard_ms| {
        let limit_ms = reigns.overstays(heard_ms, until.earliest_ms, timeout_ms)?;
        Some((until.earliest_ms - heard_ms, limit_ms - heard_ms))
    });
    late.map_or(Ok(()), |(quiet_ms, limit_ms)| {
        let what = format!(
            "was there {quiet_ms} ms after it was last heard of, timeout {timeout_ms}: whoever led \
             should have ended it after {limit_ms} ms"
        );
        Err((Rule::SessionEnded, what))
    })
}

/// Who asks for a session that is there gets that or none.
fn identity(history: &History) -> Result<(), Violation> {
    for operation in &history.operations {
        let (
            Call::Connect { session: asked, .. },
            Some((_, _, Ok(Answer::Session { session, .. }))),
        ) = (&operation.call, operation.reply())
        else {
            continue;
        };
        if *asked != 0 && *session != 0 && asked != session {
            return Err(Violation {
                rule: Rule::SessionIdentity,
                what: format!("session {asked:#x} was asked for, {session:#x} was given"),
                around: vec![format!("> {}", report::operation(operation))],
            });
        }
    }
    Ok(())
}

fn lives(history: &History) -> BTreeMap<i64, Life<'_>> {
    let mut lives: BTreeMap<i64, Life<'_>> = BTreeMap::new();
    for operation in &history.operations {
        let session = operation.session_after();
        if session == 0 || matches!(operation.outcome, Outcome::NotSent { .. }) {
            continue;
        }
        let life = lives
            .entry(session)
            .or_insert_with(|| Life { heard_until_ns: Some(0), ..Life::default() });
        if let Some((_, _, result)) = operation.reply() {
            if let Ok(Answer::Session { timeout_ms, .. }) = result {
                life.timeout_ms = i64::from(*timeout_ms);
                life.longest_ms = life.longest_ms.max(life.timeout_ms);
            }
            if result.is_ok() {
                life.heard_from_ns = life.heard_from_ns.max(operation.invoked.time_ns);
                life.last = Some(operation);
            }
        }
        life.is_closed |= operation.call == Call::Close;
        life.has_end |= life.is_closed;
        let until = operation.completed().map(|at| at.time_ns);
        life.heard_until_ns = life.heard_until_ns.zip(until).map(|(known, until)| known.max(until));
    }
    // Sessions of which only requests are known were opened by somebody else.
    lives.retain(|_, life| life.timeout_ms > 0);
    for notice in &history.notices {
        if let (NoticeKind::Expired, Some(life)) = (&notice.kind, lives.get_mut(&notice.session)) {
            life.has_end = true;
        }
    }
    lives
}
