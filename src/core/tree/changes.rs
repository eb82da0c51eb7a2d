//! What the disk does not know yet, and what it knows.
//!
//! *Owns* tombstones, draining and loading. *Invariants*: a znode that differs from its stored
//! record is marked; a stored znode that was deleted has a tombstone; a znode that came and went
//! between two drains leaves nothing. Loading what was drained gives the same tree.
//! *Never* writes anything itself.

use std::fmt;
use std::sync::LazyLock;

use super::owner::Owner;
use super::path::{self, ZnodePath};
use super::slab::ZnodeId;
use super::{Tree, acl, ancestry, digest, record};
use crate::proto::Acl;

/// Bytes of records that one drain hands out, and one record more: a thousand small ones and a
/// thousand of a megabyte are not the same to the thread that copies and holds them.
pub(crate) const DRAIN_BYTES_MAX: usize = 1 << 20;

/// Takes one change: a path, and its record or `None` for a tombstone.
pub type TakeChange<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// A record that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its path, as far as it is text.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record of {:?} {}", self.path, self.reason)
    }
}

impl std::error::Error for BadRecord {}

/// That of the list that most have.
static OPEN_ACL: LazyLock<u128> = LazyLock::new(|| acl::hash(&[Acl::open()]));

/// What the znode of a stored record adds to the digest of its tree.
///
/// # Errors
/// It is no record.
pub fn record_digest(path: &[u8], value: &[u8]) -> Result<u128, BadRecord> {
    let record = record::decode(value)
        .map_err(|reason| BadRecord { path: String::from_utf8_lossy(path).into_owned(), reason })?;
    let acl = record.acl.as_deref().map_or_else(|| *OPEN_ACL, acl::hash);
    let numbers = digest::numbers(digest::path(path), &record.meta);
    Ok(numbers.wrapping_add(digest::content(path, record.data, record.meta.owner, acl)))
}

impl Tree {
    /// Adds the znode of a stored record to a tree that began [`empty`](Tree::empty). Records come
    /// in the order of their paths' bytes, so parents come before their children.
    ///
    /// # Errors
    /// [`BadRecord`], after which the tree is not to be used.
    pub fn load_record(&mut self, path: &[u8], value: &[u8]) -> Result<(), BadRecord> {
        self.load(path, value).map_err(|reason| BadRecord {
            path: String::from_utf8_lossy(path).into_owned(),
            reason,
        })
    }

    fn load(&mut self, path: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let text = std::str::from_utf8(path).map_err(|_| "has a path that is not UTF-8")?;
        let parsed = ZnodePath::parse(text).map_err(|invalid| invalid.0)?;
        let mut record = record::decode(value)?;
        let parent = match parsed.parent() {
            None => Some(ZnodeId::ROOT),
            Some(parent) => self.find(parent),
        };
        if self.slab.last().is_some_and(|before| {
            match parent {
                // Mostly they are siblings, whose names decide.
                Some(parent) if self.slab[before].parent == parent => {
                    parsed.name().as_bytes() <= self.slab[before].name()
                }
                _ => text <= ancestry::path(&self.slab, before).as_str(),
            }
        }) {
            return Err("does not come behind the one before it");
        }
        let parent = parent.ok_or("has no parent in front of it")?;
        if self.slab.len() > 0 && matches!(self.slab[parent].meta.owner(), Owner::Session(_)) {
            return Err("has an ephemeral parent");
        }
        if path::is_special(text) && record.meta.owner() != Owner::Persistent {
            return Err("is special, but has an owner");
        }
        let open = [Acl::open()];
        let entries = record.acl.as_deref().unwrap_or(&open);
        let likely =
            if self.slab.len() > 0 { self.slab[parent].meta.acl } else { super::acls::AclId::OPEN };
        record.meta.acl = self.acls.acquire(entries, likely);
        let id = self.link(parent, text, record.meta, record.data);
        self.slab.set_stored(id, true);
        self.slab.unmark_changed(id);
        Ok(())
    }

    /// Checks that a tree is complete once all records are loaded. Usage of quotas is part of the
    /// records and taken as it is.
    ///
    /// # Errors
    /// [`BadRecord`], naming a znode that every tree has.
    pub fn load_finished(&mut self) -> Result<(), BadRecord> {
        for path in [path::ROOT, path::ZOOKEEPER, path::QUOTA, path::CONFIG] {
            if self.find(path).is_none() {
                return Err(BadRecord { path: path.to_owned(), reason: "is missing" });
            }
        }
        Ok(())
    }

    /// Hands out up to `records_max` changes, and [`DRAIN_BYTES_MAX`] bytes, a path counted as many times as its bytes
    /// cost more: a path with its current record, or with `None` when the record has to go. Answers whether more is
    /// waiting.
    pub fn drain_changes(&mut self, records_max: usize, out: &mut TakeChange<'_>) -> bool {
        let (mut path, mut record) = (String::new(), Vec::new());
        let mut bytes = 0;
        for _ in 0..records_max {
            if bytes >= DRAIN_BYTES_MAX {
                break;
            }
            if let Some(gone) = self.changes.tombstones.pop_first() {
                bytes += gone.len();
                out(&gone, None);
            } else if let Some(id) = self.slab.pop_changed() {
                let znode = &self.slab[id];
                record.clear();
                record::encode(znode, self.acls.list(znode.meta.acl), &mut record);
                ancestry::put_path(&self.slab, id, &mut path);
                bytes += ancestry::PATH_BYTES_COST * path.len() + record.len();
                out(path.as_bytes(), Some(&record));
                self.slab.set_stored(id, true);
            } else {
                break;
            }
        }
        self.changes_waiting() > 0
    }

    /// How many changes wait to be drained. O(1).
    #[must_use]
    pub fn changes_waiting(&self) -> usize {
        self.changes.tombstones.len() + self.slab.changed_count()
    }

    /// Has every znode drained again. Copies a bit of each and touches none.
    pub fn mark_all_changed(&mut self) {
        self.slab.mark_all_changed();
    }

    /// While on, every deleted znode leaves a tombstone: during replay it is not known which paths
    /// the disk already had.
    pub fn keep_all_tombstones(&mut self, on: bool) {
        self.changes.keep_all = on;
    }
}
