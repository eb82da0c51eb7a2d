//! Why a command of the shell failed: an exit code and words.
//!
//! *Owns* the words for the servers' error codes. They begin as zkCli's do, because scripts look for
//! those. Reproduces `CliWrapperException`.

use crate::cli::client::{ClientError, code_name};
use crate::cli::exit::{EXIT_NO_PERMISSION, EXIT_NOT_NOW, EXIT_REFUSED, EXIT_UNAVAILABLE};
use crate::cli::output;
use crate::proto::ErrorCode;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// What the process ends with.
    pub exit: i32,
    /// What is told.
    pub text: String,
    /// The server's number, if it was the server who refused.
    pub code: Option<i32>,
}

impl From<output::Failure> for Failure {
    fn from(output::Failure { exit, text }: output::Failure) -> Self {
        Self { exit, text, code: None }
    }
}

impl Failure {
    /// The command is wrong.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        output::Failure::usage(text).into()
    }

    /// The command is right, and what it asks for is not possible.
    pub(super) fn refused(text: impl Into<String>) -> Self {
        output::Failure::refused(text).into()
    }

    /// There is no session.
    pub(super) fn unavailable(text: impl Into<String>) -> Self {
        output::Failure::new(EXIT_UNAVAILABLE, text).into()
    }

    /// What a request about `path` came to.
    pub(super) fn of(error: &ClientError, path: &str) -> Self {
        match error {
            ClientError::Unreachable(_) => Self::unavailable(error.to_string()),
            ClientError::Unproven { .. } => {
                output::Failure::new(EXIT_NO_PERMISSION, error.to_string()).into()
            }
            ClientError::Lost { .. } => {
                Self::unavailable(format!("{error}; whether it was done is unknown"))
            }
            ClientError::Refused { code, .. } => Self::by_server(*code, path),
        }
    }

    /// A refusal with this code.
    pub(super) fn by_server(code: i32, path: &str) -> Self {
        let known = ErrorCode::from_wire(code);
        let (exit, text) = match known {
            Some(ErrorCode::NoNode) => (EXIT_REFUSED, format!("Node does not exist: {path}")),
            Some(ErrorCode::NodeExists) => (EXIT_REFUSED, format!("Node already exists: {path}")),
            Some(ErrorCode::NotEmpty) => (EXIT_REFUSED, format!("Node not empty: {path}")),
            Some(ErrorCode::NoChildrenForEphemerals) => {
                (EXIT_REFUSED, format!("Ephemerals cannot have children: {path}"))
            }
            Some(ErrorCode::NotReadOnly) => (EXIT_NOT_NOW, format!("Not a read-only call: {path}")),
            Some(ErrorCode::InvalidAcl) => (EXIT_REFUSED, format!("Acl is not valid : {path}")),
            Some(ErrorCode::NoAuth) => {
                (EXIT_NO_PERMISSION, format!("Insufficient permission : {path}"))
            }
            Some(ErrorCode::AuthFailed) => (
                EXIT_NO_PERMISSION,
                "the server does not know the scheme, or not this credential".to_string(),
            ),
            Some(ErrorCode::SessionClosedRequireSaslAuth) => (
                EXIT_NO_PERMISSION,
                "the server serves only clients that authenticate, and this one has not: --auth, or a file with who \
                 asks by SASL for --client-configuration"
                    .to_string(),
            ),
            Some(ErrorCode::BadArguments) => {
                (EXIT_REFUSED, format!("Arguments are not valid : {path}"))
            }
            Some(ErrorCode::BadVersion) => {
                (EXIT_REFUSED, format!("version No is not valid : {path}"))
            }
            Some(ErrorCode::QuotaExceeded) => {
                (EXIT_REFUSED, format!("Quota has exceeded : {path}"))
            }
            Some(ErrorCode::NoWatcher) => (EXIT_REFUSED, format!("No such watcher for {path}")),
            Some(ErrorCode::EphemeralOnLocalSession) => {
                (EXIT_REFUSED, format!("a local session cannot have ephemerals: {path}"))
            }
            Some(ErrorCode::ReconfigDisabled) => (
                EXIT_REFUSED,
                "Reconfig is disabled: the servers need reconfigEnabled=true, and must not follow ZooKeeper".into(),
            ),
            Some(ErrorCode::ReconfigInProgress) => {
                (EXIT_NOT_NOW, "Another reconfiguration is in progress: repeat the command".into())
            }
            Some(ErrorCode::NewConfigNoQuorum) => (
                EXIT_NOT_NOW,
                "No quorum of new config is connected to the leader and as far as it is".into(),
            ),
            Some(ErrorCode::Unimplemented) => {
                (EXIT_REFUSED, format!("Unimplemented, or not enabled on this server: {path}"))
            }
            Some(ErrorCode::ThrottledOp) => (EXIT_NOT_NOW, "the server is overloaded".into()),
            Some(
                ErrorCode::SystemError
                | ErrorCode::RuntimeInconsistency
                | ErrorCode::Marshalling
                | ErrorCode::SessionExpired
                | ErrorCode::SessionMoved,
            )
            | None => (EXIT_REFUSED, format!("{} for {path}", code_name(code))),
        };
        Self { exit, text, code: Some(code) }
    }

    /// Whether the server has said that there is no such znode.
    pub(super) fn is_no_node(&self) -> bool {
        self.code == Some(ErrorCode::NoNode.wire())
    }
}
