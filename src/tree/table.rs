//! From a path to its znode.
//!
//! *Owns* the hash table of paths. *Invariants*: the seed differs between processes, so clients
//! cannot choose paths that collide; nothing ever iterates the table, so the seed influences
//! nothing but speed. An entry keeps half of its hash: growing touches no znode, and a lookup
//! rarely touches a wrong one. Split into shards, so that growing never stops the server for long.

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use super::slab::{Slab, ZnodeId};

const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    id: ZnodeId,
}

#[derive(Debug)]
pub(super) struct PathTable {
    seed: u64,
    shards: Vec<HashTable<Entry>>,
}

impl PathTable {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    pub(super) fn find(&self, slab: &Slab, path: &[u8]) -> Option<ZnodeId> {
        let (shard, tag) = self.place(path);
        self.shards[shard]
            .find(spread(tag), |entry| entry.tag == tag && slab[entry.id].path() == path)
            .map(|entry| entry.id)
    }

    /// The path must not be there yet.
    pub(super) fn insert(&mut self, path: &[u8], id: ZnodeId) {
        let (shard, tag) = self.place(path);
        self.shards[shard].insert_unique(spread(tag), Entry { tag, id }, |entry| spread(entry.tag));
    }

    pub(super) fn remove(&mut self, path: &[u8], id: ZnodeId) {
        let (shard, tag) = self.place(path);
        self.shards[shard]
            .find_entry(spread(tag), |entry| entry.id == id)
            .expect("every znode is in the table under its path")
            .remove();
    }

    fn place(&self, path: &[u8]) -> (usize, u32) {
        let hash = XxHash3_64::oneshot_with_seed(self.seed, path);
        #[allow(clippy::cast_possible_truncation)] // each half of the hash has its own use
        (hash as usize % SHARDS, (hash >> 32) as u32)
    }
}

/// The table takes its buckets from the low bits and its control bytes from the high ones.
fn spread(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}
