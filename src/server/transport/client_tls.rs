//! The encryption of one client's connection: what is read and written through TLS.
//!
//! *Owns* the session of TLS between a socket and what is sent through it. *Invariants*: it runs in the task of the
//! connection, on the thread that owns the socket, but for handshakes with keys of RSA; nothing is handed on before
//! the handshake is over; what was taken to be written has left when a flush is ready; it holds at most
//! [`TLS_BUFFER_MAX`] of that. *Never* waits by itself: who polls does.

use std::future::poll_fn;
use std::io::{self, BufRead as _, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::server::limits::TLS_BUFFER_MAX;
use crate::supervision::{Task, spawn_blocking};

/// One session. Boxed, so that a connection without one costs a pointer.
#[derive(Debug)]
pub(in crate::server) struct TlsSession(Box<ServerConnection>);

/// A socket as rustls reads and writes it: without waiting.
struct Ready<'a>(&'a TcpStream);

impl Read for Ready<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Ready<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsSession {
    /// Begins one.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(in crate::server) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut session = ServerConnection::new(config)?;
        session.set_buffer_limit(Some(TLS_BUFFER_MAX));
        Ok(Self(Box::new(session)))
    }

    /// The certificates that the client has shown, its own first.
    pub(in crate::server) fn shown(&self) -> &[CertificateDer<'static>] {
        self.0.peer_certificates().unwrap_or_default()
    }

    /// Waits until the handshake is over. `elsewhere`: its steps are computed in another thread, of which so many may
    /// be at work. What it has to say to a client that it refuses has left then, too.
    ///
    /// # Errors
    /// The client is gone, or was refused.
    pub(in crate::server) async fn handshake(
        mut self,
        stream: &TcpStream,
        elsewhere: Option<&Semaphore>,
    ) -> io::Result<Self> {
        while self.0.is_handshaking() {
            poll_fn(|context| self.poll_flush(stream, context)).await?;
            if !self.0.is_handshaking() {
                break;
            }
            if poll_fn(|context| self.poll_bytes(stream, context)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let decided;
            (self, decided) = match elsewhere {
                None => self.decided(),
                Some(places) => {
                    // It is closed with the server.
                    let _place = places.acquire().await.map_err(io::Error::other)?;
                    spawn_blocking(Task::Handshake, move || self.decided())
                        .await
                        .map_err(io::Error::other)?
                }
            };
            if let Err(error) = decided {
                // It is told so as far as that is possible without waiting.
                let _ = poll_fn(|context| Poll::Ready(self.poll_flush(stream, context))).await;
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        poll_fn(|context| self.poll_flush(stream, context)).await?;
        Ok(self)
    }

    /// Takes what was read.
    fn decided(mut self) -> (Self, Result<(), rustls::Error>) {
        let decided = self.0.process_new_packets().map(drop);
        (self, decided)
    }

    /// Appends what has come, at most as much as there is room for. 0: the client has ended it.
    pub(in crate::server) fn poll_read(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            let room = buffer.spare_capacity_mut().len();
            let mut reader = self.0.reader();
            match reader.fill_buf() {
                Ok(come) => {
                    let read = come.len().min(room);
                    buffer.extend_from_slice(&come[..read]);
                    reader.consume(read);
                    return Poll::Ready(Ok(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            if ready!(self.poll_records(stream, context))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Takes what it has room for.
    pub(in crate::server) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.writer().write(bytes)
    }

    /// Says that nothing more comes, behind what was taken: a client can tell that from a connection that was cut.
    pub(in crate::server) fn say_end(&mut self) {
        self.0.send_close_notify();
    }

    /// Ready when everything that was taken has left.
    pub(in crate::server) fn poll_flush(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Ready(stream)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from the socket once and decrypts. A client that breaks the rules is told so, as far as that is possible.
    fn poll_records(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let read = ready!(self.poll_bytes(stream, context))?;
        if let Err(error) = self.0.process_new_packets() {
            let _ = self.poll_flush(stream, context);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(read))
    }

    /// Reads from the socket once.
    fn poll_bytes(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.read_tls(&mut Ready(stream)) {
                Ok(read) => return Poll::Ready(Ok(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
