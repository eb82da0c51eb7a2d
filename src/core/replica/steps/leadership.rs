//! Who leads, and what that means for the clients here.
//!
//! *Owns* when clients are served, held or sent away, and the hints that make an election fast.
//! *Invariants*: a server begins to serve only when it has applied what was committed when it found the
//! leader; one that has had no leader for [`LEADERLESS_MS_MAX`] does not serve (or, if it is told to,
//! those who only read); a leader that is deposed answers no sync, because no quorum confirms it.
//! *Never* believes a clock about who leads.
//!
//! Takes the place of `QuorumPeer`'s states and of `FastLeaderElection`.

use crate::config::Role;
use crate::proto::Text;
use crate::replica::machine::{BatchBuilder, Origin, TxnOp, members, version, xid_of};
use crate::replica::messages::server_of;
use crate::replica::request::ConnId;
use crate::replica::{Replica, Report};

/// Longest wait of a majority that has joined a new ensemble for a participant that is linked and gets its vote in a
/// moment, microseconds: with its vote the ensemble may lose one at once.
const JOINS_US_MAX: u64 = 1_000_000;

impl Replica {
    /// Whether requests are answered.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.leadership.is_serving()
    }

    /// Whether those who only read are served, for lack of a leader.
    pub(super) fn is_read_only(&self) -> bool {
        let is_leaderless = self.leadership.is_leaderless(self.clocks.now_us());
        self.setup.read_only_mode && !self.is_serving() && is_leaderless && !self.is_diverged()
    }

    /// Begins or ends to serve, as leadership comes and goes. A leader serves once it has applied
    /// an entry of its own term: then it knows everything that was ever acknowledged.
    pub(in crate::replica) fn follow_leadership(&mut self) {
        let (now_us, term) = (self.clocks.now_us(), self.consensus.term());
        let leader = self.consensus.leader();
        self.leadership.saw(leader, now_us);
        let is_leader = self.consensus.is_leader();
        let leads = is_leader && (self.state.at().1 == term || mutant!("lead-before-caught-up"));
        if !is_leader {
            self.give_back();
        }
        match (leads, self.leadership.leads()) {
            (true, Some(known)) if known == term => {}
            (true, _) => self.begin_to_lead(term),
            (false, Some(_)) => {
                self.leadership.end();
                self.clients.check_acls_early(false);
                self.clocks.end_to_lead();
                self.ensemble.forget_reconfig();
                self.sessions.end_to_lead();
                self.end_migration();
            }
            // It was elected, and deposed before it could lead: what it held is lost to those who gave it.
            (false, None) if !is_leader && self.following.has_held() => self.end_migration(),
            (false, None) => {}
        }
        if is_leader && self.consensus.is_alone() {
            self.sessions.confirm(now_us);
        }
        // A leader that does not hear this server is none.
        let doubts_from_us = self.sessions.confirmed_until_us();
        let is_cut_off = self.is_serving() && now_us >= doubts_from_us;
        if leader.is_none() || is_cut_off {
            self.leadership.lacks_leader(if is_cut_off { doubts_from_us } else { now_us });
            if self.is_serving() && self.leadership.is_leaderless(now_us) {
                self.stop_serving();
            }
            return;
        }
        self.leadership.has_leader();
        // A leader that stood still may have been deposed meanwhile: it serves once a majority has answered it.
        let is_sure = now_us < doubts_from_us;
        if leads && is_sure || !is_leader && mutant!("follower-serves-at-once") {
            self.serve();
        } else if !is_leader
            && self.leadership.lacks_barrier()
            && self.state.machine().may_serve()
            && !self.is_diverged()
        {
            self.leadership.set_barrier(self.clients.ask_sync());
        }
    }

    fn begin_to_lead(&mut self, term: u64) {
        let now_us = self.clocks.now_us();
        self.leadership.begin(term, now_us);
        self.clients.check_acls_early(self.setup.eager_acl_check);
        self.comparison.begin_to_lead();
        self.clocks.begin_to_lead(self.state.machine().steady_ms());
        self.ensemble.forget_reconfig();
        self.sessions.reaper().begin(now_us, self.setup.container_check_interval_ms);
        self.sessions.begin_to_lead(self.state.machine().sessions(), now_us);
        // What time it is, the others shall say at once.
        self.ping_others();
        self.write_members();
    }

    /// The first leader of an ensemble writes who its members are, and until it has, no server serves
    /// clients. The server that founded the ensemble is its only voter at first; the members are written once a
    /// majority of the participants votes, and those of the others that are linked. Fewer are not enough: the others
    /// may have founded another ensemble.
    pub(in crate::replica) fn write_members(&mut self) {
        if !self.leadership.founds() {
            return;
        }
        if self.setup.ensemble.is_none() || !self.state.machine().members_text().is_empty() {
            self.leadership.founded();
            return;
        }
        let (voting, participants) = self.voting_participants();
        let is_joining = |id: &u8| !voting.contains(id) && self.ensemble.connected(*id).is_some();
        let waits = self.clocks.now_us() < self.leadership.led_since_us() + JOINS_US_MAX
            && participants.iter().any(is_joining);
        let may_begin =
            voting.len() > participants.len() / 2 && !waits || self.setup.is_declared_alone;
        if !may_begin && !mutant!("founder-serves-alone") {
            return;
        }
        self.leadership.founded();
        let servers = self.setup.ensemble.iter().flatten();
        let members = Text::from(members::lines(servers));
        self.forwarding.push_chore(0, &TxnOp::Found { members, opens_term: true }, 0);
    }

    /// All servers are said to know this version of the ensemble: as the leader, proposes it. Nothing follows it before
    /// it is applied: then the leader writes the formats of the new version.
    pub(in crate::replica) fn finish_upgrade(&mut self, version: u8) {
        let machine = self.state.machine();
        let leads = self.leadership.leads() == Some(self.consensus.term());
        let is_later = version > machine.version() && version <= machine.known_version();
        // Where the states are not known to be equal, a server that differs would end with the upgrade.
        let is_compared = !self.compares() || self.comparison.agreed() > 0;
        let is_later = is_later && is_compared && self.differing().is_empty();
        if !leads || !is_later {
            return;
        }
        let mut batch = BatchBuilder::default();
        let op = TxnOp::Upgrade { version, release: Text::from(version::RELEASE) };
        batch.push(Origin::default(), 0, xid_of(self.rules()), &[], &op);
        let mut payload = batch.take();
        self.stamp(&mut payload);
        // Where it is not taken, the operator sees that nothing came of it.
        if self.consensus.propose(payload).is_ok() {
            self.leadership.upgrades_at(self.consensus.last_index());
        }
    }

    /// The participants that the configuration names: those that vote, and all.
    pub(in crate::replica) fn voting_participants(&self) -> (Vec<u8>, Vec<u8>) {
        let servers = self.setup.ensemble.iter().flatten();
        let participants = servers.filter(|spec| spec.role == Role::Participant);
        let participants: Vec<u8> = participants.map(|spec| spec.id).collect();
        let voters = self.consensus.staying_voters();
        let votes = |id: &u8| voters.iter().any(|voter| server_of(*voter) == *id);
        (participants.iter().copied().filter(votes).collect(), participants)
    }

    fn serve(&mut self) {
        // The first leader has yet to write who the members are: clients shall find that.
        let lacks_members =
            self.setup.ensemble.is_some() && self.state.machine().members_text().is_empty();
        let may_not = lacks_members || !self.state.machine().may_serve();
        if self.is_diverged() || self.leadership.awaits_disk() || !self.is_serving() && may_not {
            self.leadership.drop_barrier();
            return;
        }
        if !self.is_serving() {
            // A client that could only read finds a better server, or comes back to this one.
            self.clients.hang_up_all(true);
            self.sessions.clear_local();
            if !self.consensus.is_leader() {
                // It had no clients before, and the way to the leader and back is proved.
                self.sessions.confirm(self.clocks.now_us());
            }
        }
        self.leadership.serve();
    }

    /// Time has passed, perhaps much at once: a server that may have been given up meanwhile answers no client
    /// before it is sure again.
    pub(in crate::replica) fn mind_doubts(&mut self) {
        let doubts_from_us = self.sessions.confirmed_until_us();
        let is_alone = self.consensus.is_leader() && self.consensus.is_alone();
        let is_over = self.leadership.may_be_given_up(doubts_from_us, self.clocks.now_us());
        if is_over && !is_alone {
            self.stop_serving();
        }
    }

    /// Sends all clients away: they find another server, or come back.
    pub(in crate::replica) fn stop_serving(&mut self) {
        self.leadership.stop();
        self.clients.hang_up_all(false);
        self.forwarding.clear();
    }

    /// Read indexes up to `context` are confirmed and applied.
    pub(in crate::replica) fn reads_confirmed(&mut self, context: u64) {
        if self.leadership.is_past_barrier(context) && self.consensus.leader().is_some() {
            self.serve();
        }
        let zxid = self.state.machine().last_zxid();
        while let Some(token) = self.reads.released_inspection(context) {
            self.output.inspected(token, Report::Synced(zxid));
        }
        self.clients.sync_confirmed(self.state.machine(), context);
    }

    /// The leader was heard from.
    pub(in crate::replica) fn leader_heard(&mut self) {
        self.leadership.heard();
        let lost = self.forwarding.heard_from_leader(self.consensus.term());
        self.close_lost(&lost);
    }

    /// Time has passed. Voters notice a silent leader by standing for election themselves.
    pub(in crate::replica) fn mind_silence(&mut self, ticks: u64) {
        if self.leadership.is_silent(ticks) && !self.consensus.votes() {
            self.consensus.end_lease();
        }
    }

    /// A link to or from another server was made.
    pub(in crate::replica) fn peer_up(&mut self, peer: u64) {
        let greeting = self.consensus.greeting(peer);
        self.output.send_all(greeting.into_iter().map(|message| (peer, message)));
        self.ensemble.connect(peer);
        // A leader may have been heard before there was a way to it, and what was given to it had none.
        self.forwarding.link_lost(peer);
        self.sessions.link_changed();
    }

    /// The link to or from another server broke.
    pub(in crate::replica) fn peer_down(&mut self, peer: u64) {
        self.consensus.unreachable(peer);
        self.ensemble.disconnect(peer);
        // Also if it is not known to lead just now: it may come back as the leader of the same term.
        self.forwarding.link_lost(peer);
        self.sessions.link_changed();
        if self.consensus.leader() != Some(peer) {
            return;
        }
        if !self.consensus.votes() {
            return;
        }
        let voters = self.consensus.counting();
        let own = self.consensus.id();
        let rank = voters.iter().filter(|id| **id != peer && **id < own).count() as u64;
        self.consensus.end_lease();
        self.leadership.lost_link(rank, self.clocks.now_us());
        self.follow_hint();
    }

    /// Stands for election if the link to the leader broke and it is this server's turn.
    pub(in crate::replica) fn follow_hint(&mut self) {
        let has_leader = self.consensus.leader().is_some();
        let voters = self.consensus.counting().len() as u64;
        if self.leadership.is_turn(has_leader, voters, self.clocks.now_us()) {
            self.consensus.campaign();
        }
    }

    /// Another server stands for election, with a log that ends with this entry. If this one has
    /// more, it is the better candidate, at once.
    pub(in crate::replica) fn rival(&mut self, index: u64, term: u64) {
        if !self.consensus.is_up_to_date(index, term) {
            self.leadership.hurry(self.clocks.now_us());
        }
    }

    /// Leadership is to be handed over.
    pub(in crate::replica) fn resign(&mut self) {
        self.leadership.resign();
        self.follow_resignation();
    }

    /// Tries again until another server leads.
    pub(in crate::replica) fn follow_resignation(&mut self) {
        if self.leadership.resigns() {
            // Where none could take over, this server leads on.
            let _is_given = self.consensus.resign(|_| true);
        }
    }

    /// Closes connections whose requests are lost.
    pub(in crate::replica) fn close_lost(&mut self, lost: &[ConnId]) {
        for conn in lost {
            self.clients.hang_up(*conn);
        }
    }
}
