//! Whose turn it is to be given a copy of the data: one backup at a time, and snapshots with a pause between them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::server::clock::Periodic;

/// Time between two snapshots of ZooKeeper, as there: its 300,000 "ms" are counted as microseconds.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(300);

/// Lets one backup be made at a time.
#[derive(Debug)]
pub(in crate::server) struct BackupTurns {
    pub(super) turns: Arc<Semaphore>,
    /// A snapshot of ZooKeeper.
    snapshot_asked: Mutex<Periodic>,
}

impl Default for BackupTurns {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(1)), snapshot_asked: Mutex::default() }
    }
}

impl BackupTurns {
    /// Whether it is long enough since a snapshot of ZooKeeper was last asked for; if so, one is now.
    pub(in crate::server) fn may_give_snapshot(&self) -> bool {
        let mut asked = self.snapshot_asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_due(SNAPSHOT_PAUSE, Instant::now())
    }
}
