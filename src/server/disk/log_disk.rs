//! The open log, and what its disk takes.
//!
//! *Owns* the log while the server runs, and the images that go into its place. *Invariants*: a batch is
//! durable when [`LogDisk::append`] returns; how long that took is counted. *Never* tries anything
//! again that failed: the first error ends the server. *Never* knows who waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admin::Quantity;
use crate::replica::txn_version::FIRST;
use crate::replica::{Append, Entry, Fetch, Urgency};
use crate::server::clock;
use crate::server::log_lines::{Limited, SPAN};
use crate::server::metrics::Figures;
use crate::storage;
use crate::storage::{DiskBudget, FormatSwitch, Images, InstallError, Log, LogError};

/// The log, the images that it installs, and where its figures go.
#[derive(Debug)]
pub(crate) struct LogDisk {
    /// The log.
    pub log: Log,
    images: Images,
    figures: Arc<Figures>,
    slow: Duration,
    limited: Limited,
    format_switch: Option<FormatSwitch>,
    /// What is told of each sync.
    disk_budget: Option<DiskBudget>,
}

/// The cause of the lines about them.
const SLOW: &str = "slow fsyncs of the log";

impl LogDisk {
    /// An fsync longer than `slow` is warned of.
    pub(crate) fn new(log: Log, images: Images, figures: Arc<Figures>, slow: Duration) -> Self {
        let limited = Limited::default();
        Self { log, images, figures, slow, limited, format_switch: None, disk_budget: None }
    }

    /// Follows the version of the ensemble in what the files of the directory are written as.
    pub(crate) fn switching(self, format_switch: FormatSwitch) -> Self {
        Self { format_switch: Some(format_switch), ..self }
    }

    /// Tells this of each sync, which images give way to.
    pub(crate) fn telling(self, disk_budget: &DiskBudget) -> Self {
        Self { disk_budget: Some(disk_budget.clone()), ..self }
    }

    /// The version of the ensemble whose formats are written.
    pub(crate) fn version(&self) -> u8 {
        self.format_switch.as_ref().map_or(FIRST, FormatSwitch::version)
    }

    /// The ensemble is at this version.
    ///
    /// # Errors
    /// The server cannot go on.
    pub(crate) fn follow_version(&mut self, version: u8) -> Result<(), InstallError> {
        if let Some(format_switch) = &mut self.format_switch {
            format_switch.follow(version)?;
        }
        Ok(())
    }

    /// The images that it installs.
    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// Makes batches durable by one fsync, images that they install included. `ordered`: when each was ordered.
    /// Returns how long that took.
    ///
    /// # Errors
    /// The server cannot go on.
    pub(crate) fn append(
        &mut self,
        batch: &[Append],
        ordered: &[Instant],
    ) -> Result<Duration, InstallError> {
        let start = Instant::now();
        storage::append(&mut self.log, &self.images, batch)?;
        let took_us = clock::micros_since(start);
        self.measure(ordered, start, took_us);
        let entries: usize = batch.iter().map(|append| append.entries.len()).sum();
        // To install an image takes other things than an fsync.
        let is_synced = (entries > 0 || batch.iter().any(|append| append.urgency != Urgency::None))
            && batch.iter().all(|append| append.install.is_none());
        let is_slow = is_synced && u128::from(took_us) > self.slow.as_micros();
        self.figures.disk().log_dir_bytes = self.log.bytes();
        self.figures.counts.fsyncs_slow.add(u64::from(is_slow));
        self.figures.measures.record(Quantity::LogBatch, entries as u64);
        if is_synced {
            self.figures.measures.record(Quantity::Fsync, took_us);
        }
        let now = Instant::now();
        if let Some(disk_budget) = &self.disk_budget {
            disk_budget.synced(now);
        }
        if is_slow && self.limited.may_say(SLOW, now) {
            tracing::warn!(
                ms = took_us / 1000,
                entries,
                "slow fsync of the log: each write waits for it. The disk is busy or too slow for a log"
            );
        }
        for (cause, more) in self.limited.over(now) {
            tracing::warn!("{cause}: and {more} more in the last {} s", SPAN.as_secs());
        }
        Ok(Duration::from_micros(took_us))
    }

    fn measure(&self, ordered: &[Instant], start: Instant, took_us: u64) {
        let measures = &self.figures.measures;
        measures.record(Quantity::LogQueue, ordered.len() as u64);
        measures.record(Quantity::LogWrite, took_us);
        for ordered in ordered {
            let waited = start.saturating_duration_since(*ordered).as_micros();
            let waited_us = u64::try_from(waited).unwrap_or(u64::MAX);
            measures.record(Quantity::LogQueueTime, waited_us);
            measures.record(Quantity::LogQueueAndFlush, waited_us.saturating_add(took_us));
        }
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
