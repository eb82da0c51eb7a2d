//! What a turn of the driver takes, and how much is done in it.
//!
//! *Owns* the counts of the turn before, to tell from them what a turn has done. *Invariant*: turns in which nothing
//! came and nothing was applied measure nothing: an idle server would drown what a busy one measures. *Never* reads a
//! clock: the driver says how late it was.

use super::figures::Figures;
use crate::admin::Quantity;
use crate::replica::{Measurement, Replica, Status};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::server) struct TurnMeasures {
    reads: u64,
    writes: u64,
    applied: u64,
    drained: u64,
    taken: Vec<Measurement>,
}

/// How late it was, by the clock of the replica.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Times {
    /// When the turn began.
    pub began_us: u64,
    /// When all messages were given to the replica.
    pub stepped_us: u64,
    /// When everything was done that the replica wanted.
    pub settled_us: u64,
}

impl TurnMeasures {
    /// A turn is over, for which so many messages had come.
    pub(in crate::server) fn note(
        &mut self,
        figures: &Figures,
        replica: &mut Replica,
        status: &Status,
        (messages, times): (usize, Times),
    ) {
        let measures = &figures.measures;
        replica.take_measurements(&mut self.taken);
        measures.take(&mut self.taken);
        // An operator may have reset them.
        let since = |known: &mut u64, now: u64| {
            let before = std::mem::replace(known, now);
            now.checked_sub(before).unwrap_or(now)
        };
        let reads = since(&mut self.reads, status.reads_answered);
        let writes = since(&mut self.writes, status.writes_answered);
        let applied = since(&mut self.applied, status.txns_applied);
        let drained = since(&mut self.drained, status.queues_drained);
        if messages == 0 && applied == 0 {
            return;
        }
        let requests_us = times.stepped_us.saturating_sub(times.began_us);
        let commits_us = times.settled_us.saturating_sub(times.stepped_us);
        measures.record(Quantity::DriverQueue, messages as u64);
        measures.record(Quantity::TurnOfRequests, requests_us);
        measures.record(Quantity::TurnOfCommits, commits_us);
        measures.record(Quantity::ReadsPerTurn, reads);
        measures.record(Quantity::CommitsPerTurn, applied);
        measures.record(Quantity::Waiting, status.outstanding);
        measures.record(Quantity::QueuesDrained, drained);
        if let Some(part_us) = requests_us.checked_div(reads) {
            measures.record_times(Quantity::ReadPart, part_us, reads);
        }
        if let Some(part_us) = commits_us.checked_div(applied) {
            measures.record(Quantity::TurnOfWrites, commits_us);
            measures.record_times(Quantity::WritePart, part_us, applied);
            let own = writes.min(applied);
            measures.record_times(Quantity::OwnCommitted, commits_us, own);
            measures.record_times(Quantity::OthersCommitted, commits_us, applied - own);
        }
    }
}
