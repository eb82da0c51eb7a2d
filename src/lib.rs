//! Lockkeeper: a ZooKeeper-compatible lock and coordination server.
//!
//! ```text
//!   cli, main      the commands
//!   server         sockets and tasks          admin   what operators see
//!   storage        disk: log, images, sled
//!   -------------- below: deterministic, no I/O, no clock (feature "server" off) --------------
//!   replica        one server: consensus, sessions, watches, order
//!   tree           the znodes                 config  zoo.cfg
//!   proto          the wire
//! ```

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // denied in the core's modules

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod cli;
pub mod config;
pub mod proto;
pub mod replica;
#[cfg(feature = "server")]
pub mod storage;
pub mod tree;
