//! The watches of a session, which a client brings along when it connects anew.
//!
//! *Owns* which paths are watched and how, as ZooKeeper's own clients keep it: a watch that a read has
//! set is kept until it fires, one that `addWatch` has set for as long as the session.

use std::collections::BTreeSet;

use lockkeeper_check::history::EventKind;
use lockkeeper_check::op::{Answer, Call, Code, SetWatches};

/// Watches by what they look at.
#[derive(Debug, Default)]
pub struct Watches {
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
}

impl Watches {
    /// An answer came: it may have set a watch.
    pub fn asked(&mut self, call: &Call, result: &Result<Answer, Code>) {
        match (call, result) {
            (Call::Exists { path, watch: true }, Err(Code::NO_NODE)) => {
                self.exist.insert(path.clone());
            }
            (Call::Exists { path, watch: true } | Call::GetData { path, watch: true }, Ok(_)) => {
                self.data.insert(path.clone());
            }
            (Call::GetChildren { path, watch: true, .. }, Ok(_)) => {
                self.child.insert(path.clone());
            }
            (Call::AddWatch { path, recursive: false }, Ok(_)) => {
                self.persistent.insert(path.clone());
            }
            (Call::AddWatch { path, recursive: true }, Ok(_)) => {
                self.recursive.insert(path.clone());
            }
            _ => {}
        }
    }

    /// One fired.
    pub fn fired(&mut self, kind: EventKind, path: &str) {
        match kind {
            EventKind::Created | EventKind::DataChanged => {
                self.data.remove(path);
                self.exist.remove(path);
            }
            EventKind::ChildrenChanged => {
                self.child.remove(path);
            }
            EventKind::Deleted => {
                self.data.remove(path);
                self.exist.remove(path);
                self.child.remove(path);
            }
        }
    }

    /// What to tell a new server, if there is anything.
    pub fn to_bring(&self, last_zxid: i64) -> Option<SetWatches> {
        let all = [&self.data, &self.exist, &self.child, &self.persistent, &self.recursive];
        if all.iter().all(|paths| paths.is_empty()) {
            return None;
        }
        let list = |paths: &BTreeSet<String>| paths.iter().cloned().collect();
        Some(SetWatches {
            relative_zxid: last_zxid,
            data: list(&self.data),
            exist: list(&self.exist),
            child: list(&self.child),
            persistent: list(&self.persistent),
            recursive: list(&self.recursive),
        })
    }
}
