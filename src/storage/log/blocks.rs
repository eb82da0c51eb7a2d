//! Writes records in whole blocks, and now and then zeros ahead of them.
//!
//! Blocks that were reserved but never written are marked so by a file system; the first write into
//! one changes that mark, and the next sync has to make it durable too: one more write that it
//! waits for, or a commit of the file system's journal. So the marks are changed for many records at
//! a time, by a record that comes to [`FILL_BYTES`] which nothing was written to.
//!
//! *Owns* what the last block of a segment holds so far, and memory that lies as a device wants it.
//! *Invariants*: what was written before in a block is written again exactly as it was, so a write
//! that is cut off between two sectors leaves it whole; behind a record there are zeros, as there
//! were before. *Never* writes beyond the end of the file, which has its final size.

use crate::fs::{BLOCK_BYTES, DiskFile, FsError};

/// What is written to at a time: a sync of more takes noticeably longer.
const FILL_BYTES: u64 = 128 << 10;
/// Memory kept between two writes; longer ones give theirs back.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The last block of a file that grows by records.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Where the last record ended, and what its last block holds up to there.
    end: u64,
    held: Vec<u8>,
    /// Up to here, the file's blocks were written to.
    filled: u64,
    memory: Vec<u8>,
}

impl Blocks {
    /// The next record goes into another file, or behind something else than the last one.
    pub(crate) fn forget(&mut self) {
        self.end = 0;
        self.held.clear();
        self.filled = 0;
    }

    /// Writes `record` at `offset` into a file of `size` bytes: the blocks that it lies in, with
    /// what stands before it and zeros behind it; more zeros if these blocks were not written to.
    ///
    /// # Errors
    /// The file cannot be read or written. What is in the file then is not known.
    pub(crate) fn write(
        &mut self,
        file: &mut dyn DiskFile,
        record: &[u8],
        offset: u64,
        size: u64,
    ) -> Result<(), FsError> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let start = offset - offset % BLOCK;
        let before = (offset - start) as usize;
        if self.end != offset || self.held.len() != before {
            self.held.resize(before, 0);
            file.read_at(&mut self.held, start)?;
        }
        let behind = offset + record.len() as u64;
        let unit = if behind > self.filled { FILL_BYTES } else { BLOCK };
        let stop = behind.next_multiple_of(unit).min(size);
        let len = usize::try_from(stop - start).expect("a record and some zeros lie in memory");
        self.memory.resize(len + BLOCK_BYTES, 0);
        // Where no address is a multiple, the cache takes what lies anywhere.
        let shift = self.memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        let blocks = &mut self.memory[shift..shift + len];
        let (head, rest) = blocks.split_at_mut(before);
        let (middle, padding) = rest.split_at_mut(record.len());
        head.copy_from_slice(&self.held);
        middle.copy_from_slice(record);
        padding.fill(0);
        file.write_at(blocks, start)?;
        let end = before + record.len();
        self.held.clear();
        self.held.extend_from_slice(&blocks[end - end % BLOCK_BYTES..end]);
        self.end = behind;
        self.filled = self.filled.max(stop);
        if self.memory.len() > KEPT_BYTES_MAX {
            self.memory = Vec::new();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Fs, OsFs};

    fn contents(file: &dyn DiskFile) -> Vec<u8> {
        let mut bytes = vec![1; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Writes records of these lengths one behind the other, as a new owner of the file each time
    /// `reopened` says so, and compares the file with what it must hold.
    fn grows(lens: &[usize], size: usize, bypasses: bool, reopened: fn(usize) -> bool) {
        let dir = tempfile::tempdir().unwrap();
        let mut file = OsFs.create(&dir.path().join("f")).unwrap();
        if bypasses {
            file.write_past_cache();
        }
        file.preallocate(size as u64).unwrap();
        let mut blocks = Blocks::default();
        let mut expected = Vec::new();
        for (i, len) in lens.iter().enumerate() {
            if reopened(i) {
                blocks.forget();
            }
            let record = vec![u8::try_from(i % 250).unwrap() + 1; *len];
            blocks.write(&mut *file, &record, expected.len() as u64, size as u64).unwrap();
            expected.extend_from_slice(&record);
            let mut whole = expected.clone();
            whole.resize(size, 0);
            assert!(contents(&*file) == whole, "after record {i}");
        }
    }

    #[test]
    fn records_lie_one_behind_the_other_and_zeros_behind_the_last() {
        let lens = [128, 64, 4000, 8, 4096, 4088, 8, 1, 20_000, 3, 4095, 1];
        for bypasses in [false, true] {
            grows(&lens, 65_536, bypasses, |_| false);
            grows(&lens, 65_536, bypasses, |i| i % 2 == 0);
        }
    }

    #[test]
    fn a_file_that_ends_within_a_block_does_not_grow() {
        grows(&[128, 200, 160], 512, true, |_| false);
        grows(&[4000, 96, 100, 300], 4600, true, |_| false);
    }

    #[test]
    fn memory_of_a_large_record_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = OsFs.create(&dir.path().join("f")).unwrap();
        let mut blocks = Blocks::default();
        blocks.write(&mut *file, &vec![7; 2 << 20], 0, 8 << 20).unwrap();
        assert_eq!(blocks.memory.capacity(), 0);
        blocks.write(&mut *file, &[7; 8], 2 << 20, 8 << 20).unwrap();
        assert!((1..=KEPT_BYTES_MAX).contains(&blocks.memory.len()));
    }
}
