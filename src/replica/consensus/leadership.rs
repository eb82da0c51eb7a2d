//! Who leads, and what that means for the clients here.
//!
//! *Owns* when clients are served, held or sent away, and the hints that make an election fast.
//! *Invariants*: a server begins to serve only when it has applied what was committed when it found the
//! leader; one that has had no leader for [`LEADERLESS_MS_MAX`] serves nobody (or, if it is told to,
//! those who only read); a leader that is deposed answers no sync, because no quorum confirms it.
//! *Never* believes a clock about who leads.
//!
//! Takes the place of `QuorumPeer`'s states and of `FastLeaderElection`.

use crate::config::Role;
use crate::proto::Text;
use crate::replica::Replica;
use crate::replica::machine::TxnOp;
use crate::replica::machine::members;
use crate::replica::messages::server_of;
use crate::replica::request::ConnId;

/// How long a server without a leader keeps its clients, in milliseconds: reads go on, writes wait.
pub const LEADERLESS_MS_MAX: u64 = 1000;
/// A server that lost its link to the leader stands for election this much later than the one before
/// it in the order of ids, in microseconds: two at once would split the votes.
const RANK_US: u64 = 50_000;
/// How long such a loss is a reason to stand, in microseconds.
const HINT_US: u64 = 1_000_000;

/// How long a majority that has joined a new ensemble waits for the others, in microseconds: with them, it
/// may lose one at once.
const FOUNDING_PATIENCE_US: u64 = 1_000_000;

/// What this server knows of leadership beyond what Raft does.
#[derive(Debug, Default)]
pub(in crate::replica) struct Standing {
    /// Clients are served.
    serving: bool,
    /// Since when there is no leader.
    leaderless_since_us: Option<u64>,
    /// The read index that must be applied before clients are served.
    barrier: Option<u64>,
    hint: Option<Hint>,
    /// This leader has yet to see whether it is to write who the members are.
    founds: bool,
    /// Leadership is to be given away.
    resigns: bool,
    /// Clients were sent away because the disk hangs: they are served again when it returns.
    pub(in crate::replica) awaits_disk: bool,
    /// When another leader than before was seen last.
    pub(in crate::replica) led_anew_us: u64,
    /// Ticks since the leader was heard from.
    silent_ticks: u64,
    /// Changes of the leader that were seen.
    leader_changes: u64,
    last_leader: Option<u64>,
}

impl Standing {
    /// Since when there is no leader; `None` if there is one.
    pub(in crate::replica) fn leaderless_since_us(&self) -> Option<u64> {
        self.leaderless_since_us
    }
}

/// Ticks without a word from the leader after which a server that does not vote (and therefore stands
/// for no election) takes it for gone.
const SILENT_TICKS_MAX: u64 = 10;

/// The link to the leader broke.
#[derive(Clone, Copy, Debug)]
struct Hint {
    until_us: u64,
    campaign_at_us: u64,
}

impl Replica {
    /// Whether requests are answered.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.standing.serving
    }

    /// Whether those who only read are served, for lack of a leader.
    pub(in crate::replica) fn is_read_only(&self) -> bool {
        let since = self.standing.leaderless_since_us;
        self.setup.read_only_mode
            && !self.standing.serving
            && since.is_some_and(|since| self.now_us >= since + LEADERLESS_MS_MAX * 1000)
    }

    /// How many leaders were seen to follow each other.
    pub(in crate::replica) fn leader_changes(&self) -> u64 {
        self.standing.leader_changes
    }

    /// Begins or ends to serve, as leadership comes and goes. A leader serves once it has applied
    /// an entry of its own term: then it knows everything that was ever acknowledged.
    pub(in crate::replica) fn follow_leadership(&mut self) {
        let (term, leader) = (self.consensus.term(), self.consensus.leader());
        if leader.is_some() && leader != self.standing.last_leader {
            self.standing.leader_changes += 1;
            self.standing.last_leader = leader;
            self.standing.led_anew_us = self.now_us;
        }
        let is_leader = self.consensus.is_leader();
        let leads = is_leader && (self.applied.1 == term || mutant!("lead-before-caught-up"));
        if !is_leader {
            self.give_back();
        }
        match (leads, self.leading) {
            (true, Some(known)) if known == term => {}
            (true, _) => self.begin_to_lead(term),
            (false, Some(_)) => {
                self.leading = None;
                self.clocks.end_to_lead(self.now_us);
                self.reconfig_proposed = None;
                self.expiry.clear();
            }
            (false, None) => {}
        }
        if is_leader && self.consensus.is_alone() {
            self.touches.confirm(self.now_us);
        }
        // A leader that does not hear this server is none.
        let doubts_from_us = self.touches.confirmed_until_us();
        let is_cut_off = self.standing.serving && self.now_us >= doubts_from_us;
        if leader.is_none() || is_cut_off {
            let now_us = if is_cut_off { doubts_from_us } else { self.now_us };
            let since = self.standing.leaderless_since_us.map_or(now_us, |since| since.min(now_us));
            self.standing.leaderless_since_us = Some(since);
            self.standing.barrier = None;
            if self.standing.serving && self.now_us >= since + LEADERLESS_MS_MAX * 1000 {
                self.stop_serving();
            }
            return;
        }
        self.standing.leaderless_since_us = None;
        self.standing.hint = None;
        if leads {
            self.serve();
        } else if !is_leader && !self.standing.serving {
            let clients = &mut self.clients;
            self.standing.barrier.get_or_insert_with(|| {
                clients.sync_asked += 1;
                clients.sync_asked
            });
        }
    }

    fn begin_to_lead(&mut self, term: u64) {
        self.leading = Some(term);
        self.clocks.begin_to_lead(self.now_us, self.machine.steady_ms());
        self.reconfig_proposed = None;
        self.led_since_us = self.now_us;
        self.touches.clear();
        // A majority has agreed on what it began with.
        self.touches.confirm(self.now_us);
        self.reap_at_us = self.now_us + self.setup.container_check_interval_ms * 1000;
        self.expiry.clear();
        let sessions: Vec<(i64, i32)> =
            self.machine.sessions().iter().map(|(id, known)| (id, known.timeout_ms)).collect();
        for (id, timeout_ms) in sessions {
            let timeout_ms = if mutant!("new-leader-knows-no-mercy") { 0 } else { timeout_ms };
            self.track(id, timeout_ms);
        }
        self.begin_liveness();
        // What time it is, the others shall say at once.
        self.ping_others();
        self.standing.founds = true;
        self.write_members();
    }

    /// The first leader of an ensemble writes who its members are, and until it has, no server serves
    /// clients. The server that founded the ensemble is its only voter at first; the members are written once all
    /// participants vote, or when a majority does and the others have had their time. Fewer are not enough:
    /// those that are silent may have founded another ensemble.
    pub(in crate::replica) fn write_members(&mut self) {
        if self.leading.is_none() || !self.standing.founds {
            return;
        }
        if self.setup.ensemble.is_none() || !self.machine.tree().config_text().is_empty() {
            self.standing.founds = false;
            return;
        }
        let (voting, participants) = self.voting_participants();
        let has_majority = voting.len() > participants.len() / 2;
        let is_patient = self.now_us >= self.led_since_us + FOUNDING_PATIENCE_US;
        let may_begin = voting.len() == participants.len() || has_majority && is_patient;
        if !may_begin && !mutant!("founder-serves-alone") {
            return;
        }
        self.standing.founds = false;
        let servers = self.setup.ensemble.iter().flatten();
        let members = Text::from(members::lines(servers));
        self.forwarding.push_chore(0, &TxnOp::Found { members, opens_term: true });
    }

    /// The participants that the configuration names: those that vote, and all.
    pub(in crate::replica) fn voting_participants(&self) -> (Vec<u8>, Vec<u8>) {
        let servers = self.setup.ensemble.iter().flatten();
        let participants = servers.filter(|spec| spec.role == Role::Participant);
        let participants: Vec<u8> = participants.map(|spec| spec.id).collect();
        let voters = self.consensus.membership().voters;
        let votes = |id: &u8| voters.iter().any(|voter| server_of(*voter) == *id);
        (participants.iter().copied().filter(votes).collect(), participants)
    }

    fn serve(&mut self) {
        if self.standing.awaits_disk {
            self.standing.barrier = None;
            return;
        }
        if !self.standing.serving {
            if self.setup.ensemble.is_some() && self.machine.tree().config_text().is_empty() {
                // The first leader has yet to write who the members are: clients shall find that.
                self.standing.barrier = None;
                return;
            }
            // Whoever could only read finds a better server, or comes back to this one.
            self.clients.hang_up_all(true);
            self.local_expiry.clear();
            // It had no clients before, and the way to the leader and back is proved.
            self.touches.confirm(self.now_us);
            self.standing.serving = true;
        }
        self.standing.barrier = None;
    }

    /// Time has passed, perhaps much at once: whoever may have been given up meanwhile answers nobody
    /// before it is sure again.
    pub(in crate::replica) fn mind_doubts(&mut self) {
        let doubts_from_us = self.touches.confirmed_until_us();
        let since = self.standing.leaderless_since_us;
        let since_us = since.map_or(doubts_from_us, |since| since.min(doubts_from_us));
        let is_alone = self.consensus.is_leader() && self.consensus.is_alone();
        let is_over = self.now_us >= since_us + LEADERLESS_MS_MAX * 1000;
        if self.standing.serving && is_over && !is_alone {
            self.stop_serving();
        }
    }

    /// Sends all clients away: they find another server, or come back.
    pub(in crate::replica) fn stop_serving(&mut self) {
        self.standing.serving = false;
        self.standing.barrier = None;
        self.clients.hang_up_all(false);
        self.forwarding.clear();
    }

    /// Read indexes up to `context` are confirmed and applied.
    pub(in crate::replica) fn reads_confirmed(&mut self, context: u64) {
        if self.standing.barrier.is_some_and(|barrier| barrier <= context)
            && self.consensus.leader().is_some()
        {
            self.serve();
        }
        self.clients.sync_confirmed(&self.machine, context);
    }

    /// The leader was heard from.
    pub(in crate::replica) fn leader_heard(&mut self) {
        self.standing.silent_ticks = 0;
        let lost = self.forwarding.heard_from_leader(self.consensus.term());
        self.close_lost(&lost);
    }

    /// Time has passed. Voters notice a silent leader by standing for election themselves.
    pub(in crate::replica) fn mind_silence(&mut self, ticks: u64) {
        self.standing.silent_ticks += ticks;
        if self.standing.silent_ticks > SILENT_TICKS_MAX && !self.consensus.votes() {
            self.consensus.end_lease();
        }
    }

    /// A link to or from another server was made.
    pub(in crate::replica) fn peer_up(&mut self, peer: u64) {
        let greeting = self.consensus.greeting(peer);
        self.output.send_all(greeting.into_iter().map(|message| (peer, message)));
        self.connected.insert(server_of(peer), peer);
        // A leader may have been heard before there was a way to it, and what was given to it had none.
        self.forwarding.link_lost(peer);
        self.touches.link_changed();
    }

    /// The link to or from another server broke.
    pub(in crate::replica) fn peer_down(&mut self, peer: u64) {
        self.consensus.unreachable(peer);
        if self.connected.get(&server_of(peer)) == Some(&peer) {
            self.connected.remove(&server_of(peer));
        }
        // Also if it is not known to lead just now: it may come back as the leader of the same term.
        self.forwarding.link_lost(peer);
        self.touches.link_changed();
        if self.consensus.leader() != Some(peer) {
            return;
        }
        if !self.consensus.votes() {
            return;
        }
        let voters = self.consensus.membership().voters;
        let own = self.consensus.id();
        let rank = voters.iter().filter(|id| **id != peer && **id < own).count() as u64;
        self.consensus.end_lease();
        let campaign_at_us = self.now_us + rank * RANK_US;
        self.standing.hint = Some(Hint { until_us: self.now_us + HINT_US, campaign_at_us });
        self.follow_hint();
    }

    /// Stands for election if the link to the leader broke and it is this server's turn.
    pub(in crate::replica) fn follow_hint(&mut self) {
        let Some(hint) = self.standing.hint else { return };
        if self.consensus.leader().is_some() || self.now_us > hint.until_us {
            self.standing.hint = None;
        } else if self.now_us >= hint.campaign_at_us {
            self.consensus.campaign();
            let voters = self.consensus.membership().voters.len() as u64;
            let campaign_at_us = self.now_us + voters * RANK_US;
            self.standing.hint = Some(Hint { campaign_at_us, ..hint });
        }
    }

    /// Another server stands for election, with a log that ends with this entry. If this one has
    /// more, it is the better candidate, at once.
    pub(in crate::replica) fn rival(&mut self, index: u64, term: u64) {
        if !self.consensus.is_up_to_date(index, term)
            && let Some(hint) = &mut self.standing.hint
        {
            hint.campaign_at_us = self.now_us;
        }
    }

    /// Leadership is to be handed over.
    pub(in crate::replica) fn resign(&mut self) {
        self.standing.resigns = true;
        self.follow_resignation();
    }

    /// Tries again until another server leads.
    pub(in crate::replica) fn follow_resignation(&mut self) {
        if self.standing.resigns {
            self.hand_over();
        }
    }

    /// Gives leadership away, this once: a member that leaves may come back and lead again.
    pub(in crate::replica) fn hand_over(&mut self) {
        // Where none could take over, this server leads on.
        let _is_given = self.consensus.resign();
    }

    /// Closes connections whose requests are lost.
    pub(in crate::replica) fn close_lost(&mut self, lost: &[ConnId]) {
        self.figures.forwards_lost += lost.len() as u64;
        for conn in lost {
            self.clients.hang_up(*conn);
        }
    }

    /// What this server is meant to be, by the text of the ensemble.
    pub(in crate::replica) fn own_role(&self) -> Role {
        self.own_role
    }
}
