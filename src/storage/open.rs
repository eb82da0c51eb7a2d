//! Opens a data directory and recovers the state from it.
//!
//! *Owns* the order in which this is done and what is refused. First it only reads: identity, log,
//! images newest first (the first that is intact, within the log's reach and accepted by the
//! machine wins), then the committed entries behind. Only when all of that went well is anything
//! changed: leftovers removed, damaged images renamed, the torn end of the log wiped. *Never*
//! starts with an empty tree where there was data.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checkpoint::{Checkpointer, IMAGE_EVERY_BYTES, Ingredients, Source};
use super::fs::{FileLock, Fs, FsError, OsFs};
use super::identity::{self, Identity, IdentityError};
use super::image::{ImageError, Images};
use super::log::{Log, LogOptions, LogRecovery, SEGMENT_BYTES};
use super::log_error::LogError;
use super::sled::SledState;
use super::state::{Contents, StateMark, StateStore};
use crate::replica::{Entry, HardState, Mark, Membership, Restore};

const LOCK: &str = "lock";
const IMAGES: &str = "image";
const STATE: &str = "state";
const LOG: &str = "log";
/// Where ZooKeeper keeps its data.
const ZOOKEEPER: &str = "version-2";

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
        // One directory under two names is locked once.
        let real = |dir: &Path| dir.canonicalize().or_else(|_| std::path::absolute(dir)).ok();
        let log = if real(log) == real(data) { data } else { log };
        Self {
            fs: Arc::new(OsFs),
            state: Box::new(SledState::new(&data.join(STATE))),
            data: data.to_owned(),
            log: log.to_owned(),
        }
    }
}

/// What is fixed for the life of a storage.
#[derive(Clone, Debug)]
pub struct Options {
    /// For a new data directory: a random number for its ensemble. An existing one has its own.
    pub new_cluster_id: u128,
    /// The server; must be the one that an existing directory was made for.
    pub node_id: u64,
    /// Whether there are other servers: decides what a refusal advises.
    pub ensemble: bool,
    /// Size of a segment of the log.
    pub segment_bytes: u64,
    /// An image is written after this much log, or as much as the last image has if that is more.
    pub image_every_bytes: u64,
}

impl Options {
    /// A server on its own with all defaults.
    #[must_use]
    pub fn standalone(new_cluster_id: u128) -> Self {
        Self {
            new_cluster_id,
            node_id: 1,
            ensemble: false,
            segment_bytes: SEGMENT_BYTES,
            image_every_bytes: IMAGE_EVERY_BYTES,
        }
    }
}

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Another server runs on it.
    #[error("{}: another lockkeeper server is using this directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// It is ZooKeeper's.
    #[error("{}: this directory holds data of Apache ZooKeeper ({ZOOKEEPER}) and none of \
             lockkeeper: start on a new, empty {key}; ZooKeeper's data cannot be imported yet",
             dir.display())]
    ZooKeeper {
        /// The directory.
        dir: PathBuf,
        /// The key in the configuration that names it.
        key: &'static str,
    },
    /// There is data, but it does not say whose.
    #[error("{}: there is lockkeeper data in this directory ({found}), but no file 'identity': \
             restore it from a copy, or start on a new, empty directory", dir.display())]
    NoIdentity {
        /// The directory.
        dir: PathBuf,
        /// What is there.
        found: String,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It was made for another server.
    #[error("{}: this directory belongs to server {found}, but this is server {expected}: check \
             dataDir and myid", dir.display())]
    WrongServer {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        found: u64,
        /// Who we are.
        expected: u64,
    },
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An image was written by a later version.
    #[error(transparent)]
    FutureImage(ImageError),
    /// The log does not contain what an image contains.
    #[error("{}: this image is of index {image}, but the log in {} ends at {last}: the log lost \
             its end. Restore the log directory from a copy; if what it lost may be lost, remove \
             the images beyond its end", path.display(), log.display())]
    LogLostEnd {
        /// The image.
        path: PathBuf,
        /// Its index.
        image: u64,
        /// The log's directory.
        log: PathBuf,
        /// Its last index.
        last: u64,
    },
    /// There is nothing to begin from.
    #[error("no usable image, and the log in {} begins only at entry {first}: {tried}; restore \
             one of these files from a copy", log.display())]
    NothingToBeginFrom {
        /// The log's directory.
        log: PathBuf,
        /// Its first entry.
        first: u64,
        /// Every source that was tried, and what was wrong with it.
        tried: String,
    },
    /// A committed entry cannot be applied.
    #[error("entry {index} of the log in {} cannot be applied: {what}", log.display())]
    Entry {
        /// The log's directory.
        log: PathBuf,
        /// The entry.
        index: u64,
        /// What the machine says.
        what: String,
    },
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
    /// Entries that were applied after it.
    pub entries: u64,
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
    /// What Raft remembers; `commit` is at least `applied`.
    pub hard_state: HardState,
    /// Who took part at the image that was loaded; `None` if there was none. Changes of membership
    /// in the entries behind it were given to [`Restore::entry`].
    pub membership: Option<Membership>,
    /// Index up to which the machine got records and entries.
    pub applied: u64,
    /// Term of the entry there.
    pub applied_term: u64,
    /// Durable entries behind `applied`.
    pub tail: Vec<Entry>,
    /// For the log thread.
    pub log: Log,
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
            .field("hard_state", &self.hard_state)
            .field("applied", &self.applied)
            .field("tail", &self.tail.len())
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
    let lock = lock(fs, &place)?;
    let identity = identify(fs, &place, options)?;
    let log_options = LogOptions {
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
        segment_bytes: options.segment_bytes,
        ensemble: options.ensemble,
    };
    let new = !identity.ready;
    let identity = make_log(fs, &place, identity, &log_options)?;
    let (log, found) = Log::open(Arc::clone(&place.fs), &place.log.join(LOG), log_options)?;
    let images = Images::new(Arc::clone(&place.fs), &place.data.join(IMAGES), identity.cluster_id);
    let mut recovery = Recovery { place, log, found, images, restore, tried: Vec::new() };
    let begun = recovery.begin()?;
    let commit = recovery.found.hard_state.commit.max(begun.mark.index);
    recovery.entries(begun.mark.index, commit)?;
    let last = recovery.found.last.index;
    let tail = recovery.log.read(commit + 1, last, usize::MAX)?;
    let applied_term = recovery.log.term(commit)?;
    let set_aside = recovery.tidy()?;
    let Recovery { place, log, found, images, .. } = recovery;

    let report = Report {
        new,
        begun_from: begun.name,
        records: begun.mark.records,
        entries: commit - begun.mark.index,
        log_bytes: log.bytes(),
        torn: found.torn,
        set_aside,
    };
    let written = log.written();
    let written_now = written.load(Ordering::Relaxed);
    let checkpointer = Checkpointer::new(Ingredients {
        state: place.state,
        images,
        source: begun.source,
        log_last: last,
        image_bytes: begun.image_bytes,
        written,
        written_at_image: written_now.saturating_sub(log.bytes_after(begun.mark.index)),
        image_every_bytes: options.image_every_bytes,
    });
    let membership = match begun.source {
        Source::Log => None,
        Source::Image(_) | Source::State(_) => Some(begun.mark.membership),
    };
    let hard_state = HardState { commit, ..found.hard_state };
    let applied = commit;
    Ok(Opened {
        identity,
        hard_state,
        membership,
        applied,
        applied_term,
        tail,
        log,
        checkpointer,
        report,
        lock,
    })
}

/// Names like `log` and `lock` prove nothing: only an identity says that the data is ours.
fn refuse_zookeeper(fs: &dyn Fs, place: &Place) -> Result<(), OpenError> {
    if fs.list(&place.data)?.iter().any(|name| name == identity::FILE) {
        return Ok(());
    }
    for (dir, key) in [(&place.data, "dataDir"), (&place.log, "dataLogDir")] {
        if fs.list(dir)?.iter().any(|name| name == ZOOKEEPER) {
            return Err(OpenError::ZooKeeper { dir: dir.clone(), key });
        }
    }
    Ok(())
}

fn lock(fs: &dyn Fs, place: &Place) -> Result<Lock, OpenError> {
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
    if let Some(identity) = Identity::load(fs, &place.data)? {
        if identity.node_id != options.node_id {
            let dir = place.data.clone();
            let (found, expected) = (identity.node_id, options.node_id);
            return Err(OpenError::WrongServer { dir, found, expected });
        }
        return Ok(identity);
    }
    for dir in [place.data.join(IMAGES), place.data.join(STATE), place.log.join(LOG)] {
        if let Some(name) = fs.list(&dir)?.first() {
            let found = dir.join(name).display().to_string();
            return Err(OpenError::NoIdentity { dir: place.data.clone(), found });
        }
    }
    let (cluster_id, node_id) = (options.new_cluster_id, options.node_id);
    Ok(Identity { cluster_id, node_id, ready: false })
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

/// What the state was begun from.
struct Begun {
    source: Source,
    mark: Mark,
    name: String,
    image_bytes: u64,
}

/// A directory being recovered; nothing in it is changed before [`Recovery::tidy`].
struct Recovery<'a> {
    place: Place,
    log: Log,
    found: LogRecovery,
    images: Images,
    restore: &'a mut dyn Restore,
    /// Damaged images, and what is wrong with each.
    tried: Vec<(u64, String)>,
}

impl Recovery<'_> {
    /// Restores the newest state that can be believed.
    fn begin(&mut self) -> Result<Begun, OpenError> {
        for index in self.images.list()? {
            match self.image(index)? {
                Ok(begun) => return Ok(begun),
                Err(what) => {
                    tracing::error!(image = %self.images.path(index).display(), %what,
                        "this image cannot be used");
                    self.tried.push((index, what));
                    self.restore.restart();
                }
            }
        }
        if self.found.base.index == 0 {
            let name = "the log alone".to_owned();
            return Ok(Begun { source: Source::Log, mark: Mark::default(), name, image_bytes: 0 });
        }
        match self.state() {
            Ok(begun) => Ok(begun),
            Err(what) => Err(self.nothing(&what)),
        }
    }

    /// Restores an image; the inner error says why it cannot be used.
    fn image(&mut self, index: u64) -> Result<Result<Begun, String>, OpenError> {
        let reader = match self.images.open(index) {
            Ok(reader) => reader,
            Err(error @ ImageError::Future { .. }) => return Err(OpenError::FutureImage(error)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mark = reader.mark().clone();
        if index > self.found.last.index {
            return Err(OpenError::LogLostEnd {
                path: self.images.path(index),
                image: index,
                log: self.place.log.join(LOG),
                last: self.found.last.index,
            });
        }
        if let Err(what) = self.reaches(&mark)? {
            return Ok(Err(what));
        }
        let image_bytes = reader.len();
        let restored = reader.read(&mut |key, value| self.restore.record(key, value));
        if let Err(error) = restored {
            return Ok(Err(error.to_string()));
        }
        if let Err(what) = self.restore.finish(&mark) {
            return Ok(Err(format!("{}: {what}", self.images.path(index).display())));
        }
        let name = self.images.path(index).display().to_string();
        Ok(Ok(Begun { source: Source::Image(index), mark, name, image_bytes }))
    }

    /// Whether the log continues this state.
    fn reaches(&self, mark: &Mark) -> Result<Result<(), String>, LogError> {
        let base = self.found.base.index;
        if mark.index < base {
            return Ok(Err(format!(
                "it is of index {}, but the log begins only after {base}",
                mark.index
            )));
        }
        let term = self.log.term(mark.index)?;
        if term != mark.term {
            return Ok(Err(format!(
                "it is of index {} in term {}, but the log has term {term} there: it is of \
                 another history",
                mark.index, mark.term
            )));
        }
        Ok(Ok(()))
    }

    /// Restores the last checkpoint of the state store: only when there is no image.
    fn state(&mut self) -> Result<Begun, String> {
        let state = &mut self.place.state;
        let path = state.path().display().to_string();
        let mark = match state.mark().map_err(|e| e.to_string())? {
            Some(StateMark::Closed { mark, contents }) => (mark, contents),
            Some(StateMark::Open) => return Err(format!("{path}: its checkpoint is incomplete")),
            None => return Err(format!("{path}: it is empty")),
        };
        let (mark, expected) = mark;
        if mark.index > self.found.last.index {
            let last = self.found.last.index;
            return Err(format!(
                "{path}: it is of index {}, but the log ends at {last}",
                mark.index
            ));
        }
        self.reaches(&mark)
            .map_err(|e| e.to_string())?
            .map_err(|what| format!("{path}: {what}"))?;
        let mut actual = Contents::default();
        let mut scratch = Vec::new();
        let restore = &mut *self.restore;
        self.place
            .state
            .scan(&mut |key, value| {
                actual.add(key, value, &mut scratch);
                restore.record(key, value)
            })
            .map_err(|e| e.to_string())?;
        if actual != expected {
            return Err(format!("{path}: its contents are not what was put there"));
        }
        self.restore.finish(&mark).map_err(|what| format!("{path}: {what}"))?;
        let source = Source::State(mark.index);
        Ok(Begun { source, mark, name: path, image_bytes: 0 })
    }

    fn nothing(&self, state: &str) -> OpenError {
        let mut tried: Vec<&str> = self.tried.iter().map(|(_, what)| what.as_str()).collect();
        let none = format!("{}: no image", self.place.data.join(IMAGES).display());
        if tried.is_empty() {
            tried.push(&none);
        }
        tried.push(state);
        OpenError::NothingToBeginFrom {
            log: self.place.log.join(LOG),
            first: self.found.first,
            tried: tried.join("; "),
        }
    }

    /// Gives the entries behind `base` up to `commit` to the machine.
    fn entries(&mut self, base: u64, commit: u64) -> Result<(), OpenError> {
        let restore = &mut *self.restore;
        let mut refused = None;
        self.log.each(base + 1, commit, &mut |entry| match restore.entry(&entry) {
            Ok(()) => ControlFlow::Continue(()),
            Err(what) => {
                refused = Some((entry.index, what));
                ControlFlow::Break(())
            }
        })?;
        match refused {
            None => Ok(()),
            Some((index, what)) => {
                Err(OpenError::Entry { log: self.place.log.join(LOG), index, what })
            }
        }
    }

    /// The first changes: all that was read has proved good.
    fn tidy(&mut self) -> Result<Vec<PathBuf>, OpenError> {
        let fs = &*self.place.fs;
        let images = self.place.data.join(IMAGES);
        fs.create_dir(&images)?;
        self.images.remove_unfinished()?;
        // The log may be cut because of an image that was loaded: its name must be durable, too.
        fs.sync_dir(&images)?;
        self.log.begin()?;
        let mut set_aside = Vec::new();
        for (index, _) in &self.tried {
            set_aside.push(self.images.set_aside(*index)?);
        }
        Ok(set_aside)
    }
}
