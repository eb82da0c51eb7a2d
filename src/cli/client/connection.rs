//! One connection to a server: the handshake, who asks by SASL, then frames in both directions.
//!
//! *Owns* the socket, what was read of a frame that is not whole yet, and why there is no answer. *Invariants*: nothing
//! waits for ever; nothing else is asked before the exchange of SASL is over, and a server that does not prove that it
//! knows the password, too, is none to go on with. *Never* knows which answer belongs to which request, nor shows a
//! password.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustls::ClientConfig;

use super::line::Line;
use crate::config::HostPort;
use crate::proto::response::ReplyHeader;
use crate::proto::{
    ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, Request, RequestHeader, Response,
    frame,
};
use crate::sasl::{CNONCE_BYTES, ClientLogin, Dialogue, Disbelief, Next};

/// What is said of a server that answers something else.
pub(super) const NOT_ZOOKEEPER: &str = "it does not speak ZooKeeper's protocol";
/// Text about an answer that nothing was asked for.
pub(super) const NOT_ASKED: &str = "the answer is to another request";
/// Longest answer, bytes: the names of a directory with a million children fit.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::cli) enum ClientError {
    /// No server could be talked to: each with the reason.
    #[error("no server answers: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    /// The connection ended before the answer: what was asked may have been done or not.
    #[error("{server}: {reason}")]
    Lost {
        /// Server of the connection.
        server: HostPort,
        /// Description of the event.
        reason: String,
    },
    /// It is not proved to the server who asks, or to the client that the server knows the password.
    #[error("{server}: {reason}")]
    Unproven {
        /// Server of the connection.
        server: HostPort,
        /// Proof that is missing.
        reason: Disbelief,
    },
    /// The answer is an error, as a number.
    #[error("{server} refuses: {}", code_name(*.code))]
    Refused {
        /// Refusing server.
        server: HostPort,
        /// As on the wire.
        code: i32,
    },
}

/// Advice about a server that refuses clients without a proved identity.
pub(in crate::cli) const WANTS_LOGIN: &str = ": it serves only clients that authenticate; --auth says who asks, or, by \
                                              SASL, a file for --client-configuration";

/// ZooKeeper's name of an error's number, with the number.
pub(in crate::cli) fn code_name(code: i32) -> String {
    ErrorCode::from_wire(code)
        .map_or_else(|| format!("error {code}"), |known| format!("{known} ({code})"))
}

/// A connection on which a server has answered the handshake.
#[derive(Debug)]
pub(super) struct Connection {
    line: Line,
    buffer: BytesMut,
    pub(super) server: HostPort,
    answer_max: Duration,
}

impl Connection {
    /// Shakes hands. `None`: the server closed the connection instead, as one without a leader does. With the other
    /// end, for a thread that writes while another reads: their time limits are one.
    ///
    /// # Errors
    /// The connection does not come about, or there is no answer within `answer_max`, or none of
    /// this protocol.
    pub(super) fn open(
        server: &HostPort,
        tls: Option<&Arc<ClientConfig>>,
        request: &ConnectRequest,
        answer_max: Duration,
    ) -> io::Result<Option<(Self, Line, ConnectResponse)>> {
        let line = Line::open(server, tls, answer_max)?;
        let writer = line.another()?;
        let server = server.clone();
        let mut connection = Self { line, buffer: BytesMut::new(), server, answer_max };
        let mut out = Vec::new();
        frame::append(&mut out, |out| request.encode(out));
        match connection.send(&out).and_then(|()| connection.frame()) {
            Ok(answer) => match ConnectResponse::decode(answer) {
                Ok(answer) => Ok(Some((connection, writer, answer))),
                Err(_) => Err(io::Error::other(NOT_ZOOKEEPER)),
            },
            Err(error) if is_close(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Proves to be this user.
    ///
    /// # Errors
    /// One side has not proved it to the other.
    pub(super) fn log_in(&mut self, login: &ClientLogin) -> Result<(), ClientError> {
        let mut nonce = [0; CNONCE_BYTES];
        let random = getrandom::fill(&mut nonce);
        random.map_err(|error| self.lost(&io::Error::other(error.to_string())))?;
        let mut dialogue = Dialogue::new(login, nonce);
        let mut said = Vec::new();
        // Two questions, and no more with a server that is what it should be.
        for xid in 1.. {
            let answer = self.token(xid, said).map_err(|error| self.lost(&error))?;
            let server = || self.server.clone();
            let token = answer.map_err(|code| ClientError::Refused { server: server(), code })?;
            let next = dialogue.step(token.as_deref());
            match next.map_err(|reason| ClientError::Unproven { server: server(), reason })? {
                Next::Done => break,
                Next::Send(answer) => said = answer,
            }
        }
        Ok(())
    }

    /// The server's answer to a token, or the number of a refusal.
    fn token(&mut self, xid: i32, token: Vec<u8>) -> io::Result<Result<Option<Bytes>, i32>> {
        let request = Request::Sasl { token: Some(token.into()) };
        self.send(&request_frame(xid, &request))?;
        let mut reader = Reader::new(self.frame()?);
        let header = ReplyHeader::decode(&mut reader).map_err(io::Error::other)?;
        if header.xid != xid {
            return Err(io::Error::other(NOT_ASKED));
        }
        if header.err != 0 {
            return Ok(Err(header.err));
        }
        match Response::decode(OpCode::Sasl, &mut reader).map_err(io::Error::other)? {
            Response::Token(token) => Ok(Ok(token)),
            _ => Err(io::Error::other("an odd answer")),
        }
    }

    /// Fate of a request during which this happened.
    pub(super) fn lost(&self, error: &io::Error) -> ClientError {
        ClientError::Lost { server: self.server.clone(), reason: reason(error, self.answer_max) }
    }

    /// How long [`Connection::frame`] waits.
    pub(super) fn wait_for(&self, time: Duration) -> io::Result<()> {
        self.line.socket().set_read_timeout(Some(time))
    }

    /// Sends whole frames.
    pub(super) fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.line.send(frames)
    }

    /// The payload of the next frame. After [`is_silence`] it may be asked for again.
    pub(super) fn frame(&mut self) -> io::Result<Bytes> {
        loop {
            let next = frame::next(&mut self.buffer, ANSWER_BYTES_MAX);
            let next = next.map_err(|_| io::Error::other(NOT_ZOOKEEPER))?;
            if let Some(payload) = next {
                return Ok(payload);
            }
            let mut bytes = [0; 16 << 10];
            match self.line.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.buffer.extend_from_slice(&bytes[..length]),
            }
        }
    }
}

/// A request as a frame.
pub(super) fn request_frame(xid: i32, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    frame::append(&mut out, |out| {
        RequestHeader { xid, op: request.op() as i32 }.encode(out);
        request.encode(out);
    });
    out
}

/// Whether the other side has gone.
pub(super) fn is_close(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&error.kind())
}

/// Whether the other side says nothing.
pub(super) fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    [WouldBlock, TimedOut, Interrupted].contains(&error.kind())
}

/// What became of a connection, in words.
pub(super) fn reason(error: &io::Error, waited: Duration) -> String {
    match error {
        error if is_close(error) => "the connection ended before the answer".to_string(),
        error if is_silence(error) => format!("no answer for {} s", waited.as_secs()),
        error => error.to_string(),
    }
}
