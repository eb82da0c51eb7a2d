//! The deterministic core of Lockkeeper: one server as a value that is given time, bytes and a seed, and returns
//! what is to be done.
//!
//! *Owns* the wire, the znodes, consensus, sessions, watches and the text of configurations. *Invariants*: the same
//! inputs give the same outputs on every server and at every replay. *Never* knows a clock, a thread, a file or a
//! socket; those are in the crate `lockkeeper`, whose documentation names what a version promises of this one.
//!
//! ```text
//!   replica        one server: consensus, sessions, watches, order
//!   tree           the znodes                 config  zoo.cfg
//!   locks          which znodes are locks, and whose
//!   learner        ZooKeeper's quorum protocol, as one of its observers speaks it
//!   sasl           how clients prove who they are
//!   zookeeper      the records of ZooKeeper's own files and quorum protocol
//!   proto          the wire
//! ```

// What only this project's own tests reach is idle without the feature that hands it out.
#![cfg_attr(not(feature = "internals"), allow(dead_code))]
#![deny(unreachable_pub)]
#![deny(missing_docs)]
#![allow(rustdoc::private_intra_doc_links, reason = "its readers are those who change it")]

#[macro_use]
pub mod mutants;

pub mod config;
pub mod learner;
pub mod locks;
pub mod proto;
pub mod replica;
pub mod sasl;
pub mod tree;
pub mod zookeeper;

// What the unit tests share with the tests from outside, to which this crate is `lockkeeper_core`.
#[cfg(test)]
extern crate self as lockkeeper_core;
#[cfg(test)]
#[path = "../../tests/simulation/rng.rs"]
#[allow(unreachable_pub)]
mod rng;
#[cfg(test)]
#[path = "../../tests/simulation/model/mod.rs"]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, unreachable_pub)]
mod testing_model;
