//! Reads a backup.
//!
//! *Owns* the verification: a byte is believed once the checksum over everything before it agrees. *Invariant*: the
//! trailer is returned only when all records were intact, complete and add up to its digest. *Never* takes memory for
//! what is not there: a length that is damaged costs no more than the file has.

use std::io::Read;

use super::file::{
    BackupError, CHUNK_HEADER_BYTES, HEADER_BYTES_MAX, Header, MAGIC, TRAILER_BYTES, Trailer,
    VERSION,
};
use crate::replica::RecordDigest;

/// Takes a record, its key and its value, or objects.
pub type TakeRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), String> + 'a;

/// A backup that is being read.
#[derive(Debug)]
pub struct BackupReader<R> {
    input: R,
    record_digest: RecordDigest,
    header: Header,
    offset: u64,
    crc: u32,
    chunk: Vec<u8>,
    last_key: Vec<u8>,
    records: u64,
    digest: u128,
}

impl<R: Read> BackupReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is no backup, one of a later release, damaged, or cannot be read.
    pub fn open(mut input: R, record_digest: RecordDigest) -> Result<Self, BackupError> {
        let mut fixed = [0; MAGIC.len() + 8];
        let read = fill(&mut input, &mut fixed)?;
        if !fixed[..read].starts_with(MAGIC) {
            return Err(BackupError::Foreign);
        }
        let mut reader = Self {
            input,
            record_digest,
            header: Header::default(),
            offset: read as u64,
            crc: crc32c::crc32c(&fixed),
            chunk: Vec::new(),
            last_key: Vec::new(),
            records: 0,
            digest: 0,
        };
        if read < fixed.len() {
            return Err(reader.damaged("the file ends here"));
        }
        let version = u32::from_le_bytes(fixed[8..12].try_into().expect("4 bytes"));
        let length = u32::from_le_bytes(fixed[12..].try_into().expect("4 bytes"));
        if length > HEADER_BYTES_MAX {
            return Err(reader.damaged("its header is too long"));
        }
        let text = reader.bytes(u64::from(length))?;
        reader.crc = crc32c::crc32c_append(reader.crc, &text);
        reader.check(reader.crc)?;
        if version > VERSION {
            let release = serde_json::from_slice::<serde_json::Value>(&text).ok();
            let release = release.and_then(|value| Some(value["release"].as_str()?.to_owned()));
            let release = release.unwrap_or_else(|| "of a later version".to_owned());
            return Err(BackupError::Future { version, release });
        }
        reader.header =
            Header::parse(&text).ok_or_else(|| reader.damaged("its header cannot be read"))?;
        Ok(reader)
    }

    /// What the file says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Gives all records to `take`, in ascending order of their keys. They count only once this has returned.
    ///
    /// # Errors
    /// The file is damaged, incomplete or cannot be read, or `take` objects.
    pub fn read(mut self, take: &mut TakeRecord<'_>) -> Result<Trailer, BackupError> {
        loop {
            let length = self.bytes(4)?;
            let length = u32::from_le_bytes(length[..].try_into().expect("4 bytes"));
            if length == 0 {
                return self.trailer();
            }
            self.chunk(length, take)?;
        }
    }

    fn chunk(&mut self, length: u32, take: &mut TakeRecord<'_>) -> Result<(), BackupError> {
        let head = self.bytes(CHUNK_HEADER_BYTES as u64 - 4)?;
        let mut chunk = std::mem::take(&mut self.chunk);
        self.bytes_into(u64::from(length), &mut chunk)?;
        let crc = crc32c::crc32c_append(self.crc, &length.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &head[..4]);
        let actual = crc32c::crc32c_append(crc, &chunk);
        let expected = u32::from_le_bytes(head[4..].try_into().expect("4 bytes"));
        if actual != expected {
            return Err(self.mismatch(expected, actual));
        }
        self.crc = actual;
        let count = u32::from_le_bytes(head[..4].try_into().expect("4 bytes"));
        let mut rest = &chunk[..];
        for _ in 0..count {
            let (key, value) = record(&mut rest).ok_or_else(|| self.damaged("a short record"))?;
            if self.records > 0 && key <= &self.last_key[..] {
                return Err(self.damaged("keys do not ascend"));
            }
            let digest = (self.record_digest)(key, value).map_err(|what| self.damaged(what))?;
            take(key, value).map_err(BackupError::Refused)?;
            self.digest = self.digest.wrapping_add(digest);
            self.records += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        if !rest.is_empty() {
            return Err(self.damaged("there are bytes behind the records of a chunk"));
        }
        self.chunk = chunk;
        Ok(())
    }

    fn trailer(mut self) -> Result<Trailer, BackupError> {
        let mut bytes = [0; TRAILER_BYTES];
        let rest = self.bytes(TRAILER_BYTES as u64 - 4)?;
        bytes[4..].copy_from_slice(&rest);
        let actual = crc32c::crc32c_append(self.crc, &bytes);
        self.check(actual)?;
        let trailer = Trailer {
            records: u64::from_le_bytes(bytes[4..12].try_into().expect("8 bytes")),
            digest: u128::from_le_bytes(bytes[12..].try_into().expect("16 bytes")),
        };
        if trailer.records != self.records {
            let what = format!("{} records read, {} counted", self.records, trailer.records);
            return Err(self.damaged(what));
        }
        if trailer.digest != self.digest {
            let (digest, said) = (self.digest, trailer.digest);
            return Err(self.damaged(format!(
                "the records add up to digest {digest:032x}, the end of the file says {said:032x}"
            )));
        }
        if fill(&mut self.input, &mut [0])? > 0 {
            return Err(self.damaged("there are bytes behind its end"));
        }
        Ok(trailer)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        self.bytes_into(length, &mut bytes)?;
        Ok(bytes)
    }

    fn bytes_into(&mut self, length: u64, bytes: &mut Vec<u8>) -> Result<(), BackupError> {
        bytes.clear();
        let read = self.input.by_ref().take(length).read_to_end(bytes)? as u64;
        self.offset += read;
        if read < length {
            return Err(self.damaged("the file ends here"));
        }
        Ok(())
    }

    /// Reads a checksum and compares it with `actual`.
    fn check(&mut self, actual: u32) -> Result<(), BackupError> {
        let expected = self.bytes(4)?;
        let expected = u32::from_le_bytes(expected[..].try_into().expect("4 bytes"));
        if expected != actual {
            return Err(self.mismatch(expected, actual));
        }
        self.crc = actual;
        Ok(())
    }

    fn mismatch(&self, expected: u32, actual: u32) -> BackupError {
        self.damaged(format!(
            "checksum mismatch (crc32c expected {expected:#010x}, actual {actual:#010x})"
        ))
    }

    fn damaged(&self, what: impl Into<String>) -> BackupError {
        BackupError::Damaged { offset: self.offset, what: what.into() }
    }
}

/// Fills `bytes` as far as there are any.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize, BackupError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

fn record<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (key_length, value) = rest.split_first_chunk()?;
    let (value_length, records) = value.split_first_chunk()?;
    let key_length = u32::from_le_bytes(*key_length) as usize;
    let value_length = u32::from_le_bytes(*value_length) as usize;
    let (key, records) = records.split_at_checked(key_length)?;
    let (value, records) = records.split_at_checked(value_length)?;
    *rest = records;
    Some((key, value))
}
