//! A blocking session for what is not measured: preparing znodes, asking whether a server serves.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::access::Access;
use super::wire::Granted;
use super::{Fault, wire};
use crate::tls::ClientLine;

/// Session timeout asked for. Long, so that a stalled machine does not end a measurement.
const TIMEOUT_MS: i32 = 40_000;
/// Requests of [`Session::call_all`] in flight.
const IN_FLIGHT_MAX: usize = 64;

/// How long a server that is known to serve may take over one answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One session over one connection.
#[derive(Debug)]
pub struct Session {
    stream: ClientLine<TcpStream>,
    xid: i32,
    timeout: Duration,
    frame_max: usize,
}

/// An answer with its body copied out.
#[derive(Debug)]
pub struct Answer {
    /// The error code; 0 is none.
    pub err: i32,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// An open connection with a session, for the event loop to go on with.
pub(super) struct Parts {
    pub stream: ClientLine<TcpStream>,
    pub last_xid: i32,
    /// What the server has granted.
    pub timeout: Duration,
}

impl Session {
    /// Connects and opens a session; no step may take longer than `patience`.
    ///
    /// # Errors
    /// There is no connection, or no session on it.
    pub fn open(addr: SocketAddr, patience: Duration) -> Result<Self, Fault> {
        Session::connect(addr, patience, &Access::default())
    }

    fn connect(addr: SocketAddr, patience: Duration, access: &Access) -> Result<Self, Fault> {
        let mut session = Session::greet(addr, patience, &wire::connect(TIMEOUT_MS), access)?;
        match session.granted() {
            Ok(Some(_)) => Ok(session),
            Ok(None) => Err(Fault::Unreachable(format!("{addr}: session refused"))),
            Err(fault) => Err(fault.after(&addr.to_string())),
        }
    }

    /// Connects and sends a connect request. [`Session::granted`] is to follow.
    ///
    /// # Errors
    /// There is no connection.
    pub fn greet(
        addr: SocketAddr,
        patience: Duration,
        request: &[u8],
        access: &Access,
    ) -> Result<Self, Fault> {
        let fault = |e: std::io::Error| Fault::Unreachable(format!("{addr}: {e}"));
        let stream = TcpStream::connect_timeout(&addr, patience).map_err(fault)?;
        stream.set_nodelay(true).map_err(fault)?;
        stream.set_read_timeout(Some(patience)).map_err(fault)?;
        let stream = ClientLine::new(stream, access.session(addr)?);
        let frame_max = wire::FRAME_MAX;
        let mut session = Session { stream, xid: 0, timeout: Duration::ZERO, frame_max };
        session.stream.write_all(request).map_err(fault)?;
        Ok(session)
    }

    /// Waits for the answer to that; `None` if there is no session.
    ///
    /// # Errors
    /// The connection ended, or the answer is cut short.
    pub fn granted(&mut self) -> Result<Option<Granted>, Fault> {
        let frame = self.frame()?;
        let granted =
            wire::connect_reply(&frame).ok_or_else(|| Fault::wrong("connect reply too short"))?;
        let Some(timeout) = granted.timeout() else { return Ok(None) };
        self.timeout = timeout;
        Ok(Some(granted))
    }

    /// The same, and then names these credentials, each a scheme and its secret.
    pub(super) fn open_as(addr: SocketAddr, access: &Access) -> Result<Self, Fault> {
        let mut session = Session::connect(addr, PATIENCE, access)?;
        for (scheme, secret) in &access.auth {
            session.send(&wire::auth(scheme, secret))?;
            let answer = session.answer(wire::AUTH_XID)?;
            if answer.err != 0 {
                return Err(Fault::refused(format!("{addr}: {scheme} credential"), answer.err));
            }
        }
        Ok(session)
    }

    /// Changes how long an answer may take.
    ///
    /// # Errors
    /// The operating system's.
    pub fn set_patience(&mut self, patience: Duration) -> Result<(), Fault> {
        self.stream
            .socket()
            .set_read_timeout(Some(patience))
            .map_err(|e| Fault::Unreachable(format!("session: {e}")))
    }

    /// Takes answers of more bytes than ZooKeeper's own client does unless it is told to: a list of very
    /// many children.
    pub fn set_frame_max(&mut self, bytes: usize) {
        self.frame_max = bytes;
    }

    /// Sends one request and waits for its reply, whatever its error code is.
    ///
    /// # Errors
    /// The connection ended, or the reply is another's.
    pub fn call(&mut self, request: Vec<u8>) -> Result<Answer, Fault> {
        self.ask(request)?;
        self.answered()
    }

    /// Sends one request. [`Session::answered`] is to follow.
    ///
    /// # Errors
    /// The connection ended.
    pub fn ask(&mut self, mut request: Vec<u8>) -> Result<(), Fault> {
        self.xid += 1;
        wire::patch_xid(&mut request, self.xid);
        self.send(&request)
    }

    /// Waits for the answer to the last request.
    ///
    /// # Errors
    /// The connection ended, or the reply is another's.
    pub fn answered(&mut self) -> Result<Answer, Fault> {
        self.answer(self.xid)
    }

    /// Sends requests with some of them in flight, and lets `judge` see every answer, in order, with
    /// the words that its request came with.
    ///
    /// # Errors
    /// The connection ended, a reply is another's, or `judge` objects.
    pub fn call_all(
        &mut self,
        requests: impl IntoIterator<Item = (String, Vec<u8>)>,
        mut judge: impl FnMut(String, &Answer) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut in_flight = VecDeque::with_capacity(IN_FLIGHT_MAX);
        for (words, request) in requests {
            if in_flight.len() == IN_FLIGHT_MAX
                && let Some((xid, words)) = in_flight.pop_front()
            {
                judge(words, &self.answer(xid)?)?;
            }
            self.ask(request)?;
            in_flight.push_back((self.xid, words));
        }
        for (xid, words) in in_flight {
            judge(words, &self.answer(xid)?)?;
        }
        Ok(())
    }

    /// Creates a znode, or leaves it as it is.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn ensure(&mut self, path: &str, data: &[u8]) -> Result<(), Fault> {
        made(&format!("create {path}"), &self.call(wire::create(path, data))?)
    }

    /// Creates a znode and all those above it, or leaves them as they are.
    ///
    /// # Errors
    /// One cannot be created.
    pub fn ensure_all(&mut self, path: &str) -> Result<(), Fault> {
        let ends = path.match_indices('/').skip(1).map(|(at, _)| at);
        ends.chain([path.len()]).try_for_each(|end| self.ensure(&path[..end], b""))
    }

    /// Reads a znode's data and the version of it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self, path: &str) -> Result<(Vec<u8>, i32), Fault> {
        let answer = self.call(wire::get(path))?;
        if answer.err != 0 {
            return Err(Fault::refused(format!("get {path}"), answer.err));
        }
        let data = wire::buffer_at(&answer.body, 0)
            .ok_or_else(|| Fault::wrong("get without data"))?
            .to_vec();
        let version = wire::int_at(&answer.body, 4 + data.len() + wire::STAT_VERSION_AT)
            .ok_or_else(|| Fault::wrong("get without a Stat"))?;
        Ok((data, version))
    }

    /// Reads how many children a znode has.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn children(&mut self, path: &str) -> Result<u32, Fault> {
        let answer = self.call(wire::get(path))?;
        if answer.err != 0 {
            return Err(Fault::refused(format!("get {path}"), answer.err));
        }
        let data = wire::buffer_at(&answer.body, 0).map_or(0, <[u8]>::len);
        let children = wire::int_at(&answer.body, 4 + data + wire::STAT_CHILDREN_AT);
        children.map(i32::unsigned_abs).ok_or_else(|| Fault::wrong("get without a Stat"))
    }

    /// Ends the session and waits until the server says so.
    ///
    /// # Errors
    /// It does not.
    pub fn close(mut self) -> Result<(), Fault> {
        match self.call(wire::bare(wire::CLOSE))?.err {
            0 => Ok(()),
            err => Err(Fault::refused("close", err)),
        }
    }

    pub(super) fn into_parts(self) -> Parts {
        Parts { stream: self.stream, last_xid: self.xid, timeout: self.timeout }
    }

    /// What the server has granted.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request as it is.
    ///
    /// # Errors
    /// The connection ended.
    pub fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(request).map_err(|e| Fault::Unreachable(format!("send: {e}")))
    }

    /// Waits for the answer with this xid, which is to be the next.
    ///
    /// # Errors
    /// The connection ended, or the reply is another's.
    pub fn answer(&mut self, due: i32) -> Result<Answer, Fault> {
        let frame = self.frame()?;
        let reply = wire::reply(&frame).ok_or_else(|| Fault::wrong("reply too short"))?;
        if reply.xid != due {
            return Err(Fault::wrong(format!("reply with xid {} where {due} was due", reply.xid)));
        }
        Ok(Answer { err: reply.err, body: reply.body.to_vec() })
    }

    fn frame(&mut self) -> Result<Vec<u8>, Fault> {
        let fault = |e: std::io::Error| Fault::Unreachable(format!("receive: {e}"));
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(fault)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.frame_max {
            return Err(Fault::wrong(format!("receive: frame of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).map_err(fault)?;
        Ok(frame)
    }
}

/// Whether a znode that was to be created is there now.
pub(super) fn made(words: &str, answer: &Answer) -> Result<(), Fault> {
    match answer.err {
        0 | wire::NODE_EXISTS => Ok(()),
        err => Err(Fault::refused(words, err)),
    }
}

/// Whether a znode that was to be deleted is gone now.
pub(super) fn gone(words: &str, answer: &Answer) -> Result<(), Fault> {
    match answer.err {
        0 | wire::NO_NODE => Ok(()),
        err => Err(Fault::refused(words, err)),
    }
}
