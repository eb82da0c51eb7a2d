//! The ports that clients come in by, and what each of them speaks.
//!
//! *Owns* the sockets, bound and then listened at. *Invariants*: all are bound before the data is touched; a port of
//! TLS is never one of plain text, whatever fails. *Never* counts a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use crate::server::error::StartError;
use crate::server::ports::{Port, accept_from};
use crate::server::transport::Protection;
use crate::tls::Reloadable;

/// Bound ports that are not listened at.
#[derive(Debug)]
pub(crate) struct Ports {
    /// The one that members of an ensemble are told of.
    main: Port,
    speaks: Protection,
    /// The one of `secureClientPort` beside it.
    secure: Option<(Port, Arc<Reloadable>)>,
}

/// What is listened at.
#[derive(Debug)]
pub(crate) struct Listeners {
    main: Option<TcpListener>,
    speaks: Protection,
    secure: Option<(TcpListener, Protection)>,
}

impl Ports {
    /// Of bound ones. `secure`: where nothing but TLS is spoken, beside the main one.
    pub(crate) fn new(
        main: Port,
        speaks: Protection,
        secure: Option<(Port, Arc<Reloadable>)>,
    ) -> Self {
        Self { main, speaks, secure }
    }

    /// Where the main one is bound.
    pub(crate) fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// Where nothing but TLS is spoken.
    pub(crate) fn secure_address(&self) -> Option<SocketAddr> {
        match (&self.secure, &self.speaks) {
            (Some((port, _)), _) => Some(port.address),
            (None, Protection::Tls(_)) => Some(self.main.address),
            (None, _) => None,
        }
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// What the system says: another process may have taken a port since. With the port's address.
    pub(crate) fn listen(self, backlog: u32) -> Result<Listeners, StartError> {
        let listen = |port: Port| {
            let address = port.address.to_string();
            port.listen(backlog).map_err(|error| StartError::Address { address, error })
        };
        let main = Some(listen(self.main)?);
        let secure = match self.secure {
            Some((port, tls)) => Some((listen(port)?, Protection::Tls(tls))),
            None => None,
        };
        Ok(Listeners { main, speaks: self.speaks, secure })
    }
}

impl Listeners {
    /// Waits for a connection at any of them, and says what is spoken there.
    ///
    /// # Errors
    /// What the system says.
    pub(super) async fn next(&self) -> io::Result<(TcpStream, SocketAddr, Protection)> {
        let secure = self.secure.as_ref();
        // Neither is before the other.
        let (accepted, speaks) = tokio::select! {
            accepted = next_of(self.main.as_ref()) => (accepted?, &self.speaks),
            accepted = next_of(secure.map(|(listener, _)| listener)) => {
                (accepted?, secure.map_or(&self.speaks, |(_, speaks)| speaks))
            }
        };
        Ok((accepted.0, accepted.1, speaks.clone()))
    }

    /// Has the main one be another socket, or none.
    pub(super) fn move_main(&mut self, listener: Option<TcpListener>) {
        self.main = listener;
    }
}

/// Never, while there is no socket.
async fn next_of(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => accept_from(listener).await,
        None => std::future::pending().await,
    }
}
