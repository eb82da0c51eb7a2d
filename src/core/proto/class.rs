//! What kind of request a request is: the one place that sorts them all.
//!
//! *Owns* [`RequestClass`]. Whether a request goes into the log, waits for a quorum or may be asked of a
//! server without one follows from its class and is decided where that is done.

use super::request::Request;

/// What a server has to do for a request, as far as it depends on nothing but its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// It changes znodes, and is decided in the log: creates, `delete`, `setData`, `setACL`, `multi`.
    Write,
    /// It reads znodes, perhaps with a watch left: `exists`, `getData`, `getACL`, `getChildren`,
    /// `getEphemerals`, `getAllChildrenNumber`, `multiRead`.
    Read,
    /// `sync`: all that was acknowledged before it is visible after it.
    Sync,
    /// `reconfig`: it changes the members, and is decided in the log where that is offered.
    Reconfig,
    /// It changes or looks at the watches of its connection, and reads no znode for its reply:
    /// `addWatch`, `checkWatches`, `removeWatches`, `setWatches`.
    Watch,
    /// It proves who the client is: `auth`, `sasl`. It is executed when it arrives, outside of the order.
    Auth,
    /// It asks only the connection: `ping`, `whoAmI`.
    Connection,
    /// `closeSession`: it ends the session in the log, and the connection with it.
    CloseSession,
}

impl Request {
    /// Its class. No other place matches on all requests to sort them.
    #[must_use]
    pub fn class(&self) -> RequestClass {
        match self {
            Self::Create(_)
            | Self::Delete { .. }
            | Self::SetData { .. }
            | Self::SetAcl { .. }
            | Self::Multi(_) => RequestClass::Write,
            Self::Exists { .. }
            | Self::GetData { .. }
            | Self::GetAcl { .. }
            | Self::GetChildren { .. }
            | Self::GetEphemerals { .. }
            | Self::GetAllChildrenNumber { .. }
            | Self::MultiRead(_) => RequestClass::Read,
            Self::Sync { .. } => RequestClass::Sync,
            Self::Reconfig { .. } => RequestClass::Reconfig,
            Self::AddWatch { .. }
            | Self::CheckWatches { .. }
            | Self::RemoveWatches { .. }
            | Self::SetWatches { .. } => RequestClass::Watch,
            Self::Auth { .. } | Self::Sasl { .. } => RequestClass::Auth,
            Self::Ping | Self::WhoAmI => RequestClass::Connection,
            Self::CloseSession => RequestClass::CloseSession,
        }
    }
}
