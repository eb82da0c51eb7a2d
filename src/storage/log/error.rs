//! What can be wrong with a log.
//!
//! *Owns* the words: every message names the file, the place in it, what was expected and found,
//! and what an operator can do.

use std::path::PathBuf;

use super::record::ENTRY_BYTES_MAX;
use crate::formats::KNOWN;
use crate::fs::FsError;
use lockkeeper_core::replica::peer::server_of;

/// Why a log cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system failed. After this from [`crate::Log::append`], the log is poisoned.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// There is no log where one must be.
    #[error("{}: there is no log in this directory, but there was one: check dataDir and \
             dataLogDir; {advice}", dir.display())]
    Missing {
        /// Where it should be.
        dir: PathBuf,
        /// What to do.
        advice: &'static str,
    },
    /// It was written by a later version.
    #[error("{}: log format version {version}, this program knows up to {}: use the version of \
             lockkeeper that wrote it", path.display(), KNOWN.segment)]
    Future {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It belongs to another server.
    #[error("{}: this log belongs to server {} (raft id {node_id}) of cluster {cluster_id:032x}, \
             not to server {} (raft id {expected_node_id}) of cluster {expected_cluster_id:032x}: \
             check dataDir and dataLogDir",
            path.display(), server_of(*node_id), server_of(*expected_node_id))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its cluster.
        cluster_id: u128,
        /// Its server's raft id.
        node_id: u64,
        /// Our cluster.
        expected_cluster_id: u128,
        /// Our server's raft id.
        expected_node_id: u64,
    },
    /// What was synced is not there any more.
    #[error("{}: damaged at offset {offset}: {what}; {advice}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What was expected, and what was found.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// A batch that cannot follow what the log holds: a defect of the caller.
    #[error(
        "entry {index} cannot be appended to a log whose entries {first} to {last} may be \
             overwritten"
    )]
    OutOfOrder {
        /// The entry.
        index: u64,
        /// First entry behind the committed ones.
        first: u64,
        /// Last entry of the log.
        last: u64,
    },
    /// An entry above [`super::record::ENTRY_BYTES_MAX`].
    #[error("entry {index} has {bytes} bytes, more than the {ENTRY_BYTES_MAX} allowed")]
    TooLarge {
        /// The entry.
        index: u64,
        /// Its size.
        bytes: usize,
    },
    /// An image that would replace committed entries that it does not contain: a defect of the
    /// caller.
    #[error("the image at index {index} cannot replace a log that is committed up to {commit}")]
    WouldForget {
        /// The image's index.
        index: u64,
        /// Highest index known to be committed.
        commit: u64,
    },
    /// Entries that the log does not hold, or not any more.
    #[error("the log does not hold the entries {from} to {to}: it has {first} to {last}")]
    NotHeld {
        /// First entry asked for.
        from: u64,
        /// Last entry asked for.
        to: u64,
        /// First entry of the log.
        first: u64,
        /// Last entry of the log.
        last: u64,
    },
    /// An earlier write or sync failed: what is on the disk is unknown until the server restarts.
    #[error("the log is closed since an earlier error: {0}")]
    Poisoned(String),
}
