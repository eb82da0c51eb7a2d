//! The ends of commands: their answers, their complaints, and the exit code of the process.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde_json::Value;

use super::exit::{EXIT_REFUSED, EXIT_USAGE};
use super::flags::Output;

/// The answer of a command that has succeeded.
pub(super) struct Said {
    /// Text for people.
    pub(super) text: String,
    /// Object for programs: docs/CLI.md lists the fields.
    pub(super) json: Value,
}

/// The failure of a command: its exit code, and the reason.
pub(super) struct Failure {
    pub(super) exit: i32,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(exit: i32, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    /// Failure for a reason that repeating does not change.
    pub(super) fn refused(text: impl Into<String>) -> Self {
        Self::new(EXIT_REFUSED, text)
    }

    /// The command line, or a file that it names, is wrong.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(EXIT_USAGE, text)
    }
}

/// Shows how a command has ended. `is_stdout_taken`: standard output has something else, so the answer goes to standard
/// error.
pub(super) fn shown(
    done: Result<Said, Failure>,
    output: Output,
    is_stdout_taken: bool,
) -> ExitCode {
    match done {
        Ok(said) => {
            let text = match output {
                Output::Text => said.text,
                Output::Json => format!("{}\n", said.json),
            };
            // A reader that has closed its end does not want to see it.
            let _ = match is_stdout_taken {
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

/// The exit code of a process.
pub(super) fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Shows what a command has to say, or why it failed: with which exit code.
pub(super) fn answered(done: Result<String, (i32, String)>) -> ExitCode {
    match done {
        Ok(text) => {
            // A reader that has closed its end does not want to see it.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err((exit, words)) => {
            say(&format!("lockkeeper: {words}"));
            exit_code(exit)
        }
    }
}

/// Writes a line to standard error.
pub(super) fn say(line: &str) {
    // With standard error closed an error has no reader; the exit code remains.
    let _ = writeln!(io::stderr(), "{line}");
}
