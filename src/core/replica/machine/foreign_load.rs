//! A state of ZooKeeper that is loaded from a snapshot.
//!
//! *Owns* the znodes and sessions that have come so far, and the bytes behind them. *Invariant*: a session of ZooKeeper
//! has the password that ZooKeeper computes of its id, and no connection. *Never* takes the place of another state by
//! itself.

use super::sessions::Sessions;
use crate::tree::{Options, Tree};
use crate::zookeeper::{Item, Node, SnapshotDecoder};

/// A state that is made from a snapshot of ZooKeeper. Its clocks stand at 0: the stamps of znodes do not move them.
#[derive(Debug)]
pub struct ForeignLoad {
    tree: Tree,
    sessions: Sessions,
    /// Bytes of the data of the largest znode.
    pub(super) largest: usize,
}

impl ForeignLoad {
    /// Begins one.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { tree: Tree::empty(options), sessions: Sessions::default(), largest: 0 }
    }

    /// Adds an open session; the last timeout counts.
    pub fn session(&mut self, id: i64, timeout_ms: i32) {
        self.sessions.open_foreign(id, timeout_ms);
    }

    /// Adds a znode, parents first.
    ///
    /// # Errors
    /// What is wrong with it, in words that begin with its path.
    pub fn node(&mut self, node: &Node) -> Result<(), String> {
        let acl = node.acl.as_ref().map(|acl| &acl[..]);
        self.largest = self.largest.max(node.data.as_ref().map_or(0, |data| data.len()));
        let loaded = self.tree.load_foreign(&node.path, node.data.as_deref(), acl, &node.stat);
        loaded.map_err(|reason| format!("znode {:?} {reason}", node.path.as_str()))
    }

    /// All znodes and sessions.
    ///
    /// # Errors
    /// It is no whole tree.
    pub(super) fn complete(mut self) -> Result<(Tree, Sessions), String> {
        self.tree.complete_foreign().map_err(|reason| format!("the tree {reason}"))?;
        Ok((self.tree, self.sessions))
    }
}

/// A snapshot of ZooKeeper that is coming, for an ensemble that follows it.
#[derive(Debug)]
pub(super) struct Loading {
    decoder: SnapshotDecoder,
    pub(super) load: ForeignLoad,
    /// Bytes of the snapshot that have come.
    bytes: u64,
    pub(super) is_for_comparison: bool,
    /// zxid of the copy when all of it had come, where it is for comparison.
    pub(super) ended_at: Option<i64>,
}

impl Loading {
    pub(super) fn new(options: Options, is_for_comparison: bool) -> Self {
        let (decoder, mut load) = (SnapshotDecoder::default(), ForeignLoad::new(options));
        // Computed as they come: all at once it takes long.
        load.tree.keep_legacy_digest();
        Self { decoder, load, bytes: 0, is_for_comparison, ended_at: None }
    }

    /// Znodes, and bytes of the snapshot, that have come.
    pub(super) fn come(&self) -> (u64, u64) {
        (self.load.tree.node_count() as u64, self.bytes)
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes += bytes.len() as u64;
        self.decoder.feed(bytes);
        loop {
            match self.decoder.next_item().map_err(|malformed| malformed.to_string())? {
                Some(Item::Session { id, timeout_ms }) => self.load.session(id, timeout_ms),
                Some(Item::Node(node)) => self.load.node(&node)?,
                Some(Item::End) | None => return Ok(()),
            }
        }
    }
}
