//! How much time was simulated, and how much CPU time that took.
//!
//! *Owns* the two sums, of seeds that went well. *Invariant*: CPU time is that of the threads that played, so that
//! what else the machine does changes it little. *Never* seen by a seed: it is measured around one.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tempo {
    simulated_ms: u64,
    cpu: Duration,
}

impl Tempo {
    /// Plays a seed. `simulated_ms` is how much time passed in it, unless it broke a rule.
    pub fn play<T>(
        &mut self,
        play: impl FnOnce() -> T,
        simulated_ms: impl FnOnce(&T) -> Option<u64>,
    ) -> T {
        let begun = thread_cpu();
        let played = play();
        if let Some(ms) = simulated_ms(&played) {
            self.simulated_ms += ms;
            self.cpu += thread_cpu().saturating_sub(begun);
        }
        played
    }

    /// Adds what another thread has played.
    pub fn add(&mut self, other: &Self) {
        self.simulated_ms += other.simulated_ms;
        self.cpu += other.cpu;
    }
}

impl fmt::Display for Tempo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (simulated, cpu) = (self.simulated_ms as f64 / 1000.0, self.cpu.as_secs_f64());
        let tempo = if cpu > 0.0 { simulated / cpu } else { 0.0 };
        write!(f, "{simulated:.0} s simulated in {cpu:.1} s of CPU: {tempo:.0} a second")
    }
}

/// How long this thread has run so far.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}
