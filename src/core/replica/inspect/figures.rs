//! What a replica counts for operators, beside what its connections count.
//!
//! *Owns* the counters that `srst` resets, and who has left a lock lately. *Invariant*: nothing but what operators see
//! depends on them. *Never* replicated, never on disk.

use super::departures::{Cause, Departures};
use super::measures::{EntryTimes, Measure, Measurement, Measurements};
use super::questions::ProposalSizes;
use crate::locks::snapshot::Departure;
use crate::tree::{Event, Tree};

/// The counters, since the start or the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::replica) struct Counts {
    /// Entries proposed.
    pub(in crate::replica) proposals: u64,
    /// Their sizes.
    pub(in crate::replica) proposal_sizes: Option<ProposalSizes>,
    /// Sessions that were overdue here.
    pub(in crate::replica) sessions_expired: u64,
    /// Clients that got no session here.
    pub(in crate::replica) connections_refused: u64,
    /// Transactions that were given to another server.
    pub(in crate::replica) forwards: u64,
    /// Messages of other servers that made no sense.
    pub(in crate::replica) peer_messages_dropped: u64,
    /// Times that this server handed its leadership over because its disk hung.
    pub(in crate::replica) disk_handovers: u64,
    /// Entries whose stamp is before that of the entry in front of them.
    pub(in crate::replica) time_returns: u64,
    /// By how much the last one is.
    pub(in crate::replica) time_returned_ms: u64,
    /// Entries taken from a leader.
    pub(in crate::replica) entries_received: u64,
    /// Entries that became committed while another server led.
    pub(in crate::replica) commits_received: u64,
    /// Clients that came with a session.
    pub(in crate::replica) sessions_revalidated: u64,
    /// Sessions that were given to a connection while this server led.
    pub(in crate::replica) revalidations_led: u64,
    /// Contenders of locks that left while this server led, and are in neither measure.
    pub(in crate::replica) lock_stays_unmeasured: u64,
}

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct Figures {
    pub(in crate::replica) counts: Counts,
    departures: Departures,
    entries: EntryTimes,
    measured: Measurements,
}

impl Figures {
    /// Nothing was counted yet; departures are known from this stamp on.
    pub(in crate::replica) fn new(since_ms: i64) -> Self {
        Self {
            counts: Counts::default(),
            departures: Departures::since(since_ms),
            entries: EntryTimes::default(),
            measured: Measurements::default(),
        }
    }

    /// An operator wants the counters to begin anew.
    pub(in crate::replica) fn reset(&mut self) {
        self.counts = Counts::default();
    }

    /// An entry of so many bytes was proposed.
    pub(in crate::replica) fn proposed(&mut self, size: u64) {
        self.counts.proposals += 1;
        let sizes = self.counts.proposal_sizes.get_or_insert(ProposalSizes {
            last: size,
            min: size,
            max: size,
        });
        sizes.last = size;
        sizes.min = sizes.min.min(size);
        sizes.max = sizes.max.max(size);
    }

    /// Entries were appended to the log here. `stamped_ms`: how long ago the leader stamped each, of another leader's.
    pub(in crate::replica) fn appended(
        &mut self,
        (first, last): (u64, u64),
        now_us: u64,
        stamped_ms: Option<Vec<u64>>,
    ) {
        self.entries.appended(first, last, now_us);
        let Some(stamped_ms) = stamped_ms else { return };
        self.counts.entries_received += last - first + 1;
        for ms in stamped_ms {
            self.measured.note(Measure::Proposal, ms * 1000);
        }
    }

    /// What is committed ends with this index.
    pub(in crate::replica) fn committed(&mut self, index: u64, now_us: u64, is_leader: bool) {
        let measure = if is_leader { Measure::QuorumAck } else { Measure::CommitPropagation };
        for (us, times) in self.entries.committed(index, now_us) {
            if !is_leader {
                self.counts.commits_received += u64::from(times);
            }
            self.measured.note_times(measure, us, times);
        }
    }

    /// What is durable here ends with this index.
    pub(in crate::replica) fn durable(&mut self, index: u64, now_us: u64) {
        for (us, times) in self.entries.durable(index, now_us) {
            self.measured.note_times(Measure::OwnAck, us, times);
        }
    }

    /// Another server has acknowledged what ends with this index.
    pub(in crate::replica) fn acknowledged(&mut self, server: u8, index: u64, now_us: u64) {
        if let Some(us) = self.entries.since(index, now_us) {
            self.measured.note(Measure::Ack { server }, us);
        }
    }

    /// So many transactions were applied that the leader stamped so long ago, by this server's wall clock.
    pub(in crate::replica) fn propagated(&mut self, ms: i64, times: usize) {
        // As in ZooKeeper: clocks that disagree measure nothing.
        if let Ok(ms) = u64::try_from(ms) {
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            self.measured.note_times(Measure::Propagation, ms * 1000, times);
        }
    }

    /// Hands out what was measured.
    pub(in crate::replica) fn take_measurements(&mut self, into: &mut Vec<Measurement>) {
        self.measured.take(into);
    }

    /// The stamps of entries went back by so much.
    pub(in crate::replica) fn time_returned(&mut self, by_ms: u64) {
        self.counts.time_returns += 1;
        self.counts.time_returned_ms = by_ms;
    }

    /// Keeps in mind what these events tell of locks. `tree`: only where locks are to be measured.
    pub(in crate::replica) fn note(
        &mut self,
        events: &[Event],
        cause: Cause,
        time_ms: i64,
        tree: Option<&Tree>,
    ) {
        let stays = self.departures.note(events, cause, time_ms, tree);
        for (wait_ms, hold_ms) in stays.measured {
            self.measured.note(Measure::LockWait, wait_ms.saturating_mul(1000));
            self.measured.note(Measure::LockHold, hold_ms.saturating_mul(1000));
        }
        self.counts.lock_stays_unmeasured += stays.unmeasured;
    }

    /// Keeps a portion of a transaction in mind. `is_measured`: this server would measure the transaction.
    pub(in crate::replica) fn note_portion(
        &mut self,
        events: &[Event],
        cause: Cause,
        time_ms: i64,
        is_measured: bool,
    ) {
        let unmeasured = self.departures.note_portion(events, cause, time_ms);
        self.counts.lock_stays_unmeasured += if is_measured { unmeasured } else { 0 };
    }

    /// The state was replaced: departures before this stamp are not known.
    pub(in crate::replica) fn forget_departures(&mut self, since_ms: i64) {
        self.departures = Departures::since(since_ms);
    }

    /// Who has left the lock in this directory lately, at most so many; and since when nothing is missing of that.
    pub(in crate::replica) fn departures_of(
        &self,
        directory: &str,
        max: usize,
    ) -> (Vec<Departure>, i64) {
        (self.departures.of(directory, max), self.departures.known_since_ms(directory, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_proposals_are_the_last_the_least_and_the_most_and_a_reset_forgets_them() {
        let mut figures = Figures::new(0);
        for size in [5, 9, 7] {
            figures.proposed(size);
        }
        let sizes = ProposalSizes { last: 7, min: 5, max: 9 };
        assert_eq!((figures.counts.proposals, figures.counts.proposal_sizes), (3, Some(sizes)));
        figures.reset();
        assert_eq!(figures.counts.proposal_sizes, None);
    }
}
