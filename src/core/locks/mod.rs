//! THE LOCKS: which znodes are somebody's lock, who holds it, who waits, and what is wrong with it.
//!
//! *Owns* the names of contenders (`contender.rs`, `species.rs`), which of them make one queue (`grouping.rs`),
//! who waits for whom (`respect.rs`), what is known of a directory of contenders and their clients
//! (`snapshot.rs`, `clients.rs`), and what that means (`lock.rs`, `view.rs`, `findings.rs`, `wait_for.rs`), who held it
//! before (`history.rs`), and whether one that leaves held it (`front.rs`). A lock is known by the names of its
//! znodes alone: nothing is registered, no client has to change. *Invariants*: deterministic; a pure function of
//! what it is given; names and data of clients never panic here. *Never* asks a server, and never knows one:
//! `replica` says what there is, `recipes` uses the names.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod clients;
pub mod contender;
mod findings;
pub mod front;
mod grouping;
pub mod history;
mod lock;
mod respect;
pub mod snapshot;
pub mod species;
#[cfg(test)]
mod tests;
pub mod view;
mod wait_for;

pub use clients::Clients;
pub use clients::Presence;
pub use contender::Dialect;
pub use lock::{Finding, FindingKind, Lock, Place, Step};
pub use snapshot::{Local, Scope, Snapshot};
pub use view::leases_of;
pub use view::view;
