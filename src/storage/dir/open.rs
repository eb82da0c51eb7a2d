//! Opens a data directory and recovers the state from it.
//!
//! *Owns* the order in which this is done and what is refused. First it only reads: identity, log,
//! images newest first (the first that is intact, within the log's reach and accepted by the
//! machine wins), then the committed entries behind. Only when all of that went well is anything
//! changed: leftovers removed, damaged images renamed, the torn end of the log wiped. *Never*
//! starts with an empty tree where there was data.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::format_switch::FormatSwitch;
use super::identity::{self, Identity};
use super::open_error::OpenError;
use super::recovery::Recovery;
use super::replacement;
use super::rolled_back::refuse_rolled_back;
use super::seed::UNFINISHED;
use crate::checkpoint::{Checkpointer, IMAGE_EVERY_BYTES, Ingredients, Source};
use crate::copy::{Runs, SledState, StateStore};
use crate::formats::Formats;
use crate::fs::{FileLock, Fs, OsFs};
use crate::image::Images;
use crate::log::{Log, LogOptions, SEGMENT_BYTES};
use lockkeeper_core::replica::peer::server_of;
use lockkeeper_core::replica::{HardState, Restore, Restored};

pub(crate) const LOCK: &str = "lock";
pub(crate) const IMAGES: &str = "image";
pub(crate) const STATE: &str = "state";
pub(crate) const LOG: &str = "log";
/// Where ZooKeeper keeps its data.
pub(crate) const ZOOKEEPER: &str = "version-2";
/// The file with which an operator says that an empty directory is that of a new server: ZooKeeper's
/// `zkServer-initialize.sh` makes it, beside an empty [`ZOOKEEPER`].
const INITIALIZE: &str = "initialize";

/// Where a server's data is.
#[derive(Debug)]
pub struct Place {
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// The state store.
    pub state: Box<dyn StateStore>,
    /// For everything but the log.
    pub data: PathBuf,
    /// For the log; may be the same.
    pub log: PathBuf,
}

impl Place {
    /// On the operating system's file system, with sled as the state store.
    #[must_use]
    pub fn on_disk(data: &Path, log: &Path) -> Self {
        Self::on(Arc::new(OsFs), data, log)
    }

    /// The same, but for sled on another file system.
    #[must_use]
    pub fn on(fs: Arc<dyn Fs>, data: &Path, log: &Path) -> Self {
        // One directory under two names is locked once.
        let real = |dir: &Path| dir.canonicalize().or_else(|_| std::path::absolute(dir)).ok();
        let log = if real(log) == real(data) { data } else { log };
        Self {
            fs,
            state: Box::new(SledState::new(&data.join(STATE))),
            data: data.to_owned(),
            log: log.to_owned(),
        }
    }
}

/// What is fixed for the life of a storage.
#[derive(Clone, Debug)]
pub struct Options {
    /// What a new data directory becomes. An existing one has an identity of its own, which must be
    /// of the same server.
    pub new: Identity,
    /// Whether there are other servers: decides what a refusal advises.
    pub ensemble: bool,
    /// Size of a segment of the log.
    pub segment_bytes: u64,
    /// An image is written after this much log, or as much as the last image has if that is more.
    pub image_every_bytes: u64,
}

impl Options {
    /// Server 1 on its own with all defaults.
    #[must_use]
    pub fn standalone(new_cluster_id: u128) -> Self {
        Self {
            new: Identity::standalone(new_cluster_id, 1),
            ensemble: false,
            segment_bytes: SEGMENT_BYTES,
            image_every_bytes: IMAGE_EVERY_BYTES,
        }
    }
}

/// Keeps other servers out of the directories as long as it lives.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not read")]
pub struct Lock(Vec<Box<dyn FileLock>>);

/// What was found, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the directory was new.
    pub new: bool,
    /// What the state was begun from: a file name, or words.
    pub begun_from: String,
    /// Records that were restored from it.
    pub records: u64,
    /// What that took.
    pub begin_took: Duration,
    /// Entries that were applied after it.
    pub entries: u64,
    /// What that took.
    pub entries_took: Duration,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// What was dropped at the end of the log, if a write was cut off there.
    pub torn: Option<String>,
    /// Damaged images, under the names that they have now.
    pub set_aside: Vec<PathBuf>,
}

/// A data directory in use, and what was recovered.
pub struct Opened {
    /// Whose it is.
    pub identity: Identity,
    /// For the log thread.
    pub format_switch: FormatSwitch,
    /// For the replica.
    pub restored: Restored,
    /// For the log thread.
    pub log: Log,
    /// For the tasks that send and receive images, and for the log thread, which installs them.
    pub images: Images,
    /// For the state thread.
    pub checkpointer: Checkpointer,
    /// For people.
    pub report: Report,
    /// To be held until the server has stopped.
    pub lock: Lock,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("identity", &self.identity)
            .field("hard_state", &self.restored.hard_state)
            .field("applied", &self.restored.applied)
            .field("tail", &self.restored.tail.len())
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// Opens the data directory of a server, makes it if it is new, and gives the state in it to
/// `restore`: the records of an image, if there is one, then all committed entries behind it.
///
/// # Errors
/// The directory cannot be used, or what it holds is not all that must be there: see [`OpenError`].
pub fn open(
    place: Place,
    options: &Options,
    restore: &mut dyn Restore,
) -> Result<Opened, OpenError> {
    let fs = &*place.fs;
    refuse_zookeeper(fs, &place)?;
    refuse_half_replaced(fs, &place)?;
    let lock = lock(fs, &place)?;
    let identity = identify(fs, &place, options)?;
    let log_options = LogOptions {
        cluster_id: identity.cluster_id,
        node_id: identity.log_owner(),
        segment_bytes: options.segment_bytes,
        ensemble: options.ensemble,
    };
    let new = !identity.ready;
    let identity = make_log(fs, &place, identity, &log_options)?;
    let formats = Formats::default();
    formats.set_version(identity.version);
    let (mut log, found) = Log::open(Arc::clone(&place.fs), &place.log.join(LOG), log_options)?;
    log.write_formats(&formats);
    let images = Images::new(Arc::clone(&place.fs), &place.data.join(IMAGES), identity.cluster_id);
    let images = images.writing(&formats);
    let ensemble = options.ensemble;
    let mut recovery = Recovery::new(place, log, found, images.clone(), restore, ensemble);
    let start = Instant::now();
    let begun = recovery.begin()?;
    let begin_took = start.elapsed();
    let commit = recovery.found.hard_state.commit.max(begun.mark.index);
    let behind =
        begun.mark.index.saturating_sub(u64::from(mutant!("entry-applied-twice-at-restart")));
    recovery.entries(behind, commit)?;
    let entries_took = start.elapsed() - begin_took;
    let last = recovery.found.last.index;
    let tail = recovery.log.read(commit + 1, last, usize::MAX)?;
    let applied_term = recovery.log.term(commit)?;
    let set_aside = recovery.tidy(&begun)?;
    forget_initialize(&*recovery.place.fs, &recovery.place)?;
    let Recovery { place, log, found, .. } = recovery;
    let format_switch = FormatSwitch::new(place.fs, place.data, identity.clone(), formats.clone());

    let report = Report {
        new,
        begun_from: begun.name,
        records: begun.mark.records,
        begin_took,
        entries: commit - begun.mark.index,
        entries_took,
        log_bytes: log.bytes(),
        torn: found.torn,
        set_aside,
    };
    let membership = match begun.source {
        Source::Log => identity.membership.clone(),
        Source::Image(_) | Source::State(_) => begun.mark.membership.clone(),
    };
    let image = matches!(begun.source, Source::Image(_)).then(|| begun.mark.clone());
    let written = log.written();
    let written_now = written.load(Ordering::Relaxed);
    let checkpointer = Checkpointer::new(Ingredients {
        state: Runs::new(place.state).writing(&formats),
        record_digest: restore.record_digest(),
        images: images.clone(),
        source: begun.source,
        image: image.clone(),
        ensemble,
        log_last: last,
        image_bytes: begun.image_bytes,
        written,
        written_at_image: written_now.saturating_sub(log.bytes_after(begun.mark.index)),
        image_every_bytes: options.image_every_bytes,
    });
    let restored = Restored {
        hard_state: HardState { commit, ..found.hard_state },
        membership,
        image,
        begun_after: (begun.mark.index, begun.mark.term),
        applied: commit,
        applied_term,
        tail,
    };
    Ok(Opened { identity, format_switch, restored, log, images, checkpointer, report, lock })
}

/// Whose data is in `place`; `None` if there is none yet. Changes and locks nothing: for deciding
/// what a new directory is to become, before [`open`].
///
/// # Errors
/// There is data that [`open`] would refuse at the first sight, too.
pub fn peek(place: &Place) -> Result<Option<Identity>, OpenError> {
    let fs = &*place.fs;
    refuse_zookeeper(fs, place)?;
    refuse_half_replaced(fs, place)?;
    let identity = Identity::load(fs, &place.data)?;
    if identity.is_none() {
        refuse_nameless(fs, place)?;
    }
    refuse_rolled_back(fs, &place.data)?;
    Ok(identity)
}

/// Names like `log` and `lock` prove nothing: only an identity says that the data is ours.
pub(crate) fn refuse_zookeeper(fs: &dyn Fs, place: &Place) -> Result<(), OpenError> {
    if fs.list(&place.data)?.iter().any(|name| name == identity::FILE) {
        return Ok(());
    }
    for (dir, key) in [(&place.data, "dataDir"), (&place.log, "dataLogDir")] {
        let is_there = fs.list(dir)?.iter().any(|name| name == ZOOKEEPER);
        // An empty one was made for a server that has not run yet.
        if is_there && !fs.list(&dir.join(ZOOKEEPER))?.is_empty() {
            return Err(OpenError::ZooKeeper { dir: dir.clone(), key });
        }
    }
    Ok(())
}

/// While the old data is moved away and the new comes, neither is whole.
pub(crate) fn refuse_half_replaced(fs: &dyn Fs, place: &Place) -> Result<(), OpenError> {
    match fs.list(&place.data)?.iter().any(|name| name == replacement::MARKER) {
        true => Err(OpenError::RecoveryUnfinished { dir: place.data.clone() }),
        false => Ok(()),
    }
}

/// Whether an operator has said, by the file `initialize`, that what is empty here is new.
///
/// # Errors
/// The directory cannot be read.
pub fn is_initialized(place: &Place) -> Result<bool, OpenError> {
    for dir in [&place.data, &place.log] {
        if place.fs.list(dir)?.iter().any(|name| name == INITIALIZE) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the file says is true once only: from now on there is data, and a directory that is empty again
/// has lost it.
fn forget_initialize(fs: &dyn Fs, place: &Place) -> Result<(), OpenError> {
    let mut dirs = vec![&place.data, &place.log];
    dirs.dedup();
    for dir in dirs {
        if fs.list(dir)?.iter().any(|name| name == INITIALIZE) {
            fs.remove(&dir.join(INITIALIZE))?;
            fs.sync_dir(dir)?;
        }
    }
    Ok(())
}

/// Keeps other servers out of the directories of a server that waits for what it is to become; [`open`] does so by
/// itself, once this is let go.
///
/// # Errors
/// Another server runs there, they are ZooKeeper's, or cannot be made.
pub fn hold(place: &Place) -> Result<Lock, OpenError> {
    refuse_zookeeper(&*place.fs, place)?;
    lock(&*place.fs, place)
}

pub(crate) fn lock(fs: &dyn Fs, place: &Place) -> Result<Lock, OpenError> {
    let mut dirs = vec![&place.data];
    if place.log != place.data {
        dirs.push(&place.log);
    }
    let mut held = Vec::new();
    for dir in dirs {
        fs.create_dir(dir)?;
        match fs.lock(&dir.join(LOCK))? {
            Some(lock) => held.push(lock),
            None => return Err(OpenError::InUse { dir: dir.clone() }),
        }
    }
    Ok(Lock(held))
}

/// The identity that is there, or a new one if nothing else is there.
fn identify(fs: &dyn Fs, place: &Place, options: &Options) -> Result<Identity, OpenError> {
    let Some(identity) = Identity::load(fs, &place.data)? else {
        refuse_nameless(fs, place)?;
        refuse_rolled_back(fs, &place.data)?;
        return Ok(Identity { ready: false, ..options.new.clone() });
    };
    refuse_other_server(place, &identity, options.new.server_id)?;
    refuse_rolled_back(fs, &place.data)?;
    if options.ensemble && server_of(identity.raft_id) != identity.server_id {
        let (dir, server) = (place.data.clone(), identity.server_id);
        return Err(OpenError::StandaloneOnly { dir, server });
    }
    Ok(identity)
}

pub(crate) fn refuse_other_server(
    place: &Place,
    identity: &Identity,
    expected: u8,
) -> Result<(), OpenError> {
    let found = identity.server_id;
    if found == expected {
        return Ok(());
    }
    Err(OpenError::WrongServer { dir: place.data.clone(), found, expected })
}

/// Data must say whose it is.
pub(crate) fn refuse_nameless(fs: &dyn Fs, place: &Place) -> Result<(), OpenError> {
    if fs.list(&place.data)?.iter().any(|name| name == UNFINISHED) {
        return Err(OpenError::Unfinished { dir: place.data.clone() });
    }
    for dir in [place.data.join(IMAGES), place.data.join(STATE), place.log.join(LOG)] {
        if let Some(name) = fs.list(&dir)?.first() {
            let found = dir.join(name).display().to_string();
            return Err(OpenError::NoIdentity { dir: place.data.clone(), found });
        }
    }
    Ok(())
}

/// Makes the log of a new directory. A crash on the way leaves an identity that is not ready.
fn make_log(
    fs: &dyn Fs,
    place: &Place,
    identity: Identity,
    options: &LogOptions,
) -> Result<Identity, OpenError> {
    if identity.ready {
        return Ok(identity);
    }
    let log = place.log.join(LOG);
    identity.store(fs, &place.data)?;
    for dir in [&log, &place.data.join(IMAGES)] {
        fs.create_dir(dir)?;
    }
    fs.sync_dir(&place.log)?;
    fs.sync_dir(&place.data)?;
    for dir in [&place.data, &place.log] {
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs.sync_dir(parent)?;
        }
    }
    if !Log::exists(fs, &log)? {
        Log::create(fs, &log, options)?;
    }
    let identity = Identity { ready: true, ..identity };
    identity.store(fs, &place.data)?;
    Ok(identity)
}
