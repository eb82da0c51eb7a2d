//! The steps of a live migration, as entries of the log hold them.
//!
//! *Owns* their encoding. *Invariants*: decoding is total, and gives what was encoded; a list of addresses is bounded.
//! *Never* carries one out.

use bytes::Bytes;

use crate::proto::jute::wire_len;
use crate::proto::{Malformed, Reader, Text, Writer};

/// Most addresses of each kind that a step may name.
pub const ADDRESSES_MAX: usize = 256;

/// A step of a migration, in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrateOp {
    /// An operator has this ensemble follow another one.
    Follow {
        /// As which server.
        server_id: u8,
        /// Where a leader may be, `host:port`.
        quorum: Vec<Text>,
        /// Where clients may reach it, `host:port`.
        clients: Vec<Text>,
    },
    /// A snapshot of ZooKeeper's state begins, and takes the place of any that has not ended.
    SnapshotBegins {
        /// Whether it is to be compared with the copy, and not to take its place.
        is_for_comparison: bool,
    },
    /// The next bytes of it.
    SnapshotPart(Bytes),
    /// It has come, and takes the place of the state.
    SnapshotEnds {
        /// The zxid that ZooKeeper's leader says.
        zxid: i64,
    },
    /// The leader has a link, and everything that ZooKeeper had committed when it was made is in the log.
    Linked {
        /// ZooKeeper's epoch.
        epoch: i64,
    },
    /// There is no link for too long.
    Interrupted,
    /// Numbers in ids of sessions below this one may be given away by the leader that asked for it.
    Sessions {
        /// The first that may not.
        below: i64,
    },
    /// The leader has found that the copy cannot be right.
    Stop {
        /// Why.
        why: Text,
    },
    /// This ensemble decides itself from here on.
    CutOver,
    /// ZooKeeper is stopped: the migration is over.
    Done,
    /// An operator gives up.
    Abort,
}

const OP_FOLLOW: u8 = 1;
const OP_SNAPSHOT_BEGINS: u8 = 2;
const OP_SNAPSHOT_PART: u8 = 3;
const OP_SNAPSHOT_ENDS: u8 = 4;
const OP_LINKED: u8 = 5;
const OP_INTERRUPTED: u8 = 6;
const OP_SESSIONS: u8 = 7;
const OP_STOP: u8 = 8;
const OP_CUT_OVER: u8 = 9;
const OP_DONE: u8 = 10;
const OP_ABORT: u8 = 11;

/// Bytes of other transactions that cost as much as one of a snapshot, which is decoded into znodes.
const WORK_PER_SNAPSHOT_BYTE: usize = 40;
/// Least bytes of a znode in a snapshot, about.
const SNAPSHOT_BYTES_PER_ZNODE: usize = 64;

impl MigrateOp {
    /// Znodes that it changes, about.
    #[must_use]
    pub fn znodes(&self) -> usize {
        match self {
            Self::SnapshotPart(bytes) => bytes.len() / SNAPSHOT_BYTES_PER_ZNODE,
            _ => 0,
        }
    }

    /// Bytes of the body of a client's request that cost as much.
    #[must_use]
    pub fn work_bytes(&self) -> usize {
        match self {
            Self::SnapshotPart(bytes) => bytes.len() * WORK_PER_SNAPSHOT_BYTE,
            _ => 0,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Follow { server_id, quorum, clients } => {
                out.extend_from_slice(&[OP_FOLLOW, *server_id]);
                put_texts(quorum, out);
                put_texts(clients, out);
            }
            Self::SnapshotBegins { is_for_comparison } => {
                out.extend_from_slice(&[OP_SNAPSHOT_BEGINS, u8::from(*is_for_comparison)]);
            }
            Self::SnapshotPart(bytes) => {
                out.push(OP_SNAPSHOT_PART);
                out.put_buffer(Some(bytes));
            }
            Self::SnapshotEnds { zxid } => {
                out.push(OP_SNAPSHOT_ENDS);
                out.put_long(*zxid);
            }
            Self::Linked { epoch } => {
                out.push(OP_LINKED);
                out.put_long(*epoch);
            }
            Self::Interrupted => out.push(OP_INTERRUPTED),
            Self::Sessions { below } => {
                out.push(OP_SESSIONS);
                out.put_long(*below);
            }
            Self::Stop { why } => {
                out.push(OP_STOP);
                out.put_string(why.as_str());
            }
            Self::CutOver => out.push(OP_CUT_OVER),
            Self::Done => out.push(OP_DONE),
            Self::Abort => out.push(OP_ABORT),
        }
    }

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        Ok(match reader.byte("step")? {
            OP_FOLLOW => Self::Follow {
                server_id: reader.byte("id")?,
                quorum: texts(reader)?,
                clients: texts(reader)?,
            },
            OP_SNAPSHOT_BEGINS => {
                Self::SnapshotBegins { is_for_comparison: reader.byte("comparison")? == 1 }
            }
            OP_SNAPSHOT_PART => {
                let bytes = reader.buffer("part")?;
                Self::SnapshotPart(bytes.ok_or(Malformed::new("part", "is null"))?)
            }
            OP_SNAPSHOT_ENDS => Self::SnapshotEnds { zxid: reader.long("zxid")? },
            OP_LINKED => Self::Linked { epoch: reader.long("epoch")? },
            OP_INTERRUPTED => Self::Interrupted,
            OP_SESSIONS => Self::Sessions { below: reader.long("below")? },
            OP_STOP => Self::Stop { why: reader.string("why")? },
            OP_CUT_OVER => Self::CutOver,
            OP_DONE => Self::Done,
            OP_ABORT => Self::Abort,
            _ => return Err(Malformed::new("step", "is unknown")),
        })
    }

    /// Its name in the audit log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Follow { .. } => "migrateFollow",
            Self::SnapshotBegins { .. } => "migrateSnapshotBegins",
            Self::SnapshotPart(_) => "migrateSnapshotPart",
            Self::SnapshotEnds { .. } => "migrateSnapshotEnds",
            Self::Linked { .. } => "migrateLinked",
            Self::Interrupted => "migrateInterrupted",
            Self::Sessions { .. } => "migrateSessions",
            Self::Stop { .. } => "migrateStop",
            Self::CutOver => "migrateCutOver",
            Self::Done => "migrateDone",
            Self::Abort => "migrateAbort",
        }
    }
}

pub(super) fn put_texts(texts: &[Text], out: &mut Vec<u8>) {
    out.put_int(wire_len(texts.len()));
    for text in texts {
        out.put_string(text.as_str());
    }
}

pub(super) fn texts(reader: &mut Reader) -> Result<Vec<Text>, Malformed> {
    let count = reader.count("texts", 4)?.unwrap_or(0);
    if count > ADDRESSES_MAX {
        return Err(Malformed::new("texts", "are too many"));
    }
    (0..count).map(|_| reader.string("text")).collect()
}
