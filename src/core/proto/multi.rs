//! multi and multiRead: several operations in one request, and their results.
//!
//! Reproduces `MultiOperationRecord` and `MultiResponse`: a sequence of headers `(type, done, err)`,
//! each followed by a record, ended by a header whose `done` is true.

use bytes::Bytes;

use super::create::{Create, CreateKind};
use super::error::ErrorCode;
use super::jute::{Malformed, Reader, Text, Writer, wire_len};
use super::op::OpCode;
use super::stat::Stat;

/// One write inside a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MultiOp {
    Create(Create),
    Delete { path: Text, version: i32 },
    SetData { path: Text, data: Option<Bytes>, version: i32 },
    Check { path: Text, version: i32 },
}

/// One read inside a multiRead. A watch flag is decoded and ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReadOp {
    GetData { path: Text },
    GetChildren { path: Text },
}

/// One result inside the answer to a multi or multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MultiResult {
    Create {
        path: Text,
    },
    /// create2, createContainer and createTTL alike.
    Create2 {
        path: Text,
        stat: Stat,
    },
    Delete,
    SetData {
        stat: Stat,
    },
    Check,
    GetData {
        data: Option<Bytes>,
        stat: Stat,
    },
    GetChildren {
        names: Vec<Text>,
    },
    /// `None` stands for "would have succeeded": code 0 in front of the operation that failed.
    Error(Option<ErrorCode>),
}

struct Header {
    op: i32,
    done: bool,
}

impl Header {
    fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        let op = reader.int("type")?;
        let done = reader.boolean("done")?;
        reader.int("err")?;
        Ok(Self { op, done })
    }
}

fn put_header(op: i32, done: bool, err: i32, out: &mut Vec<u8>) {
    out.put_int(op);
    out.put_bool(done);
    out.put_int(err);
}

/// Decodes the body of a multi. Anything but create, delete, setData and check, and any create mode
/// that does not fit its opcode, spoils the whole request.
pub(super) fn decode_writes(reader: &mut Reader) -> Result<Vec<MultiOp>, Malformed> {
    let mut ops = Vec::new();
    loop {
        let header = Header::decode(reader)?;
        if header.done {
            return Ok(ops);
        }
        ops.push(match OpCode::from_wire(header.op) {
            Some(OpCode::Create) => create(CreateKind::Create, reader)?,
            Some(OpCode::Create2) => create(CreateKind::Create2, reader)?,
            Some(OpCode::CreateContainer) => create(CreateKind::Container, reader)?,
            Some(OpCode::CreateTtl) => create(CreateKind::Ttl, reader)?,
            Some(OpCode::Delete) => {
                MultiOp::Delete { path: reader.string("path")?, version: reader.int("version")? }
            }
            Some(OpCode::SetData) => MultiOp::SetData {
                path: reader.string("path")?,
                data: reader.buffer("data")?,
                version: reader.int("version")?,
            },
            Some(OpCode::Check) => {
                MultiOp::Check { path: reader.string("path")?, version: reader.int("version")? }
            }
            _ => return Err(Malformed::new("type", "is no write that a multi may hold")),
        });
    }
}

fn create(kind: CreateKind, reader: &mut Reader) -> Result<MultiOp, Malformed> {
    let create = Create::decode(kind, reader)?;
    let fits = match kind {
        CreateKind::Ttl => (5..=6).contains(&create.flags),
        CreateKind::Create | CreateKind::Create2 | CreateKind::Container => {
            (0..=4).contains(&create.flags)
        }
    };
    if fits {
        Ok(MultiOp::Create(create))
    } else {
        Err(Malformed::new("flags", "is no create mode of this opcode"))
    }
}

/// Decodes the body of a multiRead.
pub(super) fn decode_reads(reader: &mut Reader) -> Result<Vec<ReadOp>, Malformed> {
    let mut ops = Vec::new();
    loop {
        let header = Header::decode(reader)?;
        if header.done {
            return Ok(ops);
        }
        let op = OpCode::from_wire(header.op);
        let path = match op {
            Some(OpCode::GetData | OpCode::GetChildren) => reader.string("path")?,
            _ => return Err(Malformed::new("type", "is no read that a multiRead may hold")),
        };
        reader.boolean("watch")?;
        ops.push(match op {
            Some(OpCode::GetData) => ReadOp::GetData { path },
            _ => ReadOp::GetChildren { path },
        });
    }
}

/// Appends the body of a multi, as a client would send it.
pub(super) fn encode_writes(ops: &[MultiOp], out: &mut Vec<u8>) {
    for op in ops {
        match op {
            MultiOp::Create(create) => {
                put_header(create.kind.op() as i32, false, -1, out);
                create.encode(out);
            }
            MultiOp::Delete { path, version } => {
                put_header(OpCode::Delete as i32, false, -1, out);
                out.put_string(path.as_str());
                out.put_int(*version);
            }
            MultiOp::SetData { path, data, version } => {
                put_header(OpCode::SetData as i32, false, -1, out);
                out.put_string(path.as_str());
                out.put_buffer(data.as_deref());
                out.put_int(*version);
            }
            MultiOp::Check { path, version } => {
                put_header(OpCode::Check as i32, false, -1, out);
                out.put_string(path.as_str());
                out.put_int(*version);
            }
        }
    }
    put_header(-1, true, -1, out);
}

/// Appends the body of a multiRead, as a client would send it.
pub(super) fn encode_reads(ops: &[ReadOp], out: &mut Vec<u8>) {
    for op in ops {
        let (code, path) = match op {
            ReadOp::GetData { path } => (OpCode::GetData, path),
            ReadOp::GetChildren { path } => (OpCode::GetChildren, path),
        };
        put_header(code as i32, false, -1, out);
        out.put_string(path.as_str());
        out.put_bool(false);
    }
    put_header(-1, true, -1, out);
}

/// Appends the body of the answer.
pub(super) fn encode_results(results: &[MultiResult], out: &mut Vec<u8>) {
    results.iter().for_each(|result| result.encode(out));
    encode_end(out);
}

/// Appends the end of the body of the answer.
pub fn encode_end(out: &mut Vec<u8>) {
    put_header(-1, true, -1, out);
}

impl MultiResult {
    /// Appends one result to the body of the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            MultiResult::Create { path } => {
                put_header(OpCode::Create as i32, false, 0, out);
                out.put_string(path.as_str());
            }
            MultiResult::Create2 { path, stat } => {
                put_header(OpCode::Create2 as i32, false, 0, out);
                out.put_string(path.as_str());
                stat.encode(out);
            }
            MultiResult::Delete => put_header(OpCode::Delete as i32, false, 0, out),
            MultiResult::Check => put_header(OpCode::Check as i32, false, 0, out),
            MultiResult::SetData { stat } => {
                put_header(OpCode::SetData as i32, false, 0, out);
                stat.encode(out);
            }
            MultiResult::GetData { data, stat } => {
                put_header(OpCode::GetData as i32, false, 0, out);
                out.put_buffer(data.as_deref());
                stat.encode(out);
            }
            MultiResult::GetChildren { names } => {
                put_header(OpCode::GetChildren as i32, false, 0, out);
                out.put_int(wire_len(names.len()));
                for name in names {
                    out.put_string(name.as_str());
                }
            }
            MultiResult::Error(code) => {
                let code = code.map_or(0, ErrorCode::wire);
                put_header(-1, false, code, out);
                out.put_int(code);
            }
        }
    }
}

/// Reads the body of the answer, as a client does. An error code that no server sends reads as
/// [`ErrorCode::SystemError`].
pub(super) fn decode_results(reader: &mut Reader) -> Result<Vec<MultiResult>, Malformed> {
    let mut results = Vec::new();
    loop {
        let header = Header::decode(reader)?;
        if header.done {
            return Ok(results);
        }
        results.push(match header.op {
            1 => MultiResult::Create { path: reader.string("path")? },
            15 => {
                MultiResult::Create2 { path: reader.string("path")?, stat: Stat::decode(reader)? }
            }
            2 => MultiResult::Delete,
            13 => MultiResult::Check,
            5 => MultiResult::SetData { stat: Stat::decode(reader)? },
            4 => MultiResult::GetData { data: reader.buffer("data")?, stat: Stat::decode(reader)? },
            8 => MultiResult::GetChildren { names: reader.strings("children")? },
            -1 => MultiResult::Error(match reader.int("err")? {
                0 => None,
                code => Some(ErrorCode::from_wire(code).unwrap_or(ErrorCode::SystemError)),
            }),
            _ => return Err(Malformed::new("type", "is no result of a multi")),
        });
    }
}
