//! How a server shares the cores at the moment: whether they are short, and whether a reconnect storm comes.
//!
//! *Owns* both, and the background budget, which follows from them. *Invariant*: by the plain policy it never looks at
//! the cores. *Never* changes how a thread is scheduled.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::CpuPolicy;
use super::background::BackgroundBudget;
use super::cores::Cores;

/// For how long behind the last client of a reconnect storm it still counts as one.
const STORM_PAUSE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct CoreSharing {
    policy: CpuPolicy,
    background: BackgroundBudget,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cores: Cores,
    /// When one of a reconnect storm last came.
    last_of_storm: Option<Instant>,
}

impl CoreSharing {
    /// Of a server with this policy.
    #[must_use]
    pub(crate) fn new(policy: CpuPolicy) -> Self {
        Self::of(policy, Cores::new())
    }

    fn of(policy: CpuPolicy, cores: Cores) -> Self {
        let background = BackgroundBudget::new(policy);
        Self { policy, background, state: Mutex::new(State { cores, last_of_storm: None }) }
    }

    /// The policy that it follows.
    #[must_use]
    pub(crate) fn policy(&self) -> CpuPolicy {
        self.policy
    }

    /// What all work in the background asks.
    #[must_use]
    pub(crate) fn background(&self) -> &BackgroundBudget {
        &self.background
    }

    /// Says how late the deferrable work in the background is (1.0: it is late).
    pub(crate) fn adapt(&self, lateness: f64, now: Instant) {
        let is_short = self.policy == CpuPolicy::Sharing && self.lock().cores.are_short(now);
        self.background.adapt(lateness, is_short, self.is_storm(now));
    }

    /// One of a reconnect storm comes.
    pub(crate) fn storm_comes(&self, now: Instant) {
        self.lock().last_of_storm = Some(now);
    }

    /// Whether one comes, or did so shortly before.
    pub(crate) fn is_storm(&self, now: Instant) -> bool {
        self.lock().last_of_storm.is_some_and(|came| now.duration_since(came) < STORM_PAUSE)
    }

    /// Nothing that holds the lock can panic half-way through a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Default for CoreSharing {
    fn default() -> Self {
        Self::new(CpuPolicy::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_the_background_rests_while_cores_are_short_and_the_more_in_a_storm() {
        let now = Instant::now();
        let sharing = CoreSharing::of(CpuPolicy::Sharing, Cores::short(now));
        let rest_times = || sharing.background().deferrable().rest_times();
        sharing.adapt(0.0, now);
        let usual = rest_times();
        assert!(usual > Some(0));
        sharing.storm_comes(now);
        sharing.adapt(0.0, now + STORM_PAUSE / 2);
        assert!(rest_times() > usual);
        sharing.adapt(0.0, now + STORM_PAUSE);
        assert_eq!(rest_times(), usual);
        let plain = CoreSharing::of(CpuPolicy::Plain, Cores::short(now));
        plain.adapt(0.0, now);
        assert_eq!(plain.background().deferrable().rest_times(), None);
    }
}
