//! A connection between servers, in every form that it takes: whole, in two halves, and on a thread that waits.
//!
//! *Owns* the halves, and the socket and the session of TLS of a thread. *Invariant*: what is read and written goes
//! through TLS where there is a session. *Never* decides who may speak.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use tokio::io::{AsyncRead, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio_rustls::TlsStream;

use crate::tls::{self, Session};

/// See the module.
pub(in crate::server) type Stream = tls::Stream<TcpStream>;

/// The half that reads.
pub(in crate::server) type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// The half that writes.
#[derive(Debug)]
pub(in crate::server) enum Writer {
    /// Without TLS.
    Plain(OwnedWriteHalf),
    /// With it: only its owner may write.
    Tls(tokio::sync::Mutex<WriteHalf<Box<TlsStream<TcpStream>>>>),
}

impl Stream {
    /// As two halves.
    pub(in crate::server) fn into_split(self) -> (Reader, Writer) {
        match self {
            Self::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Writer::Plain(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = split(stream);
                (Box::new(reader), Writer::Tls(tokio::sync::Mutex::new(writer)))
            }
        }
    }

    /// For a thread that waits for it.
    ///
    /// # Errors
    /// The system refuses.
    pub(in crate::server) fn into_waiting(self) -> io::Result<WaitingStream> {
        let (socket, session) = match self {
            Self::Plain(stream) => (stream, None),
            Self::Tls(stream) => match *stream {
                TlsStream::Client(stream) => {
                    let (socket, session) = stream.into_inner();
                    (socket, Some(Session::of(session)))
                }
                TlsStream::Server(stream) => {
                    let (socket, session) = stream.into_inner();
                    (socket, Some(Session::of(session)))
                }
            },
        };
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        Ok(WaitingStream { socket, session: session.map(RefCell::new) })
    }

    /// Where the other side is.
    pub(in crate::server) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket().peer_addr()
    }
}

/// A connection on a thread that waits for it. Reads and writes take turns: the thread is one.
pub(in crate::server) struct WaitingStream {
    socket: std::net::TcpStream,
    session: Option<RefCell<Session>>,
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
            Some(session) => session.borrow_mut().read_through(&mut &self.socket, true, bytes),
        }
    }
}

impl Write for &WaitingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => (&self.socket).write(bytes),
            Some(session) => session.borrow_mut().write_through(&mut &self.socket, true, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.session {
            None => (&self.socket).flush(),
            Some(session) => session.borrow_mut().write_out(&mut &self.socket),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use rustls::pki_types::ServerName;
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::tls::{ClientAuth, ListenerSettings, PasswordSource, Reloadable, Store};

    /// Larger than what either end holds back.
    const BYTES: usize = 3 << 20;

    async fn plain() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (stream.unwrap(), accepted.unwrap().0)
    }

    async fn encrypted() -> (Stream, Stream) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(&path, certificate.pem() + &key.serialize_pem()).unwrap();
        let store = Store { path, kind: None, password: PasswordSource::default() };
        let loaded = Reloadable::load(ListenerSettings {
            key_store: store.clone(),
            trust_store: Some(store),
            client_auth: ClientAuth::Need,
            protocols: Vec::new(),
            cipher_suites: Vec::new(),
            crl_file: None,
            connects: true,
        });
        let loaded = loaded.unwrap().current();
        let (one, other) = plain().await;
        let name = ServerName::try_from("localhost").unwrap();
        let (one, other) = tokio::join!(
            TlsConnector::from(loaded.client.unwrap()).connect(name, one),
            TlsAcceptor::from(loaded.config).accept(other),
        );
        let tls = |stream: TlsStream<TcpStream>| Stream::Tls(Box::new(stream));
        (tls(one.unwrap().into()), tls(other.unwrap().into()))
    }

    #[tokio::test]
    async fn what_a_thread_sends_comes_whole_to_one_that_waits_in_both_directions() {
        let (one, other) = plain().await;
        for (one, other) in [(Stream::Plain(one), Stream::Plain(other)), encrypted().await] {
            assert_eq!(one.is_tls(), one.certificate().is_some());
            let (one, other) = (one.into_waiting().unwrap(), other.into_waiting().unwrap());
            let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            let echo = thread::spawn(move || {
                let mut heard = vec![0; BYTES];
                (&other).read_exact(&mut heard).unwrap();
                (&other).write_all(&heard).unwrap();
                (&other).flush().unwrap();
            });
            (&one).write_all(&bytes).unwrap();
            (&one).flush().unwrap();
            let mut heard = vec![0; BYTES];
            (&one).read_exact(&mut heard).unwrap();
            assert!(heard == bytes);
            echo.join().unwrap();
            assert!((&one).read(&mut [0]).is_ok_and(|read| read == 0) || one.session.is_some());
        }
    }
}
