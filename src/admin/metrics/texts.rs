//! Figures under ZooKeeper's names.
//!
//! *Owns* the texts made from the table: `mntr`, `/commands/monitor` and `/metrics`. *Invariants*: a metric is measured
//! or absent; times are milliseconds unless the name says otherwise. *Never* keeps a figure itself.
//!
//! Reproduces ZooKeeper's `ServerMetrics` and its metrics providers (names of 3.9: counters have no
//! `_total`).

use std::fmt;

use super::super::text::rounded;
use super::super::version::full_version;
use super::metric::{METRICS, QUANTILES, Reading, Summary, Value};
use crate::replica::inspect::Mode;

/// A value as `mntr` and `/commands/monitor` show it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum Cell {
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
pub(crate) fn monitor(reading: &Reading) -> Vec<(String, Cell)> {
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
pub(crate) fn mntr(reading: &Reading) -> String {
    monitor(reading).into_iter().map(|(key, cell)| format!("zk_{key}\t{cell}\n")).collect()
}

/// `/metrics`, in the Prometheus text format 0.0.4.
#[must_use]
pub(crate) fn prometheus(reading: &Reading) -> String {
    let mut out = String::new();
    for metric in METRICS {
        let Some(value) = metric.value(reading) else { continue };
        let (name, kind) = (metric.name, metric.kind.name());
        out += &format!("# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
        match value {
            Value::Whole(value) => out += &format!("{name} {value}\n"),
            Value::Real(value) => out += &format!("{name} {value:?}\n"),
            Value::Summary(summary) => put_summary(&mut out, name, "", &summary),
            Value::Summaries(summaries) => {
                for (key, summary) in summaries {
                    put_summary(&mut out, name, &label("key", &key), &summary);
                }
            }
            Value::Histogram { counts, count, sum } => {
                for (bound, count) in counts {
                    out += &format!("{name}_bucket{{le=\"{bound:?}\"}} {count}\n");
                }
                out += &format!("{name}_bucket{{le=\"+Inf\"}} {count}\n");
                out += &format!("{name}_count {count}\n{name}_sum {sum:?}\n");
            }
            Value::Labelled(called, values) => {
                for (text, value) in values {
                    out += &format!("{name}{{{}}} {value}\n", label(called, &text));
                }
            }
            Value::Info(labels) => {
                let labels: Vec<String> =
                    labels.iter().map(|(called, text)| label(called, text)).collect();
                out += &format!("{name}{{{}}} 1\n", labels.join(","));
            }
            Value::Set(values) => {
                for (key, value) in values {
                    out += &format!("{name}{{key=\"{key}\"}} {value}\n");
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
        *out += &format!("{name}{{{labels}{comma}quantile=\"{part:?}\"}} {value:?}\n");
    }
    let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let Summary { count, sum, .. } = summary;
    *out += &format!("{name}_count{braced} {count}\n{name}_sum{braced} {sum:?}\n");
}

/// A label of the text format, whose value may be any text.
fn label(called: &str, text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{called}=\"{text}\"")
}
