//! The hand-over from the driver to an I/O thread: which tasks to wake.
//!
//! To wake a task of another thread is a system call each time, whether or not that thread is awake. So the driver
//! collects the tasks that a batch has answers for, and puts them here at once: one lock, and at most one system call.
//!
//! *Owns* the tasks between the two threads. *Invariants*: each batch that is put is taken, once, unless the thread has
//! ended; it is empty again before the thread sleeps; the lock is held for a move of pointers. Bounded by the
//! connections: the outbox of a task gives its waker away when it is put here, and has none until that thread has run
//! the task again. *Never* holds answers: their order is the outbox's. Checked in every order of steps by
//! tests/hand_over.

use std::task::{Context, Poll, Waker};

use super::sync::{Mutex, MutexGuard, PoisonError};

/// Tasks of one I/O thread that are to be woken.
#[derive(Debug, Default)]
pub(crate) struct Wakeups(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tasks: Vec<Waker>,
    /// Batches that were put here.
    put: u64,
    /// Batches whose tasks have run.
    passed: u64,
    /// Whether there is no thread any more that takes them.
    is_closed: bool,
    /// The thread, while it waits for a batch.
    taker: Option<Waker>,
    /// The driver, while it waits for tasks to have run.
    putter: Option<Waker>,
}

impl Wakeups {
    /// Takes everything out of `tasks`, which must not be empty. Returns the number of this batch, from 1 on.
    pub(crate) fn put(&self, tasks: &mut Vec<Waker>) -> u64 {
        let mut state = self.lock();
        if state.tasks.is_empty() {
            std::mem::swap(&mut state.tasks, tasks);
        } else {
            state.tasks.append(tasks);
        }
        state.put += 1;
        let (put, taker) = (state.put, state.taker.take());
        let refused = state.is_closed.then(|| std::mem::take(&mut state.tasks));
        drop(state);
        drop(refused);
        wake(taker);
        put
    }

    /// Ready with all tasks that are to be woken, which are appended to `tasks`, and the number of the last batch of
    /// them; with nothing when it is closed.
    pub(crate) fn poll_take(
        &self,
        context: &Context<'_>,
        tasks: &mut Vec<Waker>,
    ) -> Poll<Option<u64>> {
        let mut state = self.lock();
        if state.is_closed {
            return Poll::Ready(None);
        }
        if state.tasks.is_empty() {
            if mutant!("wakeups-lost") {
                drop(state);
                state = self.lock();
            }
            state.taker = Some(context.waker().clone());
            return Poll::Pending;
        }
        tasks.append(&mut state.tasks);
        Poll::Ready(Some(state.put))
    }

    /// All tasks of the batches up to this one have run.
    pub(crate) fn pass(&self, number: u64) {
        let mut state = self.lock();
        state.passed = number;
        let putter = state.putter.take();
        drop(state);
        if !mutant!("passed-is-not-told") {
            wake(putter);
        }
    }

    /// Ready when all tasks of the batches up to this one have run, or never will.
    pub(crate) fn poll_passed(&self, context: &Context<'_>, number: u64) -> Poll<()> {
        let mut state = self.lock();
        if state.passed >= number || state.is_closed {
            return Poll::Ready(());
        }
        state.putter = Some(context.waker().clone());
        Poll::Pending
    }

    /// Nothing is taken any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.tasks);
        let (taker, putter) = (state.taker.take(), state.putter.take());
        drop(state);
        drop(left);
        wake(taker);
        if !mutant!("closed-is-not-told") {
            wake(putter);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
