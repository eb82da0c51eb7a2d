//! From what there is to locks: who holds each, and who waits for what.
//!
//! *Owns* [`Lock`], and how one is made from directories of contenders. *Invariants*: who holds a lock is
//! what its clients believe: where two libraries do not wait for each other, there are two holders,
//! and a finding says so; who watches a contender in front of itself waits, whatever its library
//! usually does; every contender is in one place of one lock.

use std::collections::{BTreeMap, BTreeSet};

use super::clients::{Clients, Presence};
use super::contender::{Dialect, RELEASE_WORDS};
use super::findings::{self, Finding};
use super::respect;
use super::snapshot::{Directory, Snapshot, WatchKind, Znode, is_below};
use super::species::Species;
use super::{grouping, wait_for};

/// A lock, or what is used like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its path: what clients of the recipe were given.
    pub path: String,
    /// Its name, if several locks may share the path.
    pub name: Option<String>,
    /// What it is.
    pub kind: Kind,
    /// Whose contenders there are, each once.
    pub dialects: Vec<&'static str>,
    /// How many may hold it, where that is written.
    pub limit: Option<u32>,
    /// Who holds it, in the order of the queue.
    pub holders: Vec<Place>,
    /// Who waits for it, in the order of the queue.
    pub waiters: Vec<Place>,
    /// How many more contenders there are behind those.
    pub hidden: u64,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
}

/// What a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One holder.
    Mutex,
    /// Readers, or one writer.
    ReadWrite,
    /// A limited number of holders.
    Semaphore,
    /// One leader.
    Election,
    /// Members of a group: no one of them waits for another.
    Party,
    /// Numbered ephemerals of a layout that is not known: taken for a mutex.
    Sequence,
}

impl Lock {
    /// Its path, and its name if it has one.
    pub(super) fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{} [{name}]", self.path),
            None => self.path.clone(),
        }
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Mutex,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Election,
        Self::Party,
        Self::Sequence,
    ];

    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::Election => "election",
            Self::Party => "party",
            Self::Sequence => "sequence",
        }
    }
}

/// As what one contends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With other readers.
    Read,
    /// Alone, among readers.
    Write,
    /// One of a limited number.
    Lease,
    /// To lead.
    Candidate,
    /// To be there.
    Member,
}

impl Mode {
    fn of(species: Species<'_>, kind: Kind) -> Self {
        match species {
            Species::Party => Self::Member,
            Species::Latch | Species::Candidate | Species::SessionCandidate => Self::Candidate,
            Species::Lease | Species::KazooLease => Self::Lease,
            Species::DocRead => Self::Read,
            Species::DocWrite => Self::Write,
            Species::Lock(Dialect::CuratorWrite) => Self::Write,
            Species::Lock(dialect) if dialect.is_shared() => Self::Read,
            Species::Lock(Dialect::Kazoo) if kind == Kind::ReadWrite => Self::Write,
            Species::Lock(_) | Species::Simple | Species::Named { .. } => Self::Exclusive,
        }
    }

    /// In one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
            Self::Lease => "lease",
            Self::Candidate => "candidate",
            Self::Member => "member",
        }
    }
}

/// A contender's place in a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of its znode.
    pub node: String,
    /// As what it contends.
    pub mode: Mode,
    /// Whose contender it is.
    pub dialect: &'static str,
    /// The zxid of its creation: of a holder, the fencing token.
    pub token: i64,
    /// How long it has been there, ms: by the clocks of two servers, so not to be trusted to the second.
    pub age_ms: u64,
    /// How long it has held the lock, ms, in the same way; `None` of one that waits, and if no server has
    /// seen it get the lock since it was started.
    pub held_ms: Option<u64>,
    /// What it says of itself.
    pub identity: Option<String>,
    /// Somebody has asked it to leave, in a recipe's words.
    pub is_asked_to_release: bool,
    /// Its session; 0 without one.
    pub session: i64,
    /// That session's timeout, ms.
    pub timeout_ms: Option<i32>,
    /// Milliseconds until that expires unless heard from, where it is known.
    pub expires_in_ms: Option<u64>,
    /// Where its client is.
    pub presence: Presence,
    /// What its session watches of this lock; `None` if no server has said.
    pub watches: Option<Vec<(String, WatchKind)>>,
}

/// All locks of a snapshot, in order of their paths and names.
#[must_use]
pub fn view(snapshot: &Snapshot, clients: &Clients<'_>) -> Vec<Lock> {
    let mut groups = BTreeMap::new();
    for directory in &snapshot.directories {
        for group in Group::all_of(directory, clients) {
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

/// Which contenders of one directory belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class<'a> {
    Lock,
    Semaphore,
    Election,
    Party,
    Named(&'a str),
}

impl<'a> Class<'a> {
    pub(super) fn of(species: Species<'a>) -> Self {
        match species {
            Species::Lock(_) | Species::DocRead | Species::DocWrite | Species::Simple => Self::Lock,
            Species::Latch | Species::Candidate | Species::SessionCandidate => Self::Election,
            Species::Lease | Species::KazooLease => Self::Semaphore,
            Species::Party => Self::Party,
            Species::Named { stem, .. } => Self::Named(stem),
        }
    }
}

/// The contenders of one lock in one directory.
pub(super) struct Group<'a> {
    pub(super) directory: &'a Directory,
    class: Class<'a>,
    pub(super) members: Vec<(&'a Znode, Species<'a>)>,
    /// What the members have in front of their numbers, if that is the same.
    stem: Option<&'a str>,
    /// Sessions that watch a znode of that name in the directory.
    watches: Vec<(i64, &'a str)>,
}

impl<'a> Group<'a> {
    fn all_of(directory: &'a Directory, clients: &Clients<'a>) -> impl Iterator<Item = Self> {
        let queues = grouping::queues(directory, clients);
        queues.into_iter().map(move |queue| {
            let grouping::Queue { class, members, stem, watches } = queue;
            Self { directory, class, members, stem, watches }
        })
    }

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
