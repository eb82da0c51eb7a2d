//! Why there is no lock.
//!
//! *Owns* [`LockError`] and [`LostReason`]. *Invariant*: who is told that a lock was not acquired has no contender left
//! in the queue, or one that is being removed as soon as a server can be reached; or the session is
//! over, and the server removes it.

use std::fmt;

use zookeeper_client as zk;

/// Why a lock could not be acquired, used or released.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Others hold it, or came first, and the time to wait for it is over.
    #[error("others hold {path}")]
    Held {
        /// The lock.
        path: String,
    },
    /// The path cannot be that of a lock.
    #[error("{path:?} cannot be the path of a lock: {reason}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The access control lists do not allow what is needed.
    #[error("no permission to {what} {path}")]
    NoPermission {
        /// What was tried.
        what: &'static str,
        /// On which znode.
        path: String,
    },
    /// No server has answered in time, although the session may still be open.
    #[error("no server answers")]
    Unreachable,
    /// The session is over, and with it everything that it held.
    #[error("the session is over: {0}")]
    Session(zk::Error),
    /// The lock was held and is held no longer.
    #[error("the lock is lost: {0}")]
    Lost(LostReason),
    /// Contenders share the path that would not wait for us, and the lock was asked to refuse that.
    #[error("{path} is shared with contenders that do not wait for this one: {names}")]
    Foreign {
        /// The lock.
        path: String,
        /// Their kinds.
        names: String,
    },
    /// Any other answer of a server.
    #[error("{what} {path}: {source}")]
    Server {
        /// What was tried.
        what: &'static str,
        /// On which znode.
        path: String,
        /// The answer.
        source: zk::Error,
    },
    /// The operating system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// Why a lock is held no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The server was silent for so long that it may give the lock away soon.
    Silence,
    /// The znode was removed by somebody else.
    Removed,
    /// The session is over.
    Session,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silence => "no server has answered for almost the session timeout",
            Self::Removed => "its znode was removed",
            Self::Session => "the session is over",
        })
    }
}

impl LockError {
    /// An answer that says no, in the words of this library.
    pub(super) fn refused(what: &'static str, path: &str, source: zk::Error) -> Self {
        let path = path.to_string();
        match source {
            zk::Error::NoAuth => Self::NoPermission { what, path },
            zk::Error::SessionExpired | zk::Error::ClientClosed | zk::Error::AuthFailed => {
                Self::Session(source)
            }
            source => Self::Server { what, path, source },
        }
    }
}

/// Whether an error leaves open what has become of a request. zookeeper-client gives such requests
/// the error that ended the connection, which is often not `ConnectionLoss`.
pub(super) fn is_transient(error: &zk::Error) -> bool {
    matches!(
        error,
        zk::Error::ConnectionLoss
            | zk::Error::Custom(_)
            | zk::Error::UnexpectedError(_)
            | zk::Error::UnmarshalError { .. }
            | zk::Error::Timeout
            | zk::Error::SessionMoved
            | zk::Error::Throttled
    )
}
