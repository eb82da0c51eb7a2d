//! Lazy fsync: which voters' disks a commit waits for, and which voters may therefore sync later.
//!
//! *Owns* the leader's choice, and what a follower makes of it. *Invariants*: the voters that a commit waits for are
//! with this server a majority and no more; a voter that joins, leaves, or whose state is not known is not one of
//! those that may sync later. *Never* changes what an acknowledgement says: it only comes later, by as much as the
//! disk may wait for more (`server/disk/log_thread.rs`).

use raft::eraftpb::{Message, MessageType};
use raft::{ProgressState, Raft, StateRole};

use crate::replica::consensus::tail::Tail;

/// The context of entries whose sender has a majority without the receiver.
const EASE: &[u8] = b"e";

/// Both ends of it.
#[derive(Debug, Default)]
pub(super) struct LazySync {
    /// The leader's: whose acknowledgements it counts on. `None`: on anybody's.
    relied_on: Option<Vec<u64>>,
    /// The follower's: whether the leader waits for entries that came since [`LazySync::take`].
    is_hurried: bool,
}

impl LazySync {
    /// The follower's: entries come.
    pub(super) fn received(&mut self, message: &Message) {
        self.is_hurried |= message.get_msg_type() == MessageType::MsgAppend
            && !message.entries.is_empty()
            && message.get_context() != EASE;
    }

    /// The follower's: whether none of the entries is waited for that came since the last call.
    pub(super) fn take(&mut self) -> bool {
        !std::mem::take(&mut self.is_hurried)
    }

    /// The leader's, at every tick. A follower that lacks something that is committed was not what the commit
    /// waited for, and is replaced; everybody else stays, so that they are always the same.
    pub(super) fn choose_relied_on(&mut self, raft: &Raft<Tail>) {
        let is_settled = raft.store().membership().get_voters_outgoing().is_empty();
        let chosen =
            (raft.state == StateRole::Leader && is_settled).then(|| self.best_of_majority(raft));
        self.relied_on = chosen.flatten();
    }

    /// As many other voters as make up a majority with this one; `None` if one of them lacks something.
    fn best_of_majority(&self, raft: &Raft<Tail>) -> Option<Vec<u64>> {
        let voters = raft.store().membership().get_voters();
        let known = self.relied_on.as_deref().unwrap_or_default();
        let lacks = |id: u64| {
            let has_all = |progress: &raft::Progress| {
                progress.state == ProgressState::Replicate
                    && progress.matched >= raft.raft_log.committed
            };
            !raft.prs().get(id).is_some_and(has_all)
        };
        let others = voters.iter().filter(|id| **id != raft.id);
        let mut others: Vec<(bool, bool, u64)> =
            others.map(|id| (lacks(*id), !known.contains(id), *id)).collect();
        others.sort_unstable();
        others.truncate(voters.len() / 2);
        let all_there = others.iter().all(|(lacks, ..)| !lacks);
        all_there.then(|| others.into_iter().map(|(.., id)| id).collect())
    }

    /// The leader's: tells the followers that it does not rely on that there is no hurry.
    pub(super) fn give_ease(&self, raft: &Raft<Tail>, message: &mut Message) {
        let Some(relied_on) = &self.relied_on else { return };
        let is_meant = message.get_msg_type() == MessageType::MsgAppend
            && !message.entries.is_empty()
            && !relied_on.contains(&message.to)
            && raft.state == StateRole::Leader;
        let progress = raft.prs().get(message.to);
        // Of the others nothing is known until they have answered.
        if is_meant && progress.is_some_and(|p| p.state == ProgressState::Replicate) {
            message.context = EASE.into();
        }
    }
}
