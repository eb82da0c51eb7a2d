//! INSPECTION: what a replica shows of itself to operators.
//!
//! *Owns* the figures that are published all the time, the questions that cost as much as there is to show, and
//! what is known of locks. *Never* changes anything but what an operator asked to be reset.

mod departures;
mod figures;
pub mod questions;

pub use questions::{
    ConnectionReport, Inspect, Latency, Mode, PeerStatus, ProposalSizes, Report, SessionReport,
    Status, WatchReport,
};

pub(in crate::replica) use figures::Figures;
