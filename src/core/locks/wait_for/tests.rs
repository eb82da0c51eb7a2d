//! Deadlocks that are some, and what looks like one.

use crate::locks::tests::{World, findings};
use crate::locks::{Finding, FindingKind, Lock};

const THEIRS: &str = "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55";

/// A lock of each path, with these sessions in its queue, each of which watches the one in front of it.
fn world(locks: &[(&str, &[i64])]) -> World {
    let mut world = World::default();
    for (path, sessions) in locks {
        let names: Vec<String> =
            (1..=sessions.len()).map(|number| format!("lock-{number:010}")).collect();
        let children: Vec<_> =
            names.iter().map(String::as_str).zip(sessions.iter().copied()).collect();
        world = world.with(path, &children);
        for (before, session) in names.iter().zip(&sessions[1..]) {
            world = world.watching(*session, &format!("{path}/{before}"));
        }
    }
    world
}

/// The locks with a deadlock, and the finding of the first of them.
fn deadlocks(locks: &[Lock]) -> (Vec<&str>, Option<&Finding>) {
    let of = |lock: &'_ Lock| lock.findings.iter().position(|f| f.kind == FindingKind::Deadlock);
    let found: Vec<(&str, &Finding)> = locks
        .iter()
        .filter_map(|lock| Some((lock.path.as_str(), &lock.findings[of(lock)?])))
        .collect();
    (found.iter().map(|(path, _)| *path).collect(), found.first().map(|(_, finding)| *finding))
}

fn paths(world: &World) -> Vec<String> {
    let locks = world.locks();
    deadlocks(&locks).0.into_iter().map(str::to_owned).collect()
}

#[test]
fn two_sessions_that_wait_for_each_other_are_named_with_their_locks() {
    let locks = world(&[("/a", &[1, 2]), ("/b", &[2, 1]), ("/c", &[3, 4])]).locks();
    let (paths, finding) = deadlocks(&locks);
    assert_eq!(paths, ["/a", "/b"]);
    let finding = finding.unwrap();
    assert_eq!(
        finding.text,
        "2 sessions wait for each other: session 0x1 (me) holds /a and waits for /b; session 0x2 (me) holds /b and \
         waits for /a. None of them goes on until one gives up, is broken or ends, unless a client holds and waits in \
         different threads"
    );
    assert_eq!(finding.nodes, ["/a/lock-0000000001", "/b/lock-0000000001"]);
    let nodes: Vec<_> =
        finding.cycle.iter().map(|step| (step.session, step.waits_node.as_str())).collect();
    assert_eq!(nodes, [(1, "/b/lock-0000000002"), (2, "/a/lock-0000000002")]);
    assert_eq!(findings(&locks[0]), [FindingKind::Deadlock], "as long as it lasts, no orphan");
}

#[test]
fn a_cycle_goes_through_queues_and_those_behind_it_are_no_part_of_it() {
    // 1 -> 2 -> 3 -> 1, each behind a session that waits for nothing else; 9 waits for 1.
    let locks: &[(&str, &[i64])] = &[
        ("/a", &[1, 11, 3]),
        ("/b", &[2, 12, 1]),
        ("/c", &[3, 13, 2]),
        ("/d", &[9]),
        ("/e", &[1, 9]),
    ];
    assert_eq!(paths(&world(locks)), ["/a", "/b", "/c"]);
    let open: &[(&str, &[i64])] = &[("/a", &[1, 2]), ("/b", &[2, 3]), ("/c", &[3])];
    assert_eq!(paths(&world(open)), [""; 0]);
}

#[test]
fn two_cycles_are_two_findings() {
    let locks: &[(&str, &[i64])] =
        &[("/a", &[1, 2]), ("/b", &[2, 1]), ("/c", &[3, 4]), ("/d", &[4, 3])];
    let locks = world(locks).locks();
    let named: Vec<usize> = locks.iter().map(|lock| lock.findings[0].cycle.len()).collect();
    assert_eq!(named, [2, 2, 2, 2]);
    let first = |lock: &Lock| lock.findings[0].cycle[0].session;
    assert_eq!(locks.iter().map(first).collect::<Vec<_>>(), [1, 1, 3, 3]);
}

#[test]
fn threads_of_one_client_on_one_lock_are_no_deadlock() {
    // Each has a thread that holds and one that waits, for the same lock or behind the other's waiting thread.
    assert_eq!(paths(&world(&[("/a", &[1, 2, 1, 2])])), [""; 0]);
    assert_eq!(paths(&world(&[("/a", &[1, 1])])), [""; 0]);
    assert_eq!(paths(&world(&[("/a", &[3, 1, 2, 1]), ("/b", &[3, 2, 1, 2])])), [""; 0]);
}

#[test]
fn a_wait_that_has_just_begun_is_none() {
    let mut young = world(&[("/a", &[1, 2]), ("/b", &[2, 1])]);
    young.snapshot.directories[1].contenders[1].ctime_ms = young.snapshot.wall_ms - 1_000;
    assert_eq!(paths(&young), [""; 0]);
}

#[test]
fn candidates_wait_without_blocking_their_clients() {
    let latch = |number: i32| format!("_c_{THEIRS}-latch-{number:010}");
    let names = [latch(1), latch(2)];
    for names in [
        [names[0].as_str(), names[1].as_str()],
        ["n_0000000001", "n_0000000002"],
        ["q-0000000001", "q-0000000002"],
    ] {
        let world = World::default()
            .with("/a", &[(names[0], 1), (names[1], 2)])
            .with("/b", &[(names[0], 2), (names[1], 1)]);
        assert_eq!(paths(&world), [""; 0], "{names:?}");
    }
}

#[test]
fn of_a_semaphore_all_holders_must_be_stuck() {
    let lease = |number: i32| format!("_c_{THEIRS}-lease-{number:010}");
    let queue = format!("_c_{THEIRS}-lock-0000000009");
    let leases = [lease(1), lease(2)];
    // 3 holds a mutex for which holders of the semaphore wait, and waits for a permit.
    let with = |waiting: &[i64]| {
        let mut queue_of_mutex = vec![3];
        queue_of_mutex.extend(waiting);
        world(&[("/m", &queue_of_mutex)])
            .with("/s/locks", &[(&queue, 3)])
            .with("/s/leases", &[(&leases[0], 1), (&leases[1], 2)])
    };
    assert_eq!(paths(&with(&[1])), [""; 0], "2 may give its permit back");
    assert_eq!(paths(&with(&[1, 2])), ["/m", "/s"]);
}

#[test]
fn a_writer_waits_for_every_reader_and_readers_for_no_reader() {
    let read = |number: i32| format!("_c_{THEIRS}-__READ__{number:010}");
    let write = |number: i32| format!("_c_{THEIRS}-__WRIT__{number:010}");
    let names = [read(1), read(2), write(3)];
    // 3 wants to write what 1 and 2 read, and holds what 2 waits for.
    let world =
        world(&[("/m", &[3, 2])]).with("/rw", &[(&names[0], 1), (&names[1], 2), (&names[2], 3)]);
    assert_eq!(paths(&world), ["/m", "/rw"]);
    let readers = [read(1), read(2)];
    let shared = self::world(&[("/m", &[3, 2])]).with("/rw", &[(&readers[0], 2), (&readers[1], 3)]);
    assert_eq!(paths(&shared), [""; 0]);
}

#[test]
fn who_is_not_waited_for_blocks_no_waiter_of_another_library() {
    let kazoo = "0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__";
    let curator = |number: i32| format!("_c_{THEIRS}-lock-{number:010}");
    let (first, second, third) = (curator(1), format!("{kazoo}0000000002"), curator(3));
    // 1 and 2 hold it both; 3 waits for 1 alone. What 3 holds 2 waits for, or 1 does.
    for (waiter, expected) in [(2, &[][..]), (1, &["/m", "/p"])] {
        let world =
            world(&[("/m", &[3, waiter])]).with("/p", &[(&first, 1), (&second, 2), (&third, 3)]);
        assert_eq!(paths(&world), expected);
    }
}

#[test]
fn thousands_of_sessions_in_one_cycle_are_found_in_a_moment() {
    let count = 2_400;
    let queues: Vec<(String, [i64; 2])> =
        (1..=count).map(|at| (format!("/l{at:04}"), [at, at % count + 1])).collect();
    let queues: Vec<(&str, &[i64])> =
        queues.iter().map(|(path, queue)| (path.as_str(), &queue[..])).collect();
    let locks = world(&queues).locks();
    let finding = &locks[0].findings[0];
    assert_eq!((finding.kind, finding.cycle.len()), (FindingKind::Deadlock, 10));
    assert!(finding.text.contains("; and so on, 2390 more sessions. None"), "{}", finding.text);
}
