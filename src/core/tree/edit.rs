//! The three edits that every write is made of, and how they are taken back.
//!
//! *Owns* link, unlink and amend. *Invariants*: each keeps the slab, the table of paths, the
//! parent's children, the totals of all ancestors, owners, quotas, shared lists, both digests, the
//! figures and the notes of what changed in step; edits noted in a [`Journal`] can be taken back in reverse order.
//! *Never* decides whether something is allowed, and never puts a path together that its caller knows.

use std::sync::Arc;

use super::quota::length;
use super::slab::ZnodeId;
use super::znode::{Content, Meta, Totals, Znode};
use super::{Journal, Shares, Tree, Undo, ancestry, digest, path};

/// What an amendment does to the data.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewData<'a> {
    Keep,
    Replace(Option<&'a [u8]>),
}

impl Tree {
    /// Adds the leaf `path` below its parent and takes over one use of its list.
    pub(super) fn link(
        &mut self,
        parent: ZnodeId,
        path: &str,
        meta: Meta,
        data: Option<&[u8]>,
    ) -> ZnodeId {
        self.link_content(parent, path, meta, Content::new(path::name(path).as_bytes(), data))
    }

    fn link_content(
        &mut self,
        parent: ZnodeId,
        path: &str,
        meta: Meta,
        content: Content,
    ) -> ZnodeId {
        self.data_size += (path.len() + content.data_length()) as u64;
        let id = self.slab.insert(Znode::new(meta, content));
        self.table.insert(path.as_bytes(), id);
        if self.changes.appeared(path.as_bytes()) {
            self.slab.set_stored(id, true);
        }
        self.quotas.appeared(path);
        self.owned.insert(meta.owner(), id);
        if id != ZnodeId::ROOT {
            let (name_bytes, totals) = of_one(&self.slab[id]);
            let position = self.slab[parent].push_child(id, name_bytes);
            let znode = &mut self.slab[id];
            (znode.parent, znode.position) = (parent, position);
            ancestry::count(&mut self.slab, parent, totals);
        }
        self.slab.mark_changed(id);
        let path = path.as_bytes();
        self.add_to_digests(id, path, self.shares(id, path, digest::path(path)), true);
        if self.journal.is_open {
            self.journal.edits.push(Undo::Linked(id));
        }
        id
    }

    /// Removes the leaf `path` and releases its list.
    pub(super) fn unlink(&mut self, id: ZnodeId, path: &str) {
        assert!(self.slab[id].children().is_empty(), "only leaves are removed");
        assert!(id != ZnodeId::ROOT, "the root stays");
        let bytes = path.as_bytes();
        self.take_from_digests(id, bytes, self.shares(id, bytes, digest::path(bytes)), true);
        // Another znode may get its number.
        self.last_amended = None;
        let Znode { parent, position, .. } = self.slab[id];
        let (name_bytes, totals) = of_one(&self.slab[id]);
        if let Some(moved) = self.slab[parent].remove_child(position, name_bytes) {
            self.slab[moved].position = position;
        }
        let gone = Totals { znodes: -totals.znodes, bytes: -totals.bytes };
        ancestry::count(&mut self.slab, parent, gone);
        let stored = self.slab.is_stored(id);
        let znode = self.slab.remove(id);
        self.table.remove(bytes, id);
        self.changes.disappeared(bytes, stored);
        self.quotas.disappeared(path);
        self.owned.remove(znode.meta.owner(), id);
        self.data_size -= (path.len() + znode.data_length()) as u64;
        let Znode { meta, content, .. } = znode;
        if self.journal.is_open {
            let acl = Arc::clone(self.acls.list(meta.acl));
            self.journal.edits.push(Undo::Unlinked { id, parent, meta, content, acl });
        }
        self.acls.release(meta.acl);
    }

    /// Changes numbers of the znode `path`, and data if asked to. The owner never changes; when the
    /// list does, its uses are the caller's business.
    pub(super) fn amend(&mut self, id: ZnodeId, path: &str, meta: Meta, data: NewData<'_>) {
        let content = match data {
            NewData::Keep => None,
            NewData::Replace(data) => Some(Content::new(self.slab[id].name(), data)),
        };
        let (meta, content) = self.swap(id, path.as_bytes(), meta, content);
        if self.journal.is_open {
            self.journal.edits.push(Undo::Amended { id, meta, content });
        }
    }

    /// Puts new numbers and content in place and answers the old ones.
    fn swap(
        &mut self,
        id: ZnodeId,
        path: &[u8],
        meta: Meta,
        content: Option<Content>,
    ) -> (Meta, Option<Content>) {
        let is_deep = content.is_some() || meta.acl != self.slab[id].meta.acl;
        let shares = self.last_amended.take().filter(|(of, _)| *of == id).map(|(_, shares)| shares);
        let shares = shares.unwrap_or_else(|| self.shares(id, path, digest::path(path)));
        self.take_from_digests(id, path, shares, is_deep);
        let znode = &mut self.slab[id];
        let old_meta = std::mem::replace(&mut znode.meta, meta);
        let old_content = content.map(|content| {
            self.data_size += content.data_length() as u64;
            std::mem::replace(&mut znode.content, content)
        });
        if let Some(old) = &old_content {
            self.data_size -= old.data_length() as u64;
            let bytes = length(znode.data()) - length(old.data());
            let parent = znode.parent;
            if bytes != 0 && id != ZnodeId::ROOT {
                ancestry::count(&mut self.slab, parent, Totals { znodes: 0, bytes });
            }
        }
        self.slab.mark_changed(id);
        let shares = self.shares(id, path, shares.path);
        self.add_to_digests(id, path, shares, is_deep);
        self.last_amended = Some((id, shares));
        (old_meta, old_content)
    }

    /// Starts to note edits.
    pub(super) fn open_journal(&mut self) {
        assert!(self.journal.edits.is_empty(), "a multi is inside no other");
        self.journal.is_open = true;
    }

    /// Keeps what was done.
    pub(super) fn keep_edits(&mut self) {
        self.journal = Journal::default();
    }

    /// Takes everything back.
    pub(super) fn take_back_edits(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        // One after the other, so that each takes the memory of the one before.
        let mut path = String::new();
        for edit in journal.edits.into_iter().rev() {
            match edit {
                Undo::Linked(id) => {
                    ancestry::put_path(&self.slab, id, &mut path);
                    self.unlink(id, &path);
                }
                Undo::Unlinked { id, parent, mut meta, content, acl } => {
                    meta.acl = self.acls.acquire(acl.entries(), meta.acl);
                    ancestry::put_child_path(&self.slab, parent, content.name(), &mut path);
                    let linked = self.link_content(parent, &path, meta, content);
                    assert_eq!(linked, id, "slots are taken in the reverse order of their release");
                }
                Undo::Amended { id, mut meta, content } => {
                    meta.acl = self.slab[id].meta.acl;
                    ancestry::put_path(&self.slab, id, &mut path);
                    self.swap(id, path.as_bytes(), meta, content);
                }
            }
        }
    }

    fn add_to_digests(&mut self, id: ZnodeId, path: &[u8], shares: Shares, is_deep: bool) {
        let more = self.contribution(id, path, shares, is_deep);
        self.digest = self.digest.wrapping_add(more);
        if let Some(scrub) = &mut self.scrub {
            scrub.follow(id, |sum| sum.wrapping_add(more));
        }
        self.legacy_digest = self.legacy_digest.map(|sum| sum.wrapping_add(shares.legacy));
    }

    fn take_from_digests(&mut self, id: ZnodeId, path: &[u8], shares: Shares, is_deep: bool) {
        let less = self.contribution(id, path, shares, is_deep);
        self.digest = self.digest.wrapping_sub(less);
        if let Some(scrub) = &mut self.scrub {
            scrub.follow(id, |sum| sum.wrapping_sub(less));
        }
        self.legacy_digest = self.legacy_digest.map(|sum| sum.wrapping_sub(shares.legacy));
    }

    pub(super) fn shares(&self, id: ZnodeId, path: &[u8], path_hash: u128) -> Shares {
        let znode = &self.slab[id];
        let legacy = self.legacy_digest.map_or(0, |_| digest::legacy(path, znode));
        Shares { path: path_hash, numbers: digest::numbers(path_hash, &znode.meta), legacy }
    }

    /// What a znode adds to the digest; unless deep, only the part that its numbers decide.
    pub(super) fn contribution(
        &self,
        id: ZnodeId,
        path: &[u8],
        shares: Shares,
        is_deep: bool,
    ) -> u128 {
        if !is_deep {
            return shares.numbers;
        }
        let znode = &self.slab[id];
        let acl = self.acls.list(znode.meta.acl);
        let content = digest::content(path, znode.data(), znode.meta.owner, acl.hash());
        shares.numbers.wrapping_add(content)
    }
}

/// Bytes of a znode's name, and what it adds to the totals of those above it.
fn of_one(znode: &Znode) -> (usize, Totals) {
    (znode.name().len(), Totals { znodes: 1, bytes: length(znode.data()) })
}
