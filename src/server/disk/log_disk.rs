//! The open log, and what its disk takes.
//!
//! *Owns* the log while the server runs, and the images that go into its place. *Invariants*: a batch is
//! durable when [`LogDisk::append`] returns; how long that took is counted. *Never* tries anything
//! again that failed: the first error ends the server. *Never* knows who waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::replica::{Append, Entry, Fetch, Urgency};
use crate::server::clock;
use crate::server::figures::Figures;
use crate::storage;
use crate::storage::Images;
use crate::storage::InstallError;
use crate::storage::Log;
use crate::storage::LogError;

/// The log, the images that it installs, and where its figures go.
#[derive(Debug)]
pub(crate) struct LogDisk {
    /// The log.
    pub log: Log,
    images: Images,
    figures: Arc<Figures>,
    slow: Duration,
}

impl LogDisk {
    /// An fsync longer than `slow` is warned of.
    pub(crate) fn new(log: Log, images: Images, figures: Arc<Figures>, slow: Duration) -> Self {
        Self { log, images, figures, slow }
    }

    /// The images that it installs.
    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// Makes batches durable by one fsync, images that they install included. Returns how long that
    /// took.
    ///
    /// # Errors
    /// The server cannot go on.
    pub(crate) fn append(&mut self, batch: &[Append]) -> Result<Duration, InstallError> {
        let start = Instant::now();
        storage::append(&mut self.log, &self.images, batch)?;
        let took_us = clock::micros_since(start);
        let entries: usize = batch.iter().map(|append| append.entries.len()).sum();
        // To install an image takes other things than an fsync.
        let is_synced = (entries > 0 || batch.iter().any(|append| append.urgency != Urgency::None))
            && batch.iter().all(|append| append.install.is_none());
        let is_slow = is_synced && u128::from(took_us) > self.slow.as_micros();
        let mut disk = self.figures.disk();
        disk.log_batch.record(entries as u64);
        disk.log_dir_bytes = self.log.bytes();
        if is_synced {
            disk.fsync.record(took_us);
            disk.fsyncs_slow += u64::from(is_slow);
        }
        drop(disk);
        if is_slow {
            tracing::warn!(ms = took_us / 1000, entries, "slow fsync of the log");
        }
        Ok(Duration::from_micros(took_us))
    }

    /// The entries asked for, none if the log does not hold them. The end of the range may have been
    /// overwritten meanwhile by a shorter log.
    pub(crate) fn read(&self, fetch: &Fetch) -> Vec<Entry> {
        let to = fetch.to.min(self.log.last().index);
        if fetch.from > to {
            return Vec::new();
        }
        match self.log.read(fetch.from, to, fetch.bytes_max) {
            Ok(entries) => entries,
            Err(LogError::NotHeld { .. }) => Vec::new(),
            Err(error) => {
                // The server that is behind is sent an image instead. Here, the next start will
                // have to decide whether these entries are needed.
                tracing::error!(%error, "entries that another server needs cannot be read");
                Vec::new()
            }
        }
    }

    /// Removes some of the entries up to this index, which images cover. True if there are more.
    ///
    /// # Errors
    /// The server cannot go on.
    pub(crate) fn cut(&mut self, index: u64) -> Result<bool, InstallError> {
        let is_more = self.log.cut(index)?;
        self.figures.disk().log_dir_bytes = self.log.bytes();
        Ok(is_more)
    }
}
