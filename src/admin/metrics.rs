//! Figures under ZooKeeper's names.
//!
//! *Owns* [`METRICS`], the one table that `mntr`, `/commands/monitor`, `/metrics` and
//! `docs/METRICS.md` are made from. *Invariants*: a metric is measured or absent; ZooKeeper's names
//! mean what they mean there; a name that is not ZooKeeper's begins with `lockkeeper_`; times are
//! milliseconds unless the name says otherwise. *Never* keeps a figure itself.
//!
//! Reproduces ZooKeeper's `ServerMetrics` and its metrics providers (names of 3.9: counters have no
//! `_total`).

use std::fmt;

use super::environment::Descriptors;
use super::version::full_version;
use super::words::{overall_latency, put, rounded};
use super::{Counters, Source, Tally};
use crate::replica::Status;
use crate::replica::inspect::{Latency, Mode};

/// What figures are read from.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Reading {
    /// As in [`super::Facts`].
    pub recovery_ms: Option<u64>,
    pub status: Status,
    pub counters: Counters,
    pub descriptors: Descriptors,
}

impl Reading {
    /// Reads everything, with `status` as it was read before.
    #[must_use]
    pub fn now(status: Status, source: &dyn Source) -> Reading {
        Reading {
            recovery_ms: source.facts().recovery_ms,
            status,
            counters: source.counters(),
            descriptors: Descriptors::now(),
        }
    }
}

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Goes up, until a restart or `srst`.
    Counter,
    /// Number and sum of a quantity; `mntr` also shows mean and extremes.
    Summary,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Summary => "summary",
        }
    }
}

/// A metric's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(i64),
    /// Another number.
    Real(f64),
    /// Of a [`Kind::Summary`].
    Summary {
        /// How many.
        count: u64,
        /// Their sum.
        sum: f64,
        /// The smallest, 0 while there is none.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// One number for each value of the label `key`.
    Set(Vec<(&'static str, u64)>),
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// In milliseconds.
impl From<Latency> for Value {
    fn from(latency: Latency) -> Value {
        Value::Summary {
            count: latency.count,
            sum: latency.sum_us as f64 / 1000.0,
            min: latency.min_us / 1000,
            max: latency.max_us / 1000,
        }
    }
}

impl From<Tally> for Value {
    fn from(tally: Tally) -> Value {
        Value::Summary { count: tally.count, sum: tally.sum as f64, min: tally.min, max: tally.max }
    }
}

/// A row of the table.
pub struct Metric {
    /// Name, without `zk_`.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// One sentence without a full stop.
    pub help: &'static str,
    read: fn(&Reading) -> Option<Value>,
}

impl Metric {
    /// Its value; `None` where it is not measured.
    #[must_use]
    pub fn value(&self, reading: &Reading) -> Option<Value> {
        (self.read)(reading)
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Counter, help, read }
}

const fn summary(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Summary, help, read }
}

/// A whole number that is always measured.
fn whole(value: u64) -> Option<Value> {
    Some(value.into())
}

/// Every metric, ZooKeeper's first.
pub const METRICS: &[Metric] = &[
    gauge("avg_latency", "Mean milliseconds from a request's arrival to its answer", |r| {
        Some(Value::Real(rounded(overall_latency(&r.status).mean_ms())))
    }),
    gauge("min_latency", "Shortest milliseconds from a request's arrival to its answer", |r| {
        whole(overall_latency(&r.status).min_us / 1000)
    }),
    gauge("max_latency", "Longest milliseconds from a request's arrival to its answer", |r| {
        whole(overall_latency(&r.status).max_us / 1000)
    }),
    gauge("packets_received", "Frames received from clients", |r| {
        whole(r.counters.packets_received)
    }),
    gauge("packets_sent", "Frames sent to clients, events included", |r| {
        whole(r.counters.packets_sent)
    }),
    gauge("num_alive_connections", "Client connections open", |r| {
        whole(r.counters.connections_alive)
    }),
    gauge("outstanding_requests", "Requests received and not answered yet", |r| {
        whole(r.status.outstanding)
    }),
    gauge("uptime", "Milliseconds since the start", |r| whole(r.counters.uptime_ms)),
    gauge("znode_count", "Znodes, counted as ZooKeeper does (the root twice)", |r| {
        whole(r.status.znode_count)
    }),
    gauge("watch_count", "Watches registered on this server", |r| whole(r.status.watch_count)),
    gauge("ephemerals_count", "Ephemeral znodes", |r| whole(r.status.ephemerals_count)),
    gauge("approximate_data_size", "Bytes of all paths and data", |r| {
        whole(r.status.approximate_data_size)
    }),
    gauge("global_sessions", "Open sessions of the whole ensemble", |r| whole(r.status.sessions)),
    gauge("open_file_descriptor_count", "File descriptors open in this process", |r| {
        r.descriptors.open.map(Value::from)
    }),
    gauge("max_file_descriptor_count", "File descriptors this process may open", |r| {
        r.descriptors.max.map(Value::from)
    }),
    gauge("last_client_response_size", "Bytes of the last reply", |r| {
        r.counters.response_sizes.map(|sizes| sizes.last.into())
    }),
    gauge("max_client_response_size", "Bytes of the largest reply", |r| {
        r.counters.response_sizes.map(|sizes| sizes.max.into())
    }),
    gauge("min_client_response_size", "Bytes of the smallest reply", |r| {
        r.counters.response_sizes.map(|sizes| sizes.min.into())
    }),
    gauge("auth_failed_count", "Auth packets that were refused", |r| whole(r.status.auth_failed)),
    gauge(
        "non_mtls_remote_conn_count",
        "Connections accepted without a client certificate from other hosts",
        |r| whole(r.counters.connections_non_mtls_remote),
    ),
    gauge(
        "non_mtls_local_conn_count",
        "Connections accepted without a client certificate from the server's own address",
        |r| whole(r.counters.connections_non_mtls_local),
    ),
    counter("commit_count", "Transactions applied", |r| whole(r.status.txns_applied)),
    counter("proposal_count", "Entries proposed by this server", |r| whole(r.status.proposals)),
    counter("connection_request_count", "Handshakes received", |r| {
        whole(r.counters.connect_requests)
    }),
    counter("connection_rejected", "Connections refused for their number", |r| {
        whole(r.counters.connections_rejected_per_ip + r.counters.connections_rejected_total)
    }),
    counter("connection_drop_count", "Client connections that ended, for whatever reason", |r| {
        whole(r.counters.connections_closed)
    }),
    counter("stale_sessions_expired", "Sessions expired by this server", |r| {
        whole(r.status.sessions_expired)
    }),
    counter("sessionless_connections_expired", "Connections closed without a handshake", |r| {
        whole(r.counters.connections_cut_sessionless)
    }),
    counter("bytes_received_count", "Bytes received from clients", |r| {
        whole(r.counters.bytes_received)
    }),
    counter("response_bytes", "Bytes sent to clients, without those of events", |r| {
        whole(r.counters.bytes_sent.saturating_sub(r.status.watch_bytes))
    }),
    counter("watch_bytes", "Bytes of events sent to clients", |r| whole(r.status.watch_bytes)),
    counter("large_requests_rejected", "Requests refused for their size", |r| {
        whole(r.counters.large_requests_refused)
    }),
    counter("snapshot_error_count", "Images that could not be written or verified", |r| {
        whole(r.counters.image_errors)
    }),
    summary("fsynctime", "Milliseconds of each fsync of the log", |r| {
        Some(r.counters.fsync.into())
    }),
    summary("snapshottime", "Milliseconds to write and verify each image", |r| {
        Some(r.counters.image.into())
    }),
    summary("dbinittime", "Milliseconds from the start to serving", |r| {
        let ms = r.recovery_ms?;
        Some(Tally { count: 1, sum: ms, min: ms, max: ms }.into())
    }),
    summary("readlatency", "Milliseconds from a read's arrival to its answer", |r| {
        Some(r.status.read_latency.into())
    }),
    summary("updatelatency", "Milliseconds from a write's arrival to its answer", |r| {
        Some(r.status.write_latency.into())
    }),
    summary("sync_processor_batch_size", "Entries appended to the log with one fsync", |r| {
        Some(r.counters.log_batch.into())
    }),
    gauge("lockkeeper_serving", "1 while requests are answered, else 0", |r| {
        whole(u64::from(r.status.serving))
    }),
    gauge("lockkeeper_zxid", "Last applied zxid", |r| Some(Value::Whole(r.status.zxid))),
    gauge("lockkeeper_raft_term", "Raft term", |r| whole(r.status.term)),
    gauge("lockkeeper_applied_index", "Last log index applied", |r| whole(r.status.applied)),
    gauge("lockkeeper_persisted_index", "Last log index on this server's disk", |r| {
        whole(r.status.persisted)
    }),
    gauge("lockkeeper_changes_waiting", "Changed records not yet handed to the tree's copy", |r| {
        whole(r.status.changes_waiting)
    }),
    gauge("lockkeeper_sessions_connected", "Connections with a session", |r| {
        whole(r.status.connections)
    }),
    gauge("lockkeeper_log_bytes", "Bytes of the log on disk", |r| whole(r.counters.log_dir_bytes)),
    gauge("lockkeeper_image_bytes", "Bytes of images and the tree's copy on disk", |r| {
        whole(r.counters.data_dir_bytes)
    }),
    gauge("lockkeeper_last_image_index", "Log index of the newest verified image", |r| {
        r.counters.last_image.map(|image| image.index.into())
    }),
    gauge("lockkeeper_last_image_zxid", "Zxid of the newest verified image", |r| {
        r.counters.last_image.map(|image| Value::Whole(image.zxid))
    }),
    gauge(
        "lockkeeper_last_image_timestamp_seconds",
        "When the newest verified image was finished, seconds since the epoch",
        |r| r.counters.last_image.map(|image| Value::Real(image.wall_ms as f64 / 1000.0)),
    ),
    counter("lockkeeper_connections_accepted", "Client connections accepted", |r| {
        whole(r.counters.connections_accepted)
    }),
    counter("lockkeeper_connections_rejected", "Connections refused, by limit", |r| {
        Some(Value::Set(vec![
            ("per_ip", r.counters.connections_rejected_per_ip),
            ("total", r.counters.connections_rejected_total),
        ]))
    }),
    counter("lockkeeper_connections_cut", "Connections ended by the server, by reason", |r| {
        Some(Value::Set(vec![
            ("slow", r.counters.connections_cut_slow),
            ("malformed", r.counters.connections_cut_malformed),
            ("sessionless", r.counters.connections_cut_sessionless),
        ]))
    }),
    counter("lockkeeper_handshakes_refused", "Handshakes refused by the replica", |r| {
        whole(r.status.connections_refused)
    }),
    counter("lockkeeper_events_fired", "Watch events fired, by type", |r| {
        let [created, deleted, changed, children] = r.status.events_fired;
        Some(Value::Set(vec![
            ("created", created),
            ("deleted", deleted),
            ("changed", changed),
            ("children", children),
        ]))
    }),
    counter("lockkeeper_bytes_sent", "Bytes sent to clients, events included", |r| {
        whole(r.counters.bytes_sent)
    }),
    counter("lockkeeper_fsyncs_slow", "Fsyncs of the log above the warning threshold", |r| {
        whole(r.counters.fsyncs_slow)
    }),
    summary(
        "lockkeeper_checkpoint_time",
        "Milliseconds of each checkpoint of the tree's copy",
        |r| Some(r.counters.checkpoint.into()),
    ),
];

/// A value as `mntr` and `/commands/monitor` show it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Cell {
    Text(String),
    Whole(i64),
    Real(f64),
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Text(text) => formatter.write_str(text),
            Cell::Whole(value) => write!(formatter, "{value}"),
            // As Java prints a double: with a point.
            Cell::Real(value) => write!(formatter, "{value:?}"),
        }
    }
}

/// Keys and values of `mntr`, without `zk_`.
#[must_use]
pub fn monitor(reading: &Reading) -> Vec<(String, Cell)> {
    let mode = reading.status.mode;
    let mut rows = vec![
        ("version".to_string(), Cell::Text(full_version())),
        ("server_state".to_string(), Cell::Text(mode.name().to_string())),
    ];
    if let Some(state) = peer_state(mode) {
        rows.push(("peer_state".to_string(), Cell::Text(state.to_string())));
    }
    for metric in METRICS {
        if let Some(value) = metric.value(reading) {
            monitor_rows(metric.name, value, &mut rows);
        }
    }
    rows
}

/// What ZooKeeper calls the state of an ensemble's member that serves.
fn peer_state(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Leader => Some("leading - broadcast"),
        Mode::Follower => Some("following - broadcast"),
        Mode::Observer => Some("observing - broadcast"),
        Mode::Looking | Mode::Standalone | Mode::ReadOnly => None,
    }
}

fn monitor_rows(name: &str, value: Value, rows: &mut Vec<(String, Cell)>) {
    let unsigned = |value: u64| Cell::Whole(i64::try_from(value).unwrap_or(i64::MAX));
    match value {
        Value::Whole(value) => rows.push((name.to_string(), Cell::Whole(value))),
        Value::Real(value) => rows.push((name.to_string(), Cell::Real(value))),
        Value::Summary { count, sum, min, max } => {
            let mean = if count == 0 { 0.0 } else { rounded(sum / count as f64) };
            rows.push((format!("avg_{name}"), Cell::Real(mean)));
            rows.push((format!("min_{name}"), unsigned(min)));
            rows.push((format!("max_{name}"), unsigned(max)));
            rows.push((format!("cnt_{name}"), unsigned(count)));
            rows.push((format!("sum_{name}"), Cell::Whole(sum as i64)));
        }
        Value::Set(values) => {
            for (key, value) in values {
                rows.push((format!("{key}_{name}"), unsigned(value)));
            }
        }
    }
}

/// `mntr`.
#[must_use]
pub fn mntr(reading: &Reading) -> String {
    let mut out = String::new();
    for (key, cell) in monitor(reading) {
        put(&mut out, format_args!("zk_{key}\t{cell}\n"));
    }
    out
}

/// `/metrics`, in the Prometheus text format 0.0.4.
#[must_use]
pub fn prometheus(reading: &Reading) -> String {
    let mut out = String::new();
    for metric in METRICS {
        let Some(value) = metric.value(reading) else { continue };
        let (name, kind) = (metric.name, metric.kind.name());
        put(&mut out, format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help));
        match value {
            Value::Whole(value) => put(&mut out, format_args!("{name} {value}\n")),
            Value::Real(value) => put(&mut out, format_args!("{name} {value:?}\n")),
            Value::Summary { count, sum, min: _, max: _ } => {
                put(&mut out, format_args!("{name}_count {count}\n{name}_sum {sum:?}\n"));
            }
            Value::Set(values) => {
                for (key, value) in values {
                    put(&mut out, format_args!("{name}{{key=\"{key}\"}} {value}\n"));
                }
            }
        }
    }
    out
}

/// The text of `docs/METRICS.md`.
#[must_use]
pub fn document() -> String {
    let mut out = String::from(DOCUMENT_HEAD);
    for metric in METRICS {
        put(
            &mut out,
            format_args!("| `{}` | {} | {} |\n", metric.name, metric.kind.name(), metric.help),
        );
    }
    out
}

const DOCUMENT_HEAD: &str = "\
# Metrics

The same figures, three ways: `GET /metrics` (Prometheus text format), the four-letter word `mntr`
(names begin with `zk_`), and `GET /commands/monitor` (JSON). Names are those of ZooKeeper 3.9, so
that its dashboards and alert rules keep working; names that begin with `lockkeeper_` are ours.
A figure is measured or absent, never a constant. Times are milliseconds unless the name says
otherwise. `srst` sets counters and summaries to zero.

In `/metrics` a summary is `<name>_count` and `<name>_sum`; in `mntr` it is `zk_avg_`, `zk_min_`,
`zk_max_`, `zk_cnt_` and `zk_sum_<name>`. A metric by reason or type has the label `key` in
`/metrics` and is `zk_<key>_<name>` in `mntr`. `mntr` also shows `zk_version`, `zk_server_state` and,
in an ensemble, `zk_peer_state`.

This page is generated from the table in `src/admin/metrics.rs`; a test keeps it current.

| name | kind | meaning |
|---|---|---|
";
