//! One connection to a server: the handshake, then frames in both directions.
//!
//! *Owns* the socket and what was read of a frame that is not whole yet. *Invariant*: nothing waits
//! for ever. *Never* knows which answer belongs to which request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustls::ClientConfig;

use super::line::Line;
use crate::config::HostPort;
use crate::proto::{ConnectRequest, ConnectResponse, Request, RequestHeader, frame};

/// How long a connection may take to come about.
pub(in crate::cli) const CONNECT_MAX: Duration = Duration::from_secs(2);
/// What is said of a server that answers something else.
pub(super) const NOT_ZOOKEEPER: &str = "it does not speak ZooKeeper's protocol";
/// Longest answer, bytes: the names of a directory with a million children fit.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection on which a server has answered the handshake.
#[derive(Debug)]
pub(super) struct Connection {
    line: Line,
    buffer: BytesMut,
}

impl Connection {
    /// Shakes hands. `None`: the server closed the connection instead, as one without a leader does.
    ///
    /// # Errors
    /// The connection does not come about, or there is no answer within `answer_max`, or none of
    /// this protocol.
    pub(super) fn open(
        server: &HostPort,
        tls: Option<&Arc<ClientConfig>>,
        request: &ConnectRequest,
        answer_max: Duration,
    ) -> io::Result<Option<(Self, ConnectResponse)>> {
        let stream = super::open(server, CONNECT_MAX)?;
        stream.set_read_timeout(Some(answer_max))?;
        stream.set_write_timeout(Some(answer_max))?;
        stream.set_nodelay(true)?;
        let line = Line::new(stream, &server.host, tls)?;
        let mut connection = Self { line, buffer: BytesMut::new() };
        let mut out = Vec::new();
        frame::append(&mut out, |out| request.encode(out));
        match connection.send(&out).and_then(|()| connection.frame()) {
            Ok(answer) => match ConnectResponse::decode(answer) {
                Ok(answer) => Ok(Some((connection, answer))),
                Err(_) => Err(io::Error::other(NOT_ZOOKEEPER)),
            },
            Err(error) if is_close(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Another end, for a thread that writes while another reads. Their time limits are one.
    pub(super) fn line(&self) -> io::Result<Line> {
        self.line.another()
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
