//! `lockkeeper lock`: run a command while a lock is held, and only then.
//!
//! *Owns* how the command begins. `supervisor.rs` holds the lock, `watchdog.rs` is a process of its own that holds the
//! clock, `wire.rs` is what they say to each other. *Invariant*: nothing is left in the queue of a lock that was not
//! acquired.

mod flags;
mod input;
mod interrupts;
mod kind;
mod relay;
mod supervisor;
mod waiting;
mod watchdog;
mod wire;

use std::process::ExitCode;

use super::{LogFormat, log_output};

pub(super) use flags::EXIT_USAGE;
pub(crate) use flags::LockFlags;
pub(super) use watchdog::{COMMAND as WATCHDOG_COMMAND, run as run_watchdog};

/// Runs the command.
pub(super) fn run(flags: &LockFlags) -> ExitCode {
    let logs = if flags.verbose { "info" } else { "error" };
    log_output::start_with(LogFormat::Pretty, logs);
    let checked = flags.access().and_then(|access| Ok((access, flags.lock()?)));
    ExitCode::from(match checked {
        Ok((access, lock)) => supervisor::run(flags, &lock, access),
        Err(reason) => {
            flags::complain(&reason);
            EXIT_USAGE
        }
    })
}
