//! The first thing a client says: a four-letter word, or what session it wants.
//!
//! *Owns* the reading of a connection before the driver knows of it. *Invariants*: four bytes
//! decide; a length that no ConnectRequest has, a payload that is none and an early end all close
//! without an answer, so that a client without a session holds little (what speaks TLS, HTTP or the PROXY
//! protocol is named in the log). *Never* reads on behind the
//! first frame, except for what arrived with it: those bytes stay in the buffer.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use super::context::ServerContext;
use crate::admin;
use crate::proto::{ConnectRequest, frame};
use crate::server::limits::FIRST_FRAME_BYTES_MAX;
use crate::server::metrics::Protocol;
use crate::server::ports::Arrival;
use crate::server::transport::Socket;

/// What the connection is.
pub(super) enum First {
    /// A client that wants a session.
    Session(ConnectRequest),
    /// An operator; this is the answer.
    Word(Vec<u8>),
    /// Nothing that is to be answered.
    Nothing,
}

/// Reads up to the end of the first frame or word.
pub(super) async fn read(
    socket: &mut Socket,
    buffer: &mut BytesMut,
    remote: SocketAddr,
    server: &ServerContext,
    arrival: &Arrival,
) -> First {
    loop {
        buffer.reserve(FIRST_READ_BYTES);
        match socket.read(buffer).await {
            Ok(0) | Err(_) => return First::Nothing,
            Ok(bytes) => server.figures.counts.bytes_received.add(bytes as u64),
        }
        let Some(first_four) = buffer.first_chunk::<4>().copied() else { continue };
        if let Some(word) = admin::word(first_four) {
            server.figures.counts.packets_received.add(1);
            arrival.asks();
            return First::Word(admin::answer(word, &buffer[4..], remote, &*server.source).await);
        }
        let bytes_max = server.limits.frame_bytes_max.min(FIRST_FRAME_BYTES_MAX);
        match frame::next(buffer, bytes_max) {
            Ok(None) => {}
            Ok(Some(payload)) => {
                let first = session(payload, server);
                if matches!(first, First::Session(_)) {
                    arrival.is_known();
                }
                return first;
            }
            Err(frame::BadLength(length)) => {
                if let Some(protocol) = Protocol::of(first_four) {
                    server.figures.others.saw(protocol, remote.ip(), &server.figures.counts);
                }
                server.figures.cut_malformed(length > 0);
                return First::Nothing;
            }
        }
    }
}

fn session(payload: Bytes, server: &ServerContext) -> First {
    server.figures.counts.packets_received.add(1);
    server.figures.counts.connect_requests.add(1);
    match ConnectRequest::decode(payload) {
        Ok(request) => First::Session(request),
        Err(error) => {
            tracing::debug!(%error, "connection closed: its first frame asks for no session");
            server.figures.cut_malformed(false);
            First::Nothing
        }
    }
}

/// A ConnectRequest is 49 bytes long, and what is pipelined behind it is rarely much.
const FIRST_READ_BYTES: usize = 512;
