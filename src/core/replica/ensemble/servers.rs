//! The servers of the ensemble, as this one knows them, and a change of the members that is on its way.
//!
//! *Owns* which servers there is a link with, who was announced to the shell as a member or as leaving, what an
//! operator is shown of the others, and how far a change of the members is: proposed, applied, waiting for servers, and
//! followed by a mark. *Invariants*: of a server there is one link that counts, that of its newest life; members are
//! announced when they, their raft ids or their version are others than before; whose vote counts is announced, however
//! often this server is started again. *Never* says who votes: the consensus does.

use std::collections::BTreeMap;

use crate::config::{Role, ServerSpec};
use crate::replica::inspect::PeerStatus;
use crate::replica::messages::{Member, server_of};

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct Ensemble {
    server: u8,
    /// Raft ids of the servers that there is a link with, by server.
    connected: BTreeMap<u8, u64>,
    /// Something that members are made from has changed.
    is_changed: bool,
    announced: Vec<Member>,
    /// The version that these members had.
    announced_version: i64,
    /// Members no longer, but still learning.
    leaving: Vec<Member>,
    own_role: Role,
    /// As of the last tick.
    peer_status: Vec<PeerStatus>,
    /// Index of the entry that asks for other members and was proposed here, until it is applied.
    reconfig_proposed: Option<u64>,
    /// The members or the voters have changed, and no mark in the log says yet that the voters follow.
    owes_mark: bool,
    /// The term in which this leader has proposed it.
    mark_proposed: Option<u64>,
    /// Begin of the time in which votes count that are to count no longer, microseconds.
    change_since_us: Option<u64>,
    /// Obstacle to the votes following the members, as of this leader's last look.
    awaited: Option<String>,
    /// Lack for which a change was refused.
    refused: Option<String>,
}

canonical! {
    // Without what only operators are shown.
    Ensemble: server, connected, is_changed, announced, announced_version, leaving, own_role, reconfig_proposed,
    owes_mark, mark_proposed, change_since_us; without peer_status, awaited, refused;
}

impl Ensemble {
    /// As this server knows it at the start. `owes_mark`: the voters changed in the entries that were replayed.
    /// `before`: servers that were members before, with their raft ids, if they take part still.
    pub(in crate::replica) fn new(server: u8, owes_mark: bool, before: Vec<Member>) -> Self {
        Self {
            server,
            connected: BTreeMap::new(),
            is_changed: true,
            announced: Vec::new(),
            announced_version: 0,
            leaving: before,
            own_role: Role::Participant,
            peer_status: Vec::new(),
            reconfig_proposed: None,
            owes_mark,
            mark_proposed: None,
            change_since_us: None,
            awaited: None,
            refused: None,
        }
    }

    /// There is a link to or from the server with this raft id.
    pub(in crate::replica) fn connect(&mut self, peer: u64) {
        self.connected.insert(server_of(peer), peer);
    }

    /// That link broke.
    pub(in crate::replica) fn disconnect(&mut self, peer: u64) {
        if self.connected.get(&server_of(peer)) == Some(&peer) {
            self.connected.remove(&server_of(peer));
        }
    }

    /// The raft id under which a server is connected.
    pub(in crate::replica) fn connected(&self, server: u8) -> Option<u64> {
        self.connected.get(&server).copied()
    }

    /// The members, or who votes, are others now.
    pub(in crate::replica) fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether members are to be announced anew.
    pub(in crate::replica) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether they are, once.
    pub(in crate::replica) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// These are the members now, of this version. `leaving`: what a raft id that is none of theirs is yet, a voter
    /// (`true`) or a learner. Gives all of them if that is new.
    pub(in crate::replica) fn announce(
        &mut self,
        members: Vec<Member>,
        version: i64,
        leaving: impl Fn(&Member) -> Option<bool>,
    ) -> Option<Vec<Member>> {
        let before = self.announced.iter().chain(&self.leaving);
        let leaving: Vec<Member> = before
            .filter_map(|member| Some(Member { votes: leaving(member)?, ..member.clone() }))
            .collect();
        let own = members.iter().find(|member| member.spec.id == self.server);
        self.own_role = own.map_or(Role::Participant, |member| member.spec.role);
        let is_new = self.announced != members
            || self.leaving != leaving
            || self.announced_version != version;
        is_new.then(|| {
            self.announced.clone_from(&members);
            self.leaving.clone_from(&leaving);
            self.announced_version = version;
            members.into_iter().chain(leaving).collect()
        })
    }

    /// What this server is meant to be, by the text of the ensemble.
    pub(in crate::replica) fn own_role(&self) -> Role {
        self.own_role
    }

    /// How many of the members that were announced are meant to vote.
    pub(in crate::replica) fn participants(&self) -> usize {
        let is_one = |member: &&Member| member.spec.role == Role::Participant;
        self.announced.iter().filter(is_one).count()
    }

    /// The members that were announced and those whose vote counts yet, without this one.
    pub(in crate::replica) fn others(&self) -> impl Iterator<Item = &ServerSpec> {
        let own = self.server;
        let leaving = self.leaving.iter().filter(|member| member.votes);
        let others = self.announced.iter().chain(leaving).map(|member| &member.spec);
        others.filter(move |spec| spec.id != own)
    }

    /// Whether a vote counts of a server that is no member any more. Where it is, no checkpoint says.
    pub(in crate::replica) fn has_leaving_voters(&self) -> bool {
        self.leaving.iter().any(|member| member.votes)
    }

    /// Whether a server that is no member any more goes on to learn: as long as it is there, so that
    /// its clients need not leave. ZooKeeper's servers stay as followers without a vote.
    pub(in crate::replica) fn is_leaving(&self, id: u64) -> bool {
        let mut known = self.announced.iter().chain(&self.leaving);
        self.connected(server_of(id)) == Some(id) && known.any(|member| member.raft_id == Some(id))
    }

    /// The other servers look like that now.
    pub(in crate::replica) fn observed(&mut self, peer_status: Vec<PeerStatus>) {
        self.peer_status = peer_status;
    }

    /// The other servers, as of the last tick.
    pub(in crate::replica) fn peer_status(&self) -> &[PeerStatus] {
        &self.peer_status
    }

    /// An entry that asks for other members was proposed here.
    pub(in crate::replica) fn reconfig_proposed(&mut self, index: u64) {
        self.reconfig_proposed = Some(index);
    }

    /// Entries up to this index are applied.
    pub(in crate::replica) fn applied(&mut self, index: u64) {
        self.reconfig_proposed = self.reconfig_proposed.filter(|proposed| *proposed > index);
    }

    /// Leadership comes or goes: what was proposed before is another leader's.
    pub(in crate::replica) fn forget_reconfig(&mut self) {
        self.reconfig_proposed = None;
        self.awaited = None;
    }

    /// Whether a change of members is proposed here and not applied.
    pub(in crate::replica) fn has_reconfig(&self) -> bool {
        self.reconfig_proposed.is_some()
    }

    /// Whether one is decided, being committed, that this leader has not applied. Others may have, and have
    /// answered the client that asked for it: the next one that is asked for is not one too many.
    pub(in crate::replica) fn is_reconfig_unapplied(&self, committed: u64) -> bool {
        self.reconfig_proposed.is_some_and(|index| index <= committed)
    }

    /// The members have changed; if an operator `asked` for it, a mark has to follow.
    pub(in crate::replica) fn members_changed(&mut self, asked: bool) {
        self.is_changed = true;
        // Of the first members, none leaves.
        self.owes_mark |= asked;
        self.mark_proposed = None;
    }

    /// The voters have changed: a mark has to follow.
    pub(in crate::replica) fn voters_changed(&mut self) {
        self.members_changed(true);
    }

    /// Whether the leader of this term has yet to propose a mark.
    pub(in crate::replica) fn lacks_mark(&self, term: u64) -> bool {
        self.owes_mark && self.mark_proposed != Some(term)
    }

    /// The leader of this term has proposed it.
    pub(in crate::replica) fn mark_proposed(&mut self, term: u64) {
        self.mark_proposed = Some(term);
    }

    /// Whether votes count that are to count no longer, as of now.
    pub(in crate::replica) fn votes_change(&mut self, is_so: bool, now_us: u64) {
        self.change_since_us = is_so.then(|| self.change_since_us.unwrap_or(now_us));
    }

    /// Begin of that time, microseconds.
    pub(in crate::replica) fn change_since_us(&self) -> Option<u64> {
        self.change_since_us
    }

    /// The votes wait for this, or for nothing, before they follow the members.
    pub(in crate::replica) fn awaits(&mut self, awaited: Option<String>) {
        self.awaited = awaited;
    }

    /// Obstacle to the votes following the members.
    pub(in crate::replica) fn awaited(&self) -> Option<&str> {
        self.awaited.as_deref()
    }

    /// A change was refused that lacks this.
    pub(in crate::replica) fn refused(&mut self, lacks: String) {
        self.refused = Some(lacks);
    }

    /// Lack for which the last change was refused since the last call.
    pub(in crate::replica) fn take_refused(&mut self) -> Option<String> {
        self.refused.take()
    }

    /// A mark that the voters follow was applied.
    pub(in crate::replica) fn marked(&mut self) {
        self.owes_mark = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u8) -> Member {
        let spec = ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id};20{id}")).unwrap();
        Member { spec, raft_id: Some(u64::from(id)), votes: true }
    }

    #[test]
    fn only_the_newest_life_of_a_server_is_connected() {
        let mut ensemble = Ensemble::new(1, false, Vec::new());
        let (old, new) = (2, 0x0702);
        ensemble.connect(old);
        ensemble.connect(new);
        ensemble.disconnect(old);
        assert_eq!(ensemble.connected(2), Some(new));
        ensemble.disconnect(new);
        assert_eq!(ensemble.connected(2), None);
    }

    #[test]
    fn members_are_announced_when_they_are_others_and_who_leaves_until_it_takes_no_part() {
        let mut ensemble = Ensemble::new(1, false, Vec::new());
        let announced = ensemble.announce(vec![member(1), member(2)], 1, |_| None).unwrap();
        assert_eq!(announced.len(), 2);
        assert_eq!(ensemble.announce(vec![member(1), member(2)], 1, |_| None), None);
        let is_2 = |votes| move |member: &Member| (member.spec.id == 2).then_some(votes);
        let announced = ensemble.announce(vec![member(1)], 2, is_2(true)).unwrap();
        assert_eq!(announced, [member(1), member(2)]);
        assert!(ensemble.has_leaving_voters() && ensemble.others().count() == 1);
        let announced = ensemble.announce(vec![member(1)], 2, is_2(false)).unwrap();
        assert_eq!(announced, [member(1), Member { votes: false, ..member(2) }]);
        ensemble.connect(2);
        assert!(ensemble.is_leaving(2));
        assert!(!ensemble.has_leaving_voters() && ensemble.others().count() == 0);
    }

    #[test]
    fn a_mark_is_owed_once_for_each_term_until_it_is_applied() {
        let mut ensemble = Ensemble::new(1, false, Vec::new());
        ensemble.members_changed(false);
        assert!(!ensemble.lacks_mark(5), "of the first members none leaves");
        ensemble.members_changed(true);
        ensemble.mark_proposed(5);
        assert!(!ensemble.lacks_mark(5) && ensemble.lacks_mark(6));
        ensemble.voters_changed();
        assert!(ensemble.lacks_mark(5), "another one has to follow");
        ensemble.marked();
        assert!(!ensemble.lacks_mark(6));
    }

    #[test]
    fn a_change_of_members_is_on_its_way_until_it_is_applied() {
        let mut ensemble = Ensemble::new(1, false, Vec::new());
        ensemble.reconfig_proposed(7);
        assert!(ensemble.is_reconfig_unapplied(7) && !ensemble.is_reconfig_unapplied(6));
        ensemble.applied(6);
        assert!(ensemble.has_reconfig());
        ensemble.applied(7);
        assert!(!ensemble.has_reconfig());
    }
}
