//! OPERATORS: one server as operators see it, and the copies of its data that they ask for.
//!
//! *Owns* [`Shared`], which answers `admin::Source`, backups, and snapshots for Apache ZooKeeper. *Never* changes what
//! the server does: orders go to the driver.

mod backup_turns;
mod backups;
mod shared;
mod source;
mod zookeeper_snapshot;

pub(in crate::server) use backup_turns::BackupTurns;
pub(crate) use backups::record_digest;
pub(in crate::server) use shared::Shared;
