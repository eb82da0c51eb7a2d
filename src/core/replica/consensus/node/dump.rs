//! What of the consensus a canonical dump holds.
//!
//! *Owns* nothing. *Invariant*: together with the replica's other parts, and with what its disk has been given and has
//! not made durable, the dump says all that this node will do. The fields of `raft` that only `raft` can see are those
//! of its hand-over of work to us, and follow from the others when [`Consensus::ready`] has nothing to be done.

use std::collections::{BTreeMap, BTreeSet};

use raft::{Inflights, Progress};

use super::{Consensus, ELECTION_TICKS_MAX, peer_progress};

canonical! {
    // What is counted for operators is left out, and how far the terms of others may raise this one's, which is
    // thousands of terms away. Appends have numbers, which are written from the last durable one on.
    Consensus: uncommitted_bytes, proposed_term, waits_for_disk, lazy_sync, members_at, released, asked_last,
    late_in_a_row;
    without elections, terms;
    |out, node, to_sync, synced, durability, last_append, watch, installing, members_append, held, rollback,
        silent_ticks| {
        let raft = &node.raft;
        out.value(&node.has_ready());
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
        let asked = raft.read_only.pending_read_index.iter().map(|(context, status)| {
            let acks: BTreeSet<_> = status.acks.iter().collect();
            (context, (&status.req, status.index, acks))
        });
        out.value(&(&raft.read_only.read_index_queue, asked.collect::<BTreeMap<_, _>>()));
        out.value(&raft.prs().votes().iter().collect::<BTreeMap<_, _>>());
        for (id, progress) in raft.prs().iter().collect::<BTreeMap<_, _>>() {
            // Of a queue in a ring, where it begins makes no difference when it is empty.
            let ins = match progress.ins.count() {
                0 => Inflights::new(0),
                _ => progress.ins.clone(),
            };
            out.value(&(id, Progress { ins, ..progress.clone() }));
        }
        node.store().canonical(out);
        let ahead = |number: u64| number.saturating_sub(*synced);
        out.value(&(ahead(*to_sync), ahead(*last_append), ahead(*members_append)));
        out.value(&installing.map(|(number, index)| (ahead(number), index)));
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
}
