//! Long work in the background stops often, so that whoever waits for its core has it at once.
//!
//! The threads that serve let others have their time (`server/sched.rs`), and that of a thread which writes
//! an image is 3 ms each time that one of them is woken, whatever its priority. A client with a fixed number
//! of requests in flight then falls behind for as long as the image takes. Where cores are short and nothing
//! waits for the image, the thread therefore takes a small part of one core and leaves the rest.
//!
//! *Invariant*: it gives others at most [`GIVEN_TIMES`] times the time that it takes, so that it gets on
//! beside whoever computes without an end. *Never* holds anything that others wait for while it stands back.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps of work from one time to the next: some ten microseconds.
const STEPS: u32 = 256;
/// Of a record that is read, put in its place and written. One to compare two of them.
pub(super) const RECORD_STEPS: u32 = 8;
/// Of what takes some ten microseconds by itself.
pub(super) const BLOCK_STEPS: u32 = STEPS;
/// Of the time that it worked, what others are given at most.
const GIVEN_TIMES: u32 = 8;
/// It works so long between two rests: a rest costs some microseconds.
const RUN_MIN: Duration = Duration::from_micros(50);
/// Who worked longer than this since its last rest was kept from its core meanwhile.
const RUN_MAX: Duration = Duration::from_micros(250);

/// Whether a thread in the background may take its time. Whoever hands work to it knows what waits for that.
#[derive(Clone, Debug, Default)]
pub struct Leisure(Arc<AtomicBool>);

thread_local! {
    /// That of this thread. Without one that was given, there is none.
    static LEISURE: RefCell<Leisure> = RefCell::default();
}

impl Leisure {
    /// Says whether there is time.
    pub fn set(&self, is_there: bool) {
        self.0.store(is_there, Ordering::Relaxed);
    }

    /// From now on this is the calling thread's.
    pub fn begin(&self) {
        LEISURE.set(self.clone());
    }

    fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of one long work of the thread that makes it.
#[derive(Debug)]
pub(super) struct Courtesy {
    leisure: Leisure,
    steps: u32,
    /// When it last went on working.
    since: Instant,
    worked: Duration,
    given: Duration,
}

/// How a thread lets others work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Until those who wait for this core had their turn.
    Yield,
    Sleep(Duration),
}

impl Wait {
    fn now(self) {
        match self {
            Self::Yield => std::thread::yield_now(),
            Self::Sleep(time) => std::thread::sleep(time),
        }
    }
}

impl Courtesy {
    pub(super) fn new() -> Self {
        Self {
            leisure: LEISURE.with_borrow(Clone::clone),
            steps: 0,
            since: Instant::now(),
            worked: Duration::ZERO,
            given: Duration::ZERO,
        }
    }

    /// So many steps of the work are done.
    pub(super) fn did(&mut self, steps: u32) {
        self.steps += steps;
        if self.steps >= STEPS {
            self.steps = 0;
            self.give_way(Wait::now, Instant::now);
        }
    }

    fn give_way(&mut self, wait: impl FnOnce(Wait), now: impl Fn() -> Instant) {
        let stopped = now();
        let ran = stopped - self.since;
        let how = if !self.leisure.is_there() {
            Wait::Yield
        } else if ran >= RUN_MIN {
            Wait::Sleep(ran.min(RUN_MAX) * GIVEN_TIMES)
        } else {
            return;
        };
        self.worked += ran;
        self.since = stopped;
        if self.given < self.worked * GIVEN_TIMES {
            wait(how);
            self.since = now();
            self.given += self.since - stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Works for `run` so many times; each time that it stands back costs `more` than it asks for. How it
    /// stood back, each time.
    fn stood_back(leisure: &Leisure, times: u32, run: Duration, more: Duration) -> Vec<Wait> {
        leisure.begin();
        let mut courtesy = Courtesy::new();
        let now = Cell::new(courtesy.since);
        let mut waits = Vec::new();
        for _ in 0..times {
            now.set(now.get() + run);
            let stand_back = |wait| {
                waits.push(wait);
                let asked = if let Wait::Sleep(time) = wait { time } else { Duration::ZERO };
                now.set(now.get() + asked + more);
            };
            courtesy.give_way(stand_back, || now.get());
        }
        waits
    }

    #[test]
    fn who_has_nobody_beside_it_stands_back_every_time() {
        for more in [Duration::ZERO, 3 * MS] {
            assert_eq!(stood_back(&Leisure::default(), 100, MS, more), vec![Wait::Yield; 100]);
        }
    }

    #[test]
    fn beside_somebody_without_an_end_it_gets_its_part() {
        let leisure = Leisure::default();
        assert_eq!(stood_back(&leisure, 1000, MS, 80 * MS).len() as u32, 1000 * GIVEN_TIMES / 80);
        leisure.set(true);
        let rest = RUN_MAX * GIVEN_TIMES;
        let rests = stood_back(&leisure, 1000, MS, 80 * MS - rest);
        assert_eq!(rests, vec![Wait::Sleep(rest); 1000 * GIVEN_TIMES as usize / 80]);
    }

    #[test]
    fn with_time_it_rests_several_times_as_long_as_it_works() {
        let leisure = Leisure::default();
        leisure.set(true);
        let rests = stood_back(&leisure, 100, RUN_MIN / 2, Duration::ZERO);
        assert_eq!(rests, vec![Wait::Sleep(RUN_MIN * GIVEN_TIMES); 50]);
        leisure.set(false);
        let waits = stood_back(&leisure, 100, RUN_MIN / 2, Duration::ZERO);
        assert_eq!(waits, vec![Wait::Yield; 100], "somebody waits for it");
    }
}
