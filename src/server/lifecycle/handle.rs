//! The handle by which a program starts and stops a server: the binary, a test, an application that wants a lock server
//! of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::ports::Ports;
use super::recovered::Recovered;
use crate::admin::{Counters, Source};
use crate::config::ConfigError;
use crate::replica::inspect::Mode;
use crate::replica::{Input, Status};
use crate::server::error::ServerError;
use crate::server::limits::RESIGN_MAX;
use crate::server::mailbox::Message;
use crate::server::peer::Peers;
use crate::server::stop::Stop;
use crate::tls::TlsError;

/// A running server. Dropping it asks it to end, without waiting for that; [`Server::stop`] waits.
///
/// It runs in threads of its own; the caller may start it in any runtime.
#[derive(Debug)]
pub struct Server {
    pub(super) ports: Ports,
    pub(super) running: Running,
    pub(super) ended: Ended,
    pub(super) recovered: Recovered,
    pub(super) peers: Option<Arc<Peers>>,
}

/// Tells how the driver has ended, once it has.
pub(super) type Ended = watch::Receiver<Option<Result<(), ServerError>>>;

impl Server {
    /// Where clients connect, with the port that was really bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.ports.shared.facts.client_address.get().unwrap_or(self.ports.address)
    }

    /// What to give to a client on this machine: `host:port`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        reachable(self.local_addr()).to_string()
    }

    /// Where clients connect through TLS and nothing else; `None` if there is no such port.
    #[must_use]
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.ports.secure_address
    }

    /// What to give to a client on this machine that speaks TLS.
    #[must_use]
    pub fn secure_connect_string(&self) -> Option<String> {
        self.ports.secure_address.map(|address| reachable(address).to_string())
    }

    /// Reads the files of keys and certificates again, as they are on their change. Connections that were made stay.
    ///
    /// # Errors
    /// Which file cannot be used, and why: what was in use stays in use. It is logged as well.
    pub async fn reload_certificates(&self) -> Result<(), TlsError> {
        let mut result = Ok(());
        for certificates in &self.ports.shared.certificates {
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
        match &self.ports.shared.users {
            Some(users) => users.reload().await,
            None => Ok(()),
        }
    }

    /// Opens the audit log's file again by its name: for those that have moved it away. Does nothing without one. That
    /// it cannot be opened is logged, and lines go on into the file that was open.
    pub async fn reopen_audit_log(&self) {
        self.ports.shared.published.reopens_audit.store(true, Ordering::Release);
        // Fails if the server is ending.
        let _ = self.ports.shared.driver.send(Message::Wake).await;
    }

    /// Where the HTTP port is; `None` if there is none, or if it could not be bound.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.ports.http.admin
    }

    /// Where the port is that offers metrics alone, through TLS; `None` if there is none, or if it could not be bound.
    #[must_use]
    pub fn secure_metrics_addr(&self) -> Option<SocketAddr> {
        self.ports.http.metrics
    }

    /// What to give to a browser on this machine; `None` if there is no HTTP port.
    #[must_use]
    pub fn admin_url(&self) -> Option<String> {
        let address = reachable(self.ports.http.admin?);
        let scheme = if self.ports.shared.forces_https { "https" } else { "http" };
        Some(format!("{scheme}://{address}{}", self.ports.shared.commands_path))
    }

    /// Where the data is; `None` in memory.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        self.ports.shared.facts.data_dir.as_deref()
    }

    /// What was found on the disk at the start.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The replica's figures, as of the driver's last batch.
    #[must_use]
    pub fn status(&self) -> Status {
        self.ports.shared.status()
    }

    /// What operators look at.
    pub(crate) fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.ports.shared) as Arc<dyn Source>
    }

    /// The sockets' and the disk's figures, now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.ports.shared.counters()
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
        if let Some(supervisor) = &self.ports.shared.supervisor {
            supervisor.panic_in(task);
        }
    }

    /// Why it has ended by itself; `None` while it has not.
    pub(super) fn failure(&self) -> Option<ServerError> {
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
    pub(super) async fn end(self) -> Result<(), ServerError> {
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
            if self.ports.shared.driver.send(Message::Input(Input::Resign)).await.is_err() {
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

pub(super) async fn ended(mut ended: Ended) -> Result<(), ServerError> {
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

/// Asks the server to end when it is dropped: by the owner of the server, or by a start that fails
/// or is given up.
#[derive(Debug)]
pub(in crate::server) struct Running {
    pub(in crate::server) stop: Arc<Stop>,
    pub(super) messages: mpsc::Sender<Message>,
}

impl Running {
    pub(in crate::server) fn ask_to_end(&self) {
        self.stop.ask();
        // A full queue wakes the driver as well.
        let _ = self.messages.try_send(Message::Wake);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}
