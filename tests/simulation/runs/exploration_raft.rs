//! The scopes with Raft: sessions that are handed over, members that join and leave, and deliberate bugs in both.

use lockkeeper_simulation::exploration::digest::Digest;
use lockkeeper_simulation::exploration::ensemble::World;
use lockkeeper_simulation::exploration::explorer::{
    Budget, Explored, Scope, compare_merged, explore,
};
use lockkeeper_simulation::exploration::members::Members;
use lockkeeper_simulation::exploration::sessions::{Faults, Sessions};

use super::seeds::plays_all;

const NONE: Faults = Faults { crashes: 0, holds: 0, breaks: 0, stills: 0, disks: 0, freezes: 0 };

/// No rule is broken up to a depth, or in all of a scope.
fn is_sound<S: Scope>(name: &str, scope: &S, depth: Option<usize>) -> Explored {
    let budget = Budget { depth: depth.unwrap_or(usize::MAX), ..Budget::COMPLETE };
    let explored = explore(scope, budget, &mut |_| {});
    println!("{name}: {explored}");
    if let Some(found) = &explored.found {
        panic!("{name}\n{found}");
    }
    assert_eq!(explored.is_complete, depth.is_none(), "{name}: {explored}");
    explored
}

#[test]
fn sessions_that_are_handed_over_break_no_rule() {
    let of = |faults| Sessions { faults, ..Sessions::new() };
    is_sound("silent or not", &of(NONE), None);
    is_sound("a move", &Sessions { moves: 1, ..of(NONE) }, None);
    is_sound("a broken link", &of(Faults { breaks: 1, ..NONE }), None);
    is_sound("a standstill", &of(Faults { freezes: 1, ..NONE }), None);
    is_sound("a link held back", &of(Faults { holds: 1, ..NONE }), Some(5));
    is_sound(
        "a crash, a write",
        &Sessions { writes: 1, ..of(Faults { crashes: 1, ..NONE }) },
        Some(4),
    );
    is_sound("a disk, a move", &Sessions { moves: 1, ..of(Faults { disks: 1, ..NONE }) }, Some(4));
}

#[test]
fn changes_of_members_break_no_rule() {
    is_sound("server 3 of 3 leaves", &Members::remove(&[1, 2, 3], &[3], 0, NONE), None);
    is_sound("the leader leaves", &Members::remove(&[1, 2, 3], &[1], 0, NONE), None);
    is_sound("server 3 joins two", &Members::add(&[1, 2, 3], 3, 0, NONE), None);
    let crash = Faults { crashes: 1, ..NONE };
    is_sound("one leaves, a crash", &Members::remove(&[1, 2, 3], &[3], 0, crash), Some(4));
    is_sound("one joins, a crash", &Members::add(&[1, 2, 3], 3, 0, crash), Some(4));
}

/// Otherwise no scope in which time passes would ever be complete.
#[test]
fn an_idle_ensemble_comes_back_to_the_state_that_it_was_in() {
    for founders in [&[1, 2, 3][..], &[1, 2]] {
        let mut world = World::new(&[1, 2, 3], founders, 1200);
        let dump = |world: &World| -> Vec<(String, u128)> {
            let digest = |part: &str| Digest::at(world.now_us).and_text(part).finish_128();
            let parts = |text: String| -> Vec<_> {
                text.split(';').map(|part| (part.to_owned(), digest(part))).collect()
            };
            world.running().flat_map(|(_, replica)| parts(replica.canonical())).collect()
        };
        world.pass(6_000_000).expect("no rule is broken");
        let (before, digest) = (dump(&world), world.digest().finish_128());
        world.pass(600_000).expect("no rule is broken");
        for ((before, digest), (after, other)) in before.iter().zip(dump(&world)) {
            assert_eq!(*digest, other, "{before} has become {after}");
        }
        assert_eq!(digest, world.digest().finish_128());
    }
}

/// What a fingerprint leaves out must make no difference: two ways to a state that it takes for one go on alike.
#[test]
fn states_that_are_taken_for_one_go_on_alike() {
    let of = |faults| Sessions { moves: 1, writes: 1, faults, ..Sessions::new() };
    let faults = [
        Faults { holds: 1, breaks: 1, ..NONE },
        Faults { crashes: 1, ..NONE },
        Faults { disks: 1, stills: 1, ..NONE },
    ];
    // The gate compares beside all of them.
    let (scopes, depth, nth) = if plays_all() { (3, 4, 25) } else { (1, 3, 5) };
    for faults in faults.into_iter().take(scopes) {
        let compared =
            compare_merged(&of(faults), depth, nth).unwrap_or_else(|part| panic!("{part}"));
        println!("{faults:?}: {compared} pairs compared");
        assert!(compared > 0);
    }
}

/// Deliberate bugs (tests/simulation/runs/mutants.rs has most of them) that these scopes find without a seed.
#[cfg(feature = "mutants")]
#[test]
fn quick_ones_are_found_without_a_seed() {
    let of = |faults| Sessions { faults, ..Sessions::new() };
    let early = "ends a session";
    let held = Sessions { late: vec![(1, 2)], ..of(Faults { holds: 1, ..NONE }) };
    let lost = Sessions { late: vec![(2, 1)], ..of(Faults { holds: 1, breaks: 1, ..NONE }) };
    let moved = Sessions { moves: 1, ..of(NONE) };
    let slow = Sessions { moves: 1, ..of(Faults { disks: 1, ..NONE }) };
    let crash = Faults { crashes: 1, ..NONE };
    let behind = Sessions { clients: vec![0], writes: 1, ..of(crash) };
    for (name, scope, rule) in [
        ("touch-ignored", of(NONE), early),
        ("touches-not-passed-on", of(NONE), early),
        ("expiry-leaves-ephemerals", of(NONE), "of a session that has ended"),
        ("standstill-counts", of(Faults { freezes: 1, ..NONE }), early),
        ("new-leader-knows-no-mercy", of(crash), early),
        ("two-connections-one-session", moved.clone(), "connections [101, 102]"),
        ("attach-keeps-deadline", moved, early),
        ("attach-is-not-heard", slow.clone(), "after it has proposed to give it a connection"),
        ("moving-session-expires", slow, early),
        ("reports-not-awaited", held.clone(), early),
        ("given-up-sessions-not-spared", held, early),
        (
            "report-lost-with-its-link",
            Sessions { must_recover: true, ..lost.clone() },
            "for no reason",
        ),
        ("broken-link-unnoticed", Sessions { writes: 2, ..lost }, "sent before it, is not"),
        (
            "acknowledge-before-sync",
            Sessions { writes: 1, ..of(Faults { disks: 1, crashes: 1, ..NONE }) },
            "is an older copy",
        ),
        ("follower-serves-at-once", behind, "begins to serve and has applied"),
    ] {
        hunt(name, &scope, rule);
    }
    let faults = Faults { disks: 1, crashes: 1, ..NONE };
    let removal = Members::remove(&[1, 2, 3, 4], &[4], 1, faults);
    hunt("removal-acknowledged-early", &removal, "the change was made and answered");
}

#[cfg(feature = "mutants")]
fn hunt<S: Scope>(name: &'static str, scope: &S, rule: &str) {
    lockkeeper_core::mutants::plant(Some(name));
    let explored = explore(scope, Budget { depth: 8, ..Budget::COMPLETE }, &mut |_| {});
    lockkeeper_core::mutants::plant(None);
    println!("\n{name}: {explored}");
    let found = explored.found.unwrap_or_else(|| panic!("{name} is not found"));
    println!("{found}");
    assert!(found.violation.contains(rule), "{name}: {}", found.violation);
}
