//! How the threads that serve are scheduled: by `SCHED_BATCH`, unless they wait for a core then.
//!
//! A thread that is woken takes the core from whoever runs there. On a machine with few cores that is a
//! client about to send its next request, or another thread that answers one: every request is a batch of
//! its own then, with a fsync, messages and changes of threads of its own. By `SCHED_BATCH` a thread lets
//! whoever runs come to an end, and finds more to do. It costs nothing where cores are free; where
//! somebody computes without an end, it is too polite.
//!
//! *Owns* the policy of the threads that call it. *Invariants*: if one of a server waits for a core
//! [`WAITS_TIMES`] as long as it runs, all of them are scheduled as any other for a while; niceness, and a
//! policy that the operator chose, stay; where the system does not say how long threads wait, they stay as
//! they are. *Never* raises a priority, and needs no privilege.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

/// Time between two looks at how long a thread waited.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// So often a thread must have come to run before its waits say something.
const RUNS_MIN: u64 = 8;
/// A wait for a core that may be too long, on average, and what that is of what the thread ran. Beside
/// clients and other servers of two cores, all busy, a thread waits up to twenty times as long as it runs,
/// and for what it is given to do; beside somebody who computes there, 50 to 500 times.
const LONG: Duration = Duration::from_micros(300);
const WAITS_TIMES: u64 = 32;
/// For how long threads are scheduled as any other then: first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(640);

#[cfg(target_os = "linux")]
const BATCH: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
/// Others do not count waits either.
#[cfg(not(target_os = "linux"))]
const BATCH: ThreadSchedulePolicy = OTHER;
const OTHER: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);

/// What the threads of one server have found.
#[derive(Debug, Default)]
pub struct Scheduling(Mutex<Pause>);

/// When threads are scheduled as any other.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    length: Duration,
}

impl Pause {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// A thread waited long for a core. Each pause is twice as long as the one before, unless that has
    /// been over for as long as it was.
    fn begin(&mut self, now: Instant) {
        if !self.is_over(now) {
            return;
        }
        let is_again = self.until.is_some_and(|until| now < until + self.length);
        self.length = if is_again { (self.length * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
        self.until = Some(now + self.length);
        tracing::debug!(
            seconds = self.length.as_secs(),
            "threads wait long for a core: others compute there; SCHED_OTHER for a while"
        );
    }
}

/// How the calling thread is scheduled.
#[derive(Debug)]
pub struct ThreadScheduling {
    of: Arc<Scheduling>,
    /// None: it stays as it is.
    waits: Option<Waits>,
    is_batch: bool,
    looked: Option<Instant>,
}

impl ThreadScheduling {
    /// Of the calling thread, which must be the one that looks.
    pub fn new(of: Arc<Scheduling>) -> Self {
        let is_usual = thread_schedule_policy().is_ok_and(|policy| policy == OTHER);
        let waits = is_usual.then(Waits::open).flatten();
        Self { of, waits, is_batch: false, looked: None }
    }

    /// Looks, now and then, how the thread is to be scheduled.
    pub fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        let Some(waits) = &mut self.waits else { return };
        let waits_long = waits.are_long();
        // Nothing that holds the lock can panic half-way through a change.
        let mut pause = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_batch && waits_long {
            pause.begin(now);
        }
        let is_batch = pause.is_over(now);
        if is_batch != self.is_batch {
            self.is_batch = is_batch;
            if let Err(error) = set(if is_batch { BATCH } else { OTHER }) {
                tracing::debug!(%error, "a thread's scheduling policy stays as it is");
                self.waits = None;
            }
        }
    }
}

/// Gives the calling thread a policy, and leaves it its niceness.
fn set(policy: ThreadSchedulePolicy) -> Result<(), String> {
    let niceness = rustix::process::getpriority_process(None).map_err(|error| error.to_string())?;
    // The library sets both, and says niceness on a scale of its own.
    let mut scale = (0..=u8::MAX)
        .filter_map(|of_100| Some(ThreadPriority::Crossplatform(of_100.try_into().ok()?)));
    let same = scale.find(|priority| priority.to_posix(policy).is_ok_and(|set| set == niceness));
    let same = same.ok_or_else(|| format!("niceness {niceness}"))?;
    set_thread_priority_and_policy(thread_native_id(), same, policy)
        .map_err(|error| error.to_string())
}

/// What Linux counts of the thread that opened it.
#[derive(Debug)]
struct Waits {
    counts: File,
    last: Counts,
}

/// Time on a core and waiting for one, nanoseconds, and how often it came to run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    ran_ns: u64,
    waited_ns: u64,
    runs: u64,
}

impl Counts {
    /// None if that is not what Linux writes.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Self { ran_ns: next()?, waited_ns: next()?, runs: next()? })
    }

    fn since(self, last: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(last.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(last.waited_ns),
            runs: self.runs.saturating_sub(last.runs),
        }
    }

    fn says_something(self) -> bool {
        self.runs >= RUNS_MIN
    }

    fn is_long_wait(self) -> bool {
        let mean = Duration::from_nanos(self.waited_ns.checked_div(self.runs).unwrap_or(0));
        mean >= LONG && self.waited_ns / WAITS_TIMES >= self.ran_ns
    }
}

impl Waits {
    /// None if the system does not count.
    fn open() -> Option<Self> {
        let counts = File::open("/proc/thread-self/schedstat").ok()?;
        let last = read(&counts)?;
        Some(Self { counts, last })
    }

    /// Whether the thread waited long since the last time that it came to run often enough to say.
    fn are_long(&mut self) -> bool {
        let Some(now) = read(&self.counts) else { return false };
        let new = now.since(self.last);
        if new.says_something() {
            self.last = now;
        }
        new.says_something() && new.is_long_wait()
    }
}

fn read(counts: &File) -> Option<Counts> {
    let mut text = [0; 128];
    let len = counts.read_at(&mut text, 0).ok()?;
    Counts::parse(&text[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> ThreadSchedulePolicy {
        thread_schedule_policy().unwrap()
    }

    #[test]
    fn a_thread_is_scheduled_as_a_batch_unless_one_of_its_server_waits_long_for_a_core() {
        std::thread::spawn(|| {
            let of = Arc::<Scheduling>::default();
            let mut thread = ThreadScheduling::new(Arc::clone(&of));
            assert!(thread.waits.is_some(), "Linux counts how long threads wait");
            let start = Instant::now();
            thread.look(start);
            assert_eq!(policy(), BATCH);
            of.0.lock().unwrap().begin(start);
            thread.look(start + LOOK_INTERVAL / 2);
            assert_eq!(policy(), BATCH, "it is not time to look yet");
            thread.look(start + LOOK_INTERVAL);
            assert_eq!(policy(), OTHER);
            thread.look(start + PAUSE_MIN);
            assert_eq!(policy(), BATCH);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_keeps_its_niceness() {
        std::thread::spawn(|| {
            rustix::process::nice(3).unwrap();
            ThreadScheduling::new(Arc::default()).look(Instant::now());
            assert_eq!(policy(), BATCH);
            assert_eq!(rustix::process::getpriority_process(None).unwrap(), 3);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_policy_that_was_chosen_stays() {
        std::thread::spawn(|| {
            set(ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle)).unwrap();
            ThreadScheduling::new(Arc::default()).look(Instant::now());
            assert_eq!(policy(), ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn waits_are_long_that_are_many_times_what_a_thread_runs() {
        let of = |ran_us: u64, waited_us: u64, runs| Counts {
            ran_ns: ran_us * 1000,
            waited_ns: waited_us * 1000,
            runs,
        };
        assert!(of(30, 2000, 1).is_long_wait());
        assert!(!of(100, 2000, 1).is_long_wait(), "clients have as much to do as the server");
        assert!(!of(1, 200, 1).is_long_wait(), "nobody notices");
        assert!(of(30 * 8, 2000 * 8, 8).is_long_wait());
        assert!(!of(0, 0, 0).is_long_wait());
    }

    #[test]
    fn a_thread_hears_of_its_own_waits_and_of_each_once() {
        let mut waits = Waits::open().unwrap();
        let begin = waits.last;
        while !read(&waits.counts).unwrap().since(begin).says_something() {
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(waits.last.runs == begin.runs);
        waits.are_long();
        assert!(waits.last.runs >= begin.runs + RUNS_MIN);
        assert!(waits.last.ran_ns > begin.ran_ns);
        let heard = waits.last;
        waits.are_long();
        assert_eq!(waits.last.runs, heard.runs, "it did not come to run often enough since");
    }

    #[test]
    fn what_linux_writes_is_understood_and_nothing_else() {
        let counts = Counts::parse(b"1171 2932 3\n").unwrap();
        assert_eq!((counts.ran_ns, counts.waited_ns, counts.runs), (1171, 2932, 3));
        for other in [&b""[..], b"1 2", b"1 2 x", b"-1 2 3", b"\xff"] {
            assert!(Counts::parse(other).is_none());
        }
    }

    #[test]
    fn pauses_grow_while_they_are_of_no_use_and_begin_anew_when_they_were() {
        let mut pause = Pause::default();
        let mut now = Instant::now();
        assert!(pause.is_over(now));
        for length in [10, 20, 40, 80, 160, 320, 640, 640].map(Duration::from_secs) {
            pause.begin(now);
            pause.begin(now + length / 2);
            assert!(!pause.is_over(now + length - Duration::from_millis(1)));
            now += length;
            assert!(pause.is_over(now));
        }
        now += PAUSE_MAX;
        pause.begin(now);
        assert!(pause.is_over(now + PAUSE_MIN));
    }
}
