//! The state store on sled.
//!
//! *Owns* the directory `state/`, and how blocks are put into sled so that they are written about once
//! and take little memory. *Invariant*: every call into sled runs under `supervision::contain`, since
//! its corruption shows as panics. *Never* relies on sled's `flush`, which calls no fsync: what sled lost
//! in a power cut is noticed by the manifest and the sums over the runs, and sled is filled again.
//!
//! A run is in trees of its own, `TREE_BLOCKS` to each. To remove one, sled only forgets its pages,
//! while removed entries have what is beside them written again. Three habits of sled 0.34 count:
//! * A leaf is split in two at its 17th entry, and both halves are written again. So entries are made
//!   empty first, a lot ahead (`AHEAD_MAX`), and filled when the leaves have been split: that writes a
//!   block 1.2 times instead of four times.
//! * What may leave the cache is looked at only once in 64 accesses, for each of 256 parts of it. So a
//!   leaf is accessed that often when its last block was written or read (`settle`): 30 MiB
//!   instead of the whole tree stay in memory.
//! * A tree that is removed stays in memory until all of it is: that is why a run has several.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::store::{StateError, StateStore};
use crate::throttle::{BLOCK_STEPS, CpuThrottle, WorkBudget};
use lockkeeper_supervision as supervision;

/// sled's cache. It uses several times as much.
const CACHE_BYTES: u64 = 8 << 20;
/// How many stores that were set aside are kept.
const SET_ASIDE_MAX: usize = 2;
/// How long, and in which steps, a store that was just closed is waited for.
const UNLOCK_MAX: Duration = Duration::from_secs(5);
const UNLOCK_PAUSE: Duration = Duration::from_millis(10);
/// Key of the manifest. Earlier versions had their mark there, and records beside it.
const MANIFEST: &[u8] = b"m";
/// Begins the names of the trees that are runs.
const RUN: u8 = b'r';
/// Blocks in a tree of sled's.
const TREE_BLOCKS: u32 = 1024;
/// How many entries are made ahead.
const AHEAD_MAX: u32 = 256;
/// Entries of a leaf that came in order, once it has been split.
const LEAF_BLOCKS: u32 = 8;
/// How many accesses have sled look at what may leave its cache.
const SETTLING: u32 = 64;

/// sled in a directory, opened when it is first used.
pub struct SledState {
    dir: PathBuf,
    db: Option<sled::Db>,
    /// Run and number of the first block that has no entry yet, where blocks are written.
    ahead: (u64, u32),
}

impl std::fmt::Debug for SledState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledState")
            .field("dir", &self.dir)
            .field("open", &self.db.is_some())
            .finish()
    }
}

impl SledState {
    /// The store in `dir`, which need not exist.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), db: None, ahead: (0, 0) }
    }

    /// Runs `f` on the open database, opening it first if need be. After an error the database is
    /// abandoned, not dropped: its destructor writes, and may panic or wait for ever.
    fn with<T>(
        &mut self,
        f: impl FnOnce(&sled::Db) -> Result<T, Failure>,
    ) -> Result<T, StateError> {
        let dir = self.dir.clone();
        let held = self.db.take().map(ManuallyDrop::new);
        let result = supervision::contain(move || {
            let db = match held {
                Some(db) => db,
                None => ManuallyDrop::new(open(&dir)?),
            };
            let value = f(&db)?;
            Ok::<_, Failure>((db, value))
        });
        match result {
            Ok(Ok((db, value))) => {
                self.db = Some(ManuallyDrop::into_inner(db));
                Ok(value)
            }
            Ok(Err(Failure { what, is_full })) => {
                Err(StateError { path: self.dir.clone(), what, is_full })
            }
            Err(what) => Err(StateError::new(&self.dir, format!("sled panicked: {what}"))),
        }
    }

    fn io(&self, what: &str, error: &std::io::Error) -> StateError {
        StateError::new(&self.dir, format!("cannot {what}: {error}"))
    }

    /// Leaves an open database with nothing in it.
    fn empty(&mut self) -> Result<(), StateError> {
        self.ahead = (0, 0);
        self.with(|db| {
            db.remove(MANIFEST)?;
            if !db.is_empty() {
                return Err("it has records of an earlier version".into());
            }
            db.flush()?;
            Ok(())
        })?;
        self.retain_runs(&[], &WorkBudget::default())
    }

    /// Closes the database without running into what may be wrong with it.
    fn abandon(&mut self) {
        self.ahead = (0, 0);
        if let Some(db) = self.db.take() {
            std::mem::forget(db);
        }
    }

    /// Where the next store that is set aside goes; the oldest ones are removed.
    fn aside(&self) -> Result<PathBuf, StateError> {
        let parent = self.dir.parent().unwrap_or(Path::new("."));
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!("{name}.bad-");
        let mut taken = Vec::new();
        let entries =
            std::fs::read_dir(parent).map_err(|e| self.io("list the directory of", &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| self.io("list the directory of", &e))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix(&prefix)?.parse::<u64>().ok());
            taken.extend(number);
        }
        taken.sort_unstable_by(|a, b| b.cmp(a));
        for old in taken.iter().skip(SET_ASIDE_MAX - 1) {
            let old = parent.join(format!("{prefix}{old}"));
            std::fs::remove_dir_all(&old).map_err(|e| self.io("remove an older copy of", &e))?;
        }
        Ok(parent.join(format!("{prefix}{}", taken.first().unwrap_or(&0) + 1)))
    }
}

impl Drop for SledState {
    /// The destructor of the database syncs its file and panics if that fails, so the disk is tried
    /// first: nothing relies on what is lost with a database that is abandoned.
    fn drop(&mut self) {
        let tried = std::fs::File::open(self.dir.join("db")).and_then(|file| file.sync_all());
        if let Err(error) = tried {
            if self.db.is_some() {
                tracing::warn!(
                    target: crate::TARGET,
                    path = %self.dir.display(), %error,
                    "the state store is not closed"
                );
            }
            self.abandon();
        }
    }
}

impl StateStore for SledState {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn room(&self) -> u64 {
        rustix::fs::statvfs(&self.dir).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn manifest(&mut self) -> Result<Option<Vec<u8>>, StateError> {
        self.with(|db| match db.get(MANIFEST)? {
            Some(bytes) => Ok(Some(bytes.to_vec())),
            None if db.is_empty() => Ok(None),
            None => Err("it has records but no mark".into()),
        })
    }

    fn set_manifest(&mut self, manifest: &[u8]) -> Result<(), StateError> {
        self.with(|db| {
            db.insert(MANIFEST, manifest)?;
            // Not durable, but out of the process: a kill does not lose the checkpoint.
            db.flush()?;
            Ok(())
        })
    }

    fn put_block(&mut self, run: u64, number: u32, bytes: &[u8]) -> Result<(), StateError> {
        let ahead = match self.ahead {
            (of, ahead) if of == run => ahead,
            _ => 0,
        };
        // As many as there are already: a small run has not many for nothing.
        let next = number + 1 + number.min(AHEAD_MAX);
        let tree_end = (number / TREE_BLOCKS + 1) * TREE_BLOCKS;
        let made = if number < ahead { ahead } else { next.min(tree_end) };
        self.with(|db| {
            let tree = db.open_tree(tree_name(run, number))?;
            for empty in ahead.max(number)..made {
                tree.insert(block_key(empty), &[])?;
            }
            tree.insert(block_key(number), bytes)?;
            Ok(settle(&tree, number)?)
        })?;
        self.ahead = (run, made);
        Ok(())
    }

    fn read_block(&mut self, run: u64, number: u32, out: &mut Vec<u8>) -> Result<bool, StateError> {
        self.with(|db| {
            // Makes one that is missing: the store is found wrong then, and set aside.
            let tree = db.open_tree(tree_name(run, number))?;
            let Some(block) = tree.get(block_key(number))? else {
                return Ok(false);
            };
            out.extend_from_slice(&block);
            settle(&tree, number)?;
            Ok(!block.is_empty())
        })
    }

    fn retain_runs(&mut self, runs: &[u64], work_budget: &WorkBudget) -> Result<(), StateError> {
        let mut cpu_throttle = CpuThrottle::new(work_budget);
        self.with(|db| {
            for name in db.tree_names() {
                if run_of(&name).is_some_and(|run| !runs.contains(&run)) {
                    db.drop_tree(name)?;
                    cpu_throttle.did(BLOCK_STEPS);
                }
            }
            Ok(())
        })
    }

    fn clear(&mut self) -> Result<(), StateError> {
        // A database that is only abandoned keeps its files' room for as long as this process lives.
        if self.db.is_some() && self.empty().is_ok() {
            return Ok(());
        }
        self.abandon();
        // So does one that was abandoned before, after an error: there is nothing left in the file.
        if let Ok(file) = std::fs::File::options().write(true).open(self.dir.join("db"))
            && let Err(error) = file.set_len(0)
        {
            tracing::warn!(target: crate::TARGET, path = %self.dir.display(), %error, "its room is not given back yet");
        }
        match std::fs::remove_dir_all(&self.dir) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(self.io("remove", &e)),
        }
    }

    fn set_aside(&mut self) -> Result<PathBuf, StateError> {
        self.abandon();
        let aside = self.aside()?;
        match std::fs::rename(&self.dir, &aside) {
            Ok(()) => Ok(aside),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(aside),
            Err(e) => Err(self.io("rename", &e)),
        }
    }
}

fn tree_name(run: u64, number: u32) -> [u8; 13] {
    let mut name = [RUN; 13];
    name[1..9].copy_from_slice(&run.to_be_bytes());
    name[9..].copy_from_slice(&(number / TREE_BLOCKS).to_be_bytes());
    name
}

/// Which run the tree of this name is part of, if it is one.
fn run_of(name: &[u8]) -> Option<u64> {
    match name.split_first_chunk::<9>()? {
        ([RUN, run @ ..], [_, _, _, _]) => Some(u64::from_be_bytes(*run)),
        _ => None,
    }
}

fn block_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Has sled look at its cache once a leaf was gone through.
fn settle(tree: &sled::Tree, number: u32) -> sled::Result<()> {
    if number % LEAF_BLOCKS == LEAF_BLOCKS - 1 {
        for _ in 0..SETTLING {
            tree.contains_key(block_key(number))?;
        }
    }
    Ok(())
}

/// Opens the database in `dir`. One that this process has just dropped keeps its lock until sled's
/// own threads have let go of it; the lock of the data directory says that no other process can hold it.
fn open(dir: &Path) -> Result<sled::Db, Failure> {
    remove_unfinished_snapshots(dir)
        .map_err(|e| Failure::from(format!("cannot prepare it: {e}")))?;
    let give_up = Instant::now() + UNLOCK_MAX;
    loop {
        let opened =
            sled::Config::new().path(dir).cache_capacity(CACHE_BYTES).flush_every_ms(None).open();
        match opened {
            Err(sled::Error::Io(error)) if is_lock(&error) && Instant::now() < give_up => {
                std::thread::sleep(UNLOCK_PAUSE);
            }
            opened => return Ok(opened?),
        }
    }
}

/// sled makes an error of its own of a lock that is held, which only its text tells apart.
fn is_lock(error: &std::io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Removes what sled was writing when it was killed: it would not open beside that.
fn remove_unfinished_snapshots(dir: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|n| n.starts_with("snap.") && n.ends_with(".generating")) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Why sled did not do what it was asked for.
struct Failure {
    what: String,
    is_full: bool,
}

impl From<sled::Error> for Failure {
    fn from(error: sled::Error) -> Self {
        let is_full = match &error {
            sled::Error::Io(error) => {
                matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            _ => false,
        };
        Self { what: error.to_string(), is_full }
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self { what, is_full: false }
    }
}

impl From<&str> for Failure {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

#[cfg(test)]
mod tests;
