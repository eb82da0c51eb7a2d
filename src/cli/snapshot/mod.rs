//! `lockkeeper snapshot`: backups of a state, and a new ensemble from one.
//!
//! *Owns* the commands' flags, words and exit codes. *Invariants*: a backup has its name only once all of it was read
//! back from the stream and is durable; a file that does not verify is never used. *Never* changes the data of a
//! server that has some.

mod file;
mod graft;
mod inspect;
mod restore;
mod save;

use std::process::ExitCode;

use clap::Subcommand;

pub(super) use file::load;

use super::output::shown;

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

/// Runs the command.
pub(super) fn run(command: &SnapshotCommand) -> ExitCode {
    let (done, output, is_quiet) = match command {
        SnapshotCommand::Save(flags) => (save::run(flags), flags.output, flags.is_to_stdout()),
        SnapshotCommand::Verify(flags) => (inspect::verify(flags), flags.output, false),
        SnapshotCommand::Inspect(flags) => (inspect::run(flags), flags.output, false),
        SnapshotCommand::Restore(flags) => (restore::run(flags), flags.output, false),
    };
    shown(done, output.output, is_quiet)
}
