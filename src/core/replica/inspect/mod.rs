//! INSPECTION: what a replica shows of itself to operators.
//!
//! *Owns* the counters, the questions of operators and their answers as values, and who left a lock lately. The
//! answers are put together in `steps/inspect.rs`. *Never* changes what clients see.

mod departures;
mod figures;
pub mod measures;
mod namespaces;
pub mod questions;
#[cfg(test)]
mod stays_tests;
pub mod znode;

pub use measures::{Measure, Measurement};
pub use questions::{
    ConnectionReport, CopyReport, Inspect, Latency, MIGRATION_UNKNOWN, MigrationFigures,
    MigrationLink, MigrationReport, Mode, NamespaceReport, PeerStatus, ProposalSizes, Report,
    SessionReport, Standings, Status, Volume, WatchReport,
};

pub use znode::{ChildReport, ZnodeQuestion, ZnodeReport};

pub use crate::tree::Rules;

pub(in crate::replica) use departures::{Cause, LAST_FEW};
pub(in crate::replica) use figures::Figures;
pub(in crate::replica) use measures::Measurements;
pub(in crate::replica) use namespaces::Namespaces;
