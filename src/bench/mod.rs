//! A load generator for ZooKeeper-compatible servers: the engine of `lockkeeper bench` and of
//! `benches/vs_zookeeper`.
//!
//! *Owns* its own wire codec, sessions, workloads and loop: one epoll loop in each thread, any number of
//! connections. *Invariants*: every answer is checked, and a wrong one ends the run, so a figure is never
//! that of a server that errs; a run ends by itself; what it made, it takes away. *Never* uses the rest of
//! this crate: a mistake in the server's codec must not be able to hide by being made on both ends.
//!
//! [`run`] prepares the znodes of a [`Plan`], loads the servers and returns an [`Outcome`];
//! [`clear`] takes the znodes away.

mod access;
mod alarm;
mod arena;
mod clear;
mod count;
mod crew;
#[cfg(test)]
mod fake;
mod fan;
mod fault;
pub mod files;
pub mod frames;
mod link;
mod load;
mod lock;
mod outcome;
mod pace;
mod plan;
pub mod proc;
mod script;
mod session;
mod sessions;
pub mod sockets;
mod step;
mod threads;
pub mod wire;

pub use access::Access;
pub use alarm::{Alarms, TOKEN as ALARM};
pub use clear::{clear, reach};
pub use crew::run;
pub use fault::Fault;
pub use outcome::{Contention, Interim, Outcome, histogram, milliseconds, record};
pub use plan::{CONNECTIONS_MAX, DEPTH_MAX, Go, Length, Plan, THREADS_MAX, Work, below_path};
pub use script::numbered_path;
pub use session::{Answer, PATIENCE, Session};
pub(crate) use sessions::Lives;
pub use sessions::live;
pub use threads::ThreadCpu;
