//! CLIENTS: sockets of clients, from the listener to the frames that the driver is given.
//!
//! *Owns* the client port, admission of new connections, reading and writing of each connection, and the bounds of what
//! they hold. *Invariants*: what a connection may hold in memory is bounded, each by itself and all together; an answer
//! leaves in the order of its requests. *Never* touches the replica: requests go to the driver as messages, and
//! answers come through [`Line`].

mod admission;
mod arrivals;
mod client_port;
mod connection;
mod first_frame;
mod handshakes;
mod held_back;
mod in_flight;
pub(in crate::server) mod listener;
mod other_protocols;
mod outbox;
mod ports;
mod read_buffer;
mod received;
mod socket;
mod tls;

pub(in crate::server) use admission::{Admission, Rates};
pub(in crate::server) use arrivals::{Arrival, Arrivals};
pub(in crate::server) use client_port::ClientPort;
pub(in crate::server) use connection::Line;
pub(in crate::server) use handshakes::Handshakes;
pub(in crate::server) use in_flight::Throttle;
pub(in crate::server) use listener::Port;
pub(in crate::server) use other_protocols::Others;
#[cfg(test)]
pub(in crate::server) use outbox::Outbox;
pub(in crate::server) use outbox::{Debt, Debts, Pushed};
pub(in crate::server) use ports::Ports;
pub(in crate::server) use received::Received;
pub(in crate::server) use socket::Protection;
