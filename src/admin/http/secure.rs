//! TLS of an HTTP port.
//!
//! *Owns* whether a connection is encrypted, and its handshake. *Invariants*: a port that takes
//! TLS alone answers nothing in plain text; a handshake takes no longer than the head of a request may; a certificate
//! counts only where one is asked for, and then it was verified. *Never* makes a configuration of TLS: it is given one.
//! Reproduces `UnifiedConnectionFactory`, and the connector of TLS of `JettyAdminServer`.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::idle::{Activity, Patience, WatchedStream};
use crate::tls::{self, Reloadable, begins_with_tls};

/// TLS settings of a port.
#[derive(Clone, Debug)]
pub(crate) struct PortTls {
    /// TLS settings of new connections.
    pub(crate) source: Arc<Reloadable>,
    /// Whether plain text is taken as well.
    pub(crate) takes_plain: bool,
}

/// A connection with a client.
pub(super) type Line = tls::Stream<WatchedStream<TcpStream>>;

/// Opens a connection, with the handshake behind it, if there is to be one.
///
/// # Errors
/// It came to nothing, or took too long.
pub(super) async fn open(
    stream: TcpStream,
    activity: Arc<Activity>,
    patience: Patience,
    tls: Option<&PortTls>,
) -> io::Result<Line> {
    let watched = |stream| WatchedStream::new(stream, activity, patience);
    let Some(tls) = tls else { return Ok(Line::Plain(watched(stream))) };
    let opened = timeout(patience.request, async {
        if tls.takes_plain && begins_with_tls(&stream).await? != Some(true) {
            return Ok(Line::Plain(watched(stream)));
        }
        let acceptor = TlsAcceptor::from(tls.source.current().config);
        Ok(Line::Tls(Box::new(acceptor.accept(watched(stream)).await?.into())))
    });
    opened.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
