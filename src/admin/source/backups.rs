//! Backups and snapshots on their way from the server to a client.

use hyper::body::Bytes;
use tokio::sync::mpsc;

use crate::backup::Header;

/// A piece of a stream, or why there are no more.
pub type BackupPiece = Result<Bytes, String>;

/// A backup that is being made.
#[derive(Debug)]
pub struct BackupStream {
    /// Its header.
    pub header: Header,
    /// Its bytes. They are a backup once there are no more, and none of them is an error.
    pub pieces: mpsc::Receiver<BackupPiece>,
}

/// A snapshot in ZooKeeper's format that is being made.
#[derive(Debug)]
pub struct SnapshotStream {
    /// Its zxid.
    pub zxid: i64,
    /// Its size.
    pub bytes: u64,
    /// Its bytes.
    pub pieces: mpsc::Receiver<BackupPiece>,
}

/// Reason why there is no backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoBackup {
    /// Another one is being made.
    Busy,
    /// No majority has confirmed in time that this server is up to date.
    NotServing,
    /// The server keeps nothing on a disk.
    InMemory,
    /// It failed.
    Failed(String),
}
