//! A well-behaved client beside something else: what its operations take meanwhile.
//!
//! It begins operations at fixed moments, from which latency counts, on a thread of its own. A server may end
//! connections with writes in flight when its leader dies; so there is also one that goes on by another
//! connection, and repeats what was not answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockkeeper::internals::bench::{
    self, Fault, Go, Length, Outcome, PATIENCE, Plan, Session, Work, histogram, milliseconds,
    record, wire,
};
use serde::{Deserialize, Serialize};

/// What it does: lock cycles of its own, three requests each, on so many connections, so often.
pub const WORK: Work = Work::Lock;
pub const CONNECTIONS: usize = 4;
pub const RATE: f64 = 200.0;
/// Unmeasured load.
const WARM_UP: Duration = Duration::from_secs(1);
/// As long as anything else may take.
const LENGTH_MAX: Duration = Duration::from_secs(3600);
/// After so long it has looked at its clock.
const LOOKED: Duration = Duration::from_millis(150);

/// What its operations have taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Waited {
    pub operations: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

pub struct Witness {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Outcome, Fault>>,
    marked: Histogram<u64>,
}

/// Sets a znode at fixed moments, by a new session when one is lost.
pub struct Retrying {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Histogram<u64>>,
}

struct Shared {
    stops: AtomicBool,
    latencies: Mutex<Histogram<u64>>,
}

impl Shared {
    fn latencies(&self) -> Histogram<u64> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Witness {
    /// Begins, at these servers.
    pub fn begin(addrs: Vec<SocketAddr>) -> Self {
        let plan = Plan {
            length: Length::Timed { warm_up: WARM_UP, window: LENGTH_MAX },
            room: "witness".to_owned(),
            rate: Some(RATE),
            ..Plan::new(addrs, WORK, CONNECTIONS, 1)
        };
        let latencies = Mutex::new(histogram());
        let shared = Arc::new(Shared { stops: AtomicBool::new(false), latencies });
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let outcome = bench::run(&plan, &mut |interim| {
                let mut latencies = seen.latencies.lock().unwrap_or_else(PoisonError::into_inner);
                latencies.clone_from(interim.latencies);
                match seen.stops.load(Ordering::Relaxed) {
                    true => Go::Stop,
                    false => Go::On,
                }
            });
            outcome.and_then(|outcome| bench::clear(&plan).map(|()| outcome))
        });
        thread::sleep(WARM_UP);
        Witness { shared, thread, marked: histogram() }
    }

    /// Measures from now on.
    pub fn mark(&mut self) {
        thread::sleep(LOOKED);
        self.marked = self.shared.latencies();
    }

    /// What its operations have taken since the mark; an error if it has been cut off.
    pub fn waited(&self) -> Result<Waited, String> {
        thread::sleep(LOOKED);
        if self.thread.is_finished() {
            return Err("a well-behaved client has lost its connection".to_owned());
        }
        let mut latencies = self.shared.latencies();
        latencies.subtract(&self.marked).map_err(|e| format!("latencies: {e}"))?;
        Ok(Waited::of(&latencies))
    }

    /// The same of the time until then.
    pub fn measure(&mut self, length: Duration) -> Result<Waited, String> {
        self.mark();
        thread::sleep(length);
        self.waited()
    }

    /// Ends it; an error if it was cut off or answered wrongly.
    pub fn end(self) -> Result<(), String> {
        self.shared.stops.store(true, Ordering::Relaxed);
        let outcome = self.thread.join().map_err(|_| "a well-behaved client has panicked")?;
        outcome.map(drop).map_err(|e| format!("a well-behaved client: {e}"))
    }
}

impl Retrying {
    /// Begins, at these servers in turn. The znode must be there.
    pub fn begin(addrs: Vec<SocketAddr>, znode: &'static str) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stops);
        let thread = thread::spawn(move || {
            let mut latencies = histogram();
            let mut session = None;
            let mut servers = addrs.iter().cycle();
            let mut due = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let open = session.take().or_else(|| {
                    let addr = servers.next()?;
                    Session::open(*addr, PATIENCE).ok()
                });
                if let Some(mut open) = open
                    && open.call(wire::set(znode, b"x")).is_ok_and(|answer| answer.err == 0)
                {
                    record(&mut latencies, due, Instant::now());
                    due += Duration::from_secs_f64(1.0 / RATE);
                    session = Some(open);
                }
            }
            latencies
        });
        Retrying { stops, thread }
    }

    /// Ends it; what its sets have taken, from when each was due until it was acknowledged.
    pub fn end(self) -> Result<Waited, String> {
        self.stops.store(true, Ordering::Relaxed);
        let latencies = self.thread.join().map_err(|_| "a well-behaved client has panicked")?;
        Ok(Waited::of(&latencies))
    }
}

impl Waited {
    fn of(latencies: &Histogram<u64>) -> Self {
        Waited {
            operations: latencies.len(),
            p50_ms: milliseconds(latencies, 0.5),
            p99_ms: milliseconds(latencies, 0.99),
            max_ms: milliseconds(latencies, 1.0),
        }
    }
}
