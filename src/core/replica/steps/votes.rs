//! Votes: how Raft's voters come to be the participants among the members.
//!
//! *Owns* which change of the votes comes next, and whether it may begin. *Invariants*: one change at a time, proposed
//! by the leader; all votes that change do so in one step, from the old set of voters to the new one; a step begins
//! only while a majority of both sets keeps up with the leader; a server votes only when it has caught up, so who
//! comes late gets its vote by a step of its own; no server has two votes; a server that lost its data never votes
//! under the identity that it lost: its new one learns first, and then takes the place of the old one in one step; who
//! has no vote leads no longer. *Never* changes the text of the members.

use std::collections::BTreeSet;

use super::obstacle::list;
use crate::config::Role;
use crate::replica::Replica;
use crate::replica::consensus::{PeerProgress, Step};
use crate::replica::machine::members::Members;
use crate::replica::machine::members_mark;
use crate::replica::messages::{raft_id, server_of};

/// Longest wait for a participant that is linked and has not caught up, before others lose their votes without it,
/// microseconds: with it, all change at once.
const NEWCOMERS_US_MAX: u64 = 1_000_000;
/// A change of the votes that takes longer is said to wait, microseconds.
const CHANGE_US_MAX: u64 = 5_000_000;

/// Voters to come, and how they come about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Raft ids of the voters behind it.
    voters: BTreeSet<u64>,
    steps: Vec<Step>,
    /// A member that is to learn first. That takes and gives no vote.
    learns: Option<u64>,
    /// Participants that are linked, and have not caught up yet.
    newcomers: Vec<u8>,
}

/// Whether a server has, or is about to have, all that is committed.
fn keeps_up(peer: &&PeerProgress) -> bool {
    peer.is_active && peer.is_caught_up
}

/// The next change of the votes of these `peers` towards the members. `connected`: the raft id under which a server is
/// linked, or is this one.
pub(super) fn next_change(
    members: &Members,
    peers: &[PeerProgress],
    connected: impl Fn(u8) -> Option<u64>,
) -> Change {
    let mut change = Change::default();
    let mut demoted = Vec::new();
    for spec in members.values() {
        let there = || peers.iter().filter(|peer| server_of(peer.id) == spec.id);
        let known = connected(spec.id);
        // Of two identities of a server, the one that is connected is to stay; where none is, the one that votes.
        let stays = match known {
            Some(known) => there().find(|peer| peer.id == known),
            None if mutant!("vote-beside-the-old-one") => there().next(),
            None => there().max_by_key(|peer| peer.votes),
        };
        let Some(stays) = stays else {
            change.learns = change.learns.or(Some(known.unwrap_or(raft_id(0, spec.id))));
            change.voters.extend(there().filter(|peer| peer.votes).map(|peer| peer.id));
            continue;
        };
        let others = there().filter(|peer| peer.id != stays.id);
        // Of several that learn, it is not known which one lives.
        let is_alone = others.clone().next().is_none();
        let is_known = known.is_some() || is_alone || mutant!("vote-beside-the-old-one");
        let may_vote = stays.votes || is_known && keeps_up(&stays);
        if spec.role == Role::Participant && may_vote {
            change.voters.insert(stays.id);
        } else if spec.role == Role::Participant {
            // It learns first: the old identity keeps its place as long.
            change.voters.extend(others.clone().filter(|peer| peer.votes).map(|peer| peer.id));
            change.newcomers.extend(known.map(|_| spec.id));
            continue;
        } else if stays.votes {
            demoted.push(stays.id);
        }
        if known.is_some() {
            change.steps.extend(others.map(|peer| Step::Remove(peer.id)));
        } else {
            change.voters.extend(others.filter(|peer| peer.votes).map(|peer| peer.id));
        }
    }
    let is_stranger = |peer: &&PeerProgress| !members.contains_key(&server_of(peer.id));
    let strangers = peers.iter().filter(is_stranger).filter(|peer| peer.votes);
    demoted.extend(strangers.map(|peer| peer.id));
    let votes_now = |id: &u64| peers.iter().any(|peer| peer.id == *id && peer.votes);
    let new = change.voters.iter().filter(|id| !votes_now(id)).map(|id| Step::Vote(*id));
    // They learn on, so that their clients need not leave, and so that they know that they have no vote.
    let learners = demoted.into_iter().map(|id| match mutant!("leaving-voters-removed-at-once") {
        true => Step::Remove(id),
        false => Step::Learn(id),
    });
    let steps: Vec<Step> = new.chain(learners).collect();
    change.steps.extend(steps);
    change
}

impl Change {
    /// Raft ids of those that vote now.
    fn before(peers: &[PeerProgress]) -> BTreeSet<u64> {
        peers.iter().filter(|peer| peer.votes).map(|peer| peer.id).collect()
    }

    /// Whether a vote goes away with it.
    fn takes_votes(&self, peers: &[PeerProgress]) -> bool {
        !Self::before(peers).is_subset(&self.voters)
    }

    /// Lack for which it waits: a majority of the voters now, and of the servers that are `meant` to vote behind it,
    /// must keep up with the leader.
    pub(super) fn lacks(&self, meant: &[u8], peers: &[PeerProgress]) -> Option<String> {
        let keep_up = |ids: &BTreeSet<u64>| -> BTreeSet<u8> {
            let peers = peers.iter().filter(keeps_up).filter(|peer| ids.contains(&peer.id));
            peers.map(|peer| server_of(peer.id)).collect()
        };
        let lacking = |set: &[u8], there: &BTreeSet<u8>, which: &str| {
            let (there, missing): (Vec<u8>, Vec<u8>) =
                set.iter().partition(|id| there.contains(id));
            (there.len() <= set.len() / 2).then(|| {
                format!(
                    "of the servers {} {which}, {} keep up with the leader, and {} are a majority; missing: {}",
                    list(set),
                    there.len(),
                    set.len() / 2 + 1,
                    list(&missing)
                )
            })
        };
        let before = Self::before(peers);
        let after = || lacking(meant, &keep_up(&self.voters), "that are to vote");
        lacking(&servers(&before), &keep_up(&before), "that vote now")
            .or_else(|| after().filter(|_| !mutant!("new-voters-unchecked")))
    }
}

fn servers(ids: &BTreeSet<u64>) -> Vec<u8> {
    ids.iter().map(|id| server_of(*id)).collect()
}

/// Ids of the members that are meant to vote.
pub(super) fn participants(members: &Members) -> Vec<u8> {
    let participants = members.values().filter(|spec| spec.role == Role::Participant);
    participants.map(|spec| spec.id).collect()
}

impl Replica {
    /// The next change of the votes towards these members.
    pub(super) fn next_change(&self, members: &Members) -> Change {
        let own = self.consensus.id();
        next_change(members, &self.consensus.peers(), |server| match server == server_of(own) {
            true => Some(own),
            false => self.ensemble.connected(server),
        })
    }

    /// Proposes the next step of Raft's voters towards the members, if there is one.
    pub(in crate::replica) fn reconcile(&mut self) {
        if self.leadership.leads().is_none()
            || self.setup.ensemble.is_none()
            || self.consensus.has_pending_change()
            || self.is_diverged()
        {
            return;
        }
        if self.consensus.is_joint() {
            // `raft` ends it, too; who began it may lead no longer.
            return self.consensus.propose_change(&[]);
        }
        self.mind_votes();
        let (own, peers) = (self.consensus.id(), self.consensus.peers());
        let has_vote = peers.iter().any(|peer| peer.id == own && peer.votes);
        if !has_vote && !mutant!("leads-on-without-vote") {
            // It was elected before a change was over that took its vote. `raft` would have it lead on.
            let _is_given = self.consensus.resign(|_| true);
            return;
        }
        let members = self.members();
        let change = self.next_change(&members);
        let takes_votes = change.takes_votes(&peers);
        if let Some(id) = change.learns {
            return self.consensus.propose_change(&[Step::Learn(id)]);
        }
        // Where votes go away, those that come late are counted, too: a few must not be left to vote alone.
        let meant = if takes_votes { participants(&members) } else { servers(&change.voters) };
        let awaited = change.lacks(&meant, &peers).filter(|_| !change.steps.is_empty());
        let waits = awaited.is_some() || takes_votes && self.awaits_newcomers(&change);
        self.ensemble.awaits(awaited);
        if waits {
            return;
        }
        if change.steps.is_empty() {
            self.forget_strangers(&members, &peers);
            return self.mark_voters();
        }
        let stays = |id: u64| change.voters.contains(&id);
        let could_lead = |peer: &PeerProgress| stays(peer.id) && peer.votes && keeps_up(&peer);
        if !stays(own) && peers.iter().any(could_lead) {
            let may_lead = |id| peers.iter().any(|peer| peer.id == id && could_lead(peer));
            // Where it is not taken, the next tick tries again.
            let _is_given = self.consensus.resign(may_lead);
            return;
        }
        self.consensus.propose_change(&change.steps);
    }

    /// Whether a participant is linked and about to catch up, so that all votes may change at once.
    fn awaits_newcomers(&self, change: &Change) -> bool {
        // Of a server that has lost its data, the old vote counts for nothing: its new one waits for no other server.
        let since_us = self.ensemble.change_since_us();
        let is_young =
            since_us.is_some_and(|since_us| self.clocks.now_us() < since_us + NEWCOMERS_US_MAX);
        is_young && !change.newcomers.is_empty()
    }

    /// Has one learner forgotten that is no member and not there.
    fn forget_strangers(&mut self, members: &Members, peers: &[PeerProgress]) {
        let is_forgotten = |peer: &&PeerProgress| {
            !members.contains_key(&server_of(peer.id)) && !self.ensemble.is_leaving(peer.id)
        };
        if let Some(peer) = peers.iter().find(is_forgotten) {
            self.consensus.propose_change(&[Step::Remove(peer.id)]);
        }
    }

    /// Says in the log that the voters are the members', if that is to be said.
    fn mark_voters(&mut self) {
        let term = self.consensus.term();
        if !self.ensemble.lacks_mark(term) || !self.voters_are_members() {
            return;
        }
        let (rules, version) = (self.rules(), self.state.machine().written_version());
        let mark = members_mark(&self.entry_time(), rules, version);
        // Where it is not taken now, the next tick tries again.
        if self.consensus.propose(mark).is_ok() {
            self.ensemble.mark_proposed(term);
        }
    }

    /// Whether every vote that counts is that of a participant: of one that leaves, or becomes an
    /// observer, none does.
    pub(super) fn voters_are_members(&self) -> bool {
        let members = self.members();
        let takes_part = |id: u64| {
            members.get(&server_of(id)).is_some_and(|spec| spec.role == Role::Participant)
        };
        self.consensus.counting().into_iter().all(takes_part)
    }

    /// Time has passed, for a change of the votes that is under way as well.
    pub(super) fn mind_votes(&mut self) {
        let is_ensemble = self.setup.ensemble.is_some();
        let changes = is_ensemble && (self.consensus.is_joint() || !self.voters_are_members());
        self.ensemble.votes_change(changes, self.clocks.now_us());
    }

    /// Obstacle to the votes following the members, if they have not for long, as the leader knows it.
    pub(super) fn votes_obstacle(&self) -> Option<String> {
        let (now_us, since_us) = (self.clocks.now_us(), self.ensemble.change_since_us()?);
        if self.leadership.leads().is_none() || now_us < since_us + CHANGE_US_MAX {
            return None;
        }
        let why = match (self.consensus.is_joint(), self.ensemble.awaited()) {
            (true, _) => {
                "it takes a majority of the voters before it and of those behind it, and cannot be taken back"
            }
            (false, Some(awaited)) => awaited,
            (false, None) => {
                "leadership is handed over first, or an earlier change is not committed"
            }
        };
        Some(format!(
            "the members have changed, and the votes do not follow: {why}. Until they do, no server that is to lose \
             its vote may be stopped for good"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSpec;

    fn members(lines: &str) -> Members {
        let spec = |id: &str| {
            let (id, role) =
                id.strip_suffix('o').map_or((id, "participant"), |id| (id, "observer"));
            let id: u8 = id.parse().unwrap();
            (id, ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id}:{role};20{id}")).unwrap())
        };
        lines.split(' ').map(spec).collect()
    }

    /// `1`: votes and keeps up; `1-`: votes and is down; `1l`: learns and keeps up; `1l-`: learns and is down; with an
    /// `x` behind it, its link is down.
    fn peers(all: &str) -> Vec<PeerProgress> {
        let peer = |text: &str| {
            let text = text.strip_suffix('x').unwrap_or(text);
            let (text, is_up) = text.strip_suffix('-').map_or((text, true), |text| (text, false));
            let (text, votes) = text.strip_suffix('l').map_or((text, true), |text| (text, false));
            PeerProgress {
                id: text.parse().unwrap(),
                votes,
                is_active: is_up,
                is_caught_up: is_up,
                knows_members: is_up,
                matched: 1,
            }
        };
        all.split(' ').map(peer).collect()
    }

    fn change(text: &str, all: &str) -> (Change, Option<String>) {
        let (members, peers) = (members(text), peers(all));
        let connected = |server: u8| {
            let words: Vec<&str> = all.split(' ').collect();
            let linked = words.iter().zip(&peers).filter(|(text, _)| !text.ends_with('x'));
            let mut there =
                linked.filter(|(_, peer)| server_of(peer.id) == server && peer.is_active);
            there.next_back().map(|(_, peer)| peer.id)
        };
        let change = next_change(&members, &peers, connected);
        let lacks = change.lacks(&participants(&members), &peers);
        (change, lacks)
    }

    #[test]
    fn all_votes_that_change_do_so_in_one_step() {
        use Step::{Learn, Remove, Vote};
        for (text, all, steps) in [
            ("1 2 3", "1 2 3", &[][..]),
            ("1 3 4", "1 2 3 4 5", &[Learn(2), Learn(5)]),
            ("4 5 6", "1 2 3 4l 5l 6l", &[Vote(4), Vote(5), Vote(6), Learn(1), Learn(2), Learn(3)]),
            ("1 2o 3o", "1 2 3", &[Learn(2), Learn(3)]),
            // Who has not caught up is not waited for: it votes later.
            ("1 2 3 4", "1 2 3 4l-", &[]),
            ("1 2 4", "1 2 3 4l-", &[Learn(3)]),
            // A server that has lost its data: the new identity learns, and takes the place of the old one.
            ("1 2 3", "1 2 3- 259l-", &[]),
            ("1 2 3", "1 2 3- 259l", &[Remove(3), Vote(259)]),
            // Its link is down, although it was heard just now: it does not vote beside the old one.
            ("1 2 3", "1 2 3-x 259lx", &[]),
            ("1 2 3", "1 2 259lx 515-x", &[]),
            ("1 2 3", "1 2 259lx 515lx", &[]),
            ("1 2 3", "1 2 259lx", &[Vote(259)]),
        ] {
            assert_eq!(change(text, all).0.steps, steps, "{text} of {all}");
        }
        assert_eq!(change("1 2 3 4", "1 2 3").0.learns, Some(4));
    }

    #[test]
    fn a_step_begins_only_while_a_majority_of_both_sets_keeps_up() {
        for (text, all, may) in [
            ("1 3 4", "1 2 3- 4 5-", true),
            ("1 3 5", "1 2 3- 4 5-", false),
            ("1 2", "1 2 3-", true),
            ("1 2 3", "1 2- 3- 4 5", false),
            ("1 4 5", "1 2 3 4l- 5l-", false),
            ("1 4 5", "1 2 3 4l 5l-", true),
            ("1 2 3 4 5", "1 2- 3 4l 5l", true),
            ("1 2 3 4 5", "1 2- 3- 4l 5l", false),
        ] {
            assert_eq!(change(text, all).1.is_none(), may, "{text} of {all}");
        }
    }

    #[test]
    fn what_is_missing_is_said_of_the_set_that_lacks_it() {
        let (_, lacks) = change("1 3 5", "1 2 3- 4 5-");
        assert_eq!(
            lacks.unwrap(),
            "of the servers 1, 3, 5 that are to vote, 1 keep up with the leader, and 2 are a majority; missing: 3, 5"
        );
    }
}
