//! What the disk code needs of a file system, and the real one.
//!
//! *Owns* the traits [`Fs`] and [`DiskFile`], which a simulated disk implements as well, and
//! [`OsFs`]. *Invariants*: names become durable only by [`Fs::sync_dir`], contents only by
//! [`DiskFile::sync`]; an open file stays valid when it is renamed. *Never* retries a failed sync,
//! and never hides which file and which operation failed.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

/// What a device reads or writes at once, or a multiple of it, on all devices in use: what goes past the
/// cache has to begin, end and lie in memory at multiples of this.
pub const BLOCK_BYTES: usize = 4096;

/// What is removed of a large file at a time.
const REMOVED_BYTES: u64 = 1 << 20;
/// How many times as long as that took, the next step waits.
const REMOVAL_PAUSE_TIMES: u32 = 4;
/// It waits at least so long: what is given back may have the disk only when the file system commits that.
const REMOVAL_PAUSE_MIN: Duration = Duration::from_millis(4);

/// A file system operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {operation}: {source}{}", path.display(), advice(source))]
pub struct FsError {
    /// The file or directory.
    pub path: PathBuf,
    /// What was tried: `open`, `write`, `sync`...
    pub operation: &'static str,
    /// What the operating system said.
    pub source: io::Error,
}

impl FsError {
    /// An error of `operation` on `path`.
    pub fn new(path: &Path, operation: &'static str, source: io::Error) -> Self {
        Self { path: path.to_owned(), operation, source }
    }

    /// Whether space or quota ran out: may pass by itself once somebody makes room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// What an operator can do about it.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull => {
            ": make room on this disk, or have dataDir name a directory on a larger one"
        }
        io::ErrorKind::QuotaExceeded => ": raise the quota, or have dataDir name another directory",
        io::ErrorKind::PermissionDenied => {
            ": give the directory to the user of this process (chown)"
        }
        io::ErrorKind::ReadOnlyFilesystem => ": have dataDir name a directory that can be written",
        io::ErrorKind::NotADirectory => ": dataDir is to name a directory",
        _ => "",
    }
}

/// Whether the blocks of a preallocated file exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// They do: writing into them cannot run out of space.
    Yes,
    /// The file system cannot reserve, or has no room for all: the file is sparse.
    No,
}

/// Held as long as the lock is; dropping it releases.
pub trait FileLock: Send + Sync + fmt::Debug {}

/// A file system. Paths are absolute or relative to the process; every method takes whole paths.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// It does not exist or cannot be opened.
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError>;

    /// Creates an empty file. Its name is durable only after [`Fs::sync_dir`].
    ///
    /// # Errors
    /// It exists already, or cannot be created.
    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError>;

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove(&self, path: &Path) -> Result<(), FsError>;

    /// Removes a large file little by little, so that others who wait for the disk have it in between. One
    /// that is open for reading stays whole until it is closed. To be called by who can wait.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove_gently(&self, path: &Path) -> Result<(), FsError> {
        self.remove(path)
    }

    /// Names in a directory, sorted; empty if the directory does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError>;

    /// Whether a directory has this name in it.
    ///
    /// # Errors
    /// It cannot be read.
    fn has(&self, dir: &Path, name: &str) -> Result<bool, FsError> {
        Ok(self.list(dir)?.iter().any(|there| there == name))
    }

    /// Creates a directory and its parents, if they do not exist.
    ///
    /// # Errors
    /// As the operating system says.
    fn create_dir(&self, dir: &Path) -> Result<(), FsError>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As the operating system says.
    fn sync_dir(&self, dir: &Path) -> Result<(), FsError>;

    /// Takes an exclusive lock on a file (created if missing) without waiting; `None` if another
    /// holder has it. It ends with its holder, also when that is killed.
    ///
    /// # Errors
    /// The file cannot be created or locked.
    fn lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FsError>;
}

/// An open file.
pub trait DiskFile: Send + fmt::Debug {
    /// Reads into `buffer` from `offset`; returns how many bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError>;

    /// Writes all of `bytes` at `offset`. Durable only after [`DiskFile::sync`].
    ///
    /// # Errors
    /// As the operating system says; some of the bytes may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), FsError>;

    /// Size in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn len(&self) -> Result<u64, FsError>;

    /// Whether it holds no byte.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> Result<bool, FsError> {
        Ok(self.len()? == 0)
    }

    /// Grows an empty file to `len` zero bytes, reserving their blocks where that is possible.
    ///
    /// # Errors
    /// The size cannot be set. That blocks cannot be reserved is not an error.
    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError>;

    /// From now on, writes of whole blocks ([`BLOCK_BYTES`]) may go past the operating system's
    /// cache, so that a sync has only the device to wait for. For a file that has not been renamed.
    fn write_past_cache(&mut self) {}

    /// From now on, reads of whole blocks may go past the operating system's cache, so that what is read
    /// is what the device has. For a file that has not been renamed.
    fn read_past_cache(&mut self) {}

    /// Makes contents and size durable.
    ///
    /// # Errors
    /// As the operating system says. After one, nothing is known about what was written before: the
    /// file must not be trusted again.
    fn sync(&mut self) -> Result<(), FsError>;
}

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFs;

#[derive(Debug)]
struct OsFile {
    file: std::fs::File,
    /// The same file, opened so that it is written to past the cache, or read.
    direct_writes: Option<std::fs::File>,
    direct_reads: Option<std::fs::File>,
    path: PathBuf,
}

impl OsFile {
    fn boxed(file: std::fs::File, path: &Path) -> Box<dyn DiskFile> {
        Box::new(Self { file, direct_writes: None, direct_reads: None, path: path.to_owned() })
    }

    fn open_direct(&self, options: &mut OpenOptions) -> Option<std::fs::File> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        match options.custom_flags(flags).open(&self.path) {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::debug!(target: crate::TARGET, file = %self.path.display(), %error, "the cache is not passed");
                None
            }
        }
    }

    /// Reads past the cache what can be read like that.
    fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(direct) = self.direct_reads.as_ref().filter(|_| is_aligned(buffer, offset)) {
            match direct.read_at(buffer, offset) {
                Err(e) if wants_the_cache(&e) => {}
                read => return read,
            }
        }
        self.file.read_at(buffer, offset)
    }

    /// Tries to write past the cache; false: it has to go through it.
    fn write_direct(&mut self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let Some(direct) = self.direct_writes.as_ref().filter(|_| is_aligned(bytes, offset)) else {
            return Ok(false);
        };
        match direct.write_all_at(bytes, offset) {
            Err(e) if wants_the_cache(&e) => {
                self.direct_writes = None;
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }
}

/// Whether the file system cannot do without the cache: it wants larger blocks, or says only now that
/// it knows of no way past it.
fn wants_the_cache(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Whether these are whole blocks, in memory as in the file.
fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    offset.is_multiple_of(BLOCK_BYTES as u64)
        && bytes.len().is_multiple_of(BLOCK_BYTES)
        && bytes.as_ptr().align_offset(BLOCK_BYTES) == 0
}

/// Gives the room of a file back, but for the last step: what a disk does to forget much at once keeps
/// everybody waiting for tens of milliseconds. Whatever fails, fails again when the file is removed.
fn shrink(file: &std::fs::File) {
    let mut len = file.metadata().map_or(0, |metadata| metadata.len());
    while len > REMOVED_BYTES {
        len -= REMOVED_BYTES;
        let begun = Instant::now();
        if file.set_len(len).is_err() {
            return;
        }
        std::thread::sleep((REMOVAL_PAUSE_TIMES * begun.elapsed()).max(REMOVAL_PAUSE_MIN));
    }
}

#[derive(Debug)]
struct OsLock(std::fs::File);

impl FileLock for OsLock {}

impl Drop for OsLock {
    /// A process that this one is just starting has a copy of every open file until it becomes another program: to
    /// close the file would leave it locked until then, and who locks it again meanwhile would be refused.
    fn drop(&mut self) {
        // Where that fails, the file is closed now.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Fs for OsFs {
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| FsError::new(path, "open", e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            // It is being removed.
            Err(e @ Errno::WOULDBLOCK) => Err(FsError::new(path, "open", e.into())),
            // Where there are no locks, nothing is removed little by little.
            Ok(()) | Err(_) => Ok(OsFile::boxed(file, path)),
        }
    }

    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|e| FsError::new(path, "create", e))?;
        Ok(OsFile::boxed(file, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        std::fs::rename(from, to).map_err(|e| FsError::new(from, "rename", e))
    }

    fn remove(&self, path: &Path) -> Result<(), FsError> {
        std::fs::remove_file(path).map_err(|e| FsError::new(path, "remove", e))
    }

    fn remove_gently(&self, path: &Path) -> Result<(), FsError> {
        let file = OpenOptions::new().write(true).open(path);
        if let Ok(file) = file
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            shrink(&file);
        }
        self.remove(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(FsError::new(dir, "list", e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| FsError::new(dir, "list", e))?;
            // A name that is not UTF-8 is none of ours.
            names.extend(entry.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> Result<(), FsError> {
        std::fs::create_dir_all(dir).map_err(|e| FsError::new(dir, "create directory", e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FsError> {
        std::fs::File::open(dir)
            .and_then(|d| d.sync_all())
            .map_err(|e| FsError::new(dir, "sync directory", e))
    }

    fn lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FsError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| FsError::new(path, "open", e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(OsLock(file)))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(FsError::new(path, "lock", e.into())),
        }
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_some(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(FsError::new(&self.path, "read", e)),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), FsError> {
        let written = match self.write_direct(bytes, offset) {
            Ok(false) => self.file.write_all_at(bytes, offset),
            Ok(true) => Ok(()),
            Err(e) => Err(e),
        };
        written.map_err(|e| FsError::new(&self.path, "write", e))
    }

    fn len(&self) -> Result<u64, FsError> {
        let metadata =
            self.file.metadata().map_err(|e| FsError::new(&self.path, "read the size of", e))?;
        Ok(metadata.len())
    }

    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError> {
        // With the size set once, an append changes no metadata that fdatasync would have to write.
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(Reserved::Yes),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOSPC | Errno::DQUOT) => {}
            Err(e) => return Err(FsError::new(&self.path, "reserve space for", e.into())),
        }
        self.file.set_len(len).map_err(|e| FsError::new(&self.path, "set the size of", e))?;
        Ok(Reserved::No)
    }

    fn write_past_cache(&mut self) {
        self.direct_writes = self.open_direct(OpenOptions::new().write(true));
    }

    fn read_past_cache(&mut self) {
        self.direct_reads = self.open_direct(OpenOptions::new().read(true));
    }

    fn sync(&mut self) -> Result<(), FsError> {
        self.file.sync_data().map_err(|e| FsError::new(&self.path, "sync", e))
    }
}

/// Makes a file of these contents, in place of one that is there. Its name is durable only after [`Fs::sync_dir`].
pub(crate) fn write_file(fs: &dyn Fs, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FsError> {
    let path = dir.join(name);
    if fs.has(dir, name)? {
        fs.remove(&path)?;
    }
    let mut file = fs.create(&path)?;
    file.write_at(bytes, 0)?;
    file.sync()
}

/// The whole contents of a file of at most `max` bytes.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn read_file(fs: &dyn Fs, path: &Path, max: u64) -> Result<Vec<u8>, FsError> {
    let file = fs.open(path)?;
    let len = file.len()?;
    if len > max {
        let e = io::Error::other(format!("{len} bytes, more than the {max} it may have"));
        return Err(FsError::new(path, "read", e));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preallocated_file_reads_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = OsFs.create(&dir.path().join("f")).unwrap();
        file.preallocate(10_000).unwrap();
        file.write_at(b"abc", 5_000).unwrap();
        file.sync().unwrap();
        let mut bytes = vec![1; 20_000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10_000);
        assert_eq!(&bytes[4_999..5_004], b"\0abc\0");
        assert_eq!(file.len().unwrap(), 10_000);
    }

    #[test]
    fn who_reads_a_file_that_is_removed_reads_it_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let len = 2 * REMOVED_BYTES + 5;
        for is_read in [false, true] {
            OsFs.create(&path).unwrap().preallocate(len).unwrap();
            let reader = is_read.then(|| OsFs.open(&path).unwrap());
            OsFs.remove_gently(&path).unwrap();
            assert!(!path.exists());
            assert!(reader.is_none_or(|file| file.len().unwrap() == len));
        }
    }

    #[test]
    fn a_large_file_shrinks_before_it_is_removed_and_cannot_be_opened_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        OsFs.create(&path).unwrap().preallocate(3 * REMOVED_BYTES + 5).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        shrink(&file);
        assert_eq!(file.metadata().unwrap().len(), 5);
        let error = OsFs.open(&path).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::WouldBlock);
        drop(file);
        OsFs.open(&path).unwrap();
    }

    #[test]
    fn a_lock_is_exclusive_and_ends_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = OsFs.lock(&path).unwrap();
        assert!(held.is_some());
        assert!(OsFs.lock(&path).unwrap().is_none());
        drop(held);
        assert!(OsFs.lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_ends_with_its_holder_even_if_a_child_that_is_being_started_has_a_copy_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = std::fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        // As behind a fork: the same open file twice.
        let _of_child = file.try_clone().unwrap();
        drop(OsLock(file));
        assert!(OsFs.lock(&path).unwrap().is_some());
    }

    #[test]
    fn errors_name_the_file_and_the_operation() {
        let e = OsFs.open(Path::new("/nonexistent/file")).unwrap_err();
        assert!(e.to_string().starts_with("/nonexistent/file: cannot open: "), "{e}");
    }

    #[test]
    fn a_missing_directory_lists_as_empty() {
        assert_eq!(OsFs.list(Path::new("/nonexistent")).unwrap(), Vec::<String>::new());
    }
}
