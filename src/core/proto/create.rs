//! The body of the four create opcodes, alone or inside a multi.

use bytes::Bytes;

use super::acl::Acl;
use super::jute::{Malformed, Reader, Text, Writer};
use super::op::OpCode;

/// Which of the four create opcodes was used: it decides the kind of znode and of reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreateKind {
    /// Opcode 1: answered with the path alone.
    Create,
    /// Opcode 15: answered with path and Stat.
    Create2,
    /// Opcode 19: the znode is a container, whatever the flags say.
    Container,
    /// Opcode 21: the znode has a time to live.
    Ttl,
}

impl CreateKind {
    /// Its opcode.
    #[must_use]
    pub fn op(self) -> OpCode {
        match self {
            Self::Create => OpCode::Create,
            Self::Create2 => OpCode::Create2,
            Self::Container => OpCode::CreateContainer,
            Self::Ttl => OpCode::CreateTtl,
        }
    }
}

/// The body of the four create opcodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The opcode used.
    pub kind: CreateKind,
    /// Requested path (a prefix, when sequential).
    pub path: Text,
    /// Initial data; null stays null.
    pub data: Option<Bytes>,
    /// Access control list; null is refused later, as an invalid ACL.
    pub acl: Option<Vec<Acl>>,
    /// `CreateMode` as a number, not checked here.
    pub flags: i32,
    /// Time to live in milliseconds, 0 unless the kind is [`CreateKind::Ttl`].
    pub ttl_ms: i64,
}

impl Create {
    pub(super) fn decode(kind: CreateKind, reader: &mut Reader) -> Result<Self, Malformed> {
        Ok(Self {
            kind,
            path: reader.string("path")?,
            data: reader.buffer("data")?,
            acl: Acl::decode_list(reader)?,
            flags: reader.int("flags")?,
            ttl_ms: match kind {
                CreateKind::Ttl => reader.long("ttl")?,
                CreateKind::Create | CreateKind::Create2 | CreateKind::Container => 0,
            },
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_string(self.path.as_str());
        out.put_buffer(self.data.as_deref());
        Acl::encode_list_or_null(self.acl.as_deref(), out);
        out.put_int(self.flags);
        if self.kind == CreateKind::Ttl {
            out.put_long(self.ttl_ms);
        }
    }
}
