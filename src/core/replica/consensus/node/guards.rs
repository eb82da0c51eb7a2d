//! Guards in front of `raft` 0.7.0: what would make it panic, or believe what cannot be.
//!
//! *Owns* [`Consensus::judge`], which every message of another server passes, [`check`], which what the disk
//! gave back passes, and [`Consensus::may_campaign`]. *Invariants*: a message is taken, dropped as if
//! it had been
//! lost, or refused; only a heartbeat is ever refused, and that ends its link. *Never* clamps a number: a
//! message that is not true is not made true. An append behind the end of the log is Raft's ordinary probe.
//!
//! Every `fatal!`, `panic!`, `assert!`, `unwrap()` and index of `raft` 0.7.0 that a message, a disk or a
//! restart can reach, by file and line there, with its guard:
//!
//! where; reached by; guard:
//!
//! * raft_log.rs:292 `to_commit is out of range`; a heartbeat's commit above the last index:
//!   forged, or this server's disk is an older copy; refused, and dropped while this server does not know yet
//!   what others remember of it
//! * the same; an announced image with term 0 behind the end of the log, which "matches"; dropped
//! * raft.rs:648 `term should not be set when sending`; MsgReadIndex or MsgTransferLeader with a
//!   term, passed on by a follower; dropped
//! * raft.rs:2066 and read_only.rs:87, `entries[0]`; MsgReadIndex without an entry; dropped
//! * raft.rs:640 `term should be set when sending`; a vote that is rejected in term 0: entries
//!   without a term on the disk; [`check`]
//! * raft.rs:1214 `last_index == persisted`, raw_node.rs:496; votes for a candidate that has not
//!   asked for them yet, because its disk is busy; a lone voter that stands; dropped;
//!   [`Consensus::may_campaign`]
//! * raft.rs:943, 1055 `get_mut(self_id).unwrap()`; a leader that is removed while it leads; it
//!   steps down: `machine/members.rs`
//! * raft.rs:2632, 2643, 377 `invalid restore`; members of an image, or of a disk, that are no set,
//!   are none, or are changing; dropped; [`check`]
//! * raft.rs:2647 `get_mut(self.id).unwrap()`; an image without this server among its members;
//!   `steps/image.rs` adds it as a learner
//! * raft.rs:2786 `hs.commit is out of range`; a disk that has lost entries, not that they are
//!   committed; [`check`]
//! * raft_log.rs:314 `applied is out of range`; a disk whose image is newer than its log;
//!   `storage/log/replay.rs`, [`check`]
//! * raw_node.rs:303 `id must not be zero`; a disk; [`check`]
//! * raft_log.rs:260, 370, log_unstable.rs; entries that are not contiguous, or behind one another;
//!   `messages/raft_codec.rs`; [`check`]
//! * raft.rs:2497 `term must be valid`, raft_log.rs:101, 653; terms of entries on the disk that are
//!   not known; [`check`]: `consensus/tail.rs` knows them from the image on
//! * raft.rs:702 `need non-empty snapshot`; an image of no entry; `consensus/tail.rs` offers none
//! * `machine/state.rs` `terms stay below`; a term of 2^31; [`TERM_MAX`], everywhere
//!
//! Believed without a panic, and dropped as well: acknowledgements and commits of a follower behind
//! the end of
//! the leader's log, a request for an image of a certain index, which no server makes, and an image while
//! the one before it is not durable.
//!
//! Not to be reached: raft.rs:320, 475, 538, 890, 895, 977, 1146, 1169, 1197, 1225, 1237, 1813,
//! 1926, 2024, 2038,
//! 2434, 2850 (types and calls that are not used, or looked at in the line before); raft.rs:1543,
//! 2203, raft_log.rs:135,
//! 406, 434, 476, 485, 599, 605, raft.rs:698 (the log's tail gives back all that is not applied, and fails in
//! the ways that Raft expects); raft_log.rs:549, 558, 635, raw_node.rs:459, 519, 523, 595, 624,
//! 674, 682 (the order of the
//! calls in `consensus/node.rs`); raw_node.rs:443 (no asker that cannot wait is kept); read_only.rs:118 to 124,
//! tracker/progress.rs:236, tracker/inflights.rs:94 and 108, quorum, confchange (kept by Raft itself).

use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_INDEX, StateRole};

use super::Consensus;
use crate::replica::bounds::{RAFT_ID_MAX, TERM_MAX};
use crate::replica::durable::Membership;
use crate::replica::setup::Restored;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum Verdict {
    /// Raft gets it.
    Taken,
    /// It is as if it had been lost.
    Dropped,
    /// Nothing that comes behind it on its link can be right: the link is to be cut.
    Refused,
}

impl Consensus {
    /// Whether Raft may be given a message of another server. An election is no reason to refuse a link:
    /// a server that loses one says so in a message that comes later.
    pub(super) fn judge(&self, message: &Message) -> Verdict {
        use Verdict::{Dropped, Refused, Taken};
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let is_ours = message.to == raft.id && message.from != raft.id;
        if !is_ours || message.term > self.terms.limit(raft.term) {
            return Dropped;
        }
        let taken = match message.get_msg_type() {
            // Before it votes, the link may bring what it waits for: what the other one remembers of it.
            MessageType::MsgHeartbeat if message.commit > last => {
                return if self.rollback.may_vote() { Refused } else { Dropped };
            }
            MessageType::MsgHeartbeat | MessageType::MsgAppend => true,
            MessageType::MsgAppendResponse => {
                (message.reject || message.index <= last)
                    && message.commit <= last
                    && message.request_snapshot == INVALID_INDEX
            }
            MessageType::MsgHeartbeatResponse => message.commit <= last,
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                self.rollback.may_vote()
            }
            MessageType::MsgRequestVoteResponse => {
                raft.state != StateRole::Candidate || self.has_asked_for_votes()
            }
            MessageType::MsgTimeoutNow => self.can_campaign(),
            MessageType::MsgReadIndex => message.term == 0 && message.entries.len() == 1,
            MessageType::MsgSnapshot => !self.is_installing() && is_announcement(message),
            // Only a leader hands over, by its own decision.
            MessageType::MsgTransferLeader => false,
            _ => true,
        };
        if taken { Taken } else { Dropped }
    }

    /// Whether an image was accepted and is not durable. Until then, its file must stay: one at a time, or a
    /// disk that hangs would have others filled.
    fn is_installing(&self) -> bool {
        self.installing.is_some() || self.node.snap().is_some()
    }

    /// Whether this server may stand for election now.
    pub(super) fn may_campaign(&self) -> bool {
        self.may_stand() && self.can_campaign()
    }

    /// The same, but for what its disk has been like.
    fn can_campaign(&self) -> bool {
        let raft = &self.node.raft;
        // One voter wins at once, and a leader must have all of its log on the disk.
        let is_ready = !self.is_alone() || raft.raft_log.persisted == self.last_index();
        self.rollback.may_vote() && self.installing.is_none() && raft.term < TERM_MAX && is_ready
    }

    /// Whether the vote of this candidate for itself is durable, as all in front of it: not before then has
    /// anybody been asked for another one.
    fn has_asked_for_votes(&self) -> bool {
        let raft = &self.node.raft;
        !self.node.store().is_promise(&raft.hard_state())
            && self.synced >= self.to_sync
            && raft.raft_log.persisted == self.last_index()
    }
}

/// Whether the message announces an image that Raft can take.
fn is_announcement(message: &Message) -> bool {
    let metadata = message.get_snapshot().get_metadata();
    let state = metadata.get_conf_state();
    let is_settled = !state.auto_leave
        && state.get_voters_outgoing().is_empty()
        && state.get_learners_next().is_empty();
    let members = (state.get_voters(), state.get_learners());
    metadata.index > 0
        && (1..=message.term).contains(&metadata.term)
        && is_settled
        && !state.get_voters().is_empty()
        && check_members(members).is_ok()
}

/// That these are voters and learners that Raft can begin with.
fn check_members((voters, learners): (&[u64], &[u64])) -> Result<(), String> {
    let mut ids: Vec<u64> = voters.iter().chain(learners).copied().collect();
    ids.sort_unstable();
    if let Some(id) = ids.iter().find(|id| !(1..=RAFT_ID_MAX).contains(*id)) {
        return Err(format!("a member has the raft id {id:#x}, which none can have"));
    }
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!("a member is named twice: voters {voters:x?}, learners {learners:x?}"));
    }
    Ok(())
}

/// That Raft can begin with what the disk gave back.
///
/// # Errors
/// What does not fit together.
pub(in crate::replica) fn check(
    id: u64,
    members: &Membership,
    restored: &Restored,
) -> Result<(), String> {
    if !(1..=RAFT_ID_MAX).contains(&id) {
        return Err(format!(
            "the data is of a server with the raft id {id:#x}, which none can have"
        ));
    }
    check_members((&members.voters, &members.learners))?;
    let Restored { hard_state, applied, applied_term, tail, .. } = restored;
    let mut last = (*applied, *applied_term);
    for entry in tail {
        if entry.index != last.0 + 1 || entry.term < last.1 {
            let (index, term) = last;
            return Err(format!(
                "entry {} of term {} follows entry {index} of term {term} in the log",
                entry.index, entry.term
            ));
        }
        last = (entry.index, entry.term);
    }
    let term = hard_state.term.max(last.1);
    if term > TERM_MAX {
        return Err(format!(
            "the data has come to term {term}, and terms end with {TERM_MAX}: it cannot be served. A \
             member of an ensemble can be started with --rejoin"
        ));
    }
    if last.1 > hard_state.term {
        return Err(format!(
            "the log ends with an entry of term {}, but the server was in term {}",
            last.1, hard_state.term
        ));
    }
    if hard_state.commit > last.0 {
        return Err(format!(
            "the log ends with entry {}, but {} are known to be committed",
            last.0, hard_state.commit
        ));
    }
    Ok(())
}
