//! Why a run ended without its figures.

use super::wire;

/// What kind of fault it is decides about the exit code of `lockkeeper bench`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No connection to a server, or one that ended; also this machine's limits on connections.
    #[error("{0}")]
    Unreachable(String),
    /// A server has answered with an error code.
    #[error("{what}: {}", code_name(*code))]
    Refused {
        /// What was asked for.
        what: String,
        /// The error code of the answer.
        code: i32,
    },
    /// An answer that a correct server does not give.
    #[error("{0}")]
    Wrong(String),
    /// This machine lacks something.
    #[error("{0}")]
    Machine(String),
}

impl Fault {
    /// The same, after these words.
    #[must_use]
    pub fn after(self, words: &str) -> Self {
        let told = |text: String| format!("{words}: {text}");
        match self {
            Fault::Unreachable(text) => Fault::Unreachable(told(text)),
            Fault::Refused { what, code } => Fault::Refused { what: told(what), code },
            Fault::Wrong(text) => Fault::Wrong(told(text)),
            Fault::Machine(text) => Fault::Machine(told(text)),
        }
    }

    /// An answer that a correct server does not give.
    pub fn wrong(text: impl Into<String>) -> Self {
        Fault::Wrong(text.into())
    }

    /// Waiting for sockets has failed.
    pub fn epoll(error: std::io::Error) -> Self {
        Fault::Machine(format!("epoll: {error}"))
    }

    /// A server said no to `what`.
    pub fn refused(what: impl Into<String>, code: i32) -> Self {
        Fault::Refused { what: what.into(), code }
    }
}

/// The words for the codes that a load can meet.
fn code_name(code: i32) -> String {
    let name = match code {
        -1 => "system error",
        -4 => "connection loss",
        wire::UNIMPLEMENTED => "the server does not know this operation",
        wire::NO_NODE => "no such znode",
        wire::NO_AUTH => "no permission",
        wire::BAD_VERSION => "another version",
        wire::NODE_EXISTS => "the znode exists already",
        wire::NOT_EMPTY => "the znode has children",
        -112 => "the session has expired",
        -115 => "the credential is refused",
        -119 => "the server can only be read",
        -125 => "a quota is exceeded",
        -127 => "the server is overloaded",
        _ => return format!("error {code}"),
    };
    format!("{name} (error {code})")
}
