//! Lets a crowd through a few at a time, so that nobody who is at work waits behind all of it.
//!
//! A thousand clients that are heard from at one moment after they were silent, or that leave at one
//! moment, are a thousand tasks that can run, before those of clients whose requests come all the
//! time. The work of each of them is a few microseconds up to the turnstile, and tens behind it.
//!
//! *Owns* the queue, and how many may come in a round of the runtime ([`ration`]). *Invariants*: whoever
//! waits is let through in the order of coming; nobody waits who comes alone; a crowd gets on at the same
//! pace however long the rounds are. *Never* runs between crowds: its task ends with them. *Never* knows who
//! is one of a crowd: see `silence.rs`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

use super::limits::{CROWD_INTERVAL, CROWD_PER_ROUND};
use super::sched::Scheduling;

/// How many of a crowd may come in a round behind one that took so long: at least one in each `interval`.
#[must_use]
pub fn ration(round: Duration, interval: Duration) -> usize {
    CROWD_PER_ROUND.max((round.as_micros() / interval.as_micros()) as usize)
}

/// A turnstile of one server.
#[derive(Debug)]
pub struct Turnstile {
    state: Mutex<State>,
    /// Told of everybody who has to wait.
    scheduling: Arc<Scheduling>,
}

#[derive(Debug)]
struct State {
    /// How many may pass in this round, and how many more.
    ration: usize,
    left: usize,
    /// In the order of their places, the first of which is `called`.
    waiting: VecDeque<Waker>,
    /// Every place below this may pass.
    called: u64,
    /// Whether a task counts the rounds.
    is_turning: bool,
}

/// A place in the queue: of somebody who waits.
#[derive(Debug, Default)]
pub struct Place(Option<u64>);

impl Place {
    /// Whether somebody waits there.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}

impl Turnstile {
    /// Nobody is there yet.
    #[must_use]
    pub fn new(scheduling: Arc<Scheduling>) -> Self {
        let state = State {
            ration: CROWD_PER_ROUND,
            left: CROWD_PER_ROUND,
            waiting: VecDeque::new(),
            called: 0,
            is_turning: false,
        };
        Self { state: Mutex::new(state), scheduling }
    }

    /// Waits for a turn.
    pub async fn pass(self: &Arc<Self>) {
        let mut place = Place::default();
        poll_fn(|context| self.poll_pass(context, &mut place)).await;
    }

    /// As [`Turnstile::pass`]; `place` is kept until it is ready. In a runtime only.
    pub fn poll_pass(self: &Arc<Self>, context: &mut Context<'_>, place: &mut Place) -> Poll<()> {
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
        if !std::mem::replace(&mut state.is_turning, true) {
            tokio::spawn(Arc::clone(self).turn());
        }
        if state.left > 0 {
            state.left -= 1;
            return Poll::Ready(());
        }
        self.scheduling.crowd_comes(Instant::now());
        place.0 = Some(state.called + state.waiting.len() as u64);
        state.waiting.push_back(context.waker().clone());
        Poll::Pending
    }

    /// Begins a round, until one has passed in which nobody came.
    async fn turn(self: Arc<Self>) {
        loop {
            let began = Instant::now();
            // Comes back when everybody who can run has done so.
            yield_now().await;
            let Some(called) = self.call(ration(began.elapsed(), CROWD_INTERVAL)) else { return };
            called.into_iter().for_each(Waker::wake);
        }
    }

    /// Those whose turn it is in a new round; nothing if nobody came in the last one.
    fn call(&self, ration: usize) -> Option<Vec<Waker>> {
        let mut state = self.lock();
        let has_come = state.left < state.ration || !state.waiting.is_empty();
        (state.ration, state.left) = (ration, ration);
        if !has_come {
            state.is_turning = false;
            return None;
        }
        let count = state.waiting.len().min(ration);
        state.left -= count;
        state.called += count as u64;
        Some(state.waiting.drain(..count).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn turnstile() -> Arc<Turnstile> {
        Arc::new(Turnstile::new(Arc::default()))
    }

    /// Has `count` pass, and counts them.
    fn crowd(turnstile: &Arc<Turnstile>, count: usize) -> Arc<Mutex<Vec<usize>>> {
        let passed = Arc::new(Mutex::new(Vec::new()));
        for number in 0..count {
            let (turnstile, passed) = (Arc::clone(turnstile), Arc::clone(&passed));
            tokio::spawn(async move {
                turnstile.pass().await;
                passed.lock().unwrap().push(number);
            });
        }
        passed
    }

    #[tokio::test]
    async fn a_crowd_passes_in_the_order_of_coming() {
        let turnstile = turnstile();
        let passed = crowd(&turnstile, 10 * CROWD_PER_ROUND);
        while turnstile.lock().is_turning || passed.lock().unwrap().is_empty() {
            yield_now().await;
        }
        assert_eq!(*passed.lock().unwrap(), (0..10 * CROWD_PER_ROUND).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn no_more_pass_in_a_round_than_it_is_for() {
        let turnstile = turnstile();
        let mut context = Context::from_waker(Waker::noop());
        let mut places: Vec<Place> = (0..30).map(|_| Place::default()).collect();
        let mut pass = || {
            let before = places.len();
            places.retain_mut(|place| turnstile.poll_pass(&mut context, place).is_pending());
            before - places.len()
        };
        assert_eq!((pass(), pass()), (CROWD_PER_ROUND, 0));
        assert_eq!(turnstile.call(7).unwrap().len(), 7);
        assert_eq!((pass(), pass()), (7, 0));
        assert_eq!(turnstile.call(99).unwrap().len(), 30 - CROWD_PER_ROUND - 7);
        assert_eq!(pass(), 30 - CROWD_PER_ROUND - 7);
        assert!(turnstile.call(4).is_some(), "somebody has come in the last round");
        assert!(turnstile.call(4).is_none(), "and nobody in this one");
    }

    #[test]
    fn a_crowd_gets_on_as_fast_in_long_rounds() {
        let interval = Duration::from_micros(100);
        assert_eq!(ration(Duration::ZERO, interval), CROWD_PER_ROUND);
        assert_eq!(ration(interval, interval), CROWD_PER_ROUND);
        assert_eq!(ration(100 * interval, interval), 100);
    }

    #[tokio::test]
    async fn whoever_comes_alone_passes_at_once_and_again() {
        let turnstile = turnstile();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 * CROWD_PER_ROUND {
            assert!(turnstile.poll_pass(&mut context, &mut Place::default()).is_ready());
            while turnstile.lock().is_turning {
                yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn whoever_leaves_the_queue_keeps_nobody_back() {
        let turnstile = turnstile();
        let leaves = AtomicUsize::new(0);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 * CROWD_PER_ROUND {
            let mut place = Place::default();
            let passes = turnstile.poll_pass(&mut context, &mut place).is_ready();
            leaves.fetch_add(usize::from(!passes), Ordering::Relaxed);
        }
        assert_eq!(leaves.into_inner(), 2 * CROWD_PER_ROUND);
        let passed = crowd(&turnstile, 1);
        while passed.lock().unwrap().is_empty() {
            yield_now().await;
        }
    }
}
