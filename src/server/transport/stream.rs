//! A connection between servers, with TLS or without: the one place that knows the difference.
//!
//! *Owns* the socket, and the session of TLS over it. *Invariants*: what is read and written goes through TLS where
//! there is a session, in every form that the connection takes: whole, in two halves, and on a thread that waits.
//! *Never* decides who may speak.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::StreamOwned;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

/// See the module.
#[derive(Debug)]
pub(in crate::server) enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// With it.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The half that reads.
#[derive(Debug)]
pub(in crate::server) enum Reader {
    /// Without TLS.
    Plain(OwnedReadHalf),
    /// With it.
    Tls(ReadHalf<Box<TlsStream<TcpStream>>>),
}

/// The half that writes.
#[derive(Debug)]
pub(in crate::server) enum Writer {
    /// Without TLS.
    Plain(OwnedWriteHalf),
    /// With it: only its owner may write.
    Tls(tokio::sync::Mutex<WriteHalf<Box<TlsStream<TcpStream>>>>),
}

impl Stream {
    /// The socket.
    pub(in crate::server) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Whether what is said goes through TLS.
    pub(in crate::server) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The certificate that the other side has shown, and that is trusted.
    pub(in crate::server) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.get_ref().1.peer_certificates()?.first(),
        }
    }

    /// As two halves.
    pub(in crate::server) fn into_split(self) -> (Reader, Writer) {
        match self {
            Self::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (Reader::Plain(reader), Writer::Plain(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = split(stream);
                (Reader::Tls(reader), Writer::Tls(tokio::sync::Mutex::new(writer)))
            }
        }
    }

    /// For a thread that waits for it.
    ///
    /// # Errors
    /// The system refuses.
    pub(in crate::server) fn into_waiting(self) -> io::Result<WaitingStream> {
        let waiting = |socket: TcpStream| {
            let socket = socket.into_std()?;
            socket.set_nonblocking(false)?;
            io::Result::Ok(socket)
        };
        let (socket, session): (_, Option<Box<dyn Session>>) = match self {
            Self::Plain(stream) => (waiting(stream)?, None),
            Self::Tls(stream) => match *stream {
                TlsStream::Client(stream) => {
                    let (socket, session) = stream.into_inner();
                    let socket = waiting(socket)?;
                    let session = StreamOwned::new(session, socket.try_clone()?);
                    (socket, Some(Box::new(session)))
                }
                TlsStream::Server(stream) => {
                    let (socket, session) = stream.into_inner();
                    let socket = waiting(socket)?;
                    let session = StreamOwned::new(session, socket.try_clone()?);
                    (socket, Some(Box::new(session)))
                }
            },
        };
        Ok(WaitingStream { socket, session: session.map(RefCell::new) })
    }

    /// Where the other side is.
    pub(in crate::server) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket().peer_addr()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(reader) => Pin::new(reader).poll_read(context, buffer),
            Self::Tls(reader) => Pin::new(reader).poll_read(context, buffer),
        }
    }
}

/// A session of TLS over a socket, of either end.
trait Session: Read + Write + Send {}

impl<S: Read + Write + Send> Session for S {}

/// A connection on a thread that waits for it. Reads and writes take turns: the thread is one.
pub(in crate::server) struct WaitingStream {
    socket: std::net::TcpStream,
    session: Option<RefCell<Box<dyn Session>>>,
}

impl WaitingStream {
    /// The socket, for its options and its end.
    pub(in crate::server) fn socket(&self) -> &std::net::TcpStream {
        &self.socket
    }
}

impl Read for &WaitingStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.session {
            None => (&self.socket).read(bytes),
            Some(session) => session.borrow_mut().read(bytes),
        }
    }
}

impl Write for &WaitingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => (&self.socket).write(bytes),
            Some(session) => session.borrow_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.session {
            None => (&self.socket).flush(),
            Some(session) => session.borrow_mut().flush(),
        }
    }
}
