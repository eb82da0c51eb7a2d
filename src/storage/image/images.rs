//! A whole state in one file.
//!
//! *Owns* the format and the directory of images. *Invariants*: a file with the name of an image,
//! received or own, was complete, synced, read back and verified before it got that name; records
//! are sorted by key; a change of any byte is noticed. *Never* removes an image newer than those
//! that its caller knows of. Takes the place of ZooKeeper's `SnapShot` (`FileSnap`).
//!
//! ```text
//! header   "LKIMAGE1", version u32, cluster u128, length u32 and bytes of the mark,
//!          crc32c u32 of the header
//! chunks   length u32 (> 0), records u32, crc32c u32 (of everything so far: it continues the one
//!          before), then per record: length of key u32, length of value u32, key, value
//! footer   0 u32, records in all u64, crc32c u32 (continued as well), end of file
//! ```
//!
//! The header has this frame in every version, so that its checksum can be verified before its
//! version is believed: a damaged version must not keep an older image from being used.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::formats::{Formats, KNOWN};
use crate::fs::{Fs, FsError};
use crate::mark;
use crate::throttle::WorkBudget;

pub(crate) const MAGIC: &[u8; 8] = b"LKIMAGE1";
const SUFFIX: &str = ".image";
/// A complete image of another server that the log does not begin behind yet.
const RECEIVED: &str = ".received";
/// No image has this index.
const NONE_HELD: u64 = u64::MAX;
/// Most received images that wait to be installed: a new one replaces the oldest.
const RECEIVED_KEPT_MAX: usize = 3;
/// A file that is being written.
const TEMPORARY: &str = ".tmp";
/// A file that turned out damaged.
const BAD: &str = ".bad";
/// Bytes of the header before the mark.
pub(crate) const FIXED_BYTES: usize = 8 + 4 + 16 + 4;
/// Most bytes an encoded mark can have.
pub(crate) const MARK_BYTES_MAX: usize = 56 + 2 * (4 + 8 * mark::MEMBERS_MAX);
/// A chunk ends once it has this many bytes.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
pub(crate) const CHUNK_HEADER_BYTES: usize = 12;
pub(crate) const FOOTER_BYTES: u64 = 16;

/// Why an image cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The file is not what was written.
    #[error("{}: damaged at offset {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What was expected, and what was found.
        what: String,
    },
    /// It was written by a later version.
    #[error("{}: image format version {version}, this program knows up to {}: use the \
             version of lockkeeper that wrote it", path.display(), KNOWN.image)]
    Future {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Who receives or gives the records objects.
    #[error("{}: {what}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The objection.
        what: String,
    },
}

/// Where an image of this server came from: decides its file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// It was written here, or received and installed.
    Own,
    /// It was received from another server and is not installed.
    Received,
}

/// The images of a server. Clones share a directory: the state thread writes images and removes old
/// ones, images are received and sent, and the log thread installs them, all at the same time.
#[derive(Clone)]
pub struct Images {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) cluster_id: u128,
    /// Numbers the files being written, so that two of the same index are two files.
    begun: Arc<AtomicU64>,
    /// The received image that is to be installed, or [`NONE_HELD`].
    held: Arc<AtomicU64>,
    /// What reading one asks; this clone's.
    pub(crate) work_budget: WorkBudget,
    pub(crate) formats: Formats,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Images {
    /// The images in `dir`, which must exist before one is written.
    #[must_use]
    pub fn new(fs: Arc<dyn Fs>, dir: &Path, cluster_id: u128) -> Self {
        let held = Arc::new(AtomicU64::new(NONE_HELD));
        let (dir, begun, work_budget) = (dir.to_owned(), Arc::default(), WorkBudget::default());
        let formats = Formats::default();
        Self { fs, dir, cluster_id, begun, held, work_budget, formats }
    }

    /// The same images; new ones are written as `formats` says.
    #[must_use]
    pub(crate) fn writing(self, formats: &Formats) -> Self {
        Self { formats: formats.clone(), ..self }
    }

    /// The same images; reading them asks this how much of a core it may take.
    #[must_use]
    pub fn asking(&self, work_budget: &WorkBudget) -> Self {
        Self { work_budget: work_budget.clone(), ..self.clone() }
    }

    /// Indexes of all images, newest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<u64>, FsError> {
        self.indexes("")
    }

    /// Indexes of the images that were received and are not installed, newest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn received(&self) -> Result<Vec<u64>, FsError> {
        self.indexes(RECEIVED)
    }

    fn indexes(&self, suffix: &str) -> Result<Vec<u64>, FsError> {
        let names = self.fs.list(&self.dir)?;
        let mut indexes: Vec<u64> =
            names.iter().filter_map(|n| index_of(n.strip_suffix(suffix)?)).collect();
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        Ok(indexes)
    }

    /// The file of the image at `index`.
    #[must_use]
    pub fn path(&self, index: u64) -> PathBuf {
        self.file(index, Copy::Own)
    }

    pub(crate) fn file(&self, index: u64, copy: Copy) -> PathBuf {
        match copy {
            Copy::Own => self.dir.join(file_name(index)),
            Copy::Received => self.dir.join(format!("{}{RECEIVED}", file_name(index))),
        }
    }

    /// Where an image is written before it gets its name.
    pub(crate) fn temporary(&self, index: u64) -> PathBuf {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{}.{number}{TEMPORARY}", file_name(index)))
    }

    /// Removes what is too old to be installed, before one more image is received.
    pub(super) fn make_room(&self) -> Result<(), FsError> {
        let held = self.held.load(Ordering::Acquire);
        let older = self.received()?.into_iter().skip(RECEIVED_KEPT_MAX - 1);
        for index in older.filter(|index| *index != held) {
            self.fs.remove(&self.file(index, Copy::Received))?;
        }
        Ok(())
    }

    /// The received image at this index is to be installed, and no other one before that is done: no newer
    /// one takes its place, however long the log's disk takes.
    pub fn hold_received(&self, index: u64) {
        self.held.store(index, Ordering::Release);
    }

    /// It is installed.
    pub(crate) fn release_received(&self) {
        self.held.store(NONE_HELD, Ordering::Release);
    }

    /// Makes the received image at `index` one of this server's own; durable on return. The log must
    /// begin behind it.
    ///
    /// # Errors
    /// The file system failed.
    pub(crate) fn install(&self, index: u64) -> Result<(), FsError> {
        self.fs.rename(&self.file(index, Copy::Received), &self.path(index))?;
        self.fs.sync_dir(&self.dir)
    }

    /// Removes received images up to `index`: a newer one was installed, or they never will be.
    ///
    /// # Errors
    /// The file system failed.
    pub fn forget_received(&self, index: u64) -> Result<(), FsError> {
        for index in self.received()?.into_iter().filter(|i| *i <= index) {
            self.fs.remove(&self.file(index, Copy::Received))?;
        }
        Ok(())
    }

    /// Removes the images older than the newest one at `indexes` but those. Newer ones stay: the
    /// log thread may have installed one that the caller does not know of yet.
    ///
    /// # Errors
    /// The file system failed.
    pub fn retain(&self, indexes: &[u64]) -> Result<(), FsError> {
        let newest = indexes.iter().copied().max().unwrap_or(0);
        for index in self.list()?.into_iter().filter(|i| *i < newest && !indexes.contains(i)) {
            // No image any more before anything of it is gone.
            let path = self.temporary(index);
            self.fs.rename(&self.path(index), &path)?;
            self.fs.sync_dir(&self.dir)?;
            self.fs.remove_gently(&path)?;
        }
        self.fs.sync_dir(&self.dir)
    }

    /// Removes files that never became an image.
    ///
    /// # Errors
    /// The file system failed.
    pub fn remove_unfinished(&self) -> Result<(), FsError> {
        for name in self.fs.list(&self.dir)?.iter().filter(|n| n.ends_with(TEMPORARY)) {
            self.fs.remove(&self.dir.join(name))?;
        }
        Ok(())
    }

    /// Gives a damaged image another name, so that it is kept but not tried again. Returns that.
    ///
    /// # Errors
    /// The file system failed.
    pub fn set_aside(&self, index: u64) -> Result<PathBuf, FsError> {
        let path = self.path(index);
        let bad = self.dir.join(format!("{}{BAD}", file_name(index)));
        self.fs.rename(&path, &bad)?;
        self.fs.sync_dir(&self.dir)?;
        Ok(bad)
    }
}

fn file_name(index: u64) -> String {
    format!("{index:016x}{SUFFIX}")
}

fn index_of(name: &str) -> Option<u64> {
    let index = u64::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()?;
    (file_name(index) == name).then_some(index)
}

/// crc32c of a chunk, header included, its own four bytes not, continuing `before`.
pub(crate) fn chunk_crc(before: u32, chunk: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(before, &chunk[..8]), &chunk[12..])
}
