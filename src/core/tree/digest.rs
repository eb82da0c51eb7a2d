//! Digests of the whole tree, kept up to date with every change.
//!
//! *Owns* what a znode contributes. The 128-bit digest is the sum of all contributions, so it does
//! not depend on order. A znode contributes two hashes: of its content (path, data, ACL, owner)
//! and of its path and numbers, so that a change below a parent with much data stays cheap.
//! *Invariant*: equal on all servers with equal trees: no process-specific seed comes in here.
//!
//! ZooKeeper's own 64-bit digest (`DigestCalculator`, version 2) can be kept as well.

use twox_hash::XxHash3_128;

use super::path;
use super::znode::{Meta, Znode};

// Different seeds keep the kinds of input apart; the first one is that of lists (`acl.rs`).
const SEED_BYTES: u64 = 0x6c6f_636b_0000_0002;
const SEED_CONTENT: u64 = 0x6c6f_636b_0000_0003;
const SEED_PATH: u64 = 0x6c6f_636b_0000_0004;
const SEED_NUMBERS: u64 = 0x6c6f_636b_0000_0005;

/// A hash, five times eight and three times four.
const NUMBERS_BYTES: usize = 68;
/// Six times eight and three times four.
const LEGACY_NUMBERS_BYTES: usize = 60;
const TOGETHER_BYTES_MAX: usize = 512;

/// The first contribution; `acl` is that of its list.
pub(super) fn content(path: &[u8], data: Option<&[u8]>, owner: i64, acl: u128) -> u128 {
    let bytes = hash(SEED_BYTES, path, data.unwrap_or_default());
    let mut fields = Fields::<45>::new();
    fields.put(&bytes.to_le_bytes());
    fields.put(&acl.to_le_bytes());
    fields.put(&owner.to_le_bytes());
    // Where the path ends, without which path and data could be confused.
    let path_length = u32::try_from(path.len()).expect("a frame limits a path");
    fields.put(&path_length.to_le_bytes());
    fields.put(&[u8::from(data.is_some())]);
    XxHash3_128::oneshot_with_seed(SEED_CONTENT, fields.filled())
}

/// Names a znode in [`numbers`].
pub(super) fn path(path: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(SEED_PATH, path)
}

/// The second contribution.
pub(super) fn numbers(path: u128, meta: &Meta) -> u128 {
    let mut fields = Fields::<NUMBERS_BYTES>::new();
    fields.put(&path.to_le_bytes());
    for long in [meta.czxid, meta.mzxid, meta.pzxid, meta.ctime, meta.mtime] {
        fields.put(&long.to_le_bytes());
    }
    for int in [meta.version, meta.creates, meta.aversion] {
        fields.put(&int.to_le_bytes());
    }
    if meta.steady_ms == meta.mtime {
        return XxHash3_128::oneshot_with_seed(SEED_NUMBERS, fields.filled());
    }
    let mut longer = Fields::<{ NUMBERS_BYTES + 8 }>::new();
    longer.put(fields.filled());
    longer.put(&meta.steady_ms.to_le_bytes());
    XxHash3_128::oneshot_with_seed(SEED_NUMBERS, longer.filled())
}

/// What a znode contributes to ZooKeeper's digest. Nothing, below `/zookeeper`: ZooKeeper could
/// not keep usage of quotas equal on all servers.
pub(super) fn legacy(path: &[u8], znode: &Znode) -> u64 {
    if path.starts_with(b"/zookeeper/") {
        return 0;
    }
    let meta = &znode.meta;
    let mut numbers = Fields::<LEGACY_NUMBERS_BYTES>::new();
    for long in [meta.czxid, meta.mzxid, meta.pzxid, meta.ctime, meta.mtime] {
        numbers.put(&long.to_be_bytes());
    }
    for int in [meta.version, meta.creates, meta.aversion] {
        numbers.put(&int.to_be_bytes());
    }
    numbers.put(&meta.owner.to_be_bytes());
    // There, the path of the root is the empty one.
    let path = if path == path::ROOT.as_bytes() { b"" } else { path };
    u64::from(crc32([path, znode.data().unwrap_or_default(), numbers.filled()]))
}

/// The hash of two pieces, one behind the other.
fn hash(seed: u64, front: &[u8], back: &[u8]) -> u128 {
    if let Some(hash) = put_together([front, back], |all| XxHash3_128::oneshot_with_seed(seed, all))
    {
        return hash;
    }
    let mut hasher = XxHash3_128::with_seed(seed);
    hasher.write(front);
    hasher.write(back);
    hasher.finish_128()
}

/// The checksum of pieces, one behind the other.
fn crc32(pieces: [&[u8]; 3]) -> u32 {
    put_together(pieces, crc32fast::hash).unwrap_or_else(|| {
        let mut crc = crc32fast::Hasher::new();
        pieces.iter().for_each(|piece| crc.update(piece));
        crc.finalize()
    })
}

/// What is made of pieces, one behind the other, if they are short: for each that is taken by
/// itself, a hash or a checksum costs as much as for dozens of bytes.
fn put_together<const N: usize, T>(
    pieces: [&[u8]; N],
    made_of: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let mut together = [0; TOGETHER_BYTES_MAX];
    let mut left = together.get_mut(..pieces.iter().map(|piece| piece.len()).sum())?;
    let len = left.len();
    for piece in pieces {
        let (here, behind) = left.split_at_mut(piece.len());
        here.copy_from_slice(piece);
        left = behind;
    }
    Some(made_of(&together[..len]))
}

/// Fixed-size fields one behind the other, without an allocation.
struct Fields<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> Fields<N> {
    fn new() -> Self {
        Self { bytes: [0; N], used: 0 }
    }

    fn put(&mut self, field: &[u8]) {
        self.bytes[self.used..self.used + field.len()].copy_from_slice(field);
        self.used += field.len();
    }

    fn filled(&self) -> &[u8] {
        assert_eq!(self.used, N, "the fields are as long as declared");
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_count_as_what_they_are_together_however_long_they_are() {
        for len in
            [0_usize, 1, 2, 16, 128, 239, 240, 241, 510, 511, 512, 513, 600, 1024, 5000, 1 << 20]
        {
            let all: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
            for cut in [0, 1, 7, 255, 256, 257, len / 2, len.saturating_sub(1), len] {
                let (front, back) = all.split_at(cut.min(len));
                let seed = SEED_BYTES;
                let hashed = XxHash3_128::oneshot_with_seed(seed, &all);
                assert_eq!(hash(seed, front, back), hashed, "{len} bytes cut at {cut}");
                let (back, behind) = back.split_at(back.len() / 3);
                assert_eq!(crc32([front, back, behind]), crc32fast::hash(&all), "{len}");
            }
        }
    }
}
