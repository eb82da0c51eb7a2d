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

use crate::replica::ConnId;
use crate::server::clock::Periodic;
use crate::server::mailbox::Line;

/// The connections that hold much.
#[derive(Debug)]
pub(crate) struct Received {
    table: Mutex<Table>,
    pub(super) bytes_max: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    shares: BTreeMap<ConnId, (u64, Arc<Line>)>,
    /// Of all of them.
    pub(super) bytes: u64,
    /// When it was last said that some were cut off.
    pub(super) said: Periodic,
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        // No code that holds the lock can panic half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    pub(super) fn remove(&mut self, conn: ConnId) {
        if let Some((bytes, _)) = self.shares.remove(&conn) {
            self.bytes -= bytes;
        }
    }

    pub(super) fn insert(&mut self, conn: ConnId, bytes: u64, line: &Arc<Line>) {
        self.remove(conn);
        self.bytes += bytes;
        self.shares.insert(conn, (bytes, Arc::clone(line)));
    }

    /// Takes out those that hold the most, until no more than `enough` bytes are left.
    pub(super) fn take_largest(&mut self, enough: u64) -> Vec<(u64, Arc<Line>)> {
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
