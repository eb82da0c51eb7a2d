//! The state store: a disposable copy of the whole state, from which images are written.
//!
//! *Owns* the trait [`StateStore`], what a store says of its contents ([`StateMark`]), and
//! [`MemoryState`]. *Invariants*: between [`StateMark::Open`] and the next [`StateMark::Closed`]
//! the records stem from different moments and mean nothing. *Never* is the only copy of anything:
//! a store that is found wrong is set aside and filled again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use super::mark::{self, take};
use crate::replica::{Mark, Record};

/// A state store that cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct StateError {
    /// The store.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// How many records there are, and a sum over them that depends on every bit but not on their
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of records.
    pub records: u64,
    /// Sum of a 128-bit hash of each, modulo 2^128.
    pub sum: u128,
}

impl Contents {
    /// One more record. `scratch` is overwritten.
    pub fn add(&mut self, key: &[u8], value: &[u8], scratch: &mut Vec<u8>) {
        self.records = self.records.wrapping_add(1);
        self.sum = self.sum.wrapping_add(hash(key, value, scratch));
    }

    /// One record less. `scratch` is overwritten.
    pub fn remove(&mut self, key: &[u8], value: &[u8], scratch: &mut Vec<u8>) {
        self.records = self.records.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(hash(key, value, scratch));
    }
}

fn hash(key: &[u8], value: &[u8], scratch: &mut Vec<u8>) -> u128 {
    scratch.clear();
    scratch.extend_from_slice(&(key.len() as u64).to_le_bytes());
    scratch.extend_from_slice(key);
    scratch.extend_from_slice(value);
    XxHash3_128::oneshot(scratch)
}

/// What a store says of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateMark {
    /// A checkpoint is being written.
    Open,
    /// The records are exactly this state.
    Closed {
        /// Which state.
        mark: Mark,
        /// What a scan must find.
        contents: Contents,
    },
}

const VERSION: u8 = 1;

impl StateMark {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Open => out.push(0),
            Self::Closed { mark, contents } => {
                out.push(1);
                out.extend_from_slice(&contents.records.to_le_bytes());
                out.extend_from_slice(&contents.sum.to_le_bytes());
                mark::encode(mark, &mut out);
            }
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// From bytes; `None` if they are damaged or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut reader, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c(reader) {
            return None;
        }
        match take(&mut reader)? {
            [VERSION, 0] => Some(Self::Open),
            [VERSION, 1] => {
                let records = u64::from_le_bytes(take(&mut reader)?);
                let sum = u128::from_le_bytes(take(&mut reader)?);
                let mark = mark::decode(&mut reader)?;
                Some(Self::Closed { mark, contents: Contents { records, sum } })
            }
            [_, _] => None,
        }
    }
}

/// Receives a record: its key and its value. Says why it cannot.
pub type Take<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), String>;

/// Where the copy of the state is kept. Every error means that the store is unusable until
/// [`StateStore::set_aside`] or [`StateStore::clear`].
pub trait StateStore: Send + fmt::Debug {
    /// Where it is, for messages.
    fn path(&self) -> &Path;

    /// What it says of its contents; `None` if nothing was ever stored.
    ///
    /// # Errors
    /// It cannot be opened or read.
    fn mark(&mut self) -> Result<Option<StateMark>, StateError>;

    /// Says something of its contents. Must not be reordered with writes of records.
    ///
    /// # Errors
    /// It cannot be written.
    fn set_mark(&mut self, mark: &StateMark) -> Result<(), StateError>;

    /// Writes records (each key at most once) and keeps `contents` in step with what is stored.
    ///
    /// # Errors
    /// It cannot be written; some records may have been.
    fn put(&mut self, records: &[Record], contents: &mut Contents) -> Result<(), StateError>;

    /// Gives all records to `take` in ascending order of keys. If `take` objects, so does this.
    ///
    /// # Errors
    /// It cannot be read, or `take` objects.
    fn scan(&mut self, take: Take<'_>) -> Result<(), StateError>;

    /// Begins anew with nothing stored.
    ///
    /// # Errors
    /// It cannot be removed or created.
    fn clear(&mut self) -> Result<(), StateError>;

    /// Keeps what is stored elsewhere for inspection, then begins anew with nothing stored. Returns
    /// where it was put.
    ///
    /// # Errors
    /// It cannot be moved or created.
    fn set_aside(&mut self) -> Result<PathBuf, StateError>;
}

/// A state store in memory: the last resort when no other works, and the model in tests.
#[derive(Debug, Default)]
pub struct MemoryState {
    mark: Option<StateMark>,
    records: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

impl StateStore for MemoryState {
    fn path(&self) -> &Path {
        Path::new("(memory)")
    }

    fn mark(&mut self) -> Result<Option<StateMark>, StateError> {
        Ok(self.mark.clone())
    }

    fn set_mark(&mut self, mark: &StateMark) -> Result<(), StateError> {
        self.mark = Some(mark.clone());
        Ok(())
    }

    fn put(&mut self, records: &[Record], contents: &mut Contents) -> Result<(), StateError> {
        let mut scratch = Vec::new();
        for Record { key, value } in records {
            let old = match value {
                Some(value) => {
                    contents.add(key, value, &mut scratch);
                    self.records.insert(key.clone(), value.clone())
                }
                None => self.records.remove(key),
            };
            if let Some(old) = old {
                contents.remove(key, &old, &mut scratch);
            }
        }
        Ok(())
    }

    fn scan(&mut self, take: Take<'_>) -> Result<(), StateError> {
        for (key, value) in &self.records {
            take(key, value).map_err(|what| StateError { path: "(memory)".into(), what })?;
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), StateError> {
        *self = Self::default();
        Ok(())
    }

    fn set_aside(&mut self) -> Result<PathBuf, StateError> {
        *self = Self::default();
        Ok("(memory)".into())
    }
}
