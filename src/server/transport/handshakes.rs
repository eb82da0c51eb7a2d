//! Handshakes of TLS: how long one may take, how many are computed beside the thread of their sockets, and what came to
//! nothing.
//!
//! *Owns* these bounds, how many handshakes failed, and when the log said so last. *Invariant*: the log says the first
//! one with its reason, and then at most one a minute, with how many there were. *Never* decides about one.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::server::clock::Periodic;
use crate::server::limits::SLOW_HANDSHAKES_MAX;

/// Time between two lines.
const SAID_INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct Handshakes {
    /// How long one may take.
    pub(in crate::server) deadline: Duration,
    /// For those with keys of RSA.
    pub(in crate::server) slow: Semaphore,
    /// The subject of a certificate whose owner may do everything.
    pub(in crate::server) super_user: Option<String>,
    table: Mutex<Table>,
    open: AtomicU64,
}

/// A handshake that is going on.
pub(in crate::server) struct Going<'a>(&'a AtomicU64);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Table {
    refused: u64,
    said: Periodic,
}

impl Table {
    /// Counts one at `now`: how many there were since the start, if that is to be said.
    fn refused(&mut self, now: Instant) -> Option<u64> {
        self.refused += 1;
        self.said.is_due(SAID_INTERVAL, now).then_some(self.refused)
    }
}

impl Handshakes {
    /// Of a server.
    pub(crate) fn new(deadline: Duration, super_user: Option<String>) -> Self {
        let slow = Semaphore::new(SLOW_HANDSHAKES_MAX);
        Self { deadline, slow, super_user, table: Mutex::default(), open: AtomicU64::new(0) }
    }

    /// One with a client from there.
    pub(in crate::server) fn refused(&self, from: IpAddr, error: &io::Error) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = table.refused(Instant::now()) {
            tracing::warn!(%from, count, "the handshake of TLS with a client failed: {error}");
        }
    }

    /// One begins; it goes on until that is dropped.
    pub(in crate::server) fn begin(&self) -> Going<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Going(&self.open)
    }

    /// How many are going on.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// How many failed since the start.
    pub(crate) fn failed(&self) -> u64 {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_is_said_and_then_one_a_minute_with_its_number() {
        let mut table = Table::default();
        let begun = Instant::now();
        assert_eq!(table.refused(begun), Some(1));
        assert_eq!(table.refused(begun + Duration::from_secs(59)), None);
        assert_eq!(table.refused(begun + SAID_INTERVAL), Some(3));
    }
}
