//! Raft, made deterministic: the only module that calls into `raft`'s node.
//!
//! *Owns* the `RawNode`. *Invariants*: the same calls give the same run: `raft` draws election
//! timeouts from the process's generator, so after every call that may have drawn one it is
//! replaced by a function of id, voters and term, which is another one for each voter. A message
//! that promises something (a vote, an acknowledgement) is held back until what it promises is
//! durable; heartbeats never are. A server that follows applies what is committed, whether or not its
//! own disk has it yet: others have, and it has promised nothing. A server whose disk takes an image in
//! stands for no election, nor does one that yielded because its disk hung (`disk_watch.rs`).

mod asking;
mod disk_watch;
#[cfg(feature = "internals")]
mod dump;
mod durability;
mod guards;
mod handover;
mod lazy_sync;
mod members;
mod peer_progress;
mod remember;
mod sending;
mod terms;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use raft::eraftpb::{Entry as RaftEntry, Message, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, ReadState, SnapshotStatus, StateRole};

use super::rollback::Rollback;
use super::tail::{Tail, from_raft};
use crate::replica::durable::{Append, Entry, HardState, Mark, Urgency};
use crate::replica::ready::{Fetch, SendImage};
use disk_watch::DiskWatch;
use durability::Durability;
pub(in crate::replica) use guards::{Verdict, check};
use lazy_sync::LazySync;
pub(in crate::replica) use members::Step;
pub(in crate::replica) use peer_progress::PeerProgress;
use terms::Terms;

/// Ticks between heartbeats (100 ms): three of them in a lease. Each wakes every server, and the leader
/// once more for each answer, which is most of what idle servers do.
const HEARTBEAT_TICKS: usize = 2;
/// How long a leader that was heard from is believed to lead, in ticks (300 ms).
const LEASE_TICKS: usize = 6;
/// Shortest election timeout in ticks (350 ms): those who are asked for their vote must have heard
/// nothing for [`LEASE_TICKS`], and their clocks tick at other moments.
const ELECTION_TICKS_MIN: usize = LEASE_TICKS + 1;
/// Between the election timeouts of two servers, in ticks, while there are at most
/// [`FEW_VOTERS_MAX`]: long enough for the first to be elected before the second stands too and they
/// split the votes.
const ELECTION_STEP_TICKS: usize = 2;
const FEW_VOTERS_MAX: usize = 3;
/// Every election timeout is below this many ticks.
const ELECTION_TICKS_MAX: usize = 64;
/// Payload bytes in one append message; one entry may exceed it.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
/// Append messages in flight to one follower.
const MESSAGES_INFLIGHT_MAX: usize = 256;
/// How often in a row a server that was late begins to wait anew, without a message from its leader, or to it.
const LATE_IN_A_ROW_MAX: u8 = 2;
/// Payload bytes proposed and not committed yet; above, proposals wait.
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Payload bytes applied in one go.
const COMMITTED_BYTES_MAX: u64 = 512 << 10;
/// The consensus of one replica.
pub(in crate::replica) struct Consensus {
    node: RawNode<Tail>,
    /// Payload bytes proposed here in `proposed_term` and not committed yet.
    uncommitted_bytes: u64,
    proposed_term: u64,
    /// Number of the last append that something waits for, and of the last that is durable.
    to_sync: u64,
    synced: u64,
    /// Up to where the log is on the disk.
    durability: Durability,
    /// Nothing is applied before it is on the disk: a checkpoint waits for that.
    waits_for_disk: bool,
    /// Number of the last append, whether anything waits for it or not.
    last_append: u64,
    watch: DiskWatch,
    lazy_sync: LazySync,
    /// Number of the append that installs an image, and its index, until it is durable: so long,
    /// `raft` has not applied it, and there are no entries between that and the image.
    installing: Option<(u64, u64)>,
    /// Index of the last change of membership that is applied, or one behind it.
    members_at: u64,
    /// Number of the append with the commit of a change.
    members_append: u64,
    /// Messages that wait for an append, by its number.
    held: VecDeque<(u64, Message)>,
    /// Messages whose wait is over.
    released: Vec<Message>,
    elections: u64,
    rollback: Rollback,
    terms: Terms,
    /// Voter that this leader has asked last to lead instead.
    asked_last: Option<u64>,
    /// Ticks for which `raft` has not known of any sign of life, of each server that this leader has heard.
    silent_ticks: BTreeMap<u64, u64>,
    /// Times in a row that this server was late, and began to wait anew.
    late_in_a_row: u8,
}

/// What a call to [`Consensus::ready`] found.
#[derive(Default)]
pub(in crate::replica) struct Progress {
    /// To be made durable.
    pub(in crate::replica) append: Option<Append>,
    /// Index and term of an image that was accepted: the state is now that.
    pub(in crate::replica) installed: Option<(u64, u64)>,
    /// To be applied, in this order.
    pub(in crate::replica) committed: Vec<RaftEntry>,
    /// Reads whose index is confirmed.
    pub(in crate::replica) reads: Vec<ReadState>,
    /// To be sent, now.
    pub(in crate::replica) send: Vec<Message>,
    /// Images to be sent.
    pub(in crate::replica) images: Vec<SendImage>,
    /// Entries wanted from the disk.
    pub(in crate::replica) fetch: Vec<Fetch>,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("term", &self.term()).finish_non_exhaustive()
    }
}

/// Election timeout of the voter whose turn it is after `before` others, in ticks.
fn timeout(voters: usize, before: usize) -> usize {
    let step = if voters <= FEW_VOTERS_MAX { ELECTION_STEP_TICKS } else { 1 };
    (ELECTION_TICKS_MIN + before * step).min(ELECTION_TICKS_MAX - 1)
}

impl Consensus {
    /// A node that continues from `tail`, whose state machine contains `applied`, and whose
    /// membership changed since the beginning of the tail as `changes` say. Its disk counts as hung after
    /// `disk_stall_ms`.
    ///
    /// # Errors
    /// A change cannot be understood.
    pub(in crate::replica) fn new(
        id: u64,
        applied: u64,
        tail: Tail,
        changes: &[bytes::Bytes],
        disk_stall_ms: u64,
    ) -> Result<Self, String> {
        let config = Config {
            id,
            election_tick: LEASE_TICKS,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_INFLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            // With it, raft appends entries to a message whose previous entry is another one.
            batch_append: false,
            read_only_option: match mutant!("reads-by-lease") {
                true => ReadOnlyOption::LeaseBased,
                false => ReadOnlyOption::Safe,
            },
            ..Config::default()
        };
        let durability = Durability::new(tail.last());
        let terms = Terms::new(tail.term_known());
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, tail, &logger).map_err(|error| error.to_string())?;
        let mut consensus = Self {
            node,
            uncommitted_bytes: 0,
            proposed_term: 0,
            to_sync: 0,
            synced: 0,
            durability,
            waits_for_disk: false,
            last_append: 0,
            watch: DiskWatch::new(disk_stall_ms),
            lazy_sync: LazySync::default(),
            installing: None,
            members_at: applied,
            members_append: 0,
            held: VecDeque::new(),
            released: Vec::new(),
            elections: 0,
            rollback: Rollback::default(),
            terms,
            asked_last: None,
            silent_ticks: BTreeMap::new(),
            late_in_a_row: 0,
        };
        for change in changes {
            consensus.apply_change(applied, change)?;
        }
        consensus.fix_timeout();
        Ok(consensus)
    }

    fn fix_timeout(&mut self) {
        let raft = &mut self.node.raft;
        let voters = raft.prs().conf().voters().ids();
        let rank = voters.iter().filter(|id| *id < raft.id).count();
        let count = voters.len().max(1);
        // By turns, so that one that cannot win does not come first every time.
        let turn = usize::try_from(raft.term % count as u64).expect("below their number");
        // Whatever it drew: what it drew before, too, may be of other voters.
        raft.set_randomized_election_timeout(timeout(count, (rank + turn) % count));
    }

    /// One tick of [`crate::replica::timing::TICK_MS`]. Whether a leader sends heartbeats with it.
    pub(in crate::replica) fn tick(&mut self) -> bool {
        self.watch_disk();
        if self.installing.is_some() {
            return false;
        }
        let before = self.node.raft.state;
        self.terms.tick(self.term());
        // One that may not stand yet does so in its turn when it may.
        let is_early = self.node.raft.election_elapsed + 1 < ELECTION_TICKS_MIN;
        if !self.may_stand() {
            self.tick_without_standing();
        } else if is_early || self.is_leader() || self.may_campaign() {
            self.node.tick();
        }
        self.count_election(before);
        self.fix_timeout();
        self.listen();
        self.lazy_sync.choose_relied_on(&self.node.raft);
        self.is_leader() && self.node.raft.heartbeat_elapsed() == 0
    }

    /// This server did nothing for longer than its ticks tell, and heard no other one in that time: it begins anew to
    /// wait for its leader, or as a leader for a majority. Often all servers were busy with the same entry.
    pub(in crate::replica) fn was_late(&mut self) {
        let raft = &mut self.node.raft;
        let waits = matches!(raft.state, StateRole::Follower | StateRole::Leader);
        if waits && raft.lead_transferee.is_none() && self.late_in_a_row < LATE_IN_A_ROW_MAX {
            self.late_in_a_row += 1;
            raft.election_elapsed = 0;
        }
    }

    /// Stands for election now.
    pub(in crate::replica) fn campaign(&mut self) {
        if !self.may_campaign() {
            return;
        }
        let before = self.node.raft.state;
        // An error means that this node may not campaign (it is no voter): ticks will tell.
        let _not_a_voter = self.node.campaign();
        self.count_election(before);
        self.fix_timeout();
    }

    fn count_election(&mut self, before: StateRole) {
        let stands = self.node.raft.state != before && self.node.raft.state != StateRole::Follower;
        self.elections += u64::from(stands);
    }

    /// Takes a message of another server, if it makes sense.
    pub(in crate::replica) fn step(&mut self, mut message: Message) -> Verdict {
        let verdict = self.judge(&message);
        if verdict != Verdict::Taken {
            return verdict;
        }
        if message.get_msg_type() == MessageType::MsgTimeoutNow
            && !self.agrees_to_lead(message.term)
        {
            return Verdict::Dropped;
        }
        let has_entries =
            message.get_msg_type() == MessageType::MsgAppend && !message.entries.is_empty();
        if has_entries && self.watch.is_overdue() {
            return Verdict::Taken;
        }
        self.skip_committed(&mut message);
        let term = self.term();
        self.lazy_sync.received(&message);
        if self.is_leader() || self.leader() == Some(message.from) {
            self.late_in_a_row = 0;
        }
        let is_taken = self.take(message);
        self.elections += u64::from(self.term() > term);
        if self.leader().is_some() {
            self.watch.knows_leader();
        }
        self.fix_timeout();
        if is_taken { Verdict::Taken } else { Verdict::Dropped }
    }

    /// Proposes an entry. `Err` gives it back: too much is uncommitted, or this is no leader, or
    /// leadership is being handed over.
    pub(in crate::replica) fn propose(&mut self, data: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.proposed_term != self.term() {
            // What it proposed in an earlier term is committed by others, or lost.
            self.proposed_term = self.term();
            self.uncommitted_bytes = 0;
        }
        if !self.takes_proposals() {
            return Err(data);
        }
        self.uncommitted_bytes += data.len() as u64;
        let proposed = self.node.propose(Vec::new(), data);
        assert!(proposed.is_ok(), "a leader below its limit takes a proposal: {proposed:?}");
        self.fix_timeout();
        Ok(())
    }

    /// Whether a proposal goes to the log at once.
    pub(in crate::replica) fn takes_proposals(&self) -> bool {
        let is_full =
            self.proposed_term == self.term() && self.uncommitted_bytes >= UNCOMMITTED_BYTES_MAX;
        self.is_leader() && self.node.raft.lead_transferee.is_none() && !is_full
    }

    /// Asks for a read index; the answer comes with `context`, or never.
    pub(in crate::replica) fn read_index(&mut self, context: Vec<u8>) {
        // `raft` has a leader without a vote believe itself where there is one voter, which is another server.
        if self.is_leader() && !self.votes() {
            return;
        }
        self.node.read_index(context);
        self.fix_timeout();
    }

    /// What is to be done, if anything.
    pub(in crate::replica) fn ready(&mut self) -> Option<Progress> {
        let mut progress =
            Progress { send: std::mem::take(&mut self.released), ..Progress::default() };
        if !self.node.has_ready() {
            progress.fetch = self.node.mut_store().take_wanted();
            let is_idle = progress.send.is_empty() && progress.fetch.is_empty();
            return (!is_idle).then_some(progress);
        }
        let mut ready = self.node.ready();
        let number = ready.number();
        self.store(&mut ready, &mut progress);
        progress.committed = ready.take_committed_entries();
        let bytes: u64 = progress.committed.iter().map(|entry| entry.data.len() as u64).sum();
        self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(bytes);
        progress.reads = ready.take_read_states();
        progress.send.extend(ready.take_messages());
        for message in ready.take_persisted_messages() {
            self.send_or_hold(message, &mut progress.send);
        }
        self.node.advance_append_async(ready);
        if !self.is_leader() && self.installing.is_none() && !self.waits_for_disk {
            // For `raft`, that is what may be applied. It counts for a commit at a leader only, and there
            // only from the entry on that its term began with, which is durable behind all of these.
            self.node.on_persist_ready(number);
        }
        progress.fetch = self.node.mut_store().take_wanted();
        for message in &mut progress.send {
            self.give_notice(message);
            self.lazy_sync.give_ease(&self.node.raft, message);
            self.show_durable(message);
        }
        let is_image = |message: &Message| message.get_msg_type() == MessageType::MsgSnapshot;
        let (images, send): (Vec<_>, Vec<_>) = progress.send.into_iter().partition(is_image);
        progress.send = send;
        progress.images = images.into_iter().map(image_of).collect();
        Some(progress)
    }

    /// Takes what `raft` wants to be stored into the tail of the log, and says what the disk is to do.
    fn store(&mut self, ready: &mut raft::Ready, progress: &mut Progress) {
        let number = ready.number();
        let entries = ready.take_entries();
        let hard_state = ready.hs().cloned();
        let is_at_ease = self.lazy_sync.take() && !entries.is_empty() && !self.is_leader();
        let tail = self.node.mut_store();
        if ready.snapshot().get_metadata().index > 0 {
            let metadata = ready.snapshot().get_metadata().clone();
            tail.install(metadata.index, metadata.term, metadata.get_conf_state().clone());
            progress.installed = Some((metadata.index, metadata.term));
            self.members_at = metadata.index;
            self.installing = Some((number, metadata.index));
            self.durability.begun_anew(number, metadata.index);
        }
        tail.append(&entries);
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            self.durability.appended(number, first.index, last.index);
        }
        let must_sync = ready.must_sync() && !mutant!("vote-before-sync");
        let mut urgency = match must_sync {
            false => Urgency::None,
            true if is_at_ease && self.installing.is_none() => Urgency::Low,
            true => Urgency::High,
        };
        if let Some(hard_state) = &hard_state {
            if must_sync && tail.is_promise(hard_state) {
                urgency = Urgency::High;
            }
            // A server that forgot who votes now could not be elected by them.
            if tail.changes_members_up_to(hard_state.commit) {
                urgency = Urgency::High;
                self.members_append = number;
            }
            tail.set_hard_state(hard_state);
        }
        let writes = !entries.is_empty() || hard_state.is_some() || progress.installed.is_some();
        progress.append = writes.then(|| Append {
            number,
            install: None,
            entries: entries.iter().map(from_raft).collect(),
            hard_state: hard_state.map(|hs| HardState {
                term: hs.term,
                vote: hs.vote,
                commit: hs.commit,
            }),
            urgency,
        });
        if writes {
            let bytes = entries.iter().map(|entry| entry.data.len() as u64).sum();
            self.watch.appended(number, bytes, urgency != Urgency::None);
            self.last_append = number;
        }
        if writes && urgency != Urgency::None {
            self.to_sync = number;
        }
    }

    /// Everything up to the append with this number is durable.
    pub(in crate::replica) fn persisted(&mut self, number: u64) {
        self.synced = self.synced.max(number);
        self.watch.persisted(number, self.synced < self.to_sync);
        self.durability.persisted(number);
        self.node.on_persist_ready(number);
        if mutant!("commit-without-quorum") && self.is_leader() {
            let own = self.durable_index();
            self.node.raft.raft_log.commit_to(own);
        }
        if let Some((_, index)) = self.installing.take_if(|(of, _)| *of <= number) {
            self.applied(index);
        }
        self.release(number);
        self.fix_timeout();
    }

    /// Everything up to `index` is applied.
    pub(in crate::replica) fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
        let durable = self.durability.index();
        self.node.mut_store().trim(index.min(durable));
        self.fix_timeout();
    }

    /// Entries that were wanted came from the disk.
    pub(in crate::replica) fn fetched(&mut self, fetch: &Fetch, entries: Vec<Entry>) {
        for asker in self.node.mut_store().fetched(fetch, entries) {
            self.node.on_entries_fetched(asker);
        }
        self.node.mut_store().forget_fetched();
    }

    /// The log on the disk begins later.
    pub(in crate::replica) fn disk_cut(&mut self, before: (u64, u64)) {
        self.node.mut_store().disk_cut(before);
    }

    /// Whether the image at this index was accepted just now.
    pub(in crate::replica) fn awaits_image(&self, index: u64) -> bool {
        self.node.snap().is_some_and(|snapshot| snapshot.get_metadata().index == index)
    }

    /// There is an image that can be sent.
    pub(in crate::replica) fn image_written(&mut self, mark: Mark) {
        self.node.mut_store().set_image(mark);
    }

    /// An image has arrived, or has not.
    pub(in crate::replica) fn image_sent(&mut self, to: u64, ok: bool) {
        let status = if ok { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.node.report_snapshot(to, status);
    }

    /// Messages to this server may have been lost.
    pub(in crate::replica) fn unreachable(&mut self, peer: u64) {
        self.node.report_unreachable(peer);
    }

    /// Forgets the leader: it seems to be gone, and others may be voted for at once.
    pub(in crate::replica) fn end_lease(&mut self) {
        if self.node.raft.state == StateRole::Follower {
            self.node.raft.leader_id = 0;
        }
    }

    /// Whether a log that ends with this entry lacks nothing that this one has.
    pub(in crate::replica) fn is_up_to_date(&self, index: u64, term: u64) -> bool {
        self.node.raft.raft_log.is_up_to_date(index, term)
    }

    pub(in crate::replica) fn id(&self) -> u64 {
        self.node.raft.id
    }

    pub(in crate::replica) fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Raft id of the leader that this server follows or is; `None` without one.
    pub(in crate::replica) fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|id| *id != 0)
    }

    /// Whether this server may vote and be elected.
    pub(in crate::replica) fn votes(&self) -> bool {
        self.node.raft.promotable()
    }

    pub(in crate::replica) fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Elections that this server stood in or learned of.
    pub(in crate::replica) fn elections(&self) -> u64 {
        self.elections
    }

    /// Up to where the log is committed, and its last index.
    pub(in crate::replica) fn log_ends(&self) -> (u64, u64) {
        (self.node.raft.raft_log.committed, self.last_index())
    }

    /// The data of an entry, as long as it is in memory.
    pub(in crate::replica) fn entry_in_memory(&self, index: u64) -> Option<Bytes> {
        self.node.store().in_memory(index)
    }

    /// Last index of the log here, durable or not.
    pub(in crate::replica) fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Whether the disk of the log hangs.
    pub(in crate::replica) fn disk(&self) -> &DiskWatch {
        &self.watch
    }

    /// Last index up to which the log is durable here.
    pub(in crate::replica) fn durable_index(&self) -> u64 {
        self.durability.index()
    }

    /// Whether nothing is applied from now on before it is durable here. It need not be otherwise where
    /// others commit, but a checkpoint must not hold what the log may not. Nothing is for a disk that
    /// hangs: then the checkpoint waits, and clients do not.
    pub(in crate::replica) fn wait_for_disk(&mut self, waits: bool) {
        let is_stalled = self.watch.is_stalled();
        let was_waiting = std::mem::replace(&mut self.waits_for_disk, waits && !is_stalled);
        if was_waiting && is_stalled && !self.is_leader() && self.installing.is_none() {
            // See `ready`: what came meanwhile may be applied, too.
            self.node.on_persist_ready(self.last_append);
        }
    }
}

fn image_of(message: Message) -> SendImage {
    let index = message.get_snapshot().get_metadata().index;
    SendImage { to: message.to, index, message: Box::new(message) }
}
