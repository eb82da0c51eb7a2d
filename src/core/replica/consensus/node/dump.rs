//! What of the consensus a canonical dump holds.
//!
//! *Owns* nothing. *Invariant*: together with the replica's other parts, and with what its disk has been given and has
//! not made durable, the dump says all that this node will do. The fields of `raft` that only `raft` can see are those
//! of its hand-over of work to us, and follow from the others when [`Consensus::ready`] has nothing to be done.

use std::collections::{BTreeMap, BTreeSet};

use raft::Progress;

use super::{Consensus, ELECTION_TICKS_MAX, peer_progress};
use crate::replica::canonical::Canonical;

impl Consensus {
    /// What is counted for operators is left out, and how far the terms of others may raise this one's, which is
    /// thousands of terms away. Appends have numbers, which are written from the last durable one on.
    pub(in crate::replica) fn canonical(&self, out: &mut Canonical) {
        let Self {
            node: _,
            uncommitted_bytes,
            proposed_term,
            to_sync,
            synced,
            durability,
            waits_for_disk,
            last_append,
            watch,
            lazy_sync,
            installing,
            members_at,
            members_append,
            held,
            released,
            elections: _,
            rollback,
            terms: _,
            silent_ticks,
        } = self;
        self.raft_canonical(out);
        let ahead = |number: u64| number.saturating_sub(*synced);
        out.value(&(uncommitted_bytes, proposed_term, ahead(*to_sync), waits_for_disk));
        out.value(&(ahead(*last_append), installing.map(|(number, index)| (ahead(number), index))));
        out.value(&(members_at, ahead(*members_append), lazy_sync, released));
        for (number, message) in held {
            out.value(&(ahead(*number), message));
        }
        durability.canonical(*synced, out);
        watch.canonical(*synced, out);
        rollback.canonical(out);
        for (id, ticks) in silent_ticks {
            out.value(&(id, (*ticks).min(peer_progress::SILENT_TICKS_MAX + 1)));
        }
    }

    fn raft_canonical(&self, out: &mut Canonical) {
        let raft = &self.node.raft;
        out.value(&self.node.has_ready());
        out.value(&(raft.term, raft.vote, raft.state, raft.promotable(), raft.leader_id));
        out.value(&(raft.lead_transferee, raft.pending_conf_index, raft.pending_request_snapshot));
        // No election timeout is longer. A server without a vote counts on and on.
        let elapsed = raft.election_elapsed.min(ELECTION_TICKS_MAX);
        out.value(&(elapsed, raft.heartbeat_elapsed()));
        out.value(&(raft.randomized_election_timeout(), &raft.msgs, &raft.read_states));
        let log = &raft.raft_log;
        out.value(&(log.committed, log.persisted, log.applied));
        out.value(&(log.unstable.offset, &log.unstable.entries, &log.unstable.snapshot));
        // `raft` keeps these in tables that are ordered by a hash.
        let asked = &raft.read_only.pending_read_index;
        let asked: BTreeMap<_, _> = asked
            .iter()
            .map(|(context, status)| {
                let acks: BTreeSet<_> = status.acks.iter().collect();
                (context, (&status.req, status.index, acks))
            })
            .collect();
        out.value(&(&raft.read_only.read_index_queue, asked));
        let votes: BTreeMap<_, _> = raft.prs().votes().iter().collect();
        out.value(&votes);
        let mut others: Vec<(&u64, &Progress)> = raft.prs().iter().collect();
        others.sort_unstable_by_key(|(id, _)| **id);
        for (id, progress) in others {
            let Progress {
                matched,
                next_idx,
                state,
                paused,
                pending_snapshot,
                pending_request_snapshot,
                recent_active,
                ins,
                commit_group_id,
                committed_index,
            } = progress;
            out.value(&(id, matched, next_idx, state, paused, pending_snapshot));
            out.value(&(pending_request_snapshot, recent_active, commit_group_id, committed_index));
            // Of a queue in a ring, where it begins makes no difference when it is empty.
            match ins.count() {
                0 => out.value(&()),
                _ => out.value(ins),
            }
        }
        self.node.store().canonical(out);
    }
}
