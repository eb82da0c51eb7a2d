//! Plays seeds of the simulation: `cargo run --release --example simulate -- --seed 7 --trace`, or
//! `-- --servers 3 --seeds 1..401`: as far as the second number, which is not played itself. With a
//! deliberate bug: `cargo run --example simulate --features mutants -- --mutant log-not-synced --seed 1`;
//! `-- --medians` counts how many seeds it takes to catch each of them, or `-- --medians --mutant NAME` one;
//! with `--tries N` each of its five counts ends after N seeds.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use lockkeeper_simulation::coverage::Coverage;
use lockkeeper_simulation::founding::{self, Seen};
use lockkeeper_simulation::migration;
use lockkeeper_simulation::observer::Told;
use lockkeeper_simulation::removals::{self, Outcome};
use lockkeeper_simulation::run::{
    Failure, Success, run, run_foreign, run_slow, run_upgraded, simulated_ms,
};
use lockkeeper_simulation::tempo::Tempo;
use lockkeeper_simulation::{busy, changes};

const USAGE: &str =
    "usage: simulate [--servers 1|3|5 [--slow | --foreign | --upgrades] | --founding | --losses | --migrations | \
                     --removals | --changes | --busy] \
                     (--seed N [--trace] | --seeds A..B [--first]) [--mutant NAME] [--tla DIR]
       simulate --medians [--mutant NAME] [--tries N]";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "--medians").is_some() {
        return medians(words);
    }
    let asked = parse(words);
    let Some(asked) = asked else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let Asked {
        seeds,
        servers,
        play,
        prints,
        first,
        mutant,
        founds,
        loses,
        migrates,
        removes,
        changes: changes_members,
        busy: busies,
        tla,
    } = asked;
    if let Some(name) = mutant
        && !plant(name)
    {
        eprintln!("this program was built without the feature `mutants`");
        return ExitCode::from(2);
    }
    if let Some(dir) = tla {
        return tell(seeds, servers, &dir);
    }
    if founds {
        return found(seeds, prints, first);
    }
    if loses {
        return lose(seeds, prints, first);
    }
    if migrates {
        return migrate(seeds, prints, first);
    }
    if removes {
        return remove(seeds, first);
    }
    if changes_members {
        return change(seeds, first);
    }
    if busies {
        return busy_leaders(seeds, first);
    }
    let begun = Instant::now();
    let (mut coverage, mut tempo) = (Coverage::default(), Tempo::default());
    let mut failed = 0;
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match tempo.play(|| play(seed, servers, prints), simulated_ms) {
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
                if first {
                    break;
                }
            }
        }
    }
    print!("{coverage}");
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} seeds, {failed} failed, {:.1} seeds a second", count as f64 / seconds);
    println!("{tempo}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays lives, and writes the module `Traces` for spec/TraceCheck.tla: of every seed what an observer saw,
/// also of those that fail. Succeeds if it is written.
fn tell(seeds: std::ops::Range<u64>, servers: usize, dir: &Path) -> ExitCode {
    let (mut told, mut failed) = (Vec::new(), 0);
    let numbers: Vec<String> = seeds.clone().map(|seed| seed.to_string()).collect();
    for seed in seeds {
        let (outcome, steps) = lockkeeper_simulation::run::observe(seed, servers);
        failed += u64::from(outcome.is_err());
        if let Err(failure) = outcome {
            println!("seed {seed}: {}", failure.violation);
        }
        told.push(steps);
    }
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(dir.join("Traces.tla"), module(&told, &numbers, servers)));
    if let Err(error) = written {
        eprintln!("{}: {error}", dir.display());
        return ExitCode::FAILURE;
    }
    let steps: usize = told.iter().map(|run| run.steps.len()).sum();
    println!("{} runs, {failed} failed, {steps} steps", told.len());
    ExitCode::SUCCESS
}

fn module(told: &[Told], seeds: &[String], servers: usize) -> String {
    let run = |run: &Told| format!("<<\n  {}\n>>", run.steps.join(",\n  "));
    let runs: Vec<String> = told.iter().map(run).collect();
    let most = |of: fn(&Told) -> usize| told.iter().map(of).max().unwrap_or_default().max(1);
    format!(
        "---- MODULE Traces ----\nEXTENDS Integers\nRuns == <<\n{}\n>>\nSeeds == <<{}>>\nTraceServers == 1..{servers}\n\
         TraceSess == 1..{}\nTraceLives == {}\n====\n",
        runs.join(",\n"),
        seeds.join(", "),
        most(|run| run.sessions),
        most(|run| run.lives),
    )
}

/// Plays foundings of ensembles.
fn found(seeds: std::ops::Range<u64>, prints: bool, first: bool) -> ExitCode {
    let begun = Instant::now();
    let (mut seen, mut tempo, mut failed) = (Seen::default(), Tempo::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match tempo.play(|| founding::run(seed, prints), founding::simulated_ms) {
            Ok(run) => seen.add(&run),
            Err(violation) => {
                println!("seed {seed}: {violation}");
                failed += 1;
                if first {
                    break;
                }
            }
        }
    }
    for (name, number) in seen.all() {
        println!("{name:>30} {number}");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} seeds, {failed} failed, {:.1} seeds a second", count as f64 / seconds);
    println!("{tempo}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays ensembles that lose their majority for ever.
fn lose(seeds: std::ops::Range<u64>, prints: bool, first: bool) -> ExitCode {
    let begun = Instant::now();
    let (mut recovered, mut refused, mut failed) = (0, 0, 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match founding::run_loss(seed, prints) {
            Ok((seen, _)) => {
                recovered += seen.recovered;
                refused += seen.refused;
            }
            Err(violation) => {
                println!("seed {seed}: {violation}");
                failed += 1;
                if first {
                    break;
                }
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {failed} failed, {recovered} recovered, {refused} operators refused at first, {:.1} seeds a \
         second",
        count as f64 / seconds
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays live migrations.
fn migrate(seeds: std::ops::Range<u64>, prints: bool, first: bool) -> ExitCode {
    let begun = Instant::now();
    let (mut seen, mut failed) = (migration::Seen::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match migration::run(seed, prints) {
            Ok(run) => seen.add(&run),
            Err(violation) => {
                println!("{violation}");
                failed += 1;
                if first {
                    break;
                }
            }
        }
    }
    println!("{seen:?}");
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} seeds, {failed} failed, {:.1} seeds a second", count as f64 / seconds);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays removals of members.
fn remove(seeds: std::ops::Range<u64>, first: bool) -> ExitCode {
    let begun = Instant::now();
    let (mut acknowledged, mut tempo, mut failed) = (0, Tempo::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match tempo.play(|| removals::run(seed), removals::simulated_ms) {
            Ok(played) => acknowledged += u64::from(played.outcome == Outcome::Acknowledged),
            Err(violation) => {
                println!("seed {seed}: {violation}");
                failed += 1;
                if first {
                    break;
                }
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {acknowledged} acknowledged, {failed} failed, {:.1} seeds a second",
        count as f64 / seconds
    );
    println!("{tempo}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays changes of members among faults.
fn change(seeds: std::ops::Range<u64>, first: bool) -> ExitCode {
    let begun = Instant::now();
    let (mut seen, mut tempo, mut failed) = (changes::Played::default(), Tempo::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match tempo.play(|| changes::run(seed), changes::simulated_ms) {
            Ok(played) => seen.add(&played),
            Err(violation) => {
                println!("seed {seed}: {violation}");
                failed += 1;
                if first {
                    break;
                }
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{seen:?}");
    println!("{count} seeds, {failed} failed, {:.1} seeds a second", count as f64 / seconds);
    println!("{tempo}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays busy leaders.
fn busy_leaders(seeds: std::ops::Range<u64>, first: bool) -> ExitCode {
    let (mut longest_us, mut tempo, mut failed) = (0, Tempo::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match tempo.play(|| busy::run(seed), busy::simulated_ms) {
            Ok(played) => longest_us = played.waited_us.max(longest_us),
            Err(violation) => {
                println!("seed {seed}: {violation}");
                failed += 1;
                if first {
                    break;
                }
            }
        }
    }
    println!("{count} seeds, {failed} failed, a small read waited for {longest_us} us at most");
    println!("{tempo}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts the seeds that it takes to catch each deliberate bug: rows of a table.
#[cfg(feature = "mutants")]
fn medians(mut words: impl Iterator<Item = String>) -> ExitCode {
    use lockkeeper_simulation::catalogue::{CATALOGUE, silence_the_hunted};

    let (mut name, mut tries) = (None, None);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next(), &mut name, &mut tries) {
            ("--mutant", Some(mutant), name @ None, _) => *name = Some(mutant),
            ("--tries", Some(count), _, tries @ None) if count.parse::<u64>().is_ok() => {
                *tries = count.parse().ok();
            }
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    silence_the_hunted();
    println!("| Bug | Servers | Median |\n|---|---|---|");
    for mutant in CATALOGUE.iter().filter(|mutant| name.as_ref().is_none_or(|n| n == mutant.name)) {
        let median = match mutant.seeds_to_catch(tries) {
            Ok(count) => format!("{count}"),
            Err(most) => format!("> {most}"),
        };
        println!("| `{}` | {} | {median} |", mutant.name, mutant.kind);
    }
    ExitCode::SUCCESS
}

#[cfg(not(feature = "mutants"))]
fn medians(_: impl Iterator<Item = String>) -> ExitCode {
    eprintln!("this program was built without the feature `mutants`");
    ExitCode::from(2)
}

/// What is to be played.
struct Asked {
    seeds: std::ops::Range<u64>,
    servers: usize,
    /// In which world: the usual one, a slow one, with a foreign program, or with programs of two releases.
    play: Play,
    prints: bool,
    /// No further than to the first that fails.
    first: bool,
    mutant: Option<String>,
    /// Foundings instead of the lives of founded ensembles.
    founds: bool,
    loses: bool,
    /// Live migrations, likewise.
    migrates: bool,
    /// Removals of members, likewise.
    removes: bool,
    /// Changes of members among faults, likewise.
    changes: bool,
    /// Busy leaders, likewise.
    busy: bool,
    /// Where runs are told as steps of the model in spec/.
    tla: Option<PathBuf>,
}

/// Runs a seed with so many servers.
type Play = fn(u64, usize, bool) -> Result<Success, Box<Failure>>;

/// Plants a deliberate bug. False: there are none in this program.
fn plant(name: String) -> bool {
    #[cfg(feature = "mutants")]
    lockkeeper_core::mutants::plant(Some(name.leak()));
    #[cfg(not(feature = "mutants"))]
    drop(name);
    cfg!(feature = "mutants")
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Asked> {
    let (mut seeds, mut servers, mut prints, mut mutant) = (None, 1, false, None);
    let (mut founds, mut loses, mut migrates) = (false, false, false);
    let (mut removes, mut changes_members, mut busies) = (false, false, false);
    let mut tla = None;
    let mut first = false;
    let mut play: Play = run;
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
            "--servers" => {
                servers = words.next()?.parse().ok().filter(|n| [1, 3, 5].contains(n))?
            }
            "--slow" => play = run_slow,
            "--foreign" => play = run_foreign,
            "--upgrades" => play = run_upgraded,
            "--first" => first = true,
            "--trace" => prints = true,
            "--founding" => founds = true,
            "--losses" => loses = true,
            "--migrations" => migrates = true,
            "--removals" => removes = true,
            "--changes" => changes_members = true,
            "--busy" => busies = true,
            "--mutant" => mutant = Some(words.next()?),
            "--tla" => tla = Some(words.next()?.into()),
            _ => return None,
        }
    }
    let seeds = seeds?;
    Some(Asked {
        seeds,
        servers,
        play,
        prints,
        first,
        mutant,
        founds,
        loses,
        migrates,
        removes,
        changes: changes_members,
        busy: busies,
        tla,
    })
}
