//! Idle-client classifier: which clients were idle until now, and which send requests all the time.
//!
//! *Owns* the usual time between two requests of active clients. *Invariants*: a client that was heard from within
//! [`QUIET_MIN`] is active, one that was not for [`QUIET_MAX`] was idle; in between, one that was silent for a few
//! times the usual time was idle. The usual time follows the seconds, not the number of clients: a storm that acts
//! twice does not become active by that. *Never* makes a client wait: `gate.rs` does.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::server::clock::Periodic;
use crate::server::limits::{QUIET_MAX, QUIET_MIN, QUIET_USUAL_TIMES};

/// Of those heard from within so long, one counts.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);

/// What is usual is a mean over about so many that count.
const SAMPLES: u32 = 1024;

/// The silence that is usual of the clients of one server.
#[derive(Debug, Default)]
pub(crate) struct IdleClients(Mutex<Usual>);

#[derive(Debug, Default)]
struct Usual {
    silence: Duration,
    sampled: Periodic,
}

impl IdleClients {
    /// Whether a client that is heard from now was silent, having been heard from before at `heard`.
    pub(crate) fn is_quiet(&self, heard: Instant, now: Instant) -> bool {
        // Nothing that holds the lock can panic half-way through a change.
        let mut usual = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silence = now.duration_since(heard);
        if silence >= (usual.silence * QUIET_USUAL_TIMES).clamp(QUIET_MIN, QUIET_MAX) {
            return true;
        }
        if usual.sampled.is_due(SAMPLE_INTERVAL, now) {
            usual.silence = (usual.silence * (SAMPLES - 1) + silence) / SAMPLES;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that are heard from every `interval`, one by one, for as long as makes that usual.
    struct Clients {
        idle_clients: IdleClients,
        now: Instant,
    }

    impl Clients {
        fn new() -> Self {
            Self { idle_clients: IdleClients::default(), now: Instant::now() }
        }

        /// So many clients are heard from within so long, after such a silence. Those who were silent.
        fn heard(&mut self, count: u32, within: Duration, silence: Duration) -> u32 {
            let quiet = (0..count).map(|_| {
                self.now += within / count;
                u32::from(
                    self.idle_clients.is_quiet(self.now.checked_sub(silence).unwrap(), self.now),
                )
            });
            quiet.sum()
        }

        fn is_quiet(&mut self, silence: Duration) -> bool {
            self.heard(1, Duration::ZERO, silence) == 1
        }
    }

    #[test]
    fn a_client_that_is_heard_from_about_as_often_as_others_is_at_work() {
        let mut clients = Clients::new();
        assert!(clients.is_quiet(QUIET_MIN));
        let long = Duration::from_secs(5);
        assert_eq!(clients.heard(100_000, long, QUIET_MIN * 9 / 10), 0);
        assert_eq!(clients.heard(100_000, long, QUIET_MIN * 11 / 10), 0);
        assert!(clients.is_quiet(QUIET_MIN * 5));
        assert_eq!(clients.heard(100_000, long, QUIET_MIN / 100), 0);
        assert!(clients.is_quiet(QUIET_MIN), "when they have less to do it is as before");
    }

    #[test]
    fn a_storm_that_acts_twice_is_no_more_at_work_for_it() {
        let mut clients = Clients::new();
        let moment = Duration::from_millis(200);
        for _ in 0..10 {
            assert_eq!(clients.heard(20_000, 5 * moment, QUIET_MIN / 100), 0);
            assert_eq!(clients.heard(20_000, moment, 30 * QUIET_MAX), 20_000);
            assert_eq!(clients.heard(20_000, moment, QUIET_MIN * 9 / 10), 0);
            assert_eq!(clients.heard(20_000, moment, QUIET_MIN), 20_000);
        }
    }

    #[test]
    fn a_client_that_was_silent_for_long_is_not_at_work() {
        let mut clients = Clients::new();
        let long = Duration::from_secs(5);
        for percent in [90, 300, 900, 999] {
            assert_eq!(clients.heard(10_000, long, QUIET_MIN * percent / 100), 0);
        }
        assert!(clients.is_quiet(QUIET_MAX));
    }
}
