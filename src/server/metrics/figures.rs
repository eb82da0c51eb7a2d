//! The shell's own figures: sockets and fsyncs, as `srvr`, `mntr` and `/metrics` show them.
//!
//! *Owns* [`Figures`]: atomics that tasks and threads add to. *Invariant*: adding never waits; what
//! the log and state threads measure is behind a lock that only they and an operator's question
//! take. *Never* decides anything by a figure.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::measures::Measures;
use super::other_protocols::Others;
use super::striped::Striped;
use crate::admin::{Counters, Counts, DiskFigures, LinkCounts, ResponseSizes};
use crate::proto::frame;
use crate::server::clock;
use crate::server::mailbox::Debts;

/// Counts since the start, or since the last reset.
#[derive(Debug)]
pub(in crate::server) struct Figures {
    started: Instant,
    /// Counters of the table of metrics.
    pub counts: Counts<Striped>,
    links: OnceLock<LinkCounts<Striped>>,
    response_last: AtomicU64,
    response_min: AtomicU64,
    response_max: AtomicU64,
    connections_alive: AtomicU64,
    /// Connections that spoke another protocol.
    pub others: Others,
    /// Bytes that wait for all clients.
    pub outgoing: Arc<Debts>,
    disk: Mutex<DiskFigures>,
    /// Measured distributions.
    pub measures: Measures,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            counts: Counts::default(),
            links: OnceLock::new(),
            response_last: AtomicU64::new(0),
            response_min: AtomicU64::new(u64::MAX),
            response_max: AtomicU64::new(0),
            connections_alive: AtomicU64::new(0),
            others: Others::default(),
            outgoing: Arc::default(),
            disk: Mutex::default(),
            measures: Measures::default(),
        }
    }
}

impl Figures {
    /// Whole frames are on their way to a client.
    pub(in crate::server) fn frames_sent(&self, frames: &[u8]) {
        let (mut packets, mut least, mut most, mut last) = (0, u64::MAX, 0, 0);
        for length in frame::lengths(frames) {
            last = length as u64;
            least = least.min(last);
            most = most.max(last);
            packets += 1;
        }
        if packets == 0 {
            return;
        }
        self.counts.packets_sent.add(packets);
        // Looked at before they are written: changes are rare, and a written cache line is not free.
        if last != self.response_last.load(Ordering::Relaxed) {
            self.response_last.store(last, Ordering::Relaxed);
        }
        if least < self.response_min.load(Ordering::Relaxed) {
            self.response_min.fetch_min(least, Ordering::Relaxed);
        }
        if most > self.response_max.load(Ordering::Relaxed) {
            self.response_max.fetch_max(most, Ordering::Relaxed);
        }
    }

    /// A connection was accepted.
    pub(in crate::server) fn accepted(&self) {
        self.counts.connections_accepted.add(1);
        self.connections_alive.fetch_add(1, Ordering::Relaxed);
    }

    /// One from `remote` to `local` is of a client that has shown no certificate.
    pub(in crate::server) fn non_mtls(&self, remote: IpAddr, local: Option<IpAddr>) {
        let is_local = local == Some(remote) || remote.is_loopback();
        let Counts { connections_non_mtls_local, connections_non_mtls_remote, .. } = &self.counts;
        let own = if is_local { connections_non_mtls_local } else { connections_non_mtls_remote };
        own.add(1);
    }

    /// An accepted connection has ended.
    pub(in crate::server) fn closed(&self) {
        self.counts.connections_closed.add(1);
        self.connections_alive.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection was closed for a malformed frame; `is_too_large` if by its length.
    pub(in crate::server) fn cut_malformed(&self, is_too_large: bool) {
        self.counts.connections_cut_malformed.add(1);
        if is_too_large {
            self.counts.large_requests_refused.add(1);
        }
    }

    /// Microseconds by the clock that the replica is given.
    #[must_use]
    pub(in crate::server) fn now_us(&self) -> u64 {
        clock::micros_since(self.started)
    }

    /// The same of a moment.
    #[must_use]
    pub(in crate::server) fn us_of(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.started).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// Contents of the disks, which the disk's threads publish.
    pub(in crate::server) fn disk(&self) -> MutexGuard<'_, DiskFigures> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters of the links with other servers, which exist from the first call on.
    pub(in crate::server) fn links(&self) -> &LinkCounts<Striped> {
        self.links.get_or_init(LinkCounts::default)
    }

    /// Time since the start.
    #[must_use]
    pub(in crate::server) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// All of them, now, but for those that the connections' table, TLS and SASL have.
    #[must_use]
    pub(in crate::server) fn snapshot(&self) -> Counters {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let min = read(&self.response_min);
        let sizes =
            ResponseSizes { last: read(&self.response_last), min, max: read(&self.response_max) };
        Counters {
            wall_ms: clock::wall_ms(),
            uptime_ms: u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX),
            counts: self.counts.map(Striped::total),
            links: self.links.get().map(|links| links.map(Striped::total)),
            measured: self.measures.snapshot(),
            response_sizes: (min != u64::MAX).then_some(sizes),
            connections_alive: read(&self.connections_alive),
            outgoing_bytes: self.outgoing.bytes(),
            disk: *self.disk(),
            ..Counters::default()
        }
    }

    /// Sets every count to zero; what is a state stays.
    pub(in crate::server) fn reset(&self) {
        self.counts.map(Striped::reset);
        if let Some(links) = self.links.get() {
            links.map(Striped::reset);
        }
        self.response_last.store(0, Ordering::Relaxed);
        self.response_min.store(u64::MAX, Ordering::Relaxed);
        self.response_max.store(0, Ordering::Relaxed);
        self.measures.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_and_measured_as_they_leave() {
        let figures = Figures::default();
        assert_eq!(figures.snapshot().response_sizes, None);
        let mut frames = Vec::new();
        for length in [16, 100, 20] {
            frame::append(&mut frames, |out| out.resize(out.len() + length, 0));
        }
        figures.frames_sent(&frames);
        let counters = figures.snapshot();
        let sizes = ResponseSizes { last: 20, min: 16, max: 100 };
        assert_eq!((counters.packets_sent, counters.response_sizes), (3, Some(sizes)));
        figures.reset();
        assert_eq!((figures.snapshot().packets_sent, figures.snapshot().response_sizes), (0, None));
    }
}
