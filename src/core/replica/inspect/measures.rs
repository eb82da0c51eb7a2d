//! What the replica measures of itself: single values, of which the shell makes distributions.
//!
//! *Owns* the names of what is measured, the values that were not taken yet, and when entries of the log came, until
//! they are committed. *Invariants*: nothing but what operators see depends on them; what is not taken is bounded, and
//! the newest are left out. *Never* reads a clock: times are differences of those in `Input::Tick`, so what happens
//! within one batch of inputs takes no time here.

use std::collections::VecDeque;

/// What was measured. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// From when a read was handed to the replica until its answer was made.
    ReadWait,
    /// From when a write was handed to the replica until it was applied and its answer made.
    WriteWait,
    /// Leader: from a proposal until a majority has it durably.
    QuorumAck,
    /// Leader: from a proposal until that server acknowledged it.
    Ack {
        /// Its server id.
        server: u8,
    },
    /// From when an entry came to this server until its own disk had it.
    OwnAck,
    /// Others than the leader: from when an entry came until it was known to be committed.
    CommitPropagation,
    /// Others than the leader: from the leader's stamp of an entry until it came, by two wall clocks.
    Proposal,
    /// From the leader's stamp of a transaction until this server applied it, by two wall clocks.
    Propagation,
    /// Watches fired by one change that created a znode.
    WatchersOfCreated,
    /// Watches fired by one change that deleted a znode.
    WatchersOfDeleted,
    /// Watches fired by one change of a znode's data.
    WatchersOfChanged,
    /// Watches fired by one change of a znode's children.
    WatchersOfChildren,
    /// Requests of a connection that waited when another one had to wait behind them, with that one.
    RequestsInQueue,
    /// Connections with requests that waited, when one of them was answered after its transaction was applied.
    QueuesWaiting,
    /// Reads answered because the write in front of them was applied.
    ReadsAfterWrite,
    /// Leader: from the creation of a contender until it held its lock, of one that has left; by the leaders' stamps.
    LockWait,
    /// Leader: from then on until it left.
    LockHold,
}

/// A value, measured so many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// Of what.
    pub measure: Measure,
    /// How much, in its unit.
    pub value: u64,
    /// How often.
    pub times: u32,
}

/// More that are not taken are left out.
const MEASUREMENTS_MAX: usize = 4096;

/// Those that were not taken yet.
#[derive(Debug, Default)]
pub(in crate::replica) struct Measurements(Vec<Measurement>);

impl Measurements {
    /// Notes one.
    pub(in crate::replica) fn note(&mut self, measure: Measure, value: u64) {
        self.note_times(measure, value, 1);
    }

    /// Notes the same, so many times.
    pub(in crate::replica) fn note_times(&mut self, measure: Measure, value: u64, times: u32) {
        let is_full = self.0.len() >= MEASUREMENTS_MAX;
        match self.0.last_mut() {
            Some(last) if last.measure == measure && last.value == value => {
                last.times = last.times.saturating_add(times);
            }
            _ if times == 0 || is_full => {}
            _ => self.0.push(Measurement { measure, value, times }),
        }
    }

    /// Moves them behind those of the caller.
    pub(in crate::replica) fn take(&mut self, into: &mut Vec<Measurement>) {
        into.append(&mut self.0);
    }
}

/// When entries of the log came to this server: of those that were appended together, once.
#[derive(Debug, Default)]
pub(in crate::replica) struct EntryTimes {
    /// In the order of their indices, the newest few.
    batches: VecDeque<Came>,
    /// What was measured up to this index.
    committed: u64,
    durable: u64,
}

/// Entries that came together.
#[derive(Clone, Copy, Debug)]
struct Came {
    first: u64,
    last: u64,
    at_us: u64,
}

/// More than a server that is a second behind has.
const BATCHES_MAX: usize = 1024;

impl EntryTimes {
    /// Entries up to an index were appended behind those before.
    pub(in crate::replica) fn appended(&mut self, first: u64, last: u64, at_us: u64) {
        // Those of another leader may take the place of some that were never committed.
        while self.batches.back().is_some_and(|came| came.first >= first) {
            self.batches.pop_back();
        }
        if let Some(came) = self.batches.back_mut() {
            came.last = came.last.min(first - 1);
        }
        if self.batches.len() == BATCHES_MAX {
            self.batches.pop_front();
        }
        self.batches.push_back(Came { first, last, at_us });
    }

    /// Entries up to this index are committed: how long ago those came that were not, and how many they are.
    pub(in crate::replica) fn committed(&mut self, index: u64, now_us: u64) -> Vec<(u64, u32)> {
        let from = self.committed;
        self.committed = from.max(index);
        self.between(from, index, now_us)
    }

    /// The same of those that are durable here.
    pub(in crate::replica) fn durable(&mut self, index: u64, now_us: u64) -> Vec<(u64, u32)> {
        let from = self.durable;
        self.durable = from.max(index);
        self.between(from, index, now_us)
    }

    /// How long ago the entry with this index came, if that is known.
    pub(in crate::replica) fn since(&self, index: u64, now_us: u64) -> Option<u64> {
        let at = self.batches.partition_point(|came| came.last < index);
        let came = self.batches.get(at).filter(|came| came.first <= index)?;
        Some(now_us.saturating_sub(came.at_us))
    }

    fn between(&self, after: u64, up_to: u64, now_us: u64) -> Vec<(u64, u32)> {
        if up_to <= after {
            return Vec::new();
        }
        let begin = self.batches.partition_point(|came| came.last <= after);
        let batches = self.batches.range(begin..).take_while(|came| came.first <= up_to);
        let measured = batches.map(|came| {
            let count = came.last.min(up_to) - came.first.max(after + 1) + 1;
            (now_us.saturating_sub(came.at_us), u32::try_from(count).unwrap_or(u32::MAX))
        });
        measured.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_in_a_row_are_one_measurement_and_the_newest_of_too_many_are_left_out() {
        let (mut measured, mut taken) = (Measurements::default(), Vec::new());
        measured.note(Measure::ReadWait, 0);
        measured.note(Measure::ReadWait, 0);
        measured.note(Measure::WriteWait, 0);
        measured.take(&mut taken);
        let twice = Measurement { measure: Measure::ReadWait, value: 0, times: 2 };
        assert_eq!((taken.len(), taken[0]), (2, twice));
        for value in 0..2 * MEASUREMENTS_MAX as u64 {
            measured.note(Measure::ReadWait, value);
        }
        taken.clear();
        measured.take(&mut taken);
        assert_eq!(taken.len(), MEASUREMENTS_MAX);
        assert_eq!(taken.last().unwrap().value, MEASUREMENTS_MAX as u64 - 1);
    }

    #[test]
    fn each_entry_is_measured_once_from_when_it_came() {
        let mut times = EntryTimes::default();
        times.appended(5, 6, 100);
        times.appended(7, 9, 200);
        assert_eq!(times.committed(7, 1100), [(1000, 2), (900, 1)]);
        assert_eq!(times.committed(7, 1200), []);
        assert_eq!(times.committed(6, 1200), [], "what is committed stays so");
        assert_eq!(times.committed(9, 1200), [(1000, 2)]);
        assert_eq!(times.durable(9, 300), [(200, 2), (100, 3)]);
        assert_eq!(
            (times.since(6, 300), times.since(4, 300), times.since(10, 300)),
            (Some(200), None, None)
        );
    }

    #[test]
    fn entries_that_take_the_place_of_others_are_measured_from_when_they_came() {
        let mut times = EntryTimes::default();
        times.appended(5, 8, 100);
        times.appended(9, 9, 150);
        times.appended(7, 10, 200);
        assert_eq!(times.committed(10, 300), [(200, 2), (100, 4)]);
    }

    #[test]
    fn the_times_of_many_entries_take_little_memory() {
        let mut times = EntryTimes::default();
        for index in 1..=3 * BATCHES_MAX as u64 {
            times.appended(index, index, index);
        }
        assert_eq!(times.batches.len(), BATCHES_MAX);
        assert_eq!(times.since(1, 10), None);
    }
}
