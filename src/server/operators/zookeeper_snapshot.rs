//! Gives the state of a server that runs as a snapshot of ZooKeeper.
//!
//! *Owns* the order of it: as for a backup, an image of all that was acknowledged before; a thread of its own reads
//! that into a second state, and writes the snapshot into a channel. *Invariants*: the state has the digest that the
//! image was written with; size and zxid are known before the first byte. It takes the memory of a second state
//! meanwhile. *Never* makes the driver wait, and never more than one at a time, backups counted.

use std::io::Write as _;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::backups;
use super::backups::{PIECES_MAX, Pieces};
use super::shared::Shared;
use crate::admin::{BackupPiece, NoBackup, SnapshotStream};
use crate::replica::{Machine, Restore as _};
use crate::server::cpu_policy;
use crate::storage::ImageReader;
use crate::supervision::{self, Task};
use crate::transfer::Snapshot;
use crate::tree::Options;

/// Time between two snapshots of ZooKeeper, as there: its 300,000 "ms" are counted as microseconds.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(300);

/// Begins one.
pub(in crate::server) async fn begin(shared: &Shared) -> Result<SnapshotStream, NoBackup> {
    let asked = || shared.snapshot_asked.lock().unwrap_or_else(PoisonError::into_inner);
    if !asked().is_due(SNAPSHOT_PAUSE, Instant::now()) {
        return Err(NoBackup::Busy);
    }
    let (image, turn) = backups::image(shared).await?;
    let (announce, announced) = oneshot::channel();
    let (pieces, taken) = mpsc::channel(PIECES_MAX);
    let thread = supervision::thread(Task::Backup, move || {
        // Clients go before an operator's copy.
        cpu_policy::lower_priority();
        match read(image) {
            Ok(snapshot) => {
                let (zxid, bytes) = (snapshot.zxid(), snapshot.size());
                // Who asked may have gone.
                if announce.send(Ok((zxid, bytes))).is_ok() {
                    tracing::info!(zxid, bytes, "a snapshot of ZooKeeper is given");
                    send(&snapshot, pieces);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot of ZooKeeper was not made");
                let _ = announce.send(Err(error));
            }
        }
        drop(turn);
    });
    thread.map_err(|error| NoBackup::Failed(format!("there is no thread for it: {error}")))?;
    let (zxid, bytes) =
        announced.await.map_err(|_| NoBackup::NotServing)?.map_err(NoBackup::Failed)?;
    Ok(SnapshotStream { zxid, bytes, pieces: taken })
}

fn read(image: ImageReader) -> Result<Snapshot, String> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
    let options = Options { hash_seed: u64::from_le_bytes(seed), ..Options::default() };
    let mut machine = Machine::fresh(options);
    let mark = image.mark().clone();
    image.read(&mut |key, value| machine.record(key, value)).map_err(|error| error.to_string())?;
    machine.finish(&mark)?;
    Snapshot::of(machine)
}

fn send(snapshot: &Snapshot, pieces: mpsc::Sender<BackupPiece>) {
    let mut out = Pieces::new(pieces.clone());
    if let Err(error) = snapshot.write(&mut out).and_then(|_| out.flush()) {
        // The client has gone, or it is told.
        let _ = pieces.blocking_send(Err(error.to_string()));
    }
}
