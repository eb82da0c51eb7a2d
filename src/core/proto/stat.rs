//! The `Stat` record: what a client may know of a znode besides its data.

use super::jute::{Malformed, Reader, Writer};

/// A znode's metadata as the wire shows it. 68 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// zxid of the transaction that created the znode; the fencing token of a lock node.
    pub czxid: i64,
    /// zxid of the last change of its data.
    pub mzxid: i64,
    /// Creation time, milliseconds since the epoch.
    pub ctime: i64,
    /// Time of the last change of its data, milliseconds since the epoch.
    pub mtime: i64,
    /// Number of changes of its data.
    pub version: i32,
    /// Number of creates plus deletes of children (32-bit wrap).
    pub cversion: i32,
    /// Number of changes of its ACL.
    pub aversion: i32,
    /// Session that owns it, 0 unless it is ephemeral (also 0 for containers and TTL znodes).
    pub ephemeral_owner: i64,
    /// Length of its data in bytes, 0 for null data.
    pub data_length: i32,
    /// Number of children.
    pub num_children: i32,
    /// zxid of the last create or delete of a child.
    pub pzxid: i64,
}

impl Stat {
    /// Bytes of a `Stat` on the wire.
    pub const WIRE_BYTES: usize = 68;

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_long(self.czxid);
        out.put_long(self.mzxid);
        out.put_long(self.ctime);
        out.put_long(self.mtime);
        out.put_int(self.version);
        out.put_int(self.cversion);
        out.put_int(self.aversion);
        out.put_long(self.ephemeral_owner);
        out.put_int(self.data_length);
        out.put_int(self.num_children);
        out.put_long(self.pzxid);
    }

    /// Reads the record.
    pub fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        Ok(Self {
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
}
