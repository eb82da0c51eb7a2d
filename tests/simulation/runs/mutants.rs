//! Deliberate bugs, each of which the simulation must catch:
//! `cargo test -p lockkeeper-simulation-runs --features mutants mutants`.
//!
//! *Owns* the two hunts, the quick and the long one; the catalogue is `simulation/catalogue.rs`. Those of
//! authentication, which no client of the simulation uses, are in `authentication/bugs.rs`. *Invariant*: a seed
//! that breaks a rule without any bug catches none.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockkeeper_simulation::attacks;
use lockkeeper_simulation::catalogue::{CATALOGUE, Mutant, silence_the_hunted};
use lockkeeper_simulation::run::{run, run_foreign};

/// Seeds that are played without any bug, by number of servers.
const CONTROLS: [(usize, u64); 2] = [(1, 3), (3, 2)];

/// Seeds within which the foreign program of the simulation shows a bug of its refusal.
const FOREIGN_SEEDS: u64 = 5;

/// Hunts them on all cores; those that got away.
fn hunt_all(mutants: &[&Mutant]) -> Vec<&'static str> {
    silence_the_hunted();
    let (next, escaped) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Mutant { name, kind, seeds } = mutant;
                    let Some((seed, how)) = mutant.hunt(1..=*seeds) else {
                        println!("{name}: not caught by {seeds} seeds of {kind}");
                        escaped.lock().expect("nothing panics while it holds it").push(*name);
                        continue;
                    };
                    let how: String = how.split_whitespace().collect::<Vec<_>>().join(" ");
                    println!("{name}: {kind}, seed {seed}: {how}");
                }
            });
        }
    });
    escaped.into_inner().expect("all threads are done")
}

#[test]
fn quick_ones_are_caught() {
    let quick: Vec<_> = CATALOGUE.iter().filter(|m| m.is_quick()).collect();
    assert_eq!(hunt_all(&quick), [""; 0], "not caught");
}

/// By the foreign program of the simulation, and by the attacks on two ends of one link.
#[test]
fn quick_ones_of_the_secret_between_servers_are_caught() {
    silence_the_hunted();
    for bug in attacks::BUGS {
        lockkeeper_core::mutants::plant(Some(bug));
        let is_caught = attacks::is_open();
        let simulated = (1..=FOREIGN_SEEDS).find_map(|seed| run_foreign(seed, 3, false).err());
        lockkeeper_core::mutants::plant(None);
        assert!(is_caught, "{bug} is not noticed");
        let how = simulated.map(|failure| failure.violation).unwrap_or_default();
        assert!(how.contains("foreign program"), "{bug}: {how}");
        println!("{bug}: {how}");
    }
    assert!(!attacks::is_open(), "without a bug nothing gets through");
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
