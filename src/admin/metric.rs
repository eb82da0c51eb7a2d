//! What a metric is: its name, its kind, and its value as it is read from a server.
//!
//! *Owns* [`Metric`], [`Value`] and [`Reading`]. *Invariants*: a metric is measured or absent; times are milliseconds
//! unless the name says otherwise. *Never* keeps a figure itself.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::{Duration, timeout};

use super::environment::{Descriptors, Process};
use super::lock_figures::LockFigures;
use super::{Counters, Distribution, Measured, Quantity, Source, Tally};
use crate::replica::Status;
use crate::replica::inspect::{Inspect, NamespaceReport, Report, Volume};
use crate::supervision::{Task, spawn_blocking};

fn wall_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// What figures are read from.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Reading {
    pub status: Status,
    pub counters: Counters,
    pub descriptors: Descriptors,
    pub process: Process,
    pub locks: Option<LockFigures>,
    /// `None` if they were not asked for.
    pub namespaces: Option<Vec<NamespaceReport>>,
    /// This machine's clock, milliseconds since the epoch.
    pub wall_ms: i64,
    /// Bytes that are free where the data and the log are; empty if that was not asked for.
    pub free_bytes: Vec<(&'static str, u64)>,
}

impl Reading {
    /// Reads everything, with `status` as it was read before.
    #[must_use]
    pub fn now(status: Status, source: &dyn Source) -> Reading {
        Reading {
            status,
            counters: source.counters(),
            descriptors: Descriptors::now(),
            process: Process::now(),
            locks: None,
            namespaces: None,
            wall_ms: wall_ms(),
            free_bytes: Vec::new(),
        }
    }

    /// The same with the figures of locks, which are not there for the taking: the server and its peers
    /// are asked.
    pub async fn with_questions(status: Status, source: &dyn Source) -> Reading {
        let locks = LockFigures::now(source).await;
        let namespaces = match timeout(ANSWER_MAX, source.inspect(Inspect::Namespaces)).await {
            Ok(Some(Report::Namespaces(namespaces))) => Some(namespaces),
            _ => None,
        };
        let free_bytes = free_bytes(source).await.unwrap_or_default();
        Reading { locks, namespaces, free_bytes, ..Reading::now(status, source) }
    }

    /// A distribution of times, as milliseconds.
    pub(super) fn ms(&self, quantity: Quantity) -> Option<Value> {
        Some(Value::milliseconds(&self.counters.measured.of(quantity)))
    }

    /// A distribution of something else.
    pub(super) fn plain(&self, quantity: Quantity) -> Option<Value> {
        Some(Value::Summary(Summary::of(&self.counters.measured.of(quantity), 1.0)))
    }

    /// A distribution of times, as counts up to bounds in seconds.
    pub(super) fn seconds(&self, quantity: Quantity) -> Option<Value> {
        Some(Value::histogram(&self.counters.measured.of(quantity), BOUNDS_US))
    }

    /// The same of times that clients decide about: bounds up to a day.
    pub(super) fn long_seconds(&self, quantity: Quantity) -> Option<Value> {
        Some(Value::histogram(&self.counters.measured.of(quantity), LONG_BOUNDS_US))
    }

    /// Sums of other servers, divided by `unit`; `None` while there are none.
    pub(super) fn by_server(
        &self,
        sums: fn(&Measured) -> &BTreeMap<u8, Tally>,
        unit: f64,
    ) -> Option<Value> {
        let sums = sums(&self.counters.measured).iter();
        Value::set(sums.map(|(server, sum)| (server.to_string(), Summary::of_tally(*sum, unit))))
    }

    /// Sums by znode of the root; `None` while nothing was read or written, or it was not asked for.
    pub(super) fn by_namespace(&self, sum: fn(&NamespaceReport) -> Volume) -> Option<Value> {
        let known = self.namespaces.iter().flatten().filter(|known| sum(known).count > 0);
        Value::set(known.map(|known| {
            let Volume { count, sum, min, max } = sum(known);
            (known.name.clone(), Summary::of_tally(Tally { count, sum, min, max }, 1.0))
        }))
    }
}

/// How much room there is on the disks, by what is there. A disk that hangs is not waited for.
async fn free_bytes(source: &dyn Source) -> Option<Vec<(&'static str, u64)>> {
    let facts = source.facts();
    let places = [("data", facts.data_dir.clone()), ("log", facts.log_dir.clone())];
    let free_at = |directory: Option<PathBuf>| {
        let disk = rustix::fs::statvfs(&directory?).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    };
    let look = spawn_blocking(Task::HttpAnswer, move || {
        let known = places.into_iter().filter_map(|(key, place)| Some((key, free_at(place)?)));
        known.collect()
    });
    timeout(ANSWER_MAX, look).await.ok()?.ok()
}

/// How long an answer may take: a collector of metrics does not wait for a busy server.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Bounds of counts of times, microseconds: a tenth of a millisecond to a quarter of a minute.
const BOUNDS_US: &[u64] = &[
    1 << 7,
    1 << 8,
    1 << 9,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 20,
    1 << 22,
    1 << 24,
];
/// Bounds of counts of times with locks, microseconds: about 1, 4, 16, 65, 262 ms, 1, 4, 17 s, 1, 4, 18 min and 1, 5,
/// 19 h.
const LONG_BOUNDS_US: &[u64] = &[
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 18,
    1 << 20,
    1 << 22,
    1 << 24,
    1 << 26,
    1 << 28,
    1 << 30,
    1 << 32,
    1 << 34,
    1 << 36,
];
/// The quantiles of a summary that are shown, and what `mntr` calls them.
pub(super) const QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p999")];

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Goes up, until a restart or `srst`.
    Counter,
    /// Number, sum and quantiles of a quantity; `mntr` also shows mean and extremes.
    Summary,
    /// Number, sum and counts up to bounds.
    Histogram,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A whole number.
    Whole(i64),
    /// Another number.
    Real(f64),
    /// Of a [`Kind::Summary`].
    Summary(Summary),
    /// Several of them, by value of the label `key`.
    Summaries(Vec<(String, Summary)>),
    /// Of a [`Kind::Histogram`].
    Histogram {
        /// Bounds, and how many are not above them.
        counts: Vec<(f64, u64)>,
        /// How many there are.
        count: u64,
        /// Their sum.
        sum: f64,
    },
    /// One number for each value of the label `key`.
    Set(Vec<(&'static str, u64)>),
    /// One number for each value of a label of this name.
    Labelled(&'static str, Vec<(String, u64)>),
    /// Labels; the value is 1.
    Info(Vec<(&'static str, String)>),
}

/// A quantity, in the unit of its metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The smallest, 0 while there is none.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// In the order of [`QUANTILES`]; `None` where they are not measured, NaN while there is no value.
    pub quantiles: Option<[f64; 4]>,
}

impl Summary {
    /// Of a distribution whose values are to be divided by `unit`.
    pub(super) fn of(distribution: &Distribution, unit: f64) -> Self {
        let quantile =
            |(part, _): (f64, &str)| distribution.quantile(part).unwrap_or(f64::NAN) / unit;
        let count = distribution.count();
        Self {
            count,
            sum: distribution.sum() as f64 / unit,
            min: (distribution.min() as f64 / unit) as u64,
            max: (distribution.max() as f64 / unit) as u64,
            quantiles: Some(QUANTILES.map(quantile)),
        }
    }

    fn of_tally(tally: Tally, unit: f64) -> Self {
        Self {
            count: tally.count,
            sum: tally.sum as f64 / unit,
            min: (tally.min as f64 / unit) as u64,
            max: (tally.max as f64 / unit) as u64,
            quantiles: None,
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl Value {
    /// Of times in microseconds.
    pub(super) fn milliseconds(distribution: &Distribution) -> Value {
        Value::Summary(Summary::of(distribution, 1000.0))
    }

    /// Of times in microseconds, with bounds in microseconds that are powers of two.
    pub(super) fn histogram(distribution: &Distribution, bounds_us: &[u64]) -> Value {
        let seconds = |us: u64| us as f64 / 1e6;
        let counts = bounds_us.iter().map(|bound| (seconds(*bound), distribution.below(*bound)));
        let sum = seconds(distribution.sum());
        Value::Histogram { counts: counts.collect(), count: distribution.count(), sum }
    }

    fn set(summaries: impl Iterator<Item = (String, Summary)>) -> Option<Value> {
        let summaries: Vec<_> = summaries.collect();
        (!summaries.is_empty()).then_some(Value::Summaries(summaries))
    }
}

/// A row of the table.
pub(super) struct Metric {
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
    pub(super) fn value(&self, reading: &Reading) -> Option<Value> {
        (self.read)(reading)
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}
