//! The watches of a session, as its client remembers them: they have to be set again on every new
//! connection.
//!
//! *Owns* which paths are watched and how. *Invariant*: a watch is here from the answer that set it
//! until the event that used it up, or its removal. *Never* asks a server.
//! Reproduces the bookkeeping of `ZKWatchManager`.

use std::collections::BTreeSet;

use crate::proto::request::{AddWatchMode, SetWatches, WatcherType};
use crate::proto::{ErrorCode, EventType, Request, Text};

/// Bytes of paths in one request that sets watches again: a server takes frames of 1 MiB.
const PATHS_BYTES_MAX: usize = 128 << 10;

/// Where watches are set.
#[derive(Debug, Default)]
pub(super) struct Watches {
    data: BTreeSet<Text>,
    exist: BTreeSet<Text>,
    child: BTreeSet<Text>,
    persistent: BTreeSet<Text>,
    recursive: BTreeSet<Text>,
}

/// A kind of watch that is no more, because it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Removed {
    Data,
    Child,
    Persistent,
}

impl Watches {
    /// Takes note of what an answered request has set: the error code says how it was answered.
    pub(super) fn answered(&mut self, request: &Request, code: i32) {
        match request {
            Request::GetData { path, watch: true } if code == 0 => self.data.insert(path.clone()),
            Request::Exists { path, watch: true } if code == 0 => self.data.insert(path.clone()),
            Request::Exists { path, watch: true } if code == ErrorCode::NoNode.wire() => {
                self.exist.insert(path.clone())
            }
            Request::GetChildren { path, watch: true, .. } if code == 0 => {
                self.child.insert(path.clone())
            }
            Request::AddWatch { path, mode } if code == 0 => match mode {
                AddWatchMode::Persistent => self.persistent.insert(path.clone()),
                AddWatchMode::PersistentRecursive => self.recursive.insert(path.clone()),
            },
            // Sets none.
            _ => false,
        };
    }

    /// An event has used up the watches that serve once.
    pub(super) fn fired(&mut self, kind: EventType, path: &Text) {
        let once = match kind {
            EventType::NodeCreated | EventType::NodeDataChanged => {
                [Some(&mut self.data), Some(&mut self.exist), None]
            }
            EventType::NodeDeleted => {
                [Some(&mut self.data), Some(&mut self.exist), Some(&mut self.child)]
            }
            EventType::NodeChildrenChanged => [Some(&mut self.child), None, None],
        };
        for paths in once.into_iter().flatten() {
            paths.remove(path);
        }
    }

    /// Forgets watches, and says which there were.
    pub(super) fn remove(&mut self, path: &Text, kind: WatcherType) -> Vec<Removed> {
        let is = |kinds: &[WatcherType]| kind == WatcherType::Any || kinds.contains(&kind);
        let mut removed = Vec::new();
        if is(&[WatcherType::Children]) && self.child.remove(path) {
            removed.push(Removed::Child);
        }
        // Both are looked at: `|`.
        if is(&[WatcherType::Data]) && (self.data.remove(path) | self.exist.remove(path)) {
            removed.push(Removed::Data);
        }
        if is(&[WatcherType::Persistent]) && self.persistent.remove(path) {
            removed.push(Removed::Persistent);
        }
        if is(&[WatcherType::PersistentRecursive]) && self.recursive.remove(path) {
            removed.push(Removed::Persistent);
        }
        removed
    }

    /// What sets all of them again for a client that has seen everything up to `zxid`: the server
    /// says at once what was missed.
    pub(super) fn again(&self, zxid: i64) -> Vec<Request> {
        let mut requests = Vec::new();
        let mut bytes = 0;
        let mut watches = SetWatches { relative_zxid: zxid, ..SetWatches::default() };
        let all = [&self.data, &self.exist, &self.child, &self.persistent, &self.recursive];
        for (kind, paths) in all.into_iter().enumerate() {
            for path in paths {
                if bytes > PATHS_BYTES_MAX {
                    requests.push(request(std::mem::take(&mut watches)));
                    watches.relative_zxid = zxid;
                    bytes = 0;
                }
                bytes += path.as_bytes().len();
                let list = match kind {
                    0 => &mut watches.data,
                    1 => &mut watches.exist,
                    2 => &mut watches.child,
                    3 => &mut watches.persistent,
                    _ => &mut watches.persistent_recursive,
                };
                list.push(path.clone());
            }
        }
        if bytes > 0 {
            requests.push(request(watches));
        }
        requests
    }
}

/// The older request does for old watches, so that older servers can be asked.
fn request(watches: SetWatches) -> Request {
    let two = !watches.persistent.is_empty() || !watches.persistent_recursive.is_empty();
    Request::SetWatches { watches, two }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Text {
        Text::from_static("/a")
    }

    fn again(watches: &Watches) -> Option<SetWatches> {
        match watches.again(7).as_slice() {
            [] => None,
            [Request::SetWatches { watches, .. }] => Some(watches.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_watch_on_what_is_not_there_waits_for_it() {
        let mut watches = Watches::default();
        watches.answered(&Request::Exists { path: path(), watch: true }, -101);
        assert_eq!(again(&watches).unwrap().exist, [path()]);
        watches.fired(EventType::NodeCreated, &path());
        assert_eq!(again(&watches), None);
    }

    #[test]
    fn a_refused_read_sets_no_watch() {
        let mut watches = Watches::default();
        watches.answered(&Request::GetData { path: path(), watch: true }, -101);
        watches.answered(&Request::GetData { path: path(), watch: false }, 0);
        assert_eq!(again(&watches), None);
    }

    #[test]
    fn a_deletion_uses_up_what_serves_once_and_nothing_else() {
        let mut watches = Watches::default();
        watches.answered(&Request::GetData { path: path(), watch: true }, 0);
        watches.answered(&Request::GetChildren { path: path(), watch: true, stat: true }, 0);
        let mode = AddWatchMode::Persistent;
        watches.answered(&Request::AddWatch { path: path(), mode }, 0);
        watches.fired(EventType::NodeDeleted, &path());
        let left = again(&watches).unwrap();
        assert_eq!((left.data.len(), left.child.len(), left.persistent.len()), (0, 0, 1));
        assert_eq!(left.relative_zxid, 7);
    }

    #[test]
    fn removal_says_what_there_was() {
        let mut watches = Watches::default();
        watches.answered(&Request::GetData { path: path(), watch: true }, 0);
        let mode = AddWatchMode::PersistentRecursive;
        watches.answered(&Request::AddWatch { path: path(), mode }, 0);
        assert_eq!(watches.remove(&path(), WatcherType::Children), []);
        assert_eq!(watches.remove(&path(), WatcherType::Data), [Removed::Data]);
        assert_eq!(watches.remove(&path(), WatcherType::Any), [Removed::Persistent]);
        assert_eq!(again(&watches), None);
    }

    #[test]
    fn many_watches_are_set_again_in_frames_that_a_server_takes() {
        let mut watches = Watches::default();
        for number in 0..1000 {
            let path = Text::from(format!("/{number}{}", "x".repeat(1000)));
            watches.answered(&Request::GetData { path, watch: true }, 0);
        }
        let requests = watches.again(1);
        assert_eq!(requests.len(), 8);
        let count = |request: &Request| match request {
            Request::SetWatches { watches, two: false } => watches.data.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(requests.iter().map(count).sum::<usize>(), 1000);
    }
}
