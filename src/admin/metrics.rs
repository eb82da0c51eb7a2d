//! Figures under ZooKeeper's names.
//!
//! *Owns* what a metric is, and the texts made from the table of them in `metric_table.rs`: `mntr`,
//! `/commands/monitor`, `/metrics` and `docs/METRICS.md`. *Invariants*: a metric is measured or
//! absent; times are milliseconds unless the name says otherwise. *Never* keeps a figure itself.
//!
//! Reproduces ZooKeeper's `ServerMetrics` and its metrics providers (names of 3.9: counters have no
//! `_total`).

use std::fmt;

use super::environment::Descriptors;
use super::lock_figures::LockFigures;
pub use super::metric_table::METRICS;
use super::version::full_version;
use super::words::{put, rounded};
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
    pub locks: Option<LockFigures>,
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
            locks: None,
        }
    }

    /// The same with the figures of locks, which are not there for the taking: the server and its peers
    /// are asked.
    pub async fn with_locks(status: Status, source: &dyn Source) -> Reading {
        let locks = LockFigures::now(source).await;
        Reading { locks, ..Reading::now(status, source) }
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
    pub(super) read: fn(&Reading) -> Option<Value>,
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
otherwise. `srst` sets counters and summaries to zero, `commit_count` and `dbinittime` excepted.

In `/metrics` a summary is `<name>_count` and `<name>_sum`; in `mntr` it is `zk_avg_`, `zk_min_`,
`zk_max_`, `zk_cnt_` and `zk_sum_<name>`. A metric by reason or type has the label `key` in
`/metrics` and is `zk_<key>_<name>` in `mntr`. `mntr` also shows `zk_version`, `zk_server_state` and,
in an ensemble, `zk_peer_state`.

Figures of locks (`lockkeeper_lock...`) are in `/metrics` alone, and there those of the leader or of a
server that runs alone: it looks at all locks and asks the other servers what they know, as it does for
the page of locks, so collect them every few seconds at most. They have no label for a lock's path:
which lock it is, `/locks` tells.

This page is generated from the table in `src/admin/metric_table.rs`; a test keeps it current.

| name | kind | meaning |
|---|---|---|
";

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use regex_lite::Regex;

    use super::super::fake::Fake;
    use super::*;
    use crate::locks::FindingKind;
    use crate::locks::view::Kind as LockKind;

    fn reading(fake: &Fake) -> Reading {
        let descriptors = Descriptors { open: Some(12), max: Some(1024) };
        Reading { descriptors, ..Reading::now(fake.status(), fake) }
    }

    /// With a lock of each kind and a finding of each.
    fn reading_with_locks(fake: &Fake) -> Reading {
        let locks = LockFigures {
            kinds: LockKind::ALL.map(|kind| (kind.name(), 1)).to_vec(),
            holders: 6,
            waiters: 2,
            longest_wait_ms: 1500,
            longest_hold_ms: 3000,
            findings: FindingKind::ALL.map(|kind| (kind.name(), 1)).to_vec(),
            counter_ratio_max: 0.25,
            is_cut: true,
        };
        Reading { locks: Some(locks), ..reading(fake) }
    }

    fn pairs(text: &str) -> BTreeMap<&str, &str> {
        text.lines().map(|line| line.split_once('\t').expect("key, tab, value")).collect()
    }

    #[test]
    fn names_are_zookeepers_or_begin_with_ours_and_exist_once() {
        let known: BTreeSet<&str> = ZOOKEEPERS.split_whitespace().collect();
        let mut seen = BTreeSet::new();
        for metric in METRICS {
            assert!(seen.insert(metric.name), "{} twice", metric.name);
            assert!(
                known.contains(metric.name) || metric.name.starts_with("lockkeeper_"),
                "{} is not ZooKeeper's",
                metric.name
            );
            assert!(!metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '|']));
        }
    }

    #[test]
    fn values_are_of_their_metrics_kind() {
        let reading = reading_with_locks(&Fake::leader());
        for metric in METRICS {
            let value = metric.value(&reading).expect("the fake leader measures everything");
            let is_summary = matches!(value, Value::Summary { .. });
            assert_eq!(is_summary, metric.kind == Kind::Summary, "{metric:?}");
        }
    }

    #[test]
    fn a_metric_that_is_not_measured_is_absent() {
        let mut fake = Fake::standalone();
        fake.facts.recovery_ms = None;
        fake.counters.response_sizes = None;
        fake.counters.disk.last_image = None;
        let mut reading = reading(&fake);
        reading.descriptors = Descriptors::default();
        for text in [mntr(&reading), prometheus(&reading)] {
            for name in ["dbinittime", "client_response_size", "last_image", "file_descriptor"] {
                assert!(!text.contains(name), "{name} in {text}");
            }
        }
    }

    #[test]
    fn no_value_is_a_constant() {
        // Whatever is measured differs between a server at rest and one with figures.
        let at_rest = Reading::default();
        let busy = reading_with_locks(&Fake::leader());
        let unchanged: Vec<_> = METRICS
            .iter()
            .filter(|metric| metric.value(&at_rest) == metric.value(&busy))
            .map(|metric| metric.name)
            .collect();
        // These two are 0 in the fake server too.
        assert_eq!(unchanged, ["snapshot_error_count", "lockkeeper_checkpoint_time"]);
    }

    #[test]
    fn mntr_has_a_key_and_a_value_on_every_line() {
        let text = mntr(&reading(&Fake::standalone()));
        let line = Regex::new(r"^zk_[a-z0-9_]+\t[^\t]+$").unwrap();
        for each in text.lines() {
            assert!(line.is_match(each), "{each}");
        }
        assert_eq!(pairs(&text).len(), text.lines().count(), "a key twice");
        assert!(text.ends_with('\n'));
        assert!(text.starts_with(&format!(
            "zk_version\t{}\nzk_server_state\tstandalone\nzk_avg_latency\t1.6\n",
            full_version()
        )));
    }

    #[test]
    fn mntr_writes_whole_numbers_plain_and_means_with_a_point() {
        let text = mntr(&reading(&Fake::standalone()));
        let pairs = pairs(&text);
        for (key, value) in [
            ("zk_min_latency", "1"),
            ("zk_max_latency", "2"),
            ("zk_znode_count", "5"),
            ("zk_uptime", "1644167"),
            ("zk_global_sessions", "3"),
            ("zk_connection_rejected", "4"),
            ("zk_response_bytes", "4900"),
            ("zk_open_file_descriptor_count", "12"),
            ("zk_avg_fsynctime", "1.5"),
            ("zk_min_fsynctime", "1"),
            ("zk_max_fsynctime", "2"),
            ("zk_cnt_fsynctime", "4"),
            ("zk_sum_fsynctime", "6"),
            ("zk_avg_sync_processor_batch_size", "17.75"),
            ("zk_avg_lockkeeper_checkpoint_time", "0.0"),
            ("zk_sum_dbinittime", "42"),
            ("zk_children_lockkeeper_events_fired", "4"),
        ] {
            assert_eq!(pairs.get(key), Some(&value), "{key}");
        }
        assert!(!pairs.contains_key("zk_peer_state"));
    }

    #[test]
    fn what_only_a_leader_knows_is_shown_by_leaders_only() {
        let mut fake = Fake::leader();
        let text = mntr(&reading(&fake));
        for (key, value) in [
            ("zk_server_state", "leader"),
            ("zk_learners", "3"),
            ("zk_synced_followers", "1"),
            ("zk_synced_non_voting_followers", "1"),
            ("zk_synced_observers", "1"),
            ("zk_pending_syncs", "6"),
            ("zk_leader_uptime", "9000"),
            ("zk_last_proposal_size", "48"),
            ("zk_quorum_size", "3"),
            ("zk_lockkeeper_elections", "3"),
            ("zk_lockkeeper_requests_forwarded", "12"),
        ] {
            assert_eq!(pairs(&text).get(key), Some(&value), "{key}");
        }
        fake.status.mode = Mode::Follower;
        fake.status.leading_ms = None;
        let text = mntr(&reading(&fake));
        for key in ["learners", "synced_", "pending_syncs", "leader_uptime", "proposal_size"] {
            assert!(!text.contains(&format!("zk_{key}")), "{key} in {text}");
        }
        assert_eq!(pairs(&text)["zk_lockkeeper_leader"], "1");
        let standalone = mntr(&reading(&Fake::standalone()));
        for key in ["leader", "quorum_size", "local_sessions", "peers", "elections", "forwarded"] {
            assert!(!standalone.contains(key), "{key} in {standalone}");
        }
    }

    #[test]
    fn members_of_an_ensemble_show_their_peer_state() {
        for (mode, state) in [
            (Mode::Leader, "leading - broadcast"),
            (Mode::Follower, "following - broadcast"),
            (Mode::Observer, "observing - broadcast"),
        ] {
            let mut fake = Fake::standalone();
            fake.status.mode = mode;
            assert_eq!(pairs(&mntr(&reading(&fake)))["zk_peer_state"], state);
        }
    }

    /// The grammar of the text format 0.0.4, as far as it is used: every sample follows its
    /// family's HELP and TYPE, no family twice, no sample twice.
    fn check_prometheus(text: &str) -> BTreeMap<String, f64> {
        let sample =
            Regex::new(r#"^([a-z_][a-z0-9_]*)(\{key="[a-z_-]+"\})? (-?[0-9.]+(e[0-9]+)?)$"#)
                .unwrap();
        let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
        let mut family = ("", "");
        let mut help = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                help = rest.split_once(' ').expect("help has a text").0;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split_once(' ').expect("type has a kind");
                assert_eq!(family.0, help);
                assert!(families.insert(family.0), "{} twice", family.0);
                assert!(["gauge", "counter", "summary"].contains(&family.1));
            } else {
                let found = sample.captures(line).unwrap_or_else(|| panic!("{line}"));
                let name = found.get(1).unwrap().as_str();
                let suffix = name.strip_prefix(family.0).expect("samples follow their family");
                let suffixes: &[&str] =
                    if family.1 == "summary" { &["_count", "_sum"] } else { &[""] };
                assert!(suffixes.contains(&suffix), "{line}");
                let key = line.rsplit_once(' ').unwrap().0.to_string();
                let value = found[3].parse().unwrap();
                assert!(samples.insert(key, value).is_none(), "{line} twice");
            }
        }
        samples
    }

    #[test]
    fn prometheus_text_is_valid_and_agrees_with_mntr() {
        let reading = reading_with_locks(&Fake::standalone());
        let samples = check_prometheus(&prometheus(&reading));
        for (name, value) in [
            ("znode_count", 5.0),
            ("avg_latency", 1.6),
            ("fsynctime_count", 4.0),
            ("fsynctime_sum", 6.0),
            ("readlatency_sum", 3.9),
            ("lockkeeper_zxid", 4_294_967_366.0),
            ("lockkeeper_connections_cut{key=\"malformed\"}", 2.0),
            ("lockkeeper_last_image_timestamp_seconds", 1_795_228_630.0),
            ("lockkeeper_locks{key=\"read-write\"}", 1.0),
            ("lockkeeper_lock_findings{key=\"mixed-dialects\"}", 1.0),
            ("lockkeeper_lock_counter_max_ratio", 0.25),
        ] {
            assert_eq!(samples.get(name), Some(&value), "{name}");
        }
        let text = mntr(&reading);
        for (key, value) in pairs(&text) {
            if let Some(sample) = samples.get(key.trim_start_matches("zk_")) {
                assert_eq!(value.parse(), Ok(*sample), "{key}");
            }
        }
    }

    #[test]
    fn prometheus_text_is_valid_at_the_extremes() {
        let mut fake = Fake::standalone();
        fake.counters.packets_sent = u64::MAX;
        fake.counters.disk.fsync.sum_us = u64::MAX;
        fake.status.zxid = -1;
        let samples = check_prometheus(&prometheus(&reading(&fake)));
        assert_eq!(samples["packets_sent"], i64::MAX as f64);
        assert_eq!(samples["lockkeeper_zxid"], -1.0);
    }

    #[test]
    fn the_documents_table_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/METRICS.md");
        if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            written,
            document(),
            "docs/METRICS.md: run the tests once with LOCKKEEPER_WRITE_DOCS=1"
        );
    }

    /// Names of ZooKeeper 3.9's metrics, without those of its sets' members.
    const ZOOKEEPERS: &str = "\
        avg_latency min_latency max_latency packets_received packets_sent num_alive_connections \
        outstanding_requests uptime znode_count watch_count ephemerals_count approximate_data_size \
        global_sessions local_sessions open_file_descriptor_count max_file_descriptor_count \
        connection_drop_probability last_client_response_size max_client_response_size \
        min_client_response_size outstanding_tls_handshake auth_failed_count \
        non_mtls_remote_conn_count non_mtls_local_conn_count quorum_size learners synced_followers \
        synced_non_voting_followers synced_observers pending_syncs leader_uptime last_proposal_size \
        max_proposal_size min_proposal_size quota_count_limit_per_namespace \
        quota_count_usage_per_namespace quota_bytes_limit_per_namespace \
        quota_bytes_usage_per_namespace commit_count proposal_count diff_count snap_count \
        looking_count connection_request_count connection_rejected connection_drop_count \
        connection_revalidate_count \
        revalidate_count stale_sessions_expired sessionless_connections_expired bytes_received_count \
        response_bytes watch_bytes unrecoverable_error_count digest_mismatches_count stale_requests \
        stale_requests_dropped stale_replies throttled_ops large_requests_rejected \
        request_throttle_wait_count learner_proposal_received_count learner_commit_received_count \
        response_packet_cache_hits response_packet_cache_misses \
        response_packet_get_children_cache_hits response_packet_get_children_cache_misses \
        ensemble_auth_success ensemble_auth_fail ensemble_auth_skip outstanding_changes_queued \
        outstanding_changes_removed prep_processor_request_queued sync_processor_request_queued \
        request_commit_queued tls_handshake_exceeded unsuccessful_handshake insecure_admin_count \
        quota_exceeded_error_per_namespace snapshot_error_count restore_error_count fsynctime \
        snapshottime dbinittime restore_time election_time unavailable_time leader_unavailable_time \
        follower_sync_time observer_sync_time startup_snap_load_time startup_txns_loaded \
        startup_txns_load_time node_created_watch_count node_deleted_watch_count \
        node_changed_watch_count node_children_watch_count sync_processor_batch_size \
        sync_processor_queue_size prep_processor_queue_size read_commit_proc_req_queued \
        write_commit_proc_req_queued commit_commit_proc_req_queued inflight_snap_count \
        inflight_diff_count connection_token_deficit readlatency updatelatency propagation_latency \
        proposal_latency commit_propagation_latency quorum_ack_latency \
        sync_processor_queue_flush_time_ms close_session_prep_time jvm_pause_time_ms \
        request_throttle_queue_time_ms read_per_namespace write_per_namespace ack_latency";
}
