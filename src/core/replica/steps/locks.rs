//! What this server has to say of locks and sessions.
//!
//! *Owns* the collection of a [`Snapshot`]. *Invariants*: bounded work, whatever the tree holds: the
//! driver waits for it; found by the ephemerals of sessions, so that a large tree without locks costs
//! nothing. *Never* thinks about what it finds: that is for `crate::locks`, on somebody else's time.

use std::collections::BTreeSet;

use crate::locks::snapshot::{
    CONTENDERS_MAX, Child, Connection, Directory, LOOKS_MAX, Local, SESSIONS_MAX, Session,
    Standing, WATCHES_MAX, Watch, WatchKind,
};
use crate::locks::species::Species;
use crate::locks::{Scope, Snapshot};
use crate::replica::Replica;
use crate::replica::clients::{Kind, ancestors};
use crate::replica::inspect::LAST_FEW;
use crate::replica::machine::Decider;
use crate::tree::{Shown, Tree, path};

impl Replica {
    /// What there is.
    pub(in crate::replica) fn locks(&self, scope: &Scope) -> Snapshot {
        let tree = self.state.machine().tree();
        let mut snapshot = Snapshot {
            zxid: self.state.machine().last_zxid(),
            wall_ms: self.clocks.wall_ms(),
            follows: self.state.machine().decider() == Decider::ZooKeeper,
            ..Snapshot::default()
        };
        let sessions: BTreeSet<i64> = match scope {
            Scope::Locks { prefix } => {
                directories(tree, scope, prefix, &mut snapshot);
                let contenders = snapshot.directories.iter().flat_map(|known| &known.contenders);
                contenders.map(|znode| znode.session).filter(|session| *session != 0).collect()
            }
            Scope::Sessions => {
                let sessions = self.state.machine().sessions().iter();
                sessions.map(|(id, _)| id).take(SESSIONS_MAX).collect()
            }
        };
        if *scope == Scope::Sessions {
            snapshot.is_cut |= self.state.machine().sessions().len() > sessions.len();
        }
        for id in sessions {
            // Those that this server alone knows are none of the machine's.
            let Some(session) = self.state.machine().sessions().find(id) else { continue };
            // Counting goes through all of them.
            let is_few = tree.ephemeral_count() <= LOOKS_MAX;
            let ephemerals = is_few.then(|| tree.ephemerals_of(id) as u64);
            snapshot.sessions.push(Session { id, timeout_ms: session.timeout_ms, ephemerals });
        }
        for directory in &mut snapshot.directories {
            (directory.departures, directory.known_since_ms) =
                self.figures.departures_of(&directory.path, LAST_FEW);
        }
        snapshot.local = self.local(&snapshot);
        snapshot
    }

    /// One directory, with all departures from it that are known; none of what its clients do.
    pub(in crate::replica) fn departures(&self, path: &str) -> Snapshot {
        let tree = self.state.machine().tree();
        let next = tree.shown(path).map_or(0, |shown| shown.next_child);
        let (departures, known_since_ms) = self.figures.departures_of(path, usize::MAX);
        let children = usize::try_from(tree.shown(path).map_or(0, |one| one.stat.num_children));
        let is_cut = children.is_ok_and(|children| children > LOOKS_MAX);
        let all = tree.shown_children(path).take(LOOKS_MAX).map(|child| child_of(&child));
        let known = Directory::of(path, next, None, all, CONTENDERS_MAX);
        let directory = known.unwrap_or_else(|| Directory::empty(path, next));
        Snapshot {
            zxid: self.state.machine().last_zxid(),
            wall_ms: self.clocks.wall_ms(),
            directories: vec![Directory { departures, known_since_ms, ..directory }],
            is_cut,
            ..Snapshot::default()
        }
    }

    fn local(&self, snapshot: &Snapshot) -> Local {
        let mut local = Local::default();
        for Session { id, .. } in &snapshot.sessions {
            let connection = self.clients.connection_of(*id).and_then(|conn| {
                let known = self.clients.connection(conn)?;
                Some(Connection {
                    remote: known.remote().to_owned(),
                    heard_ms: self.clocks.now_us().saturating_sub(known.heard_us) / 1000,
                    watches: self.clients.watches().count_of(conn),
                })
            });
            let expires_in_ms = self.sessions.remaining_ms(*id).filter(|_| self.decides_expiry());
            if connection.is_some() || expires_in_ms.is_some() {
                local.sessions.push(Standing { id: *id, connection, expires_in_ms });
            }
        }
        let mut above = BTreeSet::new();
        for directory in &snapshot.directories {
            self.add_watches(&directory.path, &mut local);
            for znode in &directory.contenders {
                self.add_watches(&directory.child(&znode.name), &mut local);
            }
            above.extend(ancestors(&directory.path));
        }
        for path in above {
            let recursive = self.clients.watches().of_path(path);
            self.add(path, recursive.filter(|(_, kind)| *kind == Kind::Recursive), &mut local);
        }
        local
    }

    fn add_watches(&self, path: &str, local: &mut Local) {
        self.add(path, self.clients.watches().of_path(path), local);
    }

    fn add(
        &self,
        path: &str,
        found: impl Iterator<Item = (crate::replica::ConnId, Kind)>,
        local: &mut Local,
    ) {
        for (conn, kind) in found {
            let Some(session) = self.clients.connection(conn).and_then(|c| c.session) else {
                continue;
            };
            if local.watches.len() >= WATCHES_MAX {
                local.is_cut = true;
                return;
            }
            let kind = match kind {
                Kind::Data => WatchKind::Data,
                Kind::Child => WatchKind::Children,
                Kind::Persistent => WatchKind::Persistent,
                Kind::Recursive => WatchKind::Recursive,
            };
            local.watches.push(Watch { session, path: path.to_owned(), kind });
        }
    }

    /// Whether this server decides when a session is over.
    fn decides_expiry(&self) -> bool {
        self.setup.ensemble.is_none() || self.leadership.leads().is_some()
    }
}

/// Finds directories with contenders by the ephemerals among these, and takes what is in them.
fn directories(tree: &Tree, scope: &Scope, prefix: &str, snapshot: &mut Snapshot) {
    let mut looks = 0;
    let mut parents = BTreeSet::new();
    // It may have contenders that are not ephemeral only.
    if tree.shown(prefix).is_some() {
        parents.insert(if prefix.is_empty() { path::ROOT } else { prefix }.to_owned());
    }
    let mut asked = BTreeSet::new();
    for (parent, name) in tree.all_ephemerals() {
        looks += 1;
        if looks > LOOKS_MAX {
            snapshot.is_cut = true;
            break;
        }
        if !asked.contains(&parent) && Species::of(name).is_some() {
            asked.insert(parent);
            let path = parent.path();
            if scope.has(&path) {
                parents.insert(path);
            }
        }
    }
    let mut room = CONTENDERS_MAX;
    let mut looks = 0;
    for parent in parents {
        let Some(shown) = tree.shown(&parent) else { continue };
        let children = usize::try_from(shown.stat.num_children).unwrap_or(0);
        if room == 0 || looks + children > LOOKS_MAX {
            snapshot.is_cut = true;
            continue;
        }
        looks += children;
        let children = tree.shown_children(&parent).map(|child| child_of(&child));
        let found = Directory::of(&parent, shown.next_child, shown.data, children, room);
        if let Some(directory) = found {
            room -= directory.contenders.len();
            snapshot.is_cut |= directory.hidden > 0;
            snapshot.directories.push(directory);
        }
    }
}

fn child_of<'a>(shown: &Shown<'a>) -> Child<'a> {
    Child {
        name: shown.name,
        data: shown.data,
        session: shown.stat.ephemeral_owner,
        czxid: shown.stat.czxid,
        ctime_ms: shown.stat.ctime,
        version: shown.stat.version,
    }
}
