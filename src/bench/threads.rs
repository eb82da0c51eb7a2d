//! CPU time of servers by thread, from Linux's /proc/PID/task.
//!
//! Threads are told apart by name, without the number at its end: `lk-io-0` and `lk-io-1` are `lk-io`.
//! *Never* fails for a thread that ends while it is looked at: what it used is then in no name.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use super::Fault;
use super::proc::{cpu_ticks, seconds};

/// What every thread of some processes had used at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(BTreeMap<(u32, u32), Thread>);

#[derive(Clone, Debug)]
struct Thread {
    name: String,
    ticks: u64,
}

/// What threads of one name have used.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadCpu {
    /// The name without a number at its end.
    pub name: String,
    /// CPU seconds in all processes together.
    pub seconds: f64,
    /// CPU seconds in the process in which they used the most.
    pub busiest: f64,
}

impl Threads {
    /// Of these processes.
    pub(super) fn read(pids: &[u32]) -> Result<Self, Fault> {
        let mut threads = BTreeMap::new();
        for &pid in pids {
            let folder = PathBuf::from(format!("/proc/{pid}/task"));
            let fault = |e: io::Error| Fault::Machine(format!("{}: {e}", folder.display()));
            for entry in fs::read_dir(&folder).map_err(fault)? {
                let entry = entry.map_err(fault)?;
                let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
                // A thread that has ended since is not there to be read.
                let text = fs::read_to_string(entry.path().join("stat"));
                let read = text.ok().and_then(|text| Thread::read(&text));
                if let (Some(number), Some(thread)) = (number, read) {
                    threads.insert((pid, number), thread);
                }
            }
        }
        Ok(Threads(threads))
    }

    /// What they have used since then, by name; the most first.
    pub(super) fn since(&self, before: &Threads) -> Vec<ThreadCpu> {
        let mut names: BTreeMap<&str, BTreeMap<u32, u64>> = BTreeMap::new();
        for (id @ (pid, _), thread) in &self.0 {
            // A number that stands for another thread by now has used less.
            let earlier = before.0.get(id).map_or(0, |thread| thread.ticks);
            let used = thread.ticks.checked_sub(earlier).unwrap_or(thread.ticks);
            *names.entry(&thread.name).or_default().entry(*pid).or_default() += used;
        }
        let of = |(name, processes): (&str, BTreeMap<u32, u64>)| ThreadCpu {
            name: name.to_owned(),
            seconds: seconds(processes.values().sum()),
            busiest: seconds(processes.values().copied().max().unwrap_or(0)),
        };
        let mut all: Vec<ThreadCpu> = names.into_iter().map(of).collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        all
    }
}

impl Thread {
    /// From its line in /proc.
    fn read(stat: &str) -> Option<Self> {
        // The name may hold anything, parentheses too.
        let name = stat.split_once('(')?.1.rsplit_once(')')?.0;
        Some(Thread { name: group(name).to_owned(), ticks: cpu_ticks(stat)? })
    }
}

/// A name without a number at its end.
fn group(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let bare = bare.trim_end_matches(['-', '#', ':', ' ', '_']);
    if bare.is_empty() { name } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, user: u64, system: u64) -> String {
        format!("7 ({name}) S 1 7 7 0 -1 4194560 150 0 0 0 {user} {system} 0 0 20 0 3 0 99")
    }

    fn threads(of: &[(u32, u32, &str, u64)]) -> Threads {
        let read = |&(pid, number, name, ticks): &(u32, u32, &str, u64)| {
            ((pid, number), Thread::read(&stat(name, ticks, 0)).expect("a line"))
        };
        Threads(of.iter().map(read).collect())
    }

    #[test]
    fn a_thread_is_read_whatever_its_name_is() {
        for (name, group) in
            [("lk-io-12", "lk-io"), ("GC Thread#0", "GC Thread"), ("a) (b", "a) (b"), ("7", "7")]
        {
            let thread = Thread::read(&stat(name, 20, 3)).expect("a line");
            assert_eq!((thread.name.as_str(), thread.ticks), (group, 23));
        }
        assert!(Thread::read("7 (x) S 1").is_none());
    }

    #[test]
    fn threads_of_a_name_count_together_and_the_busiest_process_apart() {
        let before =
            threads(&[(1, 10, "lk-io-0", 5), (1, 11, "lk-io-1", 5), (1, 12, "lk-log", 50)]);
        let after = threads(&[
            (1, 10, "lk-io-0", 105),
            (1, 11, "lk-io-1", 205),
            (1, 12, "lk-log", 10),
            (2, 20, "lk-io-0", 100),
        ]);
        let cpu =
            |name: &str, seconds, busiest| ThreadCpu { name: name.to_owned(), seconds, busiest };
        // The log's thread is another one than before.
        assert_eq!(after.since(&before), [cpu("lk-io", 4.0, 3.0), cpu("lk-log", 0.1, 0.1)]);
    }

    #[test]
    fn the_threads_of_this_process_are_there() {
        let pids = [std::process::id()];
        let before = Threads::read(&pids).expect("they can be read");
        assert!(!before.since(&Threads::default()).is_empty());
        assert!(Threads::read(&[u32::MAX]).is_err());
    }
}
