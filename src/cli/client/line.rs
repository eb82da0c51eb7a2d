//! The bytes of a connection, with or without TLS, between one thread that reads and one that writes.
//!
//! *Owns* the socket and the session of TLS. *Invariants*: the session is never held while a read waits, so what one
//! thread has to send does not wait for what the other one is to receive; nothing waits longer than the socket's
//! limits.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::{ClientConfig, ClientConnection};

use crate::tls;

/// Bytes of records that are taken from the socket at once.
const RECORDS_BYTES: usize = 4096;

/// One end of it: two are of one connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    session: Option<Arc<Mutex<ClientConnection>>>,
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
        let session = config.map(|config| tls::session(config, host)).transpose()?;
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
            let taken = session.writer().write(bytes)?;
            bytes = &bytes[taken..];
            write_out(&mut session, &mut self.stream)?;
        }
        Ok(())
    }

    /// Reads what has come, at least a byte. 0: the other side has ended it.
    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.stream.read(out) };
        loop {
            {
                let mut session = lock(session);
                match session.reader().read(out) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                write_out(&mut session, &mut self.stream)?;
            }
            let mut records = [0; RECORDS_BYTES];
            let length = self.stream.read(&mut records)?;
            let mut records = &records[..length];
            let mut session = lock(session);
            loop {
                session.read_tls(&mut records)?;
                if let Err(error) = session.process_new_packets() {
                    // The server is told why, as far as that is possible.
                    let _ = write_out(&mut session, &mut self.stream);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                if records.is_empty() {
                    break;
                }
            }
        }
    }
}

fn lock(session: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_out(session: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(stream)?;
    }
    Ok(())
}
