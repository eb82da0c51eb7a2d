//! The rules of the tree, each proved by a test named after it. [`model`] compares a long random
//! history with a naive tree.

mod access;
mod create;
mod lookup;
mod model;
mod modify;
mod multi;
mod persistence;
mod quota;
mod reading;
mod reaping;
mod scrub;
mod shape;

use bytes::Bytes;

use crate::proto::request::{Create, CreateKind};
use crate::proto::{Acl, ErrorCode, MultiOp, MultiResult, Stat, Text};

use super::slab::ZnodeId;
use super::table::PathTable;
use super::znode::Totals;
use super::{
    Context, Created, Event, Identity, Leaving, Options, Rules, Tree, ancestry, digest, path,
};

/// A tree, and somebody who talks to it. Each write has the next zxid, at 1000 ms times the zxid.
struct Fixture {
    tree: Tree,
    zxid: i64,
    /// How far stamps are ahead of the steady clock, which shows the zxid in seconds.
    wall_ahead_ms: i64,
    session: i64,
    ids: Vec<Identity>,
    events: Vec<Event>,
}

impl Fixture {
    fn new() -> Self {
        let rules = Rules { extended_types: true, ..Rules::DEFAULT };
        Self::with(Options { rules, legacy_digest: true, ..Options::default() })
    }

    fn with(options: Options) -> Self {
        let tree = Tree::fresh(options);
        let (ids, events) = (Vec::new(), Vec::new());
        Self { tree, zxid: 0, wall_ahead_ms: 0, session: 7, ids, events }
    }

    /// Does a write under the next zxid.
    fn write<T>(&mut self, write: impl FnOnce(&mut Tree, &Context<'_>, &mut Vec<Event>) -> T) -> T {
        self.zxid += 1;
        let (zxid, session) = (self.zxid, self.session);
        let steady_ms = 1000 * zxid;
        let time_ms = steady_ms + self.wall_ahead_ms;
        let rules = self.tree.options().rules;
        let ctx = Context { zxid, time_ms, steady_ms, session, ids: &self.ids, rules };
        write(&mut self.tree, &ctx, &mut self.events)
    }

    fn request(&mut self, request: &Create) -> Result<Created, ErrorCode> {
        self.write(|tree, ctx, events| tree.create(ctx, request, events))
    }

    /// Creates with opcode 15, the open ACL and empty data; answers the path.
    fn create(&mut self, path: &str, flags: i32) -> Result<String, ErrorCode> {
        let created = self.request(&create(path, flags))?;
        Ok(created.path.as_str().to_owned())
    }

    /// Creates persistent znodes that are only there to be used.
    fn given(&mut self, paths: &[&str]) {
        for path in paths {
            self.create(path, 0).unwrap();
        }
        self.events.clear();
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        self.write(|tree, ctx, events| tree.delete(ctx, &Text::from(path), version, events))
    }

    fn set(&mut self, path: &str, data: &str, version: i32) -> Result<Stat, ErrorCode> {
        self.write(|tree, ctx, events| {
            tree.set_data(ctx, &Text::from(path), Some(data.as_bytes()), version, events)
        })
    }

    fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Stat, ErrorCode> {
        self.write(|tree, ctx, _| tree.set_acl(ctx, &Text::from(path), Some(acl), version))
    }

    fn multi(&mut self, ops: &[MultiOp]) -> Result<Vec<MultiResult>, Vec<MultiResult>> {
        self.write(|tree, ctx, events| tree.multi(ctx, ops, events))
    }

    /// Ends the session; so many of its ephemerals go at once.
    fn close_in_portions(&mut self, znodes: usize) {
        self.write(|tree, ctx, events| {
            let mut leaving = Leaving::of(ctx.session, false);
            while !tree.let_leave(ctx, &mut leaving, znodes, events) {
                assert_consistent(tree);
            }
        });
    }

    fn stat(&self, path: &str) -> Stat {
        self.tree.stat_unchecked(path).unwrap()
    }

    fn data(&self, path: &str) -> Option<Vec<u8>> {
        let (data, _) = self.tree.get_data(&self.ids, path).unwrap();
        data.map(<[u8]>::to_vec)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let children = self.tree.children(&self.ids, path).unwrap();
        let mut names: Vec<String> = children.names().map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// The events since it was last asked.
    fn heard(&mut self) -> Vec<String> {
        self.events.drain(..).map(|event| format!("{:?} {}", event.kind, event.path)).collect()
    }
}

fn create(path: &str, flags: i32) -> Create {
    Create {
        kind: CreateKind::Create2,
        path: Text::from(path),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
    }
}

fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl { perms, scheme: Text::from(scheme), id: Text::from(id) }
}

/// Every znode with its path, put together from the root down.
fn paths_from_above(tree: &Tree) -> Vec<(String, ZnodeId)> {
    let mut found = vec![(path::ROOT.to_owned(), ZnodeId::ROOT)];
    let mut seen = 0;
    while let Some((path, id)) = found.get(seen).cloned() {
        for child in tree.slab[id].children() {
            found.push((path::child(&path, tree.slab[*child].name_str()), *child));
        }
        seen += 1;
    }
    found
}

/// Both digests, computed from nothing but the znodes.
fn digests_from_scratch(tree: &Tree) -> (u128, u64) {
    let (mut sum, mut legacy) = (0_u128, 0_u64);
    for (path, id) in paths_from_above(tree) {
        let (path, znode) = (path.as_bytes(), &tree.slab[id]);
        let acl = tree.acls.list(znode.meta.acl);
        sum = sum
            .wrapping_add(digest::content(path, znode.data(), znode.meta.owner, acl.hash()))
            .wrapping_add(digest::numbers(digest::path(path), &znode.meta));
        legacy = legacy.wrapping_add(digest::legacy(path, znode));
    }
    (sum, legacy)
}

/// Whether all that is kept in step is in step.
/// Totals of all that is below a znode, counted one by one.
fn below(tree: &Tree, id: ZnodeId) -> Totals {
    let mut totals = Totals::default();
    let mut unseen = tree.slab[id].children().to_vec();
    while let Some(id) = unseen.pop() {
        totals.znodes += 1;
        totals.bytes += tree.slab[id].data_length() as i64;
        unseen.extend(tree.slab[id].children());
    }
    totals
}

fn assert_consistent(tree: &Tree) {
    let (sum, legacy) = digests_from_scratch(tree);
    assert_eq!(tree.digest(), sum);
    if tree.options.legacy_digest {
        assert_eq!(tree.legacy_digest(), Some(legacy));
    }
    let mut size = 0;
    let znodes = paths_from_above(tree);
    for (path, id) in &znodes {
        let (id, znode) = (*id, &tree.slab[*id]);
        assert_eq!(tree.find(path), Some(id));
        assert_eq!(ancestry::path(&tree.slab, id), *path);
        for (position, child) in znode.children().iter().enumerate() {
            assert_eq!(tree.slab[*child].position as usize, position);
            assert_eq!(tree.slab[*child].parent, id);
        }
        size += (path.len() + znode.data_length()) as u64;
        let names = znode.children().iter().map(|child| tree.slab[*child].name().len() as u64);
        assert_eq!(znode.child_name_bytes(), names.sum::<u64>(), "{path}");
        assert_eq!(znode.below(), below(tree, id), "{path}");
    }
    assert_eq!(tree.data_size(), size);
    assert_eq!(tree.node_count(), znodes.len());
}
