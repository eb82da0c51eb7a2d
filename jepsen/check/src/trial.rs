//! The trial: every check that a run has evidence for, each with its verdict.
//!
//! *Owns* the list of checks and their names. *Invariants*: a check that found nothing to judge is not
//! counted, unless the run was made to give it something; then the verdict of the run is unknown. A
//! run whose servers disagree has no joined account, and the checks that need one say so.

use std::fmt;

use crate::audit::{self, AuditLine, AuditLog};
use crate::coverage::{self, Planned};
use crate::history::History;
use crate::verdict::Verdict;
use crate::{
    belief, convergence, ephemerals, fencing, fifo, liveness, locks, log_matching, monotonic,
    queue, reaped, search, sequence, session_timing, sync, watches, witness,
};

/// What a run left behind.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub history: &'a History,
    /// What each server wrote; empty if they keep no account.
    pub audit: &'a [AuditLog],
    pub witness: witness::Settings,
    pub timing: session_timing::Settings,
    /// What the software is known to do although it should not; nothing of Lockkeeper.
    pub known: &'a Known,
    /// Servers that left before the end.
    pub departed: &'a [String],
    /// What the run was to bring about.
    pub planned: &'a [Planned],
    /// Checks that the run was made for: they must have something to judge.
    pub required: &'a [&'a str],
}

/// What software other than Lockkeeper is known to do although it should not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// It ends a session once more that has ended, to no effect.
    pub ends_twice: bool,
    /// When its leader could not hear of sessions and may have ended some: from and until,
    /// milliseconds of the run's clock.
    pub deaf_ms: Vec<(i64, i64)>,
}

/// What one check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    pub check: &'static str,
    pub verdict: Verdict,
}

/// What the history and the joined account are asked.
type Check = fn(&Evidence<'_>, Option<&[AuditLine]>) -> Verdict;

/// Every check but the one that joins the accounts, by name.
const CHECKS: &[(&str, Check)] = &[
    ("witness", |run, audit| witness::check(run.history, audit, run.witness)),
    ("search", |run, _| search::check(run.history, run.witness.linearizable_reads)),
    ("sequence", |run, audit| sequence::check(run.history, audit)),
    ("ephemerals", |run, audit| {
        run.as_known(|known| ephemerals::check(run.history, audit, known.ends_twice))
    }),
    ("session-timing", |run, audit| {
        run.as_known(|known| session_timing::check(run.history, audit, run.timing, &known.deaf_ms))
    }),
    ("fifo", |run, audit| fifo::check(run.history, audit)),
    ("monotonic", |run, _| monotonic::check(run.history)),
    ("sync", |run, _| sync::check(run.history)),
    ("locks", |run, audit| locks::check(run.history, audit)),
    ("belief", |run, audit| belief::check(run.history, audit)),
    ("liveness", |run, audit| liveness::check(run.history, audit)),
    ("fencing", |run, _| fencing::check(run.history)),
    ("queue", |run, _| queue::check(run.history)),
    ("reaped", |run, audit| reaped::check(run.history, audit)),
    ("watches", |run, audit| watches::check(run.history, audit)),
    ("watches-reconnect", |run, audit| watches::check_reconnects(run.history, audit)),
    ("convergence", |run, _| convergence::check(&run.remaining())),
    ("log-matching", |run, _| log_matching::check(run.audit)),
    ("coverage", |run, audit| coverage::check(run.history, audit, run.planned)),
];

impl Evidence<'_> {
    /// A check that lets what is known of the software pass, and says so.
    fn as_known(&self, check: impl Fn(&Known) -> Verdict) -> Verdict {
        let strict = check(&Known::default());
        match (&strict, check(self.known)) {
            (Verdict::Invalid(violation), Verdict::Valid) => {
                Verdict::Moot(format!("allowed, for it is known of it: {violation}"))
            }
            (Verdict::Invalid(_), worse) => worse,
            (Verdict::Valid | Verdict::Unknown(_) | Verdict::Moot(_), _) => strict,
        }
    }

    /// The accounts of the servers that were there at the end.
    fn remaining(&self) -> Vec<AuditLog> {
        let stayed = |log: &&AuditLog| !self.departed.contains(&log.node);
        self.audit.iter().filter(stayed).cloned().collect()
    }
}

/// Runs all checks. Each is near linear in the length of the history.
#[must_use]
pub fn judge(run: &Evidence<'_>) -> Vec<Opinion> {
    let mut opinions = Vec::with_capacity(CHECKS.len() + 1);
    let joined = match audit::join(run.audit) {
        Ok(lines) => {
            let verdict = match run.audit.len() {
                0 | 1 => Verdict::Moot("fewer than two servers gave an account".to_owned()),
                _ => Verdict::Valid,
            };
            opinions.push(Opinion { check: "agreement", verdict });
            (!run.audit.is_empty()).then_some(lines)
        }
        Err(violation) => {
            let verdict = Verdict::Invalid(violation);
            opinions.push(Opinion { check: "agreement", verdict });
            None
        }
    };
    for (check, ask) in CHECKS {
        opinions.push(Opinion { check, verdict: ask(run, joined.as_deref()) });
    }
    for opinion in &mut opinions {
        if let Verdict::Moot(reason) = &opinion.verdict
            && run.required.contains(&opinion.check)
        {
            opinion.verdict = Verdict::Unknown(format!("the run was made for it, but {reason}"));
        }
    }
    opinions
}

/// The verdict of the run: the worst of its checks.
#[must_use]
pub fn verdict(opinions: &[Opinion]) -> Verdict {
    let nothing = Verdict::Moot("nothing was judged".to_owned());
    let all = opinions.iter().map(|opinion| opinion.verdict.clone());
    match all.fold(nothing, Verdict::and) {
        Verdict::Moot(reason) => Verdict::Unknown(reason),
        verdict => verdict,
    }
}

impl fmt::Display for Opinion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.verdict)
    }
}
