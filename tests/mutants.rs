//! Deliberate bugs, each of which the simulation must catch: `cargo test --features mutants --test mutants`.
//!
//! *Owns* the catalogue: what each bug is, and within how many seeds it must be found. jepsen/TRACK_RECORD.md
//! is the table for people. *Invariant*: nothing helps a bug to be found: these are the seeds that every test
//! run plays, from the first one on, with the same checks.

#[path = "simulation/simulation.rs"]
mod simulation;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockkeeper::internals::mutants;
use simulation::founding;
use simulation::removals;
use simulation::run::{run, run_slow};

/// A deliberate bug.
struct Mutant {
    /// As `mutant!` has it.
    name: &'static str,
    /// How many servers the simulated world has; [`REMOVALS`] and [`FOUNDING`] are worlds of their own.
    servers: usize,
    /// It must be caught by one of the seeds from 1 to this. Any change of the product may give a seed
    /// another course, so that there is room behind the one that does it now.
    seeds: u64,
}

impl Mutant {
    fn is_quick(&self) -> bool {
        self.servers == FOUNDING || self.seeds <= QUICK_SEEDS_MAX
    }
}

const fn mutant(name: &'static str, servers: usize, seeds: u64) -> Mutant {
    Mutant { name, servers, seeds }
}

/// Stands for a number of servers: three in a slow world.
const SLOW: usize = usize::MAX - 1;
/// The world of `simulation/removals.rs`.
const REMOVALS: usize = 0;
/// The world of `simulation/founding.rs`, whose seeds take milliseconds.
const FOUNDING: usize = usize::MAX;

/// All of them.
const CATALOGUE: &[Mutant] = &[
    // --- consensus
    mutant("acknowledge-before-sync", 3, 20),
    mutant("vote-before-sync", 3, 20),
    mutant("vote-forgotten-at-restart", 3, 20),
    mutant("commit-without-quorum", 3, 20),
    mutant("lead-before-caught-up", 3, 20),
    mutant("emptied-server-keeps-identity", 3, 20),
    // --- a disk that was put back to an older copy
    mutant("votes-before-asking", 3, 20),
    mutant("rollback-unnoticed", 3, 20),
    mutant("remembers-no-acknowledgements", 3, 20),
    mutant("remembers-no-votes", 3, 20),
    mutant("silent-voters-not-awaited", 3, 20),
    mutant("rollback-mark-not-synced", 3, 20),
    mutant("answer-counts-what-came-later", 3, 60),
    mutant("cut-entry-counts-as-lost", 5, 60),
    // --- the disk
    mutant("log-not-synced", 1, 20),
    mutant("segment-name-not-synced", 1, 20),
    mutant("image-not-synced", 1, 20),
    mutant("log-checksum-unchecked", 1, 20),
    mutant("damaged-image-served", 1, 60),
    mutant("log-cut-to-newest-image", 1, 20),
    mutant("checkpoint-ahead-of-log", 3, 60),
    mutant("overwritten-entry-comes-back", 3, 20),
    mutant("overwrites-one-too-many", 3, 20),
    mutant("entry-applied-twice-at-restart", 1, 20),
    mutant("lost-entries-unnoticed", REMOVALS, 20_000),
    mutant("hung-leader-stays", 3, 60),
    mutant("stands-again-at-once", 3, 200),
    mutant("moving-session-expires", 3, 200),
    // --- members
    mutant("removal-acknowledged-early", REMOVALS, 20),
    mutant("removal-without-mark", REMOVALS, 400),
    // --- how an ensemble is founded
    mutant("founds-without-asking", FOUNDING, 100),
    mutant("late-state-joins", FOUNDING, 100),
    mutant("first-of-two-states-founds", FOUNDING, 600),
    mutant("founder-serves-alone", FOUNDING, 300),
    mutant("absent-voters-count", FOUNDING, 300),
    mutant("state-counts-as-empty", FOUNDING, 100),
    mutant("unused-counts-as-state", FOUNDING, 100),
    mutant("unequal-lines-found", FOUNDING, 300),
    // --- what is read
    mutant("sync-without-quorum", 3, 20),
    mutant("read-index-not-awaited", 3, 20),
    mutant("read-index-one-early", 3, 20),
    mutant("reads-by-lease", SLOW, 20),
    mutant("read-index-asked-again-alike", SLOW, 100),
    mutant("read-overtakes-write", 1, 20),
    // --- the order of writes
    mutant("next-term-does-not-wait", 3, 60),
    mutant("waiting-behind-lost-is-given", 3, 60),
    mutant("broken-link-unnoticed", 3, 100),
    mutant("failure-takes-no-zxid", 1, 20),
    mutant("zxid-forgets-term", 3, 20),
    mutant("time-of-each-server", 3, 20),
    // --- time
    mutant("time-never-goes-back", 1, 20),
    mutant("time-goes-back-alone", 3, 60),
    mutant("clocks-not-awaited", 3, 200),
    mutant("steady-clock-is-the-wall-clock", 1, 20),
    mutant("steady-clock-not-heard", 3, 20),
    // --- sessions
    mutant("sessions-never-expire", 1, 20),
    mutant("touch-ignored", 1, 20),
    mutant("touches-not-passed-on", 3, 20),
    mutant("new-leader-knows-no-mercy", 3, 20),
    mutant("attach-keeps-deadline", 3, 20),
    mutant("reports-not-awaited", 3, 200),
    mutant("given-up-sessions-not-spared", SLOW, 20),
    mutant("standstill-counts", SLOW, 20),
    mutant("report-lost-with-its-link", SLOW, 20),
    mutant("deposed-leader-tells-nothing", SLOW, 100),
    mutant("report-counts-from-arrival", SLOW, 200),
    mutant("any-password", 1, 20),
    mutant("two-connections-one-session", 1, 20),
    mutant("moved-session-writes", 1, 20),
    mutant("expiry-leaves-ephemerals", 1, 20),
    // --- znodes
    mutant("sequence-from-child-count", 1, 20),
    mutant("multi-keeps-half", 1, 20),
    mutant("version-unchecked", 1, 20),
    mutant("delete-past-acl", 1, 20),
    mutant("deletion-keeps-pzxid", 1, 20),
    mutant("ttl-unchecked", 1, 20),
    // --- watches
    mutant("event-twice", 1, 20),
    mutant("events-reversed", 1, 20),
    mutant("nearest-recursive-watch-only", 1, 20),
    mutant("event-behind-reply", 1, 20),
    mutant("event-past-acl", 1, 20),
    mutant("deletion-spares-child-watch", 1, 20),
    mutant("watch-lost-at-reconnect", 1, 20),
    mutant("missed-change-untold", 1, 20),
];

/// Seeds that are played without any bug, by number of servers.
const CONTROLS: [(usize, u64); 2] = [(1, 3), (3, 2)];
/// A bug that is found within so many seeds is one of the quick set.
const QUICK_SEEDS_MAX: u64 = 20;

/// The seed that catches it, and how.
fn hunt(mutant: &Mutant) -> Option<(u64, String)> {
    mutants::plant(Some(mutant.name));
    let play = |seed| {
        let violation = match mutant.servers {
            REMOVALS => removals::run(seed).err(),
            FOUNDING => founding::run(seed, false).err(),
            SLOW => run_slow(seed, 3, false).err().map(|failure| failure.violation),
            servers => run(seed, servers, false).err().map(|failure| failure.violation),
        };
        violation.map(|violation| (seed, violation))
    };
    let caught = (1..=mutant.seeds).find_map(play);
    mutants::plant(None);
    caught
}

/// Hunts them on all cores; those that got away.
fn hunt_all(mutants: &[&Mutant]) -> Vec<&'static str> {
    silence_the_hunted();
    let (next, escaped) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Mutant { name, servers, seeds } = mutant;
                    let Some((seed, how)) = hunt(mutant) else {
                        println!("{name}: not caught by {seeds} seeds of {servers}");
                        escaped.lock().expect("nothing panics while it holds it").push(*name);
                        continue;
                    };
                    let how: String = how.split_whitespace().collect::<Vec<_>>().join(" ");
                    println!("{name}: {servers} servers, seed {seed}: {how}");
                }
            });
        }
    });
    escaped.into_inner().expect("all threads are done")
}

/// A product that panics because of its bug is caught; what it says then is nobody's business.
fn silence_the_hunted() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if mutants::planted().is_none() {
            usual(panic);
        }
    }));
}

#[test]
fn quick_ones_are_caught() {
    let quick: Vec<_> = CATALOGUE.iter().filter(|m| m.is_quick()).collect();
    assert_eq!(hunt_all(&quick), [""; 0], "not caught");
}

#[test]
fn stubborn_ones_are_caught() {
    let stubborn: Vec<_> = CATALOGUE.iter().filter(|m| !m.is_quick()).collect();
    assert_eq!(hunt_all(&stubborn), [""; 0], "not caught");
}

#[test]
fn without_a_bug_the_same_seeds_break_no_rule() {
    for (servers, seeds) in CONTROLS {
        for seed in 1..=seeds {
            run(seed, servers, false).unwrap_or_else(|failure| panic!("\n{failure}"));
        }
    }
}
