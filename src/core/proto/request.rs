//! Requests: what a client may ask after the handshake.
//!
//! [`Request::decode`] is the only way from client bytes to a value. It checks syntax only; whether
//! a path, an ACL or a create mode makes sense is decided where the znodes are.

use bytes::Bytes;

use super::acl::Acl;
use super::jute::{Malformed, Reader, Text, Writer, wire_len};
use super::multi::{self, MultiOp, ReadOp};
use super::op::{OpCode, RequestClass};

pub use super::create::{Create, CreateKind};

/// xid of a ping, in both directions.
pub const XID_PING: i32 = -2;
/// xid of an auth packet, in both directions.
pub const XID_AUTH: i32 = -4;
/// xid that clients give to setWatches.
pub const XID_SET_WATCHES: i32 = -8;
/// xid of an event.
pub const XID_EVENT: i32 = -1;

/// The eight bytes in front of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The client's number of the request, echoed in the reply.
    pub xid: i32,
    /// The opcode, which may be unknown.
    pub op: i32,
}

impl RequestHeader {
    /// Reads the header and leaves the body in `reader`.
    pub fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        Ok(Self { xid: reader.int("xid")?, op: reader.int("type")? })
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_int(self.xid);
        out.put_int(self.op);
    }
}

/// What `setWatches` and `setWatches2` re-register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWatches {
    /// Changes after this zxid were missed.
    pub relative_zxid: i64,
    /// Paths of data watches.
    pub data: Vec<Text>,
    /// Paths of watches on znodes that did not exist.
    pub exist: Vec<Text>,
    /// Paths of child watches.
    pub child: Vec<Text>,
    /// Paths of persistent watches (setWatches2 only).
    pub persistent: Vec<Text>,
    /// Paths of persistent recursive watches (setWatches2 only).
    pub persistent_recursive: Vec<Text>,
}

/// Which registrations `checkWatches` and `removeWatches` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WatcherType {
    Children = 1,
    Data = 2,
    Any = 3,
    Persistent = 4,
    PersistentRecursive = 5,
}

impl WatcherType {
    fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        match reader.int("type")? {
            1 => Ok(Self::Children),
            2 => Ok(Self::Data),
            3 => Ok(Self::Any),
            4 => Ok(Self::Persistent),
            5 => Ok(Self::PersistentRecursive),
            _ => Err(Malformed::new("type", "is not a watcher type")),
        }
    }
}

/// What `addWatch` registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AddWatchMode {
    Persistent = 0,
    PersistentRecursive = 1,
}

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request {
    Create(Create),
    Delete {
        path: Text,
        version: i32,
    },
    Exists {
        path: Text,
        watch: bool,
    },
    GetData {
        path: Text,
        watch: bool,
    },
    SetData {
        path: Text,
        data: Option<Bytes>,
        version: i32,
    },
    GetAcl {
        path: Text,
    },
    SetAcl {
        path: Text,
        acl: Option<Vec<Acl>>,
        version: i32,
    },
    /// Opcodes 8 and 12; `stat` tells them apart.
    GetChildren {
        path: Text,
        watch: bool,
        stat: bool,
    },
    Sync {
        path: Option<Text>,
    },
    Ping,
    Multi(Vec<MultiOp>),
    MultiRead(Vec<ReadOp>),
    Reconfig {
        joining: Option<Text>,
        leaving: Option<Text>,
        members: Option<Text>,
        version: i64,
    },
    CheckWatches {
        path: Text,
        kind: WatcherType,
    },
    RemoveWatches {
        path: Text,
        kind: WatcherType,
    },
    Auth {
        scheme: Option<Text>,
        auth: Option<Bytes>,
    },
    /// Opcodes 101 and 105; `two` tells them apart.
    SetWatches {
        watches: SetWatches,
        two: bool,
    },
    Sasl {
        token: Option<Bytes>,
    },
    GetEphemerals {
        prefix: Option<Text>,
    },
    GetAllChildrenNumber {
        path: Text,
    },
    AddWatch {
        path: Text,
        mode: AddWatchMode,
    },
    WhoAmI,
    CloseSession,
}

/// Why a request has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// The opcode is not one that a client may send: -6 and close.
    UnknownOp,
    /// The body is not what the opcode demands: -5, the connection stays.
    Malformed(Malformed),
}

impl From<Malformed> for Undecodable {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Request {
    /// Decodes the body that follows a header with opcode `op`. Trailing bytes are ignored.
    ///
    /// # Errors
    /// [`Undecodable`], which says how the connection must react.
    pub fn decode(op: i32, body: Bytes) -> Result<Self, Undecodable> {
        let op = OpCode::from_wire(op).ok_or(Undecodable::UnknownOp)?;
        let reader = &mut Reader::new(body);
        Ok(match op {
            OpCode::Create => Self::Create(Create::decode(CreateKind::Create, reader)?),
            OpCode::Create2 => Self::Create(Create::decode(CreateKind::Create2, reader)?),
            OpCode::CreateContainer => Self::Create(Create::decode(CreateKind::Container, reader)?),
            OpCode::CreateTtl => Self::Create(Create::decode(CreateKind::Ttl, reader)?),
            OpCode::Delete => {
                Self::Delete { path: reader.string("path")?, version: reader.int("version")? }
            }
            OpCode::Exists => {
                Self::Exists { path: reader.string("path")?, watch: reader.boolean("watch")? }
            }
            OpCode::GetData => {
                Self::GetData { path: reader.string("path")?, watch: reader.boolean("watch")? }
            }
            OpCode::SetData => Self::SetData {
                path: reader.string("path")?,
                data: reader.buffer("data")?,
                version: reader.int("version")?,
            },
            OpCode::GetAcl => Self::GetAcl { path: reader.string("path")? },
            OpCode::SetAcl => Self::SetAcl {
                path: reader.string("path")?,
                acl: Acl::decode_list(reader)?,
                version: reader.int("version")?,
            },
            OpCode::GetChildren | OpCode::GetChildren2 => Self::GetChildren {
                path: reader.string("path")?,
                watch: reader.boolean("watch")?,
                stat: op == OpCode::GetChildren2,
            },
            OpCode::Sync => Self::Sync { path: reader.string_or_null("path")? },
            OpCode::Ping => Self::Ping,
            OpCode::Multi => Self::Multi(multi::decode_writes(reader)?),
            OpCode::MultiRead => Self::MultiRead(multi::decode_reads(reader)?),
            OpCode::Reconfig => Self::Reconfig {
                joining: reader.string_or_null("joiningServers")?,
                leaving: reader.string_or_null("leavingServers")?,
                members: reader.string_or_null("newMembers")?,
                version: reader.long("curConfigId")?,
            },
            OpCode::CheckWatches => Self::CheckWatches {
                path: reader.string("path")?,
                kind: WatcherType::decode(reader)?,
            },
            OpCode::RemoveWatches => Self::RemoveWatches {
                path: reader.string("path")?,
                kind: WatcherType::decode(reader)?,
            },
            OpCode::Auth => Self::decode_auth(reader)?,
            OpCode::SetWatches | OpCode::SetWatches2 => {
                let two = op == OpCode::SetWatches2;
                Self::SetWatches { watches: SetWatches::decode(reader, two)?, two }
            }
            OpCode::Sasl => Self::Sasl { token: reader.buffer("token")? },
            OpCode::GetEphemerals => {
                Self::GetEphemerals { prefix: reader.string_or_null("prefixPath")? }
            }
            OpCode::GetAllChildrenNumber => {
                Self::GetAllChildrenNumber { path: reader.string("path")? }
            }
            OpCode::AddWatch => {
                Self::AddWatch { path: reader.string("path")?, mode: AddWatchMode::decode(reader)? }
            }
            OpCode::WhoAmI => Self::WhoAmI,
            OpCode::CloseSession => Self::CloseSession,
            // Known numbers that are not a client's to send: `check` lives inside multi only, the
            // others are transactions of the server itself.
            OpCode::Check | OpCode::DeleteContainer | OpCode::CreateSession => {
                return Err(Undecodable::UnknownOp);
            }
        })
    }

    fn decode_auth(reader: &mut Reader) -> Result<Self, Undecodable> {
        reader.int("type")?; // 0 in practice, and ignored
        let scheme = reader.string_or_null("scheme")?;
        Ok(Self::Auth { scheme, auth: reader.buffer("auth")? })
    }

    /// Its opcode.
    #[must_use]
    pub fn op(&self) -> OpCode {
        match self {
            Self::Create(create) => create.kind.op(),
            Self::Delete { .. } => OpCode::Delete,
            Self::Exists { .. } => OpCode::Exists,
            Self::GetData { .. } => OpCode::GetData,
            Self::SetData { .. } => OpCode::SetData,
            Self::GetAcl { .. } => OpCode::GetAcl,
            Self::SetAcl { .. } => OpCode::SetAcl,
            Self::GetChildren { stat: false, .. } => OpCode::GetChildren,
            Self::GetChildren { stat: true, .. } => OpCode::GetChildren2,
            Self::Sync { .. } => OpCode::Sync,
            Self::Ping => OpCode::Ping,
            Self::Multi(_) => OpCode::Multi,
            Self::MultiRead(_) => OpCode::MultiRead,
            Self::Reconfig { .. } => OpCode::Reconfig,
            Self::CheckWatches { .. } => OpCode::CheckWatches,
            Self::RemoveWatches { .. } => OpCode::RemoveWatches,
            Self::Auth { .. } => OpCode::Auth,
            Self::SetWatches { two: false, .. } => OpCode::SetWatches,
            Self::SetWatches { two: true, .. } => OpCode::SetWatches2,
            Self::Sasl { .. } => OpCode::Sasl,
            Self::GetEphemerals { .. } => OpCode::GetEphemerals,
            Self::GetAllChildrenNumber { .. } => OpCode::GetAllChildrenNumber,
            Self::AddWatch { .. } => OpCode::AddWatch,
            Self::WhoAmI => OpCode::WhoAmI,
            Self::CloseSession => OpCode::CloseSession,
        }
    }

    /// Its class. No other place matches on all requests to sort them.
    #[must_use]
    pub fn class(&self) -> RequestClass {
        self.op().class()
    }

    /// Appends the body, as a client would send it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Create(create) => create.encode(out),
            Self::Delete { path, version } => {
                out.put_string(path.as_str());
                out.put_int(*version);
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch, .. } => {
                out.put_string(path.as_str());
                out.put_bool(*watch);
            }
            Self::SetData { path, data, version } => {
                out.put_string(path.as_str());
                out.put_buffer(data.as_deref());
                out.put_int(*version);
            }
            Self::GetAcl { path } | Self::GetAllChildrenNumber { path } => {
                out.put_string(path.as_str());
            }
            Self::SetAcl { path, acl, version } => {
                out.put_string(path.as_str());
                Acl::encode_list_or_null(acl.as_deref(), out);
                out.put_int(*version);
            }
            Self::Sync { path: text } | Self::GetEphemerals { prefix: text } => {
                put_string_or_null(text.as_ref(), out);
            }
            Self::Ping | Self::WhoAmI | Self::CloseSession => {}
            Self::Multi(ops) => multi::encode_writes(ops, out),
            Self::MultiRead(ops) => multi::encode_reads(ops, out),
            Self::Reconfig { joining, leaving, members, version } => {
                for text in [joining, leaving, members] {
                    put_string_or_null(text.as_ref(), out);
                }
                out.put_long(*version);
            }
            Self::CheckWatches { path, kind } | Self::RemoveWatches { path, kind } => {
                out.put_string(path.as_str());
                out.put_int(*kind as i32);
            }
            Self::Auth { scheme, auth } => {
                out.put_int(0);
                put_string_or_null(scheme.as_ref(), out);
                out.put_buffer(auth.as_deref());
            }
            Self::SetWatches { watches, two } => watches.encode(*two, out),
            Self::Sasl { token } => out.put_buffer(token.as_deref()),
            Self::AddWatch { path, mode } => {
                out.put_string(path.as_str());
                out.put_int(*mode as i32);
            }
        }
    }
}

impl SetWatches {
    /// Number of its paths.
    #[must_use]
    pub fn count(&self) -> usize {
        let lists =
            [&self.data, &self.exist, &self.child, &self.persistent, &self.persistent_recursive];
        lists.iter().map(|paths| paths.len()).sum()
    }

    fn decode(reader: &mut Reader, two: bool) -> Result<Self, Malformed> {
        let mut watches = Self {
            relative_zxid: reader.long("relativeZxid")?,
            data: reader.strings("dataWatches")?,
            exist: reader.strings("existWatches")?,
            child: reader.strings("childWatches")?,
            ..Self::default()
        };
        if two {
            watches.persistent = reader.strings("persistentWatches")?;
            watches.persistent_recursive = reader.strings("persistentRecursiveWatches")?;
        }
        Ok(watches)
    }

    fn encode(&self, two: bool, out: &mut Vec<u8>) {
        out.put_long(self.relative_zxid);
        let all =
            [&self.data, &self.exist, &self.child, &self.persistent, &self.persistent_recursive];
        for paths in &all[..if two { 5 } else { 3 }] {
            out.put_int(wire_len(paths.len()));
            for path in *paths {
                out.put_string(path.as_str());
            }
        }
    }
}

impl AddWatchMode {
    fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        match reader.int("mode")? {
            0 => Ok(Self::Persistent),
            1 => Ok(Self::PersistentRecursive),
            _ => Err(Malformed::new("mode", "is not an addWatch mode")),
        }
    }
}

fn put_string_or_null(text: Option<&Text>, out: &mut Vec<u8>) {
    out.put_buffer(text.map(Text::as_bytes));
}
