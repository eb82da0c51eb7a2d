//! Configuration: the text of a ZooKeeper configuration file -> [`Config`].
//!
//! Owns the meaning of every key: one table (`table.rs`, `accepted.rs`) holds names, defaults,
//! limits and docs; docs/CONFIGURATION.md and conf/zoo.cfg are generated from it. Reproduces
//! `QuorumPeerConfig` and the `zookeeper.*` system properties that a zoo.cfg may set.
//!
//! Invariants: a [`Config`] is always complete and consistent; whatever is wrong with a file is
//! reported at once, each fault as `file:line: key: reason`; a key that asks for protection which
//! is not there is refused by name.
//!
//! Never reads files, the environment or the clock, and never resolves a name: the caller gives
//! the texts of the file, of `dynamicConfigFile` and of `myid`.
//!
//! ```
//! use lockkeeper_core::config::{Config, Draft};
//!
//! let config = Config::parse("zoo.cfg", "dataDir=/data\nclientPort=2181\n").unwrap();
//! assert_eq!(config.max_session_timeout_ms, 60_000);
//!
//! let mut draft = Draft::from_text("zoo.cfg", "clientPort=2181\ntickTime=2s\n");
//! draft.set("dataDir", "/data", "--data-dir");
//! let errors = draft.resolve().unwrap_err();
//! assert_eq!(errors[0].to_string(), "zoo.cfg:2: tickTime: `2s` is not a whole number");
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod accepted;
mod address;
mod describe;
mod draft;
mod ensemble;
mod ensemble_keys;
mod error;
mod groups;
mod key;
mod likeness;
mod listener_tls;
mod membership;
mod metrics_tls;
mod migration;
mod operators;
mod peer_security;
mod peer_tls;
mod properties;
mod protection;
mod sasl;
mod servers;
mod table;
mod tls;
mod values;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use address::HostPort;
pub use address::bracketed;
pub use draft::{CONFIG_ERRORS_MAX, CONFIG_TEXT_BYTES_MAX, Draft};
pub use error::{ConfigError, Origin};
pub use key::{Counts, Effect, Form, Key, VALUE_BYTES_MAX};
pub use listener_tls::{ClientAuthKey, ListenerTls, Secret, StoreConfig, StoreType};
pub use membership::Membership;
pub use membership::{dynamic_text, static_text};
pub use metrics_tls::MetricsTlsConfig;
pub use migration::MigrationConfig;
pub use operators::AdminConfig;
pub use peer_security::{PeerSecurityConfig, PeerSecurityKey};
pub use peer_tls::PeerTlsConfig;
pub use protection::Protected;
pub use sasl::SaslConfig;
pub use servers::{PeerAddress, SERVER_ID_MAX, SERVER_LINES_BYTES_MAX};
pub use servers::{Role, ServerSpec};
pub use table::SECTIONS;
pub use tls::TlsConfig;
pub use values::PATH_BYTES_MAX;
pub use words::FourLetterWords;
pub use words::WORDS as FOUR_LETTER_WORDS;

/// Everything a server is told, resolved: defaults filled in, limits checked.
///
/// The fields may be read freely. To change one, use [`Config::set`]: it checks the value and keeps
/// the others consistent with it (the limits of session timeouts follow the tick).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `dataDir`: the server's data.
    pub data_dir: PathBuf,
    /// `dataLogDir`: the log's directory; the same as `data_dir` unless given.
    pub data_log_dir: PathBuf,
    /// `datadir.autocreate`: create missing data directories. False: a missing one is an error.
    pub data_dir_autocreate: bool,
    /// `db.autocreate`: a server without data is a new one. False: only if a file `initialize` says so.
    pub db_autocreate: bool,
    /// `clientPort` and `clientPortAddress`: where clients connect. Port 0: any free port.
    pub client_addr: HostPort,
    /// `clientPortListenBacklog`: connections that may wait to be accepted. At least 1.
    pub listen_backlog: u32,
    /// `clientTcpKeepAlive`: TCP keepalive on client connections.
    pub client_tcp_keep_alive: bool,
    /// `lockkeeper.imageLogBytes`: bytes of log after which an image is written.
    pub image_log_bytes: u64,
    /// `lockkeeper.checkpointMillis`: how long changes wait before they are copied to the disk, ms.
    pub checkpoint_ms: u32,
    /// `lockkeeper.coreDumps`: the process may leave one although its memory holds keys and passwords.
    pub core_dumps: bool,
    /// `lockkeeper.cpuPolicy`: how threads share the cores.
    pub cpu_policy: CpuPolicyKey,
    /// `lockkeeper.ioThreads`: threads that own the sockets of clients, at most 64. `None`: by the number of cores.
    pub io_threads: Option<u8>,
    /// `lockkeeper.diskStallMillis`: how long the log's disk may take before it counts as hung, ms;
    /// `syncLimit` ticks, at most 5000, unless given.
    pub disk_stall_ms: u32,
    /// `tickTime`, ms. At least 1.
    pub tick_time_ms: u32,
    /// `minSessionTimeout`, ms; two ticks unless given. Never above the longest one.
    pub min_session_timeout_ms: u32,
    /// `maxSessionTimeout`, ms; twenty ticks unless given.
    pub max_session_timeout_ms: u32,
    /// `nio.sessionlessCnxnTimeout`, ms: how long a connection may go without asking for a session.
    pub sessionless_timeout_ms: u32,
    /// `maxClientCnxns`: connections from one IP address. 0: no limit.
    pub max_client_cnxns: u32,
    /// `maxCnxns`: client connections in all. 0: no limit.
    pub max_cnxns: u32,
    /// `globalOutstandingLimit`: requests in flight beyond which reading stops.
    pub global_outstanding_limit: u32,
    /// `lockkeeper.admissionRate`: connections a second in a reconnect storm. 0: no limit. None: by the CPU policy.
    pub admission_rate: Option<u32>,
    /// `lockkeeper.admissionBurst`: clients at one moment that do not wait. At least 1.
    pub admission_burst: u32,
    /// `lockkeeper.incomingBytesMax`: bytes that may have been received of requests that are not there whole.
    pub incoming_bytes_max: u64,
    /// `lockkeeper.outgoingBytesMax`: bytes that may wait for all clients together.
    pub outgoing_bytes_max: u64,
    /// `jute.maxbuffer`: longest request frame, bytes; this length is still accepted.
    pub jute_max_buffer: u32,
    /// `extendedTypesEnabled`: TTL znodes.
    pub extended_types_enabled: bool,
    /// `enforceQuota`: hard quotas refuse writes.
    pub enforce_quota: bool,
    /// `znode.container.*`: the reaper of containers and TTL znodes.
    pub containers: ContainerConfig,
    /// `DigestAuthenticationProvider.enabled`: the digest scheme is offered.
    pub digest_auth_enabled: bool,
    /// `DigestAuthenticationProvider.superDigest`: the digest id that is the super user, if any.
    pub super_digest: Option<String>,
    /// `skipACL`: no ACL is checked.
    pub skip_acl: bool,
    /// `ssl.*` and the ports that speak it.
    pub tls: TlsConfig,
    /// `ssl.quorum.*`, and whether links between servers go through TLS.
    pub peer_tls: PeerTlsConfig,
    /// SASL, and whether clients must authenticate.
    pub sasl: SaslConfig,
    /// How servers prove to each other who they are.
    pub peer_security: PeerSecurityConfig,
    /// The link with ZooKeeper's leader during a live migration.
    pub migration: MigrationConfig,
    /// `enableEagerACLCheck`: check a write's ACL before it is proposed, too.
    pub eager_acl_check: bool,
    /// `4lw.commands.whitelist`.
    pub four_letter_words: FourLetterWords,
    /// `admin.*`: the HTTP port.
    pub admin: AdminConfig,
    /// `metricsProvider.httpHost` and `httpPort`: a second HTTP port, for /metrics only.
    pub metrics_addr: Option<HostPort>,
    /// The same with TLS; where both are one, that port takes both.
    pub metrics_secure_addr: Option<HostPort>,
    /// `metricsProvider.httpsPort` and `metricsProvider.ssl.*`.
    pub metrics_tls: MetricsTlsConfig,
    /// `fsync.warningthresholdms`: an fsync beyond this is logged and counted.
    pub fsync_warning_threshold_ms: u32,
    /// `lockkeeper.auditLog`: file of the audit log.
    pub audit_log: Option<PathBuf>,
    /// `standaloneEnabled`.
    pub standalone_enabled: bool,
    /// `quorumListenOnAllIPs`: listen for the other servers at all addresses of the machine.
    pub quorum_listen_on_all_ips: bool,
    /// `multiAddress.enabled`: a server line may have several addresses.
    pub multi_address: bool,
    /// `reconfigEnabled`.
    pub reconfig_enabled: bool,
    /// `readonlymode.enabled`.
    pub read_only_mode_enabled: bool,
    /// `lockkeeper.reads` is `linearizable`: reads see everything acknowledged before them.
    pub linearizable_reads: bool,
    /// `lockkeeper.sharesByAddress`: connections of one address share what makes their load a small one.
    pub shares_by_address: bool,
    /// `lockkeeper.sessionExpiryGraceMillis`: added to every session's timeout before it expires.
    pub session_expiry_grace_ms: u32,
    /// `lockkeeper.computedSessionPasswords`: sessions get the password that ZooKeeper computes of their id.
    pub computed_session_passwords: bool,
    /// `dynamicConfigFile`, as written; its text must have been given to the draft.
    pub dynamic_config_file: Option<String>,
    /// The number in the file `myid`, if the caller found one.
    pub server_id: Option<u8>,
    /// The `server.N` lines in order of their ids. Of an ensemble: what it was founded with; see
    /// [`Config::is_ensemble`].
    pub servers: Vec<ServerSpec>,
    /// Keys that were accepted without effect, and why: to be listed once in the log.
    pub ignored: Vec<(String, String)>,
    /// Keys that ask for something that is not there or that weaken protection: to be warned of.
    pub warnings: Vec<(String, String)>,
    /// Lines that are probably mistakes, although the server starts: keys that neither this server nor
    /// ZooKeeper has, and keys that are given twice. To be warned of one by one; at most
    /// `CONFIG_ERRORS_MAX`, and one that counts the rest.
    pub mistakes: Vec<ConfigError>,
    /// The file that this was read from, if it may be rewritten when the membership changes; set
    /// by [`Draft::set_path`].
    pub path: Option<PathBuf>,
    raw: Raw,
}

/// `lockkeeper.cpuPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuPolicyKey {
    /// By the number of cores: from four on it is plain.
    Auto,
    /// As the threads of any other process.
    Plain,
}

/// `znode.container.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Time between two searches, ms. At least 1.
    pub check_interval_ms: u32,
    /// Most deletions in a minute. At least 1.
    pub max_per_minute: u32,
    /// Age at which a container that never had a child is deleted, ms. 0: never.
    pub max_never_used_interval_ms: u32,
}

/// Values as they were given, where the resolved one depends on others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Raw {
    data_log_dir: Option<PathBuf>,
    min_session_timeout_ms: i64,
    max_session_timeout_ms: i64,
    disk_stall_ms: i64,
    metrics_host: String,
    metrics_port: i64,
    prometheus: bool,
    force_sync_off: bool,
    leader_serves_not: bool,
    peer_type: Option<Role>,
    init_limit: Option<i64>,
    sync_limit: Option<i64>,
    given: BTreeMap<&'static str, Origin>,
}

impl Config {
    /// What holds without any configuration file: loopback only, `./lockkeeper-data`, a tick of
    /// 2000 ms and no limit on connections per address.
    #[must_use]
    pub fn without_file() -> Config {
        Draft::without_file().resolve().expect("the table's defaults are a whole configuration")
    }

    /// A configuration before any default: [`Config::without_file`] and the draft of a file fill it
    /// from the table, so nothing here is ever seen.
    fn blank() -> Self {
        Self {
            data_dir: PathBuf::new(),
            data_log_dir: PathBuf::new(),
            data_dir_autocreate: false,
            db_autocreate: false,
            client_addr: HostPort { host: String::new(), port: 0 },
            listen_backlog: 0,
            client_tcp_keep_alive: false,
            image_log_bytes: 0,
            checkpoint_ms: 0,
            admission_rate: None,
            admission_burst: 1,
            cpu_policy: CpuPolicyKey::Auto,
            io_threads: None,
            disk_stall_ms: 0,
            tick_time_ms: 0,
            min_session_timeout_ms: 0,
            max_session_timeout_ms: 0,
            sessionless_timeout_ms: 0,
            max_client_cnxns: 0,
            max_cnxns: 0,
            global_outstanding_limit: 0,
            incoming_bytes_max: 0,
            outgoing_bytes_max: 0,
            jute_max_buffer: 0,
            extended_types_enabled: false,
            enforce_quota: false,
            containers: ContainerConfig {
                check_interval_ms: 0,
                max_per_minute: 0,
                max_never_used_interval_ms: 0,
            },
            digest_auth_enabled: false,
            super_digest: None,
            skip_acl: false,
            tls: TlsConfig::default(),
            core_dumps: false,
            peer_tls: PeerTlsConfig::default(),
            sasl: SaslConfig::default(),
            peer_security: PeerSecurityConfig::default(),
            migration: MigrationConfig::default(),
            eager_acl_check: false,
            four_letter_words: FourLetterWords::Default,
            admin: AdminConfig {
                enabled: false,
                addr: HostPort { host: String::new(), port: 0 },
                command_url: String::new(),
                token_file: None,
                browser: true,
                snapshot_enabled: true,
                hosts: Vec::new(),
                force_https: false,
                port_unification: false,
                need_client_auth: false,
            },
            metrics_addr: None,
            metrics_secure_addr: None,
            metrics_tls: MetricsTlsConfig::default(),
            fsync_warning_threshold_ms: 0,
            audit_log: None,
            standalone_enabled: false,
            quorum_listen_on_all_ips: false,
            multi_address: true,
            reconfig_enabled: false,
            read_only_mode_enabled: false,
            linearizable_reads: false,
            shares_by_address: true,
            session_expiry_grace_ms: 0,
            computed_session_passwords: false,
            dynamic_config_file: None,
            server_id: None,
            servers: Vec::new(),
            ignored: Vec::new(),
            warnings: Vec::new(),
            mistakes: Vec::new(),
            path: None,
            raw: Raw::default(),
        }
    }

    /// Reads a configuration file's text. `file_name` is used in errors only.
    ///
    /// # Errors
    /// Everything that is wrong with it. Also if it names a `dynamicConfigFile`: use [`Draft`] to
    /// give that one's text.
    pub fn parse(file_name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        Draft::from_text(file_name, text).resolve()
    }

    /// Changes one key, as a line of the file would. `origin` names the flag or caller in errors.
    ///
    /// # Errors
    /// What is wrong with the key or its value; the configuration is then unchanged.
    pub fn set(&mut self, key: &str, value: &str, origin: &str) -> Result<(), Vec<ConfigError>> {
        let mut draft = Draft::from_config(self.clone());
        draft.set(key, value, origin);
        *self = draft.resolve()?;
        Ok(())
    }

    /// `initLimit` as it was written, ticks: shown to operators, without effect.
    #[must_use]
    pub fn init_limit(&self) -> Option<i64> {
        self.raw.init_limit
    }

    /// `syncLimit` as it was written, ticks: shown to operators; only [`Config::disk_stall_ms`] depends on it.
    #[must_use]
    pub fn sync_limit(&self) -> Option<i64> {
        self.raw.sync_limit
    }

    /// Where a key's value came from; none if it is the default.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.raw.given.get(key)
    }
}

/// [`Config::without_file`].
impl Default for Config {
    fn default() -> Config {
        Config::without_file()
    }
}

/// Keys and values of a text of Java properties, in its order.
///
/// # Errors
/// The first line that is none.
pub fn properties_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let (properties, errors) = properties::parse(text);
    match errors.first() {
        Some(error) => Err(format!("line {}: {}", error.line, error.fault)),
        None => Ok(properties.into_iter().map(|known| (known.key, known.value)).collect()),
    }
}
