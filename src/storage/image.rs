//! A whole state in one file.
//!
//! *Owns* the format and the directory of images. *Invariants*: a file with the name of an image
//! was complete, synced, read back and verified before it got that name; records are sorted by key;
//! a change of any byte is noticed. *Never* believes a length before it is known to fit the file.
//! Takes the place of ZooKeeper's `SnapShot` (`FileSnap`).
//!
//! ```text
//! header   "LKIMAGE1", version u32, cluster u128, length u32 and bytes of the mark,
//!          crc32c u32 of the header
//! chunks   length u32 (> 0), records u32, crc32c u32 (of everything so far: it continues the one
//!          before), then per record: length of key u32, length of value u32, key, value
//! footer   0 u32, records in all u64, crc32c u32 (continued as well), end of file
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fs::{DiskFile, Fs, FsError};
use super::mark::{self, take};
use super::state::Take;
use crate::replica::Mark;

/// Version of the image's format.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"LKIMAGE1";
const SUFFIX: &str = ".image";
/// A file that is being written.
const TEMPORARY: &str = ".tmp";
/// A file that turned out damaged.
const BAD: &str = ".bad";
/// Bytes of the header before the mark.
const FIXED_BYTES: usize = 8 + 4 + 16 + 4;
/// Most bytes an encoded mark can have.
const MARK_BYTES_MAX: usize = 56 + 2 * (4 + 8 * mark::MEMBERS_MAX);
/// A chunk ends once it has this many bytes.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_HEADER_BYTES: usize = 12;
const FOOTER_BYTES: u64 = 16;

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
    #[error("{}: image format version {version}, this program knows up to {VERSION}: use the \
             version of lockkeeper that wrote it", path.display())]
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

/// The images of a server.
#[derive(Clone)]
pub struct Images {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    cluster_id: u128,
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
        Self { fs, dir: dir.to_owned(), cluster_id }
    }

    /// Indexes of all images, newest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<u64>, FsError> {
        let names = self.fs.list(&self.dir)?;
        let mut indexes: Vec<u64> = names.iter().filter_map(|n| index_of(n)).collect();
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        Ok(indexes)
    }

    /// The file of the image at `index`.
    #[must_use]
    pub fn path(&self, index: u64) -> PathBuf {
        self.dir.join(file_name(index))
    }

    /// Opens the image at `index` and verifies its header.
    ///
    /// # Errors
    /// It is missing, damaged, of a later version or of another cluster.
    pub fn open(&self, index: u64) -> Result<ImageReader, ImageError> {
        let path = self.path(index);
        let reader = ImageReader::open(&*self.fs, &path, self.cluster_id)?;
        if reader.mark.index != index {
            let what = format!("it holds the state at index {}, by its header", reader.mark.index);
            return Err(ImageError::Damaged { path, offset: 0, what });
        }
        Ok(reader)
    }

    /// Begins an image of `mark`.
    ///
    /// # Errors
    /// The file system failed.
    pub fn create(&self, mark: &Mark) -> Result<ImageWriter, ImageError> {
        ImageWriter::create(self, mark)
    }

    /// Removes all images but those at `indexes`.
    ///
    /// # Errors
    /// The file system failed.
    pub fn retain(&self, indexes: &[u64]) -> Result<(), FsError> {
        for index in self.list()?.into_iter().filter(|i| !indexes.contains(i)) {
            self.fs.remove(&self.path(index))?;
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

/// An image being written. Dropped before [`ImageWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct ImageWriter {
    images: Images,
    mark: Mark,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    offset: u64,
    crc: u32,
    /// The chunk being filled, with room for its header.
    chunk: Vec<u8>,
    chunk_records: u32,
    records: u64,
    last_key: Vec<u8>,
}

impl ImageWriter {
    fn create(images: &Images, mark: &Mark) -> Result<Self, ImageError> {
        let path = images.dir.join(format!("{}{TEMPORARY}", file_name(mark.index)));
        let name = path.file_name().unwrap_or_default();
        if images.fs.list(&images.dir)?.iter().any(|n| name == n.as_str()) {
            images.fs.remove(&path)?;
        }
        let mut header = Vec::with_capacity(256);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&images.cluster_id.to_le_bytes());
        let mut encoded = Vec::new();
        mark::encode(mark, &mut encoded);
        let len = u32::try_from(encoded.len()).expect("at most MARK_BYTES_MAX");
        header.extend_from_slice(&len.to_le_bytes());
        header.extend_from_slice(&encoded);
        let crc = crc32c::crc32c(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        let mut writer = Self {
            file: Some(images.fs.create(&path)?),
            images: images.clone(),
            mark: mark.clone(),
            path,
            offset: 0,
            crc,
            chunk: Vec::with_capacity(CHUNK_BYTES + 4096),
            chunk_records: 0,
            records: 0,
            last_key: Vec::new(),
        };
        writer.write(&header)?;
        writer.chunk.resize(CHUNK_HEADER_BYTES, 0);
        Ok(writer)
    }

    /// Adds a record. Keys must come in ascending order.
    ///
    /// # Errors
    /// They do not, or the file system failed.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        if self.records > 0 && key <= &self.last_key[..] {
            return Err(self.refused("keys do not ascend".to_owned()));
        }
        let (Ok(key_len), Ok(value_len)) = (u32::try_from(key.len()), u32::try_from(value.len()))
        else {
            return Err(self.refused("a record of more than 4 GiB".to_owned()));
        };
        if self.chunk_records > 0 && self.chunk.len() + key.len() + value.len() > CHUNK_BYTES {
            self.flush()?;
        }
        self.chunk.extend_from_slice(&key_len.to_le_bytes());
        self.chunk.extend_from_slice(&value_len.to_le_bytes());
        self.chunk.extend_from_slice(key);
        self.chunk.extend_from_slice(value);
        self.chunk_records += 1;
        self.records += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Completes the file, syncs it, reads all of it back, and only then gives it its name. Returns
    /// its size in bytes.
    ///
    /// # Errors
    /// The number of records is not that of the mark, what is read is not what was written, or the
    /// file system failed. Nothing is left behind then.
    pub fn finish(mut self) -> Result<u64, ImageError> {
        if self.records != self.mark.records {
            let what = format!("{} records, expected {}", self.records, self.mark.records);
            return Err(self.refused(what));
        }
        self.flush()?;
        let mut footer = [0; FOOTER_BYTES as usize];
        footer[4..12].copy_from_slice(&self.records.to_le_bytes());
        self.crc = crc32c::crc32c_append(self.crc, &footer[..12]);
        footer[12..].copy_from_slice(&self.crc.to_le_bytes());
        self.write(&footer)?;
        self.file.as_mut().expect("open until here").sync()?;
        self.file = None;

        let images = &self.images;
        let mut reader = ImageReader::open(&*images.fs, &self.path, images.cluster_id)?;
        if reader.mark != self.mark || reader.crc_after(&mut |_, _| Ok(()))? != self.crc {
            return Err(self.refused("what was read back is not what was written".to_owned()));
        }
        images.fs.rename(&self.path, &images.path(self.mark.index))?;
        self.path = PathBuf::new();
        images.fs.sync_dir(&images.dir)?;
        Ok(self.offset)
    }

    fn flush(&mut self) -> Result<(), ImageError> {
        if self.chunk_records == 0 {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        let Ok(len) = u32::try_from(chunk.len() - CHUNK_HEADER_BYTES) else {
            return Err(self.refused("a record of nearly 4 GiB".to_owned()));
        };
        chunk[..4].copy_from_slice(&len.to_le_bytes());
        chunk[4..8].copy_from_slice(&self.chunk_records.to_le_bytes());
        self.crc = chunk_crc(self.crc, &chunk);
        chunk[8..12].copy_from_slice(&self.crc.to_le_bytes());
        let written = self.write(&chunk);
        chunk.truncate(CHUNK_HEADER_BYTES);
        self.chunk = chunk;
        self.chunk_records = 0;
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.file.as_mut().expect("open until finished").write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn refused(&self, what: String) -> ImageError {
        ImageError::Refused { path: self.path.clone(), what }
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        self.file = None;
        if let Err(error) = self.images.fs.remove(&self.path) {
            tracing::warn!(%error, "an unfinished image stays behind");
        }
    }
}

/// crc32c of a chunk, header included, its own four bytes not, continuing `before`.
fn chunk_crc(before: u32, chunk: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(before, &chunk[..8]), &chunk[12..])
}

/// An image being read.
#[derive(Debug)]
pub struct ImageReader {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    len: u64,
    offset: u64,
    crc: u32,
    mark: Mark,
}

impl ImageReader {
    fn open(fs: &dyn Fs, path: &Path, cluster_id: u128) -> Result<Self, ImageError> {
        let file = fs.open(path)?;
        let len = file.len()?;
        let path = path.to_owned();
        let mut reader = Self { file, path, len, offset: 0, crc: 0, mark: Mark::default() };
        let fixed = reader.bytes(FIXED_BYTES)?;
        let mut fields = &fixed[..];
        if take::<8>(&mut fields).as_ref() != Some(MAGIC) {
            return Err(reader.damaged(0, "it does not begin like an image"));
        }
        let version = u32::from_le_bytes(take(&mut fields).unwrap_or_default());
        if version > VERSION {
            return Err(ImageError::Future { path: reader.path, version });
        }
        let cluster = u128::from_le_bytes(take(&mut fields).unwrap_or_default());
        let mark_len = u32::from_le_bytes(take(&mut fields).unwrap_or_default()) as usize;
        if mark_len > MARK_BYTES_MAX {
            return Err(reader.damaged(28, "its mark is too long"));
        }
        let mark = reader.bytes(mark_len)?;
        let actual = crc32c::crc32c_append(crc32c::crc32c(&fixed), &mark);
        reader.check_crc(actual)?;
        if cluster != cluster_id {
            let what = format!("it belongs to cluster {cluster:032x}, not {cluster_id:032x}");
            return Err(reader.damaged(12, what));
        }
        let mut rest = &mark[..];
        reader.mark = match mark::decode(&mut rest) {
            Some(mark) if rest.is_empty() => mark,
            Some(_) | None => return Err(reader.damaged(32, "its mark cannot be decoded")),
        };
        Ok(reader)
    }

    /// Which state this is.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes: never, once it is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives all records to `take` in ascending order of keys. Only when this returns without error
    /// were they all intact and complete.
    ///
    /// # Errors
    /// The file is damaged or cannot be read, or `take` objects.
    pub fn read(mut self, take: Take<'_>) -> Result<(), ImageError> {
        self.crc_after(take).map(|_| ())
    }

    /// As [`ImageReader::read`]; returns the checksum of everything.
    fn crc_after(&mut self, take: Take<'_>) -> Result<u32, ImageError> {
        let mut records = 0;
        let mut chunk = Vec::new();
        let mut last_key = Vec::new();
        while self.chunk(&mut chunk)? {
            let count = u32::from_le_bytes(chunk[4..8].try_into().expect("4 bytes"));
            self.records_of(&chunk, count, records == 0, &mut last_key, take)?;
            records += u64::from(count);
        }
        let footer = self.bytes(FOOTER_BYTES as usize - 4)?;
        let actual = crc32c::crc32c_append(self.crc, &footer);
        self.check_crc(actual)?;
        let counted = u64::from_le_bytes(footer[4..].try_into().expect("8 bytes"));
        if counted != records || records != self.mark.records {
            let what = format!(
                "{records} records read, {counted} counted at its end, {} by its mark",
                self.mark.records
            );
            return Err(self.damaged(self.offset, what));
        }
        if self.offset != self.len {
            return Err(self.damaged(self.offset, "there are bytes behind its end"));
        }
        Ok(self.crc)
    }

    /// Reads the next chunk, header included, and verifies it; `false` if the footer is next.
    fn chunk(&mut self, chunk: &mut Vec<u8>) -> Result<bool, ImageError> {
        let mut len = [0; 4];
        self.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len);
        if len == 0 {
            return Ok(false);
        }
        let bytes = u64::from(len) + CHUNK_HEADER_BYTES as u64;
        if bytes + FOOTER_BYTES > self.len - self.offset {
            let what = format!("a chunk of {len} bytes does not fit into the file");
            return Err(self.damaged(self.offset, what));
        }
        chunk.resize(usize::try_from(bytes).expect("bounded by 4 GiB on 64 bits"), 0);
        self.read_exact(chunk)?;
        let expected = u32::from_le_bytes(chunk[8..12].try_into().expect("4 bytes"));
        let actual = chunk_crc(self.crc, chunk);
        if expected != actual {
            return Err(self.mismatch(expected, actual));
        }
        self.crc = actual;
        self.offset += bytes;
        Ok(true)
    }

    fn records_of(
        &self,
        chunk: &[u8],
        count: u32,
        mut first: bool,
        last_key: &mut Vec<u8>,
        take: Take<'_>,
    ) -> Result<(), ImageError> {
        let mut reader = &chunk[CHUNK_HEADER_BYTES..];
        let mut previous: &[u8] = last_key;
        for _ in 0..count {
            let (key, value) =
                record(&mut reader).ok_or_else(|| self.damaged(self.offset, "a short record"))?;
            if !first && key <= previous {
                return Err(self.damaged(self.offset, "keys do not ascend"));
            }
            first = false;
            previous = key;
            take(key, value)
                .map_err(|what| ImageError::Refused { path: self.path.clone(), what })?;
        }
        if !reader.is_empty() {
            return Err(self.damaged(self.offset, "there are bytes behind the records of a chunk"));
        }
        let previous = previous.to_vec();
        *last_key = previous;
        Ok(())
    }

    /// The next `len` bytes, which count as read.
    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, ImageError> {
        let mut bytes = vec![0; len];
        self.read_exact(&mut bytes)?;
        self.offset += len as u64;
        Ok(bytes)
    }

    /// Fills `bytes` from the current offset on.
    fn read_exact(&self, bytes: &mut [u8]) -> Result<(), ImageError> {
        let read = self.file.read_at(bytes, self.offset)?;
        if read < bytes.len() {
            return Err(self.damaged(self.offset + read as u64, "the file ends here"));
        }
        Ok(())
    }

    /// Reads a checksum and compares it with `actual`.
    fn check_crc(&mut self, actual: u32) -> Result<(), ImageError> {
        let mut expected = [0; 4];
        self.read_exact(&mut expected)?;
        let expected = u32::from_le_bytes(expected);
        if expected != actual {
            return Err(self.mismatch(expected, actual));
        }
        self.offset += 4;
        self.crc = actual;
        Ok(())
    }

    fn mismatch(&self, expected: u32, actual: u32) -> ImageError {
        let what =
            format!("checksum mismatch (crc32c expected {expected:#010x}, actual {actual:#010x})");
        self.damaged(self.offset, what)
    }

    fn damaged(&self, offset: u64, what: impl Into<String>) -> ImageError {
        ImageError::Damaged { path: self.path.clone(), offset, what: what.into() }
    }
}

fn record<'a>(reader: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let key_len = u32::from_le_bytes(take(reader)?) as usize;
    let value_len = u32::from_le_bytes(take(reader)?) as usize;
    let (key, rest) = reader.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    *reader = rest;
    Some((key, value))
}
