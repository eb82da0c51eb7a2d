//! Where the threads of a server put what they measure.
//!
//! *Owns* the buckets of every [`Quantity`], as atomics. *Invariants*: to measure never waits for a reader; what one
//! thread alone measures is one set of buckets, what all threads do (the latency of requests) has a set for each of
//! them. *Never* decides anything by what was measured.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::striped::Striping;
use crate::admin::{BUCKETS, Distribution, Measured, Quantity, Tally, bucket_of};
use crate::replica::{Answered, Measure, Measurement};

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct Measures {
    /// In the order of [`Quantity::ALL`]; those of requests are not used.
    buckets: Vec<Buckets>,
    reads: Striping<Buckets>,
    writes: Striping<Buckets>,
    by_server: Mutex<ByServer>,
}

/// Sums of another server, by its server id.
#[derive(Debug, Default)]
struct ByServer {
    acks: BTreeMap<u8, Tally>,
    queues: BTreeMap<u8, Tally>,
}

/// The values of one quantity.
#[derive(Debug)]
struct Buckets {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl Default for Buckets {
    fn default() -> Self {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let (sum, min, max) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self { counts, sum, min, max }
    }
}

impl Buckets {
    fn record(&self, value: u64, times: u64) {
        self.counts[bucket_of(value)].fetch_add(times, Ordering::Relaxed);
        self.sum.fetch_add(value.saturating_mul(times), Ordering::Relaxed);
        // Looked at before they are written: changes are rare.
        if value < self.min.load(Ordering::Relaxed) {
            self.min.fetch_min(value, Ordering::Relaxed);
        }
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    fn snapshot(&self) -> Distribution {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counts = self.counts.iter().map(read).collect();
        Distribution::new(counts, read(&self.sum), read(&self.min), read(&self.max))
    }

    fn reset(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
        self.sum.store(0, Ordering::Relaxed);
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
    }
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            buckets: Quantity::ALL.iter().map(|_| Buckets::default()).collect(),
            reads: Striping::default(),
            writes: Striping::default(),
            by_server: Mutex::default(),
        }
    }
}

impl Measures {
    /// A value was measured.
    pub(in crate::server) fn record(&self, quantity: Quantity, value: u64) {
        self.record_times(quantity, value, 1);
    }

    /// The same one, so many times.
    pub(in crate::server) fn record_times(&self, quantity: Quantity, value: u64, times: u64) {
        if times > 0 {
            self.buckets[quantity as usize].record(value, times);
        }
    }

    /// The answers to these requests were written at `now_us`, by the clock that their arrival was read from.
    pub(in crate::server) fn answered(&self, answered: &[Answered], now_us: u64) {
        for one in answered {
            let buckets = if one.is_write { &self.writes } else { &self.reads };
            buckets.own().record(now_us.saturating_sub(one.arrived_us), 1);
        }
    }

    /// Bytes wait to be sent to another server.
    pub(in crate::server) fn queued(&self, server: u8, bytes: usize) {
        self.by_server().queues.entry(server).or_default().record(bytes as u64);
    }

    /// What the replica has measured.
    pub(in crate::server) fn take(&self, measurements: &mut Vec<Measurement>) {
        for Measurement { measure, value, times } in measurements.drain(..) {
            if let Measure::Ack { server } = measure {
                self.by_server().acks.entry(server).or_default().record(value);
            }
            if let Some(quantity) = Quantity::of(measure) {
                self.record_times(quantity, value, u64::from(times));
            }
        }
    }

    /// All of it, now.
    pub(in crate::server) fn snapshot(&self) -> Measured {
        let all = |stripes: &Striping<Buckets>| {
            let each = stripes.all().map(Buckets::snapshot);
            each.fold(Distribution::default(), |all, one| all.with(&one))
        };
        let distributions = Quantity::ALL.iter().zip(&self.buckets);
        let distributions = distributions.map(|(quantity, buckets)| match quantity {
            Quantity::Read => all(&self.reads),
            Quantity::Write => all(&self.writes),
            _ => buckets.snapshot(),
        });
        let mut measured = Measured::new(distributions.collect());
        let by_server = self.by_server();
        measured.acks.clone_from(&by_server.acks);
        measured.peer_queues.clone_from(&by_server.queues);
        measured
    }

    /// Begins anew, but for what the start has taken. What is measured meanwhile may count or not.
    pub(in crate::server) fn reset(&self) {
        let is_of_start = |quantity: &Quantity| {
            use Quantity::{StartEntries, StartEntriesTime, StartImage, StartLoad};
            matches!(quantity, StartLoad | StartImage | StartEntries | StartEntriesTime)
        };
        let all = Quantity::ALL.iter().zip(&self.buckets);
        let all = all.filter(|(quantity, _)| !is_of_start(quantity)).map(|(_, buckets)| buckets);
        let stripes = self.reads.all().chain(self.writes.all());
        all.chain(stripes).for_each(Buckets::reset);
        *self.by_server() = ByServer::default();
    }

    fn by_server(&self) -> MutexGuard<'_, ByServer> {
        self.by_server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_measure_is_one_distribution() {
        let measures = Measures::default();
        let answered = |arrived_us, is_write| [Answered { arrived_us, is_write }];
        std::thread::scope(|scope| {
            scope.spawn(|| measures.answered(&answered(100, false), 350));
            scope.spawn(|| measures.answered(&answered(100, true), 1100));
        });
        measures.answered(&answered(500, false), 400);
        let measured = measures.snapshot();
        let (reads, writes) = (measured.of(Quantity::Read), measured.of(Quantity::Write));
        assert_eq!((reads.count(), reads.min(), reads.max()), (2, 0, 250));
        assert_eq!((writes.count(), writes.sum()), (1, 1000));
        assert_eq!(measured.requests().count(), 3);
        measures.reset();
        assert_eq!(measures.snapshot().requests().count(), 0);
    }

    #[test]
    fn what_the_replica_measured_is_found_under_its_quantity() {
        let measures = Measures::default();
        let mut taken = vec![
            Measurement { measure: Measure::QuorumAck, value: 700, times: 3 },
            Measurement { measure: Measure::Ack { server: 2 }, value: 900, times: 1 },
        ];
        measures.take(&mut taken);
        measures.queued(2, 64);
        let measured = measures.snapshot();
        assert!(taken.is_empty());
        assert_eq!(measured.of(Quantity::QuorumAck).sum(), 2100);
        assert_eq!((measured.acks[&2].sum, measured.peer_queues[&2].max), (900, 64));
    }
}
