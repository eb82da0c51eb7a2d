//! Real time: nothing stands behind what was asked for only after it had returned.
//!
//! *Owns* the sweep over the order that the witness claims, one pass with two running extremes.

use crate::history::Operation;
use crate::report;
use crate::verdict::{Rule, Violation};
use crate::witness::Step;

/// Checks an order. Plain reads may be old, but show nothing that was not asked for yet;
/// `linearizable_reads` are not old either.
///
/// # Errors
/// The first operation, in the claimed order, that had returned before one in front of it began.
pub(crate) fn check(steps: &[Step<'_>], linearizable_reads: bool) -> Result<(), Violation> {
    // Of everything so far that later steps must not precede: what was asked for last.
    let mut latest: Option<&Operation> = None;
    for step in steps {
        let Some(operation) = step.operation() else { continue };
        if let (Some(latest), Some((at, _, _))) = (latest, operation.reply())
            && at.time_ns < latest.invoked.time_ns
        {
            return Err(Violation {
                rule: Rule::RealTime,
                what: "it had returned before something that it follows was asked for".to_owned(),
                around: vec![
                    report::operation(latest),
                    format!("> {}", report::operation(operation)),
                ],
            });
        }
        let binds = step.is_write() || linearizable_reads;
        if binds && latest.is_none_or(|latest| latest.invoked.time_ns < operation.invoked.time_ns) {
            latest = Some(operation);
        }
    }
    Ok(())
}
