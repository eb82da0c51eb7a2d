//! A queue in front of a token bucket, for clients that each have a task of their own.
//!
//! A thousand clients that come back after a pause, or that leave at one moment, are a thousand tasks that can
//! run before those of clients that send requests all the time.
//!
//! *Owns* the queue. *Invariants*: clients pass in the order of their coming, each with a token; a client that comes
//! alone does not wait. *Never* runs between storms: its task ends with them. *Never* decides which clients belong to a
//! storm: see `idle_clients.rs`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::token_bucket::{Refill, TokenBucket};
use crate::server::cpu_policy::CoreSharing;
use crate::supervision::{self, Task};

/// Time between two looks at the clients that wait.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// What they pass one by one.
#[derive(Debug)]
pub(in crate::server) struct Gate {
    state: Mutex<State>,
    /// Told of a reconnect storm until the last one of it is through.
    sharing: Arc<CoreSharing>,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    /// In the order of their places, the first of which is `called`.
    waiting: VecDeque<Waker>,
    /// Every place below this may pass.
    called: u64,
    /// Whether a task calls them.
    is_turning: bool,
}

/// A place in the queue: of somebody who waits.
#[derive(Debug, Default)]
pub(in crate::server) struct Place(Option<u64>);

impl Place {
    /// Whether somebody waits there.
    #[must_use]
    pub(in crate::server) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}

impl Gate {
    /// No client is there yet.
    #[must_use]
    pub(super) fn new(refill: Refill, sharing: Arc<CoreSharing>) -> Self {
        let state = State {
            bucket: TokenBucket::new(refill, Instant::now()),
            waiting: VecDeque::new(),
            called: 0,
            is_turning: false,
        };
        Self { state: Mutex::new(state), sharing }
    }

    /// Waits for a turn.
    pub(in crate::server) async fn pass(self: &Arc<Self>) {
        let mut place = Place::default();
        poll_fn(|context| self.poll_pass(context, &mut place)).await;
    }

    /// As [`Gate::pass`]; `place` is kept until it is ready. In a runtime only.
    pub(in crate::server) fn poll_pass(
        self: &Arc<Self>,
        context: &mut Context<'_>,
        place: &mut Place,
    ) -> Poll<()> {
        let mut state = self.lock();
        match place.0 {
            Some(number) if number < state.called => {
                place.0 = None;
                return Poll::Ready(());
            }
            Some(number) => {
                let waits = (number - state.called) as usize;
                state.waiting[waits].clone_from(context.waker());
                return Poll::Pending;
            }
            None => {}
        }
        if state.waiting.is_empty() && state.bucket.take(Instant::now()) {
            return Poll::Ready(());
        }
        place.0 = Some(state.called + state.waiting.len() as u64);
        state.waiting.push_back(context.waker().clone());
        if !std::mem::replace(&mut state.is_turning, true) {
            supervision::spawn(Task::Admission, Arc::clone(self).turn());
        }
        Poll::Pending
    }

    /// Lets through those who may come, until none waits.
    async fn turn(self: Arc<Self>) {
        loop {
            sleep(TICK).await;
            let Some(called) = self.call(Instant::now()) else { return };
            called.into_iter().for_each(Waker::wake);
        }
    }

    /// Those whose turn it is now; nothing if none waits.
    fn call(&self, now: Instant) -> Option<Vec<Waker>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.is_turning = false;
            return None;
        }
        self.sharing.storm_comes(now);
        let mut count = 0;
        while count < state.waiting.len() && state.bucket.take(now) {
            count += 1;
        }
        state.called += count as u64;
        Some(state.waiting.drain(..count).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// As many as do not wait.
    const MANY: usize = 64;
    const INTERVAL: Duration = Duration::from_micros(256);

    fn gate() -> Arc<Gate> {
        let refill = Refill { interval: INTERVAL, burst: MANY as u32 };
        Arc::new(Gate::new(refill, Arc::default()))
    }

    /// Has `count` pass, and counts them.
    fn storm(gate: &Arc<Gate>, count: usize) -> Arc<Mutex<Vec<usize>>> {
        let passed = Arc::new(Mutex::new(Vec::new()));
        for number in 0..count {
            let (gate, passed) = (Arc::clone(gate), Arc::clone(&passed));
            tokio::spawn(async move {
                gate.pass().await;
                passed.lock().unwrap().push(number);
            });
        }
        passed
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_passes_in_the_order_of_coming() {
        let gate = gate();
        let passed = storm(&gate, 3 * MANY);
        while passed.lock().unwrap().len() < 3 * MANY {
            sleep(TICK).await;
        }
        assert_eq!(*passed.lock().unwrap(), (0..3 * MANY).collect::<Vec<_>>());
        while gate.lock().is_turning {
            sleep(TICK).await;
        }
    }

    #[tokio::test]
    async fn no_more_pass_at_a_time_than_may() {
        let gate = gate();
        let mut context = Context::from_waker(Waker::noop());
        let mut places: Vec<Place> = (0..2 * MANY).map(|_| Place::default()).collect();
        let mut pass = || {
            let before = places.len();
            places.retain_mut(|place| gate.poll_pass(&mut context, place).is_pending());
            before - places.len()
        };
        let at_once = pass();
        assert!((MANY..MANY + 10).contains(&at_once), "{at_once}");
        assert_eq!(pass(), 0);
        let later = Instant::now() + INTERVAL * MANY as u32 / 2;
        let called = gate.call(later).unwrap().len();
        assert!((MANY / 2..MANY / 2 + 10).contains(&called), "{called}");
        assert_eq!(pass(), called);
        assert_eq!(gate.call(later + INTERVAL * MANY as u32).unwrap().len(), places.len());
    }

    #[tokio::test]
    async fn a_storm_is_there_until_the_last_one_is_through() {
        let gate = gate();
        let mut context = Context::from_waker(Waker::noop());
        let mut now = Instant::now();
        let _ = std::iter::repeat_with(|| gate.poll_pass(&mut context, &mut Place::default()))
            .take(2 * MANY)
            .filter(Poll::is_pending)
            .count();
        while gate.call(now).is_some() {
            assert!(gate.sharing.is_storm(now));
            now += Duration::from_secs(10);
        }
        assert!(!gate.sharing.is_storm(now));
    }

    #[tokio::test]
    async fn a_client_that_comes_alone_passes_at_once_and_again() {
        let gate = gate();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..MANY {
            assert!(gate.poll_pass(&mut context, &mut Place::default()).is_ready());
        }
        assert!(!gate.lock().is_turning);
    }

    #[tokio::test]
    async fn a_client_that_leaves_the_queue_keeps_no_other_back() {
        let gate = gate();
        let mut context = Context::from_waker(Waker::noop());
        let leave = || gate.poll_pass(&mut context, &mut Place::default()).is_pending();
        assert!(std::iter::repeat_with(leave).take(2 * MANY).filter(|left| *left).count() > 0);
        let passed = storm(&gate, 1);
        while passed.lock().unwrap().is_empty() {
            sleep(TICK).await;
        }
    }
}
