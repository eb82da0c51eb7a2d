//! The data directory as a configuration names it.
//!
//! *Owns* the translation between the configuration, the storage and the replica. *Never* decides
//! what may be recovered: that is the storage's.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Config;
use crate::replica::Machine;
use crate::replica::founding::Decision;
use crate::server::error::StartError;
use crate::storage::{
    self, Identity, Lock, Mending, OpenError, Opened, Options, Place, ReadState, Report,
    SEGMENT_BYTES, Seed, WatchedFs,
};

/// What was found in the data directory.
pub(in crate::server) struct Found {
    /// Everything up to `restored.applied`.
    pub machine: Machine,
    /// What else is needed of it.
    pub opened: Opened,
}

/// What a new data directory of a server on its own becomes.
///
/// # Errors
/// The system gives no random numbers.
pub(in crate::server) fn standalone(server_id: u8) -> Result<Identity, StartError> {
    let mut cluster_id = [0; 16];
    getrandom::fill(&mut cluster_id)
        .map_err(|error| StartError::System { what: "random id", error: error.to_string() })?;
    Ok(Identity::standalone(u128::from_le_bytes(cluster_id), server_id))
}

/// Whose data there is; `None` without any. Changes nothing.
///
/// # Errors
/// It is refused.
pub(in crate::server) fn peek(config: &Config) -> Result<Option<Identity>, StartError> {
    storage::peek(&place(config)).map_err(refused)
}

/// Whether a server without data is to be taken for a new one: `db.autocreate`, or the file that says so.
///
/// # Errors
/// The directory cannot be read.
pub(in crate::server) fn is_new(config: &Config) -> Result<bool, StartError> {
    if config.db_autocreate {
        return Ok(true);
    }
    storage::is_initialized(&place(config)).map_err(refused)
}

/// Keeps other servers out of the directories as long as it is unknown what this server is to become.
///
/// # Errors
/// Another one runs there, they are missing and must not be made, or cannot be.
pub(in crate::server) fn hold(config: &Config) -> Result<Lock, StartError> {
    must_be_there(config)?;
    storage::hold(&place(config)).map_err(refused)
}

/// Makes it durable with which server lines the ensemble begins that a server on its own founds: it is in
/// `opened`, and stays who it is.
///
/// # Errors
/// The directory cannot be written.
pub(in crate::server) fn founds(
    config: &Config,
    opened: &mut Opened,
    decided: &Decision,
) -> Result<(), StartError> {
    opened.identity.members.clone_from(&decided.identity.members);
    if !decided.without.is_empty() {
        opened.identity.without.clone_from(&decided.without);
    }
    let place = place(config);
    opened.identity.store(&*place.fs, &place.data).map_err(refused)?;
    opened.format_switch.identified(opened.identity.clone());
    Ok(())
}

/// Empties the directory of a server that was on its own and never had a session or a write: nothing of
/// it is worth being set aside.
///
/// # Errors
/// The directory cannot be changed.
pub(in crate::server) fn begin_anew(config: &Config, opened: Opened) -> Result<(), StartError> {
    storage::begin_anew(&place(config), opened).map_err(refused)
}

/// Makes the data directory of a configuration, which must have no data, that of a server on its own with this state:
/// a new ensemble, whose first leader has a term above `term`. Started with the lines of an ensemble, the server founds
/// it, and the others join. Durable on return; `origin` says in one line where the state came from.
///
/// # Errors
/// There is data, or the directory cannot be written: nothing is there then that a server would start with.
pub(in crate::server) fn seed(
    config: &Config,
    server_id: u8,
    machine: Machine,
    term: u64,
    origin: &str,
) -> Result<(), StartError> {
    must_be_there(config)?;
    let seed = seed_of(standalone(server_id)?, machine, term, origin);
    storage::seed(&place(config), &seed, segment_bytes(config)).map_err(refused)
}

/// As [`seed`], in the place of the data of a server of the ensemble `before`, of which an operator has declared all
/// others dead. Returns where the data is that was there.
///
/// # Errors
/// The directory is another server's or cannot be written.
pub(in crate::server) fn replace(
    config: &Config,
    (server_id, before): (u8, u128),
    machine: Machine,
    term: u64,
    origin: &str,
) -> Result<Vec<PathBuf>, StartError> {
    let own = Identity { alone_after: Some(before), ..standalone(server_id)? };
    let seed = seed_of(own, machine, term, origin);
    storage::replace(&place(config), server_id, &seed, segment_bytes(config)).map_err(refused)
}

fn seed_of(own: Identity, machine: Machine, term: u64, origin: &str) -> Seed {
    let identity = Identity { version: machine.version(), ..own };
    let (mark, records) = machine.into_records((FIRST_INDEX, term), identity.membership.clone());
    Seed { identity, mark, records, origin: origin.to_owned() }
}

/// Goes on with a [`replace`] that was cut off; `None` if none was.
///
/// # Errors
/// The directory cannot be changed.
pub(in crate::server) fn finish_replacement(
    config: &Config,
) -> Result<Option<Vec<PathBuf>>, StartError> {
    storage::finish_replacement(&place(config)).map_err(refused)
}

/// Gives the state in directories whose server does not run to `machine`, and changes nothing.
///
/// # Errors
/// There is none, or it is damaged.
pub(in crate::server) fn read(
    (data, log): (&Path, &Path),
    machine: &mut Machine,
) -> Result<ReadState, StartError> {
    storage::read(Place::on_disk(data, log), machine).map_err(refused)
}

/// Where the state came from that a new ensemble began with, in one line; `None` if it began empty.
///
/// # Errors
/// The directory cannot be read.
pub(in crate::server) fn origin(config: &Config) -> Result<Option<String>, StartError> {
    storage::origin(&place(config)).map_err(refused)
}

/// Index of the entry that a state which was put here counts as: any but that of an empty log.
const FIRST_INDEX: u64 = 1;

/// Puts all data of a server of an ensemble away: returns where it is now.
///
/// # Errors
/// It is in use, another server's, or cannot be moved.
pub(in crate::server) fn set_aside(
    config: &Config,
    server_id: u8,
) -> Result<Vec<PathBuf>, StartError> {
    storage::set_aside(&place(config), server_id).map_err(refused)
}

/// Whether a server without data had some that was put away.
///
/// # Errors
/// The directory cannot be read.
pub(in crate::server) fn was_set_aside(config: &Config) -> Result<bool, StartError> {
    storage::was_set_aside(&place(config)).map_err(refused)
}

/// Why a data directory cannot be opened.
pub(in crate::server) enum Refused {
    /// As it is, at all.
    Start(StartError),
    /// As long as it has no usable copy of the state: of a server of an ensemble. Says what is wrong
    /// with the copies.
    Stateless(String),
}

impl From<StartError> for Refused {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

/// Opens the data directory, or makes it to be `new`. `ensemble`: there are other servers. `machine`: a fresh one, that
/// takes the state.
///
/// # Errors
/// It is refused: nothing in it was changed.
pub(in crate::server) fn open(
    config: &Config,
    files: &WatchedFs,
    new: &Identity,
    ensemble: bool,
    mut machine: Machine,
) -> Result<Found, Refused> {
    must_be_there(config)?;
    if !ensemble && peek(config)?.is_none() && !is_new(config)? {
        return Err(Refused::Start(lost(&config.data_dir)));
    }
    let options = options_of_storage(config, new, ensemble);
    let opened =
        storage::open(place_on(config, files), &options, &mut machine).map_err(|error| {
            let words = error.to_string();
            match error {
                OpenError::NothingToBeginFrom { .. } if ensemble => Refused::Stateless(words),
                _refused => Refused::Start(StartError::Data(words)),
            }
        })?;
    Ok(Found { machine, opened })
}

/// Takes a directory that [`open`] calls stateless.
///
/// # Errors
/// It is not that any more.
pub(in crate::server) fn mend(
    config: &Config,
    files: &WatchedFs,
    new: &Identity,
) -> Result<Mending, StartError> {
    let options = options_of_storage(config, new, true);
    Mending::begin(&place_on(config, files), &options).map_err(refused)
}

fn options_of_storage(config: &Config, new: &Identity, ensemble: bool) -> Options {
    Options {
        new: new.clone(),
        ensemble,
        image_every_bytes: config.image_log_bytes,
        segment_bytes: segment_bytes(config),
    }
}

/// Whole segments are cut: no more than one of them stays behind an image.
fn segment_bytes(config: &Config) -> u64 {
    SEGMENT_BYTES.min(config.image_log_bytes)
}

/// What the storage says of a directory that it refuses.
fn refused(error: impl Display) -> StartError {
    StartError::Data(error.to_string())
}

fn place(config: &Config) -> Place {
    Place::on_disk(&config.data_dir, &config.data_log_dir)
}

/// The same, where a call that does not return is seen.
fn place_on(config: &Config, files: &WatchedFs) -> Place {
    Place::on(Arc::new(files.clone()), &config.data_dir, &config.data_log_dir)
}

fn lost(directory: &Path) -> StartError {
    StartError::Data(format!(
        "{}: there is no data here, and db.autocreate is false: if this server is new, create an empty \
         file `initialize` in this directory; if not, its data is lost or elsewhere",
        directory.display()
    ))
}

/// Unless they may be made.
fn must_be_there(config: &Config) -> Result<(), StartError> {
    if config.data_dir_autocreate {
        return Ok(());
    }
    [&config.data_dir, &config.data_log_dir].into_iter().try_for_each(|dir| must_exist(dir))
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
pub(in crate::server) fn tell(report: &Report) {
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
    tell_of_damaged(&report.set_aside);
}

/// Tells where damaged images are now.
pub(in crate::server) fn tell_of_damaged(set_aside: &[PathBuf]) {
    for path in set_aside {
        tracing::warn!(path = %path.display(), "a damaged image was set aside");
    }
}
