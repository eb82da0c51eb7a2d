//! Answers and events: what the server sends after the handshake.

use bytes::Bytes;

use super::acl::Acl;
use super::error::ErrorCode;
use super::jute::{Malformed, Reader, Text, Writer, wire_len};
use super::multi::{self, MultiResult};
use super::op::{Form, OpCode};
use super::request::XID_EVENT;
use super::stat::Stat;

/// The sixteen bytes in front of every answer and event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The request's xid, or one of the special ones.
    pub xid: i32,
    /// The last zxid that this server had applied when it answered.
    pub zxid: i64,
    /// 0, or an error code.
    pub err: i32,
}

impl ReplyHeader {
    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_int(self.xid);
        out.put_long(self.zxid);
        out.put_int(self.err);
    }

    /// Reads the header and leaves the body in `reader`.
    pub fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        Ok(Self { xid: reader.int("xid")?, zxid: reader.long("zxid")?, err: reader.int("err")? })
    }
}

/// What happened to a znode, as an event says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, clippy::enum_variant_names)] // the names are ZooKeeper's
pub enum EventType {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

impl EventType {
    fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        match reader.int("type")? {
            1 => Ok(Self::NodeCreated),
            2 => Ok(Self::NodeDeleted),
            3 => Ok(Self::NodeDataChanged),
            4 => Ok(Self::NodeChildrenChanged),
            _ => Err(Malformed::new("type", "is not the type of an event")),
        }
    }
}

/// The connection state that an event carries; a server only ever sends the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum KeeperState {
    SyncConnected = 3,
}

/// Appends an event: header and `WatcherEvent`. `zxid` is that of the change, -1 when the event
/// was made up by setWatches.
pub fn encode_event(kind: EventType, path: &str, zxid: i64, out: &mut Vec<u8>) {
    ReplyHeader { xid: XID_EVENT, zxid, err: 0 }.encode(out);
    out.put_int(kind as i32);
    out.put_int(KeeperState::SyncConnected as i32);
    out.put_string(path);
}

/// Reads the body of an event, as a client does: what happened, and where.
pub fn decode_event(reader: &mut Reader) -> Result<(EventType, Text), Malformed> {
    let kind = EventType::decode(reader)?;
    reader.int("state")?;
    Ok((kind, reader.string("path")?))
}

/// The body of a successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Response {
    /// delete, ping, setWatches, checkWatches, removeWatches, auth, closeSession.
    Empty,
    /// create.
    Path(Text),
    /// create2, createContainer, createTTL.
    PathStat(Text, Stat),
    /// exists, setData, setACL.
    Stat(Stat),
    Data(Option<Bytes>, Stat),
    Acl(Vec<Acl>, Stat),
    /// getChildren, getEphemerals.
    Names(Vec<Text>),
    NamesStat(Vec<Text>, Stat),
    /// sync echoes the path it was given.
    Echo(Option<Text>),
    /// getAllChildrenNumber; addWatch answers 0.
    Number(i32),
    /// multi, multiRead.
    Multi(Vec<MultiResult>),
    /// whoAmI: scheme and user of each identity.
    Identities(Vec<(Text, Text)>),
    /// sasl: what the client has to judge or to answer.
    Token(Option<Bytes>),
}

impl Response {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => {}
            Self::Path(path) => out.put_string(path.as_str()),
            Self::PathStat(path, stat) => {
                out.put_string(path.as_str());
                stat.encode(out);
            }
            Self::Stat(stat) => stat.encode(out),
            Self::Data(data, stat) => {
                out.put_buffer(data.as_deref());
                stat.encode(out);
            }
            Self::Acl(acl, stat) => {
                Acl::encode_list(acl, out);
                stat.encode(out);
            }
            Self::Names(names) => put_names(names, out),
            Self::NamesStat(names, stat) => {
                put_names(names, out);
                stat.encode(out);
            }
            Self::Echo(path) => out.put_buffer(path.as_ref().map(Text::as_bytes)),
            Self::Number(number) => out.put_int(*number),
            Self::Multi(results) => multi::encode_results(results, out),
            Self::Token(token) => out.put_buffer(token.as_deref()),
            Self::Identities(identities) => {
                out.put_int(wire_len(identities.len()));
                for (scheme, user) in identities {
                    out.put_string(scheme.as_str());
                    out.put_string(user.as_str());
                }
            }
        }
    }

    /// Reads the body of a successful answer to a request with opcode `op`, as a client does.
    pub fn decode(op: OpCode, reader: &mut Reader) -> Result<Self, Malformed> {
        Ok(match op.answer() {
            Form::Empty => Self::Empty,
            Form::Path => Self::Path(reader.string("path")?),
            Form::PathStat => Self::PathStat(reader.string("path")?, Stat::decode(reader)?),
            Form::Stat => Self::Stat(Stat::decode(reader)?),
            Form::Data => Self::Data(reader.buffer("data")?, Stat::decode(reader)?),
            Form::Acl => {
                let acl = Acl::decode_list(reader)?.ok_or(Malformed::new("acl", "is null"))?;
                Self::Acl(acl, Stat::decode(reader)?)
            }
            Form::Names => Self::Names(reader.strings("children")?),
            Form::NamesStat => Self::NamesStat(reader.strings("children")?, Stat::decode(reader)?),
            Form::Echo => Self::Echo(reader.string_or_null("path")?),
            Form::Number => Self::Number(reader.int("number")?),
            Form::Multi => Self::Multi(multi::decode_results(reader)?),
            Form::Token => Self::Token(reader.buffer("token")?),
            Form::Identities => {
                let count = reader.count("clientInfo", 8)?.unwrap_or(0);
                let pairs =
                    (0..count).map(|_| Ok((reader.string("scheme")?, reader.string("user")?)));
                Self::Identities(pairs.collect::<Result<_, Malformed>>()?)
            }
        })
    }
}

/// Appends a whole answer: header, and the body if it succeeded.
pub fn encode_reply(xid: i32, zxid: i64, result: &Result<Response, ErrorCode>, out: &mut Vec<u8>) {
    match result {
        Ok(response) => {
            ReplyHeader { xid, zxid, err: 0 }.encode(out);
            response.encode(out);
        }
        Err(code) => ReplyHeader { xid, zxid, err: code.wire() }.encode(out),
    }
}

fn put_names(names: &[Text], out: &mut Vec<u8>) {
    out.put_int(wire_len(names.len()));
    for name in names {
        out.put_string(name.as_str());
    }
}
