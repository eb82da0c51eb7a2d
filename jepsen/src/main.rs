//! `lockkeeper-jepsen`: see README.md beside the sources.

mod cli;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use lockkeeper_check::verdict::Verdict;
use lockkeeper_jepsen::cluster::namespaces;
use lockkeeper_jepsen::doctor;
use lockkeeper_jepsen::judgement;
use lockkeeper_jepsen::run::{self, Outcome};
use lockkeeper_jepsen::store::Store;

use cli::{Cli, Command, Expect};

/// The harness itself could not do its part.
const HARNESS_FAILED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, is_interrupted.clone()) {
            eprintln!("lockkeeper-jepsen: signal {signal}: {error}");
        }
    }
    let done = match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(arguments) => one_run(&arguments, &is_interrupted),
        Command::TestAll(arguments) => {
            arguments.suite().and_then(|suite| suite.run(&is_interrupted))
        }
        Command::Calibrate(arguments) => {
            arguments.calibration().and_then(|calibration| calibration.run(&is_interrupted))
        }
        Command::Check { folder } | Command::Report { folder } => {
            Store::open(&folder).and_then(run::judge).map(|outcome| {
                tell(&outcome);
                judgement::exit_code(&outcome.verdict)
            })
        }
        Command::Doctor => {
            doctor::examine().iter().for_each(|finding| println!("{finding}"));
            Ok(0)
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(what) => {
            eprintln!("lockkeeper-jepsen: {what}");
            ExitCode::from(HARNESS_FAILED)
        }
    }
}

fn one_run(arguments: &cli::Run, is_interrupted: &AtomicBool) -> Result<u8, String> {
    let settings = arguments.settings()?;
    let mut missing = settings.namespaces();
    missing.retain(|kind| !namespaces::is_inside(kind));
    if !missing.is_empty() {
        return Err(format!("no namespaces: {}", namespaces::enter(&settings.namespaces())));
    }
    for skipped in &settings.skipped {
        println!("skipped: {skipped}");
    }
    for strike in settings.plan() {
        println!("plan: {strike}");
    }
    let outcome = run::run(&settings, is_interrupted)?;
    tell(&outcome);
    Ok(match (arguments.expect, &outcome.verdict) {
        (Expect::Pass, verdict) => judgement::exit_code(verdict),
        (Expect::Fail, Verdict::Invalid(_)) => 0,
        (Expect::Fail, _) => 1,
    })
}

/// The outcome for people.
fn tell(outcome: &Outcome) {
    for opinion in &outcome.opinions {
        println!("{opinion}");
    }
    let of = |name: &str| outcome.results[name].to_string();
    println!("operations: {}", of("operations"));
    println!("coverage: {}", of("coverage"));
    let word = match &outcome.verdict {
        Verdict::Valid => "VALID",
        Verdict::Invalid(_) => "INVALID",
        Verdict::Unknown(_) | Verdict::Moot(_) => "UNKNOWN",
    };
    println!("{word}: {}", outcome.store.folder().display());
}
