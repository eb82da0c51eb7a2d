//! Writes a backup.
//!
//! *Owns* the chunk that is being filled. *Invariant*: what was written is no backup before
//! [`BackupWriter::finish`] has returned: the trailer is missing. *Never* holds more than one chunk.

use std::io::Write;

use super::file::{
    BackupError, CHUNK_BYTES, CHUNK_HEADER_BYTES, HEADER_BYTES_MAX, Header, MAGIC, TRAILER_BYTES,
    Trailer, VERSION,
};
use crate::replica::RecordDigest;

/// A backup that is being written.
#[derive(Debug)]
pub struct BackupWriter<W> {
    out: W,
    record_digest: RecordDigest,
    crc: u32,
    /// With room for its header.
    chunk: Vec<u8>,
    chunk_records: u32,
    last_key: Vec<u8>,
    records: u64,
    digest: u128,
}

impl<W: Write> BackupWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// `out` failed.
    pub fn begin(
        mut out: W,
        header: &Header,
        record_digest: RecordDigest,
    ) -> Result<Self, BackupError> {
        let text = header.text();
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= HEADER_BYTES_MAX);
        let length = length.ok_or_else(|| BackupError::Refused("the header is too long".into()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        out.write_all(&bytes)?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 4096);
        chunk.resize(CHUNK_HEADER_BYTES, 0);
        let (chunk_records, records, digest) = (0, 0, 0);
        let last_key = Vec::new();
        Ok(Self { out, record_digest, crc, chunk, chunk_records, last_key, records, digest })
    }

    /// Adds a record. Keys must ascend.
    ///
    /// # Errors
    /// They do not, it is no record of a state, or `out` failed.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), BackupError> {
        let refused = |what: &str| BackupError::Refused(what.to_owned());
        if self.records > 0 && key <= &self.last_key[..] {
            return Err(refused("keys do not ascend"));
        }
        let digest = (self.record_digest)(key, value).map_err(BackupError::Refused)?;
        let (Ok(key_length), Ok(value_length)) =
            (u32::try_from(key.len()), u32::try_from(value.len()))
        else {
            return Err(refused("a record of more than 4 GiB"));
        };
        if self.chunk_records > 0 && self.chunk.len() + key.len() + value.len() > CHUNK_BYTES {
            self.flush()?;
        }
        self.chunk.extend_from_slice(&key_length.to_le_bytes());
        self.chunk.extend_from_slice(&value_length.to_le_bytes());
        self.chunk.extend_from_slice(key);
        self.chunk.extend_from_slice(value);
        self.chunk_records += 1;
        self.records += 1;
        self.digest = self.digest.wrapping_add(digest);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Writes the rest and the trailer. Returns what was written to, and the trailer.
    ///
    /// # Errors
    /// `out` failed.
    pub fn finish(mut self) -> Result<(W, Trailer), BackupError> {
        self.flush()?;
        let mut bytes = [0; TRAILER_BYTES];
        bytes[4..12].copy_from_slice(&self.records.to_le_bytes());
        bytes[12..].copy_from_slice(&self.digest.to_le_bytes());
        self.crc = crc32c::crc32c_append(self.crc, &bytes);
        self.out.write_all(&bytes)?;
        self.out.write_all(&self.crc.to_le_bytes())?;
        self.out.flush()?;
        Ok((self.out, Trailer { records: self.records, digest: self.digest }))
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        if self.chunk_records == 0 {
            return Ok(());
        }
        let length = u32::try_from(self.chunk.len() - CHUNK_HEADER_BYTES)
            .map_err(|_| BackupError::Refused("a record of nearly 4 GiB".into()))?;
        self.chunk[..4].copy_from_slice(&length.to_le_bytes());
        self.chunk[4..8].copy_from_slice(&self.chunk_records.to_le_bytes());
        let crc = crc32c::crc32c_append(self.crc, &self.chunk[..8]);
        self.crc = crc32c::crc32c_append(crc, &self.chunk[CHUNK_HEADER_BYTES..]);
        self.chunk[8..CHUNK_HEADER_BYTES].copy_from_slice(&self.crc.to_le_bytes());
        self.out.write_all(&self.chunk)?;
        self.chunk.truncate(CHUNK_HEADER_BYTES);
        self.chunk_records = 0;
        Ok(())
    }
}
