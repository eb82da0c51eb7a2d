//! A request of a client, as its connection decoded it, and the number of that connection.
//!
//! *Owns* the decoding of a frame's header and body in front of the core. *Never* decides anything.

use bytes::Bytes;

use crate::proto::OpCode;
use crate::proto::request::{Request, Undecodable};

/// A connection of a client, numbered by the shell; never reused while the process lives.
pub type ConnId = u64;

/// A request as a connection decoded it.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// The client's number for it.
    pub xid: i32,
    /// The opcode as sent.
    pub op: i32,
    /// The body as sent: what the log keeps of a write.
    pub body: Bytes,
    /// The decoded body.
    pub decoded: Result<Request, Undecodable>,
    /// When its bytes were read, by the clock of `Input::Tick`, microseconds. `None`: with the tick before it.
    /// Only what is measured depends on it, and for how long a request is taken to have waited.
    pub arrived_us: Option<u64>,
}

impl ClientRequest {
    /// Decodes the payload of a frame. `None`: shorter than a header, the connection must close.
    #[must_use]
    pub fn decode(payload: Bytes) -> Option<Self> {
        let mut reader = crate::proto::Reader::new(payload);
        let header = crate::proto::RequestHeader::decode(&mut reader).ok()?;
        let body = reader.rest();
        let decoded = Request::decode(header.op, body.clone());
        Some(Self { xid: header.xid, op: header.op, body, decoded, arrived_us: None })
    }

    /// Whether it is an auth packet.
    #[must_use]
    pub fn is_auth(&self) -> bool {
        self.op == OpCode::Auth as i32 || self.op == OpCode::Sasl as i32
    }
}
