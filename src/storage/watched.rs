//! File system whose calls in progress are known to other threads.
//!
//! *Owns* which thread waits for which call on which file, and since when. *Invariants*: a call is known
//! from before it is made until it has returned or its thread has unwound; to look waits for no disk.
//! *Never* ends or repeats a call: a system call that hangs cannot be given up.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Thread, ThreadId};
use std::time::Instant;

use super::fs::{DiskFile, FileLock, Fs, FsError, Reserved};

/// A call that has not returned.
#[derive(Clone, Debug)]
pub struct DiskCall {
    thread: Thread,
    /// The system call, or what is done by several of them.
    pub operation: &'static str,
    /// The file or directory.
    pub path: Arc<Path>,
    /// When it was made.
    pub since: Instant,
}

impl DiskCall {
    /// The name of the thread that waits for it.
    #[must_use]
    pub fn thread(&self) -> &str {
        self.thread.name().unwrap_or("a thread without a name")
    }
}

/// The calls of one server that have not returned: at most one for each thread.
#[derive(Debug, Default)]
pub struct DiskCalls(Mutex<Vec<DiskCall>>);

impl DiskCalls {
    /// Makes a call that others can see.
    pub fn during<T>(
        &self,
        operation: &'static str,
        path: &Arc<Path>,
        call: impl FnOnce() -> T,
    ) -> T {
        let thread = std::thread::current();
        let _seen = Seen { calls: self, thread: thread.id() };
        let (path, since) = (Arc::clone(path), Instant::now());
        self.with(|calls| calls.push(DiskCall { thread, operation, path, since }));
        call()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<DiskCall> {
        self.with(|calls| calls.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<DiskCall>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A call that is known until this is dropped.
struct Seen<'a> {
    calls: &'a DiskCalls,
    thread: ThreadId,
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.calls.with(|calls| {
            // The innermost, where one call is made of others.
            if let Some(at) = calls.iter().rposition(|call| call.thread.id() == self.thread) {
                calls.swap_remove(at);
            }
        });
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WatchedFs {
    inner: Arc<dyn Fs>,
    calls: Arc<DiskCalls>,
}

impl WatchedFs {
    /// That file system.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, calls: Arc::default() }
    }

    /// What is in progress.
    #[must_use]
    pub fn calls(&self) -> &Arc<DiskCalls> {
        &self.calls
    }

    fn during<T>(&self, operation: &'static str, path: &Path, call: impl FnOnce() -> T) -> T {
        self.calls.during(operation, &Arc::from(path), call)
    }

    fn watch(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(WatchedFile { inner: file, path: Arc::from(path), calls: Arc::clone(&self.calls) })
    }
}

impl Fs for WatchedFs {
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let file = self.during("open", path, || self.inner.open(path))?;
        Ok(self.watch(path, file))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let file = self.during("creation", path, || self.inner.create(path))?;
        Ok(self.watch(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.during("rename", to, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<(), FsError> {
        self.during("unlink", path, || self.inner.remove(path))
    }

    fn remove_gently(&self, path: &Path) -> Result<(), FsError> {
        // It rests in between: that is no call.
        self.inner.remove_gently(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError> {
        self.during("readdir", dir, || self.inner.list(dir))
    }

    fn create_dir(&self, dir: &Path) -> Result<(), FsError> {
        self.during("mkdir", dir, || self.inner.create_dir(dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FsError> {
        self.during("fsync", dir, || self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FsError> {
        self.during("flock", path, || self.inner.lock(path))
    }
}

#[derive(Debug)]
struct WatchedFile {
    inner: Box<dyn DiskFile>,
    path: Arc<Path>,
    calls: Arc<DiskCalls>,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        self.calls.during("read", &self.path, || self.inner.read_at(buffer, offset))
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), FsError> {
        self.calls.during("write", &self.path, || self.inner.write_at(bytes, offset))
    }

    fn len(&self) -> Result<u64, FsError> {
        self.calls.during("stat", &self.path, || self.inner.len())
    }

    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError> {
        self.calls.during("fallocate", &self.path, || self.inner.preallocate(len))
    }

    fn write_past_cache(&mut self) {
        self.calls.during("open", &self.path, || self.inner.write_past_cache());
    }

    fn read_past_cache(&mut self) {
        self.calls.during("open", &self.path, || self.inner.read_past_cache());
    }

    fn sync(&mut self) -> Result<(), FsError> {
        self.calls.during("fdatasync", &self.path, || self.inner.sync())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_call_is_known_until_it_returns_or_unwinds() {
        let (calls, path) = (DiskCalls::default(), Arc::from(PathBuf::from("/data/1.log")));
        calls.during("fdatasync", &path, || {
            let all = calls.all();
            assert_eq!((all.len(), all[0].operation, &all[0].path), (1, "fdatasync", &path));
            calls.during("write", &path, || assert_eq!(calls.all().len(), 2));
            assert_eq!(calls.all()[0].operation, "fdatasync");
        });
        assert!(calls.all().is_empty());
        let unwinds = std::panic::AssertUnwindSafe(|| calls.during("read", &path, || panic!("x")));
        assert!(std::panic::catch_unwind(unwinds).is_err());
        assert!(calls.all().is_empty());
    }
}
