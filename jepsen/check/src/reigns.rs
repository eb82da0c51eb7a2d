//! Who was to end sessions, and until when: the reigns of the leaders by the account, and the faults.
//!
//! *Owns* how long a session may last that nobody hears of. A leader ends it a timeout after it was
//! last heard of, or after its own beginning, for a new leader gives every session its full timeout
//! again. A server that is lost under it gives its sessions one more timeout, once in a reign: faults
//! that follow on each other prolong nothing. *Invariant*: only a leader that goes on carrying out
//! transactions is to blame; before and behind them perhaps nobody led.

use crate::audit::AuditLine;
use crate::clock::{Clock, ms};
use crate::history::{CLIENT_SLEEP, CONSEQUENCES, History};
use crate::liveness::HEAL;

/// What is known of one leader, milliseconds of the run's clock.
#[derive(Clone, Copy, Debug)]
struct Reign {
    /// It led by then.
    first_ms: i64,
    /// It led until then, or longer.
    last_ms: i64,
}

/// From a strike until all is healed, milliseconds of the run's clock.
#[derive(Clone, Copy, Debug)]
struct Fault {
    from_ms: i64,
    until_ms: i64,
}

/// Leaders and faults, in their order.
#[derive(Debug)]
pub(crate) struct Reigns {
    reigns: Vec<Reign>,
    faults: Vec<Fault>,
    late_ms: i64,
}

/// A leader keeps the sessions of a server that fell silent, or was not there when it was elected, for
/// this long, milliseconds, before their timeouts begin.
const SILENCE_MS: i64 = 2800;

impl Reigns {
    /// `late_ms`: how much later than its time a leader that nothing hinders may end a session. A server
    /// that `is_alone` begins anew with every start.
    pub(crate) fn new(
        history: &History,
        lines: &[AuditLine],
        clock: &Clock,
        late_ms: i64,
        is_alone: bool,
    ) -> Self {
        let faults = faults(history);
        let starts =
            |at_ms: i64| faults.iter().filter(|fault| is_alone && fault.until_ms <= at_ms).count();
        let mut reigns: Vec<Reign> = Vec::new();
        let mut of = None;
        for (at, line) in lines.iter().enumerate() {
            let moments = clock.at(at);
            let leader = (line.term, starts(moments.earliest_ms));
            match reigns.last_mut() {
                Some(reign) if of == Some(leader) => reign.last_ms = moments.earliest_ms,
                Some(_) | None => {
                    reigns.push(Reign { first_ms: moments.latest_ms, last_ms: moments.earliest_ms })
                }
            }
            of = Some(leader);
        }
        Self { reigns, faults, late_ms }
    }

    /// The latest moment at which a session should have ended that was heard of last at `heard_ms`, if
    /// it was still there at `until_ms`, and that was later.
    pub(crate) fn overstays(&self, heard_ms: i64, until_ms: i64, timeout_ms: i64) -> Option<i64> {
        let reigns = self.reigns.iter().filter(|reign| reign.last_ms >= heard_ms);
        let mut limits = reigns.map(|reign| {
            let begin_ms = reign.first_ms.max(heard_ms);
            (self.limit_ms(begin_ms, timeout_ms), reign.last_ms)
        });
        limits
            .find(|(limit_ms, last_ms)| until_ms.min(*last_ms) > *limit_ms)
            .map(|(limit, _)| limit)
    }

    /// When a session is to be gone whose timeout begins then, if its leader goes on leading.
    fn limit_ms(&self, begin_ms: i64, timeout_ms: i64) -> i64 {
        let calm_ms = begin_ms + timeout_ms + self.late_ms;
        let lost = self
            .faults
            .iter()
            .filter(|fault| fault.from_ms <= calm_ms && fault.until_ms + SILENCE_MS >= begin_ms);
        let lost =
            lost.map(|fault| fault.from_ms.max(begin_ms) + SILENCE_MS + timeout_ms + self.late_ms);
        let mut limit_ms = lost.fold(calm_ms, i64::max);
        for fault in self.faults.iter().filter(|fault| fault.until_ms >= begin_ms) {
            if fault.from_ms <= limit_ms {
                // The leader may stand still, or have nobody who agrees.
                limit_ms = limit_ms.max(fault.until_ms + self.late_ms);
            }
        }
        limit_ms
    }
}

/// What is done to servers, and what becomes of it, lasts until all is healed. What is told of it behind
/// that is over, too.
fn faults(history: &History) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut open = 0;
    for fault in history.faults.iter().filter(|fault| fault.name != CLIENT_SLEEP) {
        let at_ms = ms(fault.at.time_ns);
        if fault.name == HEAL {
            faults[open..].iter_mut().for_each(|fault| fault.until_ms = at_ms);
            open = faults.len();
        } else if open < faults.len() || !CONSEQUENCES.contains(&fault.name.as_str()) {
            faults.push(Fault { from_ms: at_ms, until_ms: i64::MAX / 4 });
        }
    }
    faults
}
