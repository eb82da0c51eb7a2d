//! The disk as a server sees it: files and locks that die with the process.
//!
//! *Owns* the handles. *Never* decides what a crash leaves.

use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_storage::fs::{DiskFile, FileLock, Fs, FsError, Reserved};

use super::{Disk, NameOp, SimFs};

#[derive(Debug)]
struct SimFile {
    fs: SimFs,
    path: PathBuf,
    inode: u64,
    epoch: u64,
}

#[derive(Debug)]
struct SimLock {
    fs: SimFs,
    path: PathBuf,
    epoch: u64,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.fs.disk();
        if disk.epoch == self.epoch {
            disk.locks.remove(&self.path);
        }
    }
}

impl SimFs {
    /// Does something to a disk that is alive.
    fn with<T>(
        &self,
        path: &Path,
        operation: &'static str,
        f: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> Result<T, FsError> {
        let mut disk = self.disk();
        let epoch = disk.epoch;
        disk.is_alive(epoch)
            .and_then(|()| f(&mut disk))
            .map_err(|error| FsError::new(path, operation, error))
    }

    fn handle(&self, path: &Path, inode: u64) -> Box<dyn DiskFile> {
        let epoch = self.disk().epoch;
        Box::new(SimFile { fs: self.clone(), path: path.to_owned(), inode, epoch })
    }
}

impl Fs for SimFs {
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let inode = self.with(path, "open", |disk| disk.file(path))?;
        Ok(self.handle(path, inode))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let inode = self.with(path, "create", |disk| disk.create(path))?;
        Ok(self.handle(path, inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.with(from, "rename", |disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<(), FsError> {
        self.with(path, "remove", |disk| {
            disk.file(path)?;
            disk.change_names(NameOp::Remove(path.to_owned()))
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError> {
        self.with(dir, "list", |disk| {
            let below = disk.names.range(dir.to_owned()..).map(|(path, _)| path);
            let below = below.take_while(|path| path.starts_with(dir));
            let names = below.filter(|path| path.parent() == Some(dir));
            Ok(names
                .filter_map(|path| path.file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect())
        })
    }

    fn create_dir(&self, dir: &Path) -> Result<(), FsError> {
        self.with(dir, "create directory", |disk| disk.create_dir(dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FsError> {
        self.with(dir, "sync directory", |disk| disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FsError> {
        let is_free = self.with(path, "lock", |disk| {
            if !disk.names.contains_key(path) {
                disk.create(path)?;
            }
            Ok(disk.locks.insert(path.to_owned()))
        })?;
        let epoch = self.disk().epoch;
        let lock = SimLock { fs: self.clone(), path: path.to_owned(), epoch };
        Ok(is_free.then(|| Box::new(lock) as Box<dyn FileLock>))
    }
}

impl SimFile {
    fn with<T>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> Result<T, FsError> {
        let mut disk = self.fs.disk();
        disk.is_alive(self.epoch)
            .and_then(|()| f(&mut disk))
            .map_err(|error| FsError::new(&self.path, operation, error))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        self.with("read", |disk| {
            let bytes = &disk.inodes.entry(self.inode).or_default().cached;
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), FsError> {
        self.with("write", |disk| disk.write(self.inode, offset as usize, bytes))
    }

    fn len(&self) -> Result<u64, FsError> {
        self.with("read the size of", |disk| {
            Ok(disk.inodes.entry(self.inode).or_default().cached.len() as u64)
        })
    }

    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError> {
        self.with("reserve space for", |disk| disk.preallocate(self.inode, len as usize))
    }

    fn sync(&mut self) -> Result<(), FsError> {
        self.with("sync", |disk| disk.sync(self.inode))
    }
}
