//! Changes that ZooKeeper has decided: its znodes as they are, and its transactions.
//!
//! *Owns* what a znode of a snapshot becomes here, and what each transaction of ZooKeeper does to the tree.
//! *Invariants*: nothing is checked but what keeps the tree a tree, because ZooKeeper has decided; numbers are
//! those of
//! the transaction. A transaction that the tree has already (a snapshot is written while the server works on)
//! leaves
//! the tree as it would be without it, once those behind it are applied, too. ZooKeeper's digest follows.
//! *Never* knows a transaction's bytes, a session's end, or a multi.
//!
//! Reproduces `DataTree.deserialize`, `createNode`, `deleteNode`, `setData`, `setACL` and `setCversionPzxid`.

use crate::proto::{Acl, ErrorCode, EventType, Stat, Text};
use crate::zookeeper::StatPersisted;

use super::acls::AclId;
use super::edit::NewData;
use super::owner::TTL_MS_MAX;
use super::path::{self, ZnodePath};
use super::quota::length;
use super::slab::{ZNODES_MAX, ZnodeId};
use super::write::{parent_of, parent_path};
use super::znode::Meta;
use super::{Context, Event, Owner, Tree, ancestry, digest};

/// A znode that comes as ZooKeeper has made it.
#[derive(Clone, Copy, Debug)]
pub struct ForeignCreate<'a> {
    /// Its path.
    pub path: &'a Text,
    /// Its data.
    pub data: Option<&'a [u8]>,
    /// Its list.
    pub acl: &'a [Acl],
    /// Whose it is.
    pub owner: Owner,
    /// The number of children that its parent ever had, with it; -1: one more than before.
    pub parent_cversion: i32,
}

/// The list of a znode whose own list is not known yet: it lets no client in.
fn unknown_acl() -> [Acl; 1] {
    [Acl { perms: 0, scheme: Text::from_static("unknown"), id: Text::default() }]
}

/// A list that ZooKeeper takes for one that lets in everybody.
fn or_open(acl: &[Acl]) -> Vec<Acl> {
    if acl.is_empty() { vec![Acl::open()] } else { acl.to_vec() }
}

impl Tree {
    /// Adds a znode of a snapshot of ZooKeeper to a tree that began [`empty`](Tree::empty), parents first.
    /// Without a
    /// list, no client may do anything with it, and [`Tree::find_without_acl`] names it.
    ///
    /// # Errors
    /// What is wrong with it, after which the tree is not to be used.
    pub fn load_foreign(
        &mut self,
        path: &Text,
        data: Option<&[u8]>,
        acl: Option<&[Acl]>,
        stat: &StatPersisted,
    ) -> Result<(), &'static str> {
        let parsed = ZnodePath::parse(path.as_str()).map_err(|invalid| invalid.0)?;
        let parent = match parsed.parent() {
            None => ZnodeId::ROOT,
            Some(parent) => self.find(parent).ok_or("has no parent in front of it")?,
        };
        if self.slab.len() > 0 && matches!(self.slab[parent].meta.owner(), Owner::Session(_)) {
            return Err("has an ephemeral parent");
        }
        if self.slab.len() == ZNODES_MAX {
            return Err("is one more than a tree can hold");
        }
        if self.find(path.as_str()).is_some() {
            return Err("is there twice");
        }
        let is_special = path::is_special(path.as_str());
        if is_special && Owner::from_encoded(stat.ephemeral_owner) != Owner::Persistent {
            return Err("is special, but has an owner");
        }
        let is_first = self.slab.len() == 0;
        let likely = if is_first { AclId::OPEN } else { self.slab[parent].meta.acl };
        let entries = acl.map_or_else(|| unknown_acl().to_vec(), or_open);
        let acl = self.acls.acquire(&entries, likely);
        let meta = Meta {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            steady_ms: stat.mtime,
            owner: stat.ephemeral_owner,
            version: stat.version,
            creates: stat.cversion,
            aversion: stat.aversion,
            acl,
        };
        self.link(parent, path.as_str(), meta, data);
        Ok(())
    }

    /// Adds the znodes that every tree has and that early versions of ZooKeeper did not have.
    ///
    /// # Errors
    /// There is not even a root.
    pub fn complete_foreign(&mut self) -> Result<(), &'static str> {
        if self.slab.len() == 0 {
            return Err("has no root");
        }
        let fresh = Self::fresh(self.options.clone());
        for path in [path::ZOOKEEPER, path::CONFIG, path::QUOTA] {
            if self.find(path).is_some() {
                continue;
            }
            let znode = &fresh.slab[fresh.find(path).expect("every tree has it")];
            let mut meta = znode.meta;
            meta.acl = self.acls.acquire(fresh.acls.list(meta.acl).entries(), AclId::OPEN);
            let parent = if path == path::ZOOKEEPER { path::ROOT } else { path::ZOOKEEPER };
            let parent = self.find(parent).expect("it was made before its children");
            self.link(parent, path, meta, Some(b""));
        }
        Ok(())
    }

    /// Of the znodes that were loaded without a list and have not got one since, the one with the least path: each
    /// server is to find the same, and has its own order of children.
    #[must_use]
    pub fn find_without_acl(&self) -> Option<String> {
        let unknown = unknown_acl();
        if !self.acls.has(&unknown) {
            return None;
        }
        let mut found = None;
        let mut unseen = vec![ZnodeId::ROOT];
        while let Some(id) = unseen.pop() {
            if self.acls.list(self.slab[id].meta.acl).entries() == unknown {
                keep_least(&mut found, ancestry::path(&self.slab, id));
            }
            unseen.extend(self.slab[id].children());
        }
        found
    }

    /// Carries out a create. `ctx.ids` says nothing.
    ///
    /// # Errors
    /// BadArguments (path), NoNode (parent), NoChildrenForEphemerals, NodeExists, SystemError (no room). After
    /// NodeExists the numbers of the
    /// parent and the list are as the create has them.
    pub fn create_foreign(
        &mut self,
        ctx: &Context<'_>,
        create: &ForeignCreate<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Stat, ErrorCode> {
        let &ForeignCreate { path, data, acl, owner, parent_cversion } = create;
        let name = path.as_str();
        ZnodePath::parse(name).map_err(|_| ErrorCode::BadArguments)?;
        let parent_length = path::parent_length(name).ok_or(ErrorCode::BadArguments)?;
        let parent = self.find(&name[..parent_length]).ok_or(ErrorCode::NoNode)?;
        if matches!(self.slab[parent].meta.owner(), Owner::Session(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let acl = or_open(acl);
        let existing = self.find(name);
        if existing.is_none() && self.slab.len() == ZNODES_MAX {
            return Err(ErrorCode::SystemError);
        }
        let mut parent_meta = self.slab[parent].meta;
        let next = match parent_cversion {
            -1 => parent_meta.creates.wrapping_add(1),
            given => given,
        };
        if next > parent_meta.creates {
            (parent_meta.creates, parent_meta.pzxid) = (next, ctx.zxid);
            self.amend(parent, parent_path(name, parent_length), parent_meta, NewData::Keep);
        }
        if let Some(id) = existing {
            self.replace_acl(id, name, &acl, |_| {});
            return Err(ErrorCode::NodeExists);
        }
        let usage = self.count_usage(name, data)?;
        let owner = match owner {
            Owner::Ttl(ttl_ms) => Owner::Ttl(ttl_ms.clamp(1, TTL_MS_MAX)),
            Owner::Persistent | Owner::Container | Owner::Session(_) => owner,
        };
        let acl = self.acls.acquire(&acl, self.slab[parent].meta.acl);
        let id = self.link(parent, name, Meta::new(ctx.zxid, ctx.now(), owner, acl), data);
        let stat = self.slab[id].stat();
        self.start_usage(id, name, usage);
        self.book_usage(name, 1, length(data));
        events.push(self.event(EventType::NodeCreated, id, path.clone()));
        let parent_path = parent_of(path, parent_length);
        events.push(self.event(EventType::NodeChildrenChanged, parent, parent_path));
        Ok(stat)
    }

    /// Carries out a delete, also of an ephemeral of another session. What is below it goes with it: it can
    /// only be there because
    /// it is made again by a later transaction, which the snapshot has already.
    ///
    /// # Errors
    /// BadArguments (special znode, no path), NoNode. The parent of a znode that is not there knows of the
    /// delete.
    pub fn delete_foreign(
        &mut self,
        ctx: &Context<'_>,
        path: &Text,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let name = path.as_str();
        let parent = self.parent_to_delete_from(name)?;
        let parent_name = parent_path(name, path::parent_length(name).unwrap_or(0));
        let Some(id) = self.find(name) else {
            let mut meta = self.slab[parent].meta;
            if ctx.zxid > meta.pzxid {
                meta.pzxid = ctx.zxid;
                self.amend(parent, parent_name, meta, NewData::Keep);
            }
            return Err(ErrorCode::NoNode);
        };
        let pzxid = self.slab[parent].meta.pzxid;
        for (path, id) in self.leaves_first(id) {
            self.remove(ctx.zxid, id, &Text::from(path), events);
        }
        if pzxid > ctx.zxid {
            let meta = Meta { pzxid, ..self.slab[parent].meta };
            self.amend(parent, parent_name, meta, NewData::Keep);
        }
        Ok(())
    }

    /// Of the znodes that another tree has otherwise, the one with the least path, and what of it, in words: each
    /// server is to find the same, and has its own order of children. `/zookeeper` and what is below it is left out:
    /// ZooKeeper cannot keep usage of quotas equal on its own servers.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        let path = self.find_difference(other)?;
        let at = |tree: &Self| tree.find(&path).map(|id| tree.slab[id].stat());
        Some(match (at(self), at(other)) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                format!("{path} has another Stat: {ours:?} here, {theirs:?} there")
            }
            (Some(_), Some(_)) if self.data_unchecked(&path) != other.data_unchecked(&path) => {
                format!("{path} has other data")
            }
            (Some(_), Some(_)) => format!("{path} has another access control list"),
            (Some(_), None) => format!("{path} is here alone"),
            (None, _) => format!("{path} is there alone"),
        })
    }

    fn find_difference(&self, other: &Self) -> Option<String> {
        let mut different = None;
        let mut unseen = vec![(path::ROOT.to_owned(), ZnodeId::ROOT, ZnodeId::ROOT)];
        while let Some((path, own, others)) = unseen.pop() {
            let (ours, theirs) = (&self.slab[own], &other.slab[others]);
            let lists = (self.acls.list(ours.meta.acl), other.acls.list(theirs.meta.acl));
            if ours.stat() != theirs.stat()
                || ours.data() != theirs.data()
                || lists.0.entries() != lists.1.entries()
            {
                keep_least(&mut different, path);
            }
            for child in ours.children().iter().copied() {
                let name = ancestry::path(&self.slab, child);
                if name == path::ZOOKEEPER {
                    continue;
                }
                match other.find(&name) {
                    Some(found) => unseen.push((name, child, found)),
                    None => keep_least(&mut different, name),
                }
            }
            for child in theirs.children().iter().copied() {
                let name = ancestry::path(&other.slab, child);
                if self.find(&name).is_none() {
                    keep_least(&mut different, name);
                }
            }
        }
        different
    }

    /// ZooKeeper's digest, whether or not it is kept up to date: looks at every znode.
    #[must_use]
    pub fn compute_legacy_digest(&self) -> u64 {
        let (mut path, mut digest) = (String::new(), 0_u64);
        let mut unseen = if self.slab.len() > 0 { vec![ZnodeId::ROOT] } else { Vec::new() };
        while let Some(id) = unseen.pop() {
            ancestry::put_path(&self.slab, id, &mut path);
            digest = digest.wrapping_add(digest::legacy(path.as_bytes(), &self.slab[id]));
            unseen.extend(self.slab[id].children());
        }
        digest
    }

    /// Hands out every znode as ZooKeeper persists it, parents first: path, data, list, numbers.
    ///
    /// # Errors
    /// The first that `take` gives.
    pub fn for_each_persisted<E>(
        &self,
        mut take: impl FnMut(&str, Option<&[u8]>, &[Acl], &StatPersisted) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut path = String::new();
        let mut unseen = vec![ZnodeId::ROOT];
        while let Some(id) = unseen.pop() {
            let znode = &self.slab[id];
            let meta = &znode.meta;
            let stat = StatPersisted {
                czxid: meta.czxid,
                mzxid: meta.mzxid,
                ctime: meta.ctime,
                mtime: meta.mtime,
                version: meta.version,
                cversion: meta.creates,
                aversion: meta.aversion,
                ephemeral_owner: meta.owner,
                pzxid: meta.pzxid,
            };
            ancestry::put_path(&self.slab, id, &mut path);
            take(&path, znode.data(), self.acls.list(meta.acl).entries(), &stat)?;
            unseen.extend(znode.children());
        }
        Ok(())
    }

    /// Carries out a setData.
    ///
    /// # Errors
    /// NoNode.
    pub fn set_data_foreign(
        &mut self,
        ctx: &Context<'_>,
        path: &Text,
        data: Option<&[u8]>,
        version: i32,
        events: &mut Vec<Event>,
    ) -> Result<Stat, ErrorCode> {
        let name = path.as_str();
        let id = self.find(name).ok_or(ErrorCode::NoNode)?;
        let grown = length(data) - length(self.slab[id].data());
        let mut meta = self.slab[id].meta;
        meta.version = version;
        meta.change(ctx.zxid, ctx.now());
        self.amend(id, name, meta, NewData::Replace(data));
        let stat = self.slab[id].stat();
        self.book_usage(name, 0, grown);
        events.push(self.event(EventType::NodeDataChanged, id, path.clone()));
        Ok(stat)
    }

    /// Carries out a setACL.
    ///
    /// # Errors
    /// NoNode.
    pub fn set_acl_foreign(
        &mut self,
        path: &Text,
        acl: &[Acl],
        version: i32,
    ) -> Result<Stat, ErrorCode> {
        let id = self.find(path.as_str()).ok_or(ErrorCode::NoNode)?;
        self.replace_acl(id, path.as_str(), &or_open(acl), |meta| meta.aversion = version);
        Ok(self.slab[id].stat())
    }

    /// Empties the znode that names the members: those of another ensemble say nothing here.
    pub fn forget_config(&mut self) {
        if let Some(id) = self.find(path::CONFIG) {
            let meta = self.slab[id].meta;
            self.amend(id, path::CONFIG, meta, NewData::Replace(Some(b"")));
        }
    }

    fn replace_acl(
        &mut self,
        id: ZnodeId,
        path: &str,
        acl: &[Acl],
        change: impl FnOnce(&mut Meta),
    ) {
        let mut meta = self.slab[id].meta;
        let old = meta.acl;
        meta.acl = self.acls.acquire(acl, old);
        change(&mut meta);
        self.amend(id, path, meta, NewData::Keep);
        self.acls.release(old);
    }

    /// A znode and all below it, children before their parents, in the order of their paths.
    fn leaves_first(&self, top: ZnodeId) -> Vec<(String, ZnodeId)> {
        let mut found = Vec::new();
        let mut unseen = vec![top];
        while let Some(id) = unseen.pop() {
            found.push((ancestry::path(&self.slab, id), id));
            unseen.extend(self.slab[id].children());
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found
    }
}

fn keep_least(least: &mut Option<String>, path: String) {
    if least.as_ref().is_none_or(|known| path < *known) {
        *least = Some(path);
    }
}
