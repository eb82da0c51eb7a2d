//! The reads.
//!
//! *Owns* what each read may see. *Invariant*: a path is looked up as it is; whatever is no path of
//! a znode is simply not there, and the empty path is the root.
//! Reproduces the read parts of `FinalRequestProcessor`.

use std::cmp::Ordering;

use crate::proto::acl::perms;
use crate::proto::{Acl, ErrorCode, Stat, Text};

use super::path;
use super::slab::ZnodeId;
use super::znode::Znodes;
use super::{Asker, Identity, Tree, ancestry};

/// The children of a znode.
#[derive(Clone, Copy, Debug)]
pub struct Children<'a> {
    /// Of the parent.
    pub stat: Stat,
    slab: &'a Znodes,
    ids: &'a [ZnodeId],
    name_bytes: u64,
}

impl<'a> Children<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes of their last components.
    #[must_use]
    pub fn name_bytes(&self) -> u64 {
        self.name_bytes
    }

    /// Their last components, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let slab = self.slab;
        self.ids.iter().map(|id| slab[*id].name_str())
    }
}

/// A znode as the server itself sees it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The last component of its path; empty for the root.
    pub name: &'a str,
    /// Its stat.
    pub stat: Stat,
    /// Its data; `None` without any, or if not everybody may read them.
    pub data: Option<&'a [u8]>,
    /// The number that its next sequential child gets.
    pub next_child: i32,
}

/// A znode with an ephemeral child. Copied and compared at no cost; its path is put together when
/// it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    slab: &'a Znodes,
    id: ZnodeId,
}

impl Parent<'_> {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> String {
        ancestry::path(self.slab, self.id)
    }
}

impl PartialEq for Parent<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Parent<'_> {}

impl PartialOrd for Parent<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// In no useful order: only for sets of them.
impl Ord for Parent<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

impl Tree {
    /// The stat of a znode.
    ///
    /// # Errors
    /// BadArguments (NUL in the path), NoNode, NoAuth (READ).
    pub fn exists(&self, ids: &[Identity], path: &str) -> Result<Stat, ErrorCode> {
        if path.as_bytes().contains(&0) {
            return Err(ErrorCode::BadArguments);
        }
        Ok(self.slab[self.readable(ids, path, perms::READ)?].stat())
    }

    /// Data and stat.
    ///
    /// # Errors
    /// NoNode, NoAuth (READ).
    pub fn get_data(
        &self,
        ids: &[Identity],
        path: &str,
    ) -> Result<(Option<&[u8]>, Stat), ErrorCode> {
        let znode = &self.slab[self.readable(ids, path, perms::READ)?];
        Ok((znode.data(), znode.stat()))
    }

    /// The access control list, and the stat. Password hashes are masked for those who may not
    /// administer the znode.
    ///
    /// # Errors
    /// NoNode, NoAuth (READ or ADMIN).
    pub fn get_acl(&self, ids: &[Identity], path: &str) -> Result<(Vec<Acl>, Stat), ErrorCode> {
        let id = self.readable(ids, path, perms::READ | perms::ADMIN)?;
        let list = self.acls.list(self.slab[id].meta.acl);
        let entries = match self.check_acl(id, self.asks_here(ids), perms::ADMIN) {
            Ok(()) => list.entries().to_vec(),
            Err(_) => list.masked(),
        };
        Ok((entries, self.slab[id].stat()))
    }

    /// The children.
    ///
    /// # Errors
    /// NoNode, NoAuth (READ).
    pub fn children(&self, ids: &[Identity], path: &str) -> Result<Children<'_>, ErrorCode> {
        let znode = &self.slab[self.readable(ids, path, perms::READ)?];
        let (ids, name_bytes) = (znode.children(), znode.child_name_bytes());
        Ok(Children { stat: znode.stat(), slab: &self.slab, ids, name_bytes })
    }

    /// How many znodes there are below a path, at any depth.
    ///
    /// # Errors
    /// NoNode, NoAuth (READ on the path alone).
    pub fn all_children_number(&self, ids: &[Identity], path: &str) -> Result<i32, ErrorCode> {
        let id = self.readable(ids, path, perms::READ)?;
        Ok(i32::try_from(self.slab[id].below().znodes).unwrap_or(i32::MAX))
    }

    /// Shows the ephemerals of a session whose paths start with `prefix`, in no particular order. How many it owns in
    /// all. The prefix is a plain one of strings; null, blank and the root mean all.
    pub fn ephemerals(
        &self,
        session: i64,
        prefix: Option<&str>,
        mut show: impl FnMut(&str),
    ) -> usize {
        let prefix = prefix.filter(|prefix| !matches!(prefix.trim(), "" | path::ROOT));
        let prefix = prefix.unwrap_or_default();
        let (mut path, mut owned) = (String::new(), 0);
        // Most have the parent of the one before: its path is put together once.
        let (mut parent, mut front, mut may_match) = (None, 0, false);
        for id in self.owned.of_session(session, ZnodeId::MIN) {
            owned += 1;
            let znode = &self.slab[id];
            if parent != Some(znode.parent) {
                parent = Some(znode.parent);
                ancestry::put_path(&self.slab, znode.parent, &mut path);
                if znode.parent != ZnodeId::ROOT {
                    path.push('/');
                }
                front = path.len();
                may_match = path.starts_with(prefix) || prefix.starts_with(&path);
            }
            if !may_match {
                continue;
            }
            path.truncate(front);
            path.push_str(znode.name_str());
            if path.starts_with(prefix) {
                show(&path);
            }
        }
        owned
    }

    /// The paths of znodes, in order.
    pub(super) fn sorted_paths(&self, ids: impl Iterator<Item = ZnodeId>) -> Vec<Text> {
        let mut paths: Vec<Text> =
            ids.map(|id| Text::from(ancestry::path(&self.slab, id))).collect();
        paths.sort_unstable();
        paths
    }

    /// How many ephemerals a session owns.
    #[must_use]
    pub fn ephemerals_of(&self, session: i64) -> usize {
        self.owned.of_session(session, ZnodeId::MIN).count()
    }

    /// Ephemerals, by session: the parent and the name of each. In no useful order.
    pub fn all_ephemerals(&self) -> impl Iterator<Item = (Parent<'_>, &str)> + '_ {
        self.owned.ephemerals().map(|id| {
            let znode = &self.slab[id];
            (Parent { slab: &self.slab, id: znode.parent }, znode.name_str())
        })
    }

    /// A znode for an operator: its data only if they are open to the world.
    #[must_use]
    pub fn shown(&self, path: &str) -> Option<Shown<'_>> {
        self.find(path).map(|id| self.show(id))
    }

    /// The access control list of a znode for an operator; hashes of passwords are masked.
    #[must_use]
    pub fn acl_shown(&self, path: &str) -> Vec<Acl> {
        let list = self.find(path).map(|id| self.acls.list(self.slab[id].meta.acl));
        list.map(|list| list.masked()).unwrap_or_default()
    }

    /// The access control list of a znode as it is, for who has the whole state.
    #[must_use]
    pub fn acl_entries(&self, path: &str) -> Vec<Acl> {
        let list = self.find(path).map(|id| self.acls.list(self.slab[id].meta.acl));
        list.map(|list| list.entries().to_vec()).unwrap_or_default()
    }

    /// The children of a znode for an operator, in no useful order.
    pub fn shown_children(&self, path: &str) -> impl Iterator<Item = Shown<'_>> + '_ {
        let children = self.find(path).map_or(&[][..], |id| self.slab[id].children());
        children.iter().map(|id| self.show(*id))
    }

    /// The children of a znode by name and session, 0 without one, without a check of the ACL and in no useful order:
    /// for the server itself.
    pub fn children_unchecked(&self, path: &str) -> impl Iterator<Item = (&str, i64)> + '_ {
        let children = self.find(path).map_or(&[][..], |id| self.slab[id].children());
        children.iter().map(|id| {
            let znode = &self.slab[*id];
            (znode.name_str(), znode.stat().ephemeral_owner)
        })
    }

    fn show(&self, id: ZnodeId) -> Shown<'_> {
        let znode = &self.slab[id];
        let data =
            znode.data().filter(|_| self.check_acl(id, self.asks_here(&[]), perms::READ).is_ok());
        let (name, stat) = (znode.name_str(), znode.stat());
        Shown { name, stat, data, next_child: znode.meta.creates }
    }

    /// The data of a znode that exists and has some, without asking for permission: for the server
    /// itself.
    #[must_use]
    pub fn data_unchecked(&self, path: &str) -> Option<&[u8]> {
        self.slab[self.find(path)?].data()
    }

    /// The stat of a znode, without a check of the ACL: for watches that are set again.
    #[must_use]
    pub fn stat_unchecked(&self, path: &str) -> Option<Stat> {
        self.find(path).map(|id| self.slab[id].stat())
    }

    /// A client that asks this server for what the server decides alone: by its own rules.
    #[must_use]
    pub fn asks_here<'a>(&self, ids: &'a [Identity]) -> Asker<'a> {
        Asker { ids, rules: self.options.rules }
    }

    fn readable(&self, ids: &[Identity], path: &str, wanted: i32) -> Result<ZnodeId, ErrorCode> {
        let id = self.find(path).ok_or(ErrorCode::NoNode)?;
        self.check_acl(id, self.asks_here(ids), wanted)?;
        Ok(id)
    }
}
