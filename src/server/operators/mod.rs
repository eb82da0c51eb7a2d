//! OPERATORS: one server as operators see it, and the copies of its data that they ask for.
//!
//! *Owns* [`Shared`], which answers `admin::Source`, backups, and snapshots for Apache ZooKeeper. *Never* changes what
//! the server does: orders go to the driver.

mod backups;
mod shared;
mod source;
mod zookeeper_snapshot;

pub(crate) use backups::record_digest;
pub(in crate::server) use shared::Shared;
