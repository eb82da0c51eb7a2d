//! Admission control: a token bucket for each way in which many clients act at one moment.
//!
//! Clients of a reconnect storm connect, send a first request after a silence, close their sessions, or vanish, ten
//! thousand at a time. Each way has a [`TokenBucket`](token_bucket::TokenBucket): connections take tokens at
//! `lockkeeper.admissionRate`, sessions that are closed and connections that are lost twice as many, idle clients that
//! send eight times as many, because most of them only ping. What has no token waits, in the order in which it came.
//!
//! *Owns* the rates ([`Rates`]), the buckets, and who waits. *Invariants*: a client that comes alone does not wait;
//! active clients never do (`idle_clients.rs` tells them from the others); no client is refused. An ensemble shares the
//! rate of connections and closes, because each of its servers makes the sessions that any of them is asked for.
//! *Costs* on a machine with many cores and one server: a returning client there waits for up to a second although
//! cores are free, 10,000 at one moment for 0.99 s; `lockkeeper.admissionRate=0` has no client wait. *Never* counts
//! connections: `listener.rs` does.

mod gate;
mod idle_clients;
mod token_bucket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::server::cpu_policy::{CoreSharing, CpuPolicy};

pub(in crate::server) use gate::Place;

use gate::{Gate, TICK};
use idle_clients::IdleClients;
use token_bucket::{Refill, TokenBucket};

/// Connections a second where servers and clients share the cores: with the session that it asks for, one is 50 us of
/// the server's thread, and as much again for its client and the system. Twice as many were too much for active
/// clients beside them.
const RATE_SHARING: u32 = 2_000;
/// And otherwise: half of the server's thread.
const RATE_PLAIN: u32 = 10_000;
/// Sessions that are closed by clients that were idle, and connections that clients have left, for each connection
/// that is accepted.
const LEAVE_TIMES: u32 = 2;
/// Idle clients that are heard from, likewise, and of each server.
const HEAR_TIMES: u32 = 8;

/// How fast clients are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Rates {
    accepting: Refill,
    leaving: Refill,
    hearing: Refill,
}

impl Rates {
    /// Of a server with this configuration and policy.
    pub(in crate::server) fn of(config: &Config, policy: CpuPolicy) -> Self {
        let rate = config.admission_rate.unwrap_or(match policy {
            CpuPolicy::Sharing => RATE_SHARING,
            CpuPolicy::Plain => RATE_PLAIN,
        });
        let servers = u32::try_from(config.servers.len()).unwrap_or(u32::MAX).max(1);
        Self::new(rate, config.admission_burst, servers)
    }

    /// `rate`: connections a second that all servers of an ensemble accept together; 0: no limit.
    fn new(rate: u32, burst: u32, servers: u32) -> Self {
        let refill = |times: u32, servers: u32| {
            let interval = Duration::from_secs(1).saturating_mul(servers);
            let interval = interval.checked_div(rate.saturating_mul(times)).unwrap_or_default();
            Refill { interval, burst }
        };
        Self {
            accepting: refill(1, servers),
            leaving: refill(LEAVE_TIMES, servers),
            hearing: refill(HEAR_TIMES, 1),
        }
    }
}

/// What the clients of one server pass.
#[derive(Debug)]
pub(in crate::server) struct Admission {
    accepting: Refill,
    /// Passed by clients that were idle until now.
    pub(in crate::server) hearing: Arc<Gate>,
    /// Passed by those that close their sessions.
    pub(in crate::server) closing: Arc<Gate>,
    /// Passed by the sockets of those that have left.
    pub(in crate::server) leaving: Arc<Gate>,
    /// Decides who was idle.
    pub(in crate::server) idle_clients: IdleClients,
    sharing: Arc<CoreSharing>,
}

impl Admission {
    /// No client is there yet. `sharing` is told of a reconnect storm.
    pub(in crate::server) fn new(rates: Rates, sharing: Arc<CoreSharing>) -> Self {
        let gate = |refill| Arc::new(Gate::new(refill, Arc::clone(&sharing)));
        Self {
            accepting: rates.accepting,
            hearing: gate(rates.hearing),
            closing: gate(rates.leaving),
            leaving: gate(rates.leaving),
            idle_clients: IdleClients::default(),
            sharing,
        }
    }

    /// For the listener, who takes connections from the system's queue one by one.
    pub(in crate::server) fn accepting(&self) -> Accepting {
        let bucket = TokenBucket::new(self.accepting, Instant::now());
        Accepting { bucket, sharing: Arc::clone(&self.sharing) }
    }
}

/// When connections are accepted.
#[derive(Debug)]
pub(in crate::server) struct Accepting {
    bucket: TokenBucket,
    sharing: Arc<CoreSharing>,
}

impl Accepting {
    /// Whether the next connection may be accepted, which then is to be done; if not, when that is to be asked again.
    pub(in crate::server) fn next(&mut self, now: Instant) -> Option<Instant> {
        if self.bucket.take(now) {
            return None;
        }
        self.sharing.storm_comes(now);
        Some(now + TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSpec;

    /// How long it takes until so many connections are accepted that come at one moment, by a moved clock.
    fn time_to_accept(rates: Rates, count: u32) -> Duration {
        let start = Instant::now();
        let admission = Admission::new(rates, Arc::default());
        let (mut accepting, mut now, mut accepted) = (admission.accepting(), start, 0);
        accepting.bucket = TokenBucket::new(rates.accepting, start);
        while accepted < count {
            match accepting.next(now) {
                None => accepted += 1,
                Some(again) => now = again,
            }
        }
        now - start
    }

    fn rates(policy: CpuPolicy, servers: u8, keys: &[(&str, &str)]) -> Rates {
        let mut config = Config::without_file();
        for (key, value) in keys {
            config.set(key, value, "test").unwrap();
        }
        config.servers =
            (1..=servers).map(|id| ServerSpec::parse(id, "host:1:2").unwrap()).collect();
        Rates::of(&config, policy)
    }

    #[test]
    fn ten_thousand_clients_return_within_two_seconds_where_cores_are_free() {
        let took = time_to_accept(rates(CpuPolicy::Plain, 0, &[]), 10_000);
        assert!(took < Duration::from_secs(1), "{took:?}");
        // Of an ensemble, a server that is away has its clients return to the others.
        for (servers, left) in [(3, 2), (5, 3)] {
            let took = time_to_accept(rates(CpuPolicy::Plain, servers, &[]), 10_000 / left + 1);
            assert!(took < Duration::from_secs(2), "{servers}: {took:?}");
        }
    }

    #[test]
    fn ten_thousand_clients_return_within_the_least_session_timeout_where_cores_are_shared() {
        let took = time_to_accept(rates(CpuPolicy::Sharing, 0, &[]), 10_000);
        assert!((3..4).contains(&took.as_secs()), "{took:?}");
    }

    #[test]
    fn the_configuration_says_how_many_come_and_how_many_of_them_at_once() {
        let keys = [("lockkeeper.admissionRate", "500"), ("lockkeeper.admissionBurst", "10")];
        let rates_of = |policy| rates(policy, 0, &keys);
        assert_eq!(rates_of(CpuPolicy::Plain), rates_of(CpuPolicy::Sharing));
        let given = rates_of(CpuPolicy::Plain);
        assert_eq!(time_to_accept(given, 10), Duration::ZERO);
        let took = time_to_accept(given, 510);
        assert!((990..=1000).contains(&took.as_millis()), "{took:?}");
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let given = rates(CpuPolicy::Sharing, 3, &[("lockkeeper.admissionRate", "0")]);
        assert_eq!(time_to_accept(given, 100_000), Duration::ZERO);
    }

    #[test]
    fn the_servers_of_an_ensemble_share_the_rate_of_connections() {
        let (one, three) = (Rates::new(2_000, 64, 1), Rates::new(2_000, 64, 3));
        assert_eq!(three.accepting.interval, one.accepting.interval * 3);
        assert_eq!(three.leaving.interval, one.leaving.interval * 3);
        assert_eq!(three.hearing, one.hearing, "each has its own clients");
        assert_eq!(one.leaving.interval * LEAVE_TIMES, one.accepting.interval);
        assert_eq!(one.hearing.interval * HEAR_TIMES, one.accepting.interval);
    }
}
