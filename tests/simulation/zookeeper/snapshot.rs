//! A snapshot that is written while transactions are applied: SNAP.
//!
//! *Owns* how far one is. *Invariant*: each znode is written as it is at that moment, and so are its children's names.

use std::collections::BTreeMap;

use lockkeeper_core::proto::Acl;
use lockkeeper_core::replica::Machine;
use lockkeeper_core::zookeeper::StatPersisted;
use lockkeeper_core::zookeeper::snapshot::{
    OPEN_ACL_KEY, put_acls, put_end, put_node, put_sessions,
};

/// The numbers of the lists that znodes have; they are never given twice.
#[derive(Debug, Default)]
pub struct Lists {
    keys: BTreeMap<Vec<Acl>, i64>,
}

impl Lists {
    fn key_of(&mut self, list: &[Acl]) -> i64 {
        if list == [Acl::open()] {
            return OPEN_ACL_KEY;
        }
        let next = 1 + i64::try_from(self.keys.len()).expect("few");
        *self.keys.entry(list.to_vec()).or_insert(next)
    }
}

/// A znode, as it is at a moment.
struct Persisted {
    data: Option<Vec<u8>>,
    acl: Vec<Acl>,
    stat: StatPersisted,
    children: Vec<String>,
}

/// How far a snapshot is.
#[derive(Debug)]
pub struct Snapshot {
    /// What is to be looked at, the next one last.
    unseen: Vec<String>,
    has_begun: bool,
}

impl Snapshot {
    pub fn new() -> Self {
        Self { unseen: vec!["/".to_owned()], has_begun: false }
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Writes so many znodes more; true: and the end.
    pub fn write(
        &mut self,
        applied: &Machine,
        lists: &mut Lists,
        count: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let znodes = znodes(applied);
        if !std::mem::replace(&mut self.has_begun, true) {
            let sessions: Vec<_> =
                applied.foreign_sessions().map(|(id, timeout_ms, _)| (id, timeout_ms)).collect();
            put_sessions(&sessions, out);
            for znode in znodes.values() {
                lists.key_of(&znode.acl);
            }
            let known: Vec<_> = lists.keys.iter().map(|(list, key)| (*key, &list[..])).collect();
            put_acls(known.into_iter(), out);
        }
        for _ in 0..count {
            let Some(path) = self.unseen.pop() else { break };
            // Gone meanwhile.
            let Some(znode) = znodes.get(&path) else { continue };
            let key = lists.key_of(&znode.acl);
            put_node(&path, znode.data.as_deref(), key, &znode.stat, out);
            self.unseen.extend(znode.children.iter().cloned());
        }
        if self.unseen.is_empty() {
            put_end(out);
        }
        self.unseen.is_empty()
    }
}

fn znodes(applied: &Machine) -> BTreeMap<String, Persisted> {
    let mut znodes = BTreeMap::new();
    let seen: Result<(), ()> = applied.tree().for_each_persisted(|path, data, acl, stat| {
        let names = applied.tree().children_unchecked(path);
        let slash = if path == "/" { "" } else { path };
        let children = names.map(|(name, _)| format!("{slash}/{name}")).collect();
        let (data, acl) = (data.map(<[u8]>::to_vec), acl.to_vec());
        znodes.insert(path.to_owned(), Persisted { data, acl, stat: *stat, children });
        Ok(())
    });
    seen.expect("nothing stops it");
    znodes
}
