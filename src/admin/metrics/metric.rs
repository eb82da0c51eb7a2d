//! A metric: its name, its kind, and its value as it is read from a server.
//!
//! *Owns* [`Metric`], [`Value`] and [`Reading`], and the list of all metrics, made of the table's rows. *Invariants*: a
//! metric is measured or absent; times are milliseconds unless the name says otherwise. *Never* keeps a figure itself.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::super::version::{BUILT, ZOOKEEPER};
use super::counters::{Certificates, Counters, Quantity, Tally};
use super::distribution::Distribution;
use super::process::{Descriptors, Process};
use super::table::table;
use crate::replica::Status;
use crate::replica::inspect::{Mode, NamespaceReport, PeerStatus, Volume};

macro_rules! metrics {
    ($(
        $kind:ident $name:literal $help:literal
        $(if $needed:ident)?
        $(count $count:ident)?
        $(counts { $($(#[$part_doc:meta])* $key:literal $part:ident,)+ })?
        $(link $link:ident)?
        $(links { $($(#[$link_doc:meta])* $link_key:literal $link_part:ident,)+ })?
        $(measured $quantity:ident as $unit:ident)?
        $(replica $measure:ident as $measure_unit:ident)?
        $(|$r:ident| $value:expr)?;
    )*) => {
        /// Every metric: ZooKeeper's, then ours.
        pub(super) const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            needed: &[$($needed)?],
            read:
                $(|r| r.counters.$count.shown())?
                $(|r| Value::Set(vec![$(($key, r.counters.$part),)+]).shown())?
                $(|r| r.counters.links.map(|links| links.$link).shown())?
                $(|r| {
                    let links = r.counters.links?;
                    Value::Set(vec![$(($link_key, links.$link_part),)+]).shown()
                })?
                $(|r| r.$unit(Quantity::$quantity).shown())?
                $(|r| r.$measure_unit(Quantity::$measure).shown())?
                $(|$r: &Reading| $value.shown())?,
        },)*];
    };
}

table!(metrics);

/// A row of the table.
pub(super) struct Metric {
    /// Name, without `zk_`.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// Conditions without which it is absent.
    needed: &'static [fn(&Reading) -> bool],
    read: fn(&Reading) -> Option<Value>,
}

impl Metric {
    /// Its value; `None` where it is not measured.
    #[must_use]
    pub(super) fn value(&self, reading: &Reading) -> Option<Value> {
        let is_measured = self.needed.iter().all(|is_met| is_met(reading));
        is_measured.then(|| (self.read)(reading)).flatten()
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Whether a server has an ensemble.
fn member(reading: &Reading) -> bool {
    reading.status.mode != Mode::Standalone
}

/// Whether a server leads.
fn leads(reading: &Reading) -> bool {
    reading.status.mode == Mode::Leader
}

/// Sums of other servers, divided by `unit`; `None` while there are none.
fn by_server(sums: &BTreeMap<u8, Tally>, unit: f64) -> Option<Value> {
    let sums = sums.iter();
    Value::set(sums.map(|(server, sum)| (server.to_string(), Summary::of_tally(*sum, unit))))
}

/// Figures of a server, read at one moment.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub(crate) struct Reading {
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

/// Numbers of all locks together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LockFigures {
    /// Locks with a contender, by kind.
    pub kinds: Vec<(&'static str, u64)>,
    /// Contenders that hold one.
    pub holders: u64,
    /// Contenders that do not.
    pub waiters: u64,
    /// Of one that waits, milliseconds.
    pub longest_wait_ms: u64,
    /// Of one that holds a lock, where that is known, milliseconds.
    pub longest_hold_ms: u64,
    /// Findings, by kind.
    pub findings: Vec<(&'static str, u64)>,
    /// Part of its numbers that the directory nearest to its end has used up; 1 of one
    /// that has gone over.
    pub counter_ratio_max: f64,
    /// The paths of the locks for which the most wait, and how many do: not more than labels may be.
    pub queues: Vec<(String, u64)>,
    /// There are more than were looked at.
    pub is_cut: bool,
}

impl Reading {
    /// Reads the figures that need no question.
    #[must_use]
    pub(crate) fn now(status: Status, counters: Counters) -> Reading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Reading {
            status,
            counters,
            descriptors: Descriptors::now(),
            process: Process::now(),
            wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
            ..Reading::default()
        }
    }

    /// A distribution of times, as milliseconds.
    fn ms(&self, quantity: Quantity) -> Value {
        Value::Summary(Summary::of(&self.counters.measured.of(quantity), 1000.0))
    }

    /// A distribution of something else.
    fn plain(&self, quantity: Quantity) -> Value {
        Value::Summary(Summary::of(&self.counters.measured.of(quantity), 1.0))
    }

    /// A distribution of times, as counts up to bounds in seconds.
    fn seconds(&self, quantity: Quantity) -> Value {
        Value::histogram(&self.counters.measured.of(quantity), BOUNDS)
    }

    /// The same of times that clients decide about: bounds up to a day.
    fn long_seconds(&self, quantity: Quantity) -> Value {
        Value::histogram(&self.counters.measured.of(quantity), LONG_BOUNDS)
    }

    /// The number of other servers that are so.
    fn peers(&self, are: fn(&PeerStatus) -> bool) -> u64 {
        self.status.peers.iter().filter(|peer| are(peer)).count() as u64
    }

    /// One number of each listener that speaks TLS; `None` without one.
    fn certificates(&self, number: fn(&Certificates) -> u64) -> Option<Value> {
        let known = self.counters.certificates.iter().map(|known| (known.listener, number(known)));
        let known: Vec<_> = known.collect();
        (!known.is_empty()).then_some(Value::Set(known))
    }

    /// A figure of locks, on the server that has them.
    fn locks<T>(&self, figure: fn(&LockFigures) -> T) -> Option<T> {
        self.locks.as_ref().map(figure)
    }

    /// Sums by znode of the root; `None` while nothing was read or written, or it was not asked for.
    fn by_namespace(&self, sum: fn(&NamespaceReport) -> Volume) -> Option<Value> {
        let known = self.namespaces.iter().flatten().filter(|known| sum(known).count > 0);
        Value::set(known.map(|known| {
            let Volume { count, sum, min, max } = sum(known);
            (known.name.clone(), Summary::of_tally(Tally { count, sum, min, max }, 1.0))
        }))
    }
}

/// Bounds of counts of times, as powers of two of a microsecond: a tenth of a millisecond to a quarter of a minute.
const BOUNDS: &[u32] = &[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22, 24];
/// Bounds of counts of times with locks, as powers of two of a microsecond: about 1, 4, 16, 65, 262 ms, 1, 4, 17 s, 1,
/// 4, 18 min and 1, 5, 19 h.
const LONG_BOUNDS: &[u32] = &[10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36];
/// The quantiles of a summary that are shown, and what `mntr` calls them.
pub(super) const QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p999")];

/// Behaviour of a metric over time.
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
    /// Summary of a distribution whose values are to be divided by `unit`.
    fn of(distribution: &Distribution, unit: f64) -> Self {
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

/// A figure that a row reads.
trait Figure {
    /// The value to be shown; `None` where it is not measured.
    fn shown(self) -> Option<Value>;
}

impl<T: Into<Value>> Figure for T {
    fn shown(self) -> Option<Value> {
        Some(self.into())
    }
}

impl<T: Into<Value>> Figure for Option<T> {
    fn shown(self) -> Option<Value> {
        self.map(Into::into)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

macro_rules! wholes {
    ($($whole:ty)*) => {
        $(impl From<$whole> for Value {
            fn from(value: $whole) -> Value {
                Value::Whole(value.into())
            }
        })*
    };
}

wholes!(bool u8 i64);

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Real(value)
    }
}

impl Value {
    /// Histogram of times in microseconds, with bounds that are these powers of two.
    fn histogram(distribution: &Distribution, bounds: &[u32]) -> Value {
        let seconds = |us: u64| us as f64 / 1e6;
        let bounds_us = bounds.iter().map(|power| 1 << power);
        let counts = bounds_us.map(|bound| (seconds(bound), distribution.below(bound)));
        let sum = seconds(distribution.sum());
        Value::Histogram { counts: counts.collect(), count: distribution.count(), sum }
    }

    fn set(summaries: impl Iterator<Item = (String, Summary)>) -> Option<Value> {
        let summaries: Vec<_> = summaries.collect();
        (!summaries.is_empty()).then_some(Value::Summaries(summaries))
    }
}
