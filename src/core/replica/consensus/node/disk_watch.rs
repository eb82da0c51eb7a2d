//! Failure detector for the log's disk: whether it hangs, in ticks of the consensus.
//!
//! *Owns* for how long the disk has finished nothing while something waits for it, for how long a leader's
//! own disk has lacked something that is committed, and whether this server may stand for election after
//! that. *Invariants*: everything is derived from append numbers and ticks, so that the same inputs give
//! the same decisions, and a process that stood still does not take that for a hang of its disk; a leader
//! yields only when a majority of others has what its own disk lacks, so never where all disks are slow
//! alike. *Never* changes what is promised to others: a vote or an acknowledgement waits for the disk
//! however long that takes.
//!
//! A server that yielded does not stand for election by itself for ten bounds, and declines when a leader
//! asks it for the first time: one that has not yielded comes first. If the leader asks it again, all others
//! have declined, and it agrees while its own disk answers: any leader is better than one whose disk hangs.
//! So where two disks hang by turns, leadership goes to and fro with them; but each handover takes a bound
//! in which the leader's disk has finished nothing of what others committed, and goes to a disk that answers.

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::replica::timing::TICK_MS;

/// A server that yielded stands again once its disk has answered in less than half the bound for so many
/// bounds.
const PROBATION_BOUNDS: u64 = 10;
/// Or once it has known of no leader for so many ticks (1 s, several election timeouts) while its own disk
/// answers: those who were to lead instead cannot, for example because only this server's log has all that
/// is committed.
const LEADERLESS_TICKS: u64 = 20;
/// How often a leader that yields asks each of the others: one that has yielded itself agrees the second time.
const TIMES_ASKED_MAX: usize = 2;
/// Payload bytes that a follower takes beyond what its disk has, while that hangs. What comes beyond is
/// dropped like a lost message, and comes again.
const UNSYNCED_BYTES_MAX: u64 = 256 << 20;

/// See the module. Times are ticks since the start.
#[derive(Debug)]
pub(in crate::replica) struct DiskWatch {
    bound: u64,
    now: u64,
    /// Since when something waits for the disk and it has finished nothing.
    waits_since: Option<u64>,
    /// When somebody waited for half the bound or longer, last.
    slow_at: u64,
    /// What is committed and not durable here while this server leads, and since when.
    lacks: Option<(u64, u64)>,
    /// Up to where the log was committed at the last tick, and since when that, and not all, is.
    stuck: Option<(u64, u64)>,
    /// This server has yielded, and its disk has not proved itself since.
    has_yielded: bool,
    leaderless_since: Option<u64>,
    /// Who was asked to lead instead, and did not: once for each time.
    asked: Vec<u64>,
    /// They are asked again then.
    ask_again_at: u64,
    /// Another server was asked in this leadership.
    has_asked: bool,
    /// The term in which this server was asked to lead and left that to others, because it had yielded.
    declined_in: Option<u64>,
    /// Payload bytes that are not durable.
    unsynced_bytes: u64,
    /// Those of each append, by its number.
    unsynced: VecDeque<(u64, u64)>,
}

canonical! {
    // Everything by how many ticks ago it was. When the disk was slow last counts for one that has yielded. Appends
    // have numbers, which are written from the last durable one on.
    DiskWatch(synced: u64): bound, has_yielded, asked, has_asked, declined_in, unsynced_bytes;
    |out, now, waits_since, slow_at, lacks, stuck, leaderless_since, ask_again_at, unsynced| {
        let age = |since: u64| now - since;
        let leaderless = leaderless_since.map(|since| age(since).min(LEADERLESS_TICKS));
        // Clients are sent away before twice the bound is over; of the others, nothing is behind the bound.
        let waits = waits_since.map(|since| age(since).min(2 * bound));
        let up_to_bound = |(index, since): (u64, u64)| (index, age(since).min(*bound));
        out.value(&(waits, has_yielded.then(|| age(*slow_at)), leaderless));
        out.value(&(lacks.map(up_to_bound), stuck.map(up_to_bound), ask_again_at.saturating_sub(*now)));
        for (number, bytes) in unsynced {
            out.value(&(number - synced, bytes));
        }
    }
}

impl DiskWatch {
    /// A disk that may take `bound_ms` for what something waits for.
    pub(super) fn new(bound_ms: u64) -> Self {
        Self {
            bound: (bound_ms / TICK_MS).max(2),
            now: 0,
            waits_since: None,
            slow_at: 0,
            lacks: None,
            stuck: None,
            has_yielded: false,
            leaderless_since: None,
            asked: Vec::new(),
            ask_again_at: 0,
            has_asked: false,
            declined_in: None,
            unsynced_bytes: 0,
            unsynced: VecDeque::new(),
        }
    }

    /// The append of this number goes to the disk. Whether something waits for it.
    pub(super) fn appended(&mut self, number: u64, bytes: u64, is_waited_for: bool) {
        if is_waited_for {
            self.waits_since.get_or_insert(self.now);
        }
        if bytes > 0 {
            self.unsynced_bytes += bytes;
            self.unsynced.push_back((number, bytes));
        }
    }

    /// Everything up to the append of this number is durable. Whether something waits for a later one.
    pub(super) fn persisted(&mut self, number: u64, waits_for_more: bool) {
        self.waits_since = waits_for_more.then_some(self.now);
        while let Some((_, bytes)) = self.unsynced.front().filter(|(of, _)| *of <= number) {
            self.unsynced_bytes -= bytes;
            self.unsynced.pop_front();
        }
    }

    /// Milliseconds for which the disk has finished nothing of what something waits for.
    pub(in crate::replica) fn waits_ms(&self) -> u64 {
        self.waits_for() * TICK_MS
    }

    /// The same in ticks.
    fn waits_for(&self) -> u64 {
        self.waits_since.map_or(0, |since| self.now - since)
    }

    /// Whether something waits for half the bound.
    pub(super) fn is_slow(&self) -> bool {
        2 * self.waits_for() >= self.bound
    }

    /// Whether it has finished nothing for the bound of what something waits for.
    pub(in crate::replica) fn is_stalled(&self) -> bool {
        self.waits_for() >= self.bound
    }

    /// Whether so much waits for a disk that hangs that no more is taken.
    pub(super) fn is_overdue(&self) -> bool {
        self.is_stalled() && self.unsynced_bytes >= UNSYNCED_BYTES_MAX
    }

    /// Whether others have committed what a leader's disk lacks.
    pub(in crate::replica) fn lacks_committed(&self) -> bool {
        self.lacks.is_some()
    }

    /// Whether this server yielded, and its disk has not proved itself since.
    pub(in crate::replica) fn has_yielded(&self) -> bool {
        self.has_yielded
    }

    /// A leader is known, perhaps for less than a tick.
    pub(super) fn knows_leader(&mut self) {
        self.leaderless_since = None;
    }

    /// Whether others have made durable, and committed, what a leader's disk has lacked for the bound.
    pub(in crate::replica) fn must_yield(&self) -> bool {
        let is_long = |(_, since): (u64, u64)| self.now - since >= self.bound;
        // Where nothing is committed any more, a majority of the others is no better by now.
        self.lacks.is_some_and(is_long)
            && !self.stuck.is_some_and(is_long)
            && !mutant!("hung-leader-stays")
    }

    /// Whether this server may stand for election, as far as its disk goes.
    pub(super) fn may_stand(&self) -> bool {
        let is_leaderless =
            self.leaderless_since.is_some_and(|since| self.now - since >= LEADERLESS_TICKS);
        !self.has_yielded || is_leaderless && !self.is_slow() || mutant!("stands-again-at-once")
    }

    /// This leader yields. Whether it may ask another server to lead instead now.
    pub(super) fn yields(&mut self) -> bool {
        self.has_yielded = true;
        self.slow_at = self.now;
        self.now >= self.ask_again_at
    }

    /// Chooses who is asked to lead instead: of those whose disks are sound, each by its id and how much of the log it
    /// has, one after another.
    pub(super) fn choose(&mut self, sound: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
        let times = |id: u64| self.asked.iter().filter(|asked| **asked == id).count();
        let best = sound
            .filter(|(id, _)| times(*id) < TIMES_ASKED_MAX)
            .max_by_key(|(id, matched)| (Reverse(times(*id)), *matched, u64::MAX - id));
        let Some((best, _)) = best else {
            // While a leadership is handed over, no write is taken.
            self.asked.clear();
            self.ask_again_at = self.now + self.bound;
            return None;
        };
        self.asked.push(best);
        Some(best)
    }

    /// Another server is asked. Whether it is the first in this leadership.
    pub(super) fn asks_first(&mut self) -> bool {
        !std::mem::replace(&mut self.has_asked, true)
    }

    /// A server that yielded is asked to lead, in this term. The first time it leaves that to others; asked
    /// again, there is none of them.
    pub(super) fn agrees_to_lead(&mut self, term: u64) -> bool {
        let is_asked_again = self.declined_in.replace(term) == Some(term);
        is_asked_again && !self.is_slow()
    }

    /// A tick. `leads`: up to where the log is committed and durable at a leader, and its last index.
    pub(super) fn tick(&mut self, leads: Option<(u64, u64, u64)>, has_leader: bool) {
        self.now += 1;
        if self.is_slow() {
            self.slow_at = self.now;
        }
        if self.now - self.slow_at >= PROBATION_BOUNDS * self.bound {
            self.has_yielded = false;
        }
        self.leaderless_since = (!has_leader).then(|| self.leaderless_since.unwrap_or(self.now));
        let Some((committed, durable, last)) = leads else {
            (self.lacks, self.stuck) = (None, None);
            self.asked.clear();
            (self.ask_again_at, self.has_asked) = (0, false);
            return;
        };
        let still = self.lacks.filter(|(index, _)| *index > durable);
        self.lacks = still.or((committed > durable).then_some((committed, self.now)));
        let still = self.stuck.filter(|(index, _)| *index == committed);
        let stuck = still.unwrap_or((committed, self.now));
        self.stuck = (committed < last).then_some(stuck);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND_TICKS: u64 = 20;

    fn watch() -> DiskWatch {
        DiskWatch::new(BOUND_TICKS * TICK_MS)
    }

    /// `leads`: up to where the log of a leader is committed, and durable here.
    fn pass(watch: &mut DiskWatch, ticks: u64, leads: Option<(u64, u64)>) {
        let leads = leads.map(|(committed, durable)| (committed, durable, committed));
        (0..ticks).for_each(|_| watch.tick(leads, true));
    }

    #[test]
    fn a_disk_that_goes_on_finishing_is_never_stalled_however_much_waits() {
        let mut watch = watch();
        watch.appended(1, 10, true);
        for number in 2..50 {
            pass(&mut watch, BOUND_TICKS - 1, None);
            assert!(!watch.is_stalled());
            watch.appended(number, 10, true);
            watch.persisted(number - 1, true);
        }
        pass(&mut watch, BOUND_TICKS, None);
        assert!(watch.is_stalled());
        watch.persisted(49, false);
        assert!(!watch.is_stalled() && watch.unsynced_bytes == 0);
    }

    #[test]
    fn a_leader_yields_when_one_index_has_lacked_for_the_bound_and_not_when_it_is_always_a_little_behind()
     {
        let mut watch = watch();
        for index in 1..10 * BOUND_TICKS {
            pass(&mut watch, 1, Some((index, index - 1)));
            assert!(!watch.must_yield());
        }
        pass(&mut watch, 1, Some((1000, 999)));
        pass(&mut watch, BOUND_TICKS - 1, Some((2000, 999)));
        assert!(!watch.must_yield());
        pass(&mut watch, 1, Some((2000, 999)));
        assert!(watch.must_yield());
        pass(&mut watch, 1, Some((2000, 1000)));
        assert!(!watch.must_yield());
        pass(&mut watch, 10 * BOUND_TICKS, Some((2000, 2000)));
        assert!(!watch.must_yield(), "nothing is committed that it lacks");
    }

    #[test]
    fn a_leader_stays_where_nothing_is_committed_any_more() {
        let mut watch = watch();
        pass(&mut watch, 1, Some((7, 6)));
        (0..2 * BOUND_TICKS).for_each(|_| watch.tick(Some((7, 6, 8)), true));
        assert!(!watch.must_yield());
        watch.tick(Some((8, 6, 8)), true);
        assert!(watch.must_yield());
    }

    #[test]
    fn one_that_yielded_stands_again_after_ten_bounds_of_quick_syncs() {
        let mut watch = watch();
        (watch.has_yielded, watch.slow_at) = (true, 0);
        pass(&mut watch, BOUND_TICKS, None);
        watch.appended(1, 0, true);
        pass(&mut watch, BOUND_TICKS / 2, None);
        watch.persisted(1, false);
        pass(&mut watch, PROBATION_BOUNDS * BOUND_TICKS - 1, None);
        assert!(!watch.may_stand());
        pass(&mut watch, 1, None);
        assert!(watch.may_stand());
    }
}
