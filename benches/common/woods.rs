//! The tree that the benchmarks change: paths of 32 bytes in lock directories.

use bytes::Bytes;
use lockkeeper::internals::proto::request::{Create, CreateKind};
use lockkeeper::internals::proto::{Acl, Text};
use lockkeeper::internals::tree::{Context, Event, Options, Rules, Tree};

/// Directories of contenders.
pub const DIRECTORIES: usize = 1000;

/// A tree, and what it takes to change it.
pub struct Woods {
    pub tree: Tree,
    zxid: i64,
    pub events: Vec<Event>,
}

impl Woods {
    /// The directories and nothing in them.
    pub fn new() -> Self {
        let options = Options { hash_seed: 0x5eed, ..Options::default() };
        let mut woods = Woods { tree: Tree::fresh(options), zxid: 0, events: Vec::new() };
        woods.create(&create("/app", 0, 0));
        for directory in 0..DIRECTORIES {
            woods.create(&create(&format!("/app/svc{directory:03}"), 0, 0));
            woods.create(&create(&directory_path(directory), 0, 0));
        }
        woods
    }

    /// Of the next transaction.
    pub fn context(&mut self) -> Context<'static> {
        self.zxid += 1;
        let (zxid, rules) = (self.zxid, Rules::DEFAULT);
        Context { zxid, time_ms: zxid, steady_ms: zxid, session: 7, ids: &[], rules }
    }

    pub fn create(&mut self, request: &Create) -> Text {
        let ctx = self.context();
        let created = self.tree.create(&ctx, request, &mut self.events).unwrap();
        self.events.clear();
        created.path
    }

    pub fn delete(&mut self, path: &Text) {
        let ctx = self.context();
        self.tree.delete(&ctx, path, -1, &mut self.events).unwrap();
        self.events.clear();
    }
}

pub fn directory_path(number: usize) -> String {
    format!("/app/svc{:03}/locks", number % DIRECTORIES)
}

pub fn path(number: usize) -> String {
    format!("{}/lock-{number:010}", directory_path(number))
}

pub fn create(path: &str, data: usize, flags: i32) -> Create {
    Create {
        kind: CreateKind::Create,
        path: Text::from(path),
        data: Some(Bytes::from(vec![b'x'; data])),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
    }
}
