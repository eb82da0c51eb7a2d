//! CLIENTS: sockets of clients, from the listener to the frames that the driver is given.
//!
//! *Owns* the client port, admission of new connections, reading and writing of each connection, and the bounds of what
//! they hold. *Invariants*: what a connection may hold in memory is bounded, each by itself and all together; an answer
//! leaves in the order of its requests. *Never* touches the replica: requests go to the driver as messages, and
//! answers come through the line of the connection.

mod admission;
mod client_port;
mod connection;
mod context;
mod first_frame;
mod held_back;
mod in_flight;
mod listener;
mod listening;
mod place;
mod read_buffer;
mod received;
mod share;

pub(in crate::server) use admission::{Admission, Rates};
pub(in crate::server) use client_port::ClientPort;
pub(in crate::server) use context::ServerContext;
pub(in crate::server) use in_flight::Throttle;
pub(in crate::server) use listener::{Options, accept};
pub(in crate::server) use listening::Ports;
pub(in crate::server) use received::Received;
