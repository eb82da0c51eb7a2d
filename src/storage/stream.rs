//! Writes a file from its beginning to its end, and reads it like that.
//!
//! *Owns* the file meanwhile, and a piece of it in memory. What is written goes past the operating
//! system's cache, so the sync of another file has to wait for little of it and nothing else leaves the cache
//! for it; a reader that goes past the cache as well finds out what the disk has. *Never* holds more of a file
//! than a piece.

use super::fs::{BLOCK_BYTES, DiskFile, FsError};

/// Bytes of a piece of an image: a log that is written to meanwhile waits for one.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Bytes between two syncs: where the cache cannot be passed, the log would have to wait for the rest.
const SYNC_BYTES: u64 = 4 << 20;

/// Part of a file, which begins in memory where devices want it.
#[derive(Debug)]
struct Piece {
    memory: Vec<u8>,
    begin: usize,
    /// Where in the file it begins.
    offset: u64,
    /// How many of its bytes are of the file.
    held: usize,
}

impl Piece {
    /// Of `bytes` at most, a multiple of [`BLOCK_BYTES`].
    fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + BLOCK_BYTES];
        // Where no address is a multiple, the cache takes what lies anywhere.
        let begin = memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        Self { memory, begin, offset: 0, held: 0 }
    }

    fn room(&mut self) -> &mut [u8] {
        let bytes = self.bytes_max();
        &mut self.memory[self.begin..][..bytes]
    }

    fn bytes_max(&self) -> usize {
        self.memory.len() - BLOCK_BYTES
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..][..self.held]
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Writing {
    file: Box<dyn DiskFile>,
    /// What is not written yet.
    piece: Piece,
    /// Up to here, the file was synced.
    synced: u64,
}

impl Writing {
    /// At the beginning of an empty file, which is written in pieces of so many bytes, a multiple of [`BLOCK_BYTES`].
    pub fn new(mut file: Box<dyn DiskFile>, piece_bytes: usize) -> Self {
        file.write_past_cache();
        Self { file, piece: Piece::new(piece_bytes), synced: 0 }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), FsError> {
        while !bytes.is_empty() {
            let (held, most) = (self.piece.held, self.piece.bytes_max());
            let (now, later) = bytes.split_at(bytes.len().min(most - held));
            self.piece.room()[held..][..now.len()].copy_from_slice(now);
            self.piece.held += now.len();
            bytes = later;
            if self.piece.held == most {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), FsError> {
        let piece = &mut self.piece;
        self.file.write_at(piece.bytes(), piece.offset)?;
        piece.offset += piece.held as u64;
        piece.held = 0;
        if piece.offset - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = piece.offset;
        }
        Ok(())
    }

    /// Writes and syncs the rest. Returns the file's size in bytes.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub fn finish(mut self) -> Result<u64, FsError> {
        if self.piece.held > 0 {
            self.flush()?;
        }
        if !mutant!("image-not-synced") {
            self.file.sync()?;
        }
        Ok(self.piece.offset)
    }
}

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    file: Box<dyn DiskFile>,
    /// What was read last.
    piece: Piece,
}

impl Reading {
    /// Nothing of `file` is read yet.
    pub(crate) fn new(file: Box<dyn DiskFile>) -> Self {
        Self { file, piece: Piece::new(PIECE_BYTES) }
    }

    /// What is read from now on comes from the disk, where that is possible.
    pub(crate) fn pass_cache(&mut self) {
        self.file.read_past_cache();
    }

    /// Size of the file in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    pub(crate) fn len(&self) -> Result<u64, FsError> {
        self.file.len()
    }

    /// Reads into `buffer` from `offset`; returns how many bytes, fewer only at the end of the file.
    /// Best called for what follows what was read before.
    ///
    /// # Errors
    /// As the operating system says.
    pub(crate) fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let Some(found) = self.piece_at(at)? else { break };
            let len = found.len().min(buffer.len() - done);
            buffer[done..][..len].copy_from_slice(&found[..len]);
            done += len;
        }
        Ok(done)
    }

    /// What is there from `at` on, some of it at least; nothing at the end of the file.
    fn piece_at(&mut self, at: u64) -> Result<Option<&[u8]>, FsError> {
        let piece = &mut self.piece;
        if !(piece.offset..piece.offset + piece.held as u64).contains(&at) {
            piece.offset = at - at % BLOCK_BYTES as u64;
            piece.held = 0;
            let offset = piece.offset;
            piece.held = self.file.read_at(piece.room(), offset)?;
        }
        let before = usize::try_from(at - piece.offset).expect("less than a piece");
        Ok(piece.bytes().get(before..).filter(|found| !found.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Fs, OsFs};

    /// Reads in portions of all sizes, of which every other is read twice.
    fn assert_reads(path: &Path, expected: &[u8], bypasses: bool) {
        let mut file = Reading::new(OsFs.open(path).unwrap());
        if bypasses {
            file.pass_cache();
        }
        assert_eq!(file.len().unwrap(), expected.len() as u64);
        let (mut at, mut len) = (0, 1);
        while at < expected.len() {
            let mut buffer = vec![0; len];
            for _ in 0..=len % 2 {
                let read = file.read_at(&mut buffer, at as u64).unwrap();
                assert_eq!(read, len.min(expected.len() - at));
                assert!(buffer[..read] == expected[at..at + read], "{read} bytes at {at}");
            }
            at += len;
            len = (3 * len + 1) % (2 * PIECE_BYTES);
        }
        assert_eq!(file.read_at(&mut [0; 9], expected.len() as u64).unwrap(), 0);
        assert_eq!(file.read_at(&mut [0; 9], expected.len() as u64 + 9000).unwrap(), 0);
    }

    #[test]
    fn what_is_written_in_any_portions_is_read_in_any_others() {
        let portions = [1, 4095, 4096, 70_000, 3 * PIECE_BYTES + 9, 5, 6 << 20, 100];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let sizes = [PIECE_BYTES, BLOCK_BYTES, 64 << 10];
        let counts = 0..=portions.len();
        for (count, piece_bytes) in counts.zip(sizes.into_iter().cycle()) {
            let mut file = Writing::new(OsFs.create(&path).unwrap(), piece_bytes);
            let mut expected = Vec::new();
            for (i, len) in portions[..count].iter().enumerate() {
                let portion: Vec<u8> = (0..*len).map(|at| (at * 7 + i) as u8).collect();
                file.write(&portion).unwrap();
                expected.extend_from_slice(&portion);
            }
            assert_eq!(file.finish().unwrap(), expected.len() as u64);
            assert!(std::fs::read(&path).unwrap() == expected, "{count} portions");
            for bypasses in [false, true] {
                assert_reads(&path, &expected, bypasses);
            }
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_of_whole_pieces_has_nothing_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Writing::new(OsFs.create(&path).unwrap(), PIECE_BYTES);
        file.write(&vec![7; 2 * PIECE_BYTES]).unwrap();
        assert_eq!(file.finish().unwrap(), 2 * PIECE_BYTES as u64);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * PIECE_BYTES as u64);
    }
}
