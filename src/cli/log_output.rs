//! Logs of the binary: to standard error, as lines for people or as JSON.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Pretty,
    /// One JSON object per line.
    Json,
}

/// Begins to write logs. `RUST_LOG` decides what, as levels of targets (`info,lockkeeper::storage=debug`); by default
/// everything from `info` on, and only what is serious from the libraries underneath. Does nothing if there is a
/// subscriber already.
pub(super) fn start(format: LogFormat) {
    start_with(format, DEFAULT);
}

/// As [`start`], with another default.
pub(super) fn start_with(format: LogFormat, default: &str) {
    let wanted = std::env::var("RUST_LOG").unwrap_or_default();
    let (filter, mistake) = filter(&wanted, default);
    let layer =
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Pretty => {
            registry().with(layer.with_target(false).with_filter(filter)).try_init()
        }
        LogFormat::Json => {
            registry().with(layer.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
    // Fails if the program has set up logs of its own: then those are wanted.
    if started.is_ok()
        && let Some(mistake) = mistake
    {
        tracing::error!("{mistake}");
    }
}

/// The filter that is asked for, or the default one and what is wrong.
fn filter(wanted: &str, default: &str) -> (Targets, Option<String>) {
    let of_default = || default.parse().expect("the defaults are well-formed");
    if wanted.trim().is_empty() {
        return (of_default(), None);
    }
    match wanted.parse() {
        Ok(filter) => (filter, None),
        Err(error) => {
            let mistake = format!("RUST_LOG={wanted}: {error}: {default} is used instead");
            (of_default(), Some(mistake))
        }
    }
}

const DEFAULT: &str = "info,sled=warn,hyper=warn";

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_of_targets_are_taken_and_a_mistake_is_named() {
        let (both, mistake) = filter("warn,lockkeeper::storage=debug", DEFAULT);
        assert_eq!(mistake, None);
        assert!(both.would_enable("lockkeeper::storage", &Level::DEBUG));
        assert!(!both.would_enable("lockkeeper::server", &Level::INFO));
        let (default, mistake) = filter("info,lockkeeper=loud", DEFAULT);
        let mistake = mistake.expect("there is no such level");
        assert!(mistake.starts_with("RUST_LOG=info,lockkeeper=loud: "), "{mistake}");
        assert!(default.would_enable("lockkeeper::server", &Level::INFO));
        assert!(!default.would_enable("sled", &Level::INFO));
        assert_eq!(filter("", DEFAULT), (DEFAULT.parse().unwrap(), None));
    }
}
