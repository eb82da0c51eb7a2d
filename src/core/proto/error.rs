//! Error codes of replies. Reproduces `KeeperException.Code`.

use std::fmt;

/// Why a request failed, as the number in a reply header. Only codes that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum ErrorCode {
    SystemError = -1,
    RuntimeInconsistency = -2,
    Marshalling = -5,
    Unimplemented = -6,
    BadArguments = -8,
    NewConfigNoQuorum = -13,
    ReconfigInProgress = -14,
    NoNode = -101,
    NoAuth = -102,
    BadVersion = -103,
    NoChildrenForEphemerals = -108,
    NodeExists = -110,
    NotEmpty = -111,
    SessionExpired = -112,
    InvalidAcl = -114,
    AuthFailed = -115,
    SessionMoved = -118,
    NotReadOnly = -119,
    EphemeralOnLocalSession = -120,
    NoWatcher = -121,
    ReconfigDisabled = -123,
    SessionClosedRequireSaslAuth = -124,
    QuotaExceeded = -125,
    ThrottledOp = -127,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 24] = [
        Self::SystemError,
        Self::RuntimeInconsistency,
        Self::Marshalling,
        Self::Unimplemented,
        Self::BadArguments,
        Self::NewConfigNoQuorum,
        Self::ReconfigInProgress,
        Self::NoNode,
        Self::NoAuth,
        Self::BadVersion,
        Self::NoChildrenForEphemerals,
        Self::NodeExists,
        Self::NotEmpty,
        Self::SessionExpired,
        Self::InvalidAcl,
        Self::AuthFailed,
        Self::SessionMoved,
        Self::NotReadOnly,
        Self::EphemeralOnLocalSession,
        Self::NoWatcher,
        Self::ReconfigDisabled,
        Self::SessionClosedRequireSaslAuth,
        Self::QuotaExceeded,
        Self::ThrottledOp,
    ];

    /// The code of a number, if it is one.
    #[must_use]
    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as i32 == number)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn wire(self) -> i32 {
        self as i32
    }

    /// ZooKeeper's name for it, as audit lines show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemError => "SYSTEMERROR",
            Self::RuntimeInconsistency => "RUNTIMEINCONSISTENCY",
            Self::Marshalling => "MARSHALLINGERROR",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::BadArguments => "BADARGUMENTS",
            Self::NewConfigNoQuorum => "NEWCONFIGNOQUORUM",
            Self::ReconfigInProgress => "RECONFIGINPROGRESS",
            Self::NoNode => "NONODE",
            Self::NoAuth => "NOAUTH",
            Self::BadVersion => "BADVERSION",
            Self::NoChildrenForEphemerals => "NOCHILDRENFOREPHEMERALS",
            Self::NodeExists => "NODEEXISTS",
            Self::NotEmpty => "NOTEMPTY",
            Self::SessionExpired => "SESSIONEXPIRED",
            Self::InvalidAcl => "INVALIDACL",
            Self::AuthFailed => "AUTHFAILED",
            Self::SessionMoved => "SESSIONMOVED",
            Self::NotReadOnly => "NOTREADONLY",
            Self::EphemeralOnLocalSession => "EPHEMERALONLOCALSESSION",
            Self::NoWatcher => "NOWATCHER",
            Self::ReconfigDisabled => "RECONFIGDISABLED",
            Self::SessionClosedRequireSaslAuth => "SESSIONCLOSEDREQUIRESASLAUTH",
            Self::QuotaExceeded => "QUOTAEXCEEDED",
            Self::ThrottledOp => "THROTTLEDOP",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
