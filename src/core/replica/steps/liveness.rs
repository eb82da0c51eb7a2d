//! Session liveness rounds: the leader asks the other servers whom they have heard from.
//!
//! *Owns* nothing: joins the session tracker with the consensus, which knows who leads and who votes. *Invariant*: a
//! report counts only in the term in which this server leads, and a ping only if it comes from the leader. *Never*
//! compares the clocks of two servers: each gets its own readings back.

use crate::replica::Replica;
use crate::replica::messages::{PeerMessage, Stamp, server_of};
use crate::replica::sessions::{Ping, Reported};

impl Replica {
    /// A session's client was heard from.
    pub(in crate::replica) fn touch(&mut self, session: i64) {
        let leads = self.leadership.leads().is_some();
        // A leader too: another one may lead by now, and this one learn of it only after it has answered.
        // Sessions that only read concern no other server.
        let is_told = self.setup.ensemble.is_some() && self.is_serving();
        self.sessions.touch(session, leads, is_told);
        if leads {
            self.tell_zookeeper_heard(&[session]);
        }
    }

    /// Asks the others whom they have heard from.
    pub(super) fn ping_others(&mut self) {
        let Some(term) = self.leadership.leads() else { return };
        let (own, at_us, steady_ms) = (self.consensus.id(), self.clocks.now_us(), self.steady_ms());
        for peer in self.consensus.peers().iter().map(|peer| peer.id).filter(|id| *id != own) {
            let heard = self.sessions.report_of(peer, at_us);
            self.output.send(peer, PeerMessage::Ping { term, at_us, steady_ms, heard });
        }
    }

    /// The leader wants to know who was heard from, and has got a report.
    pub(super) fn pinged(&mut self, from: u64, ping: Ping, steady_ms: i64) {
        if self.consensus.leader() != Some(from) || self.consensus.term() != ping.term {
            return;
        }
        self.clocks.hear(steady_ms);
        let reports = self.sessions.pinged(ping, self.clocks.now_us(), self.clocks.wall_ms());
        self.output.send_all(reports.into_iter().map(|report| (from, report)));
    }

    /// Another server has said whom it heard from. False: it was not asked, or what it said before is missing.
    pub(super) fn touched(
        &mut self,
        from: u64,
        (term, at_us): (u64, u64),
        wall_ms: i64,
        (stamp, base): (Stamp, u64),
        sessions: &[i64],
    ) -> bool {
        if server_of(stamp.process) != server_of(from) {
            return false;
        }
        self.sessions.heard_by(stamp.process, sessions, self.state.machine().sessions());
        if self.leadership.leads() == Some(term) {
            self.tell_zookeeper_heard(sessions);
            let now_us = self.clocks.now_us();
            if !self.sessions.take_report(Reported { from, stamp, base }, at_us, now_us) {
                return false;
            }
            self.clocks.read(from, wall_ms, at_us.min(now_us));
            // With this answer, perhaps a majority has answered.
            let own = self.consensus.id();
            let heard = |id: u64| if id == own { now_us } else { self.sessions.answered_us(id) };
            let confirmed_us = self.consensus.majority_heard(heard);
            self.sessions.confirm(confirmed_us);
        }
        true
    }
}
