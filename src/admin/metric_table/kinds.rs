//! Kinds of metrics, and values that many of them have.

use super::super::Certificates;
use super::super::lock_figures::LockFigures;
use super::super::metric::{Kind, Metric, Reading, Value};
use crate::replica::Status;
use crate::replica::inspect::{MigrationLink, Mode, PeerStatus, ProposalSizes};

pub(super) const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

pub(super) const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Counter, help, read }
}

pub(super) const fn summary(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Summary, help, read }
}

/// Metric of counts up to bounds.
pub(super) const fn histogram(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Histogram, help, read }
}

/// Metric of several summaries, each with a label.
pub(super) const fn set(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Summary, help, read }
}

/// Metric of labels alone; its value is 1.
pub(super) const fn info(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

/// A number that only a leader has.
pub(super) fn led(reading: &Reading, value: fn(&Status) -> u64) -> Option<Value> {
    (reading.status.mode == Mode::Leader).then(|| value(&reading.status).into())
}

/// The number of other servers that are so, on a leader.
pub(super) fn peers(reading: &Reading, are: fn(&PeerStatus) -> bool) -> Option<Value> {
    let count = reading.status.peers.iter().filter(|peer| are(peer)).count();
    (reading.status.mode == Mode::Leader).then(|| (count as u64).into())
}

/// Value of a server that has an ensemble.
pub(super) fn member(reading: &Reading) -> Option<()> {
    (reading.status.mode != Mode::Standalone).then_some(())
}

/// A number that a server without an ensemble does not have.
pub(super) fn of_member(reading: &Reading, value: fn(&Status) -> u64) -> Option<Value> {
    (reading.status.mode != Mode::Standalone).then(|| value(&reading.status).into())
}

/// The size of a proposal, once a leader has made one.
pub(super) fn proposal_size(reading: &Reading, which: fn(&ProposalSizes) -> u64) -> Option<Value> {
    let sizes = reading.status.proposal_sizes.as_ref();
    sizes.filter(|_| reading.status.mode == Mode::Leader).map(|sizes| which(sizes).into())
}

/// One number of each listener that speaks TLS; `None` without one.
pub(super) fn of_certificates(r: &Reading, number: fn(&Certificates) -> u64) -> Option<Value> {
    let known = r.counters.certificates.iter().map(|known| (known.listener, number(known)));
    let known: Vec<_> = known.collect();
    (!known.is_empty()).then_some(Value::Set(known))
}

/// A figure of the link with ZooKeeper's leader, on the server that has it.
pub(super) fn of_link(reading: &Reading, number: fn(&MigrationLink) -> u64) -> Option<Value> {
    let link = reading.status.migration.as_ref()?.of_leader.as_ref()?;
    Some(number(link).into())
}

/// A figure of locks, on the server that has them.
pub(super) fn of_locks(reading: &Reading, value: fn(&LockFigures) -> Value) -> Option<Value> {
    reading.locks.as_ref().map(value)
}

/// A whole number that is always measured.
pub(super) fn whole(value: u64) -> Option<Value> {
    Some(value.into())
}
