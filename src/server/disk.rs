//! The data directory as a configuration names it.
//!
//! *Owns* the translation between the configuration, the storage and the replica. *Never* decides
//! what may be recovered: that is the storage's.

use std::path::Path;

use super::StartError;
use crate::config::Config;
use crate::replica::{Machine, Restored};
use crate::storage::log::SEGMENT_BYTES;
use crate::storage::{self, Checkpointer, Lock, Log, Options, Place, Report};
use crate::tree;

/// What was found in the data directory.
pub(super) struct Found {
    /// Everything up to `restored.applied`.
    pub machine: Machine,
    /// For the replica.
    pub restored: Restored,
    /// For the log thread.
    pub log: Log,
    /// For the state thread.
    pub checkpointer: Checkpointer,
    /// For people.
    pub report: Report,
    /// To be held until the threads have ended.
    pub lock: Lock,
}

/// Opens or makes the data directory.
///
/// # Errors
/// It is refused: nothing in it was changed.
pub(super) fn open(
    config: &Config,
    server_id: u8,
    options: tree::Options,
) -> Result<Found, StartError> {
    if !config.data_dir_autocreate {
        for directory in [&config.data_dir, &config.data_log_dir] {
            must_exist(directory)?;
        }
    }
    let mut cluster_id = [0; 16];
    getrandom::fill(&mut cluster_id)
        .map_err(|error| StartError::System { what: "random id", error: error.to_string() })?;
    let place = Place::on_disk(&config.data_dir, &config.data_log_dir);
    let options_of_storage = Options {
        node_id: server_id.into(),
        image_every_bytes: config.image_log_bytes,
        // Whole segments are cut: no more than one of them stays behind an image.
        segment_bytes: SEGMENT_BYTES.min(config.image_log_bytes),
        ..Options::standalone(u128::from_le_bytes(cluster_id))
    };
    let mut machine = Machine::fresh(options);
    let opened = storage::open(place, &options_of_storage, &mut machine)
        .map_err(|error| StartError::Data(error.to_string()))?;
    let restored = Restored {
        hard_state: opened.hard_state,
        membership: opened.membership.unwrap_or_default(),
        applied: opened.applied,
        applied_term: opened.applied_term,
        tail: opened.tail,
        ..Restored::default()
    };
    Ok(Found {
        machine,
        restored,
        log: opened.log,
        checkpointer: opened.checkpointer,
        report: opened.report,
        lock: opened.lock,
    })
}

fn must_exist(directory: &Path) -> Result<(), StartError> {
    if directory.is_dir() {
        return Ok(());
    }
    Err(StartError::Data(format!(
        "{}: there is no such directory, and datadir.autocreate is false",
        directory.display()
    )))
}

/// Tells in the log what a recovery has found, where that is out of the ordinary.
pub(super) fn tell(report: &Report) {
    tracing::debug!(
        from = report.begun_from,
        records = report.records,
        entries = report.entries,
        log_bytes = report.log_bytes,
        "recovered"
    );
    if let Some(torn) = &report.torn {
        tracing::info!(torn, "the end of the log was never finished: it is dropped");
    }
    for path in &report.set_aside {
        tracing::warn!(path = %path.display(), "a damaged image was set aside");
    }
}
