//! ZooKeeper's wire format, as the harness speaks it.
//!
//! *Owns* requests as bytes and replies as values of the checker. Written apart from the product's
//! codec: a mistake there must not be able to hide by being made on both ends. *Invariant*: bytes that
//! are not exactly the answer to the request that was sent are an error that says what is wrong.

use lockkeeper_check::history::EventKind;
use lockkeeper_check::op::{Acl, Answer, Call, Code, Create, CreateOp, Data, Mode, Stat};

use super::reader::{Garbled, Reader};

/// The xid of notifications.
pub const NOTIFICATION_XID: i32 = -1;
/// The xid of pings.
pub const PING_XID: i32 = -2;
/// The xid of setWatches.
pub const SET_WATCHES_XID: i32 = -8;
/// Bytes of a session's password.
pub const PASSWORD_BYTES: usize = 16;

/// What a server said to a connect request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Milliseconds.
    pub timeout_ms: i32,
    /// 0: the session that was asked for is gone.
    pub session: i64,
    pub password: Vec<u8>,
}

/// The header of everything that a server sends but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub xid: i32,
    pub zxid: i64,
    pub error: i32,
}

/// A frame: its length, then what `body` writes.
fn frame(body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    body(&mut bytes);
    let length = i32::try_from(bytes.len() - 4).expect("a request is small");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn flag(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

fn count(out: &mut Vec<u8>, length: usize) {
    int(out, i32::try_from(length).expect("a request is small"));
}

fn text(out: &mut Vec<u8>, value: &str) {
    count(out, value.len());
    out.extend_from_slice(value.as_bytes());
}

fn data(out: &mut Vec<u8>, value: &Data) {
    match value {
        None => int(out, -1),
        Some(bytes) => {
            count(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

fn texts(out: &mut Vec<u8>, values: &[String]) {
    count(out, values.len());
    values.iter().for_each(|value| text(out, value));
}

fn acl(out: &mut Vec<u8>, entries: &[Acl]) {
    count(out, entries.len());
    for entry in entries {
        int(out, entry.perms);
        text(out, &entry.scheme);
        text(out, &entry.id);
    }
}

/// A connect request.
#[must_use]
pub fn connect(session: i64, password: &[u8], timeout_ms: i32, last_zxid: i64) -> Vec<u8> {
    frame(|out| {
        int(out, 0);
        long(out, last_zxid);
        int(out, timeout_ms);
        long(out, session);
        count(out, password.len());
        out.extend_from_slice(password);
        flag(out, false);
    })
}

/// Any other request.
///
/// # Panics
/// If the call has no form on the wire of its own: a connect, a check outside of a multi, `Other`.
#[must_use]
pub fn request(xid: i32, call: &Call) -> Vec<u8> {
    frame(|out| {
        int(out, xid);
        int(out, opcode(call));
        body(out, call);
    })
}

/// The opcode of a call.
fn opcode(call: &Call) -> i32 {
    match call {
        Call::Create(create) => match create.op {
            CreateOp::Create => 1,
            CreateOp::Create2 => 15,
            CreateOp::Container => 19,
            CreateOp::Ttl => 21,
        },
        Call::Delete { .. } => 2,
        Call::Exists { .. } => 3,
        Call::GetData { .. } => 4,
        Call::SetData { .. } => 5,
        Call::GetAcl { .. } => 6,
        Call::SetAcl { .. } => 7,
        Call::GetChildren { stat: false, .. } => 8,
        Call::Sync { .. } => 9,
        Call::Ping => 11,
        Call::GetChildren { stat: true, .. } => 12,
        Call::Check { .. } => 13,
        Call::Multi(_) => 14,
        Call::RemoveWatches { .. } => 18,
        Call::MultiRead(_) => 22,
        Call::SetWatches(watches)
            if watches.persistent.is_empty() && watches.recursive.is_empty() =>
        {
            101
        }
        Call::Ephemerals { .. } => 103,
        Call::AllChildrenNumber { .. } => 104,
        Call::SetWatches(_) => 105,
        Call::AddWatch { .. } => 106,
        Call::Close => -11,
        Call::Connect { .. } | Call::Other(_) => panic!("no request: {call:?}"),
    }
}

fn body(out: &mut Vec<u8>, call: &Call) {
    match call {
        Call::Close | Call::Ping => {}
        Call::Create(create) => create_body(out, create),
        Call::Delete { path, version } | Call::Check { path, version } => {
            text(out, path);
            int(out, *version);
        }
        Call::SetData { path, data: bytes, version } => {
            text(out, path);
            data(out, bytes);
            int(out, *version);
        }
        Call::SetAcl { path, acl: entries, version } => {
            text(out, path);
            acl(out, entries);
            int(out, *version);
        }
        Call::Multi(parts) | Call::MultiRead(parts) => {
            for part in parts {
                part_header(out, opcode(part), false);
                body(out, part);
            }
            part_header(out, -1, true);
        }
        Call::Exists { path, watch }
        | Call::GetData { path, watch }
        | Call::GetChildren { path, watch, .. } => {
            text(out, path);
            flag(out, *watch);
        }
        Call::GetAcl { path } | Call::AllChildrenNumber { path } | Call::Sync { path } => {
            text(out, path);
        }
        Call::Ephemerals { prefix } => text(out, prefix),
        Call::SetWatches(watches) => {
            long(out, watches.relative_zxid);
            texts(out, &watches.data);
            texts(out, &watches.exist);
            texts(out, &watches.child);
            if opcode(call) == 105 {
                texts(out, &watches.persistent);
                texts(out, &watches.recursive);
            }
        }
        Call::AddWatch { path, recursive } => {
            text(out, path);
            int(out, i32::from(*recursive));
        }
        Call::RemoveWatches { path, kind } => {
            text(out, path);
            int(out, *kind);
        }
        Call::Connect { .. } | Call::Other(_) => panic!("no request: {call:?}"),
    }
}

fn part_header(out: &mut Vec<u8>, opcode: i32, is_end: bool) {
    int(out, opcode);
    flag(out, is_end);
    int(out, -1);
}

fn create_body(out: &mut Vec<u8>, create: &Create) {
    text(out, &create.path);
    data(out, &create.data);
    acl(out, &create.acl);
    int(
        out,
        match create.mode {
            Mode::Persistent => 0,
            Mode::Ephemeral => 1,
            Mode::PersistentSequential => 2,
            Mode::EphemeralSequential => 3,
            Mode::Container => 4,
            Mode::PersistentWithTtl => 5,
            Mode::PersistentSequentialWithTtl => 6,
        },
    );
    if create.op == CreateOp::Ttl {
        long(out, create.ttl_ms);
    }
}

/// Reads the reply to a connect request.
///
/// # Errors
/// It is none.
pub fn granted(frame: &[u8]) -> Result<Granted, Garbled> {
    let mut reader = Reader::new(frame);
    reader.int("protocolVersion")?;
    let timeout_ms = reader.int("timeOut")?;
    let session = reader.long("sessionId")?;
    let password = reader.data("passwd")?.unwrap_or_default();
    reader.flag("readOnly")?;
    reader.end()?;
    Ok(Granted { timeout_ms, session, password })
}

/// Reads a header; what is behind it is left in the reader.
///
/// # Errors
/// It is none.
pub fn header<'a>(frame: &'a [u8]) -> Result<(Header, Reader<'a>), Garbled> {
    let mut reader = Reader::new(frame);
    let xid = reader.int("xid")?;
    let zxid = reader.long("zxid")?;
    let error = reader.int("err")?;
    Ok((Header { xid, zxid, error }, reader))
}

/// Reads a notification behind its header: what happened, and to which znode. `None` for one that
/// tells only of the session's state.
///
/// # Errors
/// It is none.
pub fn notification(mut reader: Reader<'_>) -> Result<Option<(EventKind, String)>, Garbled> {
    let kind = reader.int("type")?;
    reader.int("state")?;
    let path = reader.text("path")?;
    reader.end()?;
    let event = match kind {
        1 => EventKind::Created,
        2 => EventKind::Deleted,
        3 => EventKind::DataChanged,
        4 => EventKind::ChildrenChanged,
        -1 => return Ok(None),
        _ => return Err(Garbled(format!("event type {kind}"))),
    };
    Ok(Some((event, path)))
}

/// Reads the answer to a call behind a header that has no error.
///
/// # Errors
/// The bytes are no answer to this call.
pub fn answer(call: &Call, mut reader: Reader<'_>) -> Result<Answer, Garbled> {
    let answer = match call {
        Call::Multi(parts) | Call::MultiRead(parts) => parts_answer(parts, &mut reader)?,
        Call::Sync { .. } => {
            reader.text("path")?;
            Answer::Done
        }
        call => plain_answer(call, &mut reader)?,
    };
    reader.end()?;
    Ok(answer)
}

fn plain_answer(call: &Call, reader: &mut Reader<'_>) -> Result<Answer, Garbled> {
    Ok(match call {
        Call::Create(create) if create.op == CreateOp::Create => Answer::Path(reader.text("path")?),
        Call::Create(_) => Answer::PathStat(reader.text("path")?, stat(reader)?),
        Call::SetData { .. } | Call::SetAcl { .. } | Call::Exists { .. } => {
            Answer::Stat(stat(reader)?)
        }
        Call::GetData { .. } => Answer::Data(reader.data("data")?, stat(reader)?),
        Call::GetAcl { .. } => Answer::Acl(acl_list(reader)?, stat(reader)?),
        Call::GetChildren { stat: with_stat, .. } => {
            let names = reader.texts("children")?;
            Answer::Children(names, if *with_stat { Some(stat(reader)?) } else { None })
        }
        Call::AllChildrenNumber { .. } => Answer::Number(reader.int("totalNumber")?),
        Call::Ephemerals { .. } => Answer::Paths(reader.texts("ephemerals")?),
        // An error code beside that of the header.
        Call::AddWatch { .. } => match reader.int("err")? {
            0 => Answer::Done,
            err => return Err(Garbled(format!("addWatch is answered with {err}"))),
        },
        Call::Close
        | Call::Ping
        | Call::Delete { .. }
        | Call::Check { .. }
        | Call::Sync { .. }
        | Call::SetWatches(_)
        | Call::RemoveWatches { .. } => Answer::Done,
        Call::Connect { .. } | Call::Multi(_) | Call::MultiRead(_) | Call::Other(_) => {
            return Err(Garbled(format!("no plain answer belongs to {call:?}")));
        }
    })
}

fn parts_answer(parts: &[Call], reader: &mut Reader<'_>) -> Result<Answer, Garbled> {
    let mut results = Vec::with_capacity(parts.len());
    for part in parts {
        let kind = reader.int("type of a part")?;
        if reader.flag("done of a part")? {
            return Err(Garbled(format!("{} results for {} parts", results.len(), parts.len())));
        }
        reader.int("err of a part")?;
        results.push(match kind {
            -1 => Err(Code(reader.int("err of a failed part")?)),
            kind if kind == opcode(part) => Ok(plain_answer(part, reader)?),
            kind => return Err(Garbled(format!("a part of type {kind} answers {part:?}"))),
        });
    }
    let kind = reader.int("type of the end")?;
    let is_end = reader.flag("done of the end")?;
    reader.int("err of the end")?;
    match (kind, is_end) {
        (-1, true) => Ok(Answer::Parts(results)),
        _ => Err(Garbled(format!("more results than {} parts", parts.len()))),
    }
}

fn stat(reader: &mut Reader<'_>) -> Result<Stat, Garbled> {
    Ok(Stat {
        czxid: reader.long("czxid")?,
        mzxid: reader.long("mzxid")?,
        ctime: reader.long("ctime")?,
        mtime: reader.long("mtime")?,
        version: reader.int("version")?,
        cversion: reader.int("cversion")?,
        aversion: reader.int("aversion")?,
        ephemeral_owner: reader.long("ephemeralOwner")?,
        data_length: reader.int("dataLength")?,
        num_children: reader.int("numChildren")?,
        pzxid: reader.long("pzxid")?,
    })
}

fn acl_list(reader: &mut Reader<'_>) -> Result<Vec<Acl>, Garbled> {
    let length = reader.count("acl")?;
    (0..length)
        .map(|_| {
            let perms = reader.int("perms")?;
            Ok(Acl { perms, scheme: reader.text("scheme")?, id: reader.text("id")? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn a_connect_request_has_the_bytes_that_zookeeper_reads() {
        let sent = connect(0x0102, &[0xaa; 16], 4000, 7);
        assert_eq!(
            hex(&sent),
            "0000002d00000000000000000000000700000fa0000000000000010200000010aaaaaaaaaaaaaaaaaaaaaaaa\
             aaaaaaaa00"
        );
    }

    #[test]
    fn a_create_has_path_data_acl_and_flags() {
        let create = Create {
            op: CreateOp::Create2,
            path: "/a".to_owned(),
            data: Some(b"x".to_vec()),
            acl: Acl::open(),
            mode: Mode::EphemeralSequential,
            ttl_ms: 0,
        };
        let sent = request(9, &Call::Create(create));
        assert_eq!(
            hex(&sent),
            "00000032000000090000000f000000022f610000000178000000010000001f00000005776f726c6400000006\
             616e796f6e6500000003"
        );
    }

    #[test]
    fn a_multi_ends_with_a_header_that_says_so() {
        let check = Call::Check { path: "/a".to_owned(), version: 3 };
        let sent = request(1, &Call::Multi(vec![check]));
        assert_eq!(
            hex(&sent),
            "00000024000000010000000e0000000d00ffffffff000000022f6100000003ffffffff01ffffffff"
        );
    }

    #[test]
    fn the_results_of_a_failed_multi_are_codes() {
        let delete = Call::Delete { path: "/a".to_owned(), version: -1 };
        let call = Call::Multi(vec![delete.clone(), delete]);
        let body = bytes(
            "ffffffff 00 00000000 00000000  ffffffff 00 ffffff9b ffffff9b  ffffffff 01 ffffffff",
        );
        let parts = vec![Err(Code::OK), Err(Code::NO_NODE)];
        assert_eq!(answer(&call, Reader::new(&body)), Ok(Answer::Parts(parts)));
    }

    #[test]
    fn bytes_behind_an_answer_are_no_answer() {
        let call = Call::Sync { path: "/".to_owned() };
        assert_eq!(answer(&call, Reader::new(&bytes("000000012f"))), Ok(Answer::Done));
        assert!(answer(&call, Reader::new(&bytes("000000012f00"))).is_err());
        assert!(answer(&call, Reader::new(&bytes("000000022f"))).is_err());
    }

    #[test]
    fn a_notification_tells_what_happened_where() {
        let frame = bytes("ffffffff 0000000000000007 00000000 00000004 00000003 000000022f61");
        let (found, reader) = header(&frame).unwrap();
        assert_eq!(found, Header { xid: NOTIFICATION_XID, zxid: 7, error: 0 });
        let event = notification(reader).unwrap();
        assert_eq!(event, Some((EventKind::ChildrenChanged, "/a".to_owned())));
    }
}
