//! A blocking session for what is not measured: preparing nodes, asking whether a server serves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wire;

/// Session timeout asked for. Long, so that a stalled machine does not end a measurement.
const TIMEOUT_MS: i32 = 40_000;

/// How long a server that is known to serve may take over one answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Session {
    stream: TcpStream,
    xid: i32,
}

/// An answer with its body copied out.
pub struct Answer {
    pub err: i32,
    pub body: Vec<u8>,
}

impl Session {
    /// Connects and opens a session; no step may take longer than `patience`.
    pub fn open(addr: SocketAddr, patience: Duration) -> Result<Self, String> {
        let fault = |e: std::io::Error| format!("{addr}: {e}");
        let stream = TcpStream::connect_timeout(&addr, patience).map_err(fault)?;
        stream.set_nodelay(true).map_err(fault)?;
        stream.set_read_timeout(Some(patience)).map_err(fault)?;
        let mut session = Session { stream, xid: 0 };
        session.stream.write_all(&wire::connect(TIMEOUT_MS)).map_err(fault)?;
        let granted = wire::connect_reply(&session.frame()?)
            .ok_or_else(|| format!("{addr}: connect reply too short"))?;
        if granted.timeout_ms <= 0 || granted.session == 0 {
            return Err(format!("{addr}: session refused"));
        }
        Ok(session)
    }

    /// Changes how long an answer may take.
    pub fn set_patience(&mut self, patience: Duration) -> Result<(), String> {
        self.stream.set_read_timeout(Some(patience)).map_err(|e| format!("session: {e}"))
    }

    /// Sends one request and waits for its reply.
    pub fn call(&mut self, mut request: Vec<u8>) -> Result<Answer, String> {
        self.xid += 1;
        wire::patch_xid(&mut request, self.xid);
        self.stream.write_all(&request).map_err(|e| format!("send: {e}"))?;
        let frame = self.frame()?;
        let reply = wire::reply(&frame).ok_or("reply too short")?;
        if reply.xid != self.xid {
            return Err(format!("reply with xid {} where {} was due", reply.xid, self.xid));
        }
        Ok(Answer { err: reply.err, body: reply.body.to_vec() })
    }

    /// Creates a node, or leaves it as it is.
    pub fn ensure(&mut self, path: &str, data: &[u8]) -> Result<(), String> {
        match self.call(wire::create(path, data))?.err {
            0 | wire::NODE_EXISTS => Ok(()),
            err => Err(format!("create {path}: error {err}")),
        }
    }

    /// Reads a node's data and the version of it.
    pub fn read(&mut self, path: &str) -> Result<(Vec<u8>, i32), String> {
        let answer = self.call(wire::get(path))?;
        if answer.err != 0 {
            return Err(format!("get {path}: error {}", answer.err));
        }
        let data = wire::buffer_at(&answer.body, 0).ok_or("get without data")?.to_vec();
        let version = wire::int_at(&answer.body, 4 + data.len() + wire::STAT_VERSION_AT)
            .ok_or("get without a Stat")?;
        Ok((data, version))
    }

    /// Ends the session and waits until the server says so.
    pub fn close(mut self) -> Result<(), String> {
        match self.call(wire::bare(wire::CLOSE))?.err {
            0 => Ok(()),
            err => Err(format!("close: error {err}")),
        }
    }

    /// The open connection and the last xid used on it, for the event loop to go on with.
    pub fn into_parts(self) -> (TcpStream, i32) {
        (self.stream, self.xid)
    }

    fn frame(&mut self) -> Result<Vec<u8>, String> {
        let fault = |e: std::io::Error| format!("receive: {e}");
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(fault)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > wire::FRAME_MAX {
            return Err(format!("receive: frame of {length} bytes"));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).map_err(fault)?;
        Ok(frame)
    }
}
