//! How the threads that serve are scheduled: by `SCHED_BATCH` while cores are short, unless they wait for
//! one too long then.
//!
//! A thread that is woken takes the core from the thread that runs there. On a machine with few cores that is a
//! client about to send its next request, or another thread that answers one: every request is a batch of
//! its own then, with a fsync, messages and changes of threads of its own. By `SCHED_BATCH` a thread lets
//! the running thread go on until it sleeps or has had its time, and finds more to do. Where there is less
//! to do than the cores can, there is no more to find, and all that comes of it is that some requests wait;
//! where somebody computes without an end, it is too polite: each time that a thread is woken it waits for
//! two milliseconds, and a write wakes several. The same goes for a reconnect storm: it computes
//! while it comes, and those at work have nothing to gain from it.
//!
//! *Owns* the policy of the threads that call it. *Invariants*: while cores are not short (`cores.rs`), each
//! thread is scheduled as any other; so it is, for a while and from its next look on, if one of a server
//! waits for a core for long, and many times as long as it runs, and while a reconnect storm comes; niceness stays,
//! and so does a policy that somebody else gave; where the system does not say how long threads wait, they
//! stay as they are. A thread
//! that runs for long whenever it is woken is not told from one beside busy clients: it waits that long, and
//! does as much more at once. *Never* raises a priority, and needs no privilege.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use super::CpuPolicy;
use super::background::BackgroundBudget;
use super::cores::Cores;

/// Time between two looks at how long a thread waited.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// So often a thread must have come to run before its waits say something.
const RUNS_MIN: u64 = 8;
/// What a thread waited counts for so long.
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// A wait for a core that may be too long, on average, and what that is of what the thread ran. Beside
/// clients and other servers of two cores, all busy, one that waits as long as this waits less than eleven
/// times as long as it runs; beside somebody who computes there, 20 to 500 times.
const LONG: Duration = Duration::from_micros(700);
const WAITS_TIMES: u64 = 12;
/// For how long threads are scheduled as any other then: first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(640);
/// And for how long behind the last of a reconnect storm.
const STORM_PAUSE: Duration = Duration::from_secs(1);

#[cfg(target_os = "linux")]
const BATCH: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
/// Others do not count waits either.
#[cfg(not(target_os = "linux"))]
const BATCH: ThreadSchedulePolicy = OTHER;
/// Linux's numbers of these, and where it says which one a thread has (`proc_pid_stat(5)`).
const SCHED_OTHER: u32 = 0;
const SCHED_BATCH: u32 = 3;
const POLICY_FIELD: usize = 41;
const OTHER: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);

/// What the threads of one server have found, and what its work in the background asks.
#[derive(Debug)]
pub(crate) struct Scheduling {
    policy: CpuPolicy,
    background: BackgroundBudget,
    shared: Mutex<Shared>,
    /// How many storms have come: threads look at once when another one does.
    storms: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    cores: Cores,
    pause: Pause,
    /// When one of a reconnect storm last came.
    last_of_storm: Option<Instant>,
}

impl Shared {
    fn new(cores: Cores) -> Self {
        Self { cores, pause: Pause::default(), last_of_storm: None }
    }

    /// Cores are short, and no thread waits long for one.
    fn gives_way(&mut self, now: Instant) -> bool {
        self.cores.are_short(now) && self.pause.is_over(now)
    }

    fn is_storm(&self, now: Instant) -> bool {
        self.last_of_storm.is_some_and(|came| now.duration_since(came) < STORM_PAUSE)
    }
}

impl Scheduling {
    /// Of a server with this policy.
    #[must_use]
    pub(crate) fn new(policy: CpuPolicy) -> Self {
        Self::of(policy, Cores::new())
    }

    fn of(policy: CpuPolicy, cores: Cores) -> Self {
        let background = BackgroundBudget::new(policy);
        let (shared, storms) = (Mutex::new(Shared::new(cores)), AtomicU64::new(0));
        Self { policy, background, shared, storms }
    }

    /// The policy that it follows.
    #[must_use]
    pub(crate) fn policy(&self) -> CpuPolicy {
        self.policy
    }

    /// What all work in the background asks.
    #[must_use]
    pub(crate) fn background(&self) -> &BackgroundBudget {
        &self.background
    }

    /// One of a reconnect storm comes: threads are scheduled as any other until a while behind the last one.
    pub(crate) fn storm_comes(&self, now: Instant) {
        let mut shared = self.lock();
        if !shared.is_storm(now) {
            self.storms.fetch_add(1, Ordering::Relaxed);
        }
        shared.last_of_storm = Some(now);
    }

    /// Whether one comes, or did so shortly before.
    pub(crate) fn is_storm(&self, now: Instant) -> bool {
        self.lock().is_storm(now)
    }

    /// Nothing that holds the lock can panic half-way through a change.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
            "threads wait long for a core: others compute there, or a quota is used up; SCHED_OTHER \
             for a while"
        );
    }
}

/// How the calling thread is scheduled.
#[derive(Debug)]
pub(crate) struct ThreadScheduling {
    of: Arc<Scheduling>,
    /// None: it stays as it is.
    waits: Option<Waits>,
    is_batch: bool,
    gives_way: bool,
    looked: Option<Instant>,
    /// Storms that had come when it looked.
    storms: u64,
}

impl ThreadScheduling {
    /// Of the calling thread, which must be the one that looks.
    pub(crate) fn new(of: Arc<Scheduling>) -> Self {
        let is_ours = of.policy == CpuPolicy::Sharing && is_usual();
        let waits = is_ours.then(Waits::open).flatten();
        Self { of, waits, is_batch: false, gives_way: false, looked: None, storms: 0 }
    }

    /// Looks, now and then and when a reconnect storm comes, how the thread is to be scheduled.
    pub(crate) fn look(&mut self, now: Instant) {
        let storms = self.of.storms.load(Ordering::Relaxed);
        if storms == self.storms
            && self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_INTERVAL)
        {
            return;
        }
        (self.looked, self.storms) = (Some(now), storms);
        let Some(waits) = &mut self.waits else { return };
        let waits_long = waits.are_long(now);
        let mut shared = self.of.lock();
        if self.is_batch && waits_long {
            shared.pause.begin(now);
        }
        self.gives_way = shared.gives_way(now);
        let is_batch = self.gives_way && !shared.is_storm(now);
        drop(shared);
        if is_batch != self.is_batch {
            self.change(is_batch);
        }
    }

    /// Whether cores were found to be short, so that others go first: work in the background does
    /// so while a reconnect storm comes, too.
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way
    }

    fn change(&mut self, is_batch: bool) {
        let is_ours = policy() == Some(if self.is_batch { SCHED_BATCH } else { SCHED_OTHER });
        if is_ours && let Err(error) = set(if is_batch { BATCH } else { OTHER }) {
            tracing::debug!(%error, "a thread's scheduling policy cannot be set");
        }
        self.is_batch = policy() == Some(SCHED_BATCH);
        if !is_ours || (is_batch && !self.is_batch) {
            // Another program decides, or the system does not allow it.
            (self.waits, self.gives_way) = (None, false);
        }
    }
}

/// Whether the calling thread is scheduled as any other.
pub(crate) fn is_usual() -> bool {
    policy() == Some(SCHED_OTHER)
}

/// Has the calling thread scheduled as any other, if it was made by one that is scheduled as a batch.
pub(crate) fn forget_inherited() {
    if policy() == Some(SCHED_BATCH)
        && let Err(error) = set(OTHER)
    {
        tracing::debug!(%error, "a thread's scheduling policy cannot be set");
    }
}

/// The policy of the calling thread, by the number that Linux gives it. (The C library keeps one of its own,
/// which is not changed by others, and which new threads are given wrongly.)
fn policy() -> Option<u32> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    // Behind the name, which is in parentheses and may be anything, come the third and later fields.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(POLICY_FIELD - 3)?.parse().ok()
}

/// Gives the calling thread a policy. Linux leaves it its niceness; the library sets that as well, and says it
/// on a scale of its own.
fn set(policy: ThreadSchedulePolicy) -> Result<(), String> {
    let niceness = rustix::process::getpriority_process(None).map_err(|error| error.to_string())?;
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
    since: Option<Instant>,
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
        Self::of(File::open("/proc/thread-self/schedstat").ok()?)
    }

    fn of(counts: File) -> Option<Self> {
        let last = read(&counts)?;
        // The thread that asks has come to run: there are kernels that do not count and say so by zeros.
        (last.runs > 0).then_some(Self { counts, last, since: None })
    }

    /// Whether the thread waited long since the last time that it came to run often enough to say.
    fn are_long(&mut self, now: Instant) -> bool {
        let Some(counts) = read(&self.counts) else { return false };
        let new = counts.since(self.last);
        let is_old = self.since.is_none_or(|since| now.duration_since(since) > WINDOW_MAX);
        if is_old || new.says_something() {
            (self.last, self.since) = (counts, Some(now));
        }
        !is_old && new.says_something() && new.is_long_wait()
    }
}

fn read(counts: &File) -> Option<Counts> {
    let mut text = [0; 128];
    let len = counts.read_at(&mut text, 0).ok()?;
    Counts::parse(&text[..len])
}

#[cfg(test)]
impl Default for Scheduling {
    fn default() -> Self {
        Self::new(CpuPolicy::Plain)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Does this in a thread of its own, whose policy no other thread has to live with.
    fn in_thread(act: impl FnOnce() + Send + 'static) {
        std::thread::spawn(act).join().unwrap();
    }

    /// Of a server on a machine that is short of cores.
    fn on_few_cores() -> Arc<Scheduling> {
        Arc::new(Scheduling::of(CpuPolicy::Sharing, Cores::unknown()))
    }

    /// A thread's side, and a file that says what it waited.
    fn waiting(of: &Arc<Scheduling>) -> (ThreadScheduling, tempfile::NamedTempFile) {
        let mut counts = tempfile::NamedTempFile::new().unwrap();
        counts.write_all(b"1 0 1\n").unwrap();
        let mut thread = ThreadScheduling::new(Arc::clone(of));
        thread.waits = Waits::of(counts.reopen().unwrap());
        (thread, counts)
    }

    fn write(counts: &tempfile::NamedTempFile, text: &str) {
        counts.as_file().write_all_at(text.as_bytes(), 0).unwrap();
    }

    #[test]
    fn a_thread_is_scheduled_as_a_batch_where_linux_counts_its_waits() {
        in_thread(|| {
            let mut thread = ThreadScheduling::new(on_few_cores());
            assert!(thread.waits.is_some());
            assert_eq!(policy(), Some(SCHED_OTHER));
            thread.look(Instant::now());
            assert_eq!(policy(), Some(SCHED_BATCH));
        });
        assert_eq!(policy(), Some(SCHED_OTHER), "no other thread is");
    }

    #[test]
    fn a_thread_is_scheduled_as_any_other_where_cores_are_not_short() {
        in_thread(|| {
            // Of which nothing is known yet.
            let of = Scheduling::new(CpuPolicy::Sharing);
            let mut thread = ThreadScheduling::new(Arc::new(of));
            thread.look(Instant::now());
            assert_eq!(policy(), Some(SCHED_OTHER));
        });
    }

    #[test]
    fn a_thread_is_scheduled_as_any_other_by_the_plain_policy() {
        in_thread(|| {
            let of = Scheduling::of(CpuPolicy::Plain, Cores::unknown());
            let mut thread = ThreadScheduling::new(Arc::new(of));
            thread.look(Instant::now());
            assert!(!thread.gives_way());
            assert_eq!(policy(), Some(SCHED_OTHER));
        });
    }

    #[test]
    fn threads_of_a_server_are_scheduled_as_any_other_while_one_of_them_waits_long() {
        in_thread(|| {
            let of = on_few_cores();
            let (mut log, counts) = waiting(&of);
            let (mut other, _) = waiting(&of);
            let mut now = Instant::now();
            let mut look = |thread: &mut ThreadScheduling, after: Duration| {
                now += after;
                thread.look(now);
                policy().unwrap()
            };
            assert_eq!(look(&mut log, LOOK_INTERVAL), SCHED_BATCH);
            write(&counts, "160001 17600000 8\n");
            assert_eq!(look(&mut log, LOOK_INTERVAL), SCHED_BATCH, "seven times say nothing");
            write(&counts, "160001 17600000 9\n");
            assert_eq!(look(&mut log, LOOK_INTERVAL / 2), SCHED_BATCH, "it is not time to look");
            assert_eq!(look(&mut log, LOOK_INTERVAL), SCHED_OTHER);
            assert_eq!(look(&mut other, LOOK_INTERVAL), SCHED_OTHER);
            write(&counts, "260001 37600000 19\n");
            assert_eq!(look(&mut log, PAUSE_MIN), SCHED_BATCH, "waits of before do not count");
        });
    }

    #[test]
    fn threads_are_scheduled_as_any_other_while_a_storm_comes() {
        in_thread(|| {
            let of = on_few_cores();
            let mut thread = ThreadScheduling::new(Arc::clone(&of));
            let start = Instant::now();
            let mut look = |after: Duration| {
                thread.look(start + after);
                assert!(thread.gives_way(), "what is in the background waits all the more");
                policy().unwrap()
            };
            assert_eq!(look(Duration::ZERO), SCHED_BATCH);
            of.storm_comes(start);
            assert_eq!(look(LOOK_INTERVAL / 10), SCHED_OTHER, "at once");
            of.storm_comes(start + STORM_PAUSE / 2);
            assert_eq!(look(STORM_PAUSE), SCHED_OTHER, "more of it came");
            assert_eq!(look(STORM_PAUSE * 2), SCHED_BATCH);
        });
    }

    #[test]
    fn what_was_waited_long_ago_does_not_count() {
        in_thread(|| {
            let (mut thread, counts) = waiting(&on_few_cores());
            let now = Instant::now();
            thread.look(now);
            write(&counts, "160001 17600000 9\n");
            thread.look(now + WINDOW_MAX + LOOK_INTERVAL);
            assert_eq!(policy(), Some(SCHED_BATCH));
        });
    }

    #[test]
    fn a_thread_keeps_its_niceness() {
        in_thread(|| {
            let niceness = || rustix::process::getpriority_process(None).unwrap();
            let before = niceness();
            rustix::process::nice(3).unwrap();
            ThreadScheduling::new(on_few_cores()).look(Instant::now());
            assert_eq!((policy(), niceness()), (Some(SCHED_BATCH), (before + 3).min(19)));
        });
    }

    #[test]
    fn a_policy_that_somebody_else_gave_stays() {
        in_thread(|| {
            let (mut thread, _) = waiting(&on_few_cores());
            set(BATCH).unwrap();
            assert!(ThreadScheduling::new(on_few_cores()).waits.is_none());
            let now = Instant::now();
            thread.look(now);
            assert!(thread.waits.is_none(), "it was given after the start");
            assert_eq!(policy(), Some(SCHED_BATCH));
        });
    }

    #[test]
    fn threads_that_one_makes_that_is_scheduled_as_a_batch_are_not() {
        in_thread(|| {
            ThreadScheduling::new(on_few_cores()).look(Instant::now());
            in_thread(|| {
                assert_eq!(policy(), Some(SCHED_BATCH), "inherited");
                forget_inherited();
                assert_eq!(policy(), Some(SCHED_OTHER));
            });
        });
    }

    #[test]
    fn a_system_that_does_not_count_is_not_believed() {
        let counts = tempfile::NamedTempFile::new().unwrap();
        assert!(Waits::of(counts.reopen().unwrap()).is_none());
        write(&counts, "0 0 0\n");
        assert!(Waits::of(counts.reopen().unwrap()).is_none());
    }

    #[test]
    fn waits_are_long_that_are_many_times_what_a_thread_runs() {
        let of = |ran_us: u64, waited_us: u64, runs| Counts {
            ran_ns: ran_us * 1000,
            waited_ns: waited_us * 1000,
            runs,
        };
        assert!(of(30, 2000, 1).is_long_wait());
        assert!(!of(200, 2000, 1).is_long_wait(), "clients have as much to do as the server");
        assert!(!of(1, 600, 1).is_long_wait(), "too short to be noticed");
        assert!(of(30 * 8, 2000 * 8, 8).is_long_wait());
        assert!(!of(0, 0, 0).is_long_wait());
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
