//! The machine of one server, and up to where of the log it is.
//!
//! *Owns* the machine, index and term of the last entry that is applied, the entry of which a part is, and a received
//! state that waits to take the machine's place. *Invariants*: the first two change together; what is handed to the
//! disk is not older than what the disk may have already, which the log at the start tells. *Never* looks at the
//! consensus.

use super::leaving::Underway;
use super::state::Machine;
use crate::replica::durable::Mark;

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct AppliedState {
    machine: Machine,
    /// Index and term of the last entry applied.
    at: (u64, u64),
    /// The entry behind it, if a part of that is applied.
    pub(in crate::replica) underway: Option<Underway>,
    /// Last entry that was in the log at the start: before it is applied, the disk may hold a
    /// later state than this one.
    log_end_at_start: u64,
    /// A received state that waits for the consensus to accept it.
    incoming: Option<(Mark, Box<Machine>)>,
}

canonical! {
    // Where the log ended at the start only says what may be handed to a disk, which these replicas have none of.
    AppliedState: at; without log_end_at_start;
    |out, machine, underway, incoming| {
        assert!(underway.is_none(), "an entry of which a part is applied needs a dump of it");
        machine.canonical(out);
        out.value(&incoming.as_ref().map(|(mark, _)| mark));
    }
}

impl AppliedState {
    /// What the disk gave back.
    pub(in crate::replica) fn new(machine: Machine, at: (u64, u64), log_end_at_start: u64) -> Self {
        Self { machine, at, underway: None, log_end_at_start, incoming: None }
    }

    pub(in crate::replica) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(in crate::replica) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Digest of the state behind the last entry applied.
    pub(in crate::replica) fn digest(&self) -> u128 {
        self.underway.as_ref().map_or_else(|| self.machine.digest(), |underway| underway.digest)
    }

    /// Index and term of the last entry applied.
    pub(in crate::replica) fn at(&self) -> (u64, u64) {
        self.at
    }

    /// This entry is applied.
    pub(in crate::replica) fn applied(&mut self, at: (u64, u64)) {
        self.at = at;
    }

    /// Whether the disk may have a later state than this one.
    pub(in crate::replica) fn is_behind_disk(&self) -> bool {
        self.at.0 < self.log_end_at_start
    }

    /// A state was received.
    pub(in crate::replica) fn receive(&mut self, mark: Mark, machine: Box<Machine>) {
        self.incoming = Some((mark, machine));
    }

    /// Whether a received state waits.
    pub(in crate::replica) fn has_received(&self) -> bool {
        self.incoming.is_some()
    }

    /// The consensus has accepted the received state at this index and term. The state before it is handed back: to end
    /// millions of znodes takes seconds.
    ///
    /// # Errors
    /// There is none.
    pub(in crate::replica) fn install(
        &mut self,
        at: (u64, u64),
    ) -> Result<(Mark, Box<Machine>), String> {
        let is_it = |(mark, _): &(Mark, Box<Machine>)| (mark.index, mark.term) == at;
        let Some((mark, mut machine)) = self.incoming.take().filter(is_it) else {
            return Err(format!(
                "an image at entry {} of term {} was accepted, but none came",
                at.0, at.1
            ));
        };
        std::mem::swap(&mut self.machine, &mut machine);
        self.underway = None;
        self.machine.take_replayed();
        self.machine.mark_all_changed();
        self.machine.keep_all_tombstones(true);
        self.at = at;
        self.log_end_at_start = 0;
        Ok((mark, machine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Options;

    fn fresh() -> Machine {
        Machine::fresh(Options::default())
    }

    #[test]
    fn only_the_received_state_that_was_accepted_is_installed() {
        let mut state = AppliedState::new(fresh(), (3, 1), 5);
        assert!(state.is_behind_disk());
        assert!(state.install((9, 2)).is_err(), "none came");
        state.receive(Mark { index: 8, term: 2, ..Mark::default() }, Box::new(fresh()));
        assert!(state.install((9, 2)).is_err(), "another one came");
        state.receive(Mark { index: 9, term: 2, ..Mark::default() }, Box::new(fresh()));
        assert_eq!(state.install((9, 2)).map(|(mark, _)| mark.index), Ok(9));
        assert_eq!((state.at(), state.is_behind_disk()), ((9, 2), false));
        assert!(state.machine().changes_waiting() > 0, "the disk has nothing of it");
    }

    #[test]
    fn the_disk_may_be_ahead_until_its_log_is_applied() {
        let mut state = AppliedState::new(fresh(), (3, 1), 4);
        assert!(state.is_behind_disk());
        state.applied((4, 1));
        assert!(!state.is_behind_disk());
    }
}
