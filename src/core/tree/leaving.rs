//! The end of a session: its ephemerals go, at once or in portions.
//!
//! *Owns* which of them are left. *Invariants*: they go in the order of their paths; between two portions the tree is
//! whole. *Never* decides that a session ends, or what others see of the tree meanwhile.

use std::collections::BTreeMap;

use crate::proto::Text;

use super::quota::length;
use super::slab::ZnodeId;
use super::{Context, Event, Tree, ancestry};

/// Ephemerals of a session that ends.
#[derive(Debug)]
pub struct Leaving {
    session: i64,
    /// ZooKeeper has ended it.
    is_foreign: bool,
    /// The least that is not in `paths` yet; `None`: they all are.
    next: Option<ZnodeId>,
    paths: BTreeMap<String, ZnodeId>,
}

impl Leaving {
    /// Those of this session. `is_foreign`: ZooKeeper has ended it.
    #[must_use]
    pub fn of(session: i64, is_foreign: bool) -> Self {
        Self { session, is_foreign, next: Some(ZnodeId::MIN), paths: BTreeMap::new() }
    }
}

impl Tree {
    /// Removes every ephemeral of the session `ctx.session`.
    pub fn close_session(&mut self, ctx: &Context<'_>, events: &mut Vec<Event>) {
        self.let_leave(ctx, &mut Leaving::of(ctx.session, false), usize::MAX, events);
    }

    /// Removes them as ZooKeeper has done it.
    pub fn close_session_foreign(&mut self, ctx: &Context<'_>, events: &mut Vec<Event>) {
        self.let_leave(ctx, &mut Leaving::of(ctx.session, true), usize::MAX, events);
    }

    /// Whether a session has more ephemerals than this.
    #[must_use]
    pub fn has_more_ephemerals(&self, session: i64, than: usize) -> bool {
        self.owned.of_session(session, ZnodeId::MIN).nth(than).is_some()
    }

    /// Goes on to remove them: looks at so many and removes as many, at most. Whether all are gone.
    pub fn let_leave(
        &mut self,
        ctx: &Context<'_>,
        leaving: &mut Leaving,
        znodes_max: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        if let Some(from) = leaving.next.take() {
            for id in self.owned.of_session(leaving.session, from).take(znodes_max) {
                leaving.paths.insert(ancestry::path(&self.slab, id), id);
                leaving.next = Some(id.next());
            }
            if leaving.next.is_some() && leaving.paths.len() >= znodes_max {
                return false;
            }
            leaving.next = None;
        }
        for _ in 0..znodes_max {
            let Some((path, id)) = leaving.paths.pop_first() else { return true };
            let path = Text::from(path);
            if leaving.is_foreign {
                // It is there: a session's znodes have none below them.
                let _ = self.delete_foreign(ctx, &path, events);
                continue;
            }
            if mutant!("usage-outlives-session") {
                self.book_usage(path.as_str(), 1, length(self.slab[id].data()));
            }
            self.remove(ctx.zxid, id, &path, events);
        }
        leaving.paths.is_empty()
    }
}
