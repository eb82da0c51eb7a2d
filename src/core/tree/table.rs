//! From a path to its znode.
//!
//! *Owns* the hash table of paths. *Invariants*: the seed differs between processes, so clients
//! cannot choose paths that collide; nothing ever iterates the table, so the seed influences
//! nothing but speed. An entry keeps half of the hash of the whole path: growing touches no znode,
//! and a lookup rarely touches a wrong one. What it finds was compared with the znode and, unless
//! its parent is known, with all ancestors. Split into shards, so that growing never stops the
//! server for long.

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use super::ancestry;
use super::slab::ZnodeId;
use super::znode::Znodes;

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
    /// Every path has the same hash: only what is compared tells them apart.
    #[cfg(test)]
    collides: bool,
}

impl PathTable {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            #[cfg(test)]
            collides: false,
        }
    }

    /// A table in which all paths collide.
    #[cfg(test)]
    pub(super) fn colliding() -> Self {
        Self { collides: true, ..Self::new(0) }
    }

    pub(super) fn find(&self, slab: &Znodes, path: &[u8]) -> Option<ZnodeId> {
        self.find_by(path, |id| ancestry::has_path(slab, id, path))
    }

    /// The child of `parent`, which is not the root, with this name and path.
    pub(super) fn find_child(
        &self,
        slab: &Znodes,
        parent: ZnodeId,
        name: &[u8],
        path: &[u8],
    ) -> Option<ZnodeId> {
        self.find_by(path, |id| slab[id].parent == parent && slab[id].name() == name)
    }

    fn find_by(&self, path: &[u8], is_it: impl Fn(ZnodeId) -> bool) -> Option<ZnodeId> {
        let (shard, tag) = self.place(path);
        self.shards[shard]
            .find(spread(tag), |entry| entry.tag == tag && is_it(entry.id))
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
        #[cfg(test)]
        let hash = if self.collides { 0 } else { hash };
        #[allow(clippy::cast_possible_truncation)] // each half of the hash has its own use
        (hash as usize % SHARDS, (hash >> 32) as u32)
    }
}

/// The table takes its buckets from the low bits and its control bytes from the high ones.
fn spread(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}
