//! Who belongs to the ensemble, and how Raft comes to agree with that.
//!
//! *Owns* the way from the text of the members (replicated, see `machine/members.rs`) to Raft's voters and
//! learners. *Invariants*: one change at a time, proposed by the leader; a server votes only when it has
//! caught up; a server that lost its data never votes under the identity that it lost: its new one
//! learns first, and then takes the place of the old one in one step. *Never* changes the text.

use crate::config::{PeerAddress, Role, ServerSpec};
use crate::proto::request::Request;
use crate::proto::{ErrorCode, OpCode};
use crate::replica::Replica;
use crate::replica::consensus::{PeerProgress, Step};
use crate::replica::machine::members::{self, Asked, Members};
use crate::replica::machine::{Batch, BatchBuilder, TxnOp, members_mark};
use crate::replica::messages::{Member, raft_id, server_of};
use crate::replica::request::ConnId;

/// How long an answer to a reconfig waits for what leaves to count no longer, in milliseconds. Then its
/// connection is closed: the change is decided, and its client does not know.
pub(crate) const REMOVAL_MS_MAX: u64 = 5000;
/// Fewest voters that reconfig may lead to: ZooKeeper's, unless a lone server is an ensemble.
const VOTERS_MIN: usize = 2;

impl Replica {
    /// The servers of the ensemble, as the log has them; before that, as the configuration has them.
    pub(in crate::replica) fn members(&self) -> Members {
        let text = self.state.machine().members_text();
        if !text.is_empty() {
            return members::parse(text);
        }
        let configured = self.setup.ensemble.iter().flatten();
        configured.map(|spec| (spec.id, spec.clone())).collect()
    }

    /// The members and those that are leaving with their raft ids, if they or the version of the
    /// members are others than at the last call.
    pub(in crate::replica) fn changed_members(&mut self) -> Option<Vec<Member>> {
        if self.setup.ensemble.is_none() || !self.ensemble.take_changed() {
            return None;
        }
        let membership = self.consensus.membership();
        let members = self.members();
        let with_id = |spec: &ServerSpec| {
            let of_server = |id: &&u64| server_of(**id) == spec.id;
            let voter = membership.voters.iter().find(of_server).copied();
            let learner = membership.learners.iter().find(of_server).copied();
            Member { raft_id: voter.or(learner), votes: voter.is_some(), spec: spec.clone() }
        };
        let of_text: Vec<Member> = members.values().map(with_id).collect();
        let takes_part = |member: &Member| {
            let takes_part =
                |id| membership.voters.contains(&id) || membership.learners.contains(&id);
            !members.contains_key(&member.spec.id) && member.raft_id.is_some_and(takes_part)
        };
        let version = members::version(self.state.machine().members_text());
        self.ensemble.announce(of_text, version, takes_part)
    }

    /// Proposes the next step of Raft's membership towards that of the text, if there is one.
    pub(in crate::replica) fn reconcile(&mut self) {
        if self.leadership.leads().is_none()
            || self.setup.ensemble.is_none()
            || self.consensus.is_changing()
            || self.is_diverged()
        {
            return;
        }
        let steps = self.next_steps();
        if !steps.is_empty() {
            self.consensus.propose_change(&steps);
            return;
        }
        let term = self.consensus.term();
        // Where it is not taken now, the next tick tries again.
        if self.ensemble.lacks_mark(term) && self.voters_are_members() && self.propose_mark() {
            self.ensemble.mark_proposed(term);
        }
    }

    fn propose_mark(&mut self) -> bool {
        let (rules, version) = (self.rules(), self.state.machine().written_version());
        let mark = members_mark(&self.entry_time(), rules, version);
        self.consensus.propose(mark).is_ok()
    }

    /// Whether every vote that counts is that of a participant: of one that leaves, or becomes an
    /// observer, none does.
    fn voters_are_members(&self) -> bool {
        let members = self.members();
        let takes_part = |id: u64| {
            members.get(&server_of(id)).is_some_and(|spec| spec.role == Role::Participant)
        };
        self.consensus.counting().into_iter().all(takes_part)
    }

    /// A change of the members was applied, asked for by the client of this connection, if it is one of
    /// this server's. While votes count that are to count no longer, its answer waits for a mark: what
    /// an operator stops then may be what the majority hangs on.
    pub(in crate::replica) fn members_applied(&mut self, is_asked_for: bool, conn: Option<ConnId>) {
        self.ensemble.members_changed(is_asked_for);
        if let Some(conn) = conn
            && !self.voters_are_members()
            && !mutant!("removal-acknowledged-early")
        {
            self.clients.hold_for_members(conn, self.clocks.now_us() + REMOVAL_MS_MAX * 1000);
        }
    }

    /// A mark was applied: a leader proposed it when it had applied every change of the voters in front
    /// of it. It is committed by the voters that were left, and a server that has it knows that those
    /// changes are committed. So of any majority of them, the one with the longest log does, and can be
    /// elected.
    pub(in crate::replica) fn voters_marked(&mut self) {
        if self.voters_are_members() {
            self.ensemble.marked();
            self.clients.members_settled();
        }
    }

    /// A step towards the members was applied.
    pub(in crate::replica) fn voters_changed(&mut self) {
        self.ensemble.voters_changed();
        self.keep_reports_of_members();
        if mutant!("removal-without-mark") && self.voters_are_members() {
            self.clients.members_settled();
        }
    }

    fn next_steps(&mut self) -> Vec<Step> {
        let members = self.members();
        let peers = self.consensus.peers();
        let own = self.consensus.id();
        for spec in members.values() {
            let there: Vec<PeerProgress> =
                peers.iter().filter(|peer| server_of(peer.id) == spec.id).copied().collect();
            let known = if spec.id == server_of(own) {
                Some(own)
            } else {
                self.ensemble.connected(spec.id)
            };
            let Some(first) = there.first() else {
                return vec![Step::Learn(known.unwrap_or(raft_id(0, spec.id)))];
            };
            // Whether it is there to learn or not, an observer's vote counts for nothing.
            let vote = there.iter().find(|peer| spec.role == Role::Observer && peer.votes);
            if let Some(vote) = vote {
                if vote.id == own {
                    self.hand_over();
                    return Vec::new();
                }
                return vec![Step::Learn(vote.id)];
            }
            // Of two identities of a server, the one that is connected is to stay.
            let is_known = |peer: &&PeerProgress| Some(peer.id) == known;
            let Some(stays) = there.iter().find(is_known).or(known.is_none().then_some(first))
            else {
                return vec![Step::Learn(known.unwrap_or(first.id))];
            };
            let mut steps: Vec<Step> = there
                .iter()
                .filter(|peer| peer.id != stays.id)
                .map(|peer| Step::Remove(peer.id))
                .collect();
            match (spec.role, stays.votes) {
                (Role::Participant, false) if stays.is_active && stays.is_caught_up => {
                    steps.push(Step::Vote(stays.id));
                }
                // It learns first: the old identity keeps its place as long.
                (Role::Participant, false) => continue,
                (Role::Participant, true) | (Role::Observer, _) => {}
            }
            if known.is_some() && !steps.is_empty() {
                return steps;
            }
        }
        let strangers = peers.iter().filter(|peer| !members.contains_key(&server_of(peer.id)));
        for stranger in strangers {
            if stranger.id == own {
                self.hand_over();
                return Vec::new();
            }
            if stranger.votes {
                return vec![Step::Learn(stranger.id)];
            }
            if !self.ensemble.is_leaving(stranger.id) {
                return vec![Step::Remove(stranger.id)];
            }
        }
        Vec::new()
    }

    /// Looks at a batch that asks for other members before it is proposed: what cannot be done now
    /// is refused. The rest is decided when it is applied. Says whether something is left to decide:
    /// until then, the next request cannot be judged.
    pub(in crate::replica) fn screen(&self, payload: Vec<u8>) -> (Vec<u8>, bool) {
        let Ok(batch) = Batch::decode(&payload.clone().into()) else { return (payload, false) };
        let mut screened = BatchBuilder::default();
        let mut is_open = false;
        for txn in &batch.txns {
            let refusal = match &txn.op {
                TxnOp::Client { op, body } if *op == OpCode::Reconfig as i32 => {
                    match Request::decode(*op, body.clone()) {
                        Ok(Request::Reconfig { joining, leaving, members, version }) => {
                            let (joining, leaving) = (joining.as_ref(), leaving.as_ref());
                            let asked = Asked { joining, leaving, members: members.as_ref() };
                            let refusal = self.refusal(&txn.ids, asked, version, is_open);
                            is_open |= refusal.is_none();
                            refusal
                        }
                        _ => None,
                    }
                }
                _ => None,
            };
            let refused = refusal
                .map(|code| TxnOp::Refuse { op: OpCode::Reconfig as i32, code: code as i32 });
            let op = refused.as_ref().unwrap_or(&txn.op);
            screened.push(txn.origin, txn.session, txn.cxid, &txn.ids, op);
        }
        (screened.take(), is_open)
    }

    /// Why members cannot be changed like that now. `None` also where the log decides.
    fn refusal(
        &self,
        ids: &[crate::tree::acl::Identity],
        asked: Asked<'_>,
        version: i64,
        is_open: bool,
    ) -> Option<ErrorCode> {
        if !self.setup.reconfig_enabled {
            return Some(ErrorCode::ReconfigDisabled);
        }
        let tree = self.state.machine().tree();
        if tree.config_refuses(tree.asks_here(ids)) {
            return None;
        }
        let text = tree.config_text();
        let is_known = self.leadership.leads() == Some(self.consensus.term()) && !text.is_empty();
        if is_open || !is_known || self.ensemble.has_reconfig() {
            return Some(ErrorCode::ReconfigInProgress);
        }
        let current = members::parse(text);
        if version != -1 && version != members::version(text) {
            return None;
        }
        let changed = members::change(&current, asked).ok()?;
        // Others cannot dial what stands for all addresses of a machine. A majority may need the server
        // that votes there; kazoo's own tests add an observer like that, and ZooKeeper lets them.
        let is_new = |spec: &&ServerSpec| {
            current.get(&spec.id) != Some(*spec) && spec.role == Role::Participant
        };
        let is_any = |address: &PeerAddress| {
            address.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
        };
        if changed.values().filter(is_new).any(|spec| spec.addresses.iter().any(is_any)) {
            return Some(ErrorCode::BadArguments);
        }
        // Lines that were there before are no reason: another change may mend them.
        let is_other = |spec: &&ServerSpec| current.get(&spec.id) != Some(*spec);
        if !self.setup.multi_address
            && changed.values().filter(is_other).any(|spec| spec.addresses.len() > 1)
        {
            return Some(ErrorCode::BadArguments);
        }
        let voters = members::participants(&changed);
        if voters < VOTERS_MIN && members::participants(&current) >= VOTERS_MIN || voters == 0 {
            return Some(ErrorCode::BadArguments);
        }
        let peers = self.consensus.peers();
        let is_synced = |id: u8| {
            peers.iter().any(|peer| server_of(peer.id) == id && peer.is_active && peer.is_caught_up)
        };
        let synced = changed
            .values()
            .filter(|spec| spec.role == Role::Participant && is_synced(spec.id))
            .count();
        (synced <= voters / 2).then_some(ErrorCode::NewConfigNoQuorum)
    }
}
