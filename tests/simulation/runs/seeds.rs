//! Simulated lives of a server. See `lib.rs`.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_simulation::coverage::Coverage;
use lockkeeper_simulation::disk::{Crash, SimFs};
use lockkeeper_simulation::founding::{self, Seen};
use lockkeeper_simulation::migration;
use lockkeeper_simulation::removals;
use lockkeeper_simulation::rng::Rng;
use lockkeeper_simulation::run::{
    Failure, Success, run, run_foreign, run_slow, run_upgraded, simulated_ms,
};
use lockkeeper_simulation::tempo::Tempo;
use lockkeeper_simulation::{busy, changes};
use lockkeeper_storage::fs::Fs;

/// One seed in so many is played by `cargo test`, so that every run has some of each world. With
/// `LOCKKEEPER_SEEDS=all`, as the gate of each night has it, all are; the numbers below are of all of them.
const SHARE: u64 = 10;

pub(super) fn plays_all() -> bool {
    match std::env::var("LOCKKEEPER_SEEDS").as_deref() {
        Ok("all") => true,
        Ok(other) => panic!("LOCKKEEPER_SEEDS={other}: it is `all`, or not set"),
        Err(_) => false,
    }
}

/// How many of so many seeds are played.
pub(super) fn share_of(seeds: u64) -> u64 {
    if plays_all() { seeds } else { seeds.div_ceil(SHARE) }
}

/// Least count that a share of the seeds must have seen, where all must have seen so much: a quarter of its part, since
/// few seeds differ more.
pub(super) fn least_of(seen: u64) -> u64 {
    if plays_all() { seen } else { seen / (4 * SHARE) }
}

/// How many seeds the gate plays.
const SEEDS: u64 = 200;

/// The same, of removals of members.
const SEEDS_OF_REMOVALS: u64 = 500;

/// One in so many of all changes of the voters of up to five servers is made by `cargo test`: no divisor of the number
/// of kinds of servers, so that all kinds come at all places.
const SHARE_OF_ALL_CHANGES: usize = 41;

/// The same, of busy leaders.
const SEEDS_OF_BUSY_LEADERS: u64 = 50;

/// The same, of changes of members among faults.
const SEEDS_OF_CHANGES: u64 = 300;

/// What these seeds must have seen, or they prove less than they say.
const SEEN_AT_LEAST: [(&str, u64); 41] = [
    ("operations", 400_000),
    ("events", 100_000),
    ("txns", 100_000),
    ("multis", 10_000),
    ("multis_failed", 5000),
    ("replayed", 800),
    ("kills", 200),
    ("power_cuts", 250),
    ("crashes_at_an_operation", 120),
    ("crashes_while_opening", 60),
    ("torn_tails", 15),
    ("writes_torn", 40),
    ("writes_dropped", 40),
    ("names_dropped", 100),
    ("sync_errors", 25),
    ("full_stops", 40),
    ("flips_of_images", 100),
    ("flips_of_images_survived", 60),
    ("flips_of_logs", 25),
    ("refused_to_open", 30),
    ("images_loaded", 400),
    ("images_set_aside", 60),
    ("started_from_state", 15),
    ("log_cuts", 1500),
    ("sled_refilled", 180),
    ("sled_broken", 40),
    ("sled_emptied", 25),
    ("sled_older", 40),
    ("sled_altered", 20),
    ("sled_errors", 60),
    ("batches_of_many", 10_000),
    ("sessions_expired", 400),
    ("sessions_moved", 300),
    ("sessions_refused", 200),
    ("reaped", 2500),
    ("setwatches", 2500),
    ("malformed", 250),
    ("locks_granted", 7000),
    ("disk_hangs", 80),
    ("wrong_clocks", 80),
    ("time_returns", 20),
];

/// How many slow worlds of three servers the gate plays.
const SEEDS_OF_SLOW: u64 = 150;

/// What they must have seen.
const SEEN_BY_SLOW: [(&str, u64); 9] = [
    ("elections", 1000),
    ("partitions", 500),
    ("pauses", 700),
    ("sessions_moved", 3000),
    ("sessions_expired", 2000),
    ("sent_away", 5000),
    ("disk_hangs", 500),
    // Of few seeds each: the worlds of three servers whose disks also fail have too few of them.
    ("hung_leaders", 2000),
    ("disk_handovers", 150),
];

/// How many worlds with a foreign program in the network, and what they must have seen.
const SEEDS_OF_FOREIGN: u64 = 20;
const SEEN_BY_FOREIGN: [(&str, u64); 4] =
    [("operations", 20_000), ("elections", 50), ("forged_hellos", 1000), ("forged_frames", 100)];

/// How many worlds with programs of two releases, and what they must have seen: `upgrades` that were finished.
const SEEDS_OF_UPGRADES: u64 = 16;
const SEEN_BY_UPGRADES: [(&str, u64); 4] =
    [("upgrades", 8), ("elections", 50), ("images_loaded", 20), ("operations", 10_000)];

/// How many slow worlds of one server, and what they must have seen.
const SEEDS_OF_SLOW_ALONE: u64 = 50;
const SEEN_BY_SLOW_ALONE: [(&str, u64); 3] =
    [("pauses", 200), ("sessions_expired", 1200), ("disk_hangs", 150)];

/// How many seeds are played with three servers, and with five.
const SEEDS_OF_THREE: u64 = 80;
const SEEDS_OF_FIVE: u64 = 20;

/// What the seeds with three servers must have seen.
const SEEN_BY_THREE: [(&str, u64); 36] = [
    ("operations", 80_000),
    ("events", 150_000),
    ("txns", 100_000),
    ("multis", 8000),
    ("elections", 200),
    ("membership_changes", 80),
    ("wipes", 60),
    ("rollbacks_recognised", 60),
    ("rollbacks_of_votes", 5),
    ("links", 1500),
    ("link_cuts", 1500),
    ("partitions", 70),
    ("pauses", 100),
    ("kills", 200),
    ("power_cuts", 200),
    ("crashes_at_an_operation", 120),
    ("crashes_while_opening", 50),
    ("clean_stops", 50),
    ("torn_tails", 15),
    ("sync_errors", 25),
    ("full_stops", 60),
    ("images_loaded", 300),
    ("log_cuts", 3000),
    ("installs", 15),
    ("sessions_moved", 2000),
    ("sessions_expired", 200),
    ("sessions_refused", 150),
    ("writes_moved", 60),
    ("sent_away", 5000),
    ("reaped", 1500),
    ("setwatches", 1000),
    ("locks_granted", 5000),
    ("disk_hangs", 50),
    // Few, and their number changes with the course of each seed.
    ("disk_handovers", 3),
    ("wrong_clocks", 200),
    ("time_returns", 20),
];

/// What those with five must have seen.
const SEEN_BY_FIVE: [(&str, u64); 15] = [
    ("operations", 20_000),
    ("txns", 20_000),
    ("elections", 50),
    ("membership_changes", 15),
    ("wipes", 15),
    ("rollbacks_recognised", 20),
    ("observer_worlds", 2),
    ("partitions", 35),
    ("pauses", 20),
    ("power_cuts", 70),
    ("installs", 10),
    ("sessions_moved", 500),
    ("locks_granted", 1000),
    ("disk_hangs", 5),
    ("disk_handovers", 1),
];

type Play = fn(u64, usize, bool) -> Result<Success, Box<Failure>>;

/// Says it also where the output of tests that pass is not shown.
fn say(what: &str, tempo: &Tempo) {
    // A reader that is gone misses nothing that counts.
    let _unread = writeln!(std::io::stderr(), "{what}: {tempo}");
}

/// Plays the seeds on all cores; the first failure of the lowest seed.
fn play(run: Play, seeds: u64, servers: usize) -> Result<(Coverage, Tempo), Box<Failure>> {
    let next = AtomicU64::new(1);
    let results = Mutex::new((Coverage::default(), Tempo::default(), None::<Box<Failure>>));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let mut tempo = Tempo::default();
                    let outcome = tempo.play(|| run(seed, servers, false), simulated_ms);
                    let mut results = results.lock().expect("nothing panics while it holds it");
                    match outcome {
                        Ok(success) => {
                            results.0.add(&success.coverage);
                            results.1.add(&tempo);
                        }
                        Err(failure) => {
                            if results.2.as_ref().is_none_or(|known| failure.seed < known.seed) {
                                results.2 = Some(failure);
                            }
                        }
                    }
                }
            });
        }
    });
    let (coverage, tempo, failure) = results.into_inner().expect("all threads are done");
    failure.map_or(Ok((coverage, tempo)), Err)
}

#[test]
fn two_hundred_seeds_break_no_rule() {
    must_go_well("one server", run, SEEDS, 1, &SEEN_AT_LEAST);
}

#[test]
fn three_servers_break_no_rule_together() {
    must_go_well("three servers", run, SEEDS_OF_THREE, 3, &SEEN_BY_THREE);
}

#[test]
fn in_slow_worlds_no_session_ends_early() {
    must_go_well("slow worlds", run_slow, SEEDS_OF_SLOW, 3, &SEEN_BY_SLOW);
}

#[test]
fn a_foreign_program_in_the_network_gets_through_to_nothing() {
    must_go_well("foreign", run_foreign, SEEDS_OF_FOREIGN, 3, &SEEN_BY_FOREIGN);
}

#[test]
fn servers_of_two_releases_agree_and_can_go_back_until_the_upgrade_is_finished() {
    must_go_well("upgrades", run_upgraded, SEEDS_OF_UPGRADES, 3, &SEEN_BY_UPGRADES);
}

#[test]
fn in_slow_worlds_of_one_server_no_session_ends_early_or_lasts() {
    let seen = &SEEN_BY_SLOW_ALONE;
    must_go_well("slow worlds of one server", run_slow, SEEDS_OF_SLOW_ALONE, 1, seen);
}

#[test]
fn five_servers_break_no_rule_together() {
    must_go_well("five servers", run, SEEDS_OF_FIVE, 5, &SEEN_BY_FIVE);
}

/// How many foundings the gate plays; `simulate --founding --seeds 1..1001` plays more.
const FOUNDINGS: u64 = 300;

/// What they must have seen.
const SEEN_BY_FOUNDINGS: [(&str, u64); 12] = [
    ("with_state", 80),
    ("empty", 50),
    ("without", 10),
    ("joined", 300),
    ("late", 10),
    ("set_aside", 5),
    ("serving_alone", 20),
    ("two_states", 20),
    ("unequal_lines", 20),
    ("unused", 20),
    ("restarts", 1000),
    ("writes", 300),
];

#[test]
fn servers_that_are_started_in_any_order_become_one_ensemble_or_say_why_not() {
    let (mut seen, mut tempo) = (Seen::default(), Tempo::default());
    for seed in 1..=share_of(FOUNDINGS) {
        let run = tempo.play(|| founding::run(seed, false), founding::simulated_ms);
        seen.add(&run.unwrap_or_else(|violation| {
            panic!(
                "seed {seed}: {violation}\nreplay: cargo run --release --example simulate -- \
                 --founding --seed {seed} --trace"
            )
        }));
    }
    println!("{seen:?}");
    say("foundings", &tempo);
    let all = seen.all();
    let missing =
        all.iter().zip(SEEN_BY_FOUNDINGS).filter(|((_, n), (_, least))| *n < least_of(*least));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "seen too rarely: {missing:?}");
}

/// How many lost majorities the gate plays; `simulate --losses --seeds 1..1001` plays more.
const LOSSES: u64 = 300;

#[test]
fn a_survivor_of_a_lost_majority_goes_on_with_all_that_is_left() {
    let (mut seen, mut tempo) = (founding::SeenOfLoss::default(), Tempo::default());
    let simulated_ms =
        |run: &Result<(founding::SeenOfLoss, u64), _>| run.as_ref().ok().map(|run| run.1);
    let losses = share_of(LOSSES);
    for seed in 1..=losses {
        let run = tempo.play(|| founding::run_loss(seed, false), simulated_ms);
        let (of_run, _) = run.unwrap_or_else(|violation| {
            panic!(
                "seed {seed}: {violation}\nreplay: cargo run --release --example simulate -- \
                 --losses --seed {seed} --trace"
            )
        });
        seen.recovered += of_run.recovered;
        seen.refused += of_run.refused;
        seen.shorter += of_run.shorter;
        seen.unheard += of_run.unheard;
    }
    println!("{seen:?}");
    say("lost majorities", &tempo);
    let is_enough = seen.recovered > losses / 2
        && seen.refused > losses / 20
        // Two survivors of five, of which one was away: that takes more of a seed.
        && seen.shorter >= least_of(losses / 30)
        && seen.unheard > losses / 20;
    assert!(is_enough, "seen too rarely: {seen:?}");
}

/// Live migrations that the gate plays: of one in thirty, the takeover is beside a deposed leader. `simulate
/// --migrations --seeds 1..501` plays more.
const MIGRATIONS: u64 = 100;

#[test]
fn an_ensemble_follows_one_of_zookeeper_and_takes_over_with_all_that_was_acknowledged() {
    let mut seen = migration::Seen::default();
    let migrations = share_of(MIGRATIONS);
    for seed in 1..=migrations {
        let run = migration::run(seed, false).unwrap_or_else(|violation| {
            panic!(
                "{violation}\nreplay: cargo run --release --example simulate -- --migrations --seed {seed} --trace"
            )
        });
        seen.add(&run);
    }
    println!("{seen:?}");
    let is_enough = seen.taken_over > migrations / 2
        && seen.beside_deposed >= least_of(1)
        && seen.stopped >= least_of(2)
        && seen.refused > migrations
        && seen.leaders_replaced > migrations
        && seen.leaders_hung > migrations
        && seen.servers_killed > migrations
        && seen.unanswered > migrations;
    assert!(is_enough, "seen too rarely: {seen:?}");
}

fn must_go_well(what: &str, run: Play, seeds: u64, servers: usize, least: &[(&str, u64)]) {
    match play(run, share_of(seeds), servers) {
        Ok((coverage, tempo)) => {
            println!("{coverage}");
            say(what, &tempo);
            let least: Vec<(&str, u64)> =
                least.iter().map(|(name, least)| (*name, least_of(*least))).collect();
            let missing = coverage.missing(&least);
            assert!(missing.is_empty(), "seen too rarely: {missing:#?}");
        }
        Err(failure) => panic!("\n{failure}"),
    }
}

#[test]
fn after_the_answer_to_a_removal_any_majority_of_those_that_stay_goes_on() {
    let (mut acknowledged, mut tempo) = (0, Tempo::default());
    let removals = share_of(SEEDS_OF_REMOVALS);
    for seed in 1..=removals {
        let played = tempo.play(|| removals::run(seed), removals::simulated_ms);
        let played = played.unwrap_or_else(|v| panic!("seed {seed}: {v}"));
        acknowledged += u64::from(played.outcome == removals::Outcome::Acknowledged);
    }
    say("removals", &tempo);
    println!("acknowledged: {acknowledged} of {removals}");
    assert!(acknowledged > removals * 3 / 4, "{acknowledged}");
}

#[test]
fn members_that_change_among_faults_come_to_what_was_asked_for() {
    let (mut seen, mut tempo) = (changes::Played::default(), Tempo::default());
    let seeds = share_of(SEEDS_OF_CHANGES);
    for seed in 1..=seeds {
        let played = tempo.play(|| changes::run(seed), changes::simulated_ms);
        seen.add(&played.unwrap_or_else(|v| panic!("seed {seed}: {v}")));
    }
    say("changes of members", &tempo);
    println!("{seen:?}");
    let changes::Played { made, refused, disturbed, put_back, emptied, .. } = seen;
    for (least, count) in [(seeds, made), (seeds / 50, refused), (seeds / 10, disturbed)] {
        assert!(count >= least, "{seen:?}");
    }
    assert!(put_back >= seeds / 50 && emptied >= seeds / 20, "{seen:?}");
}

#[test]
fn a_busy_leader_keeps_its_office_and_others_wait_for_no_more_than_a_turn() {
    let mut tempo = Tempo::default();
    for seed in 1..=share_of(SEEDS_OF_BUSY_LEADERS) {
        let played = tempo.play(|| busy::run(seed), busy::simulated_ms);
        played.unwrap_or_else(|v| panic!("seed {seed}: {v}"));
    }
    say("busy leaders", &tempo);
}

/// Every change of the voters of up to five servers, with any of them down: made or refused within a second.
#[test]
fn a_change_of_members_is_made_or_refused_at_once() {
    let (mut made, mut refused) = (0, 0);
    for (at, (old, new, down)) in (2..=5).flat_map(changes::every).enumerate() {
        if !plays_all() && at % SHARE_OF_ALL_CHANGES != 0 {
            continue;
        }
        let is_made = changes::one(&old, &new, &down);
        match is_made.unwrap_or_else(|v| panic!("{old:?} to {new:?}, {down:?} down: {v}")) {
            true => made += 1,
            false => refused += 1,
        }
    }
    println!("{made} made, {refused} refused");
    assert!(made > 0 && refused > 0);
}

#[test]
fn a_seed_twice_leaves_one_trace() {
    let lives = [(1, 1), (1, 3), (2, 1), (3, 1), (4, 1), (2, 3), (1, 5)];
    for (seed, servers) in lives.into_iter().take(if plays_all() { lives.len() } else { 2 }) {
        let [first, second] =
            [(); 2].map(|()| run(seed, servers, false).unwrap_or_else(|f| panic!("\n{f}")));
        assert_eq!(first, second, "seed {seed} with {servers} servers");
    }
}

#[test]
fn a_file_that_was_put_back_stays_whatever_was_done_to_its_name_before() {
    let fs = SimFs::new(Rng::new(1, 1));
    let (dir, path) = (Path::new("/data"), Path::new("/data/a.image"));
    fs.create_dir(dir).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    drop(fs.create(path).unwrap());
    fs.sync_dir(dir).unwrap();
    // The process dies between the two steps of setting a file aside.
    fs.rename(path, Path::new("/data/a.image.bad")).unwrap();
    fs.disk().crash(Crash::Kill);
    fs.disk().restart();
    fs.disk().put_back(path, b"a copy");
    fs.sync_dir(dir).unwrap();
    assert_eq!(fs.disk().contents(path), b"a copy");
    assert_eq!(fs.durable_copy(dir).disk().contents(path), b"a copy");
}
