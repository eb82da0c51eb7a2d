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
pub(in crate::server) struct Audit {
    path: PathBuf,
    file: File,
    text: String,
}

impl Audit {
    /// Opens the file and appends to what is there.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(in crate::server) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self { path: path.to_path_buf(), file, text: String::new() })
    }

    /// Opens the file of this name again: what was there before may have another name by now. If it cannot be opened,
    /// that is logged, and the open one stays in use.
    pub(in crate::server) fn reopen(&mut self) {
        let path = self.path.display();
        match Self::open(&self.path) {
            Ok(Self { file, .. }) => {
                tracing::info!(%path, "the audit log was opened anew");
                self.file = file;
            }
            Err(error) => tracing::error!(
                %path,
                %error,
                "the audit log cannot be opened anew: its lines go on into the file that was open"
            ),
        }
    }

    /// Where it is.
    #[must_use]
    pub(in crate::server) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the lines, all at once. `clients`: where the clients of some of them are, by zxid, in the same order.
    ///
    /// # Errors
    /// Why they cannot be written.
    pub(in crate::server) fn write(
        &mut self,
        lines: &[AuditLine],
        clients: &[(i64, String)],
    ) -> io::Result<()> {
        self.text.clear();
        let mut clients = clients.iter().peekable();
        for line in lines {
            let client = clients.next_if(|(zxid, _)| *zxid == line.zxid);
            append_line(&mut self.text, line, client.map(|(_, client)| client.as_str()));
        }
        self.file.write_all(self.text.as_bytes())
    }
}

/// Written by hand: this stands on the path of every write, and the only part of a line that needs
/// care is the path.
fn append_line(out: &mut String, line: &AuditLine, client: Option<&str>) {
    let AuditLine { index, term, zxid, time_ms, session, cxid, op, path, result, digest } = line;
    let path = match path {
        Some(path) => serde_json::Value::from(path.as_str()).to_string(),
        None => "null".to_string(),
    };
    // Numbers beyond 2^53 lose digits in many readers: sessions and digests are hexadecimal text.
    let written = write!(
        out,
        "{{\"index\":{index},\"term\":{term},\"zxid\":{zxid},\"time_ms\":{time_ms},\
         \"session\":\"{session:#x}\",\"cxid\":{cxid},\"op\":\"{op}\",\"path\":{path},\
         \"result\":\"{result}\",\"digest\":\"{digest:032x}\""
    );
    written.expect("writing to a String does not fail");
    // An address needs no escapes.
    if let Some(client) = client {
        out.push_str(",\"client\":\"");
        out.push_str(client);
        out.push('"');
    }
    out.push_str("}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> AuditLine {
        AuditLine {
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
        }
    }

    #[test]
    fn lines_go_on_in_a_new_file_once_the_old_one_was_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
        let mut audit = Audit::open(&path).unwrap();
        audit.write(&[line()], &[]).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        audit.write(&[line()], &[]).unwrap();
        audit.reopen();
        audit.write(&[line()], &[]).unwrap();
        let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((lines(&moved), lines(&path)), (2, 1));
    }

    #[test]
    fn a_line_is_json_whatever_the_path_holds() {
        let line = line();
        let mut text = String::new();
        append_line(&mut text, &line, Some("[::1]:34716"));
        append_line(&mut text, &AuditLine { path: None, ..line.clone() }, None);
        let parsed: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed[0]["path"].as_str(), line.path.as_deref());
        assert_eq!(parsed[0]["zxid"], 0x2_0000_0001_i64);
        assert_eq!(parsed[0]["session"], "0xffffffffffffffff");
        assert_eq!(parsed[0]["digest"], "00000000000000000000000000000001");
        assert!(parsed[1]["path"].is_null());
        assert_eq!(parsed[0]["client"], "[::1]:34716");
        assert_eq!(parsed[1].get("client"), None, "another server's client");
    }
}
