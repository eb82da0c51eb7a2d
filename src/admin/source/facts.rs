//! What does not change while a server runs, but for where its clients connect.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Fixed properties of a server, as `conf` and the HTTP port show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `myid`; 0 is what ZooKeeper shows for a standalone server.
    pub server_id: u64,
    /// Where clients connect.
    pub client_address: ClientAddress,
    /// Where clients connect with TLS; `None` without such a port.
    pub secure_client_address: Option<SocketAddr>,
    /// Absolute directory of images and the tree's copy; `None` in memory.
    pub data_dir: Option<PathBuf>,
    /// Absolute directory of the log; `None` in memory.
    pub log_dir: Option<PathBuf>,
    /// `tickTime`.
    pub tick_time_ms: u32,
    /// `maxClientCnxns`: connections from one address; 0 for no limit.
    pub connections_per_ip_max: u32,
    /// Shortest session timeout granted.
    pub session_timeout_ms_min: i32,
    /// Longest session timeout granted.
    pub session_timeout_ms_max: i32,
    /// `clientPortListenBacklog`; -1 for the default.
    pub listen_backlog: i32,
    /// `initLimit` as configured, ticks; shown in an ensemble.
    pub init_limit: Option<i64>,
    /// `syncLimit` as configured, ticks; shown in an ensemble.
    pub sync_limit: Option<i64>,
    /// Text of the configuration file, empty without one. Shown to anyone who reaches the HTTP
    /// port: the server that fills it leaves passwords out.
    pub initial_configuration: String,
    /// Settings in force, for `/commands/system_properties`: the same warning holds.
    pub properties: Vec<(String, String)>,
}

/// Where clients connect, with the port that was really bound; nowhere without a plain port. Clones are of
/// one and the same, which a change of the members may move.
#[derive(Clone, Debug, Default)]
pub struct ClientAddress(Arc<Mutex<Option<SocketAddr>>>);

impl ClientAddress {
    /// At this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(Some(address))))
    }

    /// Where it is now.
    #[must_use]
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has moved.
    pub fn set(&self, address: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }
}

impl PartialEq for ClientAddress {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for ClientAddress {}
