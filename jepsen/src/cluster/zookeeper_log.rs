//! The account of an Apache ZooKeeper: its transaction log, as the checks read accounts.
//!
//! *Owns* the format of `version-2/log.*`. *Invariant*: a log with a hole, which a server has that was
//! sent a snapshot, is no account. *Never* tells of attached sessions, of digests, or what a request
//! was that failed: ZooKeeper does not write them down.

use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_check::op::Code;
use serde_json::json;

use crate::client::reader::{Garbled, Reader};

/// "ZKLG".
const MAGIC: i32 = 0x5a4b_4c47;
/// What ends a record.
const END: u8 = 0x42;
/// Bytes of a file's header: magic, version, database.
const HEADER_BYTES: usize = 16;

/// A transaction of the log.
struct Txn {
    session: i64,
    cxid: i32,
    zxid: i64,
    time_ms: i64,
    op: &'static str,
    path: Option<String>,
    /// 0 if it succeeded.
    code: i32,
}

/// The account of the server whose data lie in a directory; `None` if its log has a hole.
///
/// # Errors
/// The log cannot be read.
pub fn account(data: &Path) -> Result<Option<String>, String> {
    let mut txns = Vec::new();
    for file in files(&data.join("version-2"))? {
        let fault = |what: String| format!("{}: {what}", file.display());
        let bytes = fs::read(&file).map_err(|error| fault(error.to_string()))?;
        read(&bytes, &mut txns).map_err(|error| fault(error.to_string()))?;
    }
    let mut before: i64 = 0;
    let mut text = String::new();
    for (index, txn) in (1_u64..).zip(&txns) {
        let follows = match txn.zxid >> 32 == before >> 32 {
            true => txn.zxid == before + 1,
            false => txn.zxid & 0xffff_ffff == 1,
        };
        let Some(line) = line(index, txn).filter(|_| follows) else { return Ok(None) };
        before = txn.zxid;
        text.push_str(&line);
    }
    Ok(Some(text))
}

/// The log's files in their order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let number = |file: &Path| {
        let name = file.file_name()?.to_str()?.strip_prefix("log.")?;
        u64::from_str_radix(name, 16).ok()
    };
    let all = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<(u64, PathBuf)> =
        all.filter_map(|file| Some((number(&file)?, file))).collect();
    files.sort();
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

/// Reads a file up to its end, or to what was not written whole.
fn read(bytes: &[u8], txns: &mut Vec<Txn>) -> Result<(), Garbled> {
    if Reader::new(bytes).int("magic")? != MAGIC {
        return Err(Garbled("no log of ZooKeeper".to_owned()));
    }
    let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    loop {
        // Checksum and length; what is reserved and not written is zero.
        let Some((head, behind)) = rest.split_at_checked(12) else { return Ok(()) };
        let length = Reader::new(&head[8..]).int("length")?;
        let length =
            usize::try_from(length).map_err(|_| Garbled("a negative length".to_owned()))?;
        let Some((record, behind)) = behind.split_at_checked(length) else { return Ok(()) };
        if length == 0 || behind.first() != Some(&END) {
            return Ok(());
        }
        txns.push(txn(record)?);
        rest = &behind[1..];
    }
}

fn txn(record: &[u8]) -> Result<Txn, Garbled> {
    let mut reader = Reader::new(record);
    let session = reader.long("clientId")?;
    let cxid = reader.int("cxid")?;
    let zxid = reader.long("zxid")?;
    let time_ms = reader.long("time")?;
    let kind = reader.int("type")?;
    let (op, has_path) = match kind {
        -1 => ("error", false),
        -10 => ("createSession", false),
        -11 if cxid == 0 => ("expireSession", false),
        -11 => ("closeSession", false),
        1 => ("create", true),
        2 => ("delete", true),
        5 => ("setData", true),
        7 => ("setACL", true),
        14 => ("multi", false),
        15 => ("create2", true),
        16 => ("reconfig", false),
        19 => ("createContainer", true),
        20 => ("deleteContainer", true),
        21 => ("createTTL", true),
        _ => return Err(Garbled(format!("a transaction of the type {kind}"))),
    };
    let path = if has_path { Some(reader.text("path")?) } else { None };
    let code = match op {
        "error" => reader.int("err")?,
        "multi" => code_of_parts(reader)?,
        _ => 0,
    };
    Ok(Txn { session, cxid, zxid, time_ms, op, path, code })
}

/// The code of the part that failed; the others say only that some part did.
fn code_of_parts(mut reader: Reader<'_>) -> Result<i32, Garbled> {
    let mut found = 0;
    for _ in 0..reader.count("txns")? {
        let kind = reader.int("type")?;
        let body = reader.data("data")?.unwrap_or_default();
        if kind == -1 && found == 0 {
            let code = Reader::new(&body).int("err")?;
            let is_of_another = code == 0 || code == Code::RUNTIME_INCONSISTENCY.0;
            found = if is_of_another { 0 } else { code };
        }
    }
    Ok(found)
}

/// A line of the account; `None` for a code without a name.
fn line(index: u64, txn: &Txn) -> Option<String> {
    let result = match txn.code {
        0 => "ok",
        code => Code(code).name()?,
    };
    let line = json!({
        "index": index, "term": txn.zxid >> 32, "zxid": txn.zxid, "time_ms": txn.time_ms,
        "session": format!("{:#x}", txn.session), "cxid": txn.cxid, "op": txn.op,
        "path": txn.path, "result": result, "digest": "",
    });
    Some(format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(zxid: i64, kind: i32, body: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend_from_slice(&7_i64.to_be_bytes());
        payload.extend_from_slice(&3_i32.to_be_bytes());
        payload.extend_from_slice(&zxid.to_be_bytes());
        payload.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
        payload.extend_from_slice(&kind.to_be_bytes());
        payload.extend_from_slice(body);
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(&i32::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&payload);
        bytes.push(END);
        bytes
    }

    fn written(records: &[Vec<u8>]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("version-2");
        fs::create_dir(&data).unwrap();
        let mut bytes = MAGIC.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0; HEADER_BYTES - 4]);
        bytes.extend(records.concat());
        bytes.extend_from_slice(&[0; 64]);
        fs::write(data.join("log.100000001"), bytes).unwrap();
        account(folder.path()).unwrap()
    }

    const FIRST: i64 = 0x1_0000_0001;

    #[test]
    fn a_log_is_read_up_to_what_was_never_written() {
        let made = record(FIRST, 2, b"\0\0\0\x02/a");
        let failed = record(FIRST + 1, -1, &(-101_i32).to_be_bytes());
        let next_epoch = record(0x2_0000_0001, -10, &4000_i32.to_be_bytes());
        let text = written(&[made, failed, next_epoch]).unwrap();
        let log = lockkeeper_check::audit::read_audit("log", "n1", &text).unwrap();
        let lines: Vec<_> =
            log.lines.iter().map(|line| (line.op.as_str(), line.term, line.result)).collect();
        let expected =
            [("delete", 1, Ok(())), ("error", 1, Err(Code::NO_NODE)), ("createSession", 2, Ok(()))];
        assert_eq!(lines, expected);
        assert_eq!(log.lines[0].path.as_deref(), Some("/a"));
    }

    #[test]
    fn a_log_with_a_hole_is_no_account() {
        let made = |zxid| record(zxid, 2, b"\0\0\0\x02/a");
        assert_eq!(written(&[made(FIRST), made(FIRST + 2)]), None);
    }
}
