//! What a server is started with.
//!
//! *Owns* [`Builder`]. *Invariant*: every setter goes through the table of configuration keys, so
//! that a value is checked in one place wherever it comes from; the first fault is not lost behind later
//! ones. *Never* touches the disk or the network before `start`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::handle::Server;
use crate::config::{Config, ConfigError};
use crate::server::limits::Limits;
use crate::storage::{Fs, OsFs};

/// Collects what a server is started with; [`Builder::start`] checks and starts it.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(in crate::server) config: Config,
    pub(in crate::server) is_in_memory: bool,
    pub(in crate::server) is_rejoining: bool,
    pub(in crate::server) outgoing: Option<(usize, usize, Duration)>,
    pub(in crate::server) cut_off: BTreeSet<u8>,
    pub(in crate::server) files: Arc<dyn Fs>,
    #[cfg(debug_assertions)]
    pub(in crate::server) panics_in: Option<crate::supervision::Task>,
    pub(super) errors: Vec<ConfigError>,
}

impl Server {
    /// A server with what an embedding program most often wants: in memory, on a free port of the
    /// loopback interface, without an HTTP port.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        let builder = Self {
            config: Config::without_file(),
            is_in_memory: true,
            is_rejoining: false,
            outgoing: None,
            cut_off: BTreeSet::new(),
            files: Arc::new(OsFs),
            #[cfg(debug_assertions)]
            panics_in: None,
            errors: Vec::new(),
        };
        builder.set("clientPort", "0").set("admin.enableServer", "false")
    }
}

impl Builder {
    /// Takes everything from a configuration, data directory and HTTP port included.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self.is_in_memory = false;
        self
    }

    /// Sets one key of the configuration, as a line of a zoo.cfg would.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        if let Err(errors) = self.config.set(key, value, "builder") {
            self.errors.extend(errors);
        }
        self
    }

    /// Where clients connect. Port 0 takes any free one.
    #[must_use]
    pub fn address(self, host: &str, port: u16) -> Self {
        self.set("clientPortAddress", host).set("clientPort", &port.to_string())
    }

    /// Where clients connect through TLS, beside the other address. Port 0 takes any free one. It needs a key
    /// (`ssl.keyStore.location`), and what to judge clients by (`ssl.trustStore.location`, or `ssl.clientAuth=none`).
    #[must_use]
    pub fn secure_address(self, host: &str, port: u16) -> Self {
        let builder = self.set("secureClientPortAddress", host);
        if port > 0 {
            return builder.set("secureClientPort", &port.to_string());
        }
        // In a file that is none.
        let mut builder = builder;
        builder.config.tls.secure_client_port = Some(port);
        builder.set("secureClientPortAddress", host)
    }

    /// Keeps everything in this directory, which is created if it is not there. What an earlier
    /// server left in it is continued.
    #[must_use]
    pub fn data_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.is_in_memory = false;
        let directory: PathBuf = directory.as_ref().to_path_buf();
        self.set("dataDir", &directory.display().to_string())
    }

    /// Keeps everything in memory: nothing survives the end of the server. This is the default.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.is_in_memory = true;
        self
    }

    /// Puts away what is in the data directory (nothing is removed) and begins anew, as a server of
    /// an ensemble that the others send everything to. For a server whose data is damaged.
    #[must_use]
    pub fn rejoin(mut self) -> Self {
        self.is_rejoining = true;
        self
    }

    /// ZooKeeper's tick: unless set, session timeouts are limited to 2 and 20 of them.
    #[must_use]
    pub fn tick_time(self, tick: Duration) -> Self {
        self.set("tickTime", &tick.as_millis().to_string())
    }

    /// The shortest and the longest session timeout that is granted.
    #[must_use]
    pub fn session_timeouts(self, shortest: Duration, longest: Duration) -> Self {
        // Together, because each is checked against the other.
        let mut builder = self;
        let mut config = builder.config.clone();
        let shortest = shortest.as_millis().to_string();
        let longest = longest.as_millis().to_string();
        let set = config
            .set("minSessionTimeout", "-1", "builder")
            .and_then(|()| config.set("maxSessionTimeout", &longest, "builder"))
            .and_then(|()| config.set("minSessionTimeout", &shortest, "builder"));
        match set {
            Ok(()) => builder.config = config,
            Err(errors) => builder.errors.extend(errors),
        }
        builder
    }

    /// Offers the HTTP port (`/commands`, `/metrics`, `/livez`, `/readyz`) there. Port 0 takes any
    /// free one. If it cannot be bound, the server warns and runs without.
    #[must_use]
    pub fn admin_address(self, host: &str, port: u16) -> Self {
        self.set("admin.enableServer", "true")
            .set("admin.serverAddress", host)
            .set("admin.serverPort", &port.to_string())
    }

    /// Writes one line of JSON per transaction to this file, before it is acknowledged.
    #[must_use]
    pub fn audit_log(self, file: impl AsRef<Path>) -> Self {
        self.set("lockkeeper.auditLog", &file.as_ref().display().to_string())
    }

    /// The four-letter words that are answered, as `4lw.commands.whitelist`.
    #[must_use]
    pub fn four_letter_words(self, whitelist: &str) -> Self {
        self.set("4lw.commands.whitelist", whitelist)
    }

    /// Longest request frame in bytes, as `jute.maxbuffer`.
    #[must_use]
    pub fn frame_bytes_max(self, bytes: usize) -> Self {
        self.set("jute.maxbuffer", &bytes.to_string())
    }

    /// Connections from one address, and in all; 0 is no limit.
    #[must_use]
    pub fn connections_max(self, per_ip: u32, total: u32) -> Self {
        self.set("maxClientCnxns", &per_ip.to_string()).set("maxCnxns", &total.to_string())
    }

    /// Outgoing bytes of one connection: above `soft` nothing is read from it, above `hard` it is
    /// cut off if it has not taken the oldest of them for `stall`. For tests of slow clients.
    #[must_use]
    pub fn outgoing_bytes_max(mut self, soft: usize, hard: usize, stall: Duration) -> Self {
        self.outgoing = Some((soft, hard, stall));
        self
    }

    /// See [`Server::cut_off_from`]: from the start on.
    #[must_use]
    pub fn cut_off_from(mut self, servers: &[u8]) -> Self {
        self.cut_off = servers.iter().copied().collect();
        self
    }

    /// See [`Server::panic_in`]: from the start on.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn panic_in(mut self, task: crate::supervision::Task) -> Self {
        self.panics_in = Some(task);
        self
    }

    /// Keeps log and images on this file system. For tests of disks that fail.
    #[doc(hidden)]
    #[must_use]
    pub fn file_system(mut self, files: Arc<dyn Fs>) -> Self {
        self.files = files;
        self
    }

    pub(in crate::server) fn limits(&self) -> Limits {
        let mut limits = Limits::of(&self.config);
        if let Some((soft, hard, stall)) = self.outgoing {
            limits.outgoing_bytes_soft_max = soft;
            limits.outgoing_bytes_max = hard;
            limits.outgoing_stall_max = stall;
        }
        limits
    }
}
