//! A session of TLS, of either end, apart from who waits for its socket; and a client's line over a socket.
//!
//! *Owns* the order in which records are read, decrypted, encrypted and written. *Invariant*: a read that has nothing
//! to give behaves as the socket does, so a loop over sockets that do not wait needs to know nothing. *Never* waits by
//! itself: the socket does, or who polls it.

use std::io::{self, BufRead as _, Read, Write};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, CommonState, Connection};

/// A session of TLS. Boxed, so that a connection without one costs a pointer.
#[derive(Debug)]
pub(crate) struct Session(Box<Connection>);

impl Deref for Session {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        &self.0
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut CommonState {
        &mut self.0
    }
}

impl Session {
    /// Goes on with a connection of rustls.
    pub(crate) fn of(connection: impl Into<Connection>) -> Self {
        Self(Box::new(connection.into()))
    }

    /// A client's, with this host.
    ///
    /// # Errors
    /// The host is no name that a certificate could have.
    pub(crate) fn with(config: &Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(Arc::clone(config), name).map(Self::of).map_err(io::Error::other)
    }

    /// Reads what is decrypted. An error that says that it would block: nothing is.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.reader().read(out)
    }

    /// Shows what is decrypted to `take`, which says how much of it was taken.
    pub(crate) fn read_by(&mut self, take: impl FnOnce(&[u8]) -> usize) -> io::Result<usize> {
        let mut reader = self.0.reader();
        let taken = take(reader.fill_buf()?);
        reader.consume(taken);
        Ok(taken)
    }

    /// Takes what it has room for, to be encrypted.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.writer().write(bytes)
    }

    /// Reads records from the socket once.
    pub(crate) fn receive(&mut self, socket: &mut impl Read) -> io::Result<usize> {
        self.0.read_tls(socket)
    }

    /// Decrypts what was received.
    pub(crate) fn decrypt(&mut self) -> io::Result<()> {
        let decrypted = self.0.process_new_packets();
        decrypted.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The same. An other side that breaks the rules is told why, as far as that is possible.
    pub(crate) fn decrypt_or_tell(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.decrypt().inspect_err(|_| drop(self.write_out(socket)))
    }

    /// Writes everything that it has to say.
    ///
    /// # Errors
    /// The socket's; what it does not take now is for the next call.
    pub(crate) fn write_out(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Reads through a socket: from one that waits what is there first, from any other one all that is there.
    pub(crate) fn read_through<S: Read + Write>(
        &mut self,
        socket: &mut S,
        waits: bool,
        out: &mut [u8],
    ) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
            if filled == out.len() || (filled > 0 && waits) {
                break;
            }
            self.flush_through(socket, waits)?;
            match self.receive(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled > 0 => break,
                received => received?,
            };
            self.decrypt_or_tell(socket)?;
        }
        Ok(filled)
    }

    /// Writes through a socket what it has room for.
    pub(crate) fn write_through(
        &mut self,
        socket: &mut impl Write,
        waits: bool,
        bytes: &[u8],
    ) -> io::Result<usize> {
        self.flush_through(socket, waits)?;
        match self.take(bytes)? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            taken => {
                // They are in the session: an error here would have them written twice. The next call meets it again.
                let _ = self.flush_through(socket, waits);
                Ok(taken)
            }
        }
    }

    /// Writes what it has to say, as far as the socket takes it: one that waits takes all.
    fn flush_through(&mut self, socket: &mut impl Write, waits: bool) -> io::Result<()> {
        match self.write_out(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !waits => Ok(()),
            written => written,
        }
    }
}

/// A client's end of a connection, with or without TLS.
#[derive(Debug)]
pub(crate) struct ClientLine<S> {
    stream: S,
    session: Option<Session>,
    /// Whether reads of the socket wait.
    waits: bool,
}

impl<S: Read + Write> ClientLine<S> {
    /// Over a socket whose reads wait.
    pub(crate) fn new(stream: S, session: Option<Session>) -> Self {
        Self { stream, session, waits: true }
    }

    /// Over the same as another kind of socket, whose reads do not wait from now on.
    pub(crate) fn without_waiting<T>(self, change: impl FnOnce(S) -> T) -> ClientLine<T> {
        ClientLine { stream: change(self.stream), session: self.session, waits: false }
    }

    /// The socket.
    pub(crate) fn socket(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: Read + Write> Read for ClientLine<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.read(out),
            Some(session) => session.read_through(&mut self.stream, self.waits, out),
        }
    }
}

impl<S: Read + Write> Write for ClientLine<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.write(bytes),
            Some(session) => session.write_through(&mut self.stream, self.waits, bytes),
        }
    }

    /// Hands on what was taken; what the socket does not take stays, and is for the next call.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => Ok(()),
            Some(session) => session.flush_through(&mut self.stream, self.waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::crypto::ring::default_provider;

    use super::*;

    /// A socket that a signal interrupts once, and that fails after it has taken some records.
    #[derive(Default)]
    struct Socket {
        calls: usize,
        fails_from: usize,
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            match self.calls {
                1 => Err(io::ErrorKind::Interrupted.into()),
                call if call >= self.fails_from => Err(io::ErrorKind::BrokenPipe.into()),
                _ => Ok(bytes.len()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn session() -> Session {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Session::with(&Arc::new(config), "localhost").unwrap()
    }

    #[test]
    fn bytes_that_the_session_has_taken_are_never_an_error_that_has_them_written_again() {
        let mut session = session();
        let mut socket = Socket { calls: 0, fails_from: 3 };
        assert_eq!(session.write_through(&mut socket, true, b"abc").unwrap(), 3);
        assert_eq!(socket.calls, 2, "interrupted, and then the hello");
        // An error of the socket comes before anything else is taken.
        session.0.send_close_notify();
        let failed = session.write_through(&mut socket, true, b"def").unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
    }
}
