//! The data of a server that does not run, for commands that read it or make it: backup, restore, recovery, import.
//!
//! *Owns* which of the entries behind the last known commit belong to a state that is read. *Invariants*: reading
//! changes nothing; a state is put only where there is none, and never half. *Never* starts anything.

use std::path::Path;

use super::disk::data_dir;
use super::error::StartError;
use super::lifecycle::{SERVER_ID_STANDALONE, tree_options};
use crate::config::Config;
pub(crate) use crate::replica::new_ensemble::{Begun, term_of_new_ensemble, term_of_zxid};
pub(crate) use crate::replica::txn_version::RELEASE;
pub(crate) use crate::replica::{Machine, Mark, Membership, RecordDigest, Restore};

/// A state that was read, and who had it.
#[derive(Debug)]
pub(crate) struct OfflineState {
    /// The state, with all that its log has.
    pub(crate) machine: Machine,
    /// The ensemble's id.
    pub(crate) ensemble: u128,
    /// The server's id.
    pub(crate) server_id: u8,
    /// Its raft id.
    pub(crate) raft_id: u64,
    /// Whether it is a server on its own, as far as its identity says.
    pub(crate) is_standalone: bool,
    /// Index and term of the last entry in the state.
    pub(crate) last: (u64, u64),
    /// The highest term that the server has seen.
    pub(crate) term: u64,
    /// How many of the entries are behind the last one that this server knew to be committed: a majority may have
    /// had them or not.
    pub(crate) uncertain: u64,
    /// What was dropped at the end of the log, if a write was cut off there.
    pub(crate) torn: Option<String>,
    /// Whether the directory is marked as older than what its server had acknowledged.
    pub(crate) is_rolled_back: bool,
}

/// The state in a data directory whose server does not run; `log` is its dataLogDir. An entry of which the server does
/// not know whether it is committed is part of it: its client may have been told so, by a leader with a majority.
///
/// # Errors
/// A server runs on it, there is no data, or it is damaged.
pub(crate) fn load(config: &Config, data: &Path, log: &Path) -> Result<OfflineState, StartError> {
    let mut machine = fresh(config)?;
    let read = data_dir::read((data, log), &mut machine)?;
    let mut last = read.applied;
    for entry in &read.tail {
        machine.entry(entry).map_err(StartError::Data)?;
        last = (entry.index, entry.term);
    }
    Ok(OfflineState {
        machine,
        ensemble: read.identity.cluster_id,
        server_id: read.identity.server_id,
        raft_id: read.identity.raft_id,
        is_standalone: read.identity.is_standalone(),
        last,
        term: read.hard_state.term.max(last.1),
        uncertain: read.tail.len() as u64,
        torn: read.torn,
        is_rolled_back: read.is_rolled_back,
    })
}

/// An empty state, to be filled, as a server with this configuration has it.
///
/// # Errors
/// The system gives no random numbers.
pub(crate) fn fresh(config: &Config) -> Result<Machine, StartError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| StartError::System { what: "random seed", error: error.to_string() })?;
    Ok(Machine::fresh(tree_options(config, seed)))
}

/// What a record adds to the digest of a state.
pub(crate) fn record_digest() -> RecordDigest {
    Machine::fresh(crate::tree::Options::default()).record_digest()
}

/// Puts a state into the data directory of a configuration, as the beginning of a new ensemble whose first leader has a
/// term above `term`; see [`Machine::begin_ensemble`]. `origin` says in one line where it came from.
///
/// # Errors
/// There is data in the directory, or it cannot be written: nothing is there then that a server would start with.
pub(crate) fn begin(
    config: &Config,
    machine: Machine,
    term: u64,
    origin: &str,
) -> Result<(), StartError> {
    let server_id = config.server_id.unwrap_or(SERVER_ID_STANDALONE);
    data_dir::seed(config, server_id, machine, term, origin)
}
