//! Locks of every layout, made by hand.

use super::snapshot::{
    Child, Connection, Departure, Directory, End, Session, Snapshot, Standing, Watch, WatchKind,
};
use super::view::{Kind, Mode};
use super::{Clients, FindingKind, Lock, Presence, view};

const NOW_MS: i64 = 1_700_000_000_000;
/// GUIDs as Curator and kazoo make them, and as this library does.
const THEIRS: &str = "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55";
const OURS: &str = "0af2b9d6-32cd-8bd0-8c9c-6c2f2f4d4f55";
const HEX: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55";

/// A tree with locks, and one server's clients.
#[derive(Default)]
pub(super) struct World {
    pub(super) snapshot: Snapshot,
    is_partial: bool,
}

impl World {
    /// A directory of contenders, each with its session. They are a minute old.
    pub(super) fn with(self, path: &str, children: &[(&str, i64)]) -> Self {
        self.counting(path, 100, None, children)
    }

    pub(super) fn counting(
        mut self,
        path: &str,
        next: i32,
        data: Option<&str>,
        children: &[(&str, i64)],
    ) -> Self {
        let first = 1000 + 100 * self.snapshot.directories.len() as i64;
        let znodes = children.iter().zip(first..).map(|((name, session), czxid)| Child {
            name,
            data: Some(b"me"),
            session: *session,
            czxid,
            ctime_ms: NOW_MS - 60_000,
            version: 0,
        });
        let data = data.map(str::as_bytes);
        let directory = Directory::of(path, next, data, znodes, 1000).expect("contenders");
        self.snapshot.directories.push(directory);
        for (_, id) in children {
            if *id != 0 && self.snapshot.sessions.iter().all(|known| known.id != *id) {
                self.snapshot.sessions.push(Session {
                    id: *id,
                    timeout_ms: 4000,
                    ephemerals: None,
                });
                let connection =
                    Connection { remote: format!("10.0.0.{id}:5"), heard_ms: 3, watches: 0 };
                self.snapshot.local.sessions.push(Standing {
                    id: *id,
                    connection: Some(connection),
                    expires_in_ms: Some(3_997),
                });
            }
        }
        self.snapshot.wall_ms = NOW_MS;
        self
    }

    pub(super) fn watching(self, session: i64, path: &str) -> Self {
        self.watch(session, path, WatchKind::Data)
    }

    pub(super) fn watch(mut self, session: i64, path: &str, kind: WatchKind) -> Self {
        self.snapshot.local.watches.push(Watch { session, path: path.to_owned(), kind });
        self
    }

    /// Its client has no connection to this server.
    pub(super) fn without(mut self, session: i64) -> Self {
        for known in &mut self.snapshot.local.sessions {
            if known.id == session {
                known.connection = None;
            }
        }
        self
    }

    pub(super) fn locks(&self) -> Vec<Lock> {
        let locals = [(1, &self.snapshot.local)];
        view(&self.snapshot, &Clients::new(&self.snapshot, &locals, !self.is_partial))
    }

    /// The only one.
    pub(super) fn lock(&self) -> Lock {
        let mut locks = self.locks();
        assert_eq!(locks.len(), 1, "{locks:?}");
        locks.remove(0)
    }
}

/// Sessions that hold it, and that wait for it.
pub(super) fn sessions(lock: &Lock) -> (Vec<i64>, Vec<i64>) {
    let of = |places: &[super::Place]| places.iter().map(|place| place.session).collect();
    (of(&lock.holders), of(&lock.waiters))
}

pub(super) fn findings(lock: &Lock) -> Vec<FindingKind> {
    lock.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn the_first_of_a_mutex_holds_it_and_the_others_wait_in_the_order_of_their_numbers() {
    for (name, dialect) in [
        (format!("_c_{THEIRS}-lock-"), "curator"),
        (format!("_c_{HEX}-lock-"), "go"),
        (format!("{HEX}__lock__"), "kazoo"),
        ("lock-".to_string(), "plain"),
        ("x-0100001234567890-".to_string(), "zk-recipe"),
    ] {
        let names = [7, 5, 6].map(|number| format!("{name}{number:010}"));
        let world = World::default()
            .with("/p", &[(&names[0], 3), (&names[1], 1), (&names[2], 2)])
            .watching(2, &format!("/p/{}", names[1]))
            .watching(3, &format!("/p/{}", names[2]));
        let lock = world.lock();
        assert_eq!((lock.path.as_str(), lock.kind), ("/p", Kind::Mutex), "{name}");
        assert_eq!(lock.dialects, [dialect]);
        assert_eq!(sessions(&lock), (vec![1], vec![2, 3]), "{name}");
        assert_eq!(lock.findings, [], "{name}");
        let holder = &lock.holders[0];
        assert_eq!((holder.token, holder.age_ms, holder.mode), (1001, 60_000, Mode::Exclusive));
        assert_eq!(holder.identity.as_deref(), Some("me"));
        assert_eq!(holder.expires_in_ms, Some(3_997));
        let remote = "10.0.0.1:5".to_string();
        assert_eq!(holder.presence, Presence::Connected { server: 1, remote, heard_ms: 3 });
        let watched = (format!("/p/{}", names[1]), WatchKind::Data);
        assert_eq!(lock.waiters[0].watches, Some(vec![watched]));
    }
}

#[test]
fn a_holder_has_it_since_the_last_one_in_front_of_it_left() {
    let left = |sequence, ago_ms| Departure {
        name: format!("lock-{sequence:010}"),
        sequence,
        session: 9,
        czxid: 9,
        ctime_ms: 0,
        time_ms: NOW_MS - ago_ms,
        end: End::Released,
    };
    for (known_since_ms, departures, held_ms) in [
        (0, vec![], Some(60_000)),
        (NOW_MS - 50_000, vec![], None),
        (0, vec![left(3, 40_000), left(4, 20_000)], Some(20_000)),
        (NOW_MS - 50_000, vec![left(4, 20_000), left(7, 10_000)], Some(20_000)),
        (0, vec![left(4, 90_000)], Some(60_000)),
        (NOW_MS - 50_000, vec![left(7, 10_000)], None),
    ] {
        let children = [("lock-0000000005", 1), ("lock-0000000006", 2)];
        let mut world = World::default().with("/p", &children);
        let directory = &mut world.snapshot.directories[0];
        (directory.known_since_ms, directory.departures) = (known_since_ms, departures.clone());
        let lock = world.lock();
        assert_eq!(lock.holders[0].held_ms, held_ms, "{known_since_ms} {departures:?}");
        assert_eq!(lock.waiters[0].held_ms, None);
    }
}

#[test]
fn the_order_goes_on_over_the_overflow_of_the_counter() {
    let names = ["lock-2147483647", "lock--2147483648", "lock-2147483646"];
    let children = [(names[0], 2), (names[1], 3), (names[2], 1)];
    let lock = World::default().counting("/p", i32::MIN + 1, None, &children).lock();
    assert_eq!(sessions(&lock), (vec![1], vec![2, 3]));
    assert!(findings(&lock).contains(&FindingKind::Counter));
}

#[test]
fn numbers_that_no_counter_gives_have_a_place_too() {
    let names = ["lock-0000000000", "lock-1500000000", "lock--1500000000", "lock-2147483647"];
    let children = names.map(|name| (name, 1));
    let lock = World::default().counting("/p", 4, None, &children).lock();
    assert_eq!(lock.holders.len() + lock.waiters.len(), 4);
}

#[test]
fn readers_hold_together_up_to_the_first_writer() {
    let curator = |what: &str, number: i32| format!("_c_{THEIRS}-__{what}__{number:010}");
    let kazoo = |what: &str, number: i32| format!("{HEX}__{what}__{number:010}");
    let documented = |what: &str, number: i32| format!("{THEIRS}-{what}-{number:010}");
    for names in [
        [curator("READ", 1), curator("READ", 2), curator("WRIT", 3), curator("READ", 4)],
        [kazoo("rlock", 1), kazoo("rlock", 2), kazoo("lock", 3), kazoo("rlock", 4)],
        [
            documented("read", 1),
            documented("read", 2),
            documented("write", 3),
            documented("read", 4),
        ],
    ] {
        let children: Vec<_> = names.iter().map(String::as_str).zip(1..).collect();
        let lock = World::default().with("/p", &children).lock();
        assert_eq!(lock.kind, Kind::ReadWrite, "{names:?}");
        assert_eq!(sessions(&lock), (vec![1, 2], vec![3, 4]), "{names:?}");
        let modes: Vec<_> =
            lock.holders.iter().chain(&lock.waiters).map(|place| place.mode).collect();
        assert_eq!(modes, [Mode::Read, Mode::Read, Mode::Write, Mode::Read], "{names:?}");
    }
}

#[test]
fn a_reader_passes_by_the_writer_of_its_own_session() {
    let names = ["WRIT__0000000001", "READ__0000000002", "READ__0000000003"]
        .map(|name| format!("_c_{THEIRS}-__{name}"));
    let lock =
        World::default().with("/p", &[(&names[0], 1), (&names[1], 1), (&names[2], 2)]).lock();
    assert_eq!(sessions(&lock), (vec![1, 1], vec![2]));
}

#[test]
fn several_readers_that_wait_for_one_writer_are_no_herd() {
    let names = ["WRIT__0000000001", "READ__0000000002", "READ__0000000003"]
        .map(|name| format!("_c_{THEIRS}-__{name}"));
    let writer = format!("/p/{}", names[0]);
    let world = World::default().with("/p", &[(&names[0], 1), (&names[1], 2), (&names[2], 3)]);
    let lock = world.watching(2, &writer).watching(3, &writer).lock();
    assert_eq!(sessions(&lock), (vec![1], vec![2, 3]));
    assert_eq!(lock.findings, []);
}

#[test]
fn a_semaphore_of_curators_layout_is_one_lock() {
    let lease = |number: i32| format!("_c_{THEIRS}-lease-{number:010}");
    let queue = |number: i32| format!("_c_{THEIRS}-lock-{number:010}");
    let queued = [queue(5), queue(6)];
    let leases = [lease(1), lease(2), lease(3)];
    let world = World::default()
        .with("/s/locks", &[(&queued[0], 3), (&queued[1], 4)])
        .with("/s/leases", &[(&leases[0], 1), (&leases[1], 2), (&leases[2], 3)])
        .watch(3, "/s/leases", WatchKind::Children)
        .watching(4, &format!("/s/locks/{}", queued[0]));
    let lock = world.lock();
    assert_eq!((lock.path.as_str(), lock.kind), ("/s", Kind::Semaphore));
    assert_eq!(sessions(&lock), (vec![1, 2], vec![3, 4]));
    assert_eq!(lock.findings, []);
    assert_eq!(lock.waiters[0].node, format!("/s/leases/{}", leases[2]));
    assert_eq!(lock.waiters[1].node, format!("/s/locks/{}", queued[1]));
}

#[test]
fn a_semaphore_of_kazoo_says_its_limit() {
    let lock_name = format!("{HEX}__lock__0000000004");
    let world = World::default()
        .counting("/s", 9, Some("2"), &[(HEX, 1)])
        .with("/s-__lock__", &[(&lock_name, 2)])
        .watch(2, "/s", WatchKind::Children);
    let lock = world.lock();
    assert_eq!((lock.path.as_str(), lock.kind, lock.limit), ("/s", Kind::Semaphore, Some(2)));
    assert_eq!(sessions(&lock), (vec![1], vec![2]));
    assert_eq!(lock.findings, []);
    // Without a limit it may be anything: a member of a group, or of a barrier.
    let child = Child { name: HEX, data: None, session: 1, czxid: 1, ctime_ms: 1, version: 0 };
    assert_eq!(Directory::of("/s", 1, Some(b""), [child].into_iter(), 10), None);
}

#[test]
fn elections_have_one_leader() {
    for name in [format!("_c_{THEIRS}-latch-"), "n_".to_string()] {
        let names = [1, 2].map(|number| format!("{name}{number:010}"));
        let world = World::default().with("/e", &[(&names[0], 1), (&names[1], 2)]);
        let lock = world.watching(2, &format!("/e/{}", names[0])).lock();
        assert_eq!(lock.kind, Kind::Election);
        assert_eq!(sessions(&lock), (vec![1], vec![2]));
        assert_eq!(lock.findings, []);
    }
}

#[test]
fn locks_of_several_names_share_a_directory() {
    let named = |name: &str, number: i32| format!("_c_{OURS}-{name}-{number:010}");
    let names = [named("a", 1), named("b", 2), named("a", 3)];
    let world = World::default().with("/d", &[(&names[0], 1), (&names[1], 2), (&names[2], 3)]);
    let locks = world.watching(3, &format!("/d/{}", names[0])).locks();
    let seen: Vec<_> = locks.iter().map(|l| (l.name.as_deref(), l.kind, sessions(l))).collect();
    assert_eq!(
        seen,
        [(Some("a"), Kind::Mutex, (vec![1], vec![3])), (Some("b"), Kind::Mutex, (vec![2], vec![])),]
    );
}

#[test]
fn kazoo_behind_curator_holds_as_well_and_a_finding_says_so() {
    let (first, second) =
        (format!("_c_{THEIRS}-lock-0000000001"), format!("{HEX}__lock__0000000002"));
    let world = World::default().with("/p", &[(&first, 1), (&second, 2)]);
    let lock = world.lock();
    assert_eq!(sessions(&lock), (vec![1, 2], vec![]));
    assert_eq!(findings(&lock), [FindingKind::MixedDialects]);
    assert_eq!(lock.dialects, ["curator", "kazoo"]);
    assert_eq!(
        lock.findings[0].text,
        "contenders that do not exclude each other: Curator does not wait for kazoo, \
         kazoo does not wait for Curator"
    );
    // Its other lock patterns are known by what it watches.
    let lock = world.watching(2, &format!("/p/{first}")).lock();
    assert_eq!(sessions(&lock), (vec![1], vec![2]));
    assert_eq!(findings(&lock), [FindingKind::MixedDialects]);
}

#[test]
fn contenders_of_this_library_wait_for_everybody() {
    let (first, second) =
        (format!("{HEX}__lock__0000000001"), format!("_c_{OURS}-lock-0000000002"));
    let lock = World::default().with("/p", &[(&first, 1), (&second, 2)]).lock();
    assert_eq!(sessions(&lock), (vec![1], vec![2]));
    let said = &lock.findings[0].text;
    assert!(said.ends_with(": kazoo does not wait for Curator"), "{said}");
}

#[test]
fn go_and_curator_exclude_each_other() {
    let (first, second) =
        (format!("_c_{THEIRS}-lock-0000000001"), format!("_c_{HEX}-lock-0000000002"));
    let world = World::default().with("/p", &[(&first, 1), (&second, 2)]);
    let lock = world.watching(2, &format!("/p/{first}")).lock();
    assert_eq!(sessions(&lock), (vec![1], vec![2]));
    assert_eq!((lock.dialects, lock.findings), (vec!["curator", "go"], vec![]));
}

#[test]
fn a_contender_that_watches_nothing_is_an_orphan_if_that_is_known() {
    let children = [("lock-0000000001", 1), ("lock-0000000002", 2)];
    let world = World::default().with("/p", &children);
    let lock = world.lock();
    assert_eq!(findings(&lock), [FindingKind::Orphan]);
    assert_eq!(lock.findings[0].nodes, ["/p/lock-0000000002"]);
    // It has only just come.
    let mut young = World::default().with("/p", &children);
    for znode in &mut young.snapshot.directories[0].contenders {
        znode.ctime_ms = NOW_MS - 100;
    }
    assert_eq!(findings(&young.lock()), []);
    // Its server has not said what it watches.
    let mut unknown = World::default().with("/p", &children).without(2);
    unknown.is_partial = true;
    let lock = unknown.lock();
    assert_eq!(findings(&lock), []);
    assert_eq!((&lock.waiters[0].presence, &lock.waiters[0].watches), (&Presence::Unknown, &None));
    // A recursive watch from above is one, too.
    let world = World::default().with("/p", &children).watch(2, "/", WatchKind::Recursive);
    assert_eq!(findings(&world.lock()), []);
}

#[test]
fn waiters_that_are_woken_together_are_a_herd() {
    let children = [("lock-0000000001", 1), ("lock-0000000002", 2), ("lock-0000000003", 3)];
    let first = "/p/lock-0000000001";
    let world = World::default().with("/p", &children).watching(2, first).watching(3, first);
    let lock = world.lock();
    assert_eq!(findings(&lock), [FindingKind::Herd]);
    assert_eq!(lock.findings[0].nodes, [first]);
    let listing = World::default().with("/p", &children).watch(2, "/p", WatchKind::Children).watch(
        3,
        "/p",
        WatchKind::Children,
    );
    let lock = listing.lock();
    assert_eq!(findings(&lock), [FindingKind::Herd]);
    assert_eq!(lock.findings[0].nodes, ["/p"]);
}

#[test]
fn a_holder_without_a_connection_is_found_if_all_servers_have_answered() {
    let world = World::default().with("/p", &[("lock-0000000001", 1)]).without(1);
    let lock = world.lock();
    assert_eq!(findings(&lock), [FindingKind::HolderDisconnected]);
    assert!(lock.findings[0].text.contains("ends in 3997 ms"), "{:?}", lock.findings);
    let mut world = World { is_partial: true, ..world };
    assert_eq!(findings(&world.lock()), []);
    // Its client may be at the ZooKeeper that is followed.
    (world.is_partial, world.snapshot.follows) = (false, true);
    let lock = world.lock();
    assert_eq!((findings(&lock), &lock.holders[0].presence), (vec![], &Presence::Elsewhere));
}

#[test]
fn what_outlives_its_client_and_what_go_cannot_read_are_found() {
    let (lasts, go) = (format!("_c_{THEIRS}-lock-0000000001"), format!("_c_{HEX}-lock-0000000002"));
    let lock = World::default().with("/p", &[(&lasts, 0), (&go, 2), ("meta", 0)]).lock();
    let expected = [FindingKind::Orphan, FindingKind::NotEphemeral, FindingKind::Stranger];
    assert_eq!(findings(&lock), expected);
    assert_eq!(lock.findings[1].nodes, [format!("/p/{lasts}")]);
    assert_eq!(lock.findings[2].nodes, ["/p/meta"]);
    assert_eq!(lock.holders[0].presence, Presence::NoSession);
}

#[test]
fn a_counter_is_reported_from_nine_tenths_on() {
    for (next, expected) in [(1_932_735_281, 0), (1_932_735_282, 0), (1_932_735_283, 1)] {
        let name = format!("lock-{:010}", next - 1);
        let lock = World::default().counting("/p", next, None, &[(&name, 1)]).lock();
        assert_eq!(lock.findings.len(), expected, "{next}: {:?}", lock.findings);
    }
}

#[test]
fn a_holder_that_is_asked_to_leave_is_shown_so() {
    let mut world = World::default().with("/p", &[("lock-0000000001", 1)]);
    let znode = &mut world.snapshot.directories[0].contenders[0];
    (znode.identity, znode.version) = (Some("unlock".to_owned()), 1);
    let lock = world.lock();
    assert!(lock.holders[0].is_asked_to_release && lock.holders[0].identity.is_none());
}

#[test]
fn a_queue_that_is_too_long_loses_its_end() {
    let names: Vec<String> = (0..50).rev().map(|number| format!("lock-{number:010}")).collect();
    let children = names.iter().map(|name| Child {
        name,
        data: Some(b"\x1b[2J"),
        session: 1,
        czxid: 1,
        ctime_ms: 1,
        version: 0,
    });
    let directory = Directory::of("/", 50, None, children, 3).unwrap();
    let kept: Vec<_> = directory.contenders.iter().map(|znode| znode.name.as_str()).collect();
    assert_eq!(kept, ["lock-0000000000", "lock-0000000001", "lock-0000000002"]);
    assert_eq!(directory.hidden, 47);
    assert_eq!(directory.contenders[0].identity, None, "it would clear the screen");
    assert_eq!(directory.child("a"), "/a");
}

#[test]
fn contenders_that_begin_with_their_session_or_host_are_one_queue() {
    let solr = |session: i64, number: i32| {
        (format!("{session}-10.0.0.{session}:8983_solr-n_{number:010}"), session)
    };
    let recipe = |session: i64, number: i32| (format!("x-{session}-{number:010}"), session);
    let own = |form: fn(i64) -> String| {
        move |session: i64, number: i32| (format!("{}{number:010}", form(session)), session)
    };
    type Made = Box<dyn Fn(i64, i32) -> (String, i64)>;
    let cases: [(Made, Kind, Option<&str>); 7] = [
        (Box::new(solr), Kind::Election, None),
        (Box::new(recipe), Kind::Mutex, None),
        (Box::new(own(|id| format!("{id}-"))), Kind::Sequence, None),
        (Box::new(own(|id| format!("0x{id:x}_task-"))), Kind::Sequence, Some("task")),
        (Box::new(own(|id| format!("{id:016x}-task-"))), Kind::Sequence, Some("task")),
        (Box::new(own(|id| format!("10.0.0.{}:80-task-", id % 250))), Kind::Sequence, Some("task")),
        (Box::new(own(|id| format!("me:{id}-{id}-task-"))), Kind::Sequence, Some("task")),
    ];
    for (at, (name, kind, expected)) in cases.into_iter().enumerate() {
        let names =
            [3, 4, 5].map(|number| name(72_057_594_037_927_930 + i64::from(number), number));
        let children: Vec<_> = names.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let mut world = World::default().with("/e", &children);
        for (znode, (_, session)) in world.snapshot.directories[0].contenders.iter_mut().zip(&names)
        {
            znode.identity = Some(format!("me:{session}"));
        }
        let lock = world.lock();
        assert_eq!((lock.kind, lock.name.as_deref()), (kind, expected), "{at}");
        assert_eq!(lock.holders.len(), 1, "{at}: {names:?}");
        assert_eq!(lock.waiters.len(), 2, "{at}");
    }
}

#[test]
fn contenders_that_watch_each_other_are_one_queue_whatever_their_names() {
    let children = [("anna-0000000001", 1), ("bert-0000000002", 2), ("carl-0000000003", 3)];
    let world = World::default().with("/e", &children);
    assert_eq!(world.locks().len(), 3, "they may be three locks");
    let world = world.watching(2, "/e/anna-0000000001").watching(3, "/e/bert-0000000002");
    let lock = world.lock();
    assert_eq!((sessions(&lock), lock.name.clone()), ((vec![1], vec![2, 3]), None));
    // A watch from elsewhere joins nothing.
    let world = World::default().with("/e", &children).watching(9, "/e/anna-0000000001");
    assert_eq!(world.locks().len(), 3);
}
