//! The data of a server that does not run, for commands that read it or make it: backup, restore, recovery, import.
//!
//! *Owns* which of the entries behind the last known commit belong to a state that is read. *Invariants*: reading
//! changes nothing; a state is put only where there is none, and never half. *Never* starts anything.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::settings::{SERVER_ID_STANDALONE, seed, tree_options};
use crate::config::Config;
use crate::config::Membership as Members;
use crate::replica::founding::Position;
pub(crate) use crate::replica::lost_majority::{Holder, LostMajority, Refusal, SILENT_AFTER_US};
pub(crate) use crate::replica::new_ensemble::{Begun, term_of_new_ensemble, term_of_zxid};
use crate::replica::peer::server_of;
pub(crate) use crate::replica::txn_version::RELEASE;
pub(crate) use crate::replica::{Machine, Mark, Membership, Restore};
use crate::server::credentials::of_peers;
use crate::server::disk::data_dir;
use crate::server::driver::Audit;
use crate::server::error::StartError;
pub(crate) use crate::server::operators::record_digest;
use crate::server::peer::Survey;
pub(crate) use crate::storage::{Fs, FsError, OsFs, Writing};

/// A state that was read, and who had it.
#[derive(Debug)]
pub(crate) struct OfflineState {
    /// The state, with all that its log has.
    pub(crate) machine: Machine,
    /// The ensemble's id.
    pub(crate) ensemble: u128,
    /// The server's id.
    pub(crate) server_id: u8,
    /// Who voted at the state that the reading began with, by raft id.
    pub(crate) voters: Vec<u64>,
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
    pub(crate) is_unusable: bool,
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
        voters: read.membership.voters,
        is_standalone: read.identity.is_standalone(),
        last,
        term: read.hard_state.term.max(last.1),
        uncertain: read.tail.len() as u64,
        torn: read.torn,
        is_unusable: read.is_unusable,
    })
}

/// An empty state, to be filled, as a server with this configuration has it.
///
/// # Errors
/// The system gives no random numbers.
pub(crate) fn fresh(config: &Config) -> Result<Machine, StartError> {
    Ok(Machine::fresh(tree_options(config, seed()?)))
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

/// What an operator is told before a survivor goes on alone, and what the others say meanwhile.
#[derive(Debug)]
pub(crate) struct Recovery {
    state: OfflineState,
    survey: Survey,
}

/// What has become of a recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    /// Where the data is that was there.
    pub(crate) aside: Vec<PathBuf>,
    /// zxids are above this from now on.
    pub(crate) above_zxid: i64,
    /// The ensemble that was.
    pub(crate) before: u128,
    /// Sessions that can be taken up again.
    pub(crate) sessions: u64,
    /// Znodes, the root counted once.
    pub(crate) znodes: usize,
    /// Why the audit log has no line of it, if that could not be written.
    pub(crate) not_audited: Option<String>,
}

impl Recovery {
    /// Reads the data of a server that does not run, holds its peer port, and begins to ask the others.
    ///
    /// # Errors
    /// The server runs, its data cannot be read, or it is no server of an ensemble.
    pub(crate) fn begin(config: &Config) -> Result<Self, StartError> {
        let no_ensemble = || {
            StartError::Data(
                "this configuration names no ensemble: there is no majority to lose".to_owned(),
            )
        };
        let own = config.own_server().filter(|_| config.is_ensemble()).ok_or_else(no_ensemble)?;
        let certificates = of_peers(&config.peer_tls)?;
        let state = load(config, &config.data_dir, &config.data_log_dir)?;
        if state.is_unusable {
            return Err(StartError::Data(format!(
                "{}: this data is marked as older than what its server had acknowledged, or as other than what \
                 the others have: it must not go on",
                config.data_dir.display()
            )));
        }
        if state.machine.migration().is_some_and(|migration| migration.follows()) {
            return Err(StartError::Data(format!(
                "{}: this ensemble follows one of ZooKeeper, where all of its data is: have the clients go back there, \
                 and begin with empty directories",
                config.data_dir.display()
            )));
        }
        let text = state.machine.members_text().to_owned();
        if text.is_empty() {
            return Err(StartError::Data(format!(
                "{}: this server has never been a member of an ensemble: there is no majority to lose",
                config.data_dir.display()
            )));
        }
        let members = Members::parse(&text).map_err(StartError::Data)?;
        let voters = state.voters.iter().map(|voter| server_of(*voter));
        let holders: Vec<u8> = members.servers.iter().map(|spec| spec.id).chain(voters).collect();
        let (index, term) = state.last;
        let position = Position { ensemble: state.ensemble, term, index };
        let lost = LostMajority::new((own.id, position), holders);
        let survey = Survey::begin((config, own), certificates, lost)?;
        Ok(Self { state, survey })
    }

    /// The state that would go on.
    pub(crate) fn state(&self) -> &OfflineState {
        &self.state
    }

    /// What is known of the others, and what time it is on the clock of that, in microseconds.
    ///
    /// # Errors
    /// They are not asked any more.
    pub(crate) fn known(&self) -> Result<(LostMajority, u64), StartError> {
        self.survey.known()
    }

    /// Goes on alone: with these servers declared dead, and zxids above all that anybody tells of. `terms`: what is
    /// known
    /// besides. Durable on return.
    ///
    /// # Errors
    /// The data cannot be written, or no term is left.
    pub(crate) fn carry_out(
        self,
        config: &Config,
        dead: &BTreeSet<u8>,
        terms: impl Iterator<Item = u64>,
    ) -> Result<Recovered, StartError> {
        let (known, now_us) = self.survey.known()?;
        if known.judge(dead, now_us).is_err() {
            let words = "what the other servers say has changed meanwhile: nothing was done, run the command again";
            return Err(StartError::Data(words.to_owned()));
        }
        let told = known.holders(now_us).into_values().filter_map(|holder| match holder {
            Holder::Tells(position) => Some(position.term),
            _ => None,
        });
        // Behind a cutover from ZooKeeper, zxids are above the term.
        let own = term_of_zxid(self.state.machine.last_zxid()).max(self.state.term);
        let highest = terms.chain(told).fold(own, u64::max);
        let term = term_of_new_ensemble(highest).map_err(StartError::Data)?;
        let OfflineState { mut machine, ensemble, server_id, .. } = self.state;
        let begun = machine.begin_ensemble(term, true);
        let (above_zxid, znodes) = ((term << 32).cast_signed(), machine.tree().node_count());
        let ids: Vec<String> = dead.iter().map(u8::to_string).collect();
        let origin = format!(
            "declared alone by an operator: server {server_id} goes on from ensemble {ensemble:032x} without the \
             servers {}",
            ids.join(", ")
        );
        let digest = machine.digest();
        let zxid = machine.last_zxid();
        let aside = data_dir::replace(config, (server_id, ensemble), machine, term, &origin)?;
        // It is done: that the line is missing must not look as if it were not.
        let not_audited = audit(config, (term, zxid, digest), (ensemble, dead)).err();
        let not_audited = not_audited.map(|error| error.to_string());
        drop(self.survey);
        let (sessions, before) = (begun.sessions_kept, ensemble);
        Ok(Recovered { aside, above_zxid, before, sessions, znodes, not_audited })
    }
}

/// Goes on with a recovery that was cut off; where the data of before is. `None` if none was.
///
/// # Errors
/// The directory cannot be changed.
pub(crate) fn finish_recovery(config: &Config) -> Result<Option<Vec<PathBuf>>, StartError> {
    data_dir::finish_replacement(config)
}

/// Leaves a line in the audit log, if there is one.
fn audit(
    config: &Config,
    (term, zxid, digest): (u64, i64, u128),
    (before, dead): (u128, &BTreeSet<u8>),
) -> Result<(), StartError> {
    let Some(path) = &config.audit_log else { return Ok(()) };
    let more = json!({ "before": format!("{before:032x}"), "declared_dead": dead });
    let written = Audit::open(path)
        .and_then(|mut audit| audit.said("recover", (1, term, zxid, digest), more));
    written.map_err(|error| StartError::Audit { path: path.clone(), error })
}
