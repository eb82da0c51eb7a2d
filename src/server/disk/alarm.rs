//! Alarm for disk calls that do not return.
//!
//! *Owns* when a call has taken too long, and the sentence about it. *Invariants*: the log's disk makes a
//! readiness condition, said once, that names the call, the file and when it began, and is taken back when
//! that has returned; a call of any other thread is warned of once, and has no other consequence. *Never*
//! waits for a disk itself: the driver calls it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admin::java_date;
use crate::replica::Status;
use crate::server::clock::{self, Periodic};
use crate::server::metrics::{Cause, Conditions};
use crate::storage::{DiskCall, DiskCalls};
use crate::supervision::Task;

/// Looks at the calls of one server.
#[derive(Debug)]
pub(crate) struct DiskAlarm {
    calls: Arc<DiskCalls>,
    bound: Duration,
    looked: Periodic,
    /// The log's disk hangs: the sentence, once it was said.
    words: Option<String>,
    /// The newest call of another thread that was warned of began then.
    warned: Option<Instant>,
}

impl DiskAlarm {
    /// A call may take as long as `bound`.
    #[must_use]
    pub(crate) fn new(calls: Arc<DiskCalls>, bound: Duration) -> Self {
        Self { calls, bound, looked: Periodic::default(), words: None, warned: None }
    }

    /// Looks, unless it did just now. `status` is the replica's, which knows for how long it waits.
    pub(crate) fn look(&mut self, status: &Status, conditions: &Conditions, now: Instant) {
        if !self.looked.is_due(LOOK_INTERVAL, now) {
            return;
        }
        let calls = self.calls.all();
        let is_late = |call: &DiskCall| now.saturating_duration_since(call.since) >= self.bound;
        let (of_log, of_others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.thread() == Task::Log.name());
        // The first is what the thread is in, whatever calls that is made of.
        let of_log = of_log.first();
        if !status.is_disk_hung && !of_log.is_some_and(is_late) {
            if self.words.take().is_some() {
                conditions.set(Cause::Disk, None);
            }
        } else if self.words.is_none() {
            let words = words(of_log, status, now);
            conditions.set(Cause::Disk, Some(words.clone()));
            self.words = Some(words);
        }
        let late = of_others.iter().filter(|call| is_late(call));
        if let Some(call) = late.max_by_key(|call| call.since)
            && self.warned.is_none_or(|warned| warned < call.since)
        {
            self.warned = Some(call.since);
            tracing::warn!("{} waits for the disk: {}", call.thread(), said(call, now));
        }
    }
}

fn words(call: Option<&DiskCall>, status: &Status, now: Instant) -> String {
    match call {
        Some(call) => format!("the log's disk hangs: {}", said(call, now)),
        None => {
            let since = wall_ms_before(Duration::from_millis(status.disk_waits_ms));
            format!("the log's disk hangs: nothing became durable since {}", java_date(since))
        }
    }
}

fn said(call: &DiskCall, now: Instant) -> String {
    let since = wall_ms_before(now.saturating_duration_since(call.since));
    let (operation, path) = (call.operation, call.path.display());
    format!("{operation} of {path} has not returned since {}", java_date(since))
}

fn wall_ms_before(age: Duration) -> i64 {
    clock::wall_ms().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_call_of_the_log_is_a_condition_until_it_returns_and_one_of_another_thread_is_none() {
        let (calls, conditions) = (Arc::<DiskCalls>::default(), Conditions::default());
        let bound = Duration::from_secs(5);
        let mut alarm = DiskAlarm::new(Arc::clone(&calls), bound);
        let path: Arc<Path> = Arc::from(Path::new("/data/log/1.log"));
        let status = Status::default();
        let mut look = || {
            calls.during("fdatasync", &path, || {
                let now = Instant::now();
                alarm.look(&status, &conditions, now + bound / 2);
                assert_eq!(conditions.all(), Vec::<String>::new());
                alarm.look(&status, &conditions, now + bound);
                let first = conditions.all();
                alarm.look(&status, &conditions, now + 2 * bound);
                assert_eq!(conditions.all(), first, "it is said once");
                first
            })
        };
        let said = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(Task::Log.name().to_string());
            thread.spawn_scoped(scope, &mut look).unwrap().join().unwrap()
        });
        let is_named = said[0].contains("fdatasync of /data/log/1.log has not returned since");
        assert!(said.len() == 1 && is_named, "{said:?}");
        alarm.looked = Periodic::default();
        alarm.look(&status, &conditions, Instant::now());
        assert_eq!(conditions.all(), Vec::<String>::new());
        alarm.looked = Periodic::default();
        let hung = Status { is_disk_hung: true, disk_waits_ms: 5000, ..Status::default() };
        alarm.look(&hung, &conditions, Instant::now());
        assert!(conditions.all()[0].contains("nothing became durable since"));
    }

    #[test]
    fn a_call_of_another_thread_makes_no_condition() {
        let (calls, conditions) = (Arc::<DiskCalls>::default(), Conditions::default());
        let mut alarm = DiskAlarm::new(Arc::clone(&calls), Duration::from_secs(5));
        let path: Arc<Path> = Arc::from(Path::new("/data/image/1.image"));
        calls.during("write", &path, || {
            let late = Instant::now() + Duration::from_secs(60);
            alarm.look(&Status::default(), &conditions, late);
        });
        assert!(alarm.warned.is_some() && conditions.all().is_empty());
    }
}
