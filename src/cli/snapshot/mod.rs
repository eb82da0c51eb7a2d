//! `lockkeeper snapshot`: backups of a state, and a new ensemble from one.
//!
//! *Owns* the commands' flags, words and exit codes. *Invariants*: a backup has its name only once all of it was read
//! back from the stream and is durable; a file that does not verify is never used. *Never* changes the data of a
//! server that has some.

mod graft;
mod inspect;
mod restore;
mod save;

use std::fs::File;
use std::io::{self, BufReader, Read, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::Value;

use super::exit::{EXIT_REFUSED, EXIT_USAGE};
use super::flags::Output;
use super::{exit_code, say};
use crate::backup::{BackupReader, Header, Trailer};
use crate::config::Config;
use crate::server::offline::{self, Machine, Mark, Restore as _};

/// `lockkeeper snapshot ...`
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Save the state of a running ensemble, or that of a directory, to a file
    Save(save::SaveFlags),
    /// Say whether a file is a whole backup, and of what
    Verify(inspect::VerifyFlags),
    /// Show the znodes in a backup
    Inspect(inspect::InspectFlags),
    /// Begin a new ensemble with the state in a backup, or bring a part of it into one that runs
    Restore(restore::RestoreFlags),
}

/// What a command says when it has succeeded.
struct Said {
    text: String,
    json: Value,
}

/// Why it failed: the exit code, and what to tell.
pub(super) struct Failure {
    pub(super) exit: i32,
    pub(super) text: String,
}

impl Failure {
    fn new(exit: i32, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    fn refused(text: impl Into<String>) -> Self {
        Self::new(EXIT_REFUSED, text)
    }

    fn usage(text: impl Into<String>) -> Self {
        Self::new(EXIT_USAGE, text)
    }
}

/// Runs the command.
pub(super) fn run(command: &SnapshotCommand) -> ExitCode {
    let (done, output, is_quiet) = match command {
        SnapshotCommand::Save(flags) => (save::run(flags), flags.output, flags.is_to_stdout()),
        SnapshotCommand::Verify(flags) => (inspect::verify(flags), flags.output, false),
        SnapshotCommand::Inspect(flags) => (inspect::run(flags), flags.output, false),
        SnapshotCommand::Restore(flags) => (restore::run(flags), flags.output, false),
    };
    match done {
        Ok(said) => {
            let text = match output.output {
                Output::Text => said.text,
                Output::Json => format!("{}\n", said.json),
            };
            // A reader that has closed its end does not want to see it. Standard output may be the backup.
            let _ = match is_quiet {
                true => io::stderr().write_all(text.as_bytes()),
                false => io::stdout().write_all(text.as_bytes()),
            };
            ExitCode::SUCCESS
        }
        Err(failure) => {
            say(&format!("lockkeeper: {}", failure.text));
            exit_code(failure.exit)
        }
    }
}

/// Standard input for `-`, or that file.
fn open(file: &Path) -> Result<Box<dyn Read>, Failure> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|error| Failure::usage(named(file, &error)))?;
    Ok(Box::new(BufReader::with_capacity(256 << 10, opened)))
}

fn named(file: &Path, problem: &dyn std::fmt::Display) -> String {
    format!("{}: {problem}", file.display())
}

/// Reads a backup into an empty state.
pub(super) fn load(file: &Path, config: &Config) -> Result<(Header, Trailer, Machine), Failure> {
    let mut machine =
        offline::fresh(config).map_err(|error| Failure::refused(error.to_string()))?;
    let refused = |problem: &dyn std::fmt::Display| Failure::refused(named(file, problem));
    let reader = BackupReader::open(open(file)?, machine.record_digest());
    let reader = reader.map_err(|error| refused(&error))?;
    let header = reader.header().clone();
    let trailer = reader.read(&mut |key, value| machine.record(key, value));
    let trailer = trailer.map_err(|error| refused(&error))?;
    let mark = Mark {
        index: header.index,
        term: header.term,
        zxid: header.zxid,
        digest: trailer.digest,
        records: trailer.records,
        ..Mark::default()
    };
    machine.finish(&mark).map_err(|what| refused(&what))?;
    Ok((header, trailer, machine))
}

/// What a backup says of itself, for programs.
fn json(header: &Header, trailer: &Trailer) -> Value {
    serde_json::json!({
        "release": header.release,
        "ensemble": format!("{:032x}", header.ensemble),
        "server": header.server_id,
        "zxid": format!("{:#x}", header.zxid),
        "index": header.index,
        "term": header.term,
        "made_ms": header.made_ms,
        "subtree": header.subtree,
        "records": trailer.records,
        "digest": format!("{:032x}", trailer.digest),
    })
}
