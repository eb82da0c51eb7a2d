//! The harness: real servers, clients of its own, faults, and the judge of `lockkeeper-check`.
//!
//! ```text
//! run -> cluster (processes) <- nemesis (plan from the seed)
//!     -> clients (one thread each) <- workload          everything goes into the journal
//!     -> store (files of a run) -> judgement (checks, coverage) -> results, report
//! ```
//!
//! Nothing of the product is used: its clients and codec are not what tests it.

pub mod calibration;
pub mod client;
pub mod cluster;
pub mod doctor;
pub mod journal;
pub mod judgement;
pub mod nemesis;
pub mod random;
pub mod report;
pub mod run;
pub mod store;
pub mod suite;
pub mod worker;
pub mod workload;
