//! Histories as lines of JSON.
//!
//! *Owns* the format: one event a line, with Jepsen's names where it has them (`index`, `time` in
//! nanoseconds, `type`, `process`, `f`, `value`) and `session`, `xid`, `zxid`, `node`, `ids`, `error`
//! beside them. `type` is `invoke`; `ok`, `fail` or `info` for its end; or `notice` for what a client
//! was told unasked. A `fail` with a zxid is an error that a server replied, without one the request
//! was never sent. Lines of the process `nemesis` are faults. An end belongs to the open operation
//! of its process with its xid, or to the only open one. *Invariants*: what is read and written again
//! is the same; a broken line is named by file and line. `tests/history_lines.rs` has one of everything.

mod call;
pub(crate) mod fields;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::history::{EventKind, Fault, History, IN_FLIGHT, Moment, Notice, NoticeKind};
use crate::history::{Operation, Outcome, StoreWrite};
use crate::op::Identity;
use fields::{Fields, hex};

pub use call::name as call_name;
use call::{answer_value, call_value, code_value};

/// The process that strikes the servers.
const NEMESIS: &str = "nemesis";

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLine {
    pub file: String,
    /// From 1.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for BrokenLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for BrokenLine {}

/// Hands every line that is not empty to `take`. `file` is for messages.
pub(crate) fn each_line(
    file: &str,
    text: &str,
    mut take: impl FnMut(Fields<'_>) -> Result<(), fields::Fault>,
) -> Result<(), BrokenLine> {
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let read = serde_json::from_str::<Value>(line).map_err(|error| format!("no JSON: {error}"));
        let taken = read.and_then(|value| take(Fields::of(&value, "the line")?));
        taken.map_err(|what| BrokenLine { file: file.to_owned(), line: at + 1, what })?;
    }
    Ok(())
}

/// Reads a history. `file` is for messages.
///
/// # Errors
/// The first line that is broken or does not fit those before it.
pub fn read_history(file: &str, text: &str) -> Result<History, BrokenLine> {
    let mut reader = Reader::default();
    each_line(file, text, |line| reader.take(line))?;
    Ok(reader.history)
}

#[derive(Default)]
struct Reader {
    history: History,
    /// Places of operations without an end, by process.
    open: BTreeMap<u64, Vec<usize>>,
    next_index: u64,
}

impl Reader {
    fn take(&mut self, line: Fields<'_>) -> Result<(), fields::Fault> {
        let at = self.moment(line)?;
        let kind = line.text("type")?;
        if line.need("process")?.as_str() == Some(NEMESIS) {
            let what = line.maybe("value").map_or_else(String::new, |value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            });
            self.history.faults.push(Fault { at, name: line.text("f")?, what });
            return Ok(());
        }
        let process = u64::try_from(line.long("process")?).map_err(|_| "process is negative")?;
        match kind.as_str() {
            "invoke" => self.invoke(at, process, line),
            "ok" | "fail" | "info" => self.end(at, process, &kind, line),
            "notice" => {
                let kind = notice(line)?;
                let (node, session) = (line.maybe_text("node")?, line.long_or("session", 0)?);
                self.history.notices.push(Notice { at, process, node, session, kind });
                Ok(())
            }
            _ => Err(format!("type is none: {kind}")),
        }
    }

    fn moment(&mut self, line: Fields<'_>) -> Result<Moment, fields::Fault> {
        let index = match line.maybe("index") {
            Some(value) => value.as_u64().ok_or("index is no number from 0")?,
            None => self.next_index,
        };
        if index < self.next_index {
            return Err(format!("index does not rise: {index}"));
        }
        self.next_index = index + 1;
        let time_ns = line.need("time")?.as_u64().ok_or("time is no number of nanoseconds")?;
        Ok(Moment { index, time_ns })
    }

    fn invoke(&mut self, at: Moment, process: u64, line: Fields<'_>) -> Result<(), fields::Fault> {
        let call = call::call(&line.text("f")?, line.maybe("value").unwrap_or(&Value::Null))?;
        let mut operation = Operation::new(process, call);
        operation.invoked = at;
        operation.node = line.maybe_text("node")?;
        operation.session = line.long_or("session", 0)?;
        operation.xid = line.maybe("xid").map(|_| line.int("xid")).transpose()?;
        operation.ids = ids(line)?;
        self.open.entry(process).or_default().push(self.history.operations.len());
        self.history.operations.push(operation);
        Ok(())
    }

    fn end(
        &mut self,
        at: Moment,
        process: u64,
        kind: &str,
        line: Fields<'_>,
    ) -> Result<(), fields::Fault> {
        let xid = line.maybe("xid").map(|_| line.int("xid")).transpose()?;
        let open = self.open.entry(process).or_default();
        let of_xid = |place: &usize| xid.is_some() && self.history.operations[*place].xid == xid;
        let place = match open.iter().position(of_xid) {
            Some(found) => open.remove(found),
            None if open.len() == 1 => {
                let only = open.remove(0);
                let known = self.history.operations[only].xid;
                if known.is_some() && xid.is_some() {
                    return Err("no open operation of the process has this xid".to_owned());
                }
                only
            }
            None => return Err("it is not clear which operation of the process ends".to_owned()),
        };
        let operation = &mut self.history.operations[place];
        if operation.xid.is_none() {
            operation.xid = xid;
        }
        let f = line.text("f")?;
        if f != call::name(&operation.call) {
            return Err(format!("{f} ends {}", call::name(&operation.call)));
        }
        let reason = || line.maybe_text("error").map(Option::unwrap_or_default);
        let zxid = line.maybe("zxid").map(|_| line.long("zxid")).transpose()?;
        operation.outcome = match (kind, zxid) {
            ("ok", _) => {
                let value = line.maybe("value").unwrap_or(&Value::Null);
                let result = Ok(call::answer(&operation.call, value)?);
                Outcome::Replied { at, zxid: zxid.unwrap_or(0), result }
            }
            ("fail", Some(zxid)) => {
                let result = Err(call::code(line.need("error")?)?);
                Outcome::Replied { at, zxid, result }
            }
            ("fail", None) => Outcome::NotSent { at, reason: reason()? },
            _ => Outcome::Unknown { at: Some(at), reason: reason()? },
        };
        Ok(())
    }
}

fn ids(line: Fields<'_>) -> Result<Vec<Identity>, fields::Fault> {
    let id = |value: &Value| {
        let pair = value.as_array().map(Vec::as_slice);
        match pair {
            Some([Value::String(scheme), Value::String(id)]) => Ok((scheme.clone(), id.clone())),
            _ => Err("ids has what is no pair of scheme and id".to_owned()),
        }
    };
    line.list("ids")?.iter().map(id).collect()
}

fn notice(line: Fields<'_>) -> Result<NoticeKind, fields::Fault> {
    Ok(match line.text("f")?.as_str() {
        "watch" => {
            let value = Fields::of(line.need("value")?, "value")?;
            let named = value.text("event")?;
            let known = EventKind::ALL.iter().find(|(_, name)| *name == named);
            let event = known.ok_or_else(|| format!("event is none: {named}"))?.0;
            NoticeKind::Watch { zxid: line.long_or("zxid", -1)?, event, path: value.text("path")? }
        }
        "disconnected" => NoticeKind::Disconnected,
        "expired" => NoticeKind::Expired,
        "holds" => {
            let value = Fields::of(line.need("value")?, "value")?;
            let (lock, znode) = (value.text("lock")?, value.text("znode")?);
            NoticeKind::Holds { lock, znode, token: value.long("token")? }
        }
        "holdsNoMore" => {
            let value = Fields::of(line.need("value")?, "value")?;
            NoticeKind::HoldsNoMore { lock: value.text("lock")? }
        }
        "stored" => {
            let value = Fields::of(line.need("value")?, "value")?;
            NoticeKind::Stored(StoreWrite {
                store: value.text("store")?,
                token: value.long("token")?,
                read: value.long("read")?,
                wrote: value.long("wrote")?,
                accepted: value.flag("accepted")?,
            })
        }
        f => return Err(format!("f is no notice: {f}")),
    })
}

/// Writes a history, so that `read_history` reads the same.
#[must_use]
pub fn write_history(history: &History) -> String {
    let mut lines: Vec<(u64, Value)> = Vec::new();
    for operation in &history.operations {
        lines.push((operation.invoked.index, invocation(operation)));
        if let Some((at, line)) = end(operation) {
            lines.push((at, line));
        }
    }
    let notices = history.notices.iter();
    lines.extend(notices.map(|notice| (notice.at.index, notice_value(notice))));
    lines.extend(history.faults.iter().map(|fault| {
        let (at, value) = (fault.at, json!({"process": NEMESIS, "f": fault.name}));
        (at.index, stamped(at, "info", value, &[("value", json!(fault.what))]))
    }));
    lines.sort_by_key(|(index, _)| *index);
    let mut text = String::new();
    for (_, line) in lines {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

fn stamped(at: Moment, kind: &str, mut line: Value, more: &[(&str, Value)]) -> Value {
    line["index"] = json!(at.index);
    line["time"] = json!(at.time_ns);
    line["type"] = json!(kind);
    for (name, value) in more.iter().filter(|(_, value)| !value.is_null()) {
        line[*name] = value.clone();
    }
    line
}

fn invocation(operation: &Operation) -> Value {
    let ids = operation.ids.iter().map(|(scheme, id)| json!([scheme, id])).collect::<Value>();
    let session = operation.session;
    stamped(
        operation.invoked,
        "invoke",
        common(operation),
        &[
            ("value", call_value(&operation.call)),
            ("node", json!(operation.node)),
            ("session", if session == 0 { Value::Null } else { hex(session) }),
            ("ids", if operation.ids.is_empty() { Value::Null } else { ids }),
        ],
    )
}

fn common(operation: &Operation) -> Value {
    let mut line = Map::new();
    line.insert("process".to_owned(), json!(operation.process));
    line.insert("f".to_owned(), json!(call::name(&operation.call)));
    if let Some(xid) = operation.xid {
        line.insert("xid".to_owned(), json!(xid));
    }
    Value::Object(line)
}

fn end(operation: &Operation) -> Option<(u64, Value)> {
    let (at, kind, more) = match &operation.outcome {
        Outcome::Replied { at, zxid, result: Ok(answer) } => {
            (*at, "ok", vec![("zxid", json!(zxid)), ("value", answer_value(answer))])
        }
        Outcome::Replied { at, zxid, result: Err(code) } => {
            (*at, "fail", vec![("zxid", json!(zxid)), ("error", code_value(*code))])
        }
        Outcome::NotSent { at, reason } => (*at, "fail", vec![("error", json!(reason))]),
        Outcome::Unknown { at: None, reason } => {
            debug_assert_eq!(reason, IN_FLIGHT, "only these have no end");
            return None;
        }
        Outcome::Unknown { at: Some(at), reason } => (*at, "info", vec![("error", json!(reason))]),
    };
    Some((at.index, stamped(at, kind, common(operation), &more)))
}

fn notice_value(notice: &Notice) -> Value {
    let (f, zxid, value) = match &notice.kind {
        NoticeKind::Watch { zxid, event, path } => {
            let all = EventKind::ALL.iter();
            let name = all.clone().find(|(kind, _)| kind == event).expect("all are there").1;
            ("watch", json!(zxid), json!({"event": name, "path": path}))
        }
        NoticeKind::Disconnected => ("disconnected", Value::Null, Value::Null),
        NoticeKind::Expired => ("expired", Value::Null, Value::Null),
        NoticeKind::Holds { lock, znode, token } => {
            ("holds", Value::Null, json!({"lock": lock, "znode": znode, "token": token}))
        }
        NoticeKind::HoldsNoMore { lock } => ("holdsNoMore", Value::Null, json!({"lock": lock})),
        NoticeKind::Stored(StoreWrite { store, token, read, wrote, accepted }) => {
            let value = json!({
                "store": store, "token": token, "read": read, "wrote": wrote, "accepted": accepted
            });
            ("stored", Value::Null, value)
        }
    };
    let session = if notice.session == 0 { Value::Null } else { hex(notice.session) };
    let line = json!({"process": notice.process, "f": f});
    let more =
        [("node", json!(notice.node)), ("session", session), ("zxid", zxid), ("value", value)];
    stamped(notice.at, "notice", line, &more)
}

/// The arguments of a call, for people.
pub(crate) fn call_text(call: &crate::op::Call) -> String {
    call_value(call).to_string()
}

/// An answer, for people.
pub(crate) fn answer_text(answer: &crate::op::Answer) -> String {
    answer_value(answer).to_string()
}
