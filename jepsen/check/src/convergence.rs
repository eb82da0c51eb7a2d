//! Convergence (C16): servers that were left in peace end with the same state.
//!
//! *Owns* the ends of the servers' accounts: same transaction, same digest. That the acknowledged
//! writes are in it is the witness's part.

use crate::audit::AuditLog;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// Checks the ends of the accounts, which must have been taken after the faults were healed and
/// nothing was in flight any more.
#[must_use]
pub fn check(logs: &[AuditLog]) -> Verdict {
    let [first, others @ ..] = logs else {
        return Verdict::Moot("no server gave an account".to_owned());
    };
    if others.is_empty() {
        return Verdict::Moot("there is but one server".to_owned());
    }
    let end = |log: &AuditLog| log.lines.last().map(|line| (line.zxid, line.digest.clone()));
    for other in others {
        if end(first) != end(other) {
            let line = |log: &AuditLog| match log.lines.last() {
                Some(line) => {
                    format!("{}: {} digest {}", log.node, report::line(line), line.digest)
                }
                None => format!("{}: nothing", log.node),
            };
            let what = format!("{} and {} ended differently", first.node, other.node);
            let around = vec![line(first), format!("> {}", line(other))];
            return Verdict::Invalid(Violation { rule: Rule::Converged, what, around });
        }
    }
    match end(first) {
        Some(_) => Verdict::Valid,
        None => Verdict::Unknown("no server has applied anything".to_owned()),
    }
}
