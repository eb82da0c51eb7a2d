//! TRANSPORT: sockets that speak plain text or TLS.
//!
//! *Owns* the streams of links with other servers and of clients, their TLS handshakes, and what is counted and logged
//! of handshakes that fail. *Invariant*: beside a socket that waits for a handshake nothing else waits. *Never* knows
//! what the bytes mean.

mod client_socket;
mod client_tls;
mod handshakes;
mod link_tls;
mod stream;

pub(in crate::server) use client_socket::{Protection, Socket};
pub(in crate::server) use handshakes::Handshakes;
pub(in crate::server) use link_tls::LinkTls;
pub(in crate::server) use stream::{Reader, Stream, WaitingStream, Writer};
