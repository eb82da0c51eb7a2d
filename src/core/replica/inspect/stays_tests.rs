//! What is measured of contenders that leave, compared with what a complete memory says.

use crate::locks::front::Contending;
use crate::proto::request::{Create, CreateKind, Request};
use crate::proto::{Acl, Text};
use crate::replica::cluster::{Cluster, create};
use crate::replica::{Measure, Measurement};
use crate::tree::{Context, Event, Options, Rules, Tree};

use super::departures::{Cause, Departures, Stays};

/// A tree, its departures, and everything that there ever was.
struct World {
    tree: Tree,
    departures: Departures,
    zxid: i64,
    time_ms: i64,
    /// Those that are there: path, and what contends if one does.
    there: Vec<(String, i64, Option<Contending>, i64)>,
    /// Contenders that are no more: directory, what contended, and when they left.
    gone: Vec<(String, Contending, i64)>,
}

impl World {
    fn new(directories: &[&str]) -> Self {
        let (tree, departures) = (Tree::fresh(Options::default()), Departures::since(-1));
        let (there, gone) = (Vec::new(), Vec::new());
        let mut world = Self { tree, departures, zxid: 0, time_ms: 0, there, gone };
        for directory in directories {
            world.create(directory, 0, 0);
        }
        world.there.clear();
        world
    }

    fn write<T>(
        &mut self,
        session: i64,
        write: impl FnOnce(&mut Tree, &Context<'_>, &mut Vec<Event>) -> T,
    ) -> (T, Vec<Event>) {
        self.zxid += 1;
        let (zxid, time_ms) = (self.zxid, self.time_ms);
        let ctx = Context { zxid, time_ms, steady_ms: 0, session, ids: &[], rules: Rules::DEFAULT };
        let mut events = Vec::new();
        (write(&mut self.tree, &ctx, &mut events), events)
    }

    fn create(&mut self, path: &str, flags: i32, session: i64) {
        let request = Create {
            kind: CreateKind::Create,
            path: path.into(),
            data: None,
            acl: Some(vec![Acl::open()]),
            flags,
            ttl_ms: 0,
        };
        let (made, events) = self.write(session, |tree, ctx, events| {
            tree.create(ctx, &request, events).expect("its parent is there")
        });
        let stays = self.departures.note(&events, Cause::Session(session), 0, Some(&self.tree));
        assert_eq!(stays, Stays::default());
        let path = made.path.as_str().to_owned();
        let contending = Contending::of(name(&path), session);
        self.there.push((path, session, contending, self.time_ms));
    }

    /// Deletes what is there at that place.
    fn delete(&mut self, at: usize, is_measured: bool) -> (Stays, Stays) {
        let path = Text::from(self.there[at].0.as_str());
        let (result, events) =
            self.write(0, |tree, ctx, events| tree.delete(ctx, &path, -1, events));
        result.expect("it is there");
        self.noted(&events, is_measured)
    }

    fn close(&mut self, session: i64, is_measured: bool) -> (Stays, Stays) {
        let (_, events) = self.write(session, Tree::close_session);
        self.noted(&events, is_measured)
    }

    /// What was measured, and what was to be.
    fn noted(&mut self, events: &[Event], is_measured: bool) -> (Stays, Stays) {
        let tree = is_measured.then_some(&self.tree);
        let measured = self.departures.note(events, Cause::Session(0), self.time_ms, tree);
        let mut expected = Stays::default();
        let mut left = Vec::new();
        let mut gone: Vec<_> = events.iter().filter(|event| event.life.is_some()).collect();
        gone.sort_by_key(|event| parent(event.path.as_str()));
        for path in gone.iter().map(|event| event.path.as_str()) {
            let known = self.there.iter().find(|(there, ..)| there == path).expect("it was there");
            let Some(one) = known.2 else { continue };
            let is_beside = |other: &str| parent(other) == parent(path);
            let mut others = self.there.iter().filter(|(other, ..)| is_beside(other));
            if others.any(|(_, _, other, _)| other.is_some_and(|other| one.waits_for(&other))) {
                left.push((parent(path).to_owned(), one, self.time_ms));
                continue;
            }
            let before = self
                .gone
                .iter()
                .filter(|(directory, other, _)| directory == parent(path) && one.waits_for(other));
            let held_ms = before.map(|(_, _, left_ms)| *left_ms).max().unwrap_or(0).max(known.3);
            let (wait_ms, hold_ms) = (held_ms - known.3, self.time_ms - held_ms);
            expected.measured.push((wait_ms.unsigned_abs(), hold_ms.unsigned_abs()));
            left.push((parent(path).to_owned(), one, self.time_ms));
        }
        self.gone.extend(left);
        self.there.retain(|(path, ..)| !events.iter().any(|event| event.path.as_str() == path));
        (measured, if is_measured { expected } else { Stays::default() })
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').expect("it is a path").0
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').expect("it is a path").1
}

/// SplitMix64.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GUID: &str = "_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-";
const SEQUENTIAL_EPHEMERAL: i32 = 3;

#[test]
fn each_contender_that_held_is_measured_once_as_a_complete_memory_says() {
    let guid = |word: &str| format!("{GUID}{word}");
    let words = [
        vec![guid("lock-")],
        vec![guid("__READ__"), guid("__READ__"), guid("__WRIT__")],
        vec![guid("lock-"), "lock-".to_owned(), "task-".to_owned(), "read-".to_owned()],
    ];
    let (mut count, mut unmeasured) = (0, 0);
    for seed in 0..60 {
        let words = &words[seed as usize % words.len()];
        let mut seed = seed;
        let mut world = World::new(&["/p", "/q"]);
        for _ in 0..400 {
            world.time_ms += 1 + i64::try_from(random(&mut seed) % 50).unwrap();
            let session = 1 + i64::try_from(random(&mut seed) % 5).unwrap();
            let is_measured = !random(&mut seed).is_multiple_of(16);
            let choice = random(&mut seed) % 40;
            if choice < 20 || world.there.is_empty() {
                let directory = ["/p", "/p", "/q"][random(&mut seed) as usize % 3];
                let word = &words[random(&mut seed) as usize % words.len()];
                world.create(&format!("{directory}/{word}"), SEQUENTIAL_EPHEMERAL, session);
                continue;
            }
            let (measured, expected) = if choice == 39 {
                world.close(session, is_measured)
            } else {
                // Mostly the one that has been there for longest.
                let at = random(&mut seed) % (1 + random(&mut seed) % world.there.len() as u64);
                world.delete(usize::try_from(at).unwrap(), is_measured)
            };
            // What is not measured is missing, and nothing else is.
            count += measured.measured.len() as u64;
            unmeasured += measured.unmeasured;
            let missing = expected.measured.len() - measured.measured.len();
            assert_eq!(missing as u64, measured.unmeasured, "{measured:?} {expected:?}");
            if missing == 0 {
                assert_eq!(measured.measured, expected.measured);
            }
        }
    }
    assert!(count > 3000 && unmeasured * 50 < count, "{count} {unmeasured}");
}

#[test]
fn a_hold_whose_beginning_is_not_known_is_counted_and_not_measured() {
    let mut world = World::new(&["/p"]);
    world.time_ms = 10;
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 2);
    // The server was started.
    world.departures = Departures::since(10);
    world.time_ms = 50;
    assert_eq!(world.delete(0, true).0, Stays { measured: Vec::new(), unmeasured: 1 });
    world.time_ms = 80;
    assert_eq!(world.delete(0, true).0, Stays { measured: vec![(40, 30)], unmeasured: 0 });
}

#[test]
fn a_directory_with_thousands_of_children_is_not_looked_at_again_and_again() {
    let mut world = World::new(&["/p"]);
    for _ in 0..5000 {
        world.create("/p/task-", SEQUENTIAL_EPHEMERAL, 2);
    }
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    assert_eq!(world.delete(5000, true).0.unmeasured, 1);
    world.close(2, true);
    world.time_ms = 5;
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    assert_eq!(world.delete(0, true).0.measured, [(0, 0)]);
}

#[test]
fn a_directory_made_anew_begins_anew() {
    let mut world = World::new(&["/p"]);
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    world.create("/p/__rlock__", SEQUENTIAL_EPHEMERAL, 1);
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    assert_eq!(world.delete(0, true).0.measured, [(0, 0)]);
    world.close(1, true);
    world.there.push(("/p".to_owned(), 0, None, 0));
    world.delete(0, true);
    world.create("/p", 0, 0);
    world.there.clear();
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    world.create("/p/lock-", SEQUENTIAL_EPHEMERAL, 1);
    assert_eq!(world.delete(1, true).0, Stays::default(), "it waited");
}

#[test]
fn those_who_wait_for_a_lease_hold_no_lock() {
    let mut world = World::new(&["/s", "/s/leases", "/s/locks"]);
    let path = format!("/s/locks/{GUID}lock-");
    world.create(&path, SEQUENTIAL_EPHEMERAL, 1);
    assert_eq!(world.delete(0, true).0, Stays::default());
}

#[test]
fn the_leader_alone_measures() {
    let mut cluster = Cluster::new(3);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    cluster.connect(follower, 1, None);
    let delete = |path: &str| Request::Delete { path: path.into(), version: -1 };
    cluster.send(follower, 1, &[(1, create("/l", 0)), (2, create("/l/lock-", 3))]);
    cluster.advance_ms(300);
    cluster.send(follower, 1, &[(3, create("/l/lock-", 3))]);
    cluster.advance_ms(200);
    cluster.send(follower, 1, &[(4, delete("/l/lock-0000000000"))]);
    cluster.advance_ms(100);
    cluster.send(follower, 1, &[(5, delete("/l/lock-0000000001"))]);
    assert_eq!(cluster.replies(follower, 1).len(), 5);
    for (server, replica) in &mut cluster.replicas {
        let mut taken: Vec<Measurement> = Vec::new();
        replica.take_measurements(&mut taken);
        taken.retain(|one| matches!(one.measure, Measure::LockWait | Measure::LockHold));
        let seen: Vec<_> = taken.iter().map(|one| (one.measure, one.value / 100_000)).collect();
        let expected = [
            (Measure::LockWait, 0),
            (Measure::LockHold, 5),
            (Measure::LockWait, 2),
            (Measure::LockHold, 1),
        ];
        assert_eq!(seen, if *server == leader { expected.to_vec() } else { Vec::new() });
    }
}
