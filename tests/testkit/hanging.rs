//! File system whose syncs do not return until a test says so.
//!
//! *Owns* the switch. *Invariants*: everything but syncs is the operating system's; a sync that hung has its
//! effect when it returns.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lockkeeper::internals::storage::{DiskFile, FileLock, Fs, FsError, OsFs, Reserved};

/// See the module. Clones share the switch.
#[derive(Clone, Debug, Default)]
pub struct HangingFs(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    /// Files below these directories hang.
    hanging: Mutex<Vec<PathBuf>>,
    changed: Condvar,
}

impl Switch {
    fn hanging(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.hanging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, path: &Path) {
        let hangs = |hanging: &mut Vec<PathBuf>| hanging.iter().any(|dir| path.starts_with(dir));
        // A thread that was poisoned by another test's panic goes on.
        drop(self.changed.wait_while(self.hanging(), hangs));
    }
}

impl HangingFs {
    /// From now on every sync hangs, or none.
    pub fn hang(&self, hangs: bool) {
        self.hang_below(Path::new("/"), hangs);
    }

    /// From now on every sync of a file below this directory hangs, or none of those that hung for it.
    pub fn hang_below(&self, dir: &Path, hangs: bool) {
        let mut hanging = self.0.hanging();
        hanging.retain(|known| known != dir);
        if hangs {
            hanging.push(dir.to_owned());
        }
        self.0.changed.notify_all();
    }

    fn boxed(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(HangingFile { inner: file, path: path.to_owned(), switch: Arc::clone(&self.0) })
    }
}

impl Fs for HangingFs {
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        Ok(self.boxed(path, OsFs.open(path)?))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        Ok(self.boxed(path, OsFs.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        OsFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), FsError> {
        OsFs.remove(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError> {
        OsFs.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> Result<(), FsError> {
        OsFs.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FsError> {
        self.0.wait(dir);
        OsFs.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FsError> {
        OsFs.lock(path)
    }
}

#[derive(Debug)]
struct HangingFile {
    inner: Box<dyn DiskFile>,
    path: PathBuf,
    switch: Arc<Switch>,
}

impl DiskFile for HangingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), FsError> {
        self.inner.write_at(bytes, offset)
    }

    fn len(&self) -> Result<u64, FsError> {
        self.inner.len()
    }

    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError> {
        self.inner.preallocate(len)
    }

    fn sync(&mut self) -> Result<(), FsError> {
        self.switch.wait(&self.path);
        self.inner.sync()
    }
}
