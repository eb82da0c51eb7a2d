//! The share that one connection has of the bytes that have arrived and are not handed on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::ServerContext;
use crate::replica::ConnId;
use crate::server::limits::{DEBTS_KEPT_DIVISOR, DEBTS_KEPT_OF, SHARE_FREE_BYTES};
use crate::server::mailbox::Line;

/// Time between two warnings.
const SAID_INTERVAL: Duration = Duration::from_secs(1);

/// Share of one connection. Dropped with what it holds.
pub(super) struct Share<'a> {
    server: &'a ServerContext,
    conn: ConnId,
    bytes: u64,
}

impl<'a> Share<'a> {
    /// Nothing yet.
    #[must_use]
    pub(super) fn new(server: &'a ServerContext, conn: ConnId) -> Self {
        Self { server, conn, bytes: 0 }
    }

    /// The connection holds so many bytes now. It, or others, may be cut off for them.
    pub(super) fn set(&mut self, bytes: usize, line: &Arc<Line>) {
        let bytes = if bytes > SHARE_FREE_BYTES { bytes as u64 } else { 0 };
        if bytes == self.bytes {
            return;
        }
        self.bytes = bytes;
        let bytes_max = self.server.received.bytes_max;
        let mut table = self.server.received.lock();
        match bytes {
            0 => table.remove(self.conn),
            _ => table.insert(self.conn, bytes, line),
        }
        if table.bytes <= bytes_max {
            return;
        }
        let before = table.bytes;
        let taken = table.take_largest(bytes_max / DEBTS_KEPT_DIVISOR * DEBTS_KEPT_OF);
        let is_due = table.said.is_due(SAID_INTERVAL, Instant::now());
        drop(table);
        for (_, line) in &taken {
            // It may be another thread's, and its client may see that at once.
            self.server.figures.counts.connections_cut_unfinished.add(1);
            line.outbox.cut_off();
        }
        if is_due {
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
            self.server.received.lock().remove(self.conn);
        }
    }
}
