//! Tokens of Kerberos (SASL GSSAPI), judged beside the driver.
//!
//! *Owns* the way of a token from the replica to the thread that judges it, and back. *Invariant*: without a key there
//! is no thread. *Never* decides what a proved name may do:
//! that is the replica's.

#[cfg(any(test, feature = "gssapi"))]
mod acceptor;
#[cfg(feature = "gssapi")]
mod kerberos;

use tokio::sync::mpsc;

use crate::replica::{ConnId, Input};
use crate::sasl::ServiceKey;
#[cfg(not(feature = "gssapi"))]
use crate::sasl::Verdict;
use crate::server::mailbox::Message;

#[cfg(feature = "gssapi")]
use acceptor::Acceptor;
#[cfg(feature = "gssapi")]
pub use kerberos::{KEY_TAB_VARIABLE, is_in_environment};

/// What judges tokens, if anything does.
#[derive(Debug, Default)]
pub(super) struct Gssapi {
    #[cfg(feature = "gssapi")]
    acceptor: Option<Acceptor>,
}

#[cfg(feature = "gssapi")]
impl Gssapi {
    /// With the service of this key, if there is one.
    ///
    /// # Errors
    /// Why the key cannot be used.
    pub(super) fn start(
        service: Option<&ServiceKey>,
        messages: mpsc::Sender<Message>,
    ) -> Result<Self, String> {
        let Some(service) = service else { return Ok(Self::default()) };
        let kerberos = kerberos::Kerberos::open(service)?;
        let begin = move || kerberos.exchange();
        let acceptor = Acceptor::start(begin, messages).map_err(|error| error.to_string())?;
        Ok(Self { acceptor: Some(acceptor) })
    }

    /// Has a token judged. The answer, if it is there at once.
    pub(super) fn judge(&self, conn: ConnId, token: Vec<u8>) -> Option<Input> {
        // The replica hands tokens out by the same key.
        self.acceptor.as_ref()?.judge(conn, token);
        None
    }

    /// Nothing more comes of this connection.
    pub(super) fn closed(&self, conn: ConnId) {
        if let Some(acceptor) = &self.acceptor {
            acceptor.closed(conn);
        }
    }
}

/// A build without GSSAPI has no key, and no replica that asks.
#[cfg(not(feature = "gssapi"))]
impl Gssapi {
    pub(super) fn start(
        _service: Option<&ServiceKey>,
        _messages: mpsc::Sender<Message>,
    ) -> Result<Self, String> {
        Ok(Self::default())
    }

    pub(super) fn judge(&self, conn: ConnId, _token: Vec<u8>) -> Option<Input> {
        Some(Input::SaslJudged { conn, verdict: Verdict::Refused })
    }

    pub(super) fn closed(&self, _conn: ConnId) {}
}
