//! What a run has measured.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::step::Step;
use super::threads::ThreadCpu;

/// Latencies above this are counted as this, nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations completed within the window.
    pub ops: u64,
    /// Length of the window.
    pub seconds: f64,
    /// Nanoseconds of each.
    pub latencies: Histogram<u64>,
    /// CPU seconds within the window of the servers.
    pub server_cpu: f64,
    /// Of these, what threads of each name have used, the most first.
    pub server_threads: Vec<ThreadCpu>,
    /// CPU seconds within the window of this process.
    pub client_cpu: f64,
    /// CPU seconds within the window of everything else.
    pub other_cpu: f64,
    /// CPU seconds within the window that a virtual machine's host gave to others.
    pub stolen_cpu: f64,
    /// Resident memory of the servers at the end of the window.
    pub server_rss_mib: f64,
    /// Requests answered per connection, warm-up and drain included.
    pub answered: Vec<u64>,
    /// Of operations at a rate: those that were due within the window and had not even been sent at
    /// its end. They are among the latencies, with the time that they had waited.
    pub unsent: u64,
    /// Of locks: what there is beside whole cycles.
    pub contention: Option<Contention>,
}

/// What there is to know about a lock beside how long a cycle takes.
#[derive(Clone, Debug)]
pub struct Contention {
    /// Nanoseconds from the beginning of an attempt until the lock was held, within the window.
    pub acquires: Histogram<u64>,
    /// Nanoseconds from sending a release until the next one knew that it holds, within the window.
    pub handoffs: Histogram<u64>,
    /// Watch events received within the window.
    pub events: u64,
    /// Releases in the whole run, warm-up and drain included.
    pub all_releases: u64,
    /// Watch events received in the whole run.
    pub all_events: u64,
    /// Watch events sent in the whole run by the servers' own count, if they say.
    pub server_events: Option<u64>,
}

/// How far a run has come. Of one by several threads, `ops` are those of all, and `latencies` those of the
/// first.
#[derive(Debug)]
pub struct Interim<'a> {
    /// Whether the window has begun.
    pub measured: bool,
    /// Since then, or since the warm-up began.
    pub elapsed: Duration,
    /// Operations in that time; none are counted while it warms up.
    pub ops: u64,
    /// Nanoseconds of each.
    pub latencies: &'a Histogram<u64>,
}

impl Outcome {
    /// Operations per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// Microseconds of server CPU per operation.
    #[must_use]
    pub fn server_us(&self) -> f64 {
        self.us(self.server_cpu)
    }

    /// Microseconds per operation of so many CPU seconds within the window.
    #[must_use]
    pub fn us(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1e6 / self.ops.max(1) as f64
    }

    /// Microseconds of client CPU per operation.
    #[must_use]
    pub fn client_us(&self) -> f64 {
        self.us(self.client_cpu)
    }

    /// Watch events received per release of a lock, within the window.
    #[must_use]
    pub fn events_per_release(&self) -> Option<f64> {
        self.contention.as_ref().map(|c| c.events as f64 / self.ops.max(1) as f64)
    }
}

impl Contention {
    /// Watch events per release by the servers' own count, in the whole run.
    #[must_use]
    pub fn server_events_per_release(&self) -> Option<f64> {
        self.server_events.map(|events| events as f64 / self.all_releases.max(1) as f64)
    }
}

/// The value that `quantile` of a histogram of nanoseconds does not exceed, in milliseconds.
#[must_use]
pub fn milliseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e6
}

/// What the connections count together while they are measured.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub latencies: Histogram<u64>,
    pub acquires: Histogram<u64>,
    pub handoffs: Histogram<u64>,
    pub events: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally { latencies: histogram(), acquires: histogram(), handoffs: histogram(), events: 0 }
    }

    /// Counts what another thread has counted, too.
    pub(super) fn add(&mut self, other: &Tally) {
        for (own, others) in [
            (&mut self.latencies, &other.latencies),
            (&mut self.acquires, &other.acquires),
            (&mut self.handoffs, &other.handoffs),
        ] {
            own.add(others).expect("all of them have the same bounds");
        }
        self.events += other.events;
    }

    /// What an answer that has come now has brought about.
    pub(super) fn note(&mut self, step: &Step, now: Instant) {
        match *step {
            Step::Within => {}
            Step::Granted { began, released } => {
                record(&mut self.acquires, began, now);
                if let Some(released) = released {
                    record(&mut self.handoffs, released, now);
                }
            }
            Step::Done(began) => record(&mut self.latencies, began, now),
        }
    }
}

/// An empty one for nanoseconds.
///
/// # Panics
/// Never: its bounds are constants that the histogram accepts.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("the bounds are constants the histogram accepts")
}

/// Adds the time from one moment to another.
pub fn record(histogram: &mut Histogram<u64>, from: Instant, to: Instant) {
    let nanos = u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record(nanos.max(1));
}
