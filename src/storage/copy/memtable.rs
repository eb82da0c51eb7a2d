//! Changed records that are not written yet.
//!
//! *Owns* a buffer of them. *Invariant*: they come out sorted by key, each key once, as
//! it was last. *Never* writes anything.

use super::run::{pack, unpack};
use crate::throttle::{CpuThrottle, RECORD_STEPS, WorkBudget};
use lockkeeper_core::replica::Record;

/// Records in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// As they are in a run.
    packed: Vec<u8>,
    /// Where each begins.
    starts: Vec<usize>,
}

impl Collected {
    pub(crate) fn push(&mut self, record: Record<'_>) {
        self.starts.push(self.packed.len());
        pack(record, &mut self.packed);
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len() + self.starts.len() * size_of::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Takes all records, sorted, each key once. Keeps their memory for others.
    pub(crate) fn take<E>(
        &mut self,
        work_budget: &WorkBudget,
        mut take: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { packed, starts } = self;
        let record = |start: usize| unpack(&packed[start..]);
        // Stable: of one key, the newest stays last. What comes in order costs next to nothing.
        let mut cpu_throttle = CpuThrottle::new(work_budget);
        starts.sort_by(|a, b| {
            cpu_throttle.did(1);
            record(*a).key.cmp(record(*b).key)
        });
        for (at, start) in starts.iter().enumerate() {
            let now = record(*start);
            let next = starts.get(at + 1).map(|next| record(*next).key);
            if next != Some(now.key) {
                take(now)?;
                cpu_throttle.did(RECORD_STEPS);
            }
        }
        packed.clear();
        starts.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_key_the_newest_record_comes_out_and_keys_ascend() {
        let mut collected = Collected::default();
        for i in 0..1000_u32 {
            let key = (i * 7 % 100).to_be_bytes();
            let value = i.to_be_bytes();
            collected.push(Record { key: &key, value: (i % 3 > 0).then_some(&value) });
        }
        let mut out = Vec::new();
        let taken = collected.take(&WorkBudget::default(), |record| {
            out.push((record.key.to_vec(), record.value.map(<[u8]>::to_vec)));
            Ok::<(), ()>(())
        });
        assert_eq!(taken, Ok(()));
        assert!(collected.is_empty());
        let expected: Vec<_> = (0..100_u32)
            .map(|key| {
                let last = (0..1000).rev().find(|i| i * 7 % 100 == key).unwrap();
                let value = (last % 3 > 0).then(|| last.to_be_bytes().to_vec());
                (key.to_be_bytes().to_vec(), value)
            })
            .collect();
        assert_eq!(out, expected);
    }
}
