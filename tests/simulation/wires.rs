//! The reading halves of a server's client connections: bytes to inputs.
//!
//! *Invariant*, as in the server: behind a ConnectRequest nothing is read until the session is answered.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bytes::BytesMut;
use lockkeeper_core::proto::{ConnectRequest, frame};
use lockkeeper_core::replica::{ClientRequest, ConnId, Input};

/// Longest frame that the simulated server takes.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// Those of one server.
#[derive(Debug, Default)]
pub struct Wires(BTreeMap<ConnId, Wire>);

/// One connection's.
#[derive(Debug)]
struct Wire {
    buffer: BytesMut,
    remote: Ipv4Addr,
    is_connecting: bool,
    is_attached: bool,
}

impl Wires {
    /// A client connects.
    pub fn accept(&mut self, conn: ConnId, remote: Ipv4Addr) {
        let wire =
            Wire { buffer: BytesMut::new(), remote, is_connecting: false, is_attached: false };
        self.0.insert(conn, wire);
    }

    /// Bytes of a client arrive: what they are for the replica. False: there were some that no client
    /// may send, and the connection ends behind that.
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) -> (Vec<Input>, bool) {
        let Some(wire) = self.0.get_mut(&conn) else { return (Vec::new(), true) };
        wire.buffer.extend_from_slice(bytes);
        self.decode(conn)
    }

    /// The session was answered, or the end announced: reading goes on, or is over.
    pub fn answered(&mut self, conn: ConnId, close: bool) -> Vec<Input> {
        if close {
            self.0.remove(&conn);
            return Vec::new();
        }
        match self.0.get_mut(&conn) {
            Some(wire) if !wire.is_attached => wire.is_attached = true,
            Some(_) | None => return Vec::new(),
        }
        self.decode(conn).0
    }

    /// A connection is gone: what the replica is told of that.
    pub fn disconnect(&mut self, conn: ConnId) -> Option<Input> {
        let wire = self.0.remove(&conn)?;
        wire.is_connecting.then_some(Input::Closed { conn })
    }

    fn decode(&mut self, conn: ConnId) -> (Vec<Input>, bool) {
        let mut inputs = Vec::new();
        let goes_on = self.0.get_mut(&conn).is_none_or(|wire| wire.decode(conn, &mut inputs));
        if !goes_on {
            inputs.extend(self.disconnect(conn));
        }
        (inputs, goes_on)
    }
}

impl Wire {
    /// Everything that may be read now. False: it makes no sense from some point on.
    fn decode(&mut self, conn: ConnId, inputs: &mut Vec<Input>) -> bool {
        if self.is_connecting && !self.is_attached {
            return true;
        }
        if !self.is_connecting {
            let payload = match frame::next(&mut self.buffer, FRAME_BYTES_MAX) {
                Ok(Some(payload)) => payload,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let Ok(request) = ConnectRequest::decode(payload) else { return false };
            self.is_connecting = true;
            let remote = IpAddr::V4(self.remote);
            inputs.push(Input::Connected {
                conn,
                remote,
                remote_port: 1,
                proven: Vec::new(),
                request,
            });
            return true;
        }
        let mut requests = Vec::new();
        let goes_on = loop {
            match frame::next(&mut self.buffer, FRAME_BYTES_MAX) {
                Ok(None) => break true,
                Ok(Some(payload)) => match ClientRequest::decode(payload) {
                    Some(request) => requests.push(request),
                    None => break false,
                },
                Err(_) => break false,
            }
        };
        if !requests.is_empty() {
            inputs.push(Input::Requests { conn, requests });
        }
        goes_on
    }
}
