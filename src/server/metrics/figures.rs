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
use crate::admin::{Counters, DiskCounters, LinkCounters, ResponseSizes};
use crate::proto::frame;
use crate::server::clock;
use crate::server::mailbox::Debts;

/// Counts since the start, or since the last reset.
#[derive(Debug)]
pub(in crate::server) struct Figures {
    started: Instant,
    packets_received: Striped,
    packets_sent: Striped,
    bytes_received: Striped,
    bytes_sent: Striped,
    response_last: AtomicU64,
    response_min: AtomicU64,
    response_max: AtomicU64,
    connections_alive: AtomicU64,
    connections_accepted: AtomicU64,
    connections_closed: AtomicU64,
    connect_requests: AtomicU64,
    rejected_per_ip: AtomicU64,
    rejected_total: AtomicU64,
    cut_slow: AtomicU64,
    cut_malformed: AtomicU64,
    cut_sessionless: AtomicU64,
    cut_yielded: AtomicU64,
    cut_debtors: AtomicU64,
    cut_unfinished: AtomicU64,
    /// Connections that spoke another protocol.
    pub others: Others,
    /// Bytes that wait for all clients.
    pub outgoing: Arc<Debts>,
    non_mtls_remote: AtomicU64,
    non_mtls_local: AtomicU64,
    large_requests_refused: AtomicU64,
    disk: Mutex<DiskCounters>,
    links: OnceLock<LinkFigures>,
    /// What is measured as distributions.
    pub measures: Measures,
    requests_taken: AtomicU64,
    appends_ordered: AtomicU64,
    leader_losses: AtomicU64,
    caught_up_by_log: AtomicU64,
}

/// What tasks and threads count that serve other servers.
#[derive(Debug, Default)]
pub(in crate::server) struct LinkFigures {
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    made: AtomicU64,
    failed: AtomicU64,
    frames_refused: AtomicU64,
    overfull: AtomicU64,
    strangers: AtomicU64,
    yielded: AtomicU64,
    images_sent: AtomicU64,
    images_received: AtomicU64,
    images_failed: AtomicU64,
}

impl LinkFigures {
    /// Bytes have left to other servers.
    pub(in crate::server) fn sent(&self, bytes: usize) {
        add(&self.bytes_sent, bytes as u64);
    }

    /// Bytes came from other servers.
    pub(in crate::server) fn received(&self, bytes: usize) {
        add(&self.bytes_received, bytes as u64);
    }

    /// A link to another server was made.
    pub(in crate::server) fn made(&self) {
        add(&self.made, 1);
    }

    /// An attempt at a link to another server came to none.
    pub(in crate::server) fn failed(&self) {
        add(&self.failed, 1);
    }

    /// A frame of another server was damaged or malformed.
    pub(in crate::server) fn frame_refused(&self) {
        add(&self.frames_refused, 1);
    }

    /// A server did not take what it was sent.
    pub(in crate::server) fn overfull(&self) {
        add(&self.overfull, 1);
    }

    /// A server that is no member was refused.
    pub(in crate::server) fn refused(&self) {
        add(&self.strangers, 1);
    }

    /// A connection that had not proved to be of a server was closed because there were too many.
    pub(in crate::server) fn yielded(&self) {
        add(&self.yielded, 1);
    }

    /// How many of these there were.
    pub(in crate::server) fn all_yielded(&self) -> u64 {
        self.yielded.load(Ordering::Relaxed)
    }

    /// Another server has taken an image.
    pub(in crate::server) fn image_sent(&self) {
        add(&self.images_sent, 1);
    }

    /// An image was received and verified.
    pub(in crate::server) fn image_received(&self) {
        add(&self.images_received, 1);
    }

    /// An image could not be sent or received.
    pub(in crate::server) fn image_failed(&self) {
        add(&self.images_failed, 1);
    }

    fn snapshot(&self) -> LinkCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkCounters {
            bytes_sent: read(&self.bytes_sent),
            bytes_received: read(&self.bytes_received),
            made: read(&self.made),
            failed: read(&self.failed),
            frames_refused: read(&self.frames_refused),
            overfull: read(&self.overfull),
            strangers: read(&self.strangers),
            yielded: read(&self.yielded),
            images_sent: read(&self.images_sent),
            images_received: read(&self.images_received),
            images_failed: read(&self.images_failed),
        }
    }

    fn reset(&self) {
        for counter in [
            &self.bytes_sent,
            &self.bytes_received,
            &self.made,
            &self.failed,
            &self.frames_refused,
            &self.overfull,
            &self.strangers,
            &self.yielded,
            &self.images_sent,
            &self.images_received,
            &self.images_failed,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Figures {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            started: Instant::now(),
            packets_received: Striped::default(),
            packets_sent: Striped::default(),
            bytes_received: Striped::default(),
            bytes_sent: Striped::default(),
            response_last: zero(),
            response_min: AtomicU64::new(u64::MAX),
            response_max: zero(),
            connections_alive: zero(),
            connections_accepted: zero(),
            connections_closed: zero(),
            connect_requests: zero(),
            rejected_per_ip: zero(),
            rejected_total: zero(),
            cut_slow: zero(),
            cut_malformed: zero(),
            cut_sessionless: zero(),
            cut_yielded: zero(),
            cut_debtors: zero(),
            cut_unfinished: zero(),
            others: Others::default(),
            outgoing: Arc::default(),
            non_mtls_remote: zero(),
            non_mtls_local: zero(),
            large_requests_refused: zero(),
            disk: Mutex::default(),
            links: OnceLock::new(),
            measures: Measures::default(),
            requests_taken: zero(),
            appends_ordered: zero(),
            leader_losses: zero(),
            caught_up_by_log: zero(),
        }
    }
}

impl Figures {
    /// Bytes came from a client.
    pub(in crate::server) fn received(&self, bytes: usize) {
        self.bytes_received.add(bytes as u64);
    }

    /// Frames (or a four-letter word) came from a client.
    pub(in crate::server) fn packets_received(&self, packets: usize) {
        self.packets_received.add(packets as u64);
    }

    /// A handshake came from a client.
    pub(in crate::server) fn connect_request(&self) {
        self.packets_received.add(1);
        add(&self.connect_requests, 1);
    }

    /// Bytes have left to a client.
    pub(in crate::server) fn sent(&self, bytes: usize) {
        self.bytes_sent.add(bytes as u64);
    }

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
        self.packets_sent.add(packets);
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
        add(&self.connections_accepted, 1);
        add(&self.connections_alive, 1);
    }

    /// One from `remote` to `local` is of a client that has shown no certificate.
    pub(in crate::server) fn non_mtls(&self, remote: IpAddr, local: Option<IpAddr>) {
        let is_local = local == Some(remote) || remote.is_loopback();
        add(if is_local { &self.non_mtls_local } else { &self.non_mtls_remote }, 1);
    }

    /// An accepted connection has ended.
    pub(in crate::server) fn closed(&self) {
        add(&self.connections_closed, 1);
        self.connections_alive.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection was refused: its address has too many.
    pub(in crate::server) fn rejected_per_ip(&self) {
        add(&self.rejected_per_ip, 1);
    }

    /// A connection was refused: there are too many.
    pub(in crate::server) fn rejected_total(&self) {
        add(&self.rejected_total, 1);
    }

    /// A client that did not take its answers was cut off.
    pub(in crate::server) fn cut_slow(&self) {
        add(&self.cut_slow, 1);
    }

    /// A connection was closed for a malformed frame; `is_too_large` if by its length.
    pub(in crate::server) fn cut_malformed(&self, is_too_large: bool) {
        add(&self.cut_malformed, 1);
        if is_too_large {
            add(&self.large_requests_refused, 1);
        }
    }

    /// A connection was closed because it did not ask for a session in time.
    pub(in crate::server) fn cut_sessionless(&self) {
        add(&self.cut_sessionless, 1);
    }

    /// A connection was closed because another one needed its place, and it had asked for no session.
    pub(in crate::server) fn cut_yielded(&self) {
        add(&self.cut_yielded, 1);
    }

    /// A connection was cut off because too much waited for all clients, and most of it for its own.
    pub(in crate::server) fn cut_debtor(&self) {
        add(&self.cut_debtors, 1);
    }

    /// A connection was cut off because the unfinished requests of all clients were too long, and its own the
    /// longest.
    pub(in crate::server) fn cut_unfinished(&self) {
        add(&self.cut_unfinished, 1);
    }

    /// The driver took requests.
    pub(in crate::server) fn requests_taken(&self, requests: usize) {
        add(&self.requests_taken, requests as u64);
    }

    /// The log's thread was given an append.
    pub(in crate::server) fn append_ordered(&self) {
        add(&self.appends_ordered, 1);
    }

    /// This server has no leader any more.
    pub(in crate::server) fn leader_lost(&self) {
        add(&self.leader_losses, 1);
    }

    /// Another server has caught up with this leader without an image.
    pub(in crate::server) fn caught_up_by_log(&self) {
        add(&self.caught_up_by_log, 1);
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

    /// What the disk's threads count.
    pub(in crate::server) fn disk(&self) -> MutexGuard<'_, DiskCounters> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is counted of other servers, from the first call on.
    pub(in crate::server) fn links(&self) -> &LinkFigures {
        self.links.get_or_init(LinkFigures::default)
    }

    /// Time since the start.
    #[must_use]
    pub(in crate::server) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// All of them, now.
    #[must_use]
    pub(in crate::server) fn snapshot(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let min = read(&self.response_min);
        let sizes =
            ResponseSizes { last: read(&self.response_last), min, max: read(&self.response_max) };
        Counters {
            wall_ms: clock::wall_ms(),
            uptime_ms: u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX),
            packets_received: self.packets_received.total(),
            packets_sent: self.packets_sent.total(),
            bytes_received: self.bytes_received.total(),
            bytes_sent: self.bytes_sent.total(),
            response_sizes: (min != u64::MAX).then_some(sizes),
            connections_alive: read(&self.connections_alive),
            connections_accepted: read(&self.connections_accepted),
            connections_closed: read(&self.connections_closed),
            connect_requests: read(&self.connect_requests),
            connections_rejected_per_ip: read(&self.rejected_per_ip),
            connections_rejected_total: read(&self.rejected_total),
            connections_cut_slow: read(&self.cut_slow),
            connections_cut_malformed: read(&self.cut_malformed),
            connections_cut_sessionless: read(&self.cut_sessionless),
            connections_cut_yielded: read(&self.cut_yielded),
            connections_cut_debtors: read(&self.cut_debtors),
            connections_cut_unfinished: read(&self.cut_unfinished),
            other_protocols: self.others.counts(),
            outgoing_bytes: self.outgoing.bytes(),
            // The connections' table has them, and those of TLS.
            incoming_bytes: 0,
            handshakes_failed: 0,
            certificates: Vec::new(),
            sasl_users_outdated: None,
            connections_non_mtls_remote: read(&self.non_mtls_remote),
            connections_non_mtls_local: read(&self.non_mtls_local),
            large_requests_refused: read(&self.large_requests_refused),
            disk: *self.disk(),
            measured: self.measures.snapshot(),
            requests_taken: read(&self.requests_taken),
            appends_ordered: read(&self.appends_ordered),
            leader_losses: read(&self.leader_losses),
            caught_up_by_log: read(&self.caught_up_by_log),
            fatal_errors: 0,
            handshakes_open: 0,
            links: self.links.get().map(LinkFigures::snapshot),
        }
    }

    /// Sets every count to zero; what is a state stays.
    pub(in crate::server) fn reset(&self) {
        for count in
            [&self.packets_received, &self.packets_sent, &self.bytes_received, &self.bytes_sent]
        {
            count.reset();
        }
        for counter in [
            &self.response_last,
            &self.response_max,
            &self.connections_accepted,
            &self.connections_closed,
            &self.connect_requests,
            &self.rejected_per_ip,
            &self.rejected_total,
            &self.cut_slow,
            &self.cut_malformed,
            &self.cut_sessionless,
            &self.cut_yielded,
            &self.cut_debtors,
            &self.cut_unfinished,
            &self.non_mtls_remote,
            &self.non_mtls_local,
            &self.large_requests_refused,
            &self.requests_taken,
            &self.appends_ordered,
            &self.leader_losses,
            &self.caught_up_by_log,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        self.response_min.store(u64::MAX, Ordering::Relaxed);
        self.others.reset();
        self.measures.reset();
        if let Some(links) = self.links.get() {
            links.reset();
        }
        let mut disk = self.disk();
        *disk = DiskCounters {
            data_dir_bytes: disk.data_dir_bytes,
            log_dir_bytes: disk.log_dir_bytes,
            log_since_image_bytes: disk.log_since_image_bytes,
            last_image: disk.last_image,
            last_backup: disk.last_backup,
            ..DiskCounters::default()
        };
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
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
