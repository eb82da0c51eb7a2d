//! Whether the machine is short of cores: a thread that is woken would find none free.
//!
//! *Owns* what Linux last said about how long its cores had nothing to do (`proc_stat(5)`). *Invariants*: a
//! machine is short from when less than [`SHORT`] of a core was free until [`PLENTY`] of one was, of at most
//! two: threads that find one free do not care how many more there are. A core that waits for a disk is
//! free. Where the system does not say, it is not short: work in the background never rests for a guess.
//! *Never* says whose work it is: that of clients beside the server counts as the server's.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time between two looks. Linux counts hundredths of a second; it takes ten microseconds to read on a
/// small machine, and a few hundred on a large one.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// So much of a core is free, of each of two, on a machine that begins to be short.
const SHORT: f64 = 0.3;
/// On one that is no longer.
const PLENTY: f64 = 0.45;
/// More than these make no difference.
const CORES_MAX: f64 = 2.0;

/// What the machine's cores do.
#[derive(Debug)]
pub(crate) struct Cores {
    /// None: the system does not say.
    stat: Option<File>,
    /// How many there are for this process.
    count: f64,
    last: Option<(Instant, Times)>,
    is_short: bool,
}

/// Hundredths of a second, of all cores, since the machine began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    free: u64,
    all: u64,
}

impl Cores {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        Self::of(File::open("/proc/stat").ok(), count)
    }

    fn of(stat: Option<File>, count: f64) -> Self {
        Self { is_short: false, stat, count, last: None }
    }

    /// Looks, now and then, what they did since the last time; says whether they are few.
    pub(crate) fn are_short(&mut self, now: Instant) -> bool {
        let since = self.last.map(|(at, _)| now.duration_since(at));
        if since.is_none_or(|since| since >= LOOK_INTERVAL) {
            self.look(now);
        }
        self.is_short
    }

    fn look(&mut self, now: Instant) {
        let Some(times) = self.stat.as_ref().and_then(read) else {
            (self.stat, self.is_short) = (None, false);
            return;
        };
        if let Some((_, last)) = self.last {
            self.judge(times.since(last));
        }
        self.last = Some((now, times));
    }

    fn judge(&mut self, new: Times) {
        if new.all == 0 {
            return;
        }
        let free = self.count * new.free as f64 / new.all as f64 / self.count.min(CORES_MAX);
        self.is_short = free < if self.is_short { PLENTY } else { SHORT };
    }
}

impl Times {
    /// None if that is not what Linux writes.
    fn parse(text: &str) -> Option<Self> {
        let first = text.lines().next()?.strip_prefix("cpu ")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted among the users.
        let times: Vec<u64> =
            first.split_ascii_whitespace().map_while(|t| t.parse().ok()).collect();
        let [_, _, _, idle, iowait, _, _, _, ..] = times[..] else { return None };
        let all = times[..8].iter().sum();
        (all > 0).then_some(Self { free: idle + iowait, all })
    }

    fn since(self, last: Self) -> Self {
        Self { free: self.free.saturating_sub(last.free), all: self.all.saturating_sub(last.all) }
    }
}

fn read(stat: &File) -> Option<Times> {
    let mut text = [0; 256];
    let len = stat.read_at(&mut text, 0).ok()?;
    // The line of all cores is the first; what comes behind may be cut off in the middle.
    Times::parse(str::from_utf8(&text[..len]).ok()?)
}

#[cfg(test)]
impl Cores {
    /// Of a machine that is short, until it is looked at again much later.
    pub(crate) fn short(now: Instant) -> Self {
        let last = Some((now + 1000 * LOOK_INTERVAL, Times { free: 0, all: 1 }));
        Self { is_short: true, last, ..Self::of(None, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short_after(is_short: bool, free: u64, count: f64) -> bool {
        let mut cores = Cores { is_short, ..Cores::of(None, count) };
        cores.judge(Times { free, all: 100 });
        cores.is_short
    }

    #[test]
    fn a_machine_is_short_until_a_good_part_of_a_core_is_free() {
        assert!(short_after(false, 29, 2.0));
        assert!(!short_after(false, 31, 2.0));
        assert!(short_after(true, 44, 2.0));
        assert!(!short_after(true, 46, 2.0));
        assert!(short_after(false, 29, 1.0));
        assert!(short_after(false, 3, 16.0), "of 16 cores this is half a one");
        assert!(!short_after(false, 4, 16.0));
    }

    #[test]
    fn looks_compare_with_the_last_one() {
        let stat = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| {
            stat.as_file().set_len(0).and_then(|()| stat.as_file().write_all_at(text.as_bytes(), 0))
        };
        write("cpu  0 0 0 500 400 0 0 100 0 0\ncpu0 0 0").unwrap();
        let mut cores = Cores::of(Some(stat.reopen().unwrap()), 2.0);
        let now = Instant::now();
        assert!(!cores.are_short(now), "nothing is known");
        write("cpu  90 0 0 505 405 0 0 100 0 0\ncpu0 0 0").unwrap();
        assert!(!cores.are_short(now + LOOK_INTERVAL / 2), "it is not time to look");
        assert!(cores.are_short(now + LOOK_INTERVAL));
        write("cpu  90 0 0 600 500 0 0 100 0 0\ncpu0 0 0").unwrap();
        assert!(!cores.are_short(now + 2 * LOOK_INTERVAL));
    }

    #[test]
    fn a_system_that_does_not_say_is_not_short() {
        assert!(!Cores::of(None, 1.0).are_short(Instant::now()));
        let stat = tempfile::NamedTempFile::new().unwrap();
        let mut silent = Cores { is_short: true, ..Cores::of(Some(stat.reopen().unwrap()), 2.0) };
        assert!(!silent.are_short(Instant::now()));
    }

    #[test]
    fn what_linux_writes_is_understood_and_nothing_else() {
        let text = "cpu  1 2 3 40 50 6 7 8 9 10\ncpu0 1";
        assert_eq!(Times::parse(text), Some(Times { free: 90, all: 117 }));
        for other in
            ["", "cpu", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7", "cpu 0 0 0 0 0 0 0 0", "x"]
        {
            assert_eq!(Times::parse(other), None, "{other}");
        }
    }
}
