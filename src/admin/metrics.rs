//! Figures under ZooKeeper's names.
//!
//! *Owns* the texts made from the table in `metric_table/`: `mntr`,
//! `/commands/monitor`, `/metrics` and `docs/METRICS.md`. *Invariants*: a metric is measured or
//! absent; times are milliseconds unless the name says otherwise. *Never* keeps a figure itself.
//!
//! Reproduces ZooKeeper's `ServerMetrics` and its metrics providers (names of 3.9: counters have no
//! `_total`).

use std::fmt;

pub use super::metric::Reading;
use super::metric::{QUANTILES, Summary, Value};
use super::version::full_version;
use super::words::{put, rounded};
use super::{absent, metric_table};
use crate::replica::inspect::Mode;

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
    for metric in metric_table::all() {
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
        Value::Summary(summary) => monitor_summary(name, &summary, rows),
        Value::Summaries(summaries) => {
            for (key, summary) in summaries {
                monitor_summary(&format!("{key}_{name}"), &summary, rows);
            }
        }
        Value::Histogram { .. } | Value::Labelled(..) | Value::Info(_) => {}
        Value::Set(values) => {
            for (key, value) in values {
                rows.push((format!("{key}_{name}"), unsigned(value)));
            }
        }
    }
}

fn monitor_summary(name: &str, summary: &Summary, rows: &mut Vec<(String, Cell)>) {
    let unsigned = |value: u64| Cell::Whole(i64::try_from(value).unwrap_or(i64::MAX));
    let Summary { count, sum, min, max, quantiles } = *summary;
    let mean = if count == 0 { 0.0 } else { rounded(sum / count as f64) };
    rows.push((format!("avg_{name}"), Cell::Real(mean)));
    rows.push((format!("min_{name}"), unsigned(min)));
    rows.push((format!("max_{name}"), unsigned(max)));
    rows.push((format!("cnt_{name}"), unsigned(count)));
    rows.push((format!("sum_{name}"), Cell::Whole(sum as i64)));
    let known = quantiles.iter().flatten().filter(|value| !value.is_nan());
    for ((_, called), value) in QUANTILES.iter().zip(known) {
        rows.push((format!("{called}_{name}"), Cell::Whole(value.round() as i64)));
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
    for metric in metric_table::all() {
        let Some(value) = metric.value(reading) else { continue };
        let (name, kind) = (metric.name, metric.kind.name());
        put(&mut out, format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help));
        match value {
            Value::Whole(value) => put(&mut out, format_args!("{name} {value}\n")),
            Value::Real(value) => put(&mut out, format_args!("{name} {value:?}\n")),
            Value::Summary(summary) => put_summary(&mut out, name, "", &summary),
            Value::Summaries(summaries) => {
                for (key, summary) in summaries {
                    put_summary(&mut out, name, &label("key", &key), &summary);
                }
            }
            Value::Histogram { counts, count, sum } => {
                for (bound, count) in counts {
                    put(&mut out, format_args!("{name}_bucket{{le=\"{bound:?}\"}} {count}\n"));
                }
                put(&mut out, format_args!("{name}_bucket{{le=\"+Inf\"}} {count}\n"));
                put(&mut out, format_args!("{name}_count {count}\n{name}_sum {sum:?}\n"));
            }
            Value::Labelled(called, values) => {
                for (text, value) in values {
                    let label = label(called, &text);
                    put(&mut out, format_args!("{name}{{{label}}} {value}\n"));
                }
            }
            Value::Info(labels) => {
                let labels: Vec<String> =
                    labels.iter().map(|(called, text)| label(called, text)).collect();
                put(&mut out, format_args!("{name}{{{}}} 1\n", labels.join(",")));
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

/// `labels`: without braces, perhaps none.
fn put_summary(out: &mut String, name: &str, labels: &str, summary: &Summary) {
    let comma = if labels.is_empty() { "" } else { "," };
    for ((part, _), value) in QUANTILES.iter().zip(summary.quantiles.iter().flatten()) {
        put(out, format_args!("{name}{{{labels}{comma}quantile=\"{part:?}\"}} {value:?}\n"));
    }
    let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let Summary { count, sum, .. } = summary;
    put(out, format_args!("{name}_count{braced} {count}\n{name}_sum{braced} {sum:?}\n"));
}

/// A label of the text format, whose value may be any text.
fn label(called: &str, text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{called}=\"{text}\"")
}

/// The text of `docs/METRICS.md`.
#[must_use]
pub fn document() -> String {
    let mut out = String::from(DOCUMENT_HEAD);
    for metric in metric_table::all() {
        put(
            &mut out,
            format_args!("| `{}` | {} | {} |\n", metric.name, metric.kind.name(), metric.help),
        );
    }
    out.push_str(ABSENT_HEAD);
    for (names, why) in absent::NAMES {
        let names: Vec<String> = names.split(' ').map(|name| format!("`{name}`")).collect();
        put(&mut out, format_args!("| {} | {why} |\n", names.join(", ")));
    }
    out
}

const ABSENT_HEAD: &str = "
## Names of ZooKeeper's that are not here

Dashboards and alert rules that ask for these show nothing, and never fire.

| name | why |
|---|---|
";

const DOCUMENT_HEAD: &str = "\
# Metrics

The same figures, three ways: `GET /metrics` (Prometheus text format), the four-letter word `mntr`
(names begin with `zk_`), and `GET /commands/monitor` (JSON). Names are those of ZooKeeper 3.9, so
that its dashboards and alert rules keep working; names that begin with `lockkeeper_` are ours.
A figure is measured or absent, never a constant. Times are milliseconds unless the name says
otherwise. `srst` sets counters and summaries to zero, `commit_count`, `unrecoverable_error_count` and what
the start has taken excepted.

In `/metrics` a summary is `<name>_count`, `<name>_sum` and `<name>{quantile=\"0.5\"}`
(0.95, 0.99 and 0.999 besides; NaN before the first value, so that `changes` sees that one);
in `mntr` it is `zk_avg_`, `zk_min_`, `zk_max_`, `zk_cnt_`, `zk_sum_`, and once there is a value `zk_p50_`,
`zk_p95_`, `zk_p99_` and `zk_p999_<name>`. Quantiles are at most an eighth off, and of everything
since the start or `srst`: for those of a span of time, take a histogram, which is in `/metrics` alone and in
seconds. A metric by reason or type has the label `key` in
`/metrics` and is `zk_<key>_<name>` in `mntr`. `mntr` also shows `zk_version`, `zk_server_state` and,
in an ensemble, `zk_peer_state`.

Figures of locks (`lockkeeper_lock...`) are in `/metrics` alone, and there those of the leader or of a
server that runs alone: it looks at all locks and asks the other servers what they know, as it does for
the page of locks, so collect them every few seconds at most. A label for a lock's path has
`lockkeeper_lock_queue` alone, for the 20 longest queues; `/locks` tells the rest.

This page is generated from the table in `src/admin/metric_table/`; a test keeps it current.

| name | kind | meaning |
|---|---|---|
";

#[cfg(test)]
mod tests;
