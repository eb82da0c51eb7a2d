//! Logs of the binary: to standard error, as lines for people or as JSON.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Pretty,
    /// One JSON object per line.
    Json,
}

/// Begins to write logs. `RUST_LOG` decides what; by default everything from `info` on, and only
/// what is serious from the libraries underneath. Does nothing if there is a subscriber already.
pub(super) fn start(format: LogFormat) {
    start_with(format, DEFAULT);
}

/// As [`start`], with another default.
pub(super) fn start_with(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Pretty => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Fails if the program has set up logs of its own: then those are wanted.
    drop(started);
}

const DEFAULT: &str = "info,sled=warn,hyper=warn";
