//! Sessions and their ephemeral znodes (C4): a session begins and ends once; its ephemeral znodes are
//! there from their create to their delete or to its end, and at its end all go at once.
//!
//! *Owns* the spans of sessions and of ephemeral znodes by the servers' account, and what replies show
//! of them. A znode that outlives its session is a lock that nobody will ever release.

use std::collections::BTreeMap;

use crate::account::{self, Transaction};
use crate::audit::AuditLine;
use crate::history::{EventKind, History};
use crate::op::{Answer, Call, Code, Stat};
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// From a zxid to before another.
#[derive(Clone, Copy, Debug)]
struct Span {
    session: i64,
    from: i64,
    until: i64,
    /// The path was used again after it.
    again: bool,
}

/// Ephemeral znodes by path, in their order.
type Spans = BTreeMap<String, Vec<Span>>;

/// Checks sessions and ephemeral znodes. That a session ends once more may be known of the software.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>, ends_twice: bool) -> Verdict {
    let transactions = match account::replay(history, audit) {
        Ok(transactions) => transactions,
        Err(verdict) => return verdict,
    };
    let ends = match ends(&transactions, ends_twice) {
        Ok(ends) => ends,
        Err(violation) => return Verdict::Invalid(violation),
    };
    let spans = spans(&transactions);
    let reads = history.operations.iter().filter(|operation| operation.call.is_read());
    for operation in reads {
        let Some((_, zxid, said)) = operation.reply() else { continue };
        if let Err(what) = shown(&operation.call, said, zxid, &spans, &ends) {
            let around = vec![format!("> {}", report::operation(operation))];
            return Verdict::Invalid(Violation { rule: Rule::Ephemeral, what, around });
        }
    }
    match (spans.is_empty(), ends.is_empty()) {
        (true, true) => Verdict::Moot("no session ended, nothing was ephemeral".to_owned()),
        _ => Verdict::Valid,
    }
}

/// Where each session ended, if it begins and ends but once.
fn ends(
    transactions: &[Transaction<'_>],
    ends_twice: bool,
) -> Result<BTreeMap<i64, i64>, Violation> {
    let mut begun: BTreeMap<i64, &AuditLine> = BTreeMap::new();
    let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
    let wrong = |what: &str, line: &AuditLine| Violation {
        rule: Rule::SessionOnce,
        what: format!("session {:#x} {what}", line.session),
        around: vec![format!("> {}", report::line(line))],
    };
    for Transaction { zxid, line, .. } in transactions.iter().filter(|one| one.line.result.is_ok())
    {
        if let Some(end) = ends.get(&line.session) {
            if ends_twice && account::ends_session(line) {
                continue;
            }
            let what = match account::ends_session(line) {
                true => "ended twice".to_owned(),
                false => format!("did something after its end at {end:#x}"),
            };
            return Err(wrong(&what, line));
        }
        if account::ends_session(line) {
            ends.insert(line.session, *zxid);
        } else if line.op == "createSession" && begun.insert(line.session, line).is_some() {
            return Err(wrong("began twice", line));
        }
    }
    Ok(ends)
}

fn spans(transactions: &[Transaction<'_>]) -> Spans {
    let mut spans = Spans::new();
    for transaction in transactions {
        let zxid = transaction.zxid;
        for change in transaction.changes.iter().filter(|one| one.kind == EventKind::Deleted) {
            if let Some(last) = spans.get_mut(&change.path).and_then(|spans| spans.last_mut()) {
                last.until = last.until.min(zxid);
            }
        }
        for (create, path) in transaction.creates() {
            let session = transaction.line.session;
            if let Some(last) = spans.get_mut(&path).and_then(|spans| spans.last_mut()) {
                last.again = true;
            }
            // A part of the same multi may have deleted it again.
            let made = |change: &&crate::tree::Change| change.path == path;
            let last = transaction.changes.iter().rfind(made).map(|change| change.kind);
            if create.mode.is_ephemeral() && last != Some(EventKind::Deleted) {
                let span = Span { session, from: zxid, until: i64::MAX, again: false };
                spans.entry(path).or_default().push(span);
            }
        }
    }
    spans
}

/// What a reply shows of ephemeral znodes must fit.
fn shown(
    call: &Call,
    said: &Result<Answer, Code>,
    zxid: i64,
    spans: &Spans,
    ends: &BTreeMap<i64, i64>,
) -> Result<(), String> {
    let alive = |path: &str| {
        let of_path = spans.get(path).into_iter().flatten();
        of_path.copied().find(|span| (span.from..span.until).contains(&zxid))
    };
    let dead = |session: i64| ends.get(&session).filter(|end| **end <= zxid);
    match (call, said) {
        (Call::MultiRead(parts), Ok(Answer::Parts(results))) => {
            let mut pairs = parts.iter().zip(results);
            pairs.try_for_each(|(part, result)| shown(part, result, zxid, spans, ends))
        }
        (Call::Exists { path, .. } | Call::GetData { path, .. }, Err(Code::NO_NODE)) => {
            match alive(path) {
                None => Ok(()),
                Some(span) => Err(format!(
                    "{path} is gone though it is ephemeral and session {:#x} lives",
                    span.session
                )),
            }
        }
        (
            Call::Exists { path, .. } | Call::GetData { path, .. },
            Ok(Answer::Stat(stat) | Answer::Data(_, stat)),
        ) => owned(path, stat, dead(stat.ephemeral_owner)),
        (Call::GetChildren { path, .. }, Ok(Answer::Children(names, _))) => {
            let base = path.trim_end_matches('/');
            for child in names.iter().map(|name| format!("{base}/{name}")) {
                let last = spans.get(&child).and_then(|of_child| of_child.last());
                if let Some(Span { session, until, again: false, .. }) = last
                    && dead(*session) == Some(until)
                {
                    return Err(format!(
                        "{child} is still there after the end of session {session:#x}"
                    ));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn owned(path: &str, stat: &Stat, end: Option<&i64>) -> Result<(), String> {
    match end {
        Some(end) if stat.ephemeral_owner != 0 => Err(format!(
            "{path} is still there after the end of session {:#x} at {end:#x}",
            stat.ephemeral_owner
        )),
        _ => Ok(()),
    }
}
