//! The driver's table of connections: where each answer goes.
//!
//! *Owns* the way to every connection by number, and how much all of them owe. *Invariants*: a client that does not
//! take what it is sent is cut off, and so are those that owe the most when all together owe too much. *Never* waits.

use std::collections::HashMap;
use std::sync::Arc;

use super::clients::{Debt, Debts, Line, Pushed};
use super::figures::Figures;
use super::limits::{DEBTS_KEPT_DIVISOR, DEBTS_KEPT_OF, DIRECT_BYTES_MAX, Limits};
use crate::replica::{ConnId, Outgoing};

/// The way to every connection, by number.
#[derive(Debug)]
pub(super) struct Connections {
    lines: HashMap<ConnId, Arc<Line>>,
    /// Bytes that they were pushed since they could last write.
    pub(super) pushed_bytes: usize,
    /// Bytes that they have not written, and how many these may be.
    debts: Arc<Debts>,
    debts_max: u64,
    figures: Arc<Figures>,
}

impl Connections {
    /// None yet.
    #[must_use]
    pub(super) fn new(limits: &Limits, figures: Arc<Figures>) -> Self {
        let debts = Arc::clone(&figures.outgoing);
        let debts_max = limits.outgoing_total_bytes_max;
        Self { lines: HashMap::new(), pushed_bytes: 0, debts, debts_max, figures }
    }

    pub(super) fn open(&mut self, conn: ConnId, line: Arc<Line>) {
        self.lines.insert(conn, line);
    }

    pub(super) fn close(&mut self, conn: ConnId) {
        self.lines.remove(&conn);
    }

    /// The driver writes what is short by itself: waking a task costs more than a write.
    pub(super) fn push(&mut self, outgoing: Outgoing, now_us: u64) {
        let conn = outgoing.conn;
        // Absent: it was closed in this very batch.
        let Some(line) = self.lines.get(&conn) else { return };
        self.pushed_bytes += outgoing.frames.len();
        let write = |bytes: &[u8]| {
            if bytes.len() > DIRECT_BYTES_MAX {
                return 0;
            }
            // A socket that is full or broken is the task's to deal with.
            let written = line.writer.try_write(bytes).unwrap_or(0);
            self.figures.sent(written);
            if written == bytes.len() {
                self.figures.frames_sent(bytes);
            }
            written
        };
        match line.outbox.push(outgoing, now_us, write) {
            Pushed::Written => {}
            Pushed::Queued => {
                // Also the last one counts until it is written or too much waits for all: the task tells
                // of its end.
                if self.debts.bytes() > self.debts_max {
                    self.cut_debtors(now_us);
                }
            }
            Pushed::CutOff => {
                self.figures.cut_slow();
                tracing::warn!(conn, "cut off: the client does not take what it is sent");
                self.close(conn);
            }
        }
    }

    /// Cuts off those that owe the most, until what all of them owe is well below the bound: so the next
    /// time that they are looked through is many bytes later.
    fn cut_debtors(&mut self, now_us: u64) {
        let before = self.debts.bytes();
        let enough = self.debts_max / DEBTS_KEPT_DIVISOR * DEBTS_KEPT_OF;
        let debts = self.lines.iter().map(|(conn, line)| (line.outbox.debt(now_us), *conn));
        let mut debts: Vec<(Debt, ConnId)> = debts.filter(|(debt, _)| debt.bytes > 0).collect();
        debts.sort_unstable();
        let (mut count, mut largest) = (0_u64, 0);
        while self.debts.bytes() > enough
            && let Some((debt, conn)) = debts.pop()
        {
            if let Some(line) = self.lines.remove(&conn) {
                line.outbox.cut_off();
                self.figures.cut_debtor();
                (count, largest) = (count + 1, debt.bytes.max(largest));
            }
        }
        let (max, after) = (self.debts_max, self.debts.bytes());
        tracing::warn!(
            count,
            largest,
            before,
            after,
            max,
            "connections cut off: clients do not take what they are sent, and all together wait for \
             more than lockkeeper.outgoingBytesMax"
        );
    }
}
