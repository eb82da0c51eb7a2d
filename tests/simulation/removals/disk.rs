//! The disk of a server in the world of changes of members: its log, and the records of its checkpoints.
//!
//! *Owns* what is there for good, and what is on its way. *Invariant*: what was not durable is gone when the process
//! ends.

use std::collections::BTreeMap;

use lockkeeper_core::replica::durable::{Changes, Restore as _};
use lockkeeper_core::replica::{Append, Entry, HardState, Machine, Mark};
use lockkeeper_core::tree;

/// Records of a state.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A disk: what is on it for good, and what is on its way there.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub entries: BTreeMap<u64, Entry>,
    pub hard_state: HardState,
    /// Whether the last of them are to be made durable now, or with the next that are.
    pub writing: Vec<(Append, bool)>,
    /// Records of the last checkpoint, and its mark.
    pub state: Records,
    pub mark: Option<Mark>,
    /// Records of the next one, as far as they have come.
    next: Records,
    /// An image that was received.
    pub received: Option<(Mark, Records)>,
}

impl Disk {
    /// The oldest append that is on its way is there: its number, if somebody waits for it.
    pub fn advance(&mut self) -> Option<u64> {
        let until = self.writing.iter().position(|(_, is_synced)| *is_synced)?;
        let mut number = None;
        for (append, _) in self.writing.drain(..=until) {
            if append.install.is_some() {
                let (mark, state) = self.received.take().expect("it was received");
                (self.mark, self.state, self.next) = (Some(mark), state.clone(), state);
                self.entries.clear();
            }
            for entry in append.entries {
                self.entries.split_off(&entry.index);
                self.entries.insert(entry.index, entry);
            }
            self.hard_state = append.hard_state.unwrap_or(self.hard_state);
            number = Some(append.number);
        }
        number
    }

    /// The process has ended.
    pub fn forget(&mut self) {
        self.writing.clear();
        self.next = self.state.clone();
        self.received = None;
    }

    /// State of the last checkpoint, or that of a server that has none.
    pub fn restored(&self) -> Machine {
        let mut machine = Machine::fresh(tree::Options {
            super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
            ..tree::Options::default()
        });
        if let Some(mark) = &self.mark {
            for (key, value) in &self.state {
                machine.record(key, value).expect("it was stored");
            }
            machine.finish(mark).expect("it was stored");
        }
        machine
    }

    /// Takes changed records: the mark of the checkpoint that they complete, if they do.
    pub fn take(&mut self, changes: Changes) -> Option<Mark> {
        if changes.begins_full_pass {
            self.next.clear();
        }
        for record in changes.records.iter() {
            match record.value {
                Some(value) => self.next.insert(record.key.to_vec(), value.to_vec()),
                None => self.next.remove(record.key),
            };
        }
        let mark = changes.mark?;
        (self.mark, self.state) = (Some(mark.clone()), self.next.clone());
        Some(mark)
    }

    /// Log as the process has it: what is on its way to the disk, too.
    pub fn log(&self) -> BTreeMap<u64, &Entry> {
        let mut log: BTreeMap<u64, &Entry> =
            self.entries.iter().map(|(at, entry)| (*at, entry)).collect();
        for entry in self.writing.iter().flat_map(|(append, _)| &append.entries) {
            log.split_off(&entry.index);
            log.insert(entry.index, entry);
        }
        log
    }
}
