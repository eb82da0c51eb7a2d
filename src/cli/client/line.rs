//! The bytes of a connection, with or without TLS, between one thread that reads and one that writes.
//!
//! *Owns* the socket and the session of TLS. *Invariants*: the session is never held while a read waits, so what one
//! thread has to send does not wait for what the other one is to receive; nothing waits longer than the socket's
//! limits.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ClientConfig;

use crate::tls::Session;

/// Bytes of records that are taken from the socket at once.
const RECORDS_BYTES: usize = 4096;

/// One end of it: two are of one connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    session: Option<Arc<Mutex<Session>>>,
}

impl Line {
    /// Over a socket that is connected to this host.
    ///
    /// # Errors
    /// The host is no name that a certificate could have.
    pub(super) fn new(
        stream: TcpStream,
        host: &str,
        config: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let session = config.map(|config| Session::with(config, host)).transpose()?;
        Ok(Self { stream, session: session.map(|session| Arc::new(Mutex::new(session))) })
    }

    /// The other end, for another thread. Their time limits are one.
    pub(super) fn another(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, session: self.session.clone() })
    }

    /// The socket.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends all of it.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &self.session else { return self.stream.write_all(bytes) };
        let mut session = lock(session);
        while !bytes.is_empty() {
            let taken = session.take(bytes)?;
            bytes = &bytes[taken..];
            session.write_out(&mut self.stream)?;
        }
        Ok(())
    }

    /// Reads what has come, at least a byte. 0: the other side has ended it.
    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.stream.read(out) };
        loop {
            {
                let mut session = lock(session);
                match session.read(out) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                session.write_out(&mut self.stream)?;
            }
            let mut records = [0; RECORDS_BYTES];
            let length = self.stream.read(&mut records)?;
            let mut records = &records[..length];
            let mut session = lock(session);
            loop {
                session.receive(&mut records)?;
                session.decrypt_or_tell(&mut self.stream)?;
                if records.is_empty() {
                    break;
                }
            }
        }
    }
}

fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
