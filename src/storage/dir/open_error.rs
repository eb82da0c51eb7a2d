//! Why a data directory is refused.
//!
//! *Owns* the words: every message names the file or directory and what an operator can do.

use std::path::PathBuf;

use super::identity::IdentityError;
use crate::fs::FsError;
use crate::image::ImageError;
use crate::log::LogError;

/// Where ZooKeeper keeps its data.
pub(super) const ZOOKEEPER: &str = "version-2";

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Another server runs on it.
    #[error("{}: another lockkeeper server is using this directory: stop that one, or give this one \
             another dataDir", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// It is ZooKeeper's.
    #[error("{}: this directory holds data of Apache ZooKeeper ({ZOOKEEPER}) and none of \
             lockkeeper: start on a new, empty {key}, into which `lockkeeper import {}` puts this data",
             dir.display(), dir.display())]
    ZooKeeper {
        /// The directory.
        dir: PathBuf,
        /// The key in the configuration that names it.
        key: &'static str,
    },
    /// There is data, but it does not say whose.
    #[error("{}: there is lockkeeper data in this directory ({found}), but no file 'identity': \
             restore it from a copy, or start on a new, empty directory", dir.display())]
    NoIdentity {
        /// The directory.
        dir: PathBuf,
        /// What is there.
        found: String,
    },
    /// There is none.
    #[error("{}: there is no lockkeeper data here", dir.display())]
    NoData {
        /// The directory.
        dir: PathBuf,
    },
    /// A restore or an import was cut off.
    #[error("{}: a restore or an import into this directory was cut off, and what it left is not complete: repeat it \
             (it removes that first), or begin with another directory", dir.display())]
    Unfinished {
        /// The directory.
        dir: PathBuf,
    },
    /// A recovery was cut off.
    #[error("{}: `lockkeeper member recover` was cut off here while it moved the data: run it again, it goes on",
            dir.display())]
    RecoveryUnfinished {
        /// The directory.
        dir: PathBuf,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It was made for another server.
    #[error("{}: this directory belongs to server {found}, but this is server {expected}: check \
             dataDir and myid", dir.display())]
    WrongServer {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        found: u8,
        /// Who we are.
        expected: u8,
    },
    /// The raft id in it is that of another server of an ensemble.
    #[error("{}: this directory was made by a version of lockkeeper that ran server {server} on its \
             own only, and cannot become part of an ensemble: start on a new, empty directory, or \
             give it the id 1", dir.display())]
    StandaloneOnly {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        server: u8,
    },
    /// Its server has found out before that it is an older copy of what the server had.
    #[error("{words} (an earlier start has found this out, and keeps it in {})", path.display())]
    RolledBack {
        /// The file that says so.
        path: PathBuf,
        /// What was said then: what is missing, and what to do.
        words: String,
    },
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An image was written by a later version.
    #[error(transparent)]
    FutureImage(ImageError),
    /// The log does not contain what an image contains.
    #[error("{}: this image is of index {image}, but the log in {} ends at {last}: the log lost \
             its end. {advice}", path.display(), log.display())]
    LogLostEnd {
        /// The image.
        path: PathBuf,
        /// Its index.
        image: u64,
        /// The log's directory.
        log: PathBuf,
        /// Its last index.
        last: u64,
        /// What to do.
        advice: &'static str,
    },
    /// There is nothing to begin from.
    #[error("no usable image, and the log in {} begins only at entry {first}: {tried}; {advice}",
            log.display())]
    NothingToBeginFrom {
        /// The log's directory.
        log: PathBuf,
        /// Its first entry.
        first: u64,
        /// Every source that was tried, and what was wrong with it.
        tried: String,
        /// What to do.
        advice: &'static str,
    },
    /// A committed entry cannot be applied.
    #[error("entry {index} of the log in {} cannot be applied: {what}", log.display())]
    Entry {
        /// The log's directory.
        log: PathBuf,
        /// The entry.
        index: u64,
        /// What the machine says.
        what: String,
    },
}
