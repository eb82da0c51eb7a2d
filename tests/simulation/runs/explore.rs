//! Explores a small scope of the core in every order of steps:
//! `cargo run --profile test --example explore -- founding`, `-- sessions --holds 1 --moves 1` or
//! `-- members --remove 3`. For a night: `-- founding --minutes 60 --step-ms 500 --directories e,s,m --crashes 1`.
//! With a deliberate bug:
//! `cargo run --example explore --features mutants -- founding --mutant majority-founds`.

use std::process::ExitCode;
use std::time::Duration;

use lockkeeper_simulation::exploration::explorer::{Budget, Scope, explore};
use lockkeeper_simulation::exploration::founding::{Directory, Founding};
use lockkeeper_simulation::exploration::members::{Change, Members, OPERATOR_MS};
use lockkeeper_simulation::exploration::sessions::Sessions;

const USAGE: &str =
    "usage: explore founding [--directories e,u,s,m] [--step-ms N] [--crashes N] [--cuts N] [--words N]
               [--alone N] [--unequal] [--one-way] [--slow-disks] [--only-one]
       explore sessions [--clients PLACES] [--timeout-ms N] [--moves N] [--writes N] [FAULTS]
       explore members  [--add ID | --remove IDS] [--clients PLACE] [FAULTS]
       all of them      [--minutes N] [--depth N] [--mutant NAME]
directories: e empty, u that of a lone server without a write, s with a state, m that of a member
places: 0 is the leader, 1 the first of the others; one client each
FAULTS: [--servers N] [--elections N] [--step-ms N] [--holds N] [--breaks N] [--crashes N] [--stills N] [--disks N]
        [--freezes N] [--late FROM-TO,...] [--singly] [--recover]";

struct Asked {
    budget: Budget,
    mutant: Option<&'static str>,
}

type Args = std::iter::Peekable<std::vec::IntoIter<String>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut args = args.into_iter().peekable();
    let explored = match args.next().as_deref() {
        Some("founding") => founding(&mut args).map(run_of),
        Some("sessions") => sessions(&mut args).map(run_of),
        Some("members") => members(&mut args).map(run_of),
        _ => None,
    };
    explored.unwrap_or_else(|| {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    })
}

fn run_of<S: Scope + std::fmt::Debug>((scope, asked): (S, Asked)) -> ExitCode {
    let Asked { budget, mutant } = asked;
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
    lockkeeper_core::mutants::plant(Some(name));
    true
}

#[cfg(not(feature = "mutants"))]
fn plant(_: &str) -> bool {
    false
}

impl Asked {
    fn new() -> Self {
        Self { budget: Budget::COMPLETE, mutant: None }
    }

    /// What every scope may be asked. `None`: it is another flag, or wrong.
    fn take(&mut self, flag: &str, args: &mut Args) -> Option<()> {
        match flag {
            "--minutes" => {
                let minutes: u64 = args.next()?.parse().ok()?;
                self.budget.time = Duration::from_secs(60 * minutes);
            }
            "--depth" => self.budget.depth = args.next()?.parse().ok()?,
            // One name for the whole run.
            "--mutant" => self.mutant = Some(args.next()?.leak()),
            _ => return None,
        }
        Some(())
    }
}

fn founding(args: &mut Args) -> Option<(Founding, Asked)> {
    let (mut scope, mut asked) = (Founding::of(&[Directory::Empty]), Asked::new());
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--directories" => scope.directories = directories(&args.next()?)?,
            "--step-ms" => scope.step_us = args.next()?.parse::<u64>().ok()? * 1000,
            "--crashes" => scope.crashes = args.next()?.parse().ok()?,
            "--cuts" => scope.cuts = args.next()?.parse().ok()?,
            "--alone" => scope.alone = args.next()?.parse().ok()?,
            "--words" => scope.words = args.next()?.parse().ok()?,
            "--unequal" => scope.has_unequal_lines = true,
            "--one-way" => scope.is_one_way = true,
            "--slow-disks" => scope.reads_slowly = true,
            "--only-one" => scope.only_one = true,
            other => asked.take(other, args)?,
        }
    }
    Some((scope, asked))
}

fn sessions(args: &mut Args) -> Option<(Sessions, Asked)> {
    let (mut scope, mut asked) = (Sessions::new(), Asked::new());
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--timeout-ms" => scope.timeout_ms = args.next()?.parse().ok()?,
            "--moves" => scope.moves = args.next()?.parse().ok()?,
            "--writes" => scope.writes = args.next()?.parse().ok()?,
            other => fault(&mut scope, other, args).or_else(|| asked.take(other, args))?,
        }
    }
    Some((scope, asked))
}

/// What scopes with Raft have in common.
fn fault(scope: &mut Sessions, flag: &str, args: &mut Args) -> Option<()> {
    let faults = &mut scope.faults;
    match flag {
        "--servers" => {
            scope.ids = (1..=args.next()?.parse().ok()?).collect();
            scope.founders.clone_from(&scope.ids);
        }
        "--clients" => scope.clients = numbers(&args.next()?)?,
        "--elections" => scope.elections = args.next()?.parse().ok()?,
        "--step-ms" => scope.step_us = args.next()?.parse::<u64>().ok()? * 1000,
        "--holds" => faults.holds = args.next()?.parse().ok()?,
        "--breaks" => faults.breaks = args.next()?.parse().ok()?,
        "--crashes" => faults.crashes = args.next()?.parse().ok()?,
        "--stills" => faults.stills = args.next()?.parse().ok()?,
        "--disks" => faults.disks = args.next()?.parse().ok()?,
        "--freezes" => faults.freezes = args.next()?.parse().ok()?,
        "--singly" => scope.arrives_singly = true,
        "--late" => {
            let pair = |pair: &str| {
                let (from, to) = pair.split_once('-')?;
                Some((from.parse().ok()?, to.parse().ok()?))
            };
            scope.late = args.next()?.split(',').map(pair).collect::<Option<_>>()?;
        }
        "--recover" => scope.must_recover = true,
        _ => return None,
    }
    Some(())
}

fn members(args: &mut Args) -> Option<(Members, Asked)> {
    let (mut scope, mut asked) = (Sessions::new(), Asked::new());
    (scope.clients, scope.timeout_ms) = (vec![0], OPERATOR_MS);
    let mut change = None;
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--add" => change = Some(Change::Add(args.next()?.parse().ok()?)),
            "--remove" => change = Some(Change::Remove(numbers(&args.next()?)?)),
            other => fault(&mut scope, other, args).or_else(|| asked.take(other, args))?,
        }
    }
    let change = change?;
    if let Change::Add(id) = change {
        scope.founders.retain(|known| *known != id);
    }
    let must_recover = scope.must_recover;
    Some((Members { sessions: scope, change, must_recover }, asked))
}

fn numbers<T: std::str::FromStr>(list: &str) -> Option<Vec<T>> {
    list.split(',').map(|number| number.parse().ok()).collect()
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
