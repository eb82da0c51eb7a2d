//! Writes an image.
//!
//! *Owns* the file until it is complete. *Invariant*: what [`ImageWriter::finish`] returned for was
//! read back and found to be what was written. *Never* leaves an unfinished file behind, unless the
//! server dies: [`Images::remove_unfinished`].

use std::path::PathBuf;
use std::time::Instant;

use super::images::{
    CHUNK_BYTES, CHUNK_HEADER_BYTES, Copy, FOOTER_BYTES, ImageError, Images, MAGIC, chunk_crc,
};
use super::reader::ImageReader;
use crate::mark;
use crate::stream::{PIECE_BYTES, Reading, Writing};
use lockkeeper_core::replica::Mark;

/// An image being written. Dropped before [`ImageWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct ImageWriter {
    images: Images,
    mark: Mark,
    /// Until it is complete; empty after that.
    path: PathBuf,
    target: PathBuf,
    file: Option<Writing>,
    crc: u32,
    /// The chunk being filled, with room for its header.
    chunk: Vec<u8>,
    chunk_records: u32,
    records: u64,
    last_key: Vec<u8>,
}

impl ImageWriter {
    fn create(images: &Images, mark: &Mark, copy: Copy) -> Result<Self, ImageError> {
        let path = images.temporary(mark.index);
        let mut header = Vec::with_capacity(256);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&images.formats.numbers().image.to_le_bytes());
        header.extend_from_slice(&images.cluster_id.to_le_bytes());
        let mut encoded = Vec::new();
        mark::encode(mark, &mut encoded);
        let len = u32::try_from(encoded.len()).expect("at most MARK_BYTES_MAX");
        header.extend_from_slice(&len.to_le_bytes());
        header.extend_from_slice(&encoded);
        let crc = crc32c::crc32c(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        let mut writer = Self {
            file: Some(Writing::new(images.fs.create(&path)?, PIECE_BYTES)),
            images: images.clone(),
            mark: mark.clone(),
            path,
            target: images.file(mark.index, copy),
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

    /// Completes the file, syncs it, reads all of it back, and only then gives it its name, which is
    /// durable on return. Returns its size in bytes.
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
        let bytes = self.file.take().expect("open until here").finish()?;

        let images = &self.images;
        let mut file = Reading::new(images.fs.open(&self.path)?);
        // What counts is on the disk itself.
        file.pass_cache();
        let mut reader = ImageReader::begin(file, &self.path, images)?;
        if *reader.mark() != self.mark || reader.rest(&mut |_, _| Ok(()))? != self.crc {
            return Err(self.refused("what was read back is not what was written".to_owned()));
        }
        images.fs.rename(&self.path, &self.target)?;
        self.path = PathBuf::new();
        images.fs.sync_dir(&images.dir)?;
        Ok(bytes)
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
        let begun = Instant::now();
        let written = self.write(&chunk);
        self.images.work_budget.had_disk_since(begun, chunk.len());
        chunk.truncate(CHUNK_HEADER_BYTES);
        self.chunk = chunk;
        self.chunk_records = 0;
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        Ok(self.file.as_mut().expect("open until finished").write(bytes)?)
    }

    fn refused(&self, what: String) -> ImageError {
        ImageError::Refused { path: self.path.clone(), what }
    }
}

impl Images {
    /// Begins an image of `mark`.
    ///
    /// # Errors
    /// The file system failed.
    pub fn create(&self, mark: &Mark) -> Result<ImageWriter, ImageError> {
        ImageWriter::create(self, mark, Copy::Own)
    }

    /// Begins an image of `mark` that another server sends. Finished, it is no image of this server
    /// yet: see `image/install.rs`. An older one that was never installed may be removed for it.
    ///
    /// # Errors
    /// The file system failed.
    pub fn receive(&self, mark: &Mark) -> Result<ImageWriter, ImageError> {
        self.make_room()?;
        ImageWriter::create(self, mark, Copy::Received)
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        self.file = None;
        if let Err(error) = self.images.fs.remove(&self.path) {
            tracing::warn!(target: crate::TARGET, %error, "an unfinished image stays behind");
        }
    }
}
