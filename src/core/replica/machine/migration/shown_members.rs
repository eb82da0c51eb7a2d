//! `/zookeeper/config` as clients see it while this ensemble follows another one: with the members of this one.
//!
//! *Owns* what reads give instead of ZooKeeper's text, which events it has, and which requests would change it.
//! *Invariants*: a client that reads it here learns of servers of this ensemble alone, because Curator connects to no
//! others from then on; what clients cannot see does not fire their watches. *Never* changes the state: ZooKeeper's
//! transactions and the comparison with it need its text there.
//!
//! The Stats in other answers (getACL, getChildren, setACL) keep the length that the state has: no client reads the
//! members by them.

use crate::proto::{ErrorCode, EventType, MultiOp, MultiResult, Request, Stat};
use crate::replica::machine::{Machine, Migration};
use crate::tree::{Event, Identity, multi_failure, path};

impl Machine {
    /// Data and stat of a znode for a client.
    ///
    /// # Errors
    /// Those of [`Tree::get_data`](crate::tree::Tree::get_data).
    pub(in crate::replica) fn get_data(
        &self,
        ids: &[Identity],
        path: &str,
    ) -> Result<(Option<&[u8]>, Stat), ErrorCode> {
        let (data, stat) = self.tree.get_data(ids, path)?;
        // Without server lines that is an empty text, as behind the cutover: clients ignore it.
        let own = self.has_own_config(path).then(|| self.members_text().as_bytes());
        Ok((own.or(data), self.shown_stat(path, stat)))
    }

    /// Stat of a znode for a client.
    ///
    /// # Errors
    /// Those of [`Tree::exists`](crate::tree::Tree::exists).
    pub(in crate::replica) fn exists(
        &self,
        ids: &[Identity],
        path: &str,
    ) -> Result<Stat, ErrorCode> {
        self.tree.exists(ids, path).map(|stat| self.shown_stat(path, stat))
    }

    /// Whether clients see other data at this path than the state has.
    pub(in crate::replica) fn has_own_config(&self, path: &str) -> bool {
        self.migration().is_some_and(Migration::follows)
            && path == path::CONFIG
            && !mutant!("config-of-the-other-ensemble")
    }

    /// Whether an event tells of a change that clients cannot see: ZooKeeper has other members.
    pub(in crate::replica) fn is_unseen(&self, event: &Event) -> bool {
        event.kind == EventType::NodeDataChanged && self.has_own_config(event.path.as_str())
    }

    fn shown_stat(&self, path: &str, stat: Stat) -> Stat {
        if !self.has_own_config(path) {
            return stat;
        }
        let data_length = i32::try_from(self.members_text().len()).unwrap_or(i32::MAX);
        Stat { data_length, ..stat }
    }
}

/// Answer to a request that would change the members while ZooKeeper decides: an error, or the results of a multi. Who
/// asks means the members that are shown, and ZooKeeper would change its own.
pub(in crate::replica) fn changes_members(
    request: &Request,
) -> Option<Result<Vec<MultiResult>, ErrorCode>> {
    let code = ErrorCode::ReconfigDisabled;
    match request {
        Request::Reconfig { .. } => Some(Err(code)),
        Request::SetData { path, .. } => (path.as_str() == path::CONFIG).then_some(Err(code)),
        Request::Multi(ops) => {
            let is_it = |op: &MultiOp| matches!(op, MultiOp::SetData { path, .. } if path.as_str() == path::CONFIG);
            let done = ops.iter().position(is_it)?;
            Some(Ok(multi_failure(done, code, ops.len())))
        }
        _ => None,
    }
}
