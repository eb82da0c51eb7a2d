//! The audit log: one line of JSON per applied transaction, by which the server proves what it did.
//!
//! *Owns* the file. *Invariants*: the lines of a transaction are written to the file (not fsynced)
//! before any answer that shows it is handed out; a transaction that is applied again after a start has no second
//! line; one whose line a kill prevented gets it at the start; what a kill has left of a line is cut off. *Never* loses
//! a line silently: a line that cannot be written ends the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::replica::AuditLine;
use crate::server::clock;

/// An open audit log.
#[derive(Debug)]
pub(in crate::server) struct Audit {
    path: PathBuf,
    file: File,
    text: String,
    /// Number of lines of each identity at the end of the file at the start. Empty once later ones are written.
    written: BTreeMap<Identity, u32>,
}

/// zxid, log index and digest of a line. Steps of a migration take no zxid of their own: several lines may have one
/// identity.
type Identity = (i64, u64, String);

/// Most bytes that are read of the end of a file. Far fewer are of entries whose commit was not recorded before a kill:
/// those alone are applied again with a line.
const END_BYTES_MAX: u64 = 16 << 20;
/// Beginning of every line that a server writes.
const BEGINNING: &[u8] = b"{\"index\":";

impl Audit {
    /// Opens the file and appends to what is there. Lines that are there, or in the file that was the last one to be
    /// moved away (`NAME.1`), are not written again.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(in crate::server) fn open(path: &Path) -> io::Result<Self> {
        let file = open_file(path)?;
        let mut end = end_of(path)?;
        let torn = end.split_off(whole_lines(&end));
        if !torn.is_empty() && (torn.starts_with(BEGINNING) || BEGINNING.starts_with(&torn)) {
            file.set_len(file.metadata()?.len() - torn.len() as u64)?;
            let (path, bytes) = (path.display(), torn.len());
            tracing::info!(%path, bytes, "a line of the audit log that a kill had cut off was removed");
        }
        if (end.len() as u64) < END_BYTES_MAX {
            let mut before = OsString::from(path);
            before.push(".1");
            // One that cannot be read is not this server's.
            let mut lines = end_of(Path::new(&before)).unwrap_or_default();
            lines.extend_from_slice(&end);
            end = lines;
        }
        let mut written = BTreeMap::new();
        for identity in String::from_utf8_lossy(&end).lines().filter_map(identity) {
            *written.entry(identity).or_default() += 1;
        }
        Ok(Self { path: path.to_path_buf(), file, text: String::new(), written })
    }

    /// Opens the file of this name again: what was there before may have another name by now. If it cannot be opened,
    /// that is logged, and the open one stays in use.
    pub(in crate::server) fn reopen(&mut self) {
        let path = self.path.display();
        match open_file(&self.path) {
            Ok(file) => {
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

    /// zxid of the last line that the file had at the start, in the order of zxids.
    #[must_use]
    pub(in crate::server) fn last_zxid(&self) -> Option<i64> {
        self.written.last_key_value().map(|((zxid, ..), _)| *zxid)
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
            if self.is_written(line) {
                continue;
            }
            append_line(&mut self.text, line, client.map(|(_, client)| client.as_str()));
        }
        self.file.write_all(self.text.as_bytes())
    }

    /// Writes a line of an operator's word, which is no transaction, and syncs the file: index, term, zxid and digest
    /// of the state that it is about, and what else is to be said.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub(in crate::server) fn said(
        &mut self,
        op: &str,
        (index, term, zxid, digest): (u64, u64, i64, u128),
        more: Value,
    ) -> io::Result<()> {
        let mut line = serde_json::json!({
            "index": index,
            "term": term,
            "zxid": zxid,
            "time_ms": clock::wall_ms(),
            "session": "0x0",
            "cxid": 0,
            "op": op,
            "path": null,
            "result": "ok",
            "digest": format!("{digest:032x}"),
        });
        if let (Value::Object(line), Value::Object(mut more)) = (&mut line, more) {
            line.append(&mut more);
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        match self.file.metadata()?.is_file() {
            true => self.file.sync_all(),
            false => Ok(()),
        }
    }

    /// Whether the file had this line at the start. One of another history, where zxids began anew, has another digest.
    fn is_written(&mut self, line: &AuditLine) -> bool {
        let Some(((last, ..), _)) = self.written.last_key_value() else { return false };
        if line.zxid > *last {
            self.written.clear();
            return false;
        }
        let identity = (line.zxid, line.index, digest_text(line));
        let left = self.written.get_mut(&identity).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// The end of a file: at most [`END_BYTES_MAX`] of it. A pipe or a terminal has none.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Ok(Vec::new());
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(END_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(END_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Length of the lines that are complete.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

fn identity(line: &str) -> Option<Identity> {
    let line: Value = serde_json::from_str(line).ok()?;
    let digest = line["digest"].as_str()?.to_owned();
    Some((line["zxid"].as_i64()?, line["index"].as_u64()?, digest))
}

fn digest_text(line: &AuditLine) -> String {
    format!("{:032x}", line.digest)
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

    fn at(zxid: i64, digest: u128) -> AuditLine {
        AuditLine { zxid, digest, ..line() }
    }

    fn zxids(path: &Path) -> Vec<i64> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| identity(line).unwrap().0).collect()
    }

    #[test]
    fn what_is_applied_again_after_a_kill_has_no_second_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let first = [at(1, 10), at(2, 20), at(3, 30)];
        Audit::open(&path).unwrap().write(&first, &[(2, "[::1]:7".into())]).unwrap();
        let mut audit = Audit::open(&path).unwrap();
        audit.write(&[at(2, 20), at(3, 30), at(4, 40)], &[(4, "[::1]:9".into())]).unwrap();
        audit.write(&[at(5, 50)], &[]).unwrap();
        assert_eq!(zxids(&path), [1, 2, 3, 4, 5]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().nth(3).unwrap().contains("\"client\":\"[::1]:9\""), "{text}");
    }

    #[test]
    fn lines_of_another_history_are_written_whatever_their_zxids_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        Audit::open(&path).unwrap().write(&[at(1, 10), at(2, 20)], &[]).unwrap();
        Audit::open(&path).unwrap().write(&[at(1, 11), at(2, 21), at(3, 31)], &[]).unwrap();
        assert_eq!(zxids(&path), [1, 2, 1, 2, 3]);
    }

    #[test]
    fn lines_of_one_identity_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        Audit::open(&path).unwrap().write(&[at(1, 10), at(2, 20), at(2, 20)], &[]).unwrap();
        Audit::open(&path).unwrap().write(&[at(2, 20), at(2, 20), at(2, 20)], &[]).unwrap();
        assert_eq!(zxids(&path), [1, 2, 2, 2]);
    }

    #[test]
    fn a_line_that_a_kill_cut_off_is_removed_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        Audit::open(&path).unwrap().write(&[at(1, 10), at(2, 20)], &[]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let first = whole_lines(&whole[..whole.len() - 1]);
        for length in [first + 1, first + 12, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            Audit::open(&path).unwrap().write(&[at(1, 10), at(2, 20)], &[]).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{length}");
        }
    }

    #[test]
    fn lines_of_a_file_that_was_moved_away_before_the_kill_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
        let mut audit = Audit::open(&path).unwrap();
        audit.write(&[at(1, 10)], &[]).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        audit.write(&[at(2, 20)], &[]).unwrap();
        audit.reopen();
        Audit::open(&path).unwrap().write(&[at(1, 10), at(2, 20), at(3, 30)], &[]).unwrap();
        assert_eq!((zxids(&moved), zxids(&path)), (vec![1, 2], vec![3]));
        // The new file has lines by now, and those before them are applied again all the same.
        let again = [at(1, 10), at(2, 20), at(3, 30), at(4, 40)];
        Audit::open(&path).unwrap().write(&again, &[]).unwrap();
        assert_eq!((zxids(&moved), zxids(&path)), (vec![1, 2], vec![3, 4]));
    }

    #[test]
    fn a_file_of_another_program_and_one_that_is_no_file_are_left_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        std::fs::write(&path, "something else").unwrap();
        Audit::open(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"something else");
        assert!(Audit::open(Path::new("/dev/null")).unwrap().written.is_empty());
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
