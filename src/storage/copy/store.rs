//! Where the copy of the state is kept: blocks of bytes, and one manifest.
//!
//! *Owns* the trait [`StateStore`] and [`MemoryState`]. What is in the blocks, and what makes them a
//! state, is said in `copy/runs.rs`. *Invariant*: a store may lose anything, or show what it was at an
//! earlier moment, but a process that is killed leaves it with all that it held when the manifest was
//! last set. *Never* is the only copy of anything: one that is found wrong is set aside and filled
//! again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::throttle::WorkBudget;

/// A state store that cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct StateError {
    /// The store.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// Whether the disk has no room for more: what is stored need not be wrong then.
    pub is_full: bool,
}

impl StateError {
    /// It is wrong, and not for want of room.
    #[must_use]
    pub fn new(path: &Path, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), what: what.into(), is_full: false }
    }
}

/// Bytes of every block of a run but its last. sled keeps a value of more than 128 KiB in a file of its
/// own, and a leaf of its tree, which has up to 17 entries, is written like a value.
pub(super) const BLOCK_BYTES: usize = 7 << 10;

const COLLECTED_BYTES_MAX: usize = 8 << 20;

/// Receives a record: its key and its value. Says why it cannot.
pub type Take<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), String>;

/// Keeps blocks, which belong to numbered runs, and a manifest. Every error means that the store is
/// unusable until [`StateStore::set_aside`] or [`StateStore::clear`].
pub trait StateStore: Send + fmt::Debug {
    /// Where it is, for messages.
    fn path(&self) -> &Path;

    /// Changed records are collected up to this many bytes before they are written there, so that a
    /// key that changes often is written once, and that many records can be sorted at once.
    fn collected_bytes_max(&self) -> usize {
        COLLECTED_BYTES_MAX
    }

    /// Bytes that there is room for; 0 if that cannot be found out.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// What was last set; `None` if nothing ever was.
    ///
    /// # Errors
    /// It cannot be opened or read.
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, StateError>;

    /// Replaces the manifest, at once or not at all. On return it and everything before it survives
    /// the process.
    ///
    /// # Errors
    /// It cannot be written.
    fn set_manifest(&mut self, manifest: &[u8]) -> Result<(), StateError>;

    /// Writes a block of at most `BLOCK_BYTES`. Those of a run come in the order of their numbers,
    /// from 0.
    ///
    /// # Errors
    /// It cannot be written.
    fn put_block(&mut self, run: u64, number: u32, bytes: &[u8]) -> Result<(), StateError>;

    /// Appends a block to `out`; false if it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    fn read_block(&mut self, run: u64, number: u32, out: &mut Vec<u8>) -> Result<bool, StateError>;

    /// Removes the blocks of all other runs.
    ///
    /// # Errors
    /// They cannot be removed.
    fn retain_runs(&mut self, runs: &[u64], work_budget: &WorkBudget) -> Result<(), StateError>;

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
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) blocks: BTreeMap<(u64, u32), Box<[u8]>>,
}

impl StateStore for MemoryState {
    fn path(&self) -> &Path {
        Path::new("(memory)")
    }

    fn manifest(&mut self) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.manifest.clone())
    }

    fn set_manifest(&mut self, manifest: &[u8]) -> Result<(), StateError> {
        self.manifest = Some(manifest.to_vec());
        Ok(())
    }

    fn put_block(&mut self, run: u64, number: u32, bytes: &[u8]) -> Result<(), StateError> {
        self.blocks.insert((run, number), bytes.into());
        Ok(())
    }

    fn read_block(&mut self, run: u64, number: u32, out: &mut Vec<u8>) -> Result<bool, StateError> {
        let block = self.blocks.get(&(run, number));
        out.extend_from_slice(block.map_or(&[], |block| block));
        Ok(block.is_some())
    }

    fn retain_runs(&mut self, runs: &[u64], _: &WorkBudget) -> Result<(), StateError> {
        self.blocks.retain(|(run, _), _| runs.contains(run));
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
