//! Audit logs: the servers' own account of the transactions they applied.
//!
//! *Owns* the lines, how they are read, and how the logs of several servers become one. A server that
//! starts again may write lines a second time. *Invariant* of the joined account: at one zxid stands
//! one transaction, and the zxids rise with the places in the log.

use std::collections::BTreeMap;

use crate::json::{BrokenLine, each_line};
use crate::op::Code;
use crate::verdict::{Rule, Violation};

/// One applied transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// Index of the log entry.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    pub zxid: i64,
    /// The transaction's time, milliseconds since the epoch.
    pub time_ms: i64,
    pub session: i64,
    /// The request's xid, 0 for the server's own transactions.
    pub cxid: i32,
    /// Name of the operation, as histories have it; the servers' own are `createSession`,
    /// `attachSession`, `expireSession`, `deleteContainer`, `found`, `refuse`.
    pub op: String,
    /// The znode that it concerned, the created one if it was a create.
    pub path: Option<String>,
    pub result: Result<(), Code>,
    /// Digest of the state after it, opaque.
    pub digest: String,
}

/// What one server wrote, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditLog {
    /// The server's name.
    pub node: String,
    pub lines: Vec<AuditLine>,
}

/// Reads a server's audit log. `file` is for messages.
///
/// # Errors
/// The first line that is broken. A last line without its end is what a server that was killed left
/// behind: it is no line.
pub fn read_audit(file: &str, node: &str, text: &str) -> Result<AuditLog, BrokenLine> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = Vec::new();
    each_line(file, whole, |line| {
        let unsigned = |name: &str| {
            line.need(name)?.as_u64().ok_or_else(|| format!("{name} is no number from 0"))
        };
        let result = line.text("result")?;
        lines.push(AuditLine {
            index: unsigned("index")?,
            term: unsigned("term")?,
            zxid: line.long("zxid")?,
            time_ms: line.long("time_ms")?,
            session: line.long("session")?,
            cxid: line.int("cxid")?,
            op: line.text("op")?,
            path: line.maybe_text("path")?,
            result: match Code::from_name(&result) {
                Some(Code::OK) => Ok(()),
                Some(code) => Err(code),
                None => return Err(format!("result is no code: {result}")),
            },
            digest: line.text("digest")?,
        });
        Ok(())
    })?;
    Ok(AuditLog { node: node.to_owned(), lines })
}

/// Joins what several servers wrote into one account, in the order of zxids.
///
/// # Errors
/// Two servers, or one server twice, applied something different at one place.
pub fn join(logs: &[AuditLog]) -> Result<Vec<AuditLine>, Violation> {
    let mut by_zxid: BTreeMap<i64, (&AuditLine, &str)> = BTreeMap::new();
    for log in logs {
        for line in &log.lines {
            let (first, node) = *by_zxid.entry(line.zxid).or_insert((line, &log.node));
            if first != line {
                return Err(Violation {
                    rule: Rule::Agreement,
                    what: format!(
                        "{node} and {} applied different transactions at zxid {:#x}",
                        log.node, line.zxid
                    ),
                    around: vec![format!("{node}: {first:?}"), format!("> {}: {line:?}", log.node)],
                });
            }
        }
    }
    let joined: Vec<AuditLine> = by_zxid.values().map(|(line, _)| (*line).clone()).collect();
    for pair in joined.windows(2) {
        if (pair[0].term, pair[0].index) > (pair[1].term, pair[1].index) {
            return Err(Violation {
                rule: Rule::Agreement,
                what: format!("zxid {:#x} stands before its predecessor in the log", pair[1].zxid),
                around: vec![format!("{:?}", pair[0]), format!("> {:?}", pair[1])],
            });
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = concat!(
        r#"{"index":7,"term":2,"zxid":8589934593,"time_ms":1700000000000,"session":"0x1","cxid":4,"#,
        r#""op":"create","path":"/a","result":"NODEEXISTS","digest":"01"}"#
    );

    #[test]
    fn a_line_cut_short_by_a_kill_is_no_line() {
        let log = read_audit("f", "n1", &format!("{LINE}\n{}", &LINE[..40])).unwrap();
        assert_eq!(log.lines.len(), 1);
        assert_eq!(log.lines[0].result, Err(Code::NODE_EXISTS));
    }

    #[test]
    fn a_broken_line_within_is_named() {
        let error = read_audit("f", "n1", &format!("{LINE}\n{{}}\n{LINE}\n")).unwrap_err();
        assert_eq!(error.to_string(), "f:2: result is missing");
    }

    #[test]
    fn servers_that_differ_at_a_zxid_do_not_join() {
        let log = |node: &str, text: &str| read_audit("f", node, text).unwrap();
        let same = log("n1", &format!("{LINE}\n{LINE}\n"));
        assert_eq!(join(&[same.clone(), log("n2", &format!("{LINE}\n"))]).unwrap().len(), 1);
        let other = log("n3", &format!("{}\n", LINE.replace("\"01\"", "\"02\"")));
        assert_eq!(join(&[same, other]).unwrap_err().rule, Rule::Agreement);
    }
}
