//! The driver's table of connections: where each answer goes.
//!
//! *Owns* the way to every connection by number, and how much all of them owe. *Invariants*: a client that does not
//! take what it is sent is cut off, and so are those that owe the most when all together owe too much. *Never* waits.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;

use crate::replica::{ConnId, Outgoing};
use crate::server::limits::{DEBTS_KEPT_DIVISOR, DEBTS_KEPT_OF, DIRECT_BYTES_MAX, Limits};
use crate::server::mailbox::{Debt, Debts, Line, Pushed, Wakeups};
use crate::server::metrics::Figures;

/// The way to every connection, by number.
#[derive(Debug)]
pub(in crate::server) struct Connections {
    lines: HashMap<ConnId, Arc<Line>>,
    /// Bytes that they were pushed since they could last write.
    pub(in crate::server) pushed_bytes: usize,
    /// Bytes that they have not written, and how many these may be.
    debts: Arc<Debts>,
    debts_max: u64,
    /// The I/O threads by number, as far as they have had connections.
    threads: Vec<Option<Thread>>,
    figures: Arc<Figures>,
}

/// What the driver has for the tasks of one I/O thread.
#[derive(Debug)]
struct Thread {
    wakeups: Arc<Wakeups>,
    /// Tasks that are not handed over yet.
    tasks: Vec<Waker>,
    /// The last batch that was, and is not known to have passed; 0: none.
    batch: u64,
}

impl Connections {
    /// None yet.
    #[must_use]
    pub(in crate::server) fn new(limits: &Limits, figures: Arc<Figures>) -> Self {
        let debts = Arc::clone(&figures.outgoing);
        let debts_max = limits.outgoing_total_bytes_max;
        let (lines, threads) = (HashMap::new(), Vec::new());
        Self { lines, pushed_bytes: 0, debts, debts_max, threads, figures }
    }

    /// What is counted.
    pub(in crate::server) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    pub(in crate::server) fn open(&mut self, conn: ConnId, line: Arc<Line>) {
        if let Some(thread) = line.thread.as_ref() {
            let index = thread.index;
            if self.threads.len() <= index {
                self.threads.resize_with(index + 1, || None);
            }
            self.threads[index].get_or_insert_with(|| Thread {
                wakeups: Arc::clone(&thread.wakeups),
                tasks: Vec::new(),
                batch: 0,
            });
        }
        self.lines.insert(conn, line);
    }

    pub(in crate::server) fn close(&mut self, conn: ConnId) {
        self.lines.remove(&conn);
    }

    /// To a connection of its own thread the driver writes what is short by itself: waking a task costs more than a
    /// write. Those of other threads have it when it is handed over.
    pub(in crate::server) fn push(&mut self, outgoing: Outgoing, now_us: u64) {
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
            self.figures.counts.bytes_sent.add(written as u64);
            if written == bytes.len() {
                self.figures.frames_sent(bytes);
            }
            written
        };
        let thread = line.thread.as_ref().and_then(|thread| self.threads[thread.index].as_mut());
        let wake = |task: Waker| match thread {
            Some(thread) => thread.tasks.push(task),
            None => task.wake(),
        };
        match line.outbox.push(outgoing, now_us, write, wake) {
            Pushed::Written(answered) => {
                self.figures.measures.answered(&answered, self.figures.now_us());
            }
            Pushed::Queued => {
                // Also the last one counts until it is written or too much waits for all: the task tells
                // of its end.
                if self.debts.bytes() > self.debts_max {
                    self.cut_debtors(now_us);
                }
            }
            Pushed::CutOff => {
                self.figures.counts.connections_cut_slow.add(1);
                tracing::warn!(conn, "cut off: the client does not take what it is sent");
                self.close(conn);
            }
        }
    }

    /// Has the other threads write what was pushed.
    pub(in crate::server) fn hand_over(&mut self) {
        for thread in self.threads.iter_mut().flatten().filter(|thread| !thread.tasks.is_empty()) {
            thread.batch = thread.wakeups.put(&mut thread.tasks);
        }
    }

    /// Waits until the other threads have written what was handed over, as far as clients take it.
    pub(in crate::server) async fn let_write(&mut self) {
        for thread in self.threads.iter_mut().flatten().filter(|thread| thread.batch > 0) {
            poll_fn(|context| thread.wakeups.poll_passed(context, thread.batch)).await;
            thread.batch = 0;
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
                self.figures.counts.connections_cut_debtors.add(1);
                line.outbox.cut_off();
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
