//! The server, as operators' pages see it, and questions to it with the types of their answers.
//!
//! *Owns* [`Source`], the fixed facts, the list of leaders, and streams of backups. *Never* writes a text for
//! operators.

mod backups;
mod facts;
mod leaders;
pub(super) mod question;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use self::backups::{BackupPiece, BackupStream, NoBackup, SnapshotStream};
pub(crate) use self::facts::{ClientAddress, Facts};
pub use self::leaders::{LeaderChange, Leaders};
use super::Counters;
use crate::backup::Selection;
use crate::locks::{Local, Scope};
use crate::replica::inspect::Standings;
use crate::replica::{Inspect, MigrateOrder, Report, Status};

/// An answer on its way.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Words of an operator about ZooKeeper's machines, before a cutover and before the end of a live migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZooKeeperWords {
    /// AdminServers, `host:port`: each has to answer.
    pub admins: Vec<String>,
    /// All ports for clients of the machines that are named here, `host:port`.
    pub ports: Vec<String>,
    /// Machines behind a firewall that drops, or gone: where one is silent, nothing listens.
    pub silent: Vec<String>,
    /// Servers of this ensemble that may be away.
    pub down: Vec<u8>,
}

/// A port of a machine of ZooKeeper, as it is seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperPort {
    /// `host:port`.
    pub at: String,
    /// Whether something listens there.
    ///
    /// # Errors
    /// Why that cannot be seen.
    pub listens: Result<bool, String>,
}

/// The server, as this module sees it.
pub trait Source: Send + Sync + 'static {
    /// Facts that do not change while the server runs.
    fn facts(&self) -> &Facts;

    /// The replica's figures, as of the driver's last batch.
    fn status(&self) -> Status;

    /// Why the server is about to end by itself, in one line; `None` as long as it is not.
    fn failure(&self) -> Option<String>;

    /// Why the server is not ready, one sentence for each reason; empty if nothing is wrong.
    fn conditions(&self) -> Vec<String>;

    /// Time for which the driver has been busy with one turn, or dead, if that is long; else nothing.
    fn stalled(&self) -> Option<Duration>;

    /// The shell's figures, now.
    fn counters(&self) -> Counters;

    /// Leaders of the ensemble, as this server has learned of them since its start, oldest first.
    fn elections(&self) -> Vec<LeaderChange>;

    /// Asks the replica; `None` means that the server is stopping. Costs as much as there is to show.
    fn inspect(&self, what: Inspect) -> Pending<'_, Option<Report>>;

    /// Asks the other servers of the ensemble, each with its number, what they alone know of locks or sessions.
    /// No server is waited for longer than [`GATHER_MAX`]: `None` for one that did not answer in time.
    fn gather(&self, scope: Scope) -> Pending<'_, Vec<(u64, Option<Local>)>>;

    /// Asks the server of the ensemble with this id who keeps up. It is not waited for longer than
    /// [`GATHER_MAX`]: `None` if it has not answered in time.
    fn standings_of(&self, server: u8) -> Pending<'_, Option<Standings>>;

    /// Whether the server with this id runs a program that knows this version of ensembles, as far as it is known: by
    /// the protocol that was agreed with it last.
    fn knows_version(&self, server: u8, version: u8) -> bool;

    /// Has the replica propose that the ensemble goes on to this version, if it leads.
    fn finish_upgrade(&self, version: u8) -> Pending<'_, ()>;

    /// Has this server, which belongs to no ensemble yet, found one without these servers, or help to. The id of the
    /// ensemble once it is founded, or why it is not, one reason in each line; `None`: the server is stopping. Waits
    /// for up to a minute.
    fn bootstrap(&self, without: Vec<u8>) -> Pending<'_, Option<Result<u128, String>>>;

    /// Has the replica do something of a live migration, where `words` say what ZooKeeper's machines do not.
    fn migrate(&self, order: MigrateOrder, words: ZooKeeperWords) -> Pending<'_, Option<Report>>;

    /// Looks at ports of ZooKeeper's machines, each `host:port`, from here.
    fn zookeeper_ports(&self, ports: Vec<String>) -> Pending<'_, Vec<ZooKeeperPort>>;

    /// Begins a backup of this part of the state: of all that was acknowledged before.
    fn backup(&self, selection: Selection) -> Pending<'_, Result<BackupStream, NoBackup>>;

    /// Begins a snapshot in the format of ZooKeeper: of all that was acknowledged before.
    fn zookeeper_snapshot(&self) -> Pending<'_, Result<SnapshotStream, NoBackup>>;

    /// Sets the shell's counters and tallies to zero (`srst`); the replica is told by
    /// [`Inspect::ResetServer`]. What is a state (connections alive, bytes on disk, the last image,
    /// uptime) stays.
    fn reset_counters(&self);

    /// Whether the configuration lets a client send the four-letter word `word`.
    /// `from_loopback`: the client is on this machine.
    fn word_allowed(&self, word: &str, from_loopback: bool) -> bool;
}

/// Longest wait for other servers.
pub(crate) const GATHER_MAX: Duration = Duration::from_millis(500);
