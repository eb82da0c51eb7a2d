//! ONE SERVER, deterministic: given time, bytes and a seed, says what is to be done.

pub mod durable;
pub mod input;
pub mod inspect;
pub mod ready;

pub use durable::{
    Append, Changes, Entry, EntryKind, HardState, Mark, Membership, Record, Restore,
};
pub use input::{ClientRequest, ConnId, Input};
pub use inspect::{Inspect, Report, Status};
pub use ready::{AuditLine, Outgoing, Ready};

/// Longest time in milliseconds that may pass between two ticks.
pub const TICK_MS: u64 = 50;

/// One server's whole deterministic state.
#[derive(Debug)]
pub struct Replica {}
