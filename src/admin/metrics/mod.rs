//! METRICS: what is counted and measured of a server, as operators see it.
//!
//! *Owns* the table of metrics, the types that its rows make, and the texts made from it: `mntr`, `/commands/monitor`
//! and `/metrics`, with tests that hold the document, the dashboard and the alerts to it. *Invariant*: a metric is one
//! row; beside it stands the code alone that counts. *Never* asks a server: it is given a [`Reading`].

mod counters;
mod distribution;
mod metric;
mod process;
mod table;
mod texts;

#[cfg(test)]
mod document;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod tests;

pub(crate) use counters::{
    Certificates, Counts, DiskFigures, LastBackup, LastImage, LinkCounts, Measured, Quantity,
    ResponseSizes, Tally,
};
pub use counters::{Counters, LinkCounters};
pub(crate) use distribution::{BUCKETS, Distribution, bucket_of};
pub(super) use metric::{LockFigures, Reading};
pub(crate) use process::Descriptors;
pub(super) use texts::{Cell, mntr, monitor, prometheus};
