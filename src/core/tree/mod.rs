//! THE ZNODES: what every server of an ensemble agrees on, besides sessions.
//!
//! *Owns* the tree, access control, quotas, and the digest of it all. A write is decided here,
//! success or error, and answers what watchers must hear; what changed is handed out for the disk
//! later.
//!
//! *Invariants*: deterministic. Equal trees given equal operations stay equal, and have equal
//! digests, whatever the hash seed and however they were loaded. Nothing a client sends panics.
//!
//! *Never*: knows of sessions beyond their number, of watches, of time beyond what it is given, or
//! of disks.
//!
//! Reproduces `DataTree`, and the part of `PrepRequestProcessor` that decides.
//!
//! ```
//! use lockkeeper_core::proto::request::{Create, CreateKind};
//! use lockkeeper_core::proto::{Acl, Text};
//! use lockkeeper_core::tree::{Context, Options, Rules, Tree};
//!
//! let mut tree = Tree::fresh(Options::default());
//! let (zxid, time_ms, rules) = (1, 1_700_000_000_000, Rules::DEFAULT);
//! let ctx = Context { zxid, time_ms, steady_ms: 0, session: 7, ids: &[], rules };
//! let request = Create {
//!     kind: CreateKind::Create2,
//!     path: Text::from_static("/lock-"),
//!     data: None,
//!     acl: Some(vec![Acl::open()]),
//!     flags: 3, // ephemeral, sequential
//!     ttl_ms: 0,
//! };
//! let created = tree.create(&ctx, &request, &mut Vec::new()).unwrap();
//! assert_eq!(created.path.as_str(), "/lock-0000000000");
//! assert_eq!(created.stat.ephemeral_owner, 7);
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod acl;
pub mod path;

mod acls;
mod ancestry;
mod changes;
mod digest;
mod distinguished_name;
mod edit;
mod foreign;
mod ip;
mod leaving;
mod mode;
mod multi;
mod options;
mod owner;
mod quota;
mod read;
mod reaper;
mod record;
mod scrub;
mod slab;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod write;
mod znode;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::proto::acl::perms;
use crate::proto::{Acl, EventType, Stat, Text};

pub use acl::AclList;
pub use acl::{Asker, Identity};
pub use changes::TakeChange;
pub use changes::record_digest;
pub use foreign::ForeignCreate;
pub use leaving::Leaving;
pub use multi::failure as multi_failure;
pub use options::{Options, Rules};
pub use owner::Owner;
pub use path::ZnodePath;
pub use quota::Figures;
pub use read::{Children, Shown};

use acls::{AclId, AclTable};
use owner::Owned;
use quota::{QuotaPaths, Recounts};
use slab::ZnodeId;
use table::PathTable;
use znode::{Content, Meta, Now, Znodes};

/// The circumstances of a write, equal on all servers.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Of the transaction.
    pub zxid: i64,
    /// The leader's stamp, milliseconds since the epoch.
    pub time_ms: i64,
    /// The steady clock of the ensemble, milliseconds: what the reaper goes by.
    pub steady_ms: i64,
    /// The session that asks.
    pub session: i64,
    /// What its connection is.
    pub ids: &'a [Identity],
    /// By which it is judged.
    pub rules: Rules,
}

impl<'a> Context<'a> {
    /// The client, and the rules.
    #[must_use]
    pub fn asker(&self) -> Asker<'a> {
        Asker { ids: self.ids, rules: self.rules }
    }

    fn now(&self) -> Now {
        Now { time_ms: self.time_ms, steady_ms: self.steady_ms }
    }
}

/// A change that watchers may want to hear of.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventType,
    /// Of the znode that the event names.
    pub path: Text,
    /// The list on which a watcher needs READ.
    pub acl: Arc<AclList>,
    /// Of a deletion: what the znode was.
    pub life: Option<Life>,
}

/// Whose a znode was, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its session; 0 of one that was not ephemeral.
    pub session: i64,
    /// The zxid of its creation.
    pub czxid: i64,
    /// The time of its creation, milliseconds since the epoch.
    pub ctime_ms: i64,
}

/// A znode just created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its path, with the number of a sequential one.
    pub path: Text,
    /// Its stat.
    pub stat: Stat,
}

/// The tree.
#[derive(Debug)]
pub struct Tree {
    options: Options,
    slab: Znodes,
    table: PathTable,
    acls: AclTable,
    owned: Owned,
    quotas: QuotaPaths,
    changes: Changes,
    journal: Journal,
    data_size: u64,
    digest: u128,
    scrub: Option<Scrub>,
    legacy_digest: Option<u64>,
    /// The znode that was amended last, often to be amended again: a parent by each of its children.
    last_amended: Option<(ZnodeId, Shares)>,
}

/// Paths whose records have to go.
#[derive(Debug, Default)]
struct Changes {
    tombstones: BTreeSet<Box<[u8]>>,
    keep_all: bool,
}

impl Changes {
    /// To be told of every znode that appears. Answers whether its path is stored already.
    fn appeared(&mut self, path: &[u8]) -> bool {
        !self.tombstones.is_empty() && self.tombstones.remove(path)
    }

    /// To be told of every znode that disappears.
    fn disappeared(&mut self, path: &[u8], stored: bool) {
        if stored || self.keep_all {
            self.tombstones.insert(path.into());
        }
    }
}

/// One edit, as it is taken back.
#[derive(Debug)]
enum Undo {
    Linked(ZnodeId),
    Unlinked { id: ZnodeId, parent: ZnodeId, meta: Meta, content: Content, acl: Arc<AclList> },
    Amended { id: ZnodeId, meta: Meta, content: Option<Content> },
}

/// What a znode adds to both digests, as it is: all but the hash of its content.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// The hash of its path.
    path: u128,
    numbers: u128,
    /// 0 if ZooKeeper's digest is not kept.
    legacy: u64,
}

/// The edits of one multi. Between multis it is empty and notes nothing.
#[derive(Debug, Default)]
struct Journal {
    is_open: bool,
    edits: Vec<Undo>,
    /// What the multi may still count for quotas.
    recounts: Recounts,
}

impl Journal {
    /// Notes that znodes were counted for a quota, if inside a multi.
    fn book_recount(&mut self, znodes: i64) {
        if self.is_open {
            self.recounts.book(znodes);
        }
    }
}

/// A pass of the scrub that is under way.
#[derive(Debug)]
struct Scrub {
    /// Slot in which it goes on: the znodes in slots before it were seen.
    next: ZnodeId,
    /// Contributions of the znodes that were seen.
    sum: u128,
}

impl Scrub {
    /// A znode contributes more to the digest, or less.
    fn follow(&mut self, id: ZnodeId, change: impl Fn(u128) -> u128) {
        if id < self.next {
            self.sum = change(self.sum);
        }
    }
}

impl Tree {
    /// The tree of a new ensemble: the root, `/zookeeper`, `/zookeeper/quota` and
    /// `/zookeeper/config`, with ZooKeeper's initial stats.
    #[must_use]
    pub fn fresh(options: Options) -> Self {
        let mut tree = Self::empty(options);
        let read_only = [Acl { perms: perms::READ, ..Acl::open() }];
        for path in [path::ROOT, path::ZOOKEEPER, path::CONFIG, path::QUOTA] {
            let mut meta = Meta::new(0, Now::default(), Owner::Persistent, AclId::OPEN);
            if path == path::CONFIG {
                // ZooKeeper sets this ACL with version -1.
                meta.aversion = -1;
                meta.acl = tree.acls.acquire(&read_only, AclId::OPEN);
            } else {
                meta.acl = tree.acls.acquire(&[Acl::open()], AclId::OPEN);
            }
            let parent = if path.starts_with("/zookeeper/") {
                tree.find(path::ZOOKEEPER).expect("it was made before its children")
            } else {
                ZnodeId::ROOT
            };
            tree.link(parent, path, meta, Some(b""));
        }
        tree
    }

    /// A tree without even a root, to load records into.
    #[must_use]
    pub fn empty(options: Options) -> Self {
        Self {
            slab: Znodes::EMPTY,
            table: PathTable::new(options.hash_seed),
            acls: AclTable::new(),
            owned: Owned::default(),
            quotas: QuotaPaths::default(),
            changes: Changes::default(),
            journal: Journal::default(),
            data_size: 0,
            digest: 0,
            scrub: None,
            legacy_digest: options.legacy_digest.then_some(0),
            last_amended: None,
            options,
        }
    }

    /// How it was configured.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many znodes there are, the root counted once (ZooKeeper counts it twice).
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.slab.len()
    }

    /// Bytes of all paths and data.
    #[must_use]
    pub fn data_size(&self) -> u64 {
        self.data_size
    }

    /// How many ephemerals there are.
    #[must_use]
    pub fn ephemeral_count(&self) -> usize {
        self.owned.ephemeral_count()
    }

    /// Every session that owns ephemerals, in numeric order, with their sorted paths.
    pub fn sessions_with_ephemerals(&self) -> impl Iterator<Item = (i64, Vec<Text>)> + '_ {
        let sessions = std::iter::successors(self.owned.next_session(None), |s| {
            self.owned.next_session(Some(*s))
        });
        let of = |session| self.owned.of_session(session, ZnodeId::MIN);
        sessions.map(move |session| (session, self.sorted_paths(of(session))))
    }

    /// A digest of everything that all servers agree on here.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// ZooKeeper's digest (version 2), if it is kept.
    #[must_use]
    pub fn legacy_digest(&self) -> Option<u64> {
        self.legacy_digest
    }

    /// Keeps ZooKeeper's digest from here on, whatever was configured: looks at every znode, once.
    pub fn keep_legacy_digest(&mut self) {
        if self.legacy_digest.is_none() {
            self.legacy_digest = Some(self.compute_legacy_digest());
        }
    }

    /// Whether there are no znodes but those that every tree has.
    #[must_use]
    pub fn has_only_special(&self) -> bool {
        self.node_count() == Self::fresh(self.options.clone()).node_count()
    }

    /// The znode of a path; the empty path is the root.
    fn find(&self, path: &str) -> Option<ZnodeId> {
        let path = if path.is_empty() { path::ROOT } else { path };
        self.table.find(&self.slab, path.as_bytes())
    }

    /// The znode of a path, if what is in front of its last slash is the path of `parent`.
    fn find_child(&self, parent: ZnodeId, path: &str) -> Option<ZnodeId> {
        if parent == ZnodeId::ROOT {
            // The text may begin with two slashes, because two paths name the root.
            return self.find(path);
        }
        let name = path::name(path).as_bytes();
        self.table.find_child(&self.slab, parent, name, path.as_bytes())
    }
}
