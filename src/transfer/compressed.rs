//! The bytes of a snapshot, whichever way its file is compressed.
//!
//! *Owns* the framing of `.snappy` files, which is that of snappy-java's `SnappyOutputStream`. *Invariant*: a length is
//! bounded before memory is taken for it. *Never* judges the content.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// What a stream of `SnappyOutputStream` begins with, in front of two versions.
const SNAPPY_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
/// Longest block, compressed or not. The writer makes them of 32 KiB.
const BLOCK_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: usize = 256 << 10;

/// Opens a file; its name says how it is compressed.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = BufReader::with_capacity(READ_BYTES, File::open(path)?);
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Box::new(MultiGzDecoder::new(file)),
        Some("snappy") => Box::new(Snappy::new(file)?),
        _ => Box::new(file),
    })
}

/// Decompresses blocks.
struct Snappy<R> {
    from: R,
    block: Vec<u8>,
    at: usize,
}

impl<R: Read> Snappy<R> {
    fn new(mut from: R) -> io::Result<Self> {
        let mut header = [0; 16];
        from.read_exact(&mut header)?;
        if !header.starts_with(SNAPPY_MAGIC) {
            return Err(damaged("it does not begin as a snappy stream of ZooKeeper"));
        }
        Ok(Self { from, block: Vec::new(), at: 0 })
    }

    /// Reads the next block; false at the end of the stream.
    fn next_block(&mut self) -> io::Result<bool> {
        let mut length = [0; 4];
        match self.from.read(&mut length[..1])? {
            0 => return Ok(false),
            _ => self.from.read_exact(&mut length[1..])?,
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > BLOCK_BYTES_MAX {
            return Err(damaged("a snappy block has an impossible length"));
        }
        let mut compressed = vec![0; length];
        self.from.read_exact(&mut compressed)?;
        let bad = |_| damaged("a snappy block is damaged");
        if snap::raw::decompress_len(&compressed).map_err(bad)? > BLOCK_BYTES_MAX {
            return Err(damaged("a snappy block has an impossible length"));
        }
        self.block = snap::raw::Decoder::new().decompress_vec(&compressed).map_err(bad)?;
        self.at = 0;
        Ok(true)
    }
}

impl<R: Read> Read for Snappy<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let taken = out.len().min(self.block.len() - self.at);
        out[..taken].copy_from_slice(&self.block[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}

fn damaged(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}
