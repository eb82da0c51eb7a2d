//! Watches: who wants to know what about which path.
//!
//! *Owns* every registration of this server's connections. *Invariants*: a one-shot registration
//! fires at most once; a connection that is gone has none, or is about to have none and is told of nothing; no
//! connection is told of one change twice.
//! *Never* replicated, never on disk: watches live and die with their connection.
//!
//! Reproduces `WatchManager` and `DataTree`'s two tables of it: one-shot data and child watches,
//! persistent ones (which count in both) and persistent recursive ones (which only see znodes).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;
use twox_hash::XxHash3_64;

use crate::proto::request::WatcherType;
use crate::proto::{EventType, Text};
use crate::replica::inspect::WatchReport;
use crate::replica::request::ConnId;
use crate::tree::path::last_slash;

/// What is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum Kind {
    /// One-shot, by exists and getData.
    Data,
    /// One-shot, by getChildren.
    Child,
    /// Stays, by addWatch.
    Persistent,
    /// Stays and covers descendants, by addWatch.
    Recursive,
}

/// So many paths of a connection that ends are forgotten at once.
const FEW: usize = 64;
/// Those of connections with more are forgotten in portions, one in a turn: some milliseconds' work.
const FORGOTTEN_AT_ONCE: usize = 2_000;

/// Kinds that operators are shown, as ZooKeeper's words show them.
const SHOWN: [Kind; 3] = [Kind::Data, Kind::Persistent, Kind::Recursive];
const KINDS: [Kind; 4] = [Kind::Data, Kind::Child, Kind::Persistent, Kind::Recursive];

/// Hashes paths with a seed that clients cannot know. The order of the tables that use it decides nothing.
#[derive(Clone, Debug)]
struct PathHash(u64);

impl BuildHasher for PathHash {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        self.clone()
    }
}

impl Hasher for PathHash {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, bytes);
    }

    fn write_usize(&mut self, length: usize) {
        self.0 = self.0.wrapping_add(length as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Connections that watch one path, by kind, each list sorted.
#[derive(Clone, Debug, Default)]
struct Watchers([Vec<ConnId>; 4]);

impl Watchers {
    fn insert(&mut self, kind: Kind, conn: ConnId) -> bool {
        let list = &mut self.0[kind as usize];
        match list.binary_search(&conn) {
            Ok(_) => false,
            Err(position) => {
                list.insert(position, conn);
                true
            }
        }
    }

    fn remove(&mut self, kind: Kind, conn: ConnId) -> bool {
        let list = &mut self.0[kind as usize];
        match list.binary_search(&conn) {
            Ok(position) => {
                list.remove(position);
                true
            }
            Err(_) => false,
        }
    }

    fn has(&self, kind: Kind, conn: ConnId) -> bool {
        self.0[kind as usize].binary_search(&conn).is_ok()
    }

    fn has_any(&self, conn: ConnId) -> bool {
        KINDS.iter().any(|kind| self.has(*kind, conn))
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }
}

/// All watches of one server.
#[derive(Debug)]
pub(in crate::replica) struct Watches {
    by_path: HashMap<Text, Watchers, PathHash>,
    by_conn: BTreeMap<ConnId, BTreeSet<Text>>,
    /// Paths that still name a connection that is gone, with it.
    leaving: VecDeque<(ConnId, BTreeSet<Text>)>,
    total: u64,
    recursive: u64,
}

canonical! {
    // The tables by path follow from the registrations, which are in no order that a hash does not make: there are
    // none where dumps are compared, or these are told apart by their number and paths alone.
    Watches: by_conn, recursive; without by_path, leaving;
    |out, total| {
        assert!(*total == 0, "a scope with watches needs a dump of them");
        out.value(total);
    }
}

impl Watches {
    /// None yet.
    pub(in crate::replica) fn new(hash_seed: u64) -> Self {
        Self {
            by_path: HashMap::with_hasher(PathHash(hash_seed)),
            by_conn: BTreeMap::new(),
            leaving: VecDeque::new(),
            total: 0,
            recursive: 0,
        }
    }

    /// Number of registrations.
    pub(in crate::replica) fn total(&self) -> u64 {
        self.total
    }

    /// Registers; again is no change.
    pub(in crate::replica) fn add(&mut self, conn: ConnId, path: &Text, kind: Kind) {
        let added = match self.by_path.get_mut(path) {
            Some(watchers) => watchers.insert(kind, conn),
            None => {
                // A path of its own: registrations must not keep whole frames alive.
                let path = Text::copy_from(path.as_str());
                self.by_path.entry(path).or_default().insert(kind, conn)
            }
        };
        if added {
            self.total += 1;
            self.recursive += u64::from(kind == Kind::Recursive);
            let paths = self.by_conn.entry(conn).or_default();
            if !paths.contains(path) {
                paths.insert(Text::copy_from(path.as_str()));
            }
        }
    }

    /// Whether the connection has such a registration.
    pub(in crate::replica) fn has(&self, conn: ConnId, path: &Text, which: WatcherType) -> bool {
        let Some(watchers) = self.by_path.get(path) else { return false };
        kinds_of(which).iter().any(|kind| watchers.has(*kind, conn))
    }

    /// Removes them; says whether there was any.
    pub(in crate::replica) fn remove(
        &mut self,
        conn: ConnId,
        path: &Text,
        which: WatcherType,
    ) -> bool {
        let mut any = false;
        for kind in kinds_of(which) {
            any |= self.remove_one(conn, path, *kind);
        }
        any
    }

    fn remove_one(&mut self, conn: ConnId, path: &Text, kind: Kind) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else { return false };
        if !watchers.remove(kind, conn) {
            return false;
        }
        let (gone_for_conn, gone) = (!watchers.has_any(conn), watchers.is_empty());
        self.forget(conn, path, kind, gone_for_conn);
        if gone {
            self.by_path.remove(path);
        }
        true
    }

    fn forget(&mut self, conn: ConnId, path: &Text, kind: Kind, gone_for_conn: bool) {
        self.total -= 1;
        self.recursive -= u64::from(kind == Kind::Recursive);
        if gone_for_conn && let Some(paths) = self.by_conn.get_mut(&conn) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_conn.remove(&conn);
            }
        }
    }

    /// Forgets a connection.
    pub(in crate::replica) fn close(&mut self, conn: ConnId) {
        if mutant!("watch-outlives-connection") {
            return;
        }
        match self.by_conn.remove(&conn) {
            Some(paths) if paths.len() > FEW => self.leaving.push_back((conn, paths)),
            Some(paths) => paths.iter().for_each(|path| self.unregister(conn, path)),
            None => {}
        }
    }

    /// Forgets more of connections that are gone: once in a turn.
    pub(in crate::replica) fn forget_some(&mut self) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some((conn, paths)) = self.leaving.front_mut() else { return };
            let conn = *conn;
            match paths.pop_first() {
                Some(path) => self.unregister(conn, &path),
                None => drop(self.leaving.pop_front()),
            }
        }
    }

    fn unregister(&mut self, conn: ConnId, path: &Text) {
        let Some(watchers) = self.by_path.get_mut(path) else { return };
        for kind in KINDS {
            if watchers.remove(kind, conn) {
                self.total -= 1;
                self.recursive -= u64::from(kind == Kind::Recursive);
            }
        }
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
    }

    /// Who is to be told of a change, sorted, each once. One-shot registrations that see it are
    /// used up.
    pub(in crate::replica) fn trigger(&mut self, kind: EventType, path: &Text) -> Vec<ConnId> {
        let mut told = Vec::new();
        if self.total == 0 {
            return told;
        }
        let (uses, keeps): (&[Kind], bool) = match kind {
            EventType::NodeCreated | EventType::NodeDataChanged => (&[Kind::Data], true),
            EventType::NodeDeleted if mutant!("deletion-spares-child-watch") => {
                (&[Kind::Data], true)
            }
            EventType::NodeDeleted => (&[Kind::Data, Kind::Child], true),
            EventType::NodeChildrenChanged => (&[Kind::Child], false),
        };
        if let Some(watchers) = self.by_path.get_mut(path) {
            told.extend_from_slice(&watchers.0[Kind::Persistent as usize]);
            if keeps {
                told.extend_from_slice(&watchers.0[Kind::Recursive as usize]);
            }
            for used in uses {
                let fired = std::mem::take(&mut watchers.0[*used as usize]);
                told.extend_from_slice(&fired);
            }
            self.use_up(path, &told, uses);
        }
        if keeps && self.recursive > 0 {
            for ancestor in ancestors(path.as_str()) {
                if let Some(watchers) = self.by_path.get(&Text::copy_from(ancestor)) {
                    let watchers = &watchers.0[Kind::Recursive as usize];
                    told.extend_from_slice(watchers);
                    if mutant!("nearest-recursive-watch-only") && !watchers.is_empty() {
                        break;
                    }
                }
            }
        }
        told.sort_unstable();
        told.dedup();
        told
    }

    /// The one-shot lists `uses` of `path` were emptied: brings the rest of the books in line.
    /// `told` are the persistent watchers, then those of each list.
    fn use_up(&mut self, path: &Text, told: &[ConnId], uses: &[Kind]) {
        let Some(watchers) = self.by_path.get(path) else { return };
        let stay = watchers.0[Kind::Persistent as usize].len()
            + if uses.first() == Some(&Kind::Data) {
                watchers.0[Kind::Recursive as usize].len()
            } else {
                0
            };
        let fired = &told[stay..];
        let gone: Vec<(ConnId, bool)> =
            fired.iter().map(|conn| (*conn, !watchers.has_any(*conn))).collect();
        let empty = watchers.is_empty();
        for (conn, gone_for_conn) in gone {
            self.forget(conn, path, Kind::Data, gone_for_conn);
        }
        if empty {
            self.by_path.remove(path);
        }
    }

    /// Who watches a path, and for what.
    pub(in crate::replica) fn of_path(
        &self,
        path: &str,
    ) -> impl Iterator<Item = (ConnId, Kind)> + '_ {
        let watchers = self.by_path.get(&Text::copy_from(path));
        let by_kind = watchers.into_iter().flat_map(|watchers| KINDS.iter().zip(&watchers.0));
        by_kind.flat_map(|(kind, conns)| conns.iter().map(|conn| (*conn, *kind)))
    }

    /// How many paths a connection watches.
    pub(in crate::replica) fn count_of(&self, conn: ConnId) -> u64 {
        self.by_conn.get(&conn).map_or(0, |paths| paths.len() as u64)
    }

    /// What the `wch*` words show. ZooKeeper's show the data table only: child watches are missing
    /// from the paths, and are counted in no figure there.
    pub(in crate::replica) fn report(
        &self,
        session_of: impl Fn(ConnId) -> Option<i64>,
    ) -> WatchReport {
        let mut report = self.summary();
        for (conn, watched) in &self.by_conn {
            let mut shown = Vec::new();
            for path in watched {
                let watchers = &self.by_path[path];
                if SHOWN.iter().any(|kind| watchers.has(*kind, *conn)) {
                    shown.push(path.as_str().to_owned());
                }
            }
            if !shown.is_empty()
                && let Some(session) = session_of(*conn)
            {
                report.by_session.push((session, shown));
            }
        }
        report.by_session.sort_unstable();
        report
    }

    /// How many there are, without who watches what.
    pub(in crate::replica) fn summary(&self) -> WatchReport {
        let (mut report, mut conns) = (WatchReport::default(), BTreeSet::<ConnId>::new());
        for watchers in self.by_path.values() {
            let lists = SHOWN.map(|kind| &watchers.0[kind as usize]);
            let first = lists.iter().find(|list| !list.is_empty());
            let Some(first) = first else { continue };
            report.paths += 1;
            // Most have one list, with one connection.
            report.total += match lists.iter().map(|list| list.len()).sum::<usize>() {
                all if all == first.len() => all as u64,
                _ => lists.into_iter().flatten().collect::<BTreeSet<_>>().len() as u64,
            };
            conns.extend(lists.into_iter().flatten());
        }
        report.connections = conns.len() as u64;
        report
    }
}

fn kinds_of(which: WatcherType) -> &'static [Kind] {
    match which {
        WatcherType::Children => &[Kind::Child],
        WatcherType::Data => &[Kind::Data],
        WatcherType::Any => &KINDS,
        WatcherType::Persistent => &[Kind::Persistent],
        WatcherType::PersistentRecursive => &[Kind::Recursive],
    }
}

/// The proper ancestors of a path, nearest first, the root included.
pub(in crate::replica) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = if path == "/" { None } else { Some(path) };
    std::iter::from_fn(move || {
        let slash = last_slash(rest?)?;
        let parent = if slash == 0 { "/" } else { &path[..slash] };
        rest = if slash == 0 { None } else { Some(parent) };
        Some(parent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watches(registered: &[(ConnId, &str, Kind)]) -> Watches {
        let mut watches = Watches::new(0);
        for (conn, path, kind) in registered {
            watches.add(*conn, &Text::from(*path), *kind);
        }
        watches
    }

    fn is_clean(watches: &Watches) -> bool {
        watches.total == 0 && watches.by_path.is_empty() && watches.by_conn.is_empty()
    }

    #[test]
    fn a_one_shot_watch_fires_once() {
        let mut watches = watches(&[(1, "/a", Kind::Data), (2, "/a", Kind::Data)]);
        assert_eq!(watches.trigger(EventType::NodeDataChanged, &"/a".into()), [1, 2]);
        assert_eq!(watches.trigger(EventType::NodeDataChanged, &"/a".into()), [0; 0]);
        assert!(is_clean(&watches));
    }

    #[test]
    fn deletion_tells_a_connection_with_both_kinds_once_and_uses_up_both() {
        let mut watches = watches(&[(1, "/a", Kind::Data), (1, "/a", Kind::Child)]);
        assert_eq!(watches.trigger(EventType::NodeDeleted, &"/a".into()), [1]);
        assert!(is_clean(&watches));
    }

    #[test]
    fn a_persistent_watch_stays_and_swallows_no_one_shot() {
        let mut watches = watches(&[(1, "/a", Kind::Persistent), (1, "/a", Kind::Data)]);
        assert_eq!(watches.trigger(EventType::NodeDataChanged, &"/a".into()), [1]);
        assert_eq!(watches.total(), 1);
        assert_eq!(watches.trigger(EventType::NodeChildrenChanged, &"/a".into()), [1]);
        assert_eq!(watches.trigger(EventType::NodeDeleted, &"/a".into()), [1]);
        assert_eq!(watches.total(), 1);
    }

    #[test]
    fn a_recursive_watch_sees_every_depth_but_no_child_lists() {
        let mut watches = watches(&[(1, "/", Kind::Recursive), (2, "/a", Kind::Recursive)]);
        assert_eq!(watches.trigger(EventType::NodeCreated, &"/a/b/c".into()), [1, 2]);
        assert_eq!(watches.trigger(EventType::NodeDeleted, &"/ab".into()), [1]);
        assert_eq!(watches.trigger(EventType::NodeChildrenChanged, &"/a".into()), [0; 0]);
    }

    #[test]
    fn a_closed_connection_leaves_nothing() {
        let kinds = [Kind::Data, Kind::Child, Kind::Persistent, Kind::Recursive];
        let mut watches = Watches::new(0);
        for kind in kinds {
            watches.add(1, &"/a".into(), kind);
            watches.add(1, &"/b".into(), kind);
        }
        watches.close(1);
        assert!(is_clean(&watches));
        assert_eq!(watches.recursive, 0);
    }

    #[test]
    fn a_connection_with_many_paths_is_forgotten_in_portions() {
        let mut watches = Watches::new(0);
        let count = FORGOTTEN_AT_ONCE + 1;
        for number in 0..count {
            watches.add(1, &format!("/{number:05}").into(), Kind::Data);
        }
        watches.close(1);
        assert_eq!((watches.count_of(1), watches.total()), (0, count as u64));
        watches.forget_some();
        assert_eq!(watches.total(), 1);
        // It is told of nothing: who is told is looked up by its connection.
        assert_eq!(watches.trigger(EventType::NodeDeleted, &"/02000".into()), [1]);
        watches.forget_some();
        assert!(is_clean(&watches));
    }

    #[test]
    fn removal_follows_the_matrix_of_types() {
        let mut watches = watches(&[(1, "/a", Kind::Recursive)]);
        let path = Text::from("/a");
        for (which, there) in [
            (WatcherType::Children, false),
            (WatcherType::Data, false),
            (WatcherType::Any, true),
            (WatcherType::Persistent, false),
            (WatcherType::PersistentRecursive, true),
        ] {
            assert_eq!(watches.has(1, &path, which), there, "{which:?}");
        }
        assert!(watches.remove(1, &path, WatcherType::Any));
        assert!(!watches.remove(1, &path, WatcherType::Any));
        assert!(is_clean(&watches));
    }

    #[test]
    fn the_ancestors_of_a_path_end_with_the_root() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestors("/").count(), 0);
    }
}
