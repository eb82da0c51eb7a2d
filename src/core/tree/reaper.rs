//! Containers and znodes with a time to live: which may go, and their going.
//!
//! *Owns* the two rules. *Invariant*: what is deleted is looked at again when the deletion is
//! applied; a candidate that was used meanwhile stays.
//! *Never* reads a clock.
//! Reproduces `ContainerManager`.

use crate::proto::{ErrorCode, Text};

use super::owner::Owner;
use super::{Context, Event, Tree};

impl Tree {
    /// Up to `max` childless znodes whose time is over at `now_ms` of the steady clock, in the order of their
    /// paths: containers that had children, or were left unused for longer than `never_used_ms` (0: then they
    /// stay for ever), and TTL znodes not changed for longer than their time to live.
    #[must_use]
    pub fn reapable(&self, now_ms: i64, never_used_ms: i64, max: usize) -> Vec<Text> {
        let due = self.owned.reapable().filter(|id| {
            let znode = &self.slab[*id];
            let age_ms = now_ms.saturating_sub(znode.meta.steady_ms);
            let is_due = match znode.meta.owner() {
                Owner::Container => {
                    znode.meta.creates > 0 || (never_used_ms != 0 && age_ms > never_used_ms)
                }
                Owner::Ttl(_) if mutant!("ttl-unchecked") => true,
                Owner::Ttl(ttl_ms) => age_ms > ttl_ms,
                Owner::Persistent | Owner::Session(_) => false,
            };
            is_due && znode.children().is_empty()
        });
        self.sorted_paths(due.take(max))
    }

    /// Deletes what the reaper found, if it is still a container or an expired TTL znode without
    /// children. No ACL is asked.
    ///
    /// # Errors
    /// BadArguments (special znode, no slash), NoNode, NotEmpty, BadVersion (of another kind, or
    /// changed since it was found).
    pub fn delete_container(
        &mut self,
        ctx: &Context<'_>,
        path: &Text,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        self.parent_to_delete_from(path.as_str())?;
        let id = self.find(path.as_str()).ok_or(ErrorCode::NoNode)?;
        let znode = &self.slab[id];
        if !znode.children().is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        let is_due = match znode.meta.owner() {
            Owner::Container => true,
            Owner::Ttl(_) if mutant!("ttl-unchecked") => true,
            Owner::Ttl(ttl_ms) => ctx.steady_ms.saturating_sub(znode.meta.steady_ms) > ttl_ms,
            Owner::Persistent | Owner::Session(_) => false,
        };
        if !is_due {
            return Err(ErrorCode::BadVersion);
        }
        self.remove(ctx.zxid, id, path, events);
        Ok(())
    }
}
