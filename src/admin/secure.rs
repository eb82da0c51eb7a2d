//! TLS of an HTTP port.
//!
//! *Owns* whether a connection is encrypted, its handshake, and the stream behind that. *Invariants*: a port that takes
//! TLS alone answers nothing in plain text; a handshake takes no longer than the head of a request may; a certificate
//! counts only where one is asked for, and then it was verified. *Never* makes a configuration of TLS: it is given one.
//! Reproduces `UnifiedConnectionFactory`, and the connector of TLS of `JettyAdminServer`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::idle::{Activity, Patience, WatchedStream};
use crate::tls::Reloadable;

/// The first byte of a client that speaks TLS.
const HANDSHAKE: u8 = 0x16;

/// What a port speaks TLS by.
#[derive(Clone, Debug)]
pub(crate) struct PortTls {
    /// What new connections are served by.
    pub(crate) source: Arc<Reloadable>,
    /// Whether plain text is taken as well.
    pub(crate) takes_plain: bool,
}

/// A connection with a client.
pub(super) enum Line {
    /// In plain text.
    Plain(WatchedStream<TcpStream>),
    /// Through TLS.
    Encrypted(Box<TlsStream<WatchedStream<TcpStream>>>),
}

impl Line {
    /// With the handshake behind it, if there is to be one.
    ///
    /// # Errors
    /// It came to nothing, or took too long.
    pub(super) async fn open(
        stream: TcpStream,
        activity: Arc<Activity>,
        patience: Patience,
        tls: Option<&PortTls>,
    ) -> io::Result<Self> {
        let watched = |stream| WatchedStream::new(stream, activity, patience);
        let Some(tls) = tls else { return Ok(Self::Plain(watched(stream))) };
        let opened = timeout(patience.request, async {
            if tls.takes_plain && !begins_with_tls(&stream).await? {
                return Ok(Self::Plain(watched(stream)));
            }
            let acceptor = TlsAcceptor::from(tls.source.current().config);
            Ok(Self::Encrypted(Box::new(acceptor.accept(watched(stream)).await?)))
        });
        opened.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Whether the client has shown a certificate that is trusted.
    pub(super) fn is_proven(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Encrypted(stream) => stream.get_ref().1.peer_certificates().is_some(),
        }
    }
}

async fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let length = stream.peek(&mut first).await?;
    Ok(length == 1 && first[0] == HANDSHAKE)
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    /// Head and body of a long answer need not be copied into one.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
        }
    }
}
