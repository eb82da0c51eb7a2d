//! Operations and their neighbourhood as lines for people.

use crate::audit::AuditLine;
use crate::history::{Notice, Operation, Outcome};
use crate::json::{answer_text, call_name, call_text};
use crate::op::{Answer, Code};

/// Steps shown before and behind a violation.
const AROUND: usize = 10;
/// Characters of a value that are shown.
const SHOWN_MAX: usize = 300;

/// One operation in one line.
#[must_use]
pub fn operation(operation: &Operation) -> String {
    let ms = |time_ns: u64| format!("{}.{:03}", time_ns / 1_000_000, time_ns / 1_000 % 1_000);
    let end = match &operation.outcome {
        Outcome::Replied { at, zxid, result: said } => {
            format!("{} ms: zxid {zxid:#x} {}", ms(at.time_ns), result(said))
        }
        Outcome::NotSent { at, reason } => format!("{} ms: not sent ({reason})", ms(at.time_ns)),
        Outcome::Unknown { at: Some(at), reason } => {
            format!("{} ms: unknown ({reason})", ms(at.time_ns))
        }
        Outcome::Unknown { at: None, reason } => format!("unknown ({reason})"),
    };
    let xid = operation.xid.map_or_else(String::new, |xid| format!(" xid {xid}"));
    format!(
        "#{} process {}{} session {:#x}{xid} {} {} at {} ms -> {end}",
        operation.invoked.index,
        operation.process,
        operation.node.as_ref().map_or_else(String::new, |node| format!(" on {node}")),
        operation.session,
        call_name(&operation.call),
        shortened(call_text(&operation.call)),
        ms(operation.invoked.time_ns),
    )
}

/// One notice in one line.
#[must_use]
pub fn notice(notice: &Notice) -> String {
    format!(
        "#{} process {}{} session {:#x} told {:?} at {}.{:03} ms",
        notice.at.index,
        notice.process,
        notice.node.as_ref().map_or_else(String::new, |node| format!(" on {node}")),
        notice.session,
        notice.kind,
        notice.at.time_ns / 1_000_000,
        notice.at.time_ns / 1_000 % 1_000,
    )
}

/// A result in one line.
#[must_use]
pub fn result(result: &Result<Answer, Code>) -> String {
    match result {
        Ok(answer) => format!("ok {}", shortened(answer_text(answer))),
        Err(code) => code.to_string(),
    }
}

/// A line of an audit log.
#[must_use]
pub fn line(line: &AuditLine) -> String {
    let result = line.result.err().unwrap_or(Code::OK);
    format!(
        "server: zxid {:#x} session {:#x} cxid {} {} {} {result}",
        line.zxid,
        line.session,
        line.cxid,
        line.op,
        line.path.as_deref().unwrap_or("-")
    )
}

/// The steps around one, which is marked.
pub(crate) fn around<T>(steps: &[T], at: usize, line: impl Fn(&T) -> String) -> Vec<String> {
    let (first, end) = (at.saturating_sub(AROUND), (at + AROUND + 1).min(steps.len()));
    let mark = |place: usize| if place == at { "> " } else { "  " };
    (first..end).map(|place| format!("{}{}", mark(place), line(&steps[place]))).collect()
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
