//! What the tasks of one server share: where the driver is, what the limits are, what is counted.
//!
//! *Owns* [`Shared`], which is also what operators look at (`admin::Source`). *Invariant*: nothing in
//! it is locked for longer than a copy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::backups::{self, Backups};
use super::clients::{Admission, Handshakes, Received, Throttle};
use super::clock::wall_ms;
use super::conditions::Conditions;
use super::error::ServerError;
use super::figures::Figures;
use super::lifecycle::{Followed, FollowedUsers};
use super::limits::{INSPECT_MAX, Limits};
use super::message::Message;
use super::peer::{Peers, lock_query, standings_query};
use super::zookeeper_snapshot;
use crate::admin::{
    Asking, Backing, Counters, Facts, Gathering, Inspection, LeaderChange, Leaders, Snapshotting,
    Source, StandingsOf,
};
use crate::backup::Selection;
use crate::config::FourLetterWords;
use crate::locks::Scope;
use crate::replica::inspect::MIGRATION_UNKNOWN;
use crate::replica::{Input, Inspect, MigrateOrder, Report, Status};
use crate::storage::ErrorCount;
use crate::supervision::Supervisor;

/// Shared by everything that belongs to one server.
#[derive(Debug)]
pub(super) struct Shared {
    /// The way to the driver.
    pub driver: mpsc::Sender<Message>,
    /// The bounds of this server.
    pub limits: Limits,
    /// What is in flight.
    pub throttle: Arc<Throttle>,
    /// What has arrived and is not handed on.
    pub received: Received,
    /// What clients pass that come, act or leave with many others.
    pub admission: Admission,
    /// By which keys and certificates ports speak TLS.
    pub certificates: Vec<Followed>,
    /// What follows the file with the users of SASL, if there is one.
    pub users: Option<FollowedUsers>,
    /// Handshakes with them.
    pub handshakes: Handshakes,
    /// What is counted.
    pub figures: Arc<Figures>,
    /// What the driver has published last.
    pub published: Arc<Published>,
    /// What does not change.
    pub facts: Facts,
    /// Who may ask which word.
    pub words: FourLetterWords,
    /// Where on the HTTP port the commands are.
    pub commands_path: String,
    /// Whether that port takes TLS alone.
    pub forces_https: bool,
    /// The other servers; `None` without an ensemble.
    pub peers: Option<Arc<Peers>>,
    /// Held by a task that asks for locks: that takes more of the driver's time than other questions.
    pub turn: tokio::sync::Mutex<()>,
    /// Knows whether a thread or task has panicked; `None` in unit tests.
    pub supervisor: Option<Arc<Supervisor>>,
    /// How many errors have ended servers of this data.
    pub errors: Arc<ErrorCount>,
    /// Lets one backup be made at a time.
    pub backups: Backups,
}

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

    fn inspect(&self, what: Inspect) -> Inspection<'_> {
        Box::pin(async move {
            let ask = async {
                let _turn = match what {
                    Inspect::Locks(_) => Some(self.turn.lock().await),
                    Inspect::Connections
                    | Inspect::Synced
                    | Inspect::Migration
                    | Inspect::Sessions
                    | Inspect::Ephemerals
                    | Inspect::Watches
                    | Inspect::Digests
                    | Inspect::Membership
                    | Inspect::Departures(_)
                    | Inspect::Znode(_)
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

    fn gather(&self, scope: Scope) -> Gathering<'_> {
        Box::pin(async move {
            match &self.peers {
                Some(peers) => lock_query::gather(peers, scope).await,
                None => Vec::new(),
            }
        })
    }

    fn standings_of(&self, server: u8) -> StandingsOf<'_> {
        Box::pin(async move { standings_query::ask(self.peers.as_deref()?, server).await })
    }

    fn knows_version(&self, server: u8, version: u8) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.knows_version(server, version))
    }

    fn finish_upgrade(&self, version: u8) -> Asking<'_> {
        // Fails when the server is ending: then nothing comes of it, and who asked sees that.
        let input = Message::Input(Input::FinishUpgrade { version });
        Box::pin(async move { drop(self.driver.send(input).await) })
    }

    fn migrate(&self, order: MigrateOrder, admins: Vec<String>) -> Inspection<'_> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.driver.send(Message::Migrate { order, admins, answer }).await.ok()?;
            match timeout(MIGRATE_MAX, answered).await {
                Ok(answered) => answered.ok(),
                Err(_) => Some(Report::Migrated(Err(format!(
                    "there was no answer in time: {MIGRATION_UNKNOWN}"
                )))),
            }
        })
    }

    fn backup(&self, selection: Selection) -> Backing<'_> {
        Box::pin(backups::begin(self, selection))
    }

    fn zookeeper_snapshot(&self) -> Snapshotting<'_> {
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

/// What the replica says; `None` if the server is stopping.
pub(super) async fn inspect(driver: &mpsc::Sender<Message>, what: Inspect) -> Option<Report> {
    let (answer, answered) = oneshot::channel();
    driver.send(Message::Inspect { what, answer }).await.ok()?;
    answered.await.ok()
}

/// The replica's figures, as of the driver's last batch, and what is wrong.
#[derive(Debug)]
pub(super) struct Published {
    status: Mutex<Status>,
    /// Who led, and when.
    leaders: Mutex<Leaders>,
    /// When it was published last, in milliseconds since `born`; 0: never.
    published_ms: AtomicU64,
    born: Instant,
    /// Why this server is not ready.
    pub conditions: Conditions,
    /// The file of the audit log may have been moved away: it is to be opened anew.
    pub reopens_audit: AtomicBool,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            status: Mutex::default(),
            leaders: Mutex::default(),
            published_ms: AtomicU64::new(0),
            born: Instant::now(),
            conditions: Conditions::default(),
            reopens_audit: AtomicBool::new(false),
        }
    }
}

impl Published {
    /// How long ago the driver has published last, which it does in every turn, if that is longer than
    /// turns are apart; nothing before it has begun.
    #[must_use]
    pub(super) fn stalled(&self) -> Option<Duration> {
        let published = Duration::from_millis(self.published_ms.load(Ordering::Acquire));
        let ago = self.born.elapsed().saturating_sub(published);
        (!published.is_zero() && ago > TURN_USUAL_MAX).then_some(ago)
    }

    /// A copy.
    #[must_use]
    pub(super) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it.
    pub(super) fn publish(&self, status: Status) {
        let mut leaders = self.leaders.lock().unwrap_or_else(PoisonError::into_inner);
        leaders.note(status.leader, status.term, wall_ms);
        drop(leaders);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        let now_ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.published_ms.store(now_ms.max(1), Ordering::Release);
    }
}

/// An idle driver has a turn with every tick; a busy one is not stuck yet.
const TURN_USUAL_MAX: Duration = Duration::from_secs(1);

/// Tells threads and tasks alike that the server is to end.
#[derive(Debug)]
pub(super) struct Stop {
    flag: AtomicBool,
    tasks: watch::Sender<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { flag: AtomicBool::new(false), tasks: watch::Sender::new(false) }
    }
}

impl Stop {
    /// Asks for the end. The driver looks when it is woken.
    pub(super) fn ask(&self) {
        self.flag.store(true, Ordering::Release);
        self.tasks.send_replace(true);
    }

    /// Whether the end was asked for.
    #[must_use]
    pub(super) fn is_asked(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Runs a task until its end, or until then.
    pub(super) async fn before(self: Arc<Self>, task: impl Future<Output = ()>) {
        tokio::select! {
            () = self.asked() => {}
            () = task => {}
        }
    }

    /// Waits until it is.
    pub(super) async fn asked(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.tasks.subscribe().wait_for(|asked| *asked).await;
    }
}
