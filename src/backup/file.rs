//! What a backup file consists of.
//!
//! *Owns* the layout. *Invariant*: the frame of the header is the same in every version, so that its checksum can be
//! verified before its version is believed.
//!
//! Integers are little-endian; each checksum is CRC-32C of everything before it.
//!
//! ```text
//! header   "LKBACKUP", version u32, length u32 and text of the header (JSON), checksum u32
//! chunks   length u32 (> 0), records u32, checksum u32, then per record: length of key u32, length of value
//!          u32, key, value. The checksum covers the chunk as well
//! trailer  0 u32, records in all u64, digest of the state u128, checksum u32, end of the file
//! ```
//!
//! Keys ascend. They are those of images: a path, or a session, the clock, the version of the ensemble.

use std::io;

use serde_json::{Value, json};

/// How a backup begins.
pub(super) const MAGIC: &[u8; 8] = b"LKBACKUP";
/// The version that is written, and the last one that is read.
pub(super) const VERSION: u32 = 1;
/// Longest text of a header, bytes.
pub(super) const HEADER_BYTES_MAX: u32 = 64 << 10;
/// A chunk ends once it has this many bytes.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Length, count and checksum of a chunk.
pub(super) const CHUNK_HEADER_BYTES: usize = 12;
/// The trailer without its checksum.
pub(super) const TRAILER_BYTES: usize = 4 + 8 + 16;

/// What a backup says of itself at its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The release that wrote it.
    pub release: String,
    /// The id of the ensemble.
    pub ensemble: u128,
    /// The id of the server that had the state.
    pub server_id: u8,
    /// Index and term of the last entry that is in the state.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// zxid of the last transaction that is in it.
    pub zxid: i64,
    /// When it was made, milliseconds since the epoch.
    pub made_ms: i64,
    /// The part of the tree that it holds; `None`: all of it.
    pub subtree: Option<String>,
}

impl Header {
    pub(super) fn text(&self) -> String {
        json!({
            "release": self.release,
            "ensemble": format!("{:032x}", self.ensemble),
            "server": self.server_id,
            "index": self.index,
            "term": self.term,
            "zxid": format!("{:#x}", self.zxid),
            "made_ms": self.made_ms,
            "subtree": self.subtree,
        })
        .to_string()
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let zxid = value["zxid"].as_str()?.strip_prefix("0x")?;
        Some(Self {
            release: value["release"].as_str()?.to_owned(),
            ensemble: u128::from_str_radix(value["ensemble"].as_str()?, 16).ok()?,
            server_id: u8::try_from(value["server"].as_u64()?).ok()?,
            index: value["index"].as_u64()?,
            term: value["term"].as_u64()?,
            zxid: u64::from_str_radix(zxid, 16).ok()?.cast_signed(),
            made_ms: value["made_ms"].as_i64()?,
            subtree: match &value["subtree"] {
                Value::Null => None,
                Value::String(path) => Some(path.clone()),
                _ => return None,
            },
        })
    }
}

/// What stands at the end of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Records in the file.
    pub records: u64,
    /// What they add up to: of a whole state, its digest.
    pub digest: u128,
}

/// Why a backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// What is read from or written to failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is something else.
    #[error("it is no backup of lockkeeper: it does not begin like one")]
    Foreign,
    /// It was written by a later release.
    #[error(
        "it has format {version} and was written by lockkeeper {release}, this program reads formats up to {VERSION}: \
             use that release or a later one"
    )]
    Future {
        /// Its format.
        version: u32,
        /// The release that wrote it.
        release: String,
    },
    /// It is not what was written.
    #[error("it is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Who takes the records objects.
    #[error("{0}")]
    Refused(String),
}
