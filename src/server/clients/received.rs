//! What all connections have received and not handed to the server's thread: parts of frames, above all.
//!
//! *Owns* [`Received`], the table of the connections that hold more than [`SHARE_FREE_BYTES`] of such bytes,
//! and [`Share`], the entry of one of them. *Invariants*: a connection counts until it has handed its bytes
//! on, is cut off, or ends; beyond the bound those that hold the most are cut off, until seven eighths of it
//! are left. *Never* holds up a connection that is read from: its buffer is bounded by the longest frame.
//!
//! ZooKeeper has no such bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Line;
use crate::replica::ConnId;
use crate::server::limits::{DEBTS_KEPT_DIVISOR, DEBTS_KEPT_OF, SHARE_FREE_BYTES};
use crate::server::shared::Shared;

/// The connections that hold much.
#[derive(Debug)]
pub(crate) struct Received {
    table: Mutex<Table>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Table {
    shares: BTreeMap<ConnId, (u64, Arc<Line>)>,
    /// Of all of them.
    bytes: u64,
    /// When it was last said that some were cut off.
    said: Option<Instant>,
}

impl Received {
    /// Nothing yet. `bytes_max`: of all connections.
    #[must_use]
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { table: Mutex::default(), bytes_max }
    }

    /// Bytes that count.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code that holds the lock can panic half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn remove(&mut self, conn: ConnId) {
        if let Some((bytes, _)) = self.shares.remove(&conn) {
            self.bytes -= bytes;
        }
    }

    fn insert(&mut self, conn: ConnId, bytes: u64, line: &Arc<Line>) {
        self.remove(conn);
        self.bytes += bytes;
        self.shares.insert(conn, (bytes, Arc::clone(line)));
    }

    /// Takes out those that hold the most, until no more than `enough` bytes are left.
    fn take_largest(&mut self, enough: u64) -> Vec<(u64, Arc<Line>)> {
        let mut sizes: Vec<(u64, ConnId)> =
            self.shares.iter().map(|(conn, (bytes, _))| (*bytes, *conn)).collect();
        sizes.sort_unstable();
        let mut taken = Vec::new();
        while self.bytes > enough
            && let Some((bytes, conn)) = sizes.pop()
            && let Some(share) = self.shares.remove(&conn)
        {
            self.bytes -= bytes;
            taken.push(share);
        }
        taken
    }
}

/// What one connection holds. Dropped with what it holds.
pub(super) struct Share<'a> {
    shared: &'a Shared,
    conn: ConnId,
    bytes: u64,
}

impl<'a> Share<'a> {
    /// Nothing yet.
    #[must_use]
    pub(super) fn new(shared: &'a Shared, conn: ConnId) -> Self {
        Self { shared, conn, bytes: 0 }
    }

    /// The connection holds so many bytes now. It, or others, may be cut off for them.
    pub(super) fn set(&mut self, bytes: usize, line: &Arc<Line>) {
        let bytes = if bytes > SHARE_FREE_BYTES { bytes as u64 } else { 0 };
        if bytes == self.bytes {
            return;
        }
        self.bytes = bytes;
        let Received { bytes_max, .. } = self.shared.received;
        let mut table = self.shared.received.lock();
        match bytes {
            0 => table.remove(self.conn),
            _ => table.insert(self.conn, bytes, line),
        }
        if table.bytes <= bytes_max {
            return;
        }
        let before = table.bytes;
        let taken = table.take_largest(bytes_max / DEBTS_KEPT_DIVISOR * DEBTS_KEPT_OF);
        let is_said = table.said.is_some_and(|said| said.elapsed() < SAID_INTERVAL);
        if !is_said {
            table.said = Some(Instant::now());
        }
        drop(table);
        for (_, line) in &taken {
            // It may be another thread's, and its client may see that at once.
            self.shared.figures.cut_unfinished();
            line.outbox.cut_off();
        }
        if !is_said {
            let (count, largest) = (taken.len(), taken.first().map_or(0, |(bytes, _)| *bytes));
            tracing::warn!(
                count,
                largest,
                before,
                max = bytes_max,
                "connections cut off: the requests that clients have begun to send, and not finished, are \
                 more than lockkeeper.incomingBytesMax"
            );
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.received.lock().remove(self.conn);
        }
    }
}

/// Time between two warnings.
const SAID_INTERVAL: Duration = Duration::from_secs(1);
