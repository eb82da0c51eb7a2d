//! A client of the servers, for commands that ask one thing and end.
//!
//! *Owns* one connection at a time, blocking, with a session that is closed at the end; `session.rs`
//! is a session that lasts, for commands that stay. *Invariants*: nothing waits for ever; an answer
//! that was lost is told apart from a refusal, because only then is the outcome unknown. *Never* asks
//! again by itself: the caller knows whether that is harmless.

mod connection;
mod diagnosis;
mod line;
mod login;
mod session;
mod watches;

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::ClientConfig;

use super::credential::Credential;
use super::flags::Access;
use crate::config::HostPort;
use crate::proto::request::{XID_AUTH, XID_EVENT};
use crate::proto::response::ReplyHeader;
use crate::proto::{ConnectRequest, ErrorCode, Reader, Request, Response};
use crate::sasl::Disbelief;
use connection::{Connection, request_frame};

pub(super) use connection::CONNECT_MAX;
pub(super) use diagnosis::Port;
pub(super) use session::{Notice, Phase, Session, Wish};
pub(super) use watches::Removed;

/// How long servers are asked again that answer but do not serve: an election is shorter.
const LEADERLESS_MAX: Duration = Duration::from_secs(3);
/// Pause between two rounds of that.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// The session's timeout, in case it is not closed.
const SESSION_TIMEOUT_MS: i32 = 10_000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// No server could be talked to: each with the reason.
    #[error("no server answers: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    /// The connection ended before the answer: what was asked may have been done or not.
    #[error("{server}: {reason}")]
    Lost {
        /// Whose connection it was.
        server: HostPort,
        /// What happened.
        reason: String,
    },
    /// It is not proved to the server who asks, or to the client that the server knows the password.
    #[error("{server}: {reason}")]
    Unproven {
        /// Whose connection it was.
        server: HostPort,
        /// What is not proved.
        reason: Disbelief,
    },
    /// The answer is an error, as a number.
    #[error("{server} refuses: {}", code_name(*.code))]
    Refused {
        /// Who refuses.
        server: HostPort,
        /// As on the wire.
        code: i32,
    },
}

/// ZooKeeper's name of an error's number, with the number.
pub(super) fn code_name(code: i32) -> String {
    ErrorCode::from_wire(code)
        .map_or_else(|| format!("error {code}"), |known| format!("{known} ({code})"))
}

/// A session.
#[derive(Debug)]
pub(super) struct Client {
    connection: Connection,
    xid: i32,
    server: HostPort,
    answer_max: Duration,
}

impl Client {
    /// A session on the first server that gives one, with all these identities and what else is configured.
    ///
    /// # Errors
    /// None gives one, or an identity is not accepted.
    pub(super) fn connect(access: &Access) -> Result<Self, ClientError> {
        let tls = access.configuration.tls.as_ref();
        let answer_max = access.answer_max;
        let open = |server: &HostPort| Self::connect_one(server, tls, answer_max);
        let mut client = first_that_serves(&access.servers, tls, access.patience, open)?;
        if let Some(login) = &access.configuration.login {
            let logged_in = client.connection.log_in(login);
            logged_in.map_err(|error| error.of(&client.server, answer_max))?;
        }
        client.introduced(&access.credentials)
    }

    /// A session on this server. `None`: it gives none.
    fn connect_one(
        server: &HostPort,
        tls: Option<&Arc<ClientConfig>>,
        answer_max: Duration,
    ) -> io::Result<Option<Self>> {
        let opened = Connection::open(server, tls, &new_session(SESSION_TIMEOUT_MS), answer_max)?;
        Ok(match opened {
            Some((connection, answer)) if answer.timeout_ms > 0 => {
                Some(Self { connection, xid: 0, server: server.clone(), answer_max })
            }
            Some(_) | None => None,
        })
    }

    fn introduced(mut self, credentials: &[Credential]) -> Result<Self, ClientError> {
        for credential in credentials {
            self.ask(XID_AUTH, &credential.request())?;
        }
        Ok(self)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// It is refused, or there is none.
    pub(super) fn call(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.xid += 1;
        self.ask(self.xid, request)
    }

    /// Ends the session. That this fails is for the session's timeout.
    pub(super) fn close(mut self) {
        let _answer = self.call(&Request::CloseSession);
    }

    fn ask(&mut self, xid: i32, request: &Request) -> Result<Response, ClientError> {
        let answer = self.exchange(xid, request).map_err(|error| {
            let reason = connection::reason(&error, self.answer_max);
            ClientError::Lost { server: self.server.clone(), reason }
        })?;
        answer.map_err(|code| ClientError::Refused { server: self.server.clone(), code })
    }

    fn exchange(&mut self, xid: i32, request: &Request) -> io::Result<Result<Response, i32>> {
        self.connection.send(&request_frame(xid, request))?;
        loop {
            let mut reader = Reader::new(self.connection.frame()?);
            let header = ReplyHeader::decode(&mut reader).map_err(io::Error::other)?;
            match header.err {
                _ if header.xid == XID_EVENT => {}
                _ if header.xid != xid => {
                    return Err(io::Error::other("the answer is to another request"));
                }
                0 => {
                    let response = Response::decode(request.op(), &mut reader);
                    return response.map(Ok).map_err(io::Error::other);
                }
                code => return Ok(Err(code)),
            }
        }
    }
}

/// What asks for a new session.
fn new_session(timeout_ms: i32) -> ConnectRequest {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms,
        session_id: 0,
        password: Bytes::from_static(&[0; 16]),
        read_only: Some(false),
    }
}

/// What the first server gives that gives anything. Servers that answer without a leader are asked
/// again for a moment, and all of them are for as long as `patience`.
fn first_that_serves<T>(
    servers: &[HostPort],
    tls: Option<&Arc<ClientConfig>>,
    patience: Duration,
    open: impl Fn(&HostPort) -> io::Result<Option<T>>,
) -> Result<T, ClientError> {
    let begun = Instant::now();
    loop {
        let mut reasons = Vec::new();
        let mut answers = false;
        for server in servers {
            match open(server) {
                Ok(Some(opened)) => return Ok(opened),
                Ok(None) => {
                    answers = true;
                    reasons.push(None);
                }
                Err(error) => {
                    reasons.push(Some(diagnosis::of_error(&error, Port::Client, tls.is_some())))
                }
            }
        }
        let time = if answers { patience.max(LEADERLESS_MAX) } else { patience };
        if begun.elapsed() >= time {
            let named = |(server, reason): (&HostPort, Option<String>)| {
                let reason = reason.unwrap_or_else(|| diagnosis::of_server(server, tls));
                format!("{server}: {reason}")
            };
            return Err(ClientError::Unreachable(servers.iter().zip(reasons).map(named).collect()));
        }
        std::thread::sleep(ROUND_PAUSE);
    }
}

/// What an error of a connection means, and what to do about it. `by_tls`: TLS was spoken.
pub(super) fn why(error: &io::Error, port: Port, by_tls: bool) -> String {
    diagnosis::of_error(error, port, by_tls)
}

/// Why this server gives no session, by what it says of itself.
#[cfg(feature = "recipes")]
pub(super) fn diagnosed(server: &HostPort, tls: Option<&Arc<ClientConfig>>) -> String {
    diagnosis::of_server(server, tls)
}

/// The first address of a server.
///
/// # Errors
/// The resolver's.
#[cfg(feature = "bench")]
pub(super) fn resolve(server: &HostPort) -> io::Result<std::net::SocketAddr> {
    let mut addresses = (server.host.as_str(), server.port).to_socket_addrs()?;
    addresses.next().ok_or_else(|| io::Error::other(NO_ADDRESS))
}

const NO_ADDRESS: &str = "the name has no address";

/// A connection to the first address of a server that takes one.
///
/// # Errors
/// The last address's, or the resolver's.
pub(super) fn open(server: &HostPort, wait_max: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other(NO_ADDRESS);
    for address in (server.host.as_str(), server.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, wait_max) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
