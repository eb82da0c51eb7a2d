//! The table of keys that take effect: the one place that knows their names, defaults and limits.
//!
//! Owns the entries; their greatest values are in `bounds.rs`, the keys without effect in `accepted.rs`.
//! Invariants: every default passes its own entry's check, docs/CONFIGURATION.md and conf/zoo.cfg
//! are generated from here, and a test compares them. Names and defaults are ZooKeeper 3.9's; own
//! keys begin with `lockkeeper.`.

use std::path::PathBuf;

use super::address::{HostPort, host_of};
use super::bounds::{
    ADMISSION_MAX, CHECKPOINT_MS_MAX, DISK_STALL_MS_MAX, IMAGE_LOG_BYTES_MAX, IMAGE_LOG_BYTES_MIN,
    INT_MAX, INT_MIN, IO_THREADS_MAX, JUTE_MAX_BUFFER_MAX, JUTE_MAX_BUFFER_MIN,
    LISTEN_BACKLOG_DEFAULT, LISTEN_BACKLOG_MAX, OUTSTANDING_LIMIT_MAX, TICK_TIME_MS_MAX,
    TOTAL_BYTES_MAX_MAX, TOTAL_BYTES_MAX_MIN,
};
use super::ensemble_keys;
use super::key::Key;
use super::metrics_tls;
use super::migration;
use super::peer_security;
use super::peer_tls;
use super::sasl;
use super::tls;
use super::values::{
    command_url, optional_path, path, path_text, super_digest, u16_of, u32_of, yes_no,
};
use super::words::FourLetterWords;
use super::{
    AdminConfig, Config, ContainerConfig, CpuPolicyKey, MetricsTlsConfig, MigrationConfig,
    PeerSecurityConfig, PeerTlsConfig, Raw, SaslConfig, TlsConfig,
};

/// A heading of the documents and the keys below it.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Heading.
    pub title: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// Every key that takes effect.
pub static SECTIONS: [Section; 15] = [
    Section { title: "Where it stores and listens", keys: &PLACE },
    Section { title: "Sessions and time", keys: &SESSIONS },
    Section { title: "Limits", keys: &LIMITS },
    Section { title: "The tree", keys: &TREE },
    Section { title: "Access", keys: &ACCESS },
    Section { title: "TLS of clients", keys: &tls::KEYS },
    Section { title: "TLS of clients: keys and certificates", keys: &tls::LISTENER_KEYS },
    Section { title: "SASL, and who must authenticate", keys: &sasl::KEYS },
    Section { title: "Security between servers", keys: &peer_security::KEYS },
    Section { title: "TLS between servers", keys: &peer_tls::KEYS },
    Section { title: "TLS between servers: keys and certificates", keys: &peer_tls::LISTENER_KEYS },
    Section { title: "For operators", keys: &OPERATORS },
    Section { title: "TLS of the port for metrics", keys: &metrics_tls::KEYS },
    Section { title: "The ensemble", keys: &ensemble_keys::KEYS },
    Section { title: "Live migration from ZooKeeper", keys: &migration::KEYS },
];

static PLACE: [Key; 13] = [
    Key::effective(
        "dataDir",
        "",
        |c| path_text(&c.data_dir),
        "Directory of the server's data, and of the file `myid`. Required in a configuration file. \
         Relative paths start at the working directory.",
    )
    .text("a path", |c, text| {
        c.data_dir = path(text)?;
        Ok(())
    })
    .without_file("./lockkeeper-data")
    .sample("/var/lib/lockkeeper"),
    Key::effective(
        "dataLogDir",
        "",
        |c| path_text(&c.data_log_dir),
        "Directory of the log, if it has a disk of its own. Empty: the same as dataDir.",
    )
    .text("a path, or nothing", |c, text| {
        c.raw.data_log_dir = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "datadir.autocreate",
        "true",
        |c| c.data_dir_autocreate.to_string(),
        "Create missing data directories. With false a missing directory is an error, as on a \
         machine whose disk was not mounted.",
    )
    .switch(|c, on| c.data_dir_autocreate = on)
    .or_else("false"),
    Key::effective(
        "db.autocreate",
        "true",
        |c| c.db_autocreate.to_string(),
        "Take a server without data for a new one. With false only a file `initialize` in dataDir \
         says so (`zkServer-initialize.sh` makes it, and the first start removes it): without it a \
         server of an ensemble founds none and waits until it can join the one that has its data, and \
         one on its own does not start (ZooKeeper serves an empty tree with the zxid -1).",
    )
    .switch(|c, on| c.db_autocreate = on)
    .or_else("false"),
    Key::effective(
        "clientPort",
        "",
        |c| c.client_addr.port.to_string(),
        "TCP port for clients. Required in a configuration file. 0 takes any free port.",
    )
    .number(0, u16::MAX as i64, |c, n| c.client_addr.port = u16_of(n))
    .without_file("2181")
    .sample("2181"),
    Key::effective(
        "clientPortAddress",
        "0.0.0.0",
        |c| c.client_addr.host.clone(),
        "Address or host name to listen on for clients. 0.0.0.0 and :: are all addresses of the machine, of \
         IPv4 and, where the system has it, of IPv6. 127.0.0.1 is IPv4 alone: a client that knows only ::1 \
         is refused.",
    )
    .text(HOST, |c, text| {
        c.client_addr.host = host_of(text)?;
        Ok(())
    })
    .without_file("127.0.0.1"),
    Key::effective(
        "clientPortListenBacklog",
        "-1",
        |c| c.listen_backlog.to_string(),
        "Connections that may wait to be accepted, at most 65535. -1 and 0 are 4096 (ZooKeeper: 50), so \
         that thousands of clients can come back at once: a client that does not fit in tries again a \
         second later. Linux cuts it down to `net.core.somaxconn`.",
    )
    .number(INT_MIN, INT_MAX, |c, n| {
        let given = u32_of(n.clamp(0, LISTEN_BACKLOG_MAX));
        c.listen_backlog = if given == 0 { LISTEN_BACKLOG_DEFAULT } else { given };
    }),
    Key::effective(
        "clientTcpKeepAlive",
        "false",
        |c| c.client_tcp_keep_alive.to_string(),
        "Switch TCP keepalive on for client connections.",
    )
    .switch(|c, on| c.client_tcp_keep_alive = on)
    .or_else("false"),
    Key::effective(
        "lockkeeper.imageLogBytes",
        "67108864",
        |c| c.image_log_bytes.to_string(),
        "Bytes of log after which a new image of the tree is written; never less than the tree's \
         own size. The log is cut only up to an image.",
    )
    .number(IMAGE_LOG_BYTES_MIN, IMAGE_LOG_BYTES_MAX, |c, n| {
        c.image_log_bytes = u64::try_from(n).expect("the limits of the table are positive");
    }),
    Key::effective(
        "lockkeeper.checkpointMillis",
        "10000",
        |c| c.checkpoint_ms.to_string(),
        "How long changes wait for more before they are copied from memory to the disk beside the \
         log, ms. Less of it makes restarts and images current and costs more processor time: what \
         is created and deleted while it waits is never copied.",
    )
    .number(1, CHECKPOINT_MS_MAX, |c, n| c.checkpoint_ms = u32_of(n)),
    Key::effective(
        "lockkeeper.cpuPolicy",
        "auto",
        |c| match c.cpu_policy {
            CpuPolicyKey::Auto => AUTO.to_string(),
            CpuPolicyKey::Plain => PLAIN.to_string(),
        },
        "How the server's threads share the cores. `auto`: plain on a machine with four cores or more; with \
         fewer, while they are busy, serving threads are scheduled as batch work (more throughput beside \
         clients and other servers on the same machine), checkpoints and images rest, and fewer clients \
         are let in during a reconnect storm. `plain`: as the threads of any other process.",
    )
    .text("auto or plain", |c, text| {
        c.cpu_policy = match text {
            AUTO => CpuPolicyKey::Auto,
            PLAIN => CpuPolicyKey::Plain,
            _ => return Err(format!("`{text}` is neither {AUTO} nor {PLAIN}")),
        };
        Ok(())
    }),
    Key::effective(
        "lockkeeper.ioThreads",
        "auto",
        |c| c.io_threads.map_or_else(|| AUTO.to_string(), |count| count.to_string()),
        "Threads that read and write the connections of clients, at most 64. 0: none, the server's thread does \
         that, too, so that no request crosses threads. `auto`: 0 on a machine with fewer than four cores, half of \
         the cores otherwise, at most 8.",
    )
    .text("auto or a number", |c, text| {
        c.io_threads = match (text, text.parse()) {
            (AUTO, _) => None,
            (_, Ok(count @ 0..=IO_THREADS_MAX)) => Some(count),
            _ => return Err(format!("`{text}` is neither {AUTO} nor a number up to {IO_THREADS_MAX}")),
        };
        Ok(())
    }),
    Key::effective(
        "lockkeeper.diskStallMillis",
        "-1",
        |c| c.disk_stall_ms.to_string(),
        "How long the log's disk may take for one write or sync before it counts as hung, ms. -1: \
         syncLimit times tickTime, at most 5000. A leader whose disk hangs while others commit hands \
         over; a server that cannot answer a write for so long sends its clients to other servers; \
         either is not ready until the disk returns.",
    )
    .number(-1, DISK_STALL_MS_MAX, |c, n| c.raw.disk_stall_ms = n),
];

static SESSIONS: [Key; 4] = [
    Key::effective(
        "tickTime",
        "3000",
        |c| c.tick_time_ms.to_string(),
        "The unit of time, ms. The limits of session timeouts are multiples of it unless they are \
         given.",
    )
    .number(1, TICK_TIME_MS_MAX, |c, n| c.tick_time_ms = u32_of(n))
    .without_file("2000")
    .sample("2000"),
    Key::effective(
        "minSessionTimeout",
        "-1",
        |c| c.min_session_timeout_ms.to_string(),
        "Shortest session timeout that a client gets, ms. -1: two ticks; 0 and less otherwise: 1.",
    )
    .number(INT_MIN, INT_MAX, |c, n| c.raw.min_session_timeout_ms = n),
    Key::effective(
        "maxSessionTimeout",
        "-1",
        |c| c.max_session_timeout_ms.to_string(),
        "Longest session timeout that a client gets, ms. -1: twenty ticks.",
    )
    .number(-1, INT_MAX, |c, n| c.raw.max_session_timeout_ms = n),
    Key::effective(
        "nio.sessionlessCnxnTimeout",
        "10000",
        |c| c.sessionless_timeout_ms.to_string(),
        "A connection that has not asked for a session is closed after this time, ms.",
    )
    .number(1, INT_MAX, |c, n| c.sessionless_timeout_ms = u32_of(n))
    .or_else("10000"),
];

static LIMITS: [Key; 8] = [
    Key::effective(
        "maxClientCnxns",
        "60",
        |c| c.max_client_cnxns.to_string(),
        "Connections from one IP address. 0 and less: no limit.",
    )
    .number(INT_MIN, INT_MAX, |c, n| c.max_client_cnxns = u32_of(n.max(0)))
    .without_file("0"),
    Key::effective(
        "maxCnxns",
        "0",
        |c| c.max_cnxns.to_string(),
        "Client connections in all. 0: no limit but that of open files.",
    )
    .number(0, INT_MAX, |c, n| c.max_cnxns = u32_of(n))
    .or_else("0"),
    Key::effective(
        "globalOutstandingLimit",
        "1000",
        |c| c.global_outstanding_limit.to_string(),
        "Requests in flight. Beyond it the server stops reading from the connections that have \
         requests outstanding; nothing is refused.",
    )
    .number(1, OUTSTANDING_LIMIT_MAX, |c, n| c.global_outstanding_limit = u32_of(n))
    .or_else("1000"),
    Key::effective(
        "jute.maxbuffer",
        "1048575",
        |c| c.jute_max_buffer.to_string(),
        "Longest request, bytes; it bounds the data of a znode. A longer one closes the \
         connection. Replies may be longer.",
    )
    .number(JUTE_MAX_BUFFER_MIN, JUTE_MAX_BUFFER_MAX, |c, n| c.jute_max_buffer = u32_of(n))
    .or_else("1048575"),
    Key::effective(
        "lockkeeper.admissionRate",
        "-1",
        |c| c.admission_rate.map_or_else(|| "-1".to_string(), |rate| rate.to_string()),
        "Connections a second that all servers of the ensemble together accept in a reconnect storm, each \
         its part; doubled every 2 s while clients wait. Twice as many idle clients a second may close \
         their sessions or leave, and eight times as many be heard from by each server; active clients \
         never wait. 0: no limit. -1: 10000, or 2000 where lockkeeper.cpuPolicy shares the cores.",
    )
    .number(-1, ADMISSION_MAX, |c, n| c.admission_rate = u32::try_from(n).ok()),
    Key::effective(
        "lockkeeper.admissionBurst",
        "64",
        |c| c.admission_burst.to_string(),
        "Clients that come, leave or are heard from at one moment and do not wait for \
         lockkeeper.admissionRate.",
    )
    .number(1, ADMISSION_MAX, |c, n| c.admission_burst = u32_of(n)),
    Key::effective(
        "lockkeeper.incomingBytesMax",
        "268435456",
        |c| c.incoming_bytes_max.to_string(),
        "Bytes that may have arrived of requests of all clients that have not arrived completely. Beyond it the \
         connections that hold the most of them are cut off; their sessions live on until their \
         timeouts. A request that is longer is never received. (Up to 4 KiB of each connection do not count.)",
    )
    .number(TOTAL_BYTES_MAX_MIN, TOTAL_BYTES_MAX_MAX, |c, n| {
        c.incoming_bytes_max = u64::try_from(n).expect("the limits of the table are positive");
    }),
    Key::effective(
        "lockkeeper.outgoingBytesMax",
        "268435456",
        |c| c.outgoing_bytes_max.to_string(),
        "Bytes of answers and events that may wait for all clients together. Beyond it the \
         connections for which the most bytes wait are closed, of clients that take nothing before those of \
         others; their sessions live on until their timeouts. An answer that is longer is never \
         delivered. (One connection is cut off by 64 MiB that it does not take.)",
    )
    .number(TOTAL_BYTES_MAX_MIN, TOTAL_BYTES_MAX_MAX, |c, n| {
        c.outgoing_bytes_max = u64::try_from(n).expect("the limits of the table are positive");
    }),
];

static TREE: [Key; 5] = [
    Key::effective(
        "extendedTypesEnabled",
        "false",
        |c| c.extended_types_enabled.to_string(),
        "Allow TTL znodes.",
    )
    .switch(|c, on| c.extended_types_enabled = on)
    .or_else("false"),
    Key::effective(
        "enforceQuota",
        "false",
        |c| c.enforce_quota.to_string(),
        "Refuse writes beyond a hard quota. With false quotas are only counted.",
    )
    .switch(|c, on| c.enforce_quota = on)
    .or_else("false"),
    Key::effective(
        "znode.container.checkIntervalMs",
        "60000",
        |c| c.containers.check_interval_ms.to_string(),
        "How often empty containers and outlived TTL znodes are looked for, ms.",
    )
    .number(1, INT_MAX, |c, n| c.containers.check_interval_ms = u32_of(n))
    .or_else("60000"),
    Key::effective(
        "znode.container.maxPerMinute",
        "10000",
        |c| c.containers.max_per_minute.to_string(),
        "Most containers and TTL znodes deleted in a minute.",
    )
    .number(1, INT_MAX, |c, n| c.containers.max_per_minute = u32_of(n))
    .or_else("10000"),
    Key::effective(
        "znode.container.maxNeverUsedIntervalMs",
        "0",
        |c| c.containers.max_never_used_interval_ms.to_string(),
        "A container that never had a child is deleted after this time, ms. 0: never.",
    )
    .number(0, INT_MAX, |c, n| c.containers.max_never_used_interval_ms = u32_of(n))
    .or_else("0"),
];

static ACCESS: [Key; 5] = [
    Key::effective(
        "DigestAuthenticationProvider.enabled",
        "true",
        |c| c.digest_auth_enabled.to_string(),
        "Offer the `digest` scheme.",
    )
    .switch(|c, on| c.digest_auth_enabled = on)
    .or_else("false"),
    Key::effective(
        "DigestAuthenticationProvider.superDigest",
        "",
        |c| if c.super_digest.is_some() { "(not shown)".to_string() } else { String::new() },
        "The user who may do everything: `super:` and the base64 of the SHA-1 of `super:password`. Empty: \
         there is none.",
    )
    .text("user:base64, or nothing", |c, text| {
        c.super_digest = None;
        c.super_digest = super_digest(text)?;
        Ok(())
    })
    .or_else(""),
    Key::effective(
        "DigestAuthenticationProvider.digestAlg",
        "SHA1",
        |_| "SHA1".to_string(),
        "Hash of digest ids. With another one the stored ACLs would match no client, so others are \
         refused.",
    )
    .text("SHA1", |_, text| {
        let is_sha1 = text.eq_ignore_ascii_case("SHA1") || text.eq_ignore_ascii_case("SHA-1");
        if is_sha1 { Ok(()) } else { Err(format!("`{text}` is not supported: only SHA1 is")) }
    }),
    Key::effective(
        "skipACL",
        "no",
        |c| yes_no(c.skip_acl),
        "Check no ACL at all: every client may do everything.",
    )
    .yes_no(|c, on| c.skip_acl = on)
    .or_else("no"),
    Key::effective(
        "enableEagerACLCheck",
        "false",
        |c| c.eager_acl_check.to_string(),
        "Check a write's ACL before it is proposed, too, so that refused ones cost no log entry.",
    )
    .switch(|c, on| c.eager_acl_check = on)
    .or_else("false"),
];

static OPERATORS: [Key; 18] = [
    Key::effective(
        "lockkeeper.coreDumps",
        "false",
        |c| c.core_dumps.to_string(),
        "Whether `lockkeeper server` may leave a core dump, and be looked at by a debugger of its own user, although \
         the configuration names keys, passwords or tokens, which its memory holds.",
    )
    .switch(|c, on| c.core_dumps = on),
    Key::effective(
        "4lw.commands.whitelist",
        "default",
        |c| c.four_letter_words.to_text(),
        "Four-letter words that are answered: a comma list, `*` for all, or `default`: ruok, srvr, \
         stat, mntr, conf, isro, envi, wchs and dirs from anywhere, all from this machine \
         (ZooKeeper: srvr). srvr is always answered.",
    )
    .text("`default`, `*`, or a comma list of words", |c, text| {
        let (words, unknown) = FourLetterWords::parse(text);
        c.four_letter_words = words;
        unknown.map_or(Ok(()), Err)
    })
    .or_else(""),
    Key::effective(
        "admin.enableServer",
        "true",
        |c| c.admin.enabled.to_string(),
        "Offer the HTTP port with /commands, /metrics, /livez and /readyz.",
    )
    .switch(|c, on| c.admin.enabled = on)
    .or_else("true"),
    Key::effective(
        "admin.serverAddress",
        "127.0.0.1",
        |c| c.admin.addr.host.clone(),
        "Address or host name of the HTTP port; ZooKeeper's default is 0.0.0.0. Elsewhere than on this machine names \
         and data of znodes are shown to those with the token of lockkeeper.adminTokenFile alone.",
    )
    .text(HOST, |c, text| {
        c.admin.addr.host = host_of(text)?;
        Ok(())
    }),
    Key::effective(
        "admin.serverPort",
        "8080",
        |c| c.admin.addr.port.to_string(),
        "The HTTP port. 0 takes any free port. A port that is taken is a warning, not an error.",
    )
    .number(0, u16::MAX as i64, |c, n| c.admin.addr.port = u16_of(n))
    .or_else("8080"),
    Key::effective(
        "admin.commandURL",
        "/commands",
        |c| c.admin.command_url.clone(),
        "Path under which the commands are.",
    )
    .text("a path that begins with / and does not end in one", |c, text| {
        c.admin.command_url = command_url(text)?;
        Ok(())
    })
    .or_else("/commands"),
    Key::effective(
        "lockkeeper.adminTokenFile",
        "",
        |c| c.admin.token_file.as_deref().map_or_else(String::new, path_text),
        "File with the token that the HTTP port asks of clients on other machines before it shows names and data of \
         znodes: one word of at least 16 characters. It is read at each request.",
    )
    .text("a path, or nothing", |c, text| {
        c.admin.token_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "lockkeeper.adminHosts",
        "",
        |c| c.admin.hosts.join(","),
        "Names by which the HTTP port may be asked, with commas between them, beside addresses, localhost, this \
         machine's name and those of the server lines; * is any. Others are refused, because any name can be made to \
         stand for this machine by its owner. Figures and health checks are answered to all.",
    )
    .text("host names with commas between them, or nothing", |c, text| {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        c.admin.hosts = names.map(str::to_owned).collect();
        Ok(())
    }),
    Key::effective(
        "lockkeeper.adminBrowser",
        "true",
        |c| c.admin.browser.to_string(),
        "The console of the HTTP port may browse the tree: names, data and access control lists of all znodes. It does \
         so for clients of this machine, and for those with the token of lockkeeper.adminTokenFile. Data that an \
         access control list does not let everyone read are shown to the latter alone.",
    )
    .switch(|c, on| c.admin.browser = on),
    Key::effective(
        "admin.snapshot.enabled",
        "true",
        |c| c.admin.snapshot_enabled.to_string(),
        "The HTTP port gives the state in ZooKeeper's own format at /commands/snapshot: to the super user \
         (Authorization: digest super:PASSWORD), and to those with the token of lockkeeper.adminTokenFile or a \
         certificate.",
    )
    .switch(|c, on| c.admin.snapshot_enabled = on),
    Key::effective(
        "admin.forceHttps",
        "false",
        |c| c.admin.force_https.to_string(),
        "The HTTP port takes TLS alone, by ssl.quorum.keyStore.*, and by ssl.quorum.enabledProtocols and \
         ssl.quorum.ciphersuites where they are given. Plain text is closed.",
    )
    .switch(|c, on| c.admin.force_https = on),
    Key::effective(
        "admin.portUnification",
        "false",
        |c| c.admin.port_unification.to_string(),
        "The HTTP port takes TLS and plain text, unless admin.forceHttps is true.",
    )
    .switch(|c, on| c.admin.port_unification = on)
    .or_else("false"),
    Key::effective(
        "admin.needClientAuth",
        "false",
        |c| c.admin.need_client_auth.to_string(),
        "Clients that come to the HTTP port through TLS must show a certificate that ssl.quorum.trustStore.* vouches \
         for. It counts as much as the token of lockkeeper.adminTokenFile.",
    )
    .switch(|c, on| c.admin.need_client_auth = on),
    Key::effective(
        "metricsProvider.className",
        "",
        |c| if c.raw.prometheus { PROMETHEUS.to_string() } else { String::new() },
        "Metrics are always on the HTTP port; the Prometheus provider's class adds \
         metricsProvider.httpPort, 7000 unless given.",
    )
    .text("any text", |c, text| {
        c.raw.prometheus = text.ends_with(PROMETHEUS);
        Ok(())
    }),
    Key::effective(
        "metricsProvider.httpHost",
        "0.0.0.0",
        |c| c.raw.metrics_host.clone(),
        "Address or host name of the second port for metrics.",
    )
    .text(HOST, |c, text| {
        c.raw.metrics_host = host_of(text)?;
        Ok(())
    })
    .without_file("127.0.0.1"),
    Key::effective(
        "metricsProvider.httpPort",
        "-1",
        |c| c.metrics_addr.as_ref().map_or(-1, |addr| i32::from(addr.port)).to_string(),
        "A second HTTP port that offers /metrics only. -1: none.",
    )
    .number(-1, u16::MAX as i64, |c, n| c.raw.metrics_port = n)
    .or_else("-1"),
    Key::effective(
        "fsync.warningthresholdms",
        "1000",
        |c| c.fsync_warning_threshold_ms.to_string(),
        "An fsync of the log that takes longer than this, ms, is logged and counted.",
    )
    .number(0, INT_MAX, |c, n| c.fsync_warning_threshold_ms = u32_of(n))
    .or_else("1000"),
    Key::effective(
        "lockkeeper.auditLog",
        "",
        |c| c.audit_log.as_deref().map_or(String::new(), path_text),
        "File to which every applied transaction is written as a line of JSON. Empty: none.",
    )
    .text("a path, or nothing", |c, text| {
        c.audit_log = optional_path(text)?;
        Ok(())
    }),
];

/// A configuration before any default: [`Config::without_file`] and the draft of a file fill it
/// from the table, so nothing here is ever seen.
pub(super) fn blank() -> Config {
    let nowhere = HostPort { host: String::new(), port: 0 };
    Config {
        data_dir: PathBuf::new(),
        data_log_dir: PathBuf::new(),
        data_dir_autocreate: false,
        db_autocreate: false,
        client_addr: nowhere.clone(),
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
            addr: nowhere,
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
        reconfig_enabled: false,
        read_only_mode_enabled: false,
        linearizable_reads: false,
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

const AUTO: &str = "auto";
const PLAIN: &str = "plain";
const HOST: &str = "a host name or address";
const PROMETHEUS: &str = "PrometheusMetricsProvider";
