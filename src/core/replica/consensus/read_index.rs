//! Read indexes: up to where the log must be applied before a read shows all that was acknowledged before it.
//!
//! *Owns* the numbers of syncs from the question to the consensus until the answer is applied. *Invariants*: a
//! read index is asked for again until it is confirmed, each time with another context, because a late echo of
//! an earlier question would confirm what was asked since; what is confirmed is released in order, once it is
//! applied. *Never* believes a context of another process.

use std::collections::VecDeque;

use raft::ReadState;

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct ReadIndex {
    /// This process.
    origin: u64,
    /// Number of the newest sync for which a read index was asked from the consensus.
    asked: u64,
    /// How often that was done.
    attempts: u64,
    /// Number of the newest one that was confirmed.
    answered: u64,
    /// Confirmed read indexes that are not applied yet: number of the sync, and the index.
    confirmed: VecDeque<(u64, u64)>,
    /// Operators' questions that wait for the sync of that number, oldest first.
    inspections: VecDeque<(u64, u64)>,
}

impl ReadIndex {
    /// Of this process, which has asked nothing yet.
    pub(in crate::replica) fn new(origin: u64) -> Self {
        let (confirmed, inspections) = (VecDeque::new(), VecDeque::new());
        Self { origin, asked: 0, attempts: 0, answered: 0, confirmed, inspections }
    }

    /// An operator's question waits for this sync.
    pub(in crate::replica) fn inspected(&mut self, sync: u64, token: u64) {
        self.inspections.push_back((sync, token));
    }

    /// The next of these questions that can be answered, if syncs up to this one are confirmed and applied.
    pub(in crate::replica) fn released_inspection(&mut self, sync: u64) -> Option<u64> {
        let (waits_for, token) = self.inspections.front().copied()?;
        if waits_for > sync {
            return None;
        }
        self.inspections.pop_front();
        Some(token)
    }

    /// Whether no read index was asked for since this sync.
    pub(in crate::replica) fn is_behind(&self, sync: u64) -> bool {
        sync > self.asked
    }

    /// The context with which the consensus is to be asked, for all syncs up to this one.
    pub(in crate::replica) fn ask(&mut self, sync: u64) -> Vec<u8> {
        self.asked = sync;
        self.attempts += u64::from(!mutant!("read-index-asked-again-alike"));
        let mut context = self.origin.to_le_bytes().to_vec();
        context.extend_from_slice(&self.asked.to_le_bytes());
        context.extend_from_slice(&self.attempts.to_le_bytes());
        context
    }

    /// What was asked for may have been lost on the way.
    pub(in crate::replica) fn ask_again(&mut self) {
        self.asked = self.asked.min(self.answered);
    }

    /// A quorum has confirmed who leads, and up to where that one had committed.
    pub(in crate::replica) fn confirmed(&mut self, read: &ReadState) {
        let Some((origin, rest)) = read.request_ctx.split_first_chunk::<8>() else { return };
        let Some((sync, _attempt)) = rest.split_first_chunk::<8>() else { return };
        if u64::from_le_bytes(*origin) == self.origin {
            let sync = u64::from_le_bytes(*sync);
            self.answered = self.answered.max(sync);
            self.confirmed.push_back((sync, read.index));
        }
    }

    /// The next sync whose read index is confirmed and, with `applied`, applied.
    pub(in crate::replica) fn release(&mut self, applied: u64) -> Option<u64> {
        let (sync, index) = self.confirmed.front().copied()?;
        let index = if mutant!("read-index-one-early") { index - 1 } else { index };
        if index > applied && !mutant!("read-index-not-awaited") {
            return None;
        }
        self.confirmed.pop_front();
        Some(sync)
    }

    /// The state was replaced: what was confirmed is void.
    pub(in crate::replica) fn clear(&mut self) {
        self.confirmed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(request_ctx: Vec<u8>, index: u64) -> ReadState {
        ReadState { request_ctx, index }
    }

    #[test]
    fn a_sync_is_released_when_its_read_index_is_applied() {
        let mut reads = ReadIndex::new(7);
        assert!(reads.is_behind(1) && !reads.is_behind(0));
        let context = reads.ask(1);
        assert!(!reads.is_behind(1));
        reads.confirmed(&echo(context, 5));
        assert_eq!((reads.release(4), reads.release(5), reads.release(6)), (None, Some(1), None));
    }

    #[test]
    fn what_was_not_answered_is_asked_again_with_another_context() {
        let mut reads = ReadIndex::new(7);
        let first = reads.ask(1);
        reads.ask_again();
        assert!(reads.is_behind(1));
        let second = reads.ask(1);
        assert_ne!(first, second);
        reads.confirmed(&echo(second, 5));
        reads.ask_again();
        assert!(!reads.is_behind(1), "it is answered");
    }

    #[test]
    fn the_context_of_another_process_confirms_nothing() {
        let mut reads = ReadIndex::new(7);
        reads.confirmed(&echo(ReadIndex::new(8).ask(1), 5));
        reads.confirmed(&echo(vec![7], 5));
        assert_eq!(reads.release(9), None);
    }
}
