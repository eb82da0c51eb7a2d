//! Admission control: a queue that lets the clients of a reconnect storm act a few at a time.
//!
//! A thousand clients that come back after a pause, or that leave at one moment, are a thousand tasks that can
//! run before those of clients that send requests all the time.
//!
//! *Owns* the queue. *Invariants*: clients are admitted in the order of their coming, at the rate of
//! `clients/pace.rs`; a client that comes alone does not wait. *Never* runs between storms: its task ends with
//! them. *Never* decides which clients belong to a storm: see `clients/idle_clients.rs`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::pace::Pace;
use crate::server::limits::CROWD_TICK;
use crate::server::sched::Scheduling;
use crate::supervision::{self, Task};

/// What they pass one by one.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    /// Told of a crowd until the last one of it is through.
    scheduling: Arc<Scheduling>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// In the order of their places, the first of which is `called`.
    waiting: VecDeque<Waker>,
    /// Every place below this may pass.
    called: u64,
    /// Whether a task calls them.
    is_turning: bool,
}

/// A place in the queue: of somebody who waits.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<u64>);

impl Place {
    /// Whether somebody waits there.
    #[must_use]
    pub(crate) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}

impl Admission {
    /// Nobody is there yet. Of a crowd, one is let through in each `interval`.
    #[must_use]
    pub(crate) fn new(interval: Duration, scheduling: Arc<Scheduling>) -> Self {
        let state = State {
            pace: Pace::new(interval, Instant::now()),
            waiting: VecDeque::new(),
            called: 0,
            is_turning: false,
        };
        Self { state: Mutex::new(state), scheduling }
    }

    /// Waits for a turn.
    pub(crate) async fn pass(self: &Arc<Self>) {
        let mut place = Place::default();
        poll_fn(|context| self.poll_pass(context, &mut place)).await;
    }

    /// As [`Admission::pass`]; `place` is kept until it is ready. In a runtime only.
    pub(crate) fn poll_pass(
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
        if state.waiting.is_empty() && state.pace.may_come(Instant::now()) {
            return Poll::Ready(());
        }
        place.0 = Some(state.called + state.waiting.len() as u64);
        state.waiting.push_back(context.waker().clone());
        if !std::mem::replace(&mut state.is_turning, true) {
            supervision::spawn(Task::Admission, Arc::clone(self).turn());
        }
        Poll::Pending
    }

    /// Lets through whoever may come, until nobody waits.
    async fn turn(self: Arc<Self>) {
        loop {
            sleep(CROWD_TICK).await;
            let Some(called) = self.call(Instant::now()) else { return };
            called.into_iter().for_each(Waker::wake);
        }
    }

    /// Those whose turn it is now; nothing if nobody waits.
    fn call(&self, now: Instant) -> Option<Vec<Waker>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.is_turning = false;
            return None;
        }
        self.scheduling.crowd_comes(now);
        let mut count = 0;
        while count < state.waiting.len() && state.pace.may_come(now) {
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
    use super::*;
    use crate::server::limits::CROWD_MIN;

    /// As many as do not wait.
    const MANY: usize = CROWD_MIN as usize;
    const INTERVAL: Duration = Duration::from_micros(256);

    fn admission() -> Arc<Admission> {
        Arc::new(Admission::new(INTERVAL, Arc::default()))
    }

    /// Has `count` pass, and counts them.
    fn crowd(admission: &Arc<Admission>, count: usize) -> Arc<Mutex<Vec<usize>>> {
        let passed = Arc::new(Mutex::new(Vec::new()));
        for number in 0..count {
            let (admission, passed) = (Arc::clone(admission), Arc::clone(&passed));
            tokio::spawn(async move {
                admission.pass().await;
                passed.lock().unwrap().push(number);
            });
        }
        passed
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_passes_in_the_order_of_coming() {
        let admission = admission();
        let passed = crowd(&admission, 3 * MANY);
        while passed.lock().unwrap().len() < 3 * MANY {
            sleep(CROWD_TICK).await;
        }
        assert_eq!(*passed.lock().unwrap(), (0..3 * MANY).collect::<Vec<_>>());
        while admission.lock().is_turning {
            sleep(CROWD_TICK).await;
        }
    }

    #[tokio::test]
    async fn no_more_pass_at_a_time_than_may() {
        let admission = admission();
        let mut context = Context::from_waker(Waker::noop());
        let mut places: Vec<Place> = (0..2 * MANY).map(|_| Place::default()).collect();
        let mut pass = || {
            let before = places.len();
            places.retain_mut(|place| admission.poll_pass(&mut context, place).is_pending());
            before - places.len()
        };
        let at_once = pass();
        assert!((MANY..MANY + 10).contains(&at_once), "{at_once}");
        assert_eq!(pass(), 0);
        let later = Instant::now() + INTERVAL * MANY as u32 / 2;
        let called = admission.call(later).unwrap().len();
        assert!((MANY / 2..MANY / 2 + 10).contains(&called), "{called}");
        assert_eq!(pass(), called);
        assert_eq!(admission.call(later + INTERVAL * MANY as u32).unwrap().len(), places.len());
    }

    #[tokio::test]
    async fn a_crowd_is_there_until_the_last_one_is_through() {
        let admission = admission();
        let mut context = Context::from_waker(Waker::noop());
        let mut now = Instant::now();
        let _ = std::iter::repeat_with(|| admission.poll_pass(&mut context, &mut Place::default()))
            .take(2 * MANY)
            .filter(Poll::is_pending)
            .count();
        while admission.call(now).is_some() {
            assert!(admission.scheduling.is_crowded(now));
            now += Duration::from_secs(10);
        }
        assert!(!admission.scheduling.is_crowded(now));
    }

    #[tokio::test]
    async fn whoever_comes_alone_passes_at_once_and_again() {
        let admission = admission();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..MANY {
            assert!(admission.poll_pass(&mut context, &mut Place::default()).is_ready());
        }
        assert!(!admission.lock().is_turning);
    }

    #[tokio::test]
    async fn whoever_leaves_the_queue_keeps_nobody_back() {
        let admission = admission();
        let mut context = Context::from_waker(Waker::noop());
        let leave = || admission.poll_pass(&mut context, &mut Place::default()).is_pending();
        assert!(std::iter::repeat_with(leave).take(2 * MANY).filter(|left| *left).count() > 0);
        let passed = crowd(&admission, 1);
        while passed.lock().unwrap().is_empty() {
            sleep(CROWD_TICK).await;
        }
    }
}
