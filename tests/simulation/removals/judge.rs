//! Rules of every turn in the world of changes of members, judged by the logs of servers.
//!
//! *Owns* what a vote takes, and how long a server may lead without one. *Never* looks at what a server believes of the
//! voters: that is read from its log.

use std::collections::BTreeSet;

use lockkeeper_core::replica::inspect::PeerStatus;
use lockkeeper_core::replica::peer::{RaftMessage, RaftMessageType};
use lockkeeper_core::replica::{EntryKind, Status};

use super::world::{Server, World};
use crate::conn::Violation;
use crate::membership::Membership as Voters;

/// Longest time for which a server leads that has no vote any more, microseconds.
const VOTELESS_US_MAX: u64 = 1_000_000;

impl World {
    /// Voters, by the log of a server up to an index.
    ///
    /// # Errors
    /// A change in the log makes no sense.
    pub fn voters(&self, id: u8, applied: u64) -> Result<Voters, Violation> {
        let mut voters = self.voters_from(id, applied)?;
        Ok(voters.swap_remove(0))
    }

    /// Voters, also behind each change that follows in its log.
    fn voters_from(&self, id: u8, applied: u64) -> Result<Vec<Voters>, Violation> {
        let disk = &self.server(id).disk;
        let log = disk.log();
        let (from, begun) = match &disk.mark {
            Some(mark) => (mark.index, &mark.membership),
            None => (0, self.founders()),
        };
        let mut known = vec![Voters::from(begun)];
        let changes =
            log.range(from + 1..).filter(|(_, entry)| entry.kind == EntryKind::ConfChange);
        for (index, entry) in changes {
            let next = known[known.len() - 1].changed(&entry.data)?;
            if *index <= applied {
                known.clear();
            }
            known.push(next);
        }
        Ok(known)
    }

    /// A server votes, or asks for votes: not before a majority has answered what it remembers, of those who vote by
    /// its own knowledge, or behind some change that it does not know to be committed.
    pub(super) fn judge_vote(&mut self, id: u8, message: &RaftMessage) {
        let kind = message.get_msg_type();
        let votes = match kind {
            RaftMessageType::MsgRequestVoteResponse => !message.reject,
            kind => kind == RaftMessageType::MsgRequestVote,
        };
        let Some(replica) = self.replica(id).filter(|_| votes) else { return };
        let Server { raft_id, answered, told, .. } = self.server(id);
        let has_answered = |other: u64| other == *raft_id || answered.contains(&other);
        let known = self.voters_from(id, replica.status().applied).unwrap_or_default();
        // What others have told counts where their log has come further than any change in this one.
        let last = self.server(id).disk.log();
        let last = last.values().rfind(|entry| entry.kind == EntryKind::ConfChange);
        let later = told.range(last.map_or(0, |entry| entry.index)..).next_back();
        let is_majority = |voters: &BTreeSet<u64>| {
            voters.iter().filter(|voter| has_answered(**voter)).count() > voters.len() / 2
        };
        let is_enough = known.iter().any(|voters| voters.is_quorum(has_answered))
            || later.is_some_and(|(_, voters)| is_majority(voters));
        if !is_enough {
            let words = format!(
                "server {id} votes, and only {answered:?} have answered: {}",
                self.shown(id)
            );
            self.breaks(words);
        }
    }

    /// A server tells others who votes behind an entry that it has applied: it must be so by its log.
    pub(super) fn judge_told(&mut self, id: u8, index: u64, told: &[u64]) {
        let told: BTreeSet<u64> = told.iter().copied().collect();
        let is_so = |voters: Voters| !voters.is_joint() && voters.voters == told;
        if !self.voters(id, index).is_ok_and(is_so) {
            let words =
                format!("server {id} says that {told:?} vote behind {index}: {}", self.shown(id));
            self.breaks(words);
        }
    }

    /// Judges a server behind its turn: one that leads without a vote, because a change has taken that, leads no longer
    /// than a second.
    pub(super) fn judge_leader(&mut self, id: u8, status: &Status) {
        let raft_id = self.server(id).raft_id;
        let leads = status.leading_ms.is_some();
        let has_vote = |voters: Voters| voters.has_vote(raft_id);
        if !leads || self.voters(id, status.applied).is_ok_and(has_vote) {
            self.server_mut(id).voteless_since_us = None;
            return;
        }
        let now_us = self.now_us;
        let since_us = *self.server_mut(id).voteless_since_us.get_or_insert(now_us);
        if since_us + VOTELESS_US_MAX < now_us {
            let words = format!("server {id} leads without a vote: {}", self.shown(id));
            self.breaks(words);
        }
    }

    /// State of all servers, in words.
    pub fn all_shown(&self) -> String {
        let shown: Vec<String> = self.ids().map(|id| self.shown(id)).collect();
        shown.join("; ")
    }

    fn shown(&self, id: u8) -> String {
        let Server { replica: Some(replica), follows, raft_id, .. } = self.server(id) else {
            return format!("\n{id} is down");
        };
        let status = replica.status();
        let Status { mode, term, leader, applied, .. } = status;
        let peer = |peer: &PeerStatus| {
            let PeerStatus { server, votes, is_connected, is_synced, .. } = peer;
            format!("{server}:{}{}{}", *votes as u8, *is_connected as u8, *is_synced as u8)
        };
        let peers: Vec<String> = status.peers.iter().map(peer).collect();
        let voters = self.voters(id, applied);
        let text = replica.machine().members_text().replace('\n', " ").replace("127.0.0.1", "");
        let why = replica.obstacle().or(replica.refused().map(|refusal| refusal.words.as_str()));
        format!(
            "\n{id} ({raft_id:x}): {mode:?} term {term} leader {leader:?} applied {applied} follows {follows:?} {} \
             {voters:?} {text} {why:?}",
            peers.join(" ")
        )
    }
}
