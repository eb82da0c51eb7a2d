//! The lists that znodes share.
//!
//! *Owns* every [`AclList`] in use, once, and how many znodes use it. *Invariant*: a list lives
//! as long as a znode refers to it; the open list always.
//! *Never*: lets an [`AclId`] leave the tree; records and digests carry the entries themselves.
//! Reproduces `ReferenceCountedACLCache`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::proto::{Acl, Text};

use super::acl::{AclList, is_open};

/// Number of a shared list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AclId(u32);

impl AclId {
    /// `world:anyone` with all permissions.
    pub(super) const OPEN: Self = Self(0);
}

/// Orders lists by their entries.
#[derive(Debug)]
struct ByEntries(Arc<AclList>);

impl PartialEq for ByEntries {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByEntries {}

impl PartialOrd for ByEntries {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByEntries {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.entries().cmp(other.0.entries())
    }
}

#[derive(Debug)]
struct Shared {
    list: Arc<AclList>,
    uses: usize,
}

#[derive(Debug)]
pub(super) struct AclTable {
    lists: Vec<Shared>,
    free: Vec<AclId>,
    ids: BTreeMap<ByEntries, AclId>,
}

impl AclTable {
    pub(super) fn new() -> Self {
        let list = Arc::new(AclList::new(vec![Acl::open()]));
        Self { lists: vec![Shared { list, uses: 0 }], free: Vec::new(), ids: BTreeMap::new() }
    }

    pub(super) fn list(&self, id: AclId) -> &Arc<AclList> {
        &self.lists[id.0 as usize].list
    }

    /// Counts one more use of the list with these entries. `likely` is looked at first: most
    /// znodes have the list of their parent.
    pub(super) fn acquire(&mut self, entries: &[Acl], likely: AclId) -> AclId {
        let id = if is_open(entries) {
            AclId::OPEN
        } else if self.list(likely).entries() == entries {
            likely
        } else {
            self.intern(entries)
        };
        self.lists[id.0 as usize].uses += 1;
        id
    }

    fn intern(&mut self, entries: &[Acl]) -> AclId {
        // Copied, or one small list would keep the whole frame that it came in.
        let copied = entries.iter().map(|acl| Acl {
            perms: acl.perms,
            scheme: Text::copy_from(acl.scheme.as_str()),
            id: Text::copy_from(acl.id.as_str()),
        });
        let list = Arc::new(AclList::new(copied.collect()));
        if let Some(id) = self.ids.get(&ByEntries(Arc::clone(&list))) {
            return *id;
        }
        let shared = Shared { list: Arc::clone(&list), uses: 0 };
        let id = if let Some(id) = self.free.pop() {
            self.lists[id.0 as usize] = shared;
            id
        } else {
            self.lists.push(shared);
            AclId(u32::try_from(self.lists.len() - 1).expect("there are fewer lists than znodes"))
        };
        self.ids.insert(ByEntries(list), id);
        id
    }

    /// Whether a znode has a list with these entries.
    pub(super) fn has(&self, entries: &[Acl]) -> bool {
        self.ids.contains_key(&ByEntries(Arc::new(AclList::new(entries.to_vec()))))
    }

    /// Counts one use less and forgets the list after the last.
    pub(super) fn release(&mut self, id: AclId) {
        let shared = &mut self.lists[id.0 as usize];
        shared.uses -= 1;
        if shared.uses == 0 && id != AclId::OPEN {
            let open = Arc::clone(self.list(AclId::OPEN));
            let list = std::mem::replace(&mut self.lists[id.0 as usize].list, open);
            self.ids.remove(&ByEntries(list));
            self.free.push(id);
        }
    }

    /// How many lists are in use besides the open one.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}
