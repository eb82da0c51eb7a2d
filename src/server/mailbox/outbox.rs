//! What waits to be written to one connection.
//!
//! *Owns* [`Outbox`], the ordered queue between the driver, which pushes, and the connection's
//! task, which takes everything at once and writes it. When nothing is queued or half written and
//! the task only waits for the client, the driver may write by itself: that saves waking a task,
//! which costs more than the write. *Owns* also [`Debts`], the bytes that all queues of a server hold
//! together. *Invariants*: bytes leave in the order in which they were
//! pushed; nothing is taken behind a close; what is queued counts for [`Debts`] from then until it is
//! written, the connection is cut off or its queue is gone; a task that waits for answers is woken by them; the lock
//! is held for a move of pointers or the copy of a small answer, never across a write. *Never* blocks
//! the driver: a queue that grows beyond its bound is cut off instead.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};
use crate::replica::{AnsweredList, Outgoing};
use crate::server::limits::Limits;

/// Answers up to this size are appended to the one before them, to be written as one buffer.
const COALESCE_BYTES_MAX: usize = 16 << 10;

/// The queue of one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Bytes that the task has written since the connection began.
    written: AtomicU64,
    /// Bytes that are queued or taken and not written yet, unless it is cut off.
    owed: AtomicU64,
    all: Arc<Debts>,
    bytes_max: u64,
    stall_max_us: u64,
}

/// Bytes that the queues of all connections hold: pushed, and not written.
#[derive(Debug, Default)]
pub(crate) struct Debts(AtomicU64);

impl Debts {
    /// Bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a connection owes, larger as it should be cut off before others: one whose client takes nothing
/// before one whose client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Debt {
    is_stalled: bool,
    /// Bytes that are not written.
    pub bytes: u64,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// After the bytes that are queued.
    AfterBytes,
    /// At once: the client did not take what was queued.
    TooSlow,
}

/// What the connection's task takes.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// To be written, in this order.
    pub chunks: Vec<Vec<u8>>,
    /// Bytes of the first of them that the driver has written.
    pub head_written: usize,
    /// Requests that are answered, by them or by what the driver has written.
    pub replies: u32,
    /// When requests were read that are answered by them.
    pub answered: AnsweredList,
    /// Whether the replica waits to hear that all of it is written.
    pub more: bool,
    /// Whether the connection ends behind them.
    pub end: Option<End>,
}

/// What became of an [`Outgoing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is written, the task was not needed. When the requests were read that it answers.
    Written(AnsweredList),
    /// The task writes it.
    Queued,
    /// The client does not take what it is sent: it is cut off.
    CutOff,
}

#[derive(Debug, Default)]
struct Queue {
    chunks: Vec<Vec<u8>>,
    /// Bytes of the first of them that the driver has written.
    head_written: usize,
    /// Whether the task needs no waking for answers that are written already.
    is_driver_free_to_write: bool,
    replies: u32,
    answered: AnsweredList,
    more: bool,
    end: Option<End>,
    /// Bytes pushed since the connection began.
    pushed: u64,
    /// The first so many of them were all pushed before `mark_us`, in the driver's microseconds;
    /// moved on when they are written. Tells how long the oldest bytes have been waiting.
    mark: u64,
    mark_us: u64,
    waker: Option<Waker>,
}

impl Outbox {
    /// An empty queue.
    #[must_use]
    pub(crate) fn new(limits: &Limits, all: Arc<Debts>) -> Self {
        Self {
            queue: Mutex::default(),
            written: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            all,
            bytes_max: u64::try_from(limits.outgoing_bytes_max).unwrap_or(u64::MAX),
            stall_max_us: u64::try_from(limits.outgoing_stall_max.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Takes what a `Ready` holds for this connection. `write` writes what it can of some bytes to
    /// the socket without waiting and says how much that was; it is called at most once. `wake`: has the task woken.
    pub(crate) fn push(
        &self,
        outgoing: Outgoing,
        now_us: u64,
        write: impl FnOnce(&[u8]) -> usize,
        wake: impl FnOnce(Waker),
    ) -> Pushed {
        let mut queue = self.lock();
        if queue.end.is_some() {
            return Pushed::Queued;
        }
        let written = self.written.load(Ordering::Acquire);
        let is_plain = !outgoing.close && !outgoing.more;
        let is_first = queue.pushed == written || mutant!("writes-past-the-queue");
        if queue.is_driver_free_to_write && is_first && is_plain {
            // Not under the lock: the task looks in just now, having sent the request. It finds
            // nothing to write before the lock is taken again, and so cannot come in between.
            drop(queue);
            let head_written = write(&outgoing.frames);
            self.written.fetch_add(head_written as u64, Ordering::Relaxed);
            queue = self.lock();
            if head_written == outgoing.frames.len() {
                queue.pushed += head_written as u64;
                queue.replies += outgoing.replies;
                if !queue.is_driver_free_to_write
                    && let Some(task) = take_waker(queue)
                {
                    wake(task);
                }
                return Pushed::Written(outgoing.answered);
            }
            queue.head_written = head_written;
            let left = outgoing.frames.len() - head_written;
            self.owe(left);
        } else {
            self.owe(outgoing.frames.len());
        }
        if written >= queue.mark {
            queue.mark_us = now_us;
            queue.mark = queue.pushed + outgoing.frames.len() as u64;
        }
        let is_stalled = now_us.saturating_sub(queue.mark_us) >= self.stall_max_us;
        let is_cut_off = is_stalled && queue.pushed - written > self.bytes_max;
        if is_cut_off {
            return self.end(queue);
        }
        queue.append(outgoing);
        if let Some(task) = take_waker(queue) {
            wake(task);
        }
        Pushed::Queued
    }

    /// What it owes; nothing if it ends already.
    pub(crate) fn debt(&self, now_us: u64) -> Debt {
        let bytes = self.owed.load(Ordering::Relaxed);
        let queue = self.lock();
        let is_waiting = self.written.load(Ordering::Acquire) < queue.mark;
        let is_old = now_us.saturating_sub(queue.mark_us) >= self.stall_max_us;
        Debt { is_stalled: is_waiting && is_old, bytes }
    }

    /// Ready when it is cut off.
    pub(crate) fn poll_cut_off(&self, context: &Context<'_>) -> Poll<()> {
        let mut queue = self.lock();
        if queue.end == Some(End::TooSlow) {
            return Poll::Ready(());
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Cuts the connection off: what is queued is thrown away, and owed no more.
    pub(crate) fn cut_off(&self) {
        self.end(self.lock());
    }

    fn end(&self, mut queue: MutexGuard<'_, Queue>) -> Pushed {
        queue.end = Some(End::TooSlow);
        queue.chunks = Vec::new();
        queue.head_written = 0;
        if let Some(task) = take_waker(queue) {
            task.wake();
        }
        self.forgive();
        Pushed::CutOff
    }

    fn owe(&self, bytes: usize) {
        self.owed.fetch_add(bytes as u64, Ordering::Relaxed);
        self.all.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Takes off what is owed, whatever becomes of it.
    fn forgive(&self) {
        self.all.0.fetch_sub(self.owed.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Takes everything that is queued, or remembers whom to wake. `is_driver_free_to_write`: the task waits for
    /// the client, not for answers, and runs in the driver's thread.
    pub(crate) fn poll_take(
        &self,
        context: &Context<'_>,
        is_driver_free_to_write: bool,
    ) -> Poll<Taken> {
        let mut queue = self.lock();
        if queue.chunks.is_empty() && queue.replies == 0 && queue.end.is_none() {
            if mutant!("outbox-wakeup-lost") {
                drop(queue);
                queue = self.lock();
            }
            queue.is_driver_free_to_write = is_driver_free_to_write;
            match &mut queue.waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => queue.waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        Poll::Ready(Taken {
            chunks: std::mem::take(&mut queue.chunks),
            head_written: std::mem::take(&mut queue.head_written),
            replies: std::mem::take(&mut queue.replies),
            answered: std::mem::take(&mut queue.answered),
            more: std::mem::take(&mut queue.more),
            end: queue.end,
        })
    }

    /// Remembers that `bytes` of what was taken have left.
    pub(crate) fn written(&self, bytes: usize) {
        // What the task has written comes before what the driver writes once it sees this.
        self.written.fetch_add(bytes as u64, Ordering::Release);
        let paid = |owed: u64| Some(owed.saturating_sub(bytes as u64));
        let before = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
        // Never an error, because of `Some`. One that is cut off owes nothing any more.
        let before = before.unwrap_or_else(|owed| owed);
        self.all.0.fetch_sub(before.min(bytes as u64), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that holds the lock can panic half-way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.forgive();
    }
}

/// To be woken when the queue is not locked any more.
fn take_waker(mut queue: MutexGuard<'_, Queue>) -> Option<Waker> {
    queue.waker.take()
}

impl Queue {
    fn append(&mut self, mut outgoing: Outgoing) {
        self.answered.append(&mut outgoing.answered);
        self.pushed += outgoing.frames.len() as u64;
        self.replies += outgoing.replies;
        self.more |= outgoing.more;
        match self.chunks.last_mut() {
            _ if outgoing.frames.is_empty() => {}
            Some(last) if last.len() + outgoing.frames.len() <= COALESCE_BYTES_MAX => {
                last.extend_from_slice(&outgoing.frames);
            }
            Some(_) | None => self.begin_chunk(outgoing.frames),
        }
        if outgoing.close {
            self.end = Some(End::AfterBytes);
        }
    }

    /// Behind the first chunk they wait, perhaps for long: they hold about as much memory as they count.
    fn begin_chunk(&mut self, frames: Vec<u8>) {
        if let Some(last) = self.chunks.last_mut() {
            last.shrink_to_fit();
        }
        match mutant!("answers-overtake") {
            true => self.chunks.insert(0, frames),
            false => self.chunks.push(frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Config;

    fn outbox(bytes_max: usize, stall_ms: u64) -> Outbox {
        let mut limits = Limits::of(&Config::without_file());
        limits.outgoing_bytes_max = bytes_max;
        limits.outgoing_stall_max = Duration::from_millis(stall_ms);
        Outbox::new(&limits, Arc::default())
    }

    fn outgoing(bytes: usize) -> Outgoing {
        Outgoing { frames: vec![7; bytes], replies: 1, ..Outgoing::default() }
    }

    fn push(outbox: &Outbox, outgoing: Outgoing, now_us: u64) -> bool {
        outbox.push(outgoing, now_us, |_| 0, Waker::wake) != Pushed::CutOff
    }

    fn written() -> Pushed {
        Pushed::Written(AnsweredList::new())
    }

    fn take(outbox: &Outbox) -> Option<Taken> {
        match outbox.poll_take(&Context::from_waker(Waker::noop()), true) {
            Poll::Ready(taken) => Some(taken),
            Poll::Pending => None,
        }
    }

    #[test]
    fn small_answers_leave_as_one_buffer_and_large_ones_are_not_copied() {
        let outbox = outbox(1 << 20, 0);
        for bytes in [10, 20, COALESCE_BYTES_MAX] {
            assert!(push(&outbox, outgoing(bytes), 0));
        }
        let taken = take(&outbox).unwrap();
        let lengths: Vec<usize> = taken.chunks.iter().map(Vec::len).collect();
        assert_eq!((lengths, taken.replies), (vec![30, COALESCE_BYTES_MAX], 3));
        assert!(take(&outbox).is_none());
    }

    #[test]
    fn the_driver_writes_only_while_the_task_waits_for_the_client_and_nothing_is_queued() {
        let outbox = outbox(1 << 20, 0);
        let now = |bytes: &[u8]| bytes.len();
        assert_eq!(
            outbox.push(outgoing(10), 0, now, Waker::wake),
            Pushed::Queued,
            "the task has not begun"
        );
        assert_eq!(
            outbox.push(outgoing(10), 0, now, Waker::wake),
            Pushed::Queued,
            "10 bytes are queued"
        );
        assert_eq!(take(&outbox).unwrap().replies, 2);
        assert!(take(&outbox).is_none());
        assert_eq!(
            outbox.push(outgoing(10), 0, now, Waker::wake),
            Pushed::Queued,
            "20 bytes are half written"
        );
        take(&outbox);
        outbox.written(30);
        assert!(take(&outbox).is_none());
        assert_eq!(outbox.push(outgoing(10), 0, now, Waker::wake), written());
        let taken = take(&outbox).expect("the task learns that a request is answered");
        assert_eq!((taken.chunks.len(), taken.replies), (0, 1));
        assert!(outbox.poll_take(&Context::from_waker(Waker::noop()), false).is_pending());
        assert_eq!(
            outbox.push(outgoing(10), 0, now, Waker::wake),
            Pushed::Queued,
            "the task wants to know"
        );
    }

    #[test]
    fn a_task_that_begins_to_wait_for_answers_while_the_driver_writes_is_woken() {
        let outbox = outbox(1 << 20, 0);
        assert!(take(&outbox).is_none());
        let write = |bytes: &[u8]| {
            let waiting = outbox.poll_take(&Context::from_waker(Waker::noop()), false);
            assert!(waiting.is_pending());
            bytes.len()
        };
        assert_eq!(outbox.push(outgoing(10), 0, write, Waker::wake), written());
        assert!(outbox.lock().waker.is_none(), "it was called");
    }

    #[test]
    fn what_the_driver_could_not_write_is_left_to_the_task() {
        let outbox = outbox(1 << 20, 0);
        assert!(take(&outbox).is_none());
        assert_eq!(outbox.push(outgoing(10), 0, |_| 4, Waker::wake), Pushed::Queued);
        assert_eq!(outbox.push(outgoing(5), 0, |bytes| bytes.len(), Waker::wake), Pushed::Queued);
        let taken = take(&outbox).unwrap();
        assert_eq!((taken.chunks[0].len(), taken.head_written, taken.replies), (15, 4, 2));
        outbox.written(11);
        assert!(take(&outbox).is_none());
        assert_eq!(outbox.push(outgoing(5), 0, |bytes| bytes.len(), Waker::wake), written());
    }

    #[test]
    fn nothing_is_taken_behind_a_close() {
        let outbox = outbox(1 << 20, 0);
        assert!(push(&outbox, Outgoing { close: true, ..outgoing(1) }, 0));
        assert!(push(&outbox, outgoing(1), 0));
        let taken = take(&outbox).unwrap();
        assert_eq!((taken.chunks.len(), taken.end), (1, Some(End::AfterBytes)));
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut_off_above_the_limit_and_not_at_it() {
        let outbox = outbox(100, 0);
        assert!(push(&outbox, outgoing(100), 0));
        assert!(push(&outbox, outgoing(1), 1), "100 bytes wait: that is the limit");
        assert!(!push(&outbox, outgoing(1), 2), "101 bytes wait");
        assert_eq!(take(&outbox).unwrap().end, Some(End::TooSlow));
    }

    #[test]
    fn one_answer_may_be_larger_than_the_limit() {
        let outbox = outbox(100, 0);
        assert!(push(&outbox, outgoing(1000), 0));
        assert_eq!(take(&outbox).unwrap().chunks[0].len(), 1000);
    }

    #[test]
    fn a_client_that_keeps_taking_is_not_cut_off_whatever_is_queued() {
        let outbox = outbox(100, 10);
        for now_ms in 0..1000 {
            assert!(push(&outbox, outgoing(1000), now_ms * 1000), "after {now_ms} ms");
            take(&outbox);
            if now_ms >= 5 {
                outbox.written(1000);
            }
        }
    }

    #[test]
    fn a_client_that_takes_a_trickle_is_cut_off_when_the_oldest_bytes_are_old() {
        let outbox = outbox(100, 10);
        let mut now_ms = 0;
        while push(&outbox, outgoing(1000), now_ms * 1000) {
            outbox.written(1);
            now_ms += 1;
            assert!(now_ms < 100, "never cut off");
        }
        assert_eq!(now_ms, 10);
    }

    #[test]
    fn every_byte_counts_from_when_it_is_queued_until_it_is_written_or_thrown_away() {
        let outbox = outbox(100, 10_000);
        let all = Arc::clone(&outbox.all);
        outbox.push(outgoing(10), 0, |_| 0, Waker::wake);
        outbox.push(outgoing(20), 0, |_| 0, Waker::wake);
        assert_eq!((all.bytes(), outbox.debt(0).bytes), (30, 30));
        take(&outbox);
        assert_eq!(all.bytes(), 30, "taken and not written");
        outbox.written(25);
        outbox.written(5);
        assert!(take(&outbox).is_none());
        assert_eq!(outbox.push(outgoing(10), 0, |bytes| bytes.len(), Waker::wake), written());
        assert_eq!(all.bytes(), 0, "the driver has written it");
        take(&outbox);
        assert!(take(&outbox).is_none());
        outbox.push(outgoing(10), 0, |_| 4, Waker::wake);
        assert_eq!(all.bytes(), 6, "the driver has written some of it");
        outbox.cut_off();
        assert_eq!((all.bytes(), outbox.debt(0).bytes), (0, 0));
        let taken = take(&outbox).expect("the end");
        assert_eq!((taken.chunks.len(), taken.end), (0, Some(End::TooSlow)));
        outbox.written(6);
        outbox.push(outgoing(10), 0, |_| 0, Waker::wake);
        assert_eq!(all.bytes(), 0, "nothing counts any more");
        let other = Outbox::new(&Limits::of(&Config::without_file()), Arc::clone(&all));
        other.push(outgoing(7), 0, |_| 0, Waker::wake);
        assert_eq!(all.bytes(), 7);
        drop(other);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn a_client_that_takes_nothing_owes_more_than_one_that_takes_some() {
        let (stalled, reading) = (outbox(1 << 20, 10), outbox(1 << 20, 10));
        for outbox in [&stalled, &reading] {
            outbox.push(outgoing(100), 0, |_| 0, Waker::wake);
        }
        reading.push(outgoing(1000), 0, |_| 0, Waker::wake);
        take(&reading);
        let now_us = 9_999;
        assert!(reading.debt(now_us) > stalled.debt(now_us), "neither has waited for long");
        reading.written(100);
        reading.push(outgoing(1), 5_000, |_| 0, Waker::wake);
        let now_us = 10_000;
        assert!(reading.debt(now_us) < stalled.debt(now_us));
        assert_eq!(reading.debt(now_us).bytes, 1001);
    }
}
