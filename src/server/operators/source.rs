//! What the tasks of one server share: where the driver is, what the limits are, what is counted.
//!
//! *Owns* [`Shared`], which is also what operators look at (`admin::Source`). *Invariant*: nothing in
//! it is locked for longer than a copy.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::backups;
use super::shared::Shared;
use super::zookeeper_snapshot;
use crate::admin::{
    BackupStream, Counters, Facts, LeaderChange, NoBackup, Pending, SnapshotStream, Source,
    ZooKeeperPort, ZooKeeperWords,
};
use crate::backup::Selection;
use crate::locks::{Local, Scope};
use crate::replica::inspect::{MIGRATION_UNKNOWN, Standings};
use crate::replica::{Input, Inspect, MigrateOrder, Report, Status};
use crate::server::credentials::{Followed, FollowedUsers};
use crate::server::error::ServerError;
use crate::server::limits::INSPECT_MAX;
use crate::server::mailbox::{Message, inspect};
use crate::server::peer::{lock_query, standings_query};

impl Source for Shared {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn status(&self) -> Status {
        self.published.status()
    }

    fn failure(&self) -> Option<String> {
        let failure = self.supervisor.as_ref()?.failure()?;
        Some(ServerError::from(failure).to_string())
    }

    fn stalled(&self) -> Option<Duration> {
        self.published.stalled()
    }

    fn conditions(&self) -> Vec<String> {
        self.published.conditions.all()
    }

    fn counters(&self) -> Counters {
        Counters {
            incoming_bytes: self.received.bytes(),
            handshakes_failed: self.handshakes.failed(),
            handshakes_open: self.handshakes.open(),
            fatal_errors: self.errors.before() + u64::from(self.failure().is_some()),
            certificates: self.certificates.iter().map(Followed::certificates).collect(),
            sasl_users_outdated: self.users.as_ref().map(FollowedUsers::is_outdated),
            ..self.figures.snapshot()
        }
    }

    fn elections(&self) -> Vec<LeaderChange> {
        self.published.leaders.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    fn inspect(&self, what: Inspect) -> Pending<'_, Option<Report>> {
        Box::pin(async move {
            let ask = async {
                let _turn = match what {
                    // What may walk through much: one at a time, so that clients are answered in between.
                    Inspect::Locks(_)
                    | Inspect::Departures(_)
                    | Inspect::Ephemerals
                    | Inspect::Sessions
                    | Inspect::Watches
                    | Inspect::WatchSummary
                    | Inspect::Znode(_) => Some(self.turn.lock().await),
                    Inspect::Connections
                    | Inspect::Synced
                    | Inspect::Migration
                    | Inspect::Digests
                    | Inspect::Membership
                    | Inspect::Standings
                    | Inspect::Namespaces
                    | Inspect::ResetConnections
                    | Inspect::ResetServer => None,
                };
                inspect(&self.driver, what).await
            };
            timeout(INSPECT_MAX, ask).await.unwrap_or(None)
        })
    }

    fn gather(&self, scope: Scope) -> Pending<'_, Vec<(u64, Option<Local>)>> {
        Box::pin(async move {
            match &self.peers {
                Some(peers) => lock_query::gather(peers, scope).await,
                None => Vec::new(),
            }
        })
    }

    fn standings_of(&self, server: u8) -> Pending<'_, Option<Standings>> {
        Box::pin(async move { standings_query::ask(self.peers.as_deref()?, server).await })
    }

    fn knows_version(&self, server: u8, version: u8) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.knows_version(server, version))
    }

    fn finish_upgrade(&self, version: u8) -> Pending<'_, ()> {
        // Fails when the server is ending: then nothing comes of it, and who asked sees that.
        let input = Message::Input(Input::FinishUpgrade { version });
        Box::pin(async move { drop(self.driver.send(input).await) })
    }

    fn bootstrap(&self, without: Vec<u8>) -> Pending<'_, Option<Result<u128, String>>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.driver.send(Message::Bootstrap { without, answer }).await.ok()?;
            answered.await.ok()
        })
    }

    fn migrate(&self, order: MigrateOrder, words: ZooKeeperWords) -> Pending<'_, Option<Report>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.driver.send(Message::Migrate { order, words, answer }).await.ok()?;
            match timeout(MIGRATE_MAX, answered).await {
                Ok(answered) => answered.ok(),
                Err(_) => Some(Report::Migrated(Err(format!(
                    "there was no answer in time: {MIGRATION_UNKNOWN}"
                )))),
            }
        })
    }

    fn zookeeper_ports(&self, ports: Vec<String>) -> Pending<'_, Vec<ZooKeeperPort>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            // Fails when the server is ending.
            let _ = self.driver.send(Message::ZooKeeperPorts { ports, answer }).await;
            answered.await.unwrap_or_default()
        })
    }

    fn backup(&self, selection: Selection) -> Pending<'_, Result<BackupStream, NoBackup>> {
        Box::pin(backups::begin(self, selection))
    }

    fn zookeeper_snapshot(&self) -> Pending<'_, Result<SnapshotStream, NoBackup>> {
        Box::pin(zookeeper_snapshot::begin(self))
    }

    fn reset_counters(&self) {
        self.figures.reset();
    }

    fn word_allowed(&self, word: &str, from_loopback: bool) -> bool {
        self.words.allows(word, from_loopback)
    }
}

/// How long an order of a live migration may take: longer than a cutover that compares ZooKeeper's whole state.
const MIGRATE_MAX: Duration = Duration::from_secs(75);
