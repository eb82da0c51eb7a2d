//! The encryption of one client's connection: what is read and written through TLS.
//!
//! *Owns* the session of TLS between a socket and what is sent through it. *Invariants*: it runs in the task of the
//! connection, on the thread that owns the socket, but for handshakes with keys of RSA; nothing is handed on before
//! the handshake is over; what was taken to be written has left when a flush is ready; it holds at most
//! [`TLS_BUFFER_MAX`] of that. *Never* waits by itself: who polls does.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::server::limits::TLS_BUFFER_MAX;
use crate::supervision::{Task, spawn_blocking};
use crate::tls::Session;

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

/// Begins a session with a client.
///
/// # Errors
/// The configuration cannot be used.
pub(super) fn begin(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
    let mut session = ServerConnection::new(config)?;
    session.set_buffer_limit(Some(TLS_BUFFER_MAX));
    Ok(Session::of(session))
}

impl Session {
    /// Waits until the handshake is over. `elsewhere`: its steps are computed in another thread, of which so many may
    /// be at work. What it has to say to a client that it refuses has left then, too.
    ///
    /// # Errors
    /// The client is gone, or was refused.
    pub(super) async fn handshake(
        mut self,
        stream: &TcpStream,
        elsewhere: Option<&Semaphore>,
    ) -> io::Result<Self> {
        while self.is_handshaking() {
            poll_fn(|context| self.poll_flush(stream, context)).await?;
            if !self.is_handshaking() {
                break;
            }
            if poll_fn(|context| self.poll_receive(stream, context)).await? == 0 {
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
                let _ = self.write_out(&mut Ready(stream));
                return Err(error);
            }
        }
        poll_fn(|context| self.poll_flush(stream, context)).await?;
        Ok(self)
    }

    /// Takes what was read.
    fn decided(mut self) -> (Self, io::Result<()>) {
        let decided = self.decrypt();
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
            let take = |come: &[u8]| {
                let come = &come[..come.len().min(room)];
                buffer.extend_from_slice(come);
                come.len()
            };
            match self.read_by(take) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            let received = ready!(self.poll_receive(stream, context))?;
            self.decrypt_or_tell(&mut Ready(stream))?;
            if received == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Ready when everything that was taken has left.
    pub(in crate::server) fn poll_flush(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.write_out(&mut Ready(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(context))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    /// Reads from the socket once.
    fn poll_receive(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.receive(&mut Ready(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_read_ready(context))?;
                }
                received => return Poll::Ready(received),
            }
        }
    }
}
