//! The `ACL` record: one permission of one identity.

use super::jute::{Malformed, Reader, Text, Writer, wire_len};

/// Permission bits. Higher bits are stored untouched.
pub mod perms {
    /// Read data and list children.
    pub const READ: i32 = 1;
    /// Set data.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// Set the ACL.
    pub const ADMIN: i32 = 16;
    /// All of them.
    pub const ALL: i32 = 31;
}

/// One entry of an access control list, or (with `perms` unused) an identity of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acl {
    /// Bits of [`perms`].
    pub perms: i32,
    /// `world`, `auth`, `digest`, `ip`, ...
    pub scheme: Text,
    /// Identity within the scheme.
    pub id: Text,
}

impl Acl {
    /// `world:anyone` with all permissions: ZooKeeper's `OPEN_ACL_UNSAFE`.
    #[must_use]
    pub const fn open() -> Self {
        Self {
            perms: perms::ALL,
            scheme: Text::from_static("world"),
            id: Text::from_static("anyone"),
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_int(self.perms);
        out.put_string(self.scheme.as_str());
        out.put_string(self.id.as_str());
    }

    /// Reads the record. A null scheme or id reads as empty, which no scheme accepts; `world` with
    /// a null id is malformed, as in ZooKeeper.
    pub fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        let perms = reader.int("perms")?;
        let scheme = reader.string_or_null("scheme")?.unwrap_or_default();
        let id = reader.string_or_null("id")?;
        if id.is_none() && scheme.as_str() == "world" {
            return Err(Malformed::new("id", "world with a null id"));
        }
        Ok(Self { perms, scheme, id: id.unwrap_or_default() })
    }

    /// Appends a list.
    pub fn encode_list(list: &[Self], out: &mut Vec<u8>) {
        out.put_int(wire_len(list.len()));
        for acl in list {
            acl.encode(out);
        }
    }

    /// The same of a list that may be the null list.
    pub(super) fn encode_list_or_null(list: Option<&[Self]>, out: &mut Vec<u8>) {
        match list {
            None => out.put_int(-1),
            Some(list) => Self::encode_list(list, out),
        }
    }

    /// Reads a list; `None` is the null list.
    pub fn decode_list(reader: &mut Reader) -> Result<Option<Vec<Self>>, Malformed> {
        match reader.count("acl", 12)? {
            None => Ok(None),
            Some(count) => {
                (0..count).map(|_| Self::decode(reader)).collect::<Result<_, _>>().map(Some)
            }
        }
    }
}
