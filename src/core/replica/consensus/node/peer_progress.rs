//! How far the other servers are, as the leader knows, and who is still heard of.

use raft::ProgressState;

use super::Consensus;

/// Ticks without a sign of life after which another server counts as gone. `raft` forgets whom it heard
/// from once per election timeout, and the next answers take until the heartbeat after that.
pub(super) const SILENT_TICKS_MAX: u64 = 1 + super::HEARTBEAT_TICKS as u64;
/// A learner that lacks at most this many entries may vote.
const CAUGHT_UP_ENTRIES_MAX: u64 = 64;

/// How far another server is, as the leader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) struct PeerProgress {
    pub(in crate::replica) id: u64,
    /// Its vote counts; in the middle of a change, before it or after it.
    pub(in crate::replica) votes: bool,
    /// It was heard from within an election timeout.
    pub(in crate::replica) is_active: bool,
    /// It has, or is about to have, all that is committed.
    pub(in crate::replica) is_caught_up: bool,
    /// It has said that it knows of the last change of membership, durably, and so does the leader.
    pub(in crate::replica) knows_members: bool,
    pub(in crate::replica) matched: u64,
}

impl Consensus {
    /// Counts for how long the others have said nothing, of those that were heard by this leader.
    pub(super) fn listen(&mut self) {
        if !self.is_leader() {
            return self.silent_ticks.clear();
        }
        let members = self.node.raft.prs();
        self.silent_ticks.retain(|id, _| members.get(*id).is_some());
        for (id, progress) in members.iter() {
            if progress.recent_active {
                self.silent_ticks.insert(*id, 0);
            } else if let Some(ticks) = self.silent_ticks.get_mut(id) {
                *ticks += 1;
            }
        }
    }

    /// All servers of the group, this one included, as the leader knows them.
    pub(in crate::replica) fn peers(&self) -> Vec<PeerProgress> {
        let raft = &self.node.raft;
        let committed = raft.raft_log.committed;
        let counting = self.counting();
        // In the middle of a change there is no last one yet: who is to leave still counts.
        let is_known = self.synced >= self.members_append && !self.is_joint();
        let mut peers: Vec<PeerProgress> = raft
            .prs()
            .iter()
            .map(|(id, progress)| PeerProgress {
                id: *id,
                votes: counting.contains(id),
                is_active: *id == raft.id
                    || progress.recent_active
                    || self.silent_ticks.get(id).is_some_and(|ticks| *ticks <= SILENT_TICKS_MAX),
                is_caught_up: *id == raft.id
                    || match progress.state {
                        ProgressState::Replicate => {
                            progress.matched + CAUGHT_UP_ENTRIES_MAX >= committed
                        }
                        // Behind a link that was cut, `raft` sends one entry and waits for the answer. Where there is
                        // none to be sent it goes on so until there is, however well the server follows.
                        ProgressState::Probe => progress.matched >= raft.raft_log.last_index(),
                        ProgressState::Snapshot => false,
                    },
                knows_members: is_known
                    && (*id == raft.id || progress.committed_index >= self.members_at),
                matched: progress.matched,
            })
            .collect();
        // They are in a table that is ordered by a hash.
        peers.sort_unstable_by_key(|peer| peer.id);
        peers
    }
}
