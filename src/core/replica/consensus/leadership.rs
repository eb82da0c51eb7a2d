//! Who leads, and whether clients are served, as far as this server can tell.
//!
//! *Owns* the term in which this server leads, since when there is no leader, whether clients are served, what must be
//! applied before they are, and the hint that a leader is gone. *Invariants*: a server begins to serve only when the
//! read index that it asked for when it found the leader is applied, or when it leads; one that has had no leader for
//! [`LEADERLESS_MS_MAX`] is to stop. *Never* believes a clock about who leads, and never closes a connection: its
//! caller does.

use crate::replica::timing::LEADERLESS_MS_MAX;

/// A server that lost its link to the leader stands for election this much later than the one before
/// it in the order of ids, in microseconds: two at once would split the votes.
const RANK_US: u64 = 50_000;
/// How long such a loss is a reason to stand, in microseconds.
const HINT_US: u64 = 1_000_000;
/// Ticks without a word from the leader after which a server that does not vote (and therefore stands
/// for no election) takes it for gone.
const SILENT_TICKS_MAX: u64 = 10;

/// What this server knows of leadership beyond what Raft does.
#[derive(Debug, Default)]
pub(in crate::replica) struct Leadership {
    /// Term in which this replica leads and has applied everything from before.
    leads: Option<u64>,
    led_since_us: u64,
    /// Clients are served.
    is_serving: bool,
    /// Since when there is no leader.
    leaderless_since_us: Option<u64>,
    /// The read index that must be applied before clients are served.
    barrier: Option<u64>,
    hint: Option<Hint>,
    /// This leader has yet to see whether it is to write who the members are.
    founds: bool,
    /// Leadership is to be given away.
    resigns: bool,
    /// Index of the entry by which this leader raises the version of the ensemble.
    upgrade: Option<u64>,
    /// Clients were sent away because the disk hangs: they are served again when it returns.
    awaits_disk: bool,
    /// When another leader than before was seen last.
    led_anew_us: u64,
    /// Ticks since the leader was heard from.
    silent_ticks: u64,
    /// Changes of the leader that were seen.
    changes: u64,
    last_leader: Option<u64>,
    /// Why clients are not served that will not be by waiting, as of the last tick.
    obstacle: Option<String>,
}

/// The link to the leader broke.
#[derive(Clone, Copy, Debug)]
struct Hint {
    until_us: u64,
    campaign_at_us: u64,
}

canonical! {
    // How long a server has led counts while others join what it has founded, and since when another one leads while a
    // client waits; why clients are not served is said to operators alone.
    Leadership(client_waits: bool):
    leads, is_serving, barrier, hint, founds, resigns, upgrade, awaits_disk, last_leader; without changes, obstacle;
    |out, led_since_us, leaderless_since_us, led_anew_us, silent_ticks| {
        out.value(&(founds.then_some(led_since_us), client_waits.then_some(led_anew_us)));
        out.value(silent_ticks.min(&(SILENT_TICKS_MAX + 1)));
        out.maybe_time_up_to(*leaderless_since_us, LEADERLESS_MS_MAX * 1000);
    }
}

impl Leadership {
    /// The term in which this server leads and has applied everything from before.
    pub(in crate::replica) fn leads(&self) -> Option<u64> {
        self.leads
    }

    /// Since when it does.
    pub(in crate::replica) fn led_since_us(&self) -> u64 {
        self.led_since_us
    }

    /// This server leads in this term, and is to see whether it founds the ensemble.
    pub(in crate::replica) fn begin(&mut self, term: u64, now_us: u64) {
        self.leads = Some(term);
        self.led_since_us = now_us;
        self.founds = true;
    }

    /// It leads no longer.
    pub(in crate::replica) fn end(&mut self) {
        self.leads = None;
        self.upgrade = None;
    }

    /// This leader has proposed an upgrade of the ensemble at this index.
    pub(in crate::replica) fn upgrades_at(&mut self, index: u64) {
        self.upgrade = Some(index);
    }

    /// Whether an upgrade that this leader has proposed is not among the entries that are applied.
    pub(in crate::replica) fn awaits_upgrade(&self, applied: u64) -> bool {
        self.upgrade.is_some_and(|index| index > applied)
    }

    /// Whether this leader has yet to see whether it is to write who the members are.
    pub(in crate::replica) fn founds(&self) -> bool {
        self.leads.is_some() && self.founds
    }

    /// It has seen that.
    pub(in crate::replica) fn founded(&mut self) {
        self.founds = false;
    }

    /// Raft knows of this leader.
    pub(in crate::replica) fn saw(&mut self, leader: Option<u64>, now_us: u64) {
        if leader.is_some() && leader != self.last_leader {
            self.changes += 1;
            self.last_leader = leader;
            self.led_anew_us = now_us;
        }
    }

    /// How many leaders were seen to follow each other.
    pub(in crate::replica) fn changes(&self) -> u64 {
        self.changes
    }

    /// When another leader than before was seen last.
    pub(in crate::replica) fn led_anew_us(&self) -> u64 {
        self.led_anew_us
    }

    /// Whether clients are served.
    pub(in crate::replica) fn is_serving(&self) -> bool {
        self.is_serving
    }

    /// Clients are served from now on.
    pub(in crate::replica) fn serve(&mut self) {
        self.is_serving = true;
        self.barrier = None;
    }

    /// They are not, or not yet.
    pub(in crate::replica) fn stop(&mut self) {
        self.is_serving = false;
        self.barrier = None;
    }

    /// Clients are not served yet: what would have to be applied first may be another index by then.
    pub(in crate::replica) fn drop_barrier(&mut self) {
        self.barrier = None;
    }

    /// There is no leader, or none that hears this server, since then at the latest.
    pub(in crate::replica) fn lacks_leader(&mut self, since_us: u64) {
        let since = self.leaderless_since_us.map_or(since_us, |since| since.min(since_us));
        self.leaderless_since_us = Some(since);
        self.barrier = None;
    }

    /// There is one.
    pub(in crate::replica) fn has_leader(&mut self) {
        self.leaderless_since_us = None;
        self.hint = None;
    }

    /// Since when there is no leader; `None` if there is one.
    pub(in crate::replica) fn leaderless_since_us(&self) -> Option<u64> {
        self.leaderless_since_us
    }

    /// Whether there has been none for so long that no client is served, or those only who just read.
    pub(in crate::replica) fn is_leaderless(&self, now_us: u64) -> bool {
        let since = self.leaderless_since_us;
        since.is_some_and(|since| now_us >= since + LEADERLESS_MS_MAX * 1000)
    }

    /// Whether this server, which doubts from then on that it is heard, may have been given up by now.
    pub(in crate::replica) fn may_be_given_up(&self, doubts_from_us: u64, now_us: u64) -> bool {
        let since = self.leaderless_since_us;
        let since_us = since.map_or(doubts_from_us, |since| since.min(doubts_from_us));
        self.is_serving && now_us >= since_us + LEADERLESS_MS_MAX * 1000
    }

    /// Whether a read index has to be asked for before clients are served.
    pub(in crate::replica) fn lacks_barrier(&self) -> bool {
        !self.is_serving && self.barrier.is_none()
    }

    /// It was asked for with this number.
    pub(in crate::replica) fn set_barrier(&mut self, sync: u64) {
        self.barrier = Some(sync);
    }

    /// Whether it is applied, if those up to this one are.
    pub(in crate::replica) fn is_past_barrier(&self, sync: u64) -> bool {
        self.barrier.is_some_and(|barrier| barrier <= sync)
    }

    /// Clients were sent away because the disk hangs, or need not have been any more.
    pub(in crate::replica) fn await_disk(&mut self, awaits: bool) {
        self.awaits_disk = awaits;
    }

    /// Whether the disk has to return before clients are served.
    pub(in crate::replica) fn awaits_disk(&self) -> bool {
        self.awaits_disk
    }

    /// Leadership is to be given away.
    pub(in crate::replica) fn resign(&mut self) {
        self.resigns = true;
    }

    /// Whether it is.
    pub(in crate::replica) fn resigns(&self) -> bool {
        self.resigns
    }

    /// The leader was heard from.
    pub(in crate::replica) fn heard(&mut self) {
        self.silent_ticks = 0;
    }

    /// Time has passed. Whether the leader has been silent for so long that one without a vote takes it for gone.
    pub(in crate::replica) fn is_silent(&mut self, ticks: u64) -> bool {
        self.silent_ticks += ticks;
        self.silent_ticks > SILENT_TICKS_MAX
    }

    /// The link to the leader broke; so many voters come before this one.
    pub(in crate::replica) fn lost_link(&mut self, rank: u64, now_us: u64) {
        let campaign_at_us = now_us + rank * RANK_US;
        self.hint = Some(Hint { until_us: now_us + HINT_US, campaign_at_us });
    }

    /// Whether such a loss is a reason to stand for election now; it is again when as many others as there are
    /// voters have had their turn.
    pub(in crate::replica) fn is_turn(
        &mut self,
        has_leader: bool,
        voters: u64,
        now_us: u64,
    ) -> bool {
        let Some(hint) = self.hint else { return false };
        if has_leader || now_us > hint.until_us {
            self.hint = None;
            return false;
        }
        let is_turn = now_us >= hint.campaign_at_us;
        if is_turn {
            self.hint = Some(Hint { campaign_at_us: now_us + voters * RANK_US, ..hint });
        }
        is_turn
    }

    /// This server is the better candidate than another one that stands, at once.
    pub(in crate::replica) fn hurry(&mut self, now_us: u64) {
        if let Some(hint) = &mut self.hint {
            hint.campaign_at_us = now_us;
        }
    }

    /// Why clients are not served, in words, if waiting does not help.
    pub(in crate::replica) fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// As of this tick.
    pub(in crate::replica) fn set_obstacle(&mut self, obstacle: Option<String>) {
        self.obstacle = obstacle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn a_server_without_a_leader_for_a_second_serves_no_client() {
        let mut leadership = Leadership::default();
        leadership.serve();
        leadership.lacks_leader(5 * SECOND_US);
        leadership.lacks_leader(5 * SECOND_US + 1);
        assert!(!leadership.is_leaderless(6 * SECOND_US - 1));
        assert!(leadership.is_leaderless(6 * SECOND_US));
        leadership.has_leader();
        assert!(!leadership.is_leaderless(9 * SECOND_US));
        assert!(leadership.may_be_given_up(8 * SECOND_US, 9 * SECOND_US), "if it is not heard");
    }

    #[test]
    fn clients_are_served_behind_the_barrier_and_a_lost_leader_takes_it_away() {
        let mut leadership = Leadership::default();
        assert!(leadership.lacks_barrier());
        leadership.set_barrier(3);
        assert!(!leadership.lacks_barrier() && !leadership.is_past_barrier(2));
        assert!(leadership.is_past_barrier(3));
        leadership.lacks_leader(0);
        assert!(!leadership.is_past_barrier(3));
    }

    #[test]
    fn voters_stand_by_turns_when_the_link_to_the_leader_broke() {
        let mut leadership = Leadership::default();
        leadership.lost_link(1, 0);
        assert!(!leadership.is_turn(false, 3, RANK_US - 1));
        assert!(leadership.is_turn(false, 3, RANK_US));
        assert!(!leadership.is_turn(false, 3, 4 * RANK_US - 1), "the others have their turn");
        leadership.hurry(2 * RANK_US);
        assert!(leadership.is_turn(false, 3, 2 * RANK_US));
        assert!(!leadership.is_turn(false, 3, HINT_US + 1), "it is no reason any more");
        assert!(!leadership.is_turn(false, 3, HINT_US), "and stays none");
    }

    #[test]
    fn a_leader_counts_once_until_another_one_is_seen() {
        let mut leadership = Leadership::default();
        for leader in [Some(1), None, Some(1), Some(2)] {
            leadership.saw(leader, 7);
        }
        assert_eq!((leadership.changes(), leadership.led_anew_us()), (2, 7));
    }
}
