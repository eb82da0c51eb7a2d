//! From what there is to locks: who holds each, and who waits for what.
//!
//! *Owns* how a [`Lock`] is made from directories of contenders. *Invariants*: who holds a lock is
//! what its clients believe: where two libraries do not wait for each other, there are two holders,
//! and a finding says so; who watches a contender in front of itself waits, whatever its library
//! usually does; every contender is in one place of one lock.

use std::collections::{BTreeMap, BTreeSet};

use super::clients::Clients;
use super::contender::{Dialect, RELEASE_WORDS};
use super::grouping::{Class, Group, queues};
use super::snapshot::{Snapshot, WatchKind, Znode, is_below};
use super::species::Species;
use super::{findings, respect, wait_for};

pub use super::lock::{Kind, Lock, Mode, Place};

/// All locks of a snapshot, in order of their paths and names.
#[must_use]
pub fn view(snapshot: &Snapshot, clients: &Clients<'_>) -> Vec<Lock> {
    let mut groups = BTreeMap::new();
    for directory in &snapshot.directories {
        for group in queues(directory, clients) {
            groups.insert((directory.path.clone(), group.class), group);
        }
    }
    let mut locks = Vec::new();
    for (key, group) in &groups {
        if is_queue_of_leases(&groups, key) {
            continue;
        }
        let queue = group.queue_path().and_then(|path| groups.get(&(path, Class::Lock)));
        locks.push(Look { group, queue, clients, wall_ms: snapshot.wall_ms }.lock());
    }
    locks.sort_by(|one, other| (&one.path, &one.name).cmp(&(&other.path, &other.name)));
    wait_for::add_deadlocks(&mut locks);
    locks
}

type Groups<'a> = BTreeMap<(String, Class<'a>), Group<'a>>;

/// Whether that group is where those wait who want a lease of another one.
fn is_queue_of_leases(groups: &Groups<'_>, (path, class): &(String, Class<'_>)) -> bool {
    if *class != Class::Lock {
        return false;
    }
    leases_of(path)
        .map(|leases| (leases, Class::Semaphore))
        .any(|key| groups.get(&key).and_then(Group::queue_path).is_some_and(|queue| queue == *path))
}

/// Where the leases would be, if those in this directory waited for leases of a semaphore.
pub fn leases_of(path: &str) -> impl Iterator<Item = String> {
    let curators = path.strip_suffix("/locks").map(|parent| format!("{parent}/{LEASES}"));
    let kazoos = path.strip_suffix(KAZOO_QUEUE).map(str::to_owned);
    [curators, kazoos].into_iter().flatten()
}

impl<'a> Group<'a> {
    /// Where those would wait who want one of these leases.
    fn queue_path(&self) -> Option<String> {
        if self.class != Class::Semaphore {
            return None;
        }
        let path = &self.directory.path;
        if self.members.iter().any(|(_, species)| *species == Species::KazooLease) {
            return Some(format!("{path}{KAZOO_QUEUE}"));
        }
        Some(format!("{}/locks", path.strip_suffix(LEASES)?.trim_end_matches('/')))
    }

    /// What clients of the recipe were given.
    fn lock_path(&self) -> &'a str {
        let path = self.directory.path.as_str();
        let is_leases = self.members.iter().any(|(_, species)| *species == Species::Lease);
        match path.strip_suffix(LEASES).and_then(|path| path.strip_suffix('/')) {
            Some("") if is_leases => "/",
            Some(parent) if is_leases => parent,
            Some(_) | None => path,
        }
    }

    fn kind(&self) -> Kind {
        match self.class {
            Class::Lock => {
                let is_read_write = |(_, species): &(_, Species<'_>)| match species {
                    Species::DocRead | Species::DocWrite => true,
                    Species::Lock(dialect) => {
                        dialect.is_shared() || *dialect == Dialect::CuratorWrite
                    }
                    Species::Latch
                    | Species::Candidate
                    | Species::SessionCandidate
                    | Species::Lease
                    | Species::KazooLease
                    | Species::Party
                    | Species::Simple
                    | Species::Named { .. } => false,
                };
                if self.members.iter().any(is_read_write) { Kind::ReadWrite } else { Kind::Mutex }
            }
            Class::Semaphore => Kind::Semaphore,
            Class::Election => Kind::Election,
            Class::Party => Kind::Party,
            Class::Named(_) => {
                let is_protected = |(_, species): &(_, Species<'_>)| {
                    matches!(species, Species::Named { is_protected: true, .. })
                };
                if self.members.iter().any(is_protected) { Kind::Mutex } else { Kind::Sequence }
            }
        }
    }

    fn name(&self) -> Option<String> {
        match self.class {
            Class::Named(_) => {
                let name = self.stem?.trim_end_matches('-');
                (!name.is_empty()).then(|| name.to_owned())
            }
            Class::Lock | Class::Semaphore | Class::Election | Class::Party => None,
        }
    }

    /// Which of the members wait.
    fn waiting(&self) -> Vec<bool> {
        let members = self.members.iter().enumerate();
        let positions: BTreeMap<&str, usize> =
            members.map(|(at, (znode, _))| (znode.name.as_str(), at)).collect();
        // Of each session, the first contender that it watches.
        let mut watched: BTreeMap<i64, usize> = BTreeMap::new();
        for (session, name) in &self.watches {
            if let Some(at) = positions.get(name) {
                let first = watched.entry(*session).or_insert(*at);
                *first = (*first).min(*at);
            }
        }
        let mut front: BTreeMap<Species<'_>, BTreeSet<i64>> = BTreeMap::new();
        let mut waiting = Vec::with_capacity(self.members.len());
        for (at, (znode, species)) in self.members.iter().enumerate() {
            let waits_for_all = respect::waits_for_all(&znode.name);
            let by_rule = front.iter().any(|(earlier, sessions)| {
                let respects = respect::waits(*species, *earlier)
                    || waits_for_all && !respect::share(*species, *earlier);
                let is_own = sessions.len() == 1 && sessions.contains(&znode.session);
                respects && !(is_own && respect::is_way_down(*species, *earlier))
            });
            let by_watch = watched.get(&znode.session).is_some_and(|watched| *watched < at);
            waiting.push(by_rule || by_watch);
            front.entry(*species).or_default().insert(znode.session);
        }
        waiting
    }
}

/// A lock that is being looked at.
struct Look<'a> {
    group: &'a Group<'a>,
    /// Where those wait who have no lease yet, of a semaphore.
    queue: Option<&'a Group<'a>>,
    clients: &'a Clients<'a>,
    wall_ms: i64,
}

impl Look<'_> {
    fn lock(&self) -> Lock {
        let Self { group, queue, clients, .. } = *self;
        let kind = group.kind();
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for ((znode, species), waits) in group.members.iter().zip(self.waiting()) {
            let list = if waits { &mut waiters } else { &mut holders };
            let place = self.place(group, (znode, *species), Mode::of(*species, kind));
            let since_ms = group.directory.first_since_ms(znode).filter(|_| !waits);
            list.push(Place {
                held_ms: since_ms.map(|since_ms| self.passed_ms(since_ms)),
                ..place
            });
        }
        let queued =
            queue.iter().flat_map(|queue| queue.members.iter().map(|known| (*queue, known)));
        for (at, (queue, (znode, species))) in queued.enumerate() {
            // The first is there already, with its lease.
            if at > 0 || waiters.iter().all(|waiter: &Place| waiter.session != znode.session) {
                waiters.push(self.place(queue, (znode, *species), Mode::Lease));
            }
        }
        let dialects: BTreeSet<&str> =
            group.members.iter().map(|(_, species)| species.dialect()).collect();
        let mut lock = Lock {
            path: group.lock_path().to_owned(),
            name: group.name(),
            kind,
            dialects: dialects.into_iter().collect(),
            limit: group.directory.limit.filter(|_| kind == Kind::Semaphore),
            holders,
            waiters,
            hidden: group.directory.hidden + queue.map_or(0, |queue| queue.directory.hidden),
            findings: Vec::new(),
        };
        lock.findings = findings::of(&lock, group, queue, clients);
        lock
    }

    /// Which of the members wait.
    fn waiting(&self) -> Vec<bool> {
        let mut waiting = self.group.waiting();
        if let Some((first, _)) = self.queue.and_then(|queue| queue.members.first())
            && let Some(at) =
                self.group.members.iter().rposition(|(znode, _)| {
                    znode.session == first.session && znode.czxid > first.czxid
                })
        {
            // Who is the first to wait has taken a lease that it may use when there are fewer of them.
            waiting[at] = true;
        }
        waiting
    }

    fn place(
        &self,
        group: &Group<'_>,
        (znode, species): (&Znode, Species<'_>),
        mode: Mode,
    ) -> Place {
        let clients = self.clients;
        let is_word = |data: &str| RELEASE_WORDS.contains(&data);
        let is_asked_to_release =
            znode.version > 0 && znode.identity.as_deref().is_some_and(is_word);
        let node = group.directory.child(&znode.name);
        Place {
            mode,
            dialect: species.dialect(),
            token: znode.czxid,
            age_ms: self.passed_ms(znode.ctime_ms),
            held_ms: None,
            identity: znode.identity.clone().filter(|_| !is_asked_to_release),
            is_asked_to_release,
            session: znode.session,
            timeout_ms: clients.timeout_ms(znode.session),
            expires_in_ms: clients.expires_in_ms(znode.session),
            presence: clients.presence(znode.session),
            watches: self.watches(znode.session, &node),
            node,
        }
    }

    fn passed_ms(&self, since_ms: i64) -> u64 {
        u64::try_from(self.wall_ms.saturating_sub(since_ms)).unwrap_or(0)
    }

    /// What a contender's session watches of its lock, but for its own znode.
    fn watches(&self, session: i64, node: &str) -> Option<Vec<(String, WatchKind)>> {
        let groups = || std::iter::once(self.group).chain(self.queue);
        // The directory, or a child of it.
        let is_of_lock = |path: &str| {
            groups().any(|group| {
                let below = path.strip_prefix(group.directory.path.trim_end_matches('/'));
                below.is_some_and(|below| below.is_empty() || below.rfind('/') == Some(0))
            })
        };
        let all = self.clients.watches(session).filter(|_| session != 0)?.iter();
        let of_lock = all.filter(|watch| {
            let is_above = watch.kind == WatchKind::Recursive
                && groups().any(|group| is_below(&group.directory.path, &watch.path));
            watch.path != node && (is_above || is_of_lock(&watch.path))
        });
        Some(of_lock.map(|watch| (watch.path.clone(), watch.kind)).collect())
    }
}

/// Where Curator's semaphore has its leases.
const LEASES: &str = "leases";
/// What kazoo's semaphore appends to its path, for those who wait.
const KAZOO_QUEUE: &str = "-__lock__";
