//! METRICS: what is counted and measured of one server, and the state that it publishes.
//!
//! *Owns* the counters of the shell, its measured times, the conditions under which the server is not ready, and the
//! replica's status as of the driver's last turn. *Invariant*: to count costs an atomic addition and no lock. *Never*
//! decides anything.

mod conditions;
mod figures;
mod measures;
mod other_protocols;
mod published;
mod striped;
mod turn_measures;

pub(in crate::server) use conditions::{Cause, Conditions};
pub(in crate::server) use figures::Figures;
pub(in crate::server) use measures::Measures;
pub(in crate::server) use other_protocols::Protocol;
pub(in crate::server) use published::Published;
pub(in crate::server) use striped::Striped;
pub(in crate::server) use turn_measures::{Times, TurnMeasures};
