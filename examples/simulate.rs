//! Plays seeds of the simulation: `cargo run --release --example simulate -- --seed 7 --trace`.

#[path = "../tests/simulation/simulation.rs"]
mod simulation;

use std::process::ExitCode;
use std::time::Instant;

use simulation::coverage::Coverage;
use simulation::run::run;

const USAGE: &str = "usage: simulate --seed N [--trace] | --seeds A..B";

fn main() -> ExitCode {
    let Some((seeds, prints)) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let mut coverage = Coverage::default();
    let mut failed = 0;
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match run(seed, prints) {
            Ok(success) => {
                if count == 1 {
                    println!("seed {seed}: trace {:016x}", success.hash);
                }
                coverage.add(&success.coverage);
            }
            Err(failure) if count == 1 => {
                println!("{failure}");
                failed += 1;
            }
            Err(failure) => {
                println!("seed {seed}: {}", failure.violation);
                failed += 1;
            }
        }
    }
    print!("{coverage}");
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} seeds, {failed} failed, {:.1} seeds a second", count as f64 / seconds);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Which seeds, and whether every step is printed.
fn parse(mut words: impl Iterator<Item = String>) -> Option<(std::ops::Range<u64>, bool)> {
    let (mut seeds, mut prints) = (None, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => {
                let seed: u64 = words.next()?.parse().ok()?;
                seeds = Some(seed..seed + 1);
            }
            "--seeds" => {
                let range = words.next()?;
                let (first, end) = range.split_once("..")?;
                seeds = Some(first.parse().ok()?..end.parse().ok()?);
            }
            "--trace" => prints = true,
            _ => return None,
        }
    }
    Some((seeds?, prints))
}
