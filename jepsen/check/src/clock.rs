//! When the transactions of the account happened, by the run's clock.
//!
//! *Owns* the comparison of the servers' clocks with the clients', and what stands in for it where
//! theirs jump: a transaction that a client asked for and was answered lies between the two, all others
//! lie between those beside them. *Invariant*: along the account both moments never fall.

use crate::audit::AuditLine;
use crate::history::{History, Operation};

/// No earlier and no later, milliseconds of the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moments {
    pub(crate) earliest_ms: i64,
    pub(crate) latest_ms: i64,
}

/// The moments of each transaction of an account.
#[derive(Debug)]
pub(crate) struct Clock {
    moments: Vec<Moments>,
    is_known: bool,
}

/// Later than any run.
const NEVER_MS: i64 = i64::MAX / 4;

impl Clock {
    /// By the servers' clocks, which showed this when the run's clock was 0.
    pub(crate) fn of_servers(lines: &[AuditLine], started_at_ms: i64) -> Self {
        let moments = lines.iter().map(|line| {
            let at_ms = line.time_ms - started_at_ms;
            Moments { earliest_ms: at_ms, latest_ms: at_ms }
        });
        Self { moments: moments.collect(), is_known: true }
    }

    /// By what clients asked for and were shown.
    pub(crate) fn of_clients(history: &History, lines: &[AuditLine]) -> Self {
        let none = Moments { earliest_ms: 0, latest_ms: NEVER_MS };
        let (mut moments, mut is_known) = (vec![none; lines.len()], false);
        for operation in &history.operations {
            let Some((at, zxid, result)) = operation.reply() else { continue };
            let asked = lines.partition_point(|line| line.zxid < zxid);
            if operation.call.is_write()
                && result.is_ok()
                && lines.get(asked).is_some_and(|line| is_of(line, operation, zxid))
            {
                is_known = true;
                let earliest_ms = &mut moments[asked].earliest_ms;
                *earliest_ms = ms(operation.invoked.time_ns).max(*earliest_ms);
            }
            // What a read shows has happened, however long ago.
            let shown = lines.partition_point(|line| line.zxid <= zxid);
            if let Some(last) = shown.checked_sub(1) {
                let latest_ms = &mut moments[last].latest_ms;
                *latest_ms = ms(at.time_ns).min(*latest_ms);
            }
        }
        for at in 1..moments.len() {
            moments[at].earliest_ms = moments[at].earliest_ms.max(moments[at - 1].earliest_ms);
        }
        for at in (1..moments.len()).rev() {
            moments[at - 1].latest_ms = moments[at - 1].latest_ms.min(moments[at].latest_ms);
        }
        Self { moments, is_known }
    }

    /// Of the transaction at a place of the account.
    pub(crate) fn at(&self, at: usize) -> Moments {
        self.moments[at]
    }

    /// Of the last transaction.
    pub(crate) fn last(&self) -> Option<Moments> {
        self.moments.last().copied()
    }

    /// Of at least one transaction it is known when it happened.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }
}

/// Whether a transaction is what an operation asked for.
fn is_of(line: &AuditLine, operation: &Operation, zxid: i64) -> bool {
    line.zxid == zxid && line.session == operation.session && Some(line.cxid) == operation.xid
}

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: u64) -> i64 {
    i64::try_from(ns / 1_000_000).expect("584 years in nanoseconds")
}
