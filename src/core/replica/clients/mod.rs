//! CLIENTS: the connections of this server, from requests to replies and events.
//!
//! *Owns* each connection's identities and order of replies, watches, reads, and the transactions on their way to
//! the leader. *Invariants*: a connection's replies leave in the order of its requests; an event leaves before
//! any reply that shows what it tells of. *Never* changes the replicated state: the machine does, when an entry
//! is applied.

mod authentication;
mod connection;
mod forwarding;
mod reads;
mod table;
mod turn;
mod watches;

#[cfg(test)]
pub(in crate::replica) use connection::{IDENTITIES_BYTES_MAX, IDENTITIES_MAX};
#[cfg(test)]
pub(in crate::replica) use reads::MULTI_READ_BYTES_MAX;

#[cfg(test)]
pub(in crate::replica) use turn::COMPONENTS_MAX;
pub use turn::{Dearest, OUTPUT_BYTES_PER_TURN_MAX};

pub(in crate::replica) use authentication::Authentication;
pub(in crate::replica) use connection::{Connection, Phase};
pub(in crate::replica) use forwarding::{Forwarding, WriteBatch};
pub(in crate::replica) use table::{Clients, Rules, Unsent, Wanted};
pub(in crate::replica) use watches::{Kind, ancestors};
