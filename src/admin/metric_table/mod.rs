//! The table of metrics.
//!
//! *Owns* every metric's name, kind, meaning and where its value comes from: once. *Invariants*:
//! ZooKeeper's names mean what they mean there; a name that is not ZooKeeper's begins with
//! `lockkeeper_`; a row whose figure is not measured yields nothing.

mod ours;
mod stages;
mod zookeepers;

use super::Certificates;
use super::lock_figures::LockFigures;
use super::metric::{Kind, Metric, Reading, Value};
use crate::replica::Status;
use crate::replica::inspect::{MigrationLink, Mode, PeerStatus, ProposalSizes};

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

/// Of counts up to bounds.
const fn histogram(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Histogram, help, read }
}

/// Of several summaries, each with a label.
const fn set(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Summary, help, read }
}

/// Of labels alone; its value is 1.
const fn info(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

/// A number that only a leader has.
fn led(reading: &Reading, value: fn(&Status) -> u64) -> Option<Value> {
    (reading.status.mode == Mode::Leader).then(|| value(&reading.status).into())
}

/// The number of other servers that are so, on a leader.
fn peers(reading: &Reading, are: fn(&PeerStatus) -> bool) -> Option<Value> {
    let count = reading.status.peers.iter().filter(|peer| are(peer)).count();
    (reading.status.mode == Mode::Leader).then(|| (count as u64).into())
}

/// Of a server that has an ensemble.
fn member(reading: &Reading) -> Option<()> {
    (reading.status.mode != Mode::Standalone).then_some(())
}

/// A number that a server without an ensemble does not have.
fn of_member(reading: &Reading, value: fn(&Status) -> u64) -> Option<Value> {
    (reading.status.mode != Mode::Standalone).then(|| value(&reading.status).into())
}

/// The size of a proposal, once a leader has made one.
fn proposal_size(reading: &Reading, which: fn(&ProposalSizes) -> u64) -> Option<Value> {
    let sizes = reading.status.proposal_sizes.as_ref();
    sizes.filter(|_| reading.status.mode == Mode::Leader).map(|sizes| which(sizes).into())
}

/// One number of each listener that speaks TLS; `None` without one.
fn of_certificates(r: &Reading, number: fn(&Certificates) -> u64) -> Option<Value> {
    let known = r.counters.certificates.iter().map(|known| (known.listener, number(known)));
    let known: Vec<_> = known.collect();
    (!known.is_empty()).then_some(Value::Set(known))
}

/// A figure of the link with ZooKeeper's leader, on the server that has it.
fn of_link(reading: &Reading, number: fn(&MigrationLink) -> u64) -> Option<Value> {
    let link = reading.status.migration.as_ref()?.of_leader.as_ref()?;
    Some(number(link).into())
}

/// A figure of locks, on the server that has them.
fn of_locks(reading: &Reading, value: fn(&LockFigures) -> Value) -> Option<Value> {
    reading.locks.as_ref().map(value)
}

/// A whole number that is always measured.
fn whole(value: u64) -> Option<Value> {
    Some(value.into())
}

/// Every metric: ZooKeeper's, then ours.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    [zookeepers::METRICS, stages::METRICS, ours::METRICS].into_iter().flatten()
}
