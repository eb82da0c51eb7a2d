//! The writes: each decides, and only then edits.
//!
//! *Owns* the order of checks of create, delete, setData, setACL and check, and what each changes.
//! *Invariants*: an error leaves the tree as it was; events are appended in ZooKeeper's order, the
//! znode's own before that of its parent's children.
//! Reproduces `PrepRequestProcessor.pRequest2Txn` together with `DataTree.processTxn`.

use std::sync::Arc;

use crate::proto::acl::perms;
use crate::proto::request::Create;
use crate::proto::{Acl, ErrorCode, EventType, Request, RequestClass, Stat, Text};

use super::acl::{allows, fixup};
use super::edit::NewData;
use super::mode::CreateMode;
use super::owner::Owner;
use super::path::{self, ZnodePath};
use super::quota::length;
use super::slab::{ZNODES_MAX, ZnodeId};
use super::znode::Meta;
use super::{Asker, Context, Created, Event, Identity, Life, Tree};

impl Tree {
    /// Creates a znode of any kind.
    ///
    /// # Errors
    /// In the order they are looked for: Unimplemented (TTL without extended types), BadArguments
    /// (mode, time to live, no slash), InvalidAcl, NoNode (parent), NoAuth (CREATE on the parent),
    /// BadArguments (path), NodeExists, NoChildrenForEphemerals, QuotaExceeded
    /// (also if a multi counts usage again and again).
    pub fn create(
        &mut self,
        ctx: &Context<'_>,
        request: &Create,
        events: &mut Vec<Event>,
    ) -> Result<Created, ErrorCode> {
        let mode = CreateMode::of(request, ctx.session, ctx.rules.extended_types)?;
        let asked = request.path.as_str();
        let parent_length = path::parent_length(asked).ok_or(ErrorCode::BadArguments)?;
        let acl = fixup(request.acl.as_deref(), ctx.asker())?;
        let parent = self.find(&asked[..parent_length]).ok_or(ErrorCode::NoNode)?;
        self.check_acl(parent, ctx.asker(), perms::CREATE)?;
        let mut parent_meta = self.slab[parent].meta;
        let path = if mode.is_sequential {
            let number = match mutant!("sequence-from-child-count") {
                true => self.slab[parent].children().len() as i32,
                false => parent_meta.creates,
            };
            path::numbered(asked, number)
        } else {
            request.path.clone()
        };
        let name = path.as_str();
        ZnodePath::parse(name).map_err(|_| ErrorCode::BadArguments)?;
        if self.find_child(parent, name).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(parent_meta.owner(), Owner::Session(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let data = request.data.as_deref();
        if self.exceeds_quota(ctx.rules, name, 1, length(data)) {
            return Err(ErrorCode::QuotaExceeded);
        }
        if self.slab.len() == ZNODES_MAX {
            return Err(ErrorCode::SystemError);
        }
        let usage = self.count_usage(name, data)?;

        parent_meta.creates = parent_meta.creates.wrapping_add(1);
        parent_meta.pzxid = ctx.zxid;
        self.amend(parent, parent_path(name, parent_length), parent_meta, NewData::Keep);
        let acl = self.acls.acquire(&acl, parent_meta.acl);
        let meta = Meta::new(ctx.zxid, ctx.now(), mode.owner, acl);
        let id = self.link(parent, name, meta, data);
        let stat = self.slab[id].stat();
        self.start_usage(id, name, usage);
        self.book_usage(name, 1, length(data));
        events.push(self.event(EventType::NodeCreated, id, path.clone()));
        let parent_path = parent_of(&path, parent_length);
        events.push(self.event(EventType::NodeChildrenChanged, parent, parent_path));
        Ok(Created { path, stat })
    }

    /// Deletes a leaf. Anybody may delete an ephemeral, if its parent's ACL lets them.
    ///
    /// # Errors
    /// BadArguments (special znode, no slash), NoNode (parent), NoAuth (DELETE on the parent),
    /// NoNode, BadVersion, NotEmpty, in this order.
    pub fn delete(
        &mut self,
        ctx: &Context<'_>,
        path: &Text,
        version: i32,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let name = path.as_str();
        let parent = self.parent_to_delete_from(name)?;
        if !mutant!("delete-past-acl") {
            self.check_acl(parent, ctx.asker(), perms::DELETE)?;
        }
        let id = self.find_child(parent, name).ok_or(ErrorCode::NoNode)?;
        next_version(self.slab[id].meta.version, version)?;
        if !self.slab[id].children().is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(ctx.zxid, id, path, events);
        Ok(())
    }

    /// Replaces the data. `None` is the null data.
    ///
    /// # Errors
    /// BadArguments (path), NoNode, NoAuth (WRITE), BadArguments (the members of the ensemble are
    /// not changed this way by any client), QuotaExceeded, BadVersion, in this order.
    pub fn set_data(
        &mut self,
        ctx: &Context<'_>,
        path: &Text,
        data: Option<&[u8]>,
        version: i32,
        events: &mut Vec<Event>,
    ) -> Result<Stat, ErrorCode> {
        let name = path.as_str();
        let id = self.find_valid(name)?;
        self.check_acl(id, ctx.asker(), perms::WRITE)?;
        // The same text may be written back: clients do that to see their watch of it fire.
        if name == path::CONFIG
            && data.unwrap_or_default() != self.slab[id].data().unwrap_or_default()
        {
            return Err(ErrorCode::BadArguments);
        }
        let grown = length(data) - length(self.slab[id].data());
        if self.exceeds_quota(ctx.rules, name, 0, grown) {
            return Err(ErrorCode::QuotaExceeded);
        }
        let mut meta = self.slab[id].meta;
        let version = if mutant!("version-unchecked") { -1 } else { version };
        meta.version = next_version(meta.version, version)?;
        meta.change(ctx.zxid, ctx.now());
        self.amend(id, name, meta, NewData::Replace(data));
        let stat = self.slab[id].stat();
        self.book_usage(name, 0, grown);
        events.push(self.event(EventType::NodeDataChanged, id, path.clone()));
        Ok(stat)
    }

    /// Replaces the text that names the members of the ensemble. Its version is -1, as ZooKeeper's.
    ///
    /// # Errors
    /// NoAuth (WRITE), unless `asker` is `None`: the server's own doing.
    pub fn set_config(
        &mut self,
        ctx: &Context<'_>,
        asker: Option<Asker<'_>>,
        text: &str,
        events: &mut Vec<Event>,
    ) -> Result<Stat, ErrorCode> {
        let id = self.find(path::CONFIG).ok_or(ErrorCode::NoNode)?;
        if let Some(asker) = asker {
            self.check_acl(id, asker, perms::WRITE)?;
        }
        let grown = length(Some(text.as_bytes())) - length(self.slab[id].data());
        let mut meta = self.slab[id].meta;
        meta.version = -1;
        meta.change(ctx.zxid, ctx.now());
        self.amend(id, path::CONFIG, meta, NewData::Replace(Some(text.as_bytes())));
        let stat = self.slab[id].stat();
        self.book_usage(path::CONFIG, 0, grown);
        let path = Text::from_static(path::CONFIG);
        events.push(self.event(EventType::NodeDataChanged, id, path));
        Ok(stat)
    }

    /// Whether this asker may not change the members of the ensemble.
    #[must_use]
    pub fn config_refuses(&self, asker: Asker<'_>) -> bool {
        self.find(path::CONFIG).is_none_or(|id| self.check_acl(id, asker, perms::WRITE).is_err())
    }

    /// The text that names the members of the ensemble; empty without one.
    #[must_use]
    pub fn config_text(&self) -> &str {
        let data = self.find(path::CONFIG).and_then(|id| self.slab[id].data());
        data.and_then(|data| std::str::from_utf8(data).ok()).unwrap_or_default()
    }

    /// Replaces the access control list; `version` is compared with the version of the list.
    ///
    /// # Errors
    /// BadArguments (path), InvalidAcl, NoNode, NoAuth (ADMIN), BadVersion, in this order.
    pub fn set_acl(
        &mut self,
        ctx: &Context<'_>,
        path: &Text,
        acl: Option<&[Acl]>,
        version: i32,
    ) -> Result<Stat, ErrorCode> {
        ZnodePath::parse(path.as_str()).map_err(|_| ErrorCode::BadArguments)?;
        let acl = fixup(acl, ctx.asker())?;
        let id = self.find(path.as_str()).ok_or(ErrorCode::NoNode)?;
        self.check_acl(id, ctx.asker(), perms::ADMIN)?;
        let mut meta = self.slab[id].meta;
        meta.aversion = next_version(meta.aversion, version)?;
        let old = meta.acl;
        meta.acl = self.acls.acquire(&acl, old);
        self.amend(id, path.as_str(), meta, NewData::Keep);
        self.acls.release(old);
        Ok(self.slab[id].stat())
    }

    /// The `check` of a multi: whether the data has this version.
    pub(super) fn check(
        &self,
        ctx: &Context<'_>,
        path: &Text,
        version: i32,
    ) -> Result<(), ErrorCode> {
        let id = self.find_valid(path.as_str())?;
        self.check_acl(id, ctx.asker(), perms::READ)?;
        next_version(self.slab[id].meta.version, version)?;
        Ok(())
    }

    /// Whether the ACL would refuse this request, as far as can be told without doing it. Only
    /// creates, delete, setData and setACL are looked at. What is wrong in another way is not
    /// refused here.
    #[must_use]
    pub fn acl_refuses(&self, ids: &[Identity], request: &Request) -> bool {
        let parent = |path: &str| self.parent_to_delete_from(path).ok();
        let (id, wanted) = match request {
            Request::Create(create) => (parent(create.path.as_str()), perms::CREATE),
            Request::Delete { path, .. } => (parent(path.as_str()), perms::DELETE),
            Request::SetData { path, .. } => (self.find(path.as_str()), perms::WRITE),
            Request::SetAcl { path, .. } => (self.find(path.as_str()), perms::ADMIN),
            // Its operations may depend on each other.
            Request::Multi(_) => return false,
            other => {
                debug_assert_ne!(
                    other.class(),
                    RequestClass::Write,
                    "each write says what it needs"
                );
                return false;
            }
        };
        id.is_some_and(|id| self.check_acl(id, self.asks_here(ids), wanted).is_err())
    }

    /// Removes a leaf whose removal was decided.
    pub(super) fn remove(&mut self, zxid: i64, id: ZnodeId, path: &Text, events: &mut Vec<Event>) {
        let name = path.as_str();
        let parent_length = path::parent_length(name).expect("a znode's path has a slash");
        let parent = self.slab[id].parent;
        let bytes = length(self.slab[id].data());
        let Stat { ephemeral_owner: session, czxid, ctime: ctime_ms, .. } = self.slab[id].stat();
        let life = Some(Life { session, czxid, ctime_ms });
        let deleted = self.event(EventType::NodeDeleted, id, path.clone());
        events.push(Event { life, ..deleted });
        let mut parent_meta = self.slab[parent].meta;
        if !mutant!("deletion-keeps-pzxid") {
            parent_meta.pzxid = zxid;
        }
        // It may have lost another child by the same transaction.
        if parent_meta != self.slab[parent].meta {
            self.amend(parent, parent_path(name, parent_length), parent_meta, NewData::Keep);
        }
        self.unlink(id, name);
        self.book_usage(name, -1, -bytes);
        let parent_path = parent_of(path, parent_length);
        events.push(self.event(EventType::NodeChildrenChanged, parent, parent_path));
    }

    /// The parent of a path that delete takes: it has a slash and is none of the special ones.
    pub(super) fn parent_to_delete_from(&self, path: &str) -> Result<ZnodeId, ErrorCode> {
        if path::is_special(path) {
            return Err(ErrorCode::BadArguments);
        }
        let length = path::parent_length(path).ok_or(ErrorCode::BadArguments)?;
        self.find(&path[..length]).ok_or(ErrorCode::NoNode)
    }

    pub(super) fn check_acl(
        &self,
        id: ZnodeId,
        asker: Asker<'_>,
        wanted: i32,
    ) -> Result<(), ErrorCode> {
        if allows(self.acls.list(self.slab[id].meta.acl), asker, wanted) {
            Ok(())
        } else {
            Err(ErrorCode::NoAuth)
        }
    }

    fn find_valid(&self, path: &str) -> Result<ZnodeId, ErrorCode> {
        ZnodePath::parse(path).map_err(|_| ErrorCode::BadArguments)?;
        self.find(path).ok_or(ErrorCode::NoNode)
    }

    pub(super) fn event(&self, kind: EventType, id: ZnodeId, path: Text) -> Event {
        let acl = Arc::clone(self.acls.list(self.slab[id].meta.acl));
        Event { kind, path, acl, life: None }
    }
}

/// The version after `current`, if `expected` allows the change. -1 is skipped: as an expected
/// version it means any.
fn next_version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected != -1 && expected != current {
        return Err(ErrorCode::BadVersion);
    }
    Ok(match current.wrapping_add(1) {
        -1 => 0,
        next => next,
    })
}

/// The path of the parent, which ends at `length`.
pub(super) fn parent_path(path: &str, length: usize) -> &str {
    if length == 0 { path::ROOT } else { &path[..length] }
}

/// The path of the parent, sharing the memory of the path.
pub(super) fn parent_of(path: &Text, length: usize) -> Text {
    if length == 0 { Text::from_static(path::ROOT) } else { path.slice_to(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_skip_minus_one_when_they_wrap() {
        assert_eq!(next_version(0, -1), Ok(1));
        assert_eq!(next_version(i32::MAX, i32::MAX), Ok(i32::MIN));
        assert_eq!(next_version(-2, -2), Ok(0));
        assert_eq!(next_version(-1, -1), Ok(0));
        assert_eq!(next_version(5, -2), Err(ErrorCode::BadVersion));
    }
}
