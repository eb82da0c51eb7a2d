//! The table of metrics.
//!
//! *Owns* every metric's name, kind, meaning and where its value comes from: once. *Invariants*:
//! ZooKeeper's names mean what they mean there; a name that is not ZooKeeper's begins with
//! `lockkeeper_`; a row whose figure is not measured yields nothing.

mod kinds;
mod ours;
mod stages;
mod zookeepers;

use super::metric::Metric;

/// Every metric: ZooKeeper's, then ours.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    [zookeepers::METRICS, stages::METRICS, ours::METRICS].into_iter().flatten()
}
