//! Reaction of a server to its own log's disk when that hangs.
//!
//! *Owns* what follows from what `consensus/node/disk_watch.rs` finds: a leader hands over, and clients whose
//! writes cannot be answered are sent to other servers. *Invariants*: a lone voter keeps its clients, for
//! there is no other server; a follower keeps them as long as it applies what others commit; those who
//! were sent away are served again when the disk has returned. *Never* judges a disk that the log does not
//! wait for: a checkpoint or an image that is slow deposes no leader.

use crate::replica::Replica;
use crate::replica::timing::LEADERLESS_MS_MAX;

/// Once a disk counts as hung, nothing waits for it any more that need not: so long, in milliseconds, what
/// is committed has to be applied before clients are sent away.
const CHANCE_MS: u64 = 200;

impl Replica {
    /// Time has passed.
    pub(in crate::replica) fn mind_disk(&mut self) {
        if self.consensus.disk().must_yield() && self.consensus.yield_leadership() {
            self.figures.counts.disk_handovers += 1;
        }
        if !self.consensus.disk().is_stalled() {
            self.leadership.await_disk(false);
            return;
        }
        self.consensus.wait_for_disk(false);
        if self.is_serving() && !self.consensus.is_alone() && self.is_starved() {
            self.leadership.await_disk(true);
            self.stop_serving();
        }
    }

    /// Whether the disk has finished nothing for as long as it may take at most.
    pub(in crate::replica) fn is_disk_hung(&self) -> bool {
        self.consensus.disk().is_stalled() || self.consensus.disk().must_yield()
    }

    /// Whether a client here has waited for the bound for something that has to be committed and applied
    /// first. A new leader gets the bound anew, and so does one that is about to hand over: its clients'
    /// writes are committed, and answered once another server leads.
    fn is_starved(&self) -> bool {
        let bound_ms = self.setup.disk_stall_ms;
        let disk = self.consensus.disk();
        let patience_ms = match (disk.lacks_committed(), disk.has_yielded()) {
            (true, _) => 2 * bound_ms,
            // Its clients have waited for the bound already.
            (false, true) => bound_ms.min(LEADERLESS_MS_MAX),
            (false, false) => bound_ms,
        };
        let oldest_us = self.clients.waiting_since_us();
        let since_us = oldest_us.map(|at_us| at_us.max(self.leadership.led_anew_us()));
        let is_given_up =
            since_us.is_some_and(|since| self.clocks.now_us() >= since + patience_ms * 1000);
        let has_had_chance = disk.waits_ms() >= self.setup.disk_stall_ms + CHANCE_MS;
        // Without a leader, other rules send clients away.
        is_given_up && has_had_chance && self.consensus.leader().is_some()
    }
}
