//! The ends of commands: their answers, their complaints, and the exit code of the process.

use std::fmt::Debug;
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

impl Said {
    /// Whole lines, as they are asked for.
    pub(super) fn lines(self, output: Output) -> String {
        match output {
            Output::Text => self.text,
            Output::Json => format!("{}\n", self.json),
        }
    }
}

/// The failure of a command: its exit code, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Failure for an answer that belongs to another request.
    pub(super) fn odd(answer: impl Debug) -> Self {
        Self::refused(format!("an odd answer: {answer:?}"))
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
        Ok(said) if is_stdout_taken => {
            // A reader that has closed its end does not want to see it.
            let _ = io::stderr().write_all(said.lines(output).as_bytes());
        }
        Ok(said) => print(&said.lines(output)),
        Err(failure) => return failed(failure.exit, &failure.text),
    }
    ExitCode::SUCCESS
}

/// Says why a command has failed: with which exit code.
pub(super) fn failed(exit: i32, reason: &str) -> ExitCode {
    say(&format!("lockkeeper: {reason}"));
    exit_code(exit)
}

/// The exit code of a process.
pub(super) fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Writes to standard output.
pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    // A reader that has closed its end does not want to see it.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to standard error.
pub(super) fn say(line: &str) {
    // With standard error closed an error has no reader; the exit code remains.
    let _ = writeln!(io::stderr(), "{line}");
}
