//! Many runs as one.
//!
//! *Owns* the order in which their records come, and which of them count. *Invariants*: of the records
//! with one key, the one of the newest run is given and no other; the last record is given only if
//! every run turned out to be what was written. *Never* holds more of a run than one block, or one
//! record that is longer.

use super::manifest::Manifest;
use super::run::{Run, RunReader, RunWriter};
use super::store::{StateError, StateStore, Take};
use crate::throttle::{CpuThrottle, RECORD_STEPS, WorkBudget};
use lockkeeper_core::replica::Record;

/// Reads runs together.
#[derive(Debug)]
pub(crate) struct Merge {
    /// Oldest first.
    readers: Vec<RunReader>,
    /// Those that are not at their end, by [`Merge::is_before`]: the first has the record.
    order: Vec<usize>,
    /// Whether [`Merge::record`] was not gone past yet.
    has_record: bool,
    cpu_throttle: CpuThrottle,
}

impl Merge {
    /// In front of the first record of `runs`, which are given oldest first.
    pub(crate) fn new(
        store: &mut dyn StateStore,
        runs: &[Run],
        work_budget: &WorkBudget,
    ) -> Result<Self, StateError> {
        let readers: Vec<RunReader> = runs.iter().map(RunReader::new).collect();
        let cpu_throttle = CpuThrottle::new(work_budget);
        let mut merge = Self { readers, order: Vec::new(), has_record: false, cpu_throttle };
        for at in 0..merge.readers.len() {
            merge.step(store, at)?;
        }
        Ok(merge)
    }

    /// Goes to the next record; false at the end.
    pub(crate) fn advance(&mut self, store: &mut dyn StateStore) -> Result<bool, StateError> {
        self.cpu_throttle.did(RECORD_STEPS);
        if std::mem::take(&mut self.has_record) {
            let newest = self.order.remove(0);
            // The older records of the same key come right behind it.
            while let Some(&older) = self.order.first()
                && self.readers[older].key() == self.readers[newest].key()
            {
                self.order.remove(0);
                self.step(store, older)?;
            }
            self.step(store, newest)?;
        }
        self.has_record = !self.order.is_empty();
        Ok(self.has_record)
    }

    /// The record that [`Merge::advance`] went to.
    pub(crate) fn record(&self) -> Record<'_> {
        self.readers[self.order[0]].record()
    }

    /// Moves a reader on that is not in the order: it is at its end then, or comes where its next record does.
    fn step(&mut self, store: &mut dyn StateStore, at: usize) -> Result<(), StateError> {
        if self.readers[at].advance(store)? {
            let place = self.order.partition_point(|other| self.is_before(*other, at));
            self.order.insert(place, at);
        }
        Ok(())
    }

    /// By key; of equal ones, the newest first.
    fn is_before(&self, a: usize, b: usize) -> bool {
        let order = self.readers[a].key().cmp(self.readers[b].key());
        order.then(b.cmp(&a)).is_lt()
    }
}

/// Writes `runs`, which are given oldest first, as one run with the number `id`. If there is nothing
/// below them, removals have nothing left to remove and are left out.
pub(crate) fn merge(
    store: &mut dyn StateStore,
    runs: &[Run],
    id: u64,
    is_lowest: bool,
    work_budget: &WorkBudget,
) -> Result<Run, StateError> {
    let mut merge = Merge::new(store, runs, work_budget)?;
    let mut writer = RunWriter::new(id);
    while merge.advance(store)? {
        let record = merge.record();
        if record.value.is_some() || !is_lowest {
            writer.record(store, record)?;
        }
    }
    writer.finish(store)
}

/// Gives all records of a state to `take` in ascending order of keys, and to `copy`, if there is one.
/// If that succeeds, they are exactly what was put there.
///
/// # Errors
/// Something is missing or damaged, the store cannot be read or written, or `take` objects.
pub(crate) fn scan(
    store: &mut dyn StateStore,
    manifest: &Manifest,
    mut copy: Option<&mut RunWriter>,
    work_budget: &WorkBudget,
    take: Take<'_>,
) -> Result<(), StateError> {
    let mut merge = Merge::new(store, &manifest.runs, work_budget)?;
    let mut records = 0;
    let mut last_key = Vec::new();
    while merge.advance(store)? {
        let Record { key, value } = merge.record();
        if let Some(value) = value {
            // Damaged ones come in any order, and who takes them is not to be blamed for it.
            if records > 0 && key <= &last_key[..] {
                return Err(StateError::new(store.path(), "its keys do not ascend"));
            }
            last_key.clear();
            last_key.extend_from_slice(key);
            take(key, value).map_err(|what| StateError::new(store.path(), what))?;
            if let Some(copy) = &mut copy {
                copy.record(store, merge.record())?;
            }
            records += 1;
        }
    }
    manifest.check_records(store.path(), records)
}

/// From which run on the runs are to be merged, if any: all that are newer as well.
///
/// A run is merged when those above it have come to [`FAN_IN`] - 1 times its bytes, so that every record
/// is written about once for each sixteenfold of what is stored, and there are few runs. The lowest one
/// has all that never changes, and is merged earlier: what it takes for nothing is bounded.
pub(crate) fn first_to_merge(runs: &[Run], has_lowest: bool) -> Option<usize> {
    let mut newer: u64 = runs.iter().map(weight).sum();
    for (at, run) in runs.iter().enumerate() {
        newer -= weight(run);
        let is_due = match at == 0 && has_lowest {
            true => newer >= weight(run) * LOWEST_TIMES || removes_much(runs),
            false => newer >= weight(run) * (FAN_IN - 1),
        };
        if is_due && at + 1 < runs.len() {
            return Some(at);
        }
    }
    None
}

/// Whether runs that are read anyway are to be written as one: that is cheaper than to read them all
/// once more when the lowest one is due.
pub(crate) fn is_worth_a_copy(runs: &[Run]) -> bool {
    let [lowest, newer @ ..] = runs else { return false };
    let newer: u64 = newer.iter().map(weight).sum();
    newer * COPIED_PART >= weight(lowest) || removes_much(runs)
}

/// A small run costs as much as one of a block.
fn weight(run: &Run) -> u64 {
    run.bytes.max(super::store::BLOCK_BYTES as u64)
}

/// Whether a good part of the lowest run is gone, by what the others remove.
fn removes_much(runs: &[Run]) -> bool {
    let removed: u64 = runs.iter().map(|run| run.removed).sum();
    removed > 0 && removed * 2 >= runs[0].records
}

const FAN_IN: u64 = 16;
/// The lowest run is merged when those above it have come to this many times its bytes.
const LOWEST_TIMES: u64 = 2;
/// It is when all are read for another reason, and those above it have come to this part of it.
const COPIED_PART: u64 = 2;
