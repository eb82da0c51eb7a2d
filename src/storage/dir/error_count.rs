//! How many errors have ended the servers of a data directory: a count that outlives its process.
//!
//! *Owns* the file `errors`. A server that an error ends is gone before a collector of metrics asks it again, so it is
//! the process after it that tells. *Invariants*: an error is counted once; the file has its length before it is
//! needed, so that a disk without room takes a larger number. *Never* refuses a start: a file that cannot be read
//! counts as none, because nothing but what operators see depends on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::fs::{Fs, FsError, read_file};

const FILE: &str = "errors";
/// Bytes of the file: a number with leading zeros, and the end of its line.
const BYTES: u64 = 21;

/// See the module.
#[derive(Debug)]
pub struct ErrorCount {
    /// `None` in memory, where nothing is kept.
    file: Option<(Arc<dyn Fs>, PathBuf)>,
    before: OnceLock<u64>,
    is_added: AtomicBool,
}

impl ErrorCount {
    /// That of the data directory `dir`, if there is one. Looks at no file yet.
    #[must_use]
    pub fn of(fs: Arc<dyn Fs>, dir: Option<&Path>) -> Self {
        let file = dir.map(|dir| (fs, dir.join(FILE)));
        Self { file, before: OnceLock::new(), is_added: AtomicBool::new(false) }
    }

    /// How many there were before this process. The first call reads the file.
    pub fn before(&self) -> u64 {
        *self.before.get_or_init(|| {
            let read = |(fs, path): &(Arc<dyn Fs>, PathBuf)| {
                String::from_utf8(read_file(&**fs, path, BYTES).ok()?).ok()?.trim().parse().ok()
            };
            self.file.as_ref().and_then(read).unwrap_or(0)
        })
    }

    /// Makes the file if it is not there. To be called by who holds the directory's lock.
    ///
    /// # Errors
    /// The file system failed.
    pub fn keep(&self) -> Result<(), FsError> {
        match &self.file {
            Some((fs, path)) if !is_there(&**fs, path)? => write(&**fs, path, self.before()),
            _ => Ok(()),
        }
    }

    /// An error ends the server. The first call counts it.
    ///
    /// # Errors
    /// The file system failed: the next process does not know.
    pub fn add(&self) -> Result<(), FsError> {
        match &self.file {
            Some((fs, path)) if !self.is_added.swap(true, Ordering::Relaxed) => {
                write(&**fs, path, self.before() + 1)
            }
            _ => Ok(()),
        }
    }
}

fn is_there(fs: &dyn Fs, path: &Path) -> Result<bool, FsError> {
    fs.has(path.parent().unwrap_or(Path::new(".")), FILE)
}

/// It need not outlive the machine: that one ended is not this server's error.
fn write(fs: &dyn Fs, path: &Path, count: u64) -> Result<(), FsError> {
    let mut file = if is_there(fs, path)? { fs.open(path)? } else { fs.create(path)? };
    file.write_at(format!("{count:020}\n").as_bytes(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsFs;

    fn of(dir: &Path) -> ErrorCount {
        ErrorCount::of(Arc::new(OsFs), Some(dir))
    }

    #[test]
    fn the_next_process_knows_of_an_error_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = of(dir.path());
        assert_eq!(first.before(), 0);
        first.keep().unwrap();
        let len = || std::fs::metadata(dir.path().join(FILE)).unwrap().len();
        assert_eq!(len(), BYTES, "its place is there before it is needed");
        first.add().unwrap();
        first.add().unwrap();
        assert_eq!(first.before(), 0, "it was not before");
        let second = of(dir.path());
        second.keep().unwrap();
        assert_eq!(second.before(), 1);
        second.add().unwrap();
        assert_eq!((of(dir.path()).before(), len()), (2, BYTES));
    }

    #[test]
    fn a_file_of_something_else_counts_as_none_and_is_made_right() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "who knows\n").unwrap();
        let count = of(dir.path());
        assert_eq!(count.before(), 0);
        count.add().unwrap();
        assert_eq!(of(dir.path()).before(), 1);
    }

    #[test]
    fn nothing_is_kept_in_memory() {
        let count = ErrorCount::of(Arc::new(OsFs), None);
        count.keep().unwrap();
        count.add().unwrap();
        assert_eq!(count.before(), 0);
    }
}
