//! WHAT OPERATORS SEE: the four-letter words, the metrics, and the HTTP port.
//!
//! *Owns* every text, name and JSON shape that people and dashboards read. *Is given* a [`Source`],
//! which the server implements; it never reaches into the server, its storage or its configuration.
//! *Invariants*: a figure is measured or it is absent, never a constant in place of one; the names
//! of metrics exist once (`metrics/table.rs`) and serve `mntr`, `/commands/monitor` and `/metrics` alike;
//! nothing that a peer sends makes it panic.
//!
//! Reproduces ZooKeeper's `server.command`, `server.admin` and the Prometheus metrics provider.

mod backup;
mod commands;
mod console;
mod ensemble;
mod http;
mod locks;
mod metrics;
mod routes;
mod scrape;
mod source;
mod text;
mod version;
mod words;

#[cfg(test)]
mod fake;

pub use http::{CONNECTIONS_MAX, Guard, Options};
pub(crate) use http::{PortTls, Surface, read_token};
pub(crate) use metrics::{
    BUCKETS, Certificates, Counts, Descriptors, DiskFigures, Distribution, LastBackup, LastImage,
    LinkCounts, Measured, Quantity, ResponseSizes, Tally, bucket_of,
};
pub use metrics::{Counters, LinkCounters};
pub use routes::serve;
pub use source::{
    BackupPiece, BackupStream, LeaderChange, Leaders, NoBackup, SnapshotStream, Source,
    ZooKeeperPort, ZooKeeperWords,
};
pub(crate) use source::{ClientAddress, Facts, GATHER_MAX, Pending};
pub(crate) use text::java_date;
pub use words::{Word, answer, word};
