//! Where the znodes lie: chunks of slots that never move.
//!
//! *Owns* the slots, their ids, and two bits of each: changed (since it was last drained) and stored
//! (its record was drained or loaded at least once). *Invariants*: an id is stable from insert to
//! remove; growing copies nothing, so there is no pause and no double memory at a power of two; a
//! slot freed last is used first, so taking edits back in reverse order gives every znode its old id.
//! *Never*: knows what a znode means.

use std::ops::{Index, IndexMut};

/// Number of a slot. Says nothing about the znode and differs between servers: nothing that is
/// replicated or shown may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ZnodeId(u32);

impl ZnodeId {
    pub(super) const MIN: Self = Self(0);
    pub(super) const MAX: Self = Self(u32::MAX);
    /// The root is inserted first and never removed.
    pub(super) const ROOT: Self = Self(0);

    /// The slot after this one.
    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    fn of(chunk: usize, slot: usize) -> Self {
        let number = chunk * CHUNK_SLOTS + slot;
        Self(u32::try_from(number).expect("ZNODES_MAX is checked before a znode is made"))
    }

    fn split(self) -> (usize, usize) {
        ((self.0 >> CHUNK_BITS) as usize, self.0 as usize % CHUNK_SLOTS)
    }
}

/// How many znodes a tree may hold.
pub(crate) const ZNODES_MAX: usize = u32::MAX as usize;

const CHUNK_BITS: u32 = 12;
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
const CHUNK_WORDS: usize = CHUNK_SLOTS / 64;

#[derive(Debug)]
enum Slot<T> {
    Used(T),
    /// With the slot freed before it.
    Free(Option<ZnodeId>),
}

#[derive(Debug)]
struct Chunk<T> {
    slots: Vec<Slot<T>>,
    changed: [u64; CHUNK_WORDS],
    changed_count: usize,
    stored: [u64; CHUNK_WORDS],
    /// Which slots hold a znode.
    used: [u64; CHUNK_WORDS],
    used_count: usize,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    free: Option<ZnodeId>,
    len: usize,
    changed_count: usize,
    /// The chunk that the next drain looks at first.
    cursor: usize,
}

impl<T> Slab<T> {
    pub(super) const EMPTY: Self =
        Self { chunks: Vec::new(), free: None, len: 0, changed_count: 0, cursor: 0 };

    /// Znodes in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, znode: T) -> ZnodeId {
        let id = if let Some(id) = self.free {
            let slot = self.slot_mut(id);
            let Slot::Free(next) = *slot else {
                unreachable!("the list of free slots holds free slots");
            };
            *slot = Slot::Used(znode);
            self.free = next;
            id
        } else {
            self.append(znode)
        };
        self.set_used(id, true);
        id
    }

    fn append(&mut self, znode: T) -> ZnodeId {
        if self.chunks.last().is_none_or(|chunk| chunk.slots.len() == CHUNK_SLOTS) {
            self.chunks.push(Chunk {
                slots: Vec::with_capacity(CHUNK_SLOTS),
                changed: [0; CHUNK_WORDS],
                changed_count: 0,
                stored: [0; CHUNK_WORDS],
                used: [0; CHUNK_WORDS],
                used_count: 0,
            });
        }
        let last = self.chunks.len() - 1;
        let slots = &mut self.chunks[last].slots;
        slots.push(Slot::Used(znode));
        ZnodeId::of(last, slots.len() - 1)
    }

    /// The znode that was inserted last, if none was ever removed.
    pub(super) fn last(&self) -> Option<ZnodeId> {
        let slots = &self.chunks.last()?.slots;
        let is_used = matches!(slots.last()?, Slot::Used(_));
        is_used.then(|| ZnodeId::of(self.chunks.len() - 1, slots.len() - 1))
    }

    /// The first znode in this slot or behind it.
    pub(super) fn used_from(&self, id: ZnodeId) -> Option<ZnodeId> {
        let (first_chunk, first_slot) = id.split();
        for (number, chunk) in self.chunks.iter().enumerate().skip(first_chunk) {
            let from = if number == first_chunk { first_slot } else { 0 };
            for word in from / 64..CHUNK_WORDS {
                let before = if word == from / 64 { (1 << (from % 64)) - 1 } else { 0 };
                let used = chunk.used[word] & !before;
                if used != 0 {
                    return Some(ZnodeId::of(number, word * 64 + used.trailing_zeros() as usize));
                }
            }
        }
        None
    }

    fn set_used(&mut self, id: ZnodeId, is_used: bool) {
        let (chunk, slot) = id.split();
        let chunk = &mut self.chunks[chunk];
        chunk.used[slot / 64] ^= 1 << (slot % 64);
        if is_used {
            chunk.used_count += 1;
            self.len += 1;
        } else {
            chunk.used_count -= 1;
            self.len -= 1;
        }
    }

    /// Takes a znode out; whether it changed or was stored is forgotten.
    pub(super) fn remove(&mut self, id: ZnodeId) -> T {
        self.unmark_changed(id);
        self.set_stored(id, false);
        let next = self.free;
        let Slot::Used(znode) = std::mem::replace(self.slot_mut(id), Slot::Free(next)) else {
            unreachable!("an id names a znode until it is removed");
        };
        self.free = Some(id);
        self.set_used(id, false);
        znode
    }

    /// Notes that a znode differs from what was last drained.
    pub(super) fn mark_changed(&mut self, id: ZnodeId) {
        let (chunk, slot) = id.split();
        let chunk = &mut self.chunks[chunk];
        let bit = 1 << (slot % 64);
        if chunk.changed[slot / 64] & bit == 0 {
            chunk.changed[slot / 64] |= bit;
            chunk.changed_count += 1;
            self.changed_count += 1;
        }
    }

    /// Takes the note back, if there is one.
    pub(super) fn unmark_changed(&mut self, id: ZnodeId) {
        let (chunk, slot) = id.split();
        let chunk = &mut self.chunks[chunk];
        let bit = 1 << (slot % 64);
        if chunk.changed[slot / 64] & bit != 0 {
            chunk.changed[slot / 64] &= !bit;
            chunk.changed_count -= 1;
            self.changed_count -= 1;
        }
    }

    pub(super) fn set_stored(&mut self, id: ZnodeId, stored: bool) {
        let (chunk, slot) = id.split();
        let word = &mut self.chunks[chunk].stored[slot / 64];
        *word = *word & !(1 << (slot % 64)) | u64::from(stored) << (slot % 64);
    }

    pub(super) fn is_stored(&self, id: ZnodeId) -> bool {
        let (chunk, slot) = id.split();
        self.chunks[chunk].stored[slot / 64] & 1 << (slot % 64) != 0
    }

    /// Notes that all of them do.
    pub(super) fn mark_all_changed(&mut self) {
        for chunk in &mut self.chunks {
            chunk.changed = chunk.used;
            chunk.changed_count = chunk.used_count;
        }
        self.changed_count = self.len;
    }

    /// How many changed.
    pub(super) fn changed_count(&self) -> usize {
        self.changed_count
    }

    /// One of those that changed, which then no longer counts as changed. Goes around.
    pub(super) fn pop_changed(&mut self) -> Option<ZnodeId> {
        if self.changed_count == 0 {
            return None;
        }
        while self.chunks[self.cursor].changed_count == 0 {
            self.cursor = (self.cursor + 1) % self.chunks.len();
        }
        let chunk = &self.chunks[self.cursor];
        let word = chunk.changed.iter().position(|word| *word != 0).expect("the count says so");
        let slot = word * 64 + chunk.changed[word].trailing_zeros() as usize;
        let id = ZnodeId::of(self.cursor, slot);
        self.unmark_changed(id);
        Some(id)
    }

    fn slot_mut(&mut self, id: ZnodeId) -> &mut Slot<T> {
        let (chunk, slot) = id.split();
        &mut self.chunks[chunk].slots[slot]
    }
}

impl<T> Index<ZnodeId> for Slab<T> {
    type Output = T;

    fn index(&self, id: ZnodeId) -> &T {
        let (chunk, slot) = id.split();
        match &self.chunks[chunk].slots[slot] {
            Slot::Used(znode) => znode,
            Slot::Free(_) => unreachable!("an id names a znode until it is removed"),
        }
    }
}

impl<T> IndexMut<ZnodeId> for Slab<T> {
    fn index_mut(&mut self, id: ZnodeId) -> &mut T {
        match self.slot_mut(id) {
            Slot::Used(znode) => znode,
            Slot::Free(_) => unreachable!("an id names a znode until it is removed"),
        }
    }
}
