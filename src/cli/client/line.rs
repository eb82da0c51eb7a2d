//! The bytes of a connection, with or without TLS, between one thread that reads and one that writes.
//!
//! *Owns* how a socket to a server comes about, the socket, and the session of TLS. *Invariants*: the session is never
//! held while a read waits, so what one thread has to send does not wait for what the other one is to receive; nothing
//! waits longer than the socket's limits.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;

use crate::config::HostPort;
use crate::tls::Session;

/// Longest time for a connection to come about.
pub(in crate::cli) const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Text about a name that resolves to nothing.
pub(super) const NO_ADDRESS: &str = "the name has no address";
/// Bytes of records that are taken from the socket at once.
const RECORDS_BYTES: usize = 4096;

/// The first address of a server.
///
/// # Errors
/// The resolver's.
#[cfg(feature = "bench")]
pub(in crate::cli) fn resolve(server: &HostPort) -> io::Result<std::net::SocketAddr> {
    let mut addresses = (server.host.as_str(), server.port).to_socket_addrs()?;
    addresses.next().ok_or_else(|| io::Error::other(NO_ADDRESS))
}

/// A connection to the first address of a server that takes one.
///
/// # Errors
/// The last address's, or the resolver's.
pub(in crate::cli) fn open(server: &HostPort, wait_max: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other(NO_ADDRESS);
    for address in (server.host.as_str(), server.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, wait_max) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// One end of it: two are of one connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    session: Option<Arc<Mutex<Session>>>,
}

impl Line {
    /// To a server; nothing waits for longer than `wait_max` there.
    ///
    /// # Errors
    /// The connection does not come about, or the host is no name that a certificate could have.
    pub(super) fn open(
        server: &HostPort,
        config: Option<&Arc<ClientConfig>>,
        wait_max: Duration,
    ) -> io::Result<Self> {
        let stream = open(server, CONNECT_MAX)?;
        stream.set_read_timeout(Some(wait_max))?;
        stream.set_write_timeout(Some(wait_max))?;
        stream.set_nodelay(true)?;
        let session = config.map(|config| Session::with(config, &server.host)).transpose()?;
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
