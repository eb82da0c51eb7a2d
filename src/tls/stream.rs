//! A connection of the runtime, with TLS or without: the one place that knows the difference.
//!
//! *Owns* what it goes over, and the session of TLS over that. *Invariant*: what is read and written goes through TLS
//! where there is a session. *Never* decides who may speak.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The first byte of a handshake of TLS: the kind of its records.
const HANDSHAKE: u8 = 0x16;

/// Waits for the first byte: whether it begins TLS. `None`: the other side has said nothing and left.
pub(crate) async fn begins_with_tls(stream: &TcpStream) -> io::Result<Option<bool>> {
    let mut first = [0];
    let come = stream.peek(&mut first).await?;
    Ok((come > 0).then_some(first == [HANDSHAKE]))
}

/// See the module.
#[derive(Debug)]
pub(crate) enum Stream<S> {
    /// Without TLS.
    Plain(S),
    /// With it.
    Tls(Box<TlsStream<S>>),
}

/// What a connection with or without TLS does.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

impl<S> Stream<S> {
    /// What it goes over.
    pub(crate) fn socket(&self) -> &S {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Whether what is said goes through TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The certificate that the other side has shown, and that is trusted.
    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.get_ref().1.peer_certificates()?.first(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut (dyn Duplex + '_)> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(&mut **stream),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(context)
    }

    /// Head and body of a long answer need not be copied into one.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
