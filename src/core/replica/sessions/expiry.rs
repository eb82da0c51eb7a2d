//! Which sessions are overdue. Only the leader asks.
//!
//! *Owns* a deadline for every open session, in buckets, so that a touch costs one table access and
//! no sorting. *Invariants*: a session is overdue no earlier than its timeout after it was last
//! heard from, and no later than one bucket after that; time in which this server did not run (a
//! stopped process, a frozen machine) does not count, because its clients could not be heard.
//! *Never* closes a session: the leader proposes that, and only the log does it.
//!
//! Reproduces the leader's half of `SessionTrackerImpl` and `ExpiryQueue`.

use std::collections::BTreeMap;

use crate::replica::timing::TICK_MS;

/// Width of a bucket in microseconds.
const BUCKET_US: u64 = TICK_MS * 1000;
/// A longer time between two ticks than this many microseconds counts as this long.
const STALL_US_MAX: u64 = 10 * TICK_MS * 1000;

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at_us: u64,
    timeout_us: u64,
    /// The bucket that counts: an entry in any other is stale.
    bucket: u64,
    /// A proposal to close it is on its way.
    closing: bool,
    /// It got its timeout again without being heard from, and was not since.
    spared: bool,
}

/// The deadlines of all open sessions.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Time that counts: the sum of ticks, long gaps cut short.
    now_us: u64,
    /// Monotonic time of the last tick.
    tick_us: Option<u64>,
    sessions: BTreeMap<i64, Deadline>,
    buckets: BTreeMap<u64, Vec<i64>>,
}

canonical! {
    // Its time is the sum of ticks: times are written by their distance from it. What is found in another bucket than
    // its own is not looked at.
    Expiry: tick_us;
    |out, now_us, sessions, buckets| {
        out.value(&(now_us % BUCKET_US));
        let left = |at_us: u64| i128::from(at_us) - i128::from(*now_us);
        for (session, deadline) in sessions {
            let Deadline { at_us, timeout_us, bucket, closing, spared } = *deadline;
            out.value(&(session, left(at_us), timeout_us, left(bucket * BUCKET_US), closing, spared));
        }
        for (bucket, of_it) in buckets {
            let counts = |id: &&i64| sessions.get(id).is_some_and(|it| it.bucket == *bucket && !it.closing);
            let of_it: Vec<&i64> = of_it.iter().filter(counts).collect();
            if !of_it.is_empty() {
                out.value(&(left(*bucket * BUCKET_US), of_it));
            }
        }
    }
}

impl Expiry {
    /// Moves the clock.
    pub(super) fn tick(&mut self, now_us: u64) {
        let before = self.tick_us.replace(now_us).unwrap_or(now_us);
        let most_us = if mutant!("standstill-counts") { u64::MAX } else { STALL_US_MAX };
        self.now_us += now_us.saturating_sub(before).min(most_us);
    }

    /// Begins to watch a session, with its full timeout from now on.
    pub(super) fn track(&mut self, session: i64, timeout_ms: i32) {
        self.track_with_grace(session, timeout_ms, 0);
    }

    /// As [`Expiry::track`], for `grace_ms` longer than the client was told.
    pub(super) fn track_with_grace(&mut self, session: i64, timeout_ms: i32, grace_ms: u64) {
        let timeout_us = (u64::try_from(timeout_ms).unwrap_or(0) + grace_ms) * 1000;
        let at_us = self.now_us + timeout_us;
        let mut bucket = bucket_of(at_us);
        match self.sessions.get(&session) {
            // It will be looked at early enough.
            Some(known) if known.bucket <= bucket => bucket = known.bucket,
            Some(_) | None => self.buckets.entry(bucket).or_default().push(session),
        }
        self.sessions
            .insert(session, Deadline { at_us, timeout_us, bucket, closing: false, spared: false });
    }

    /// A session was heard from.
    pub(super) fn touch(&mut self, session: i64) {
        if let Some(deadline) = self.sessions.get_mut(&session)
            && !deadline.closing
            && !mutant!("touch-ignored")
        {
            deadline.at_us = self.now_us + deadline.timeout_us;
            deadline.spared = false;
        }
    }

    /// A session may have been heard from until now, and the leader will never know: it gets its timeout again,
    /// once until it is heard from.
    pub(super) fn spare(&mut self, session: i64) {
        if let Some(deadline) = self.sessions.get_mut(&session)
            && !deadline.closing
            && !deadline.spared
        {
            deadline.at_us = self.now_us + deadline.timeout_us;
            deadline.spared = true;
        }
    }

    /// A proposal to close it is on its way: nothing brings it back.
    pub(super) fn set_closing(&mut self, session: i64) {
        if let Some(deadline) = self.sessions.get_mut(&session) {
            deadline.closing = true;
        }
    }

    /// How many are watched.
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, session: i64) {
        self.sessions.remove(&session);
    }

    /// Forgets all: this server leads no longer, or leads anew.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
        self.buckets.clear();
    }

    /// Time that counts, in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Sessions that are overdue, marked as closing. Those that `may_have_been_heard`, in the time that
    /// ended then, are looked at again in the next bucket.
    pub(super) fn overdue(&mut self, may_have_been_heard: impl Fn(i64, u64) -> bool) -> Vec<i64> {
        let mut overdue = Vec::new();
        while let Some(entry) = self.buckets.first_entry() {
            let bucket = *entry.key();
            if bucket * BUCKET_US > self.now_us {
                break;
            }
            for session in entry.remove() {
                let Some(deadline) = self.sessions.get_mut(&session) else { continue };
                if deadline.closing || deadline.bucket != bucket {
                    continue;
                }
                let is_over = deadline.at_us <= self.now_us;
                if is_over && may_have_been_heard(session, deadline.at_us) {
                    deadline.bucket = bucket_of(self.now_us + 1);
                    self.buckets.entry(deadline.bucket).or_default().push(session);
                } else if is_over {
                    deadline.closing = true;
                    overdue.push(session);
                } else {
                    deadline.bucket = bucket_of(deadline.at_us);
                    self.buckets.entry(deadline.bucket).or_default().push(session);
                }
            }
        }
        overdue
    }

    /// Milliseconds until a session is overdue, unless it is heard from.
    pub(super) fn remaining_ms(&self, session: i64) -> Option<u64> {
        let deadline = self.sessions.get(&session)?;
        Some(deadline.at_us.saturating_sub(self.now_us) / 1000)
    }
}

/// The first bucket that begins at or after a time.
fn bucket_of(at_us: u64) -> u64 {
    at_us.div_ceil(BUCKET_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(expiry: &mut Expiry, from_ms: u64, to_ms: u64) -> Vec<(u64, i64)> {
        let mut seen = Vec::new();
        for ms in (from_ms..=to_ms).step_by(10) {
            expiry.tick(ms * 1000);
            seen.extend(expiry.overdue(|_, _| false).into_iter().map(|session| (ms, session)));
        }
        seen
    }

    #[test]
    fn a_silent_session_is_overdue_after_its_timeout_and_within_a_bucket() {
        let mut expiry = Expiry::default();
        expiry.tick(0);
        expiry.track(1, 1000);
        let seen = run(&mut expiry, 0, 3000);
        assert_eq!(seen.len(), 1);
        assert!((1000..=1000 + TICK_MS).contains(&seen[0].0), "{seen:?}");
    }

    #[test]
    fn a_touch_gives_the_full_timeout_again() {
        let mut expiry = Expiry::default();
        expiry.tick(0);
        expiry.track(1, 1000);
        assert_eq!(run(&mut expiry, 0, 900), []);
        expiry.touch(1);
        assert_eq!(run(&mut expiry, 910, 1890), []);
        assert_eq!(run(&mut expiry, 1900, 2000).len(), 1);
    }

    #[test]
    fn a_shorter_timeout_takes_effect_at_once() {
        let mut expiry = Expiry::default();
        expiry.tick(0);
        expiry.track(1, 40_000);
        expiry.track(1, 1000);
        assert_eq!(run(&mut expiry, 0, 1100).len(), 1);
    }

    #[test]
    fn time_in_which_this_server_stood_still_does_not_count() {
        let mut expiry = Expiry::default();
        expiry.tick(0);
        expiry.track(1, 4000);
        expiry.tick(60_000_000);
        assert!(expiry.overdue(|_, _| false).is_empty());
        assert!(expiry.remaining_ms(1).unwrap() >= 3500);
    }

    #[test]
    fn a_closing_session_is_not_touched_and_not_reported_twice() {
        let mut expiry = Expiry::default();
        expiry.tick(0);
        expiry.track(1, 100);
        assert_eq!(run(&mut expiry, 0, 200).len(), 1);
        expiry.touch(1);
        assert_eq!(run(&mut expiry, 210, 2000), []);
    }
}
