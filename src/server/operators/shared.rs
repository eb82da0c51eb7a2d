//! The parts of one server that operators see.
//!
//! *Owns* [`Shared`]; what operators are answered is in `source.rs`. *Invariant*: nothing in it is locked for longer
//! than a copy.

use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, mpsc};

use crate::admin::Facts;
use crate::config::FourLetterWords;
use crate::server::clients::Received;
use crate::server::clock::Periodic;
use crate::server::credentials::{Followed, FollowedUsers};
use crate::server::mailbox::Message;
use crate::server::metrics::{Figures, Published};
use crate::server::peer::Peers;
use crate::server::transport::Handshakes;
use crate::storage::ErrorCount;
use crate::supervision::Supervisor;

/// Shared by everything that belongs to one server.
#[derive(Debug)]
pub(in crate::server) struct Shared {
    /// The way to the driver.
    pub driver: mpsc::Sender<Message>,
    /// Bytes that have arrived and are not handed on.
    pub received: Arc<Received>,
    /// Keys and certificates of ports that speak TLS.
    pub certificates: Vec<Followed>,
    /// Follower of the file with the users of SASL, if there is one.
    pub users: Option<FollowedUsers>,
    /// Handshakes with them.
    pub handshakes: Arc<Handshakes>,
    /// Counters.
    pub figures: Arc<Figures>,
    /// State that the driver has published last.
    pub published: Arc<Published>,
    /// Facts that do not change.
    pub facts: Facts,
    /// Four-letter words that are answered.
    pub words: FourLetterWords,
    /// Path of the commands on the HTTP port.
    pub commands_path: String,
    /// Whether that port takes TLS alone.
    pub forces_https: bool,
    /// The other servers; `None` without an ensemble.
    pub peers: Option<Arc<Peers>>,
    /// Held by a task that asks for locks: that takes more of the driver's time than other questions.
    pub turn: tokio::sync::Mutex<()>,
    /// Knows whether a thread or task has panicked; `None` in unit tests.
    pub supervisor: Option<Arc<Supervisor>>,
    /// Number of errors that have ended servers of this data.
    pub errors: Arc<ErrorCount>,
    /// Lets one backup be made at a time.
    pub backup_turn: Arc<Semaphore>,
    /// A snapshot of ZooKeeper.
    pub snapshot_asked: Mutex<Periodic>,
}
