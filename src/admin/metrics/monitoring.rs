//! The Grafana dashboard and the alert rules of Prometheus in `packaging/monitoring/`, made from the table of metrics.
//!
//! *Owns* which panel a metric is on, and when an alert fires. *Invariants*: every metric is on the dashboard; an
//! expression names metrics that exist. Tests hold the two files against this.

use std::collections::BTreeSet;

use regex_lite::Regex;
use serde_json::{Value, json};

use super::metric::{Kind, METRICS, Metric};

/// An alert rule.
struct Alert {
    name: &'static str,
    expr: &'static str,
    /// For how long, before it fires.
    lasts: &'static str,
    severity: &'static str,
    /// What is wrong, and what to do.
    summary: &'static str,
}

const fn alert(
    name: &'static str,
    expr: &'static str,
    lasts: &'static str,
    severity: &'static str,
    summary: &'static str,
) -> Alert {
    Alert { name, expr, lasts, severity, summary }
}

const ALERTS: &[Alert] = &[
    alert(
        "LockkeeperDown",
        "up{job=~\".*lockkeeper.*\"} == 0",
        "1m",
        "critical",
        "A server does not answer its collector: is its process there, and is admin.serverAddress reachable?",
    ),
    alert(
        "LockkeeperServesNoClients",
        "lockkeeper_serving == 0",
        "1m",
        "critical",
        "A server serves no client: /readyz of it says why",
    ),
    alert(
        "LockkeeperHasNoLeader",
        "max by (job) (quorum_size) > 0 unless on (job) leader_uptime",
        "1m",
        "critical",
        "No server leads: a majority is missing. Start the servers that are down",
    ),
    alert(
        "LockkeeperServerMissing",
        "quorum_size - 1 - synced_followers - synced_non_voting_followers > 0",
        "5m",
        "warning",
        "A participant is missing, or does not keep up with this leader: the loss of another one may stop all writes",
    ),
    alert(
        "LockkeeperServerLags",
        "(learners - synced_followers - synced_observers - synced_non_voting_followers) > 0",
        "10m",
        "warning",
        "A server is linked with the leader and does not keep up: look at its disk and its log",
    ),
    alert(
        "LockkeeperStateDiffers",
        "max(lockkeeper_states_differing) > 0",
        "0m",
        "critical",
        "The state of a server is not that of the majority: /readyz and the servers' logs name it. Stop it, and start \
         it with --rejoin",
    ),
    alert(
        "LockkeeperLeaderChanges",
        "increase(lockkeeper_leader_changes[10m]) > 3",
        "0m",
        "warning",
        "Leadership moves again and again: look at the network between the servers, and at slow fsyncs",
    ),
    alert(
        "LockkeeperSlowFsync",
        "rate(fsynctime_sum[5m]) / rate(fsynctime_count[5m]) > 100",
        "5m",
        "warning",
        "An fsync of the log takes more than 100 ms: each write waits for it. Give the log a disk of its own",
    ),
    alert(
        "LockkeeperDiskHangs",
        "lockkeeper_disk_waits_ms > 5000",
        "0m",
        "critical",
        "The log's disk has completed nothing for 5 s",
    ),
    alert(
        "LockkeeperNoImage",
        "lockkeeper_log_since_image_bytes > 2147483648",
        "10m",
        "warning",
        "2 GiB of log were written since the newest image: the disk fills up. The server's log says why",
    ),
    alert(
        "LockkeeperDiskFillsUp",
        "lockkeeper_disk_free_bytes < 1073741824",
        "5m",
        "critical",
        "Less than 1 GiB is free where the data or the log is: a server whose log finds no room ends",
    ),
    alert(
        "LockkeeperImagesFail",
        "increase(snapshot_error_count[1h]) > 0 or increase(digest_mismatches_count[1h]) > 0",
        "0m",
        "warning",
        "An image could not be written or verified: the disk is full or damaged",
    ),
    alert(
        "LockkeeperBackupOld",
        "min(lockkeeper_backup_age_seconds) > 172800",
        "0m",
        "warning",
        "No server has given a backup for two days: look at the timer or the job that asks for them",
    ),
    alert(
        "LockkeeperMigrationStopped",
        "lockkeeper_migration_state{key=\"stopped\"} == 1",
        "0m",
        "critical",
        "The copy of ZooKeeper's state differs: clients are to go back there. `lockkeeper migrate status` says which \
         znode",
    ),
    alert(
        "LockkeeperMigrationAlarm",
        "lockkeeper_migration_alarms > 0",
        "0m",
        "critical",
        "A client still writes to ZooKeeper behind the cutover: the log of the leader names its session and the znode",
    ),
    alert(
        "LockkeeperEndsByItself",
        "increase(unrecoverable_error_count[5m]) > 0",
        "0m",
        "critical",
        "A server has ended by an error, and was started again: the last line of log before that says which",
    ),
    alert(
        "LockkeeperSlowWrites",
        "histogram_quantile(0.99, sum by (le, instance) (rate(lockkeeper_write_seconds_bucket[5m]))) > 1",
        "5m",
        "warning",
        "One write in a hundred takes more than a second",
    ),
    alert(
        "LockkeeperRefusesConnections",
        "increase(connection_rejected[5m]) > 0",
        "0m",
        "warning",
        "Connections are refused for their number: raise maxClientCnxns, or find the client that leaks them",
    ),
    alert(
        "LockkeeperFileDescriptors",
        "process_open_fds / process_max_fds > 0.8",
        "5m",
        "warning",
        "A server has used most of the files that it may open: raise the limit (LimitNOFILE)",
    ),
    alert(
        "LockkeeperCertificateEnds",
        "lockkeeper_certificate_expiry_seconds - time() < 604800",
        "0m",
        "warning",
        "A certificate ends within a week",
    ),
    alert(
        "LockkeeperKeysOutdated",
        "lockkeeper_certificate_outdated == 1 or lockkeeper_sasl_users_outdated == 1",
        "5m",
        "warning",
        "A file of keys, certificates or users has changed and cannot be used: the server's log says why",
    ),
    alert(
        "LockkeeperClocksApart",
        "abs(lockkeeper_clock_skew_ms) > 2000",
        "5m",
        "warning",
        "The clocks of two servers differ by more than two seconds: set them right (NTP)",
    ),
    alert(
        "LockkeeperLockFindings",
        "lockkeeper_lock_findings > 0",
        "5m",
        "warning",
        "Something is wrong with a lock: `lockkeeper locks` and the console say what",
    ),
    alert(
        "LockkeeperLockWaits",
        "lockkeeper_lock_longest_wait > 600000",
        "0m",
        "warning",
        "A client has waited for a lock for ten minutes: `lockkeeper locks` says who holds it",
    ),
    alert(
        "LockkeeperLockCounter",
        "lockkeeper_lock_counter_max_ratio > 0.8",
        "0m",
        "warning",
        "A directory of contenders has used up most of its sequence numbers: use another one",
    ),
];

/// The text of `alerts.yml`.
fn alerts() -> String {
    let mut out = String::from(
        "# Alert rules for Prometheus. Made from src/admin/metrics/monitoring.rs by its tests \
         (LOCKKEEPER_WRITE_DOCS=1).\n\
         groups:\n  - name: lockkeeper\n    rules:\n",
    );
    // A string of JSON is one of YAML, too.
    let quoted = |text: String| Value::from(text).to_string();
    for Alert { name, expr, lasts, severity, summary } in ALERTS {
        let expr = quoted((*expr).to_owned());
        // Some are of a whole ensemble.
        let of = "{{ with $labels.instance }}{{ . }}: {{ end }}";
        let summary = quoted(format!("{of}{summary}"));
        out.push_str(&format!(
            "      - alert: {name}\n        expr: {expr}\n        for: {lasts}\n        labels:\n          \
             severity: {severity}\n        annotations:\n          summary: {summary}\n"
        ));
    }
    out
}

/// The rows of the dashboard, and which metrics are in each: the first that says yes.
type Row = (&'static str, fn(&str) -> bool);
const ROWS: &[Row] = &[
    ("Overview", |name| {
        ["lockkeeper_build_info", "uptime", "lockkeeper_raft_term", "lockkeeper_zxid"]
            .contains(&name)
            || ["serving", "leader_uptime", "quorum_size", "lockkeeper_leader"]
                .iter()
                .any(|part| name.ends_with(part))
    }),
    ("Requests", |name| {
        [
            "avg_latency",
            "min_latency",
            "max_latency",
            "readlatency",
            "updatelatency",
            "outstanding_requests",
        ]
        .contains(&name)
            || name.ends_with("read_seconds")
            || name.ends_with("write_seconds")
            || name.starts_with("packets_")
            || name.ends_with("per_namespace")
            || name.contains("bytes_sent")
            || name.contains("response_")
            || name == "bytes_received_count"
    }),
    ("Locks", |name| name.starts_with("lockkeeper_lock")),
    ("Data, sessions and watches", |name| {
        ["znode", "ephemeral", "data_size", "session", "watch", "events_fired", "revalidate"]
            .iter()
            .any(|part| name.contains(part))
            && !name.contains("session_queue")
            && !name.contains("close_session")
    }),
    ("Connections and security", |name| {
        [
            "connection",
            "handshake",
            "mtls",
            "certificate",
            "sasl",
            "auth_failed",
            "protocols",
            "large_requests",
        ]
        .iter()
        .any(|part| name.contains(part))
            || name.ends_with("coming_bytes")
            || name.ends_with("going_bytes")
    }),
    ("Disk", |name| {
        [
            "fsync",
            "snapshot",
            "image",
            "log_bytes",
            "checkpoint",
            "backup",
            "disk",
            "startup",
            "dbinit",
            "digest",
            "sync_process",
        ]
        .iter()
        .any(|part| name.contains(part))
            || name.ends_with("_index")
            || name.ends_with("changes_waiting")
    }),
    ("Ensemble", |name| {
        [
            "election",
            "leader",
            "looking",
            "learner",
            "migration",
            "synced",
            "sync_time",
            "propagation",
            "proposal",
            "ack_latency",
            "unavailable",
            "peer",
            "links_",
            "link_bytes",
            "clock_skew",
            "stamps",
            "time_returns",
            "forwarded",
            "diff_count",
            "snap_count",
            "pending_syncs",
            "lockkeeper_states_",
            "scrub",
        ]
        .iter()
        .any(|part| name.contains(part))
    }),
    ("Process", |name| name.starts_with("process_") || name.contains("file_descriptor")),
    ("Stages of a request", |_| true),
];

/// What a panel asks for, with how each line is called.
fn queries(metric: &Metric) -> Vec<(String, &'static str)> {
    let name = metric.name;
    let chosen = "{instance=~\"$instance\"}";
    let by_key = "{{instance}} {{key}}{{lock}}";
    match metric.kind {
        Kind::Gauge => vec![(format!("{name}{chosen}"), by_key)],
        Kind::Counter => vec![(format!("rate({name}{chosen}[$__rate_interval])"), by_key)],
        Kind::Summary => vec![(
            format!(
                "rate({name}_sum{chosen}[$__rate_interval]) / rate({name}_count{chosen}[$__rate_interval])"
            ),
            by_key,
        )],
        Kind::Histogram => [
            ("0.5", "{{instance}} p50"),
            ("0.99", "{{instance}} p99"),
            ("0.999", "{{instance}} p99.9"),
        ]
        .map(|(part, called)| {
            let rate = format!("rate({name}_bucket{chosen}[$__rate_interval])");
            (format!("histogram_quantile({part}, sum by (le, instance) ({rate}))"), called)
        })
        .to_vec(),
    }
}

fn unit(metric: &Metric) -> &'static str {
    let (name, help) = (metric.name, metric.help);
    match metric.kind {
        _ if name.ends_with("timestamp_seconds")
            || name.ends_with("start_time_seconds")
            || name.contains("expiry") =>
        {
            "dateTimeAsIso"
        }
        Kind::Histogram => "s",
        Kind::Counter if help.starts_with("Bytes") => "Bps",
        Kind::Counter if help.starts_with("Seconds") => "percentunit",
        Kind::Counter => "ops",
        Kind::Gauge | Kind::Summary if help.to_lowercase().contains("millisecond") => "ms",
        Kind::Gauge | Kind::Summary if help.starts_with("Bytes") => "bytes",
        Kind::Gauge | Kind::Summary => "short",
    }
}

/// The text of `grafana-dashboard.json`.
fn dashboard() -> String {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let (mut panels, mut id, mut y) = (Vec::new(), 0, 0);
    let mut seen = BTreeSet::new();
    for (number, (title, takes)) in ROWS.iter().enumerate() {
        let metrics = METRICS.iter().filter(|metric| takes(metric.name));
        let metrics: Vec<_> = metrics.filter(|metric| seen.insert(metric.name)).collect();
        id += 1;
        let is_open = number < 3;
        let mut inner = Vec::new();
        y += 1;
        let row_y = y - 1;
        for (place, metric) in metrics.iter().enumerate() {
            id += 1;
            let targets: Vec<Value> = (b'A'..)
                .zip(queries(metric))
                .map(|(letter, (expr, legend))| {
                    let letter = char::from(letter).to_string();
                    json!({"refId": letter, "expr": expr, "legendFormat": legend, "datasource": source})
                })
                .collect();
            inner.push(json!({
                "id": id, "type": "timeseries", "title": metric.name, "description": metric.help, "datasource": source,
                "gridPos": {"h": 7, "w": 6, "x": 6 * (place % 4), "y": y + 7 * (place / 4)},
                "fieldConfig": {"defaults": {"unit": unit(metric), "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
                "targets": targets,
            }));
        }
        let row = json!({
            "id": 1000 + number, "type": "row", "title": title, "collapsed": !is_open,
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": row_y},
            "panels": if is_open { json!([]) } else { json!(inner) },
        });
        panels.push(row);
        if is_open {
            y += 7 * metrics.len().div_ceil(4);
            panels.append(&mut inner);
        }
    }
    let dashboard = json!({
        "title": "Lockkeeper", "uid": "lockkeeper", "schemaVersion": 39, "version": 1, "editable": true,
        "tags": ["lockkeeper", "zookeeper"], "refresh": "10s", "time": {"from": "now-1h", "to": "now"},
        "description": "Made from the table of metrics in src/admin/metrics/table.rs.",
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            {"name": "instance", "type": "query", "datasource": source, "refresh": 2, "multi": true,
             "query": "label_values(lockkeeper_serving, instance)", "includeAll": true, "allValue": ".*",
             "current": {"text": "All", "value": "$__all"}},
        ]},
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn holds(file: &str, made: &str) {
    let path = format!("{}/packaging/monitoring/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(format!("{}/packaging/monitoring", env!("CARGO_MANIFEST_DIR")))
            .unwrap();
        std::fs::write(&path, made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == made, "{path}: run the tests once with LOCKKEEPER_WRITE_DOCS=1");
}

#[test]
fn the_dashboard_has_every_metric_once() {
    let text = dashboard();
    for metric in METRICS {
        let title = format!("\"title\": \"{}\"", metric.name);
        assert_eq!(text.matches(&title).count(), 1, "{}", metric.name);
    }
    holds("grafana-dashboard.json", &text);
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let word = Regex::new(r"[a-z_]{4,}").unwrap();
    let functions = [
        "rate",
        "increase",
        "histogram_quantile",
        "absent",
        "unless",
        "time",
        "lockkeeper",
        "instance",
        "or",
        "and",
        "sum",
    ];
    for alert in ALERTS {
        // What stands in quotes is the value of a label.
        let unquoted: String = alert.expr.split('"').step_by(2).collect();
        let expr = unquoted.replace("up{", "{").replace("job=", "=").replace("key=", "=");
        for found in word.find_iter(&expr) {
            let name = found.as_str();
            let base =
                ["_sum", "_count", "_bucket"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let is_known = names.contains(name) || base.is_some_and(|base| names.contains(base));
            assert!(is_known || functions.contains(&name), "{name} in {}", alert.name);
        }
    }
    holds("alerts.yml", &alerts());
}
