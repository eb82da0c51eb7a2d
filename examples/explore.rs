//! Explores a small scope of the core in every order of steps:
//! `cargo run --profile test --example explore -- founding`. For a night:
//! `-- founding --minutes 60 --step-ms 500 --directories e,s,m --crashes 1`. With a deliberate bug:
//! `cargo run --example explore --features mutants -- founding --mutant founds-without-asking --alone 1`.

#[path = "../tests/exploration/exploration.rs"]
mod exploration;

use std::process::ExitCode;
use std::time::Duration;

use exploration::explorer::{Budget, explore};
use exploration::founding::{Directory, Founding};

const USAGE: &str =
    "usage: explore founding [--directories e,u,s,m] [--step-ms N] [--crashes N] [--cuts N]
               [--alone N] [--unequal] [--one-way] [--slow-disks] [--only-one]
               [--minutes N] [--mutant NAME]
directories: e empty, u that of a lone server without a write, s with a state, m that of a member";

struct Asked {
    scope: Founding,
    budget: Budget,
    mutant: Option<&'static str>,
}

fn main() -> ExitCode {
    let Some(Asked { scope, budget, mutant }) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(name) = mutant
        && !plant(name)
    {
        eprintln!("this program was built without the feature `mutants`");
        return ExitCode::from(2);
    }
    println!("{scope:?}");
    let explored = explore(&scope, budget, &mut |explored| println!("{explored}"));
    println!("in the end: {explored}");
    match explored.found {
        Some(found) => {
            println!("{found}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

#[cfg(feature = "mutants")]
fn plant(name: &'static str) -> bool {
    lockkeeper::internals::mutants::plant(Some(name));
    true
}

#[cfg(not(feature = "mutants"))]
fn plant(_: &str) -> bool {
    false
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Asked> {
    if args.next()? != "founding" {
        return None;
    }
    let mut asked =
        Asked { scope: Founding::of(&[Directory::Empty]), budget: Budget::COMPLETE, mutant: None };
    let scope = &mut asked.scope;
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--directories" => scope.directories = directories(&args.next()?)?,
            "--step-ms" => scope.step_us = args.next()?.parse::<u64>().ok()? * 1000,
            "--crashes" => scope.crashes = args.next()?.parse().ok()?,
            "--cuts" => scope.cuts = args.next()?.parse().ok()?,
            "--alone" => scope.alone = args.next()?.parse().ok()?,
            "--unequal" => scope.has_unequal_lines = true,
            "--one-way" => scope.is_one_way = true,
            "--slow-disks" => scope.reads_slowly = true,
            "--only-one" => scope.only_one = true,
            "--minutes" => {
                let minutes: u64 = args.next()?.parse().ok()?;
                asked.budget.time = Duration::from_secs(60 * minutes);
            }
            // One name for the whole run.
            "--mutant" => asked.mutant = Some(args.next()?.leak()),
            _ => return None,
        }
    }
    Some(asked)
}

fn directories(letters: &str) -> Option<Vec<Directory>> {
    let kind = |letter| match letter {
        "e" => Some(Directory::Empty),
        "u" => Some(Directory::Unused),
        "s" => Some(Directory::State),
        "m" => Some(Directory::Member),
        _ => None,
    };
    letters.split(',').map(kind).collect()
}
