//! Makes backups of a server that runs.
//!
//! *Owns* the order of it: a majority confirms up to where this server must have applied the log, the state thread
//! gives
//! an image of such a state, and a thread of its own writes that as a backup into a channel. *Invariants*: a backup
//! holds all that was acknowledged before it was asked for; its records add up to the digest that the state had; it
//! counts as made once a client has taken all of it. *Never* makes the driver wait, and never more than one at a time.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;

use super::shared::Shared;
use crate::admin::{BackupPiece, BackupStream, LastBackup, NoBackup};
use crate::backup::{BackupError, BackupWriter, Header, Selection};
use crate::replica::txn_version::RELEASE;
use crate::replica::{Inspect, Machine, RecordDigest, Report, Restore as _};
use crate::server::mailbox::{Message, WantedImage, inspect};
use crate::server::{clock, cpu_policy};
use crate::storage::{BackupMade, ImageReader, OsFs};
use crate::supervision::{self, Task};

/// How long a majority may take to confirm that this server is up to date.
const CONFIRMED_MAX: Duration = Duration::from_secs(10);
/// How long the image may take. One of a million znodes takes seconds, or a minute where the cores are shared; beside a
/// busy log on a slow disk it gets some 12 MB of each second.
const IMAGE_MAX: Duration = Duration::from_secs(3600);
/// Pieces that wait for the client.
pub(in crate::server) const PIECES_MAX: usize = 4;
/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// An image of all that was acknowledged before this was called, and the turn of its backup.
pub(in crate::server) async fn image(
    shared: &Shared,
) -> Result<(ImageReader, OwnedSemaphorePermit), NoBackup> {
    if shared.facts.data_dir.is_none() {
        return Err(NoBackup::InMemory);
    }
    let turn = Arc::clone(&shared.backup_turn).try_acquire_owned();
    let turn = turn.map_err(|_| NoBackup::Busy)?;
    let confirmed = timeout(CONFIRMED_MAX, inspect(&shared.driver, Inspect::Synced)).await;
    let Ok(Some(Report::Synced(zxid))) = confirmed else { return Err(NoBackup::NotServing) };
    let (answer, given) = oneshot::channel();
    let asked = shared.driver.send(Message::Backup(WantedImage { zxid, answer })).await;
    asked.map_err(|_| NoBackup::NotServing)?;
    match timeout(IMAGE_MAX, given).await {
        Ok(Ok(image)) => Ok((image.map_err(NoBackup::Failed)?, turn)),
        Ok(Err(_)) => Err(NoBackup::NotServing),
        Err(_) => {
            let words =
                "no image was written in time: the log says why, or snapshot_error_count rises";
            Err(NoBackup::Failed(words.to_owned()))
        }
    }
}

/// Begins one.
pub(in crate::server) async fn begin(
    shared: &Shared,
    selection: Selection,
) -> Result<BackupStream, NoBackup> {
    let (image, turn) = image(shared).await?;
    let mark = image.mark();
    let header = Header {
        release: RELEASE.to_owned(),
        ensemble: image.cluster_id(),
        server_id: u8::try_from(shared.facts.server_id).unwrap_or(0).max(1),
        index: mark.index,
        term: mark.term,
        zxid: mark.zxid,
        made_ms: clock::wall_ms(),
        subtree: selection.subtree().map(str::to_owned),
    };
    let (pieces, taken) = mpsc::channel(PIECES_MAX);
    let work = Work { image, header: header.clone(), selection, pieces, turn };
    let figures = Arc::clone(&shared.figures);
    let dir = shared.facts.data_dir.clone();
    let thread = supervision::thread(Task::Backup, move || {
        // Clients go before an operator's copy.
        cpu_policy::lower_priority();
        let (zxid, begun) = (work.header.zxid, Instant::now());
        match work.run() {
            Ok(bytes) => {
                let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::info!(zxid, bytes, took_ms, "a backup was taken");
                let made = BackupMade { zxid, bytes, wall_ms: clock::wall_ms() };
                figures.disk().last_backup = Some(made.into());
                if let Some(Err(error)) = dir.map(|dir| made.store(&OsFs, &dir)) {
                    tracing::warn!(%error, "the next start does not know of this backup");
                }
            }
            Err(error) => {
                tracing::warn!(zxid, %error, "a backup was broken off");
                figures.counts.backup_errors.add(1);
            }
        }
    });
    thread.map_err(|error| NoBackup::Failed(format!("there is no thread for it: {error}")))?;
    Ok(BackupStream { header, pieces: taken })
}

/// Function that gives what a record adds to the digest of a state.
pub(crate) fn record_digest() -> RecordDigest {
    Machine::fresh(crate::tree::Options::default()).record_digest()
}

impl From<BackupMade> for LastBackup {
    fn from(BackupMade { wall_ms, zxid, bytes }: BackupMade) -> Self {
        Self { zxid, bytes, wall_ms }
    }
}

/// What the thread does.
struct Work {
    image: ImageReader,
    header: Header,
    selection: Selection,
    pieces: mpsc::Sender<BackupPiece>,
    /// Given back when all is done.
    turn: OwnedSemaphorePermit,
}

impl Work {
    /// Returns the size of the backup in bytes.
    fn run(self) -> Result<u64, String> {
        let Self { image, header, selection, pieces, turn } = self;
        let done = write(image, &header, &selection, pieces.clone());
        if let Err(error) = &done {
            // The client may be gone: then that is the error.
            let _ = pieces.blocking_send(Err(error.clone()));
        }
        drop(turn);
        done
    }
}

fn write(
    image: ImageReader,
    header: &Header,
    selection: &Selection,
    pieces: mpsc::Sender<BackupPiece>,
) -> Result<u64, String> {
    let mark = image.mark().clone();
    let out = Pieces::new(pieces);
    let words = |error: BackupError| error.to_string();
    let mut writer = BackupWriter::begin(out, header, record_digest()).map_err(words)?;
    let read = image.read(&mut |key, value| match selection.includes(key) {
        true => writer.record(key, value).map_err(|error| error.to_string()),
        false => Ok(()),
    });
    read.map_err(|error| error.to_string())?;
    let (out, trailer) = writer.finish().map_err(words)?;
    if selection.subtree().is_none() && trailer.digest != mark.digest {
        let (digest, expected) = (trailer.digest, mark.digest);
        return Err(format!("the records add up to digest {digest:032x}, not {expected:032x}"));
    }
    Ok(out.bytes)
}

/// Puts what is written into a channel, in pieces.
pub(in crate::server) struct Pieces {
    pieces: mpsc::Sender<BackupPiece>,
    filled: Vec<u8>,
    bytes: u64,
}

impl Pieces {
    pub(in crate::server) fn new(pieces: mpsc::Sender<BackupPiece>) -> Self {
        Self { pieces, filled: Vec::new(), bytes: 0 }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.filled.extend_from_slice(bytes);
        if self.filled.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.filled.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.filled));
        self.bytes += piece.len() as u64;
        let sent = self.pieces.blocking_send(Ok(piece));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))
    }
}
