//! PORTS: sockets that are bound, connections that have arrived at them, and the open files that they share.
//!
//! *Owns* how a port is bound, the order in which connections yield their place, the division of the limit of open
//! files, and the members of the ensemble as those who listen are told of them. *Never* reads a byte.

mod announced;
mod arrivals;
mod bound;
mod files;

pub(in crate::server) use announced::Announced;
pub(in crate::server) use arrivals::{Arrival, Arrivals};
pub(in crate::server) use bound::{Port, accept_from};
pub(in crate::server) use files::Files;
