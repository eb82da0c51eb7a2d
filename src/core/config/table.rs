//! The table of keys that take effect: the one place that knows their names, defaults and limits.
//!
//! Owns the entries and their greatest values; the keys without effect are in `accepted.rs`.
//! Invariants: every default passes its own entry's check, docs/CONFIGURATION.md and conf/zoo.cfg
//! are generated from here, and a test compares them. Names and defaults are ZooKeeper 3.9's; own
//! keys begin with `lockkeeper.`.

use super::address::{HOST, host_of};
use super::key::{INT_MAX, INT_MIN, Key};
use super::values::{optional_path, path, path_text, super_digest, u16_of, u32_of, yes_no};
use super::{
    CpuPolicyKey, ensemble_keys, metrics_tls, migration, operators, peer_security, peer_tls, sasl,
    tls,
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
    Section { title: "For operators", keys: &operators::KEYS },
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
         fewer, checkpoints and images rest while they are busy, and fewer clients are let in during a \
         reconnect storm. `plain`: as the threads of any other process.",
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

static LIMITS: [Key; 9] = [
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
        "lockkeeper.sharesByAddress",
        "true",
        |c| c.shares_by_address.to_string(),
        "While a server has more to do than it can, requests of connections that have cost little of late are answered \
         before those of others. Little is a quarter of a core for all connections of one address together; with \
         false, for each connection, as where clients come through a proxy.",
    )
    .switch(|c, on| c.shares_by_address = on),
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
    .or_else("false")
    .on_leader(""),
    Key::effective(
        "enforceQuota",
        "false",
        |c| c.enforce_quota.to_string(),
        "Refuse writes beyond a hard quota. With false quotas are only counted.",
    )
    .switch(|c, on| c.enforce_quota = on)
    .or_else("false")
    .on_leader(""),
    Key::effective(
        "znode.container.checkIntervalMs",
        "60000",
        |c| c.containers.check_interval_ms.to_string(),
        "How often empty containers and outlived TTL znodes are looked for, ms.",
    )
    .number(1, INT_MAX, |c, n| c.containers.check_interval_ms = u32_of(n))
    .or_else("60000")
    .on_leader(""),
    Key::effective(
        "znode.container.maxPerMinute",
        "10000",
        |c| c.containers.max_per_minute.to_string(),
        "Most containers and TTL znodes deleted in a minute.",
    )
    .number(1, INT_MAX, |c, n| c.containers.max_per_minute = u32_of(n))
    .or_else("10000")
    .on_leader(""),
    Key::effective(
        "znode.container.maxNeverUsedIntervalMs",
        "0",
        |c| c.containers.max_never_used_interval_ms.to_string(),
        "A container that never had a child is deleted after this time, ms. 0: never.",
    )
    .number(0, INT_MAX, |c, n| c.containers.max_never_used_interval_ms = u32_of(n))
    .or_else("0")
    .on_leader(""),
];

static ACCESS: [Key; 5] = [
    Key::effective(
        "DigestAuthenticationProvider.enabled",
        "true",
        |c| c.digest_auth_enabled.to_string(),
        "Offer the `digest` scheme: whether a client can prove such an identity, its own server says; whether lists \
         may name it and what they then allow, the server that judges the request.",
    )
    .switch(|c, on| c.digest_auth_enabled = on)
    .or_else("false")
    .on_leader("writes and lists"),
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
        "Check no ACL at all: every client may do everything. With it on one server that does not lead, the \
         clients of that server read everything, and write what the leader lets them.",
    )
    .yes_no(|c, on| c.skip_acl = on)
    .or_else("no")
    .on_leader("writes"),
    Key::effective(
        "enableEagerACLCheck",
        "false",
        |c| c.eager_acl_check.to_string(),
        "Check a write's ACL before it is proposed, too, so that refused ones cost no log entry. Only the server \
         that leads does so, for the clients that are connected to it: another one may know older lists.",
    )
    .switch(|c, on| c.eager_acl_check = on)
    .or_else("false")
    .on_leader(""),
];

const AUTO: &str = "auto";
const PLAIN: &str = "plain";

/// Longest tick, ms: twenty ticks, the default of the longest session timeout, stay below 2^31.
const TICK_TIME_MS_MAX: i64 = 3_600_000;
/// Greatest frame a client may be allowed to send, bytes.
const JUTE_MAX_BUFFER_MAX: i64 = 128 << 20;
/// Least value of `jute.maxbuffer`, bytes: every request without data fits.
const JUTE_MAX_BUFFER_MIN: i64 = 1024;
/// Most requests in flight that may be allowed.
const OUTSTANDING_LIMIT_MAX: i64 = 1_000_000;
/// Fewest bytes that may wait for all clients, or of what all of them have begun to send.
const TOTAL_BYTES_MAX_MIN: i64 = 1 << 20;
/// Most bytes of either that may be allowed.
const TOTAL_BYTES_MAX_MAX: i64 = 1 << 40;
/// Longest listen backlog; systems cut it down further (`net.core.somaxconn`).
const LISTEN_BACKLOG_MAX: i64 = 65_535;
/// Listen backlog unless configured, as long as systems allow unless they are told otherwise: thousands
/// of clients may reconnect at once, and a client that does not fit in waits a second before it tries again.
const LISTEN_BACKLOG_DEFAULT: u32 = 4096;
/// Most log bytes between two images.
const IMAGE_LOG_BYTES_MAX: i64 = 1 << 40;
/// Least log bytes between two images.
const IMAGE_LOG_BYTES_MIN: i64 = 1 << 20;
/// Longest time between two checkpoints, ms.
const CHECKPOINT_MS_MAX: i64 = 3_600_000;
/// Longest time that the log's disk may take before it counts as hung, ms.
const DISK_STALL_MS_MAX: i64 = 3_600_000;
/// Clients that may be let in in a second, or at one moment: more than any machine has.
const ADMISSION_MAX: i64 = 1_000_000;
/// Most threads for the sockets of clients.
const IO_THREADS_MAX: u8 = 64;
