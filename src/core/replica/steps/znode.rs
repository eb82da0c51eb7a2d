//! A znode for people who browse the tree.
//!
//! *Owns* nothing. *Invariants*: bounded work, whatever the tree holds: the driver waits for it; data that the access
//! control list does not let everyone read are shown only where the question says so. A znode is shown as the state has
//! it: while this ensemble follows, `/zookeeper/config` names ZooKeeper's members here, and its own ones to clients.

use std::collections::BinaryHeap;

use bytes::Bytes;

use crate::replica::Replica;
use crate::replica::inspect::znode::{
    CHILDREN_LOOKS_MAX, CHILDREN_MAX, ChildReport, DATA_BYTES_MAX, ZnodeQuestion, ZnodeReport,
};
use crate::tree::Tree;

impl Replica {
    /// `None`: it is not there.
    pub(in crate::replica) fn znode(&self, question: &ZnodeQuestion) -> Option<ZnodeReport> {
        let ZnodeQuestion { path, after, children, shows_all } = question;
        let tree = self.state.machine().tree();
        let shown = tree.shown(path)?;
        let all = tree.data_unchecked(path);
        let data = if *shows_all { all } else { shown.data };
        let count = usize::try_from(shown.stat.num_children).unwrap_or(usize::MAX);
        let wanted = (*children).min(CHILDREN_MAX);
        let (children, has_more) = first_children(tree, path, after, wanted);
        Some(ZnodeReport {
            zxid: self.state.machine().last_zxid(),
            stat: shown.stat,
            acl: tree.acl_shown(path),
            data: data.map(|data| Bytes::copy_from_slice(&data[..data.len().min(DATA_BYTES_MAX)])),
            is_hidden: all.is_some() && shown.data.is_none(),
            children,
            has_more,
            is_cut: count > CHILDREN_LOOKS_MAX,
        })
    }
}

/// The first children behind a name, and whether there are more: in one pass, without putting all in order.
fn first_children(tree: &Tree, path: &str, after: &str, max: usize) -> (Vec<ChildReport>, bool) {
    let mut first: BinaryHeap<ChildReport> = BinaryHeap::new();
    let mut has_more = false;
    for child in tree.shown_children(path).take(CHILDREN_LOOKS_MAX) {
        if child.name <= after && !after.is_empty() {
            continue;
        }
        if first.len() >= max && first.peek().is_none_or(|last| child.name >= last.name.as_str()) {
            has_more = true;
            continue;
        }
        first.push(ChildReport {
            name: child.name.to_owned(),
            children: child.stat.num_children,
            data_bytes: child.stat.data_length,
            session: child.stat.ephemeral_owner,
        });
        if first.len() > max {
            first.pop();
            has_more = true;
        }
    }
    (first.into_sorted_vec(), has_more)
}
