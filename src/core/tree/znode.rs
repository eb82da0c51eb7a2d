//! One znode, as it lies in memory.
//!
//! *Owns* the layout: 112 bytes, one allocation for name and data, one for the children if there
//! ever were any. *Invariants*: the name is the last component of its path, and that of the root is
//! empty; `position` is where the parent's children hold this znode.
//! *Never* knows its path, which `ancestry.rs` puts together: of a path of n components each is kept
//! once, by the znode that it names.
//! Reproduces `DataNode` and `StatPersisted`.

use crate::proto::Stat;

use super::acls::AclId;
use super::owner::Owner;
use super::slab::{Slab, ZnodeId};

/// When a write takes effect, by both clocks, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    /// Since the epoch.
    pub(super) time_ms: i64,
    /// By the steady clock.
    pub(super) steady_ms: i64,
}

/// Everything about a znode but its name, its data and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) czxid: i64,
    pub(super) mzxid: i64,
    pub(super) pzxid: i64,
    /// Milliseconds since the epoch, like `mtime`.
    pub(super) ctime: i64,
    pub(super) mtime: i64,
    /// When it was changed last, by the steady clock; of znodes that the reaper never looks at, as `mtime`.
    pub(super) steady_ms: i64,
    /// [`Owner`], encoded.
    pub(super) owner: i64,
    pub(super) version: i32,
    /// Children ever created: ZooKeeper's persisted cversion, and the next sequence number.
    pub(super) creates: i32,
    pub(super) aversion: i32,
    pub(super) acl: AclId,
}

impl Meta {
    /// Of a znode created now.
    pub(super) fn new(zxid: i64, now: Now, owner: Owner, acl: AclId) -> Self {
        let mut meta = Self {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: now.time_ms,
            mtime: 0,
            steady_ms: 0,
            owner: owner.encoded(),
            version: 0,
            creates: 0,
            aversion: 0,
            acl,
        };
        meta.change(zxid, now);
        meta
    }

    /// Its data is changed now.
    pub(super) fn change(&mut self, zxid: i64, now: Now) {
        self.mzxid = zxid;
        self.mtime = now.time_ms;
        self.steady_ms = match self.owner() {
            Owner::Container | Owner::Ttl(_) => now.steady_ms,
            Owner::Persistent | Owner::Session(_) => now.time_ms,
        };
    }

    pub(super) fn owner(&self) -> Owner {
        Owner::from_encoded(self.owner)
    }
}

/// The name and the data of a znode in one allocation.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Box<[u8]>,
    name_length: u32,
    has_data: bool,
}

impl Content {
    /// Copies both. `None` is the null data, which is kept apart from the empty one.
    pub(super) fn new(name: &[u8], data: Option<&[u8]>) -> Self {
        let name_length = u32::try_from(name.len()).expect("a frame limits the length of a name");
        let bytes = match data {
            None => name.into(),
            Some(data) => [name, data].concat().into_boxed_slice(),
        };
        Self { bytes, name_length, has_data: data.is_some() }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.bytes[..self.name_length as usize]
    }

    pub(super) fn data(&self) -> Option<&[u8]> {
        self.has_data.then(|| &self.bytes[self.name_length as usize..])
    }

    pub(super) fn data_length(&self) -> usize {
        self.bytes.len() - self.name_length as usize
    }
}

/// Number and size of some znodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) znodes: i64,
    /// Bytes of their data.
    pub(super) bytes: i64,
}

/// The children of a znode, and totals that no read has to walk for.
#[derive(Debug, Default)]
struct Family {
    children: Vec<ZnodeId>,
    /// Bytes of the children's names.
    name_bytes: u64,
    /// Totals of the children, their children and so on.
    below: Totals,
}

#[derive(Debug)]
pub(super) struct Znode {
    pub(super) meta: Meta,
    pub(super) content: Content,
    /// Boxed: most znodes are leaves.
    family: Option<Box<Family>>,
    /// Of the root: itself.
    pub(super) parent: ZnodeId,
    pub(super) position: u32,
}

/// The znodes of a tree.
pub(super) type Znodes = Slab<Znode>;

impl Znode {
    /// A leaf, not linked to its parent yet.
    pub(super) fn new(meta: Meta, content: Content) -> Self {
        Self { meta, content, family: None, parent: ZnodeId::ROOT, position: 0 }
    }

    /// The last component of its path.
    pub(super) fn name(&self) -> &[u8] {
        self.content.name()
    }

    pub(super) fn name_str(&self) -> &str {
        std::str::from_utf8(self.name()).expect("a name is made from a string")
    }

    pub(super) fn data(&self) -> Option<&[u8]> {
        self.content.data()
    }

    pub(super) fn data_length(&self) -> usize {
        self.content.data_length()
    }

    pub(super) fn children(&self) -> &[ZnodeId] {
        self.family.as_deref().map_or(&[], |family| &family.children)
    }

    /// Bytes of the children's names.
    pub(super) fn child_name_bytes(&self) -> u64 {
        self.family.as_deref().map_or(0, |family| family.name_bytes)
    }

    /// Totals of all znodes below this one.
    pub(super) fn below(&self) -> Totals {
        self.family.as_deref().map_or_else(Totals::default, |family| family.below)
    }

    /// Counts znodes that appeared or disappeared below this one, or whose data changed.
    pub(super) fn count_below(&mut self, change: Totals) {
        let below = &mut self.family.get_or_insert_default().below;
        below.znodes += change.znodes;
        below.bytes += change.bytes;
    }

    /// Appends a child with a name of this many bytes, and answers its position.
    pub(super) fn push_child(&mut self, child: ZnodeId, name_bytes: usize) -> u32 {
        let Family { children, name_bytes: all, .. } = &mut **self.family.get_or_insert_default();
        *all += name_bytes as u64;
        children.push(child);
        u32::try_from(children.len() - 1).expect("ids are 32 bits wide, and children are ids")
    }

    /// Takes the child at `position` out, whose name has this many bytes, and answers which one lies there now, if any.
    pub(super) fn remove_child(&mut self, position: u32, name_bytes: usize) -> Option<ZnodeId> {
        let family = self.family.as_mut().expect("a child has a parent with children");
        family.name_bytes -= name_bytes as u64;
        let children = &mut family.children;
        children.swap_remove(position as usize);
        let moved = children.get(position as usize).copied();
        if children.capacity() > CHILDREN_KEPT && children.len() <= children.capacity() / 4 {
            children.shrink_to(children.len() * 2);
        }
        moved
    }

    /// What clients see.
    pub(super) fn stat(&self) -> Stat {
        let meta = &self.meta;
        let num_children = i32::try_from(self.children().len()).unwrap_or(i32::MAX);
        Stat {
            czxid: meta.czxid,
            mzxid: meta.mzxid,
            ctime: meta.ctime,
            mtime: meta.mtime,
            version: meta.version,
            // Creates plus deletes, which is twice the creates less those still there.
            cversion: meta.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: meta.aversion,
            ephemeral_owner: meta.owner().session(),
            data_length: i32::try_from(self.data_length()).unwrap_or(i32::MAX),
            num_children,
            pzxid: meta.pzxid,
        }
    }
}

/// Room for this many children is never given back, so that a lock whose queue runs empty again
/// and again does not allocate.
const CHILDREN_KEPT: usize = 16;
