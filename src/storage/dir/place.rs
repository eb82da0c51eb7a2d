//! Directories of a server: what is called what in them, and which are refused at the first look.
//!
//! *Owns* the names, and the locks. *Invariants*: one directory under two names is locked once; a directory that
//! is refused is not changed. *Never* opens a file of the data: that is done by who knows what is in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identity::{self, Identity};
use super::open_error::{OpenError, ZOOKEEPER};
use crate::copy::{SledState, StateStore};
use crate::formats::Formats;
use crate::fs::{FileLock, Fs, FsError, OsFs};
use crate::image::Images;
use crate::log::{Log, LogError, LogOptions, LogRecovery};

pub(super) const LOCK: &str = "lock";
pub(super) const IMAGES: &str = "image";
pub(super) const STATE: &str = "state";
pub(super) const LOG: &str = "log";
/// Stands beside data that is not complete.
pub(super) const UNFINISHED: &str = "unfinished";
/// Stands in a data directory whose data is on its way.
pub(super) const REPLACING: &str = "recovery-unfinished";
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

/// Keeps other servers out of the directories as long as it lives.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not read")]
pub struct Lock(Vec<Box<dyn FileLock>>);

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

    /// Both directories, or the one that is both.
    fn dirs(&self) -> Vec<&Path> {
        let mut dirs = vec![&*self.data, &*self.log];
        dirs.dedup();
        dirs
    }

    /// What holds data when a server has run here.
    pub(super) fn parts(&self) -> [PathBuf; 3] {
        [self.data.join(IMAGES), self.data.join(STATE), self.log.join(LOG)]
    }

    /// Opens the log, which is written as `formats` says.
    pub(super) fn open_log(
        &self,
        options: LogOptions,
        formats: &Formats,
    ) -> Result<(Log, LogRecovery), LogError> {
        let (mut log, found) = Log::open(Arc::clone(&self.fs), &self.log.join(LOG), options)?;
        log.write_formats(formats);
        Ok((log, found))
    }

    /// The images, which are written as `formats` says.
    pub(super) fn images(&self, cluster_id: u128, formats: &Formats) -> Images {
        Images::new(Arc::clone(&self.fs), &self.data.join(IMAGES), cluster_id).writing(formats)
    }

    /// Makes the names in the directories durable, and their own.
    pub(super) fn sync(&self) -> Result<(), FsError> {
        self.fs.sync_dir(&self.log)?;
        self.fs.sync_dir(&self.data)?;
        for dir in [&self.data, &self.log] {
            if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                self.fs.sync_dir(parent)?;
            }
        }
        Ok(())
    }

    /// Makes the directories, and keeps other servers out of them.
    pub(super) fn lock(&self) -> Result<Lock, OpenError> {
        let mut held = Vec::new();
        for dir in self.dirs() {
            self.fs.create_dir(dir)?;
            held.push(self.lock_dir(dir)?);
        }
        Ok(Lock(held))
    }

    /// Keeps servers out, and changes nothing: one that runs holds a lock, and there is no such file where none
    /// has run.
    pub(super) fn lock_if_used(&self) -> Result<Lock, OpenError> {
        let mut held = Vec::new();
        for dir in self.dirs() {
            if self.fs.has(dir, LOCK)? {
                held.push(self.lock_dir(dir)?);
            }
        }
        Ok(Lock(held))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn FileLock>, OpenError> {
        let lock = self.fs.lock(&dir.join(LOCK))?;
        lock.ok_or_else(|| OpenError::InUse { dir: dir.to_owned() })
    }

    /// Names like `log` and `lock` prove nothing: only an identity says that the data is ours.
    pub(super) fn refuse_zookeeper(&self) -> Result<(), OpenError> {
        let fs = &*self.fs;
        if fs.has(&self.data, identity::FILE)? {
            return Ok(());
        }
        for (dir, key) in [(&self.data, "dataDir"), (&self.log, "dataLogDir")] {
            // An empty one was made for a server that has not run yet.
            if fs.has(dir, ZOOKEEPER)? && !fs.list(&dir.join(ZOOKEEPER))?.is_empty() {
                return Err(OpenError::ZooKeeper { dir: dir.clone(), key });
            }
        }
        Ok(())
    }

    /// While the old data is moved away and the new comes, neither is whole.
    pub(super) fn refuse_half_replaced(&self) -> Result<(), OpenError> {
        match self.fs.has(&self.data, REPLACING)? {
            true => Err(OpenError::RecoveryUnfinished { dir: self.data.clone() }),
            false => Ok(()),
        }
    }

    /// Data must say whose it is.
    pub(super) fn refuse_nameless(&self) -> Result<(), OpenError> {
        if self.fs.has(&self.data, UNFINISHED)? {
            return Err(OpenError::Unfinished { dir: self.data.clone() });
        }
        for dir in self.parts() {
            if let Some(name) = self.fs.list(&dir)?.first() {
                let found = dir.join(name).display().to_string();
                return Err(OpenError::NoIdentity { dir: self.data.clone(), found });
            }
        }
        Ok(())
    }

    pub(super) fn refuse_other_server(
        &self,
        identity: &Identity,
        expected: u8,
    ) -> Result<(), OpenError> {
        let found = identity.server_id;
        if found == expected {
            return Ok(());
        }
        Err(OpenError::WrongServer { dir: self.data.clone(), found, expected })
    }

    /// What the file `initialize` says is true once only: from now on there is data, and a directory that is empty
    /// again has lost it.
    pub(super) fn forget_initialize(&self) -> Result<(), OpenError> {
        for dir in self.dirs() {
            if self.fs.has(dir, INITIALIZE)? {
                self.fs.remove(&dir.join(INITIALIZE))?;
                self.fs.sync_dir(dir)?;
            }
        }
        Ok(())
    }
}

/// Whether an operator has said, by the file `initialize`, that what is empty here is new.
///
/// # Errors
/// The directory cannot be read.
pub fn is_initialized(place: &Place) -> Result<bool, OpenError> {
    for dir in [&place.data, &place.log] {
        if place.fs.has(dir, INITIALIZE)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Keeps other servers out of the directories of a server that waits for what it is to become; [`super::open`] does
/// so by itself, once this is let go.
///
/// # Errors
/// Another server runs there, they are ZooKeeper's, or cannot be made.
pub fn hold(place: &Place) -> Result<Lock, OpenError> {
    place.refuse_zookeeper()?;
    place.lock()
}
