//! Raft, made deterministic: the only file that calls into `raft`'s node.
//!
//! *Owns* the `RawNode`. *Invariant*: the same seed and the same calls give the same run. `raft`
//! draws election timeouts from the process's generator, so after every call that may have drawn
//! one it is replaced by a function of seed, id and term.

use raft::eraftpb::Entry as RaftEntry;
use raft::{Config, RawNode, ReadState, StateRole};
use twox_hash::XxHash3_64;

use super::durable::{Append, HardState, Membership};
use super::log::{Tail, from_raft};

/// Ticks between heartbeats (50 ms).
const HEARTBEAT_TICKS: usize = 1;
/// Shortest election timeout in ticks (300 ms).
const ELECTION_TICKS_MIN: usize = 6;
/// Election timeouts are below this many ticks (500 ms).
const ELECTION_TICKS_MAX: usize = 10;
/// Payload bytes in one append message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Append messages in flight to one follower.
const MESSAGES_INFLIGHT_MAX: usize = 256;
/// Payload bytes proposed and not committed yet; above, proposals wait.
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Payload bytes applied in one go.
const COMMITTED_BYTES_MAX: u64 = 4 << 20;

/// The consensus of one replica.
pub(super) struct Consensus {
    node: RawNode<Tail>,
    seed: u64,
    timeout_set: usize,
    /// Payload bytes proposed here and not committed yet.
    uncommitted_bytes: u64,
}

/// What a call to [`Consensus::ready`] found.
pub(super) struct Progress {
    /// To be made durable.
    pub(super) append: Option<Append>,
    /// To be applied, in this order.
    pub(super) committed: Vec<RaftEntry>,
    /// Reads whose index is confirmed.
    pub(super) reads: Vec<ReadState>,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("term", &self.term()).finish_non_exhaustive()
    }
}

impl Consensus {
    /// A node that continues from `tail`, whose state machine contains `applied`.
    pub(super) fn new(id: u64, seed: u64, applied: u64, tail: Tail) -> Self {
        let config = Config {
            id,
            election_tick: ELECTION_TICKS_MIN,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_INFLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            batch_append: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, tail, &logger).expect("the configuration is constant");
        let mut consensus = Self { node, seed, timeout_set: 0, uncommitted_bytes: 0 };
        consensus.fix_timeout();
        consensus
    }

    fn fix_timeout(&mut self) {
        let raft = &mut self.node.raft;
        if raft.randomized_election_timeout() == self.timeout_set {
            return;
        }
        let mut input = [0; 24];
        input[..8].copy_from_slice(&self.seed.to_le_bytes());
        input[8..16].copy_from_slice(&raft.id.to_le_bytes());
        input[16..].copy_from_slice(&raft.term.to_le_bytes());
        let span = (ELECTION_TICKS_MAX - ELECTION_TICKS_MIN) as u64;
        let drawn = usize::try_from(XxHash3_64::oneshot(&input) % span).expect("below the span");
        self.timeout_set = ELECTION_TICKS_MIN + drawn;
        raft.set_randomized_election_timeout(self.timeout_set);
    }

    /// One tick of [`super::TICK_MS`].
    pub(super) fn tick(&mut self) {
        self.node.tick();
        self.fix_timeout();
    }

    /// Stands for election now.
    pub(super) fn campaign(&mut self) {
        // An error means that this node may not campaign (it is no voter): ticks will tell.
        let _not_a_voter = self.node.campaign();
        self.fix_timeout();
    }

    /// Proposes an entry. `Err` gives it back: too much is uncommitted, or this is no leader.
    pub(super) fn propose(&mut self, data: Vec<u8>) -> Result<(), Vec<u8>> {
        if !self.is_leader() || self.uncommitted_bytes >= UNCOMMITTED_BYTES_MAX {
            return Err(data);
        }
        self.uncommitted_bytes += data.len() as u64;
        let proposed = self.node.propose(Vec::new(), data);
        assert!(proposed.is_ok(), "a leader below its limit takes a proposal: {proposed:?}");
        self.fix_timeout();
        Ok(())
    }

    /// Asks for a read index; the answer comes with `context`, or never.
    pub(super) fn read_index(&mut self, context: u64) {
        self.node.read_index(context.to_le_bytes().to_vec());
        self.fix_timeout();
    }

    /// What is to be done, if anything.
    pub(super) fn ready(&mut self) -> Option<Progress> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let entries = ready.take_entries();
        let hard_state = ready.hs().cloned();
        let tail = self.node.mut_store();
        tail.append(&entries);
        if let Some(hard_state) = &hard_state {
            tail.set_hard_state(hard_state);
        }
        let append = (!entries.is_empty() || hard_state.is_some()).then(|| Append {
            number: ready.number(),
            install: None,
            entries: entries.iter().map(from_raft).collect(),
            hard_state: hard_state.map(|hs| HardState {
                term: hs.term,
                vote: hs.vote,
                commit: hs.commit,
            }),
            must_sync: ready.must_sync(),
        });
        let committed = ready.take_committed_entries();
        let bytes: u64 = committed.iter().map(|entry| entry.data.len() as u64).sum();
        self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(bytes);
        let reads = ready.take_read_states();
        self.node.advance_append_async(ready);
        Some(Progress { append, committed, reads })
    }

    /// Everything up to the append with this number is durable.
    pub(super) fn persisted(&mut self, number: u64) {
        self.node.on_persist_ready(number);
        self.fix_timeout();
    }

    /// Everything up to `index` is applied.
    pub(super) fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
        self.node.mut_store().trim(index);
        self.fix_timeout();
    }

    pub(super) fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    pub(super) fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Last index that is durable here.
    pub(super) fn persisted_index(&self) -> u64 {
        self.node.raft.raft_log.persisted
    }

    pub(super) fn membership(&self) -> Membership {
        self.node.store().membership()
    }
}
