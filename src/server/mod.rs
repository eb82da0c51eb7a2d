//! SOCKETS AND TASKS: one running server, in this process.
//!
//! *Owns* [`Server`], the handle by which a program (the binary, a test, an application that wants a
//! lock server of its own) starts and stops one. *Invariants*: nothing is bound or created before
//! the configuration is known to be right; the client address is taken before the data is touched;
//! no client is answered before the server serves; when `stop` has returned, every thread has ended and
//! the data directory is free. Rooms: `clients/` (their sockets),
//! `peer/` (other servers), `disk/` (the threads of the log and of checkpoints), `lifecycle/` (from a configuration to
//! a server that runs). Beside them: `driver.rs` (the loop around the replica), `message.rs` and `queue.rs` (what it is
//! sent), `limits.rs`, `figures.rs`, `audit.rs`, `cpu_policy/`
//! (how threads share the cores), `io_threads/` (those that own the sockets of clients where there are many cores).

mod announced;
mod audit;
mod backups;
mod clients;
mod clock;
mod clock_alarm;
mod conditions;
mod connections;
mod cpu_policy;
mod disk;
mod driver;
mod error;
mod figures;
mod files;
mod gssapi;
mod io_threads;
mod lifecycle;
pub mod limits;
mod measures;
mod message;
pub(crate) mod offline;
mod peer;
mod queue;
mod shared;
mod story;
mod striped;
mod sync;
mod ticks;
mod turn_measures;
mod zookeeper;
mod zookeeper_snapshot;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::admin::{Counters, Source};
use crate::config::ConfigError;
use crate::replica::inspect::Mode;
use crate::replica::{Input, Status};
use crate::tls::TlsError;

pub use error::{ServerError, StartError};
#[cfg(feature = "gssapi")]
pub use gssapi::{KEY_TAB_VARIABLE, is_in_environment};
pub use lifecycle::{Builder, Ensemble, EnsembleBuilder, Recovered, file_faults, sasl_setup};

use lifecycle::Running;
use limits::RESIGN_MAX;
use message::Message;
use peer::Peers;
use shared::Shared;

/// A running server. Dropping it asks it to end, without waiting for that; [`Server::stop`] waits.
///
/// It runs in threads of its own; the caller may start it in any runtime.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    running: Running,
    ended: Ended,
    address: SocketAddr,
    secure_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    recovered: Recovered,
    peers: Option<Arc<Peers>>,
}

/// Tells how the driver has ended, once it has.
type Ended = watch::Receiver<Option<Result<(), ServerError>>>;

impl Server {
    /// A server with what an embedding program most often wants: in memory, on a free port of the
    /// loopback interface, without an HTTP port.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients connect, with the port that was really bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.facts.client_address.get().unwrap_or(self.address)
    }

    /// What to give to a client on this machine: `host:port`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        reachable(self.local_addr()).to_string()
    }

    /// Where clients connect through TLS and nothing else; `None` if there is no such port.
    #[must_use]
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.secure_address
    }

    /// What to give to a client on this machine that speaks TLS.
    #[must_use]
    pub fn secure_connect_string(&self) -> Option<String> {
        self.secure_address.map(|address| reachable(address).to_string())
    }

    /// Reads the files of keys and certificates again, as they are on their change. Connections that were made stay.
    ///
    /// # Errors
    /// Which file cannot be used, and why: what was in use stays in use. It is logged as well.
    pub async fn reload_certificates(&self) -> Result<(), TlsError> {
        let mut result = Ok(());
        for certificates in &self.shared.certificates {
            // All of them; the first fault is what is told.
            result = result.and(certificates.reload().await);
        }
        result
    }

    /// Reads the file with the users of SASL again, as it is on its change. What connections have proved stays.
    ///
    /// # Errors
    /// Why it cannot be used: the users that there were stay. It is logged as well.
    pub async fn reload_users(&self) -> Result<(), ConfigError> {
        match &self.shared.users {
            Some(users) => users.reload().await,
            None => Ok(()),
        }
    }

    /// Opens the audit log's file again by its name: for those that have moved it away. Does nothing without one. That
    /// it cannot be opened is logged, and lines go on into the file that was open.
    pub async fn reopen_audit_log(&self) {
        self.shared.published.reopens_audit.store(true, Ordering::Release);
        // Fails if the server is ending.
        let _ = self.shared.driver.send(Message::Wake).await;
    }

    /// Where the HTTP port is; `None` if there is none, or if it could not be bound.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Where the port is that offers metrics alone, through TLS; `None` if there is none, or if it could not be bound.
    #[must_use]
    pub fn secure_metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// What to give to a browser on this machine; `None` if there is no HTTP port.
    #[must_use]
    pub fn admin_url(&self) -> Option<String> {
        let address = reachable(self.admin_address?);
        let scheme = if self.shared.forces_https { "https" } else { "http" };
        Some(format!("{scheme}://{address}{}", self.shared.commands_path))
    }

    /// Where the data is; `None` in memory.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        self.shared.facts.data_dir.as_deref()
    }

    /// What was found on the disk at the start.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The replica's figures, as of the driver's last batch.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// What operators look at.
    pub(crate) fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.shared) as Arc<dyn Source>
    }

    /// The sockets' and the disk's figures, now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Has no links with these servers of its ensemble from now on: as if the network between them
    /// were cut, in both directions. An empty list heals it. For tests.
    pub fn cut_off_from(&self, servers: &[u8]) {
        if let Some(peers) = &self.peers {
            peers.bar(servers.iter().copied().collect());
        }
    }

    /// Has a thread or task of this kind panic, when one runs next. For tests, in debug builds only.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn panic_in(&self, task: crate::supervision::Task) {
        if let Some(supervisor) = &self.shared.supervisor {
            supervisor.panic_in(task);
        }
    }

    /// Why it has ended by itself; `None` while it has not.
    fn failure(&self) -> Option<ServerError> {
        self.ended.borrow().as_ref()?.clone().err()
    }

    /// Waits until the server ends by itself, or because [`Server::stop`] was called on another
    /// task's behalf.
    ///
    /// A panic of any thread or task of the server ends it: its ports close, and this returns
    /// [`ServerError::Panic`] within a second, even if a thread of it still waits for the disk then.
    /// The process goes on, and with it other servers in it.
    ///
    /// # Errors
    /// Why it could not go on.
    pub async fn wait(&self) -> Result<(), ServerError> {
        ended(self.ended.clone()).await
    }

    /// Ends the server: the leader of an ensemble hands over first, for at most half a second; then
    /// it closes its connections (sessions are kept for their timeouts), makes what is in the log
    /// durable, joins the threads and frees the data directory.
    ///
    /// # Errors
    /// Why it had ended before, if it had ended by itself. Only behind [`ServerError::Panic`] a
    /// thread may still be there and hold the data directory: see [`Server::wait`].
    pub async fn stop(self) -> Result<(), ServerError> {
        self.resign().await;
        self.end().await
    }

    /// As [`Server::stop`], without a word to the other servers.
    async fn end(self) -> Result<(), ServerError> {
        self.running.ask_to_end();
        ended(self.ended).await
    }
}

impl Server {
    /// Lets another server lead, and answers what was in flight until then.
    async fn resign(&self) {
        let is_leader = || self.status().mode == Mode::Leader;
        if self.peers.is_none() || !is_leader() {
            return;
        }
        let resign = async {
            if self.shared.driver.send(Message::Input(Input::Resign)).await.is_err() {
                return;
            }
            while is_leader() {
                sleep(RESIGN_LOOK).await;
            }
        };
        // Without another server that could lead there is nothing to wait for.
        let _ = timeout(RESIGN_MAX, resign).await;
    }
}

async fn ended(mut ended: Ended) -> Result<(), ServerError> {
    match ended.wait_for(Option::is_some).await {
        Ok(result) => result.clone().expect("waited for"),
        Err(_) => Err(ServerError::Panic {
            task: "lk-server",
            message: "ended without a word".to_string(),
            location: None,
        }),
    }
}

/// Time between two looks whether another server leads.
const RESIGN_LOOK: Duration = Duration::from_millis(5);

/// An address to connect to, for one that is listened on.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
