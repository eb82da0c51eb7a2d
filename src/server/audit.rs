//! The audit log: one line of JSON per applied transaction, by which the server proves what it did.
//!
//! *Owns* the file. *Invariant*: the lines of a transaction are written to the file (not fsynced)
//! before any answer that shows it is handed out. *Never* loses a line silently: a line that cannot
//! be written ends the server.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::replica::AuditLine;

/// An open audit log.
#[derive(Debug)]
pub(super) struct Audit {
    path: PathBuf,
    file: File,
    text: String,
}

impl Audit {
    /// Opens the file and appends to what is there.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self { path: path.to_path_buf(), file, text: String::new() })
    }

    /// Where it is.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the lines, all at once.
    ///
    /// # Errors
    /// Why they cannot be written.
    pub(super) fn write(&mut self, lines: &[AuditLine]) -> io::Result<()> {
        self.text.clear();
        for line in lines {
            append_line(&mut self.text, line);
        }
        self.file.write_all(self.text.as_bytes())
    }
}

/// Written by hand: this stands on the path of every write, and the only part of a line that needs
/// care is the path.
fn append_line(out: &mut String, line: &AuditLine) {
    let AuditLine { index, term, zxid, time_ms, session, cxid, op, path, result, digest } = line;
    let path = match path {
        Some(path) => serde_json::Value::from(path.as_str()).to_string(),
        None => "null".to_string(),
    };
    // Numbers beyond 2^53 lose digits in many readers: sessions and digests are hexadecimal text.
    let written = writeln!(
        out,
        "{{\"index\":{index},\"term\":{term},\"zxid\":{zxid},\"time_ms\":{time_ms},\
         \"session\":\"{session:#x}\",\"cxid\":{cxid},\"op\":\"{op}\",\"path\":{path},\
         \"result\":\"{result}\",\"digest\":\"{digest:032x}\"}}"
    );
    written.expect("writing to a String does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_whatever_the_path_holds() {
        let line = AuditLine {
            index: 7,
            term: 2,
            zxid: 0x2_0000_0001,
            time_ms: 1_700_000_000_000,
            session: -1,
            cxid: -4,
            op: "create",
            path: Some("/a \"b\\\n\u{1f512}".to_string()),
            result: "ok",
            digest: 1,
        };
        let mut text = String::new();
        append_line(&mut text, &line);
        append_line(&mut text, &AuditLine { path: None, ..line.clone() });
        let parsed: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed[0]["path"].as_str(), line.path.as_deref());
        assert_eq!(parsed[0]["zxid"], 0x2_0000_0001_i64);
        assert_eq!(parsed[0]["session"], "0xffffffffffffffff");
        assert_eq!(parsed[0]["digest"], "00000000000000000000000000000001");
        assert!(parsed[1]["path"].is_null());
    }
}
