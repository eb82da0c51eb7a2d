//! `lockkeeper locks` and `lockkeeper sessions`: who holds what, and who waits for it.
//!
//! *Owns* the commands' flags and exit codes: 0 shown or done, 1 refused, 2 the command is wrong, 69 no
//! server answers; those of `break` and `revoke` are in `change.rs`. *Invariant*: `-o json` is the
//! server's answer, one document in a line, as it came.

mod change;
mod table;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin::{self, AdminError};
use super::exit::{EXIT_REFUSED, EXIT_USAGE};
use super::flags::{AdminFlags, Output, OutputFlag};
use super::output::{failed, say, shown};

/// Time between two looks of `--watch`.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// `lockkeeper locks`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LocksFlags {
    #[command(subcommand)]
    change: Option<Change>,
    /// Show the locks at this path and below it
    #[arg(default_value = "/", value_name = "PREFIX", value_parser = change::node_path)]
    prefix: String,
    #[command(flatten)]
    view: ViewFlags,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Ask a holder, or a waiter, to leave: it is up to its client
    Revoke(change::RevokeFlags),
    /// Delete a contender's znode: if it held the lock, the next one gets it
    Break(change::BreakFlags),
}

/// `lockkeeper sessions`
#[derive(Debug, Args)]
pub(crate) struct SessionsFlags {
    #[command(flatten)]
    view: ViewFlags,
}

/// Flags of everything that shows something.
#[derive(Debug, Args)]
struct ViewFlags {
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    output: OutputFlag,
    /// Show it again every second, until interrupted
    #[arg(long)]
    watch: bool,
}

/// Runs `lockkeeper locks`.
pub(super) fn run(flags: &LocksFlags) -> ExitCode {
    match &flags.change {
        Some(Change::Revoke(flags)) => shown(change::revoke(flags), flags.output.output, false),
        Some(Change::Break(flags)) => shown(change::break_lock(flags), flags.output.output, false),
        None => flags.view.run("/locks", Some(("prefix", &flags.prefix)), table::locks),
    }
}

/// Runs `lockkeeper sessions`.
pub(super) fn run_sessions(flags: &SessionsFlags) -> ExitCode {
    flags.view.run("/sessions", None, table::sessions)
}

impl ViewFlags {
    fn run(
        &self,
        page: &str,
        parameter: Option<(&str, &str)>,
        table: fn(&Value) -> String,
    ) -> ExitCode {
        let access = match self.admin.access() {
            Ok(access) => access,
            Err(reason) => return failed(EXIT_USAGE, &reason),
        };
        let mut is_first = true;
        loop {
            match admin::ask(&access, page, parameter) {
                Ok(answer) => {
                    let text = match self.output.output {
                        Output::Json => format!("{answer}\n"),
                        Output::Text => table(&answer),
                    };
                    if self.show(&text, is_first).is_err() {
                        // A reader that has closed standard output has seen enough.
                        return ExitCode::SUCCESS;
                    }
                }
                // An election ends, and the next look may find another server.
                Err(AdminError::Unreachable(reasons)) if self.watch && !is_first => {
                    say(&format!("lockkeeper: no server answers: {}", reasons.join("; ")));
                }
                Err(error @ AdminError::Unreachable(_)) => {
                    let failure = admin::failed(&error);
                    return failed(failure.exit, &failure.text);
                }
                Err(error @ AdminError::Refused { .. }) => {
                    return failed(EXIT_REFUSED, &error.to_string());
                }
            }
            if !self.watch {
                return ExitCode::SUCCESS;
            }
            is_first = false;
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn show(&self, text: &str, is_first: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.watch && self.output.output == Output::Text {
            if out.is_terminal() {
                out.write_all(CLEAR)?;
            } else if !is_first {
                out.write_all(b"\n")?;
            }
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// Empties a terminal, and begins at its top.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
