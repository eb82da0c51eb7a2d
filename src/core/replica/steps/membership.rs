//! Members: who may change them, what the shell is told of them, and when a change is answered.
//!
//! *Owns* the judgement of a request for other members before it is proposed. *Invariants*: what cannot be done now is
//! refused before anything is in the log; a removal is answered when the removed have no vote any more. *Never* changes
//! the text of the members (`machine/members.rs` does) or who votes (`votes.rs`).

use super::votes;
use crate::config::{PeerAddress, Role, ServerSpec};
use crate::proto::request::Request;
use crate::proto::{ErrorCode, OpCode};
use crate::replica::Replica;
use crate::replica::machine::members::{self, Asked, Members};
use crate::replica::machine::{Batch, BatchBuilder, TxnOp};
use crate::replica::messages::{Member, server_of};
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
        let (counting, taking_part) = (self.consensus.counting(), self.consensus.taking_part());
        let members = self.members();
        let with_id = |spec: &ServerSpec| {
            let of_server = |id: &&u64| server_of(**id) == spec.id;
            let voter = counting.iter().find(of_server).copied();
            let raft_id = voter.or_else(|| taking_part.iter().find(of_server).copied());
            Member { raft_id, votes: voter.is_some(), spec: spec.clone() }
        };
        let of_text: Vec<Member> = members.values().map(with_id).collect();
        let leaving = |member: &Member| {
            let id = member.raft_id.filter(|_| !members.contains_key(&member.spec.id))?;
            taking_part.contains(&id).then(|| counting.contains(&id))
        };
        let version = members::version(self.state.machine().members_text());
        self.ensemble.announce(of_text, version, leaving)
    }

    /// Lack for which this leader has refused the last change of members (-13) since the last call.
    pub fn take_refused_change(&mut self) -> Option<String> {
        self.ensemble.take_refused()
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

    /// Looks at a batch that asks for other members before it is proposed: what cannot be done now
    /// is refused. The rest is decided when it is applied. Says whether something is left to decide:
    /// until then, the next request cannot be judged.
    pub(in crate::replica) fn screen(&mut self, payload: Vec<u8>) -> (Vec<u8>, bool) {
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
        &mut self,
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
        // Lines that were there before are no reason: another change may mend them.
        let mut new = changed.values().filter(|spec| current.get(&spec.id) != Some(*spec));
        // Others cannot dial what stands for all addresses of a machine. A majority may need the server
        // that votes there; kazoo's own tests add an observer like that, and ZooKeeper lets them.
        let is_any = |address: &PeerAddress| {
            address.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
        };
        let is_bad = |spec: &ServerSpec| {
            spec.role == Role::Participant && spec.addresses.iter().any(is_any)
                || spec.addresses.len() > 1 && !self.setup.multi_address
        };
        if new.any(is_bad) {
            return Some(ErrorCode::BadArguments);
        }
        let voters = members::participants(&changed);
        if voters < VOTERS_MIN && members::participants(&current) >= VOTERS_MIN || voters == 0 {
            return Some(ErrorCode::BadArguments);
        }
        let change = self.next_change(&changed);
        let lacks = change.lacks(&votes::participants(&changed), &self.consensus.peers());
        lacks.map(|lacks| {
            self.ensemble.refused(lacks);
            ErrorCode::NewConfigNoQuorum
        })
    }
}
