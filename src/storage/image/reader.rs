//! Reads an image.
//!
//! *Owns* the verification: a length is believed once it is known to fit the file, a byte once the
//! checksum over everything before it agrees. *Never* holds more than one chunk, and a piece of the
//! file, in memory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::images::{
    CHUNK_HEADER_BYTES, Copy, FIXED_BYTES, FOOTER_BYTES, ImageError, Images, MAGIC, MARK_BYTES_MAX,
    chunk_crc,
};
use crate::copy::Take;
use crate::formats::KNOWN;
use crate::mark::{self, take};
use crate::stream::Reading;
use crate::throttle::{BLOCK_STEPS, CpuThrottle, WorkBudget};
use lockkeeper_core::replica::Mark;

/// An image being read.
#[derive(Debug)]
pub struct ImageReader {
    file: Reading,
    path: PathBuf,
    len: u64,
    offset: u64,
    crc: u32,
    cluster_id: u128,
    mark: Mark,
    /// The chunk that was read last, header included.
    chunk: Vec<u8>,
    /// Records up to there, and the key of the last one.
    records: u64,
    last_key: Vec<u8>,
    /// Whether the footer was read as well.
    is_complete: bool,
    /// Asked for each chunk by every reader: one that verifies it, loads it, or sends it to another server.
    cpu_throttle: CpuThrottle,
    work_budget: WorkBudget,
}

impl ImageReader {
    /// The file at `path`, which is one of `images`: its header is read and verified.
    pub(super) fn begin(file: Reading, path: &Path, images: &Images) -> Result<Self, ImageError> {
        let len = file.len()?;
        let mut reader = Self {
            file,
            path: path.to_owned(),
            len,
            offset: 0,
            crc: 0,
            cluster_id: images.cluster_id,
            mark: Mark::default(),
            chunk: Vec::new(),
            records: 0,
            last_key: Vec::new(),
            is_complete: false,
            cpu_throttle: CpuThrottle::new(&images.work_budget),
            work_budget: images.work_budget.clone(),
        };
        reader.header()?;
        Ok(reader)
    }

    fn header(&mut self) -> Result<(), ImageError> {
        let fixed = self.bytes(FIXED_BYTES)?;
        let mut fields = &fixed[..];
        if take::<8>(&mut fields).as_ref() != Some(MAGIC) {
            return Err(self.damaged(0, "it does not begin like an image"));
        }
        let version = u32::from_le_bytes(take(&mut fields).unwrap_or_default());
        let cluster = u128::from_le_bytes(take(&mut fields).unwrap_or_default());
        let mark_len = u32::from_le_bytes(take(&mut fields).unwrap_or_default()) as usize;
        if mark_len > MARK_BYTES_MAX {
            return Err(self.damaged(28, "its mark is too long"));
        }
        let mark = self.bytes(mark_len)?;
        let actual = crc32c::crc32c_append(crc32c::crc32c(&fixed), &mark);
        self.check_crc(actual)?;
        if version > KNOWN.image {
            return Err(ImageError::Future { path: self.path.clone(), version });
        }
        if cluster != self.cluster_id {
            let what =
                format!("it belongs to cluster {cluster:032x}, not {:032x}", self.cluster_id);
            return Err(self.damaged(12, what));
        }
        let mut rest = &mark[..];
        self.mark = match mark::decode(&mut rest) {
            Some(mark) if rest.is_empty() => mark,
            Some(_) | None => return Err(self.damaged(32, "its mark cannot be decoded")),
        };
        Ok(())
    }

    /// The ensemble whose state it is.
    #[must_use]
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
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
        self.rest(take).map(|_| ())
    }

    /// As [`ImageReader::read`]; returns the checksum of everything.
    pub(crate) fn rest(&mut self, take: Take<'_>) -> Result<u32, ImageError> {
        let path = self.path.clone();
        while let Some(records) = self.next_records()? {
            for (key, value) in records {
                take(key, value)
                    .map_err(|what| ImageError::Refused { path: path.clone(), what })?;
            }
        }
        Ok(self.crc)
    }

    /// The next records, for the task that passes them on: at most 256 KiB of them, or one that is larger,
    /// intact as far as this. `None` behind the last ones, and only if the file was complete.
    ///
    /// # Errors
    /// The file is damaged or cannot be read: what was read of it before must not be used either.
    pub fn next_records(&mut self) -> Result<Option<Records<'_>>, ImageError> {
        if self.is_complete {
            return Ok(None);
        }
        self.cpu_throttle.did(BLOCK_STEPS);
        let begun = Instant::now();
        let has_more = self.read_chunk()?;
        self.work_budget.had_disk_since(begun, self.chunk.len());
        if !has_more {
            self.footer()?;
            self.is_complete = true;
            return Ok(None);
        }
        let count = u32::from_le_bytes(self.chunk[4..8].try_into().expect("4 bytes"));
        let records = Records { bytes: &self.chunk[CHUNK_HEADER_BYTES..], left: count };
        let last = self.verify(records.clone())?.to_vec();
        self.last_key = last;
        self.records += u64::from(count);
        Ok(Some(Records { bytes: &self.chunk[CHUNK_HEADER_BYTES..], left: count }))
    }

    /// Reads the next chunk and verifies its checksum; `false` if the footer is next.
    fn read_chunk(&mut self) -> Result<bool, ImageError> {
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
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(usize::try_from(bytes).expect("bounded by 4 GiB on 64 bits"), 0);
        self.read_exact(&mut chunk)?;
        let expected = u32::from_le_bytes(chunk[8..12].try_into().expect("4 bytes"));
        let actual = match mutant!("damaged-image-served") {
            true => expected,
            false => chunk_crc(self.crc, &chunk),
        };
        if expected != actual {
            return Err(self.mismatch(expected, actual));
        }
        self.chunk = chunk;
        self.crc = actual;
        self.offset += bytes;
        Ok(true)
    }

    /// Whether `records` are as many as they say, and their keys ascend; returns the last key.
    fn verify<'r>(&'r self, mut records: Records<'r>) -> Result<&'r [u8], ImageError> {
        let mut previous = (self.records > 0).then_some(&self.last_key[..]);
        while records.left > 0 {
            let (key, _) =
                records.next().ok_or_else(|| self.damaged(self.offset, "a short record"))?;
            if previous.is_some_and(|previous| key <= previous) {
                return Err(self.damaged(self.offset, "keys do not ascend"));
            }
            previous = Some(key);
        }
        if !records.bytes.is_empty() {
            return Err(self.damaged(self.offset, "there are bytes behind the records of a chunk"));
        }
        previous.ok_or_else(|| self.damaged(self.offset, "a chunk without records"))
    }

    fn footer(&mut self) -> Result<(), ImageError> {
        let footer = self.bytes(FOOTER_BYTES as usize - 4)?;
        let actual = crc32c::crc32c_append(self.crc, &footer);
        self.check_crc(actual)?;
        let counted = u64::from_le_bytes(footer[4..].try_into().expect("8 bytes"));
        let records = self.records;
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
    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), ImageError> {
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

impl Images {
    /// Opens the image at `index` and verifies its header. It can be read to its end also when it is
    /// removed meanwhile, because a newer one was written: the file stays as long as it is open.
    ///
    /// # Errors
    /// It is missing, damaged, of a later version or of another cluster.
    pub fn open(&self, index: u64) -> Result<ImageReader, ImageError> {
        self.open_copy(index, Copy::Own)
    }

    /// The same, for who reads all of it beside the log: in pieces past the operating system's cache, which would take
    /// megabytes ahead at once.
    ///
    /// # Errors
    /// As [`Images::open`].
    pub fn open_beside_log(&self, index: u64) -> Result<ImageReader, ImageError> {
        let mut reader = self.open(index)?;
        reader.file.pass_cache();
        Ok(reader)
    }

    pub(crate) fn open_copy(&self, index: u64, copy: Copy) -> Result<ImageReader, ImageError> {
        let path = self.file(index, copy);
        let reader = ImageReader::begin(Reading::new(self.fs.open(&path)?), &path, self)?;
        if reader.mark().index != index {
            let at = reader.mark().index;
            let what = format!("it holds the state at index {at}, by its header");
            return Err(ImageError::Damaged { path, offset: 0, what });
        }
        Ok(reader)
    }
}

/// Some records of an image, in ascending order of their keys: keys and values.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    left: u32,
}

impl<'a> Iterator for Records<'a> {
    type Item = (&'a [u8], &'a [u8]);

    /// The next record; `None` behind the last.
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        record(&mut self.bytes)
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
