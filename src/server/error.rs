//! Why a server does not start, or ends by itself.

use std::io;
use std::path::PathBuf;

use crate::supervision::Failure;

/// Why a server did not start. Nothing is left running or bound.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be served.
    #[error("{}", lines(.0))]
    Config(Vec<crate::config::ConfigError>),
    /// The client address cannot be resolved or listened on.
    #[error("cannot listen for clients on {address}: {error}{}", port_advice(.error, "clientPort"))]
    Address {
        /// As configured.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// A file of keys or certificates is at fault, or what the keys of TLS ask for is not there.
    #[error("TLS: {0}")]
    Tls(#[from] crate::tls::TlsError),
    /// The file of `lockkeeper.adminTokenFile` is at fault.
    #[error("the token of the HTTP port: {}: {reason}", .path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file of `lockkeeper.peerSecretFile` is at fault.
    #[error("the secret of the servers: {}: {reason}", .path.display())]
    PeerSecret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The port for other servers cannot be had.
    #[error("cannot listen for other servers on {address}: {error}{}", port_advice(.error, "the own server line"))]
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
    /// Too few files may be open at once in this process.
    #[error(
        "open files: {limit} are allowed at once, {needed} are needed: what is open already and what \
         the disk, the operators and the other servers need, and a few clients; raise `ulimit -n` \
         (LimitNOFILE)"
    )]
    OpenFiles {
        /// The limit of this process.
        limit: u64,
        /// The least that would do.
        needed: u64,
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

impl StartError {
    /// What the system says, if it does not give what is asked of it.
    pub(in crate::server) fn system<E: ToString>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System { what, error: error.to_string() }
    }
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
    /// The data is older than what this server has promised to others, or too far ahead of them. The text
    /// says what is missing and what to do.
    #[error("{0}")]
    RolledBack(String),
    /// The state is not that of the majority of the servers, or no majority has the same. The text says which entry was
    /// the first and what to do.
    #[error("{0}")]
    Diverged(String),
    /// A broken invariant: a defect of this program. What was acknowledged is durable.
    #[error("defect in {task}{}: {message}{ADVICE}", at(.location.as_deref()))]
    Panic {
        /// The thread or task that has panicked.
        task: &'static str,
        /// What it said.
        message: String,
        /// File and line; `None` where that is not known, as of a panic whose hook the program has
        /// replaced.
        location: Option<String>,
    },
}

impl From<&Failure> for ServerError {
    fn from(Failure { task, message, location }: &Failure) -> Self {
        let (message, location) = (message.clone(), location.clone());
        Self::Panic { task: task.name(), message, location }
    }
}

fn at(location: Option<&str>) -> String {
    location.map(|location| format!(" at {location}")).unwrap_or_default()
}

/// What the reader is to do.
const ADVICE: &str = "; the server has ended, and what it acknowledged is safe: start it again, and report this line";

fn lines(errors: &[crate::config::ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// What an operator can do about a port that cannot be had. `key`: where it is configured.
pub(crate) fn port_advice(error: &io::Error, key: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(": another program has this port: stop it, or give another one ({key})")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(": this machine has no such address: give one of its own ({key})")
        }
        io::ErrorKind::PermissionDenied => {
            format!(": this user may not have this port: give one above 1023 ({key})")
        }
        _ if error.to_string().contains("failed to lookup address") => {
            format!(": the name does not resolve: give an address, or mend the name ({key})")
        }
        _ => String::new(),
    }
}
