//! WHAT OPERATORS SEE: the four-letter words, the metrics, and the HTTP port.
//!
//! *Owns* every text, name and JSON shape that people and dashboards read. *Is given* a [`Source`],
//! which the server implements; it never reaches into the server, its storage or its configuration.
//! *Invariants*: a figure is measured or it is absent, never a constant in place of one; the names
//! of metrics exist once (`metrics/table.rs`) and serve `mntr`, `/commands/monitor` and `/metrics` alike;
//! nothing that a peer sends makes it panic.
//!
//! Reproduces ZooKeeper's `server.command`, `server.admin` and the Prometheus metrics provider.

mod answer;
mod backup;
mod body;
mod change;
mod command;
mod commands;
mod console;
pub(crate) mod date;
mod dump;
mod ensemble;
mod environment;
pub(crate) mod facts;
pub(crate) mod four_letter;
pub(crate) mod guard;
mod health;
pub mod http;
mod idle;
mod leaders;
mod locks;
mod metrics;
mod migration;
mod options;
mod overview;
mod places;
mod pre_stop;
mod query;
mod question;
mod routes;
mod scrape;
mod secure;
mod trace;
mod tree_view;
mod upgrade;
mod version;
mod words;
mod zookeeper_snapshot;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod served;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use backup::{BackupStream, NoBackup};
pub use body::Piece as BackupPiece;
pub(crate) use date::java_date;
pub(crate) use facts::{ClientAddress, Facts};
pub use four_letter::{Word, answer, word};
pub use guard::Guard;
pub(crate) use guard::read_token;
pub use http::serve;
pub use leaders::{LeaderChange, Leaders};
pub(crate) use metrics::{
    BUCKETS, Certificates, Counts, Descriptors, DiskFigures, Distribution, LastBackup, LastImage,
    LinkCounts, Measured, Quantity, ResponseSizes, Tally, bucket_of,
};
pub use metrics::{Counters, LinkCounters};
pub(crate) use options::Surface;
pub use options::{CONNECTIONS_MAX, Options};
pub(crate) use secure::PortTls;
pub use zookeeper_snapshot::SnapshotStream;

use crate::backup::Selection;
use crate::locks::{Local, Scope};
use crate::replica::inspect::Standings;
use crate::replica::{Inspect, MigrateOrder, Report, Status};

/// A pending answer to an [`Inspect`]; `None` means that the server is stopping.
pub(crate) type Inspection<'a> = Pin<Box<dyn Future<Output = Option<Report>> + Send + 'a>>;

/// Pending answers of the other servers of the ensemble, each with its number; `None` for one that
/// did not answer in time.
pub(crate) type Gathering<'a> =
    Pin<Box<dyn Future<Output = Vec<(u64, Option<Local>)>> + Send + 'a>>;

/// What another server says of who keeps up; `None` if it has not answered in time.
pub(crate) type StandingsOf<'a> = Pin<Box<dyn Future<Output = Option<Standings>> + Send + 'a>>;

/// Something that the replica is asked for, on its way there.
pub(crate) type Asking<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A backup on its way.
pub(crate) type Backing<'a> =
    Pin<Box<dyn Future<Output = Result<BackupStream, NoBackup>> + Send + 'a>>;

/// A snapshot of ZooKeeper on its way.
pub(crate) type Snapshotting<'a> =
    Pin<Box<dyn Future<Output = Result<SnapshotStream, NoBackup>> + Send + 'a>>;

/// The server, as this module sees it.
pub trait Source: Send + Sync + 'static {
    /// What does not change while the server runs.
    fn facts(&self) -> &Facts;

    /// The replica's figures, as of the driver's last batch.
    fn status(&self) -> Status;

    /// Why the server is about to end by itself, in one line; `None` as long as it is not.
    fn failure(&self) -> Option<String>;

    /// Why the server is not ready, one sentence for each reason; empty if nothing is wrong.
    fn conditions(&self) -> Vec<String>;

    /// How long the driver has been busy with one turn, or dead, if that is long; else nothing.
    fn stalled(&self) -> Option<Duration>;

    /// The shell's figures, now.
    fn counters(&self) -> Counters;

    /// Who led the ensemble, as this server has learned it since its start, oldest first.
    fn elections(&self) -> Vec<LeaderChange>;

    /// Asks the replica. Costs as much as there is to show.
    fn inspect(&self, what: Inspect) -> Inspection<'_>;

    /// Asks the other servers what they alone know of locks or sessions. No server is waited for longer
    /// than [`GATHER_MAX`].
    fn gather(&self, scope: Scope) -> Gathering<'_>;

    /// Asks the server of the ensemble with this id who keeps up. It is not waited for longer than
    /// [`GATHER_MAX`].
    fn standings_of(&self, server: u8) -> StandingsOf<'_>;

    /// Whether the server with this id runs a program that knows this version of ensembles, as far as it is known: by
    /// the protocol that was agreed with it last.
    fn knows_version(&self, server: u8, version: u8) -> bool;

    /// Has the replica propose that the ensemble goes on to this version, if it leads.
    fn finish_upgrade(&self, version: u8) -> Asking<'_>;

    /// Has the replica do something of a live migration. `admins`: for a cutover, ZooKeeper's AdminServers.
    fn migrate(&self, order: MigrateOrder, admins: Vec<String>) -> Inspection<'_>;

    /// Begins a backup of this part of the state: of all that was acknowledged before.
    fn backup(&self, selection: Selection) -> Backing<'_>;

    /// Begins a snapshot in the format of ZooKeeper: of all that was acknowledged before.
    fn zookeeper_snapshot(&self) -> Snapshotting<'_>;

    /// Sets the shell's counters and tallies to zero (`srst`); the replica is told by
    /// [`Inspect::ResetServer`]. What is a state (connections alive, bytes on disk, the last image,
    /// uptime) stays.
    fn reset_counters(&self);

    /// Whether the configuration lets a client send the four-letter word `word`.
    /// `from_loopback`: the client is on this machine.
    fn word_allowed(&self, word: &str, from_loopback: bool) -> bool;
}

/// How long other servers are waited for.
pub(crate) const GATHER_MAX: Duration = Duration::from_millis(500);
