//! Background throttle: how much of a core checkpoints, compaction and images may take.
//!
//! The server decides (`server/cpu_policy`) and sets a [`WorkBudget`]; the work asks it every few steps. Where serving
//! threads share few cores with it, a thread that writes an image would otherwise take time from them whatever its
//! priority, and a client with a fixed number of requests in flight would fall behind for as long as the image takes.
//!
//! *Invariants*: the work rests at most as many times as long as it runs as the budget says, or [`TURN_TIMES`], so
//! that it makes progress beside a thread that computes without an end; without a limit it neither rests nor reads a
//! clock. *Never* holds a lock while it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::disk_throttle::DiskBudget;

/// Steps of work from one time to the next: some ten microseconds.
const STEPS: u32 = 256;
/// Of a record that is read, put in its place and written. One to compare two of them.
pub(super) const RECORD_STEPS: u32 = 8;
/// Of what takes some ten microseconds by itself, or more.
pub(super) const BLOCK_STEPS: u32 = STEPS;
/// It works so long between two rests: a rest costs some microseconds.
const RUN_MIN: Duration = Duration::from_micros(50);
/// Of the time that it works, what others get at most by having their turns.
const TURN_TIMES: u32 = 8;
/// The longest rest: a caller that wants the thread to end waits for that.
const REST_MAX: Duration = Duration::from_millis(100);

/// What work in the background asks how much of a core it may take, and images of the log's disk; clones are one
/// budget. By default it lets other threads of its core have their turns, and does not rest.
#[derive(Clone, Debug, Default)]
pub struct WorkBudget {
    times: Arc<AtomicU32>,
    disk: Option<DiskBudget>,
}

/// In place of how many times as long as it works a thread rests: there is no limit.
const UNLIMITED: u32 = u32::MAX;

impl WorkBudget {
    /// The most that a thread may rest: it still takes a hundredth part of a core.
    pub const TIMES_MAX: u32 = 99;

    /// Without a limit: nothing is given up to other threads but what the system takes.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { times: Arc::new(UNLIMITED.into()), disk: None }
    }

    /// The same, of work that takes little of the log's disk while the log is written to.
    #[must_use]
    pub fn beside_log(self, disk: &DiskBudget) -> Self {
        Self { disk: Some(disk.clone()), ..self }
    }

    /// What an image asks that has had the disk since `begun`, for so many bytes: rests as long as it is to.
    pub(super) fn had_disk_since(&self, begun: Instant, bytes: usize) {
        if let Some(disk) = &self.disk {
            disk.had_since(begun, bytes as u64);
        }
    }

    /// Says how many times as long as it works a thread is to rest; 0: others only have their turns.
    pub fn set(&self, times: u32) {
        self.times.store(times.min(WorkBudget::TIMES_MAX), Ordering::Relaxed);
    }

    /// How many times as long as it works a thread rests; `None` without a limit.
    #[must_use]
    pub fn rest_times(&self) -> Option<u32> {
        let times = self.times.load(Ordering::Relaxed);
        (times != UNLIMITED).then_some(times)
    }
}

/// Of one long work of the thread that makes it.
#[derive(Debug)]
pub(super) struct CpuThrottle {
    work_budget: WorkBudget,
    steps: u32,
    /// What the thread had computed when it was last looked at.
    computed: Duration,
    /// Time that it may give others, and what it gave.
    allowed: Duration,
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

impl CpuThrottle {
    pub(super) fn new(work_budget: &WorkBudget) -> Self {
        Self {
            work_budget: work_budget.clone(),
            steps: 0,
            computed: thread_computed(),
            allowed: Duration::ZERO,
            given: Duration::ZERO,
        }
    }

    /// So many steps of the work are done.
    pub(super) fn did(&mut self, steps: u32) {
        self.steps += steps;
        if self.steps >= STEPS {
            self.steps = 0;
            if let Some(times) = self.work_budget.rest_times() {
                self.give_way(times, Wait::now, Instant::now, thread_computed());
            }
        }
    }

    /// `computed` is what the thread has by now.
    fn give_way(
        &mut self,
        times: u32,
        wait: impl FnOnce(Wait),
        now: impl Fn() -> Instant,
        computed: Duration,
    ) {
        let ran = computed.saturating_sub(self.computed);
        let how = match times {
            0 => Wait::Yield,
            _ if ran >= RUN_MIN => Wait::Sleep((ran * times).min(REST_MAX)),
            _ => return,
        };
        self.allowed += ran * times.max(TURN_TIMES);
        self.computed = computed;
        if self.given < self.allowed {
            let stopped = now();
            wait(how);
            self.given += now() - stopped;
        }
    }
}

/// Time that the calling thread had a core.
fn thread_computed() -> Duration {
    // Neither is ever negative.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Works for `run` so many times; each time that it stands back costs `more` than it asks for. How it
    /// stood back, each time.
    fn stood_back(
        work_budget: &WorkBudget,
        times: u32,
        run: Duration,
        more: Duration,
    ) -> Vec<Wait> {
        let mut cpu_throttle = CpuThrottle::new(work_budget);
        let now = Cell::new(Instant::now());
        let mut computed = cpu_throttle.computed;
        let mut waits = Vec::new();
        for _ in 0..times {
            computed += run;
            let stand_back = |wait| {
                waits.push(wait);
                let asked = if let Wait::Sleep(time) = wait { time } else { Duration::ZERO };
                now.set(now.get() + asked + more);
            };
            let Some(times) = work_budget.rest_times() else { continue };
            cpu_throttle.give_way(times, stand_back, || now.get(), computed);
        }
        waits
    }

    #[test]
    fn work_that_no_other_thread_is_beside_yields_every_time() {
        for more in [Duration::ZERO, 3 * MS] {
            assert_eq!(stood_back(&WorkBudget::default(), 100, MS, more), vec![Wait::Yield; 100]);
        }
    }

    #[test]
    fn beside_somebody_without_an_end_it_gets_its_part() {
        let work_budget = WorkBudget::default();
        assert_eq!(
            stood_back(&work_budget, 1000, MS, 80 * MS).len() as u32,
            1000 * TURN_TIMES / 80
        );
        for times in [3, TURN_TIMES, 64] {
            work_budget.set(times);
            let (rest, part) = (MS * times, times.max(TURN_TIMES));
            let rests = stood_back(&work_budget, 1000, MS, 160 * MS - rest);
            assert_eq!(rests, vec![Wait::Sleep(rest); (1000 * part).div_ceil(160) as usize]);
        }
    }

    #[test]
    fn without_a_limit_it_never_stands_back() {
        assert_eq!(stood_back(&WorkBudget::unlimited(), 100, MS, MS), []);
    }

    #[test]
    fn with_time_it_rests_several_times_as_long_as_it_works() {
        let work_budget = WorkBudget::default();
        work_budget.set(8);
        let rests = stood_back(&work_budget, 100, RUN_MIN / 2, Duration::ZERO);
        assert_eq!(rests, vec![Wait::Sleep(RUN_MIN * 8); 50]);
        work_budget.set(0);
        let waits = stood_back(&work_budget, 100, RUN_MIN / 2, Duration::ZERO);
        assert_eq!(waits, vec![Wait::Yield; 100], "somebody waits for it");
    }

    #[test]
    fn with_less_time_it_rests_for_less_of_it() {
        let work_budget = WorkBudget::default();
        for (times, rest) in
            [(3, 3 * RUN_MIN), (WorkBudget::TIMES_MAX + 1, RUN_MIN * WorkBudget::TIMES_MAX)]
        {
            work_budget.set(times);
            let rests = stood_back(&work_budget, 10, RUN_MIN, Duration::ZERO);
            assert_eq!(rests, vec![Wait::Sleep(rest); 10]);
        }
    }

    #[test]
    fn it_rests_long_behind_long_work_but_not_longer_than_somebody_may_wait() {
        let work_budget = WorkBudget::default();
        work_budget.set(3);
        let rests = stood_back(&work_budget, 2, 12 * MS, Duration::ZERO);
        assert_eq!(rests, [Wait::Sleep(36 * MS); 2]);
        let rests = stood_back(&work_budget, 2, 1000 * MS, Duration::ZERO);
        assert_eq!(rests, [Wait::Sleep(REST_MAX); 2]);
    }
}
