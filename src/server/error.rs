//! Why a server does not start, or ends by itself.

use std::io;
use std::path::PathBuf;

/// Why a server did not start. Nothing is left running or bound.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be served.
    #[error("{}", lines(.0))]
    Config(Vec<crate::config::ConfigError>),
    /// The client address cannot be resolved or listened on.
    #[error("cannot listen for clients on {address}: {error}")]
    Address {
        /// As configured.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The port for other servers cannot be had.
    #[error("cannot listen for other servers on {address}: {error}")]
    PeerAddress {
        /// As the own server line says.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The audit log cannot be opened.
    #[error("cannot open the audit log {}: {error}", .path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The data directory is refused, damaged or in use. The text names the file and what to do.
    #[error("{0}")]
    Data(String),
    /// The operating system gives no random bytes, or no thread.
    #[error("{what}: {error}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it says.
        error: String,
    },
    /// The server ended while it was starting.
    #[error("ended while starting: {0}")]
    Ended(#[from] ServerError),
}

/// Why a running server ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The log cannot be written: nothing more can be acknowledged. An fsync is never tried again.
    #[error("the log cannot be written: {0}")]
    Log(String),
    /// The audit log cannot be written: the server could no longer prove what it does.
    #[error("the audit log {} cannot be written: {reason}", .path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A server of an ensemble that had no data found out what it is to become, and cannot.
    #[error("{0}")]
    Founding(String),
    /// A broken invariant: a defect of this program.
    #[error("defect in {thread}: {message}")]
    Panic {
        /// The thread that ended.
        thread: &'static str,
        /// What it said.
        message: String,
    },
}

fn lines(errors: &[crate::config::ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The text of a panic.
pub(super) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panicked without a text".to_string())
}
