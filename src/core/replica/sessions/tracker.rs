//! The session tracker: when each session ends, and which ones the leader is told of.
//!
//! *Owns* the deadlines that the leader keeps, those of sessions that this server alone knows, what the leader
//! knows of the other servers' clients, the sessions that are moving, what this server has yet to tell the leader,
//! the passwords of new sessions, and the reaper. *Invariants*: deadlines of replicated sessions count only while
//! this server leads; they are looked at once per tick, in the step in which the end of a session would go to the
//! log. *Never* ends a session: what is overdue is proposed, or closed by its caller.
//!
//! Takes the place of ZooKeeper's `SessionTracker`s.

use std::collections::BTreeSet;

use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;

use super::expiry::Expiry;
use super::liveness::Liveness;
use super::moves::Moves;
use super::reaper::Reaper;
use super::touches::{DEPOSED_US_MAX, Touches};
use crate::proto::connect::{PASSWORD_BYTES, Password};
use crate::replica::machine::{Session, Sessions};
use crate::replica::messages::{PeerMessage, Stamp, server_of};

/// Sessions in one message.
const TOUCHES_MAX: usize = 64 << 10;
/// Set in the ids of sessions that one server knows alone. The zxid that the others are made from
/// stays below it for 2^23 terms.
const LOCAL_SESSION: i64 = 1 << 55;

/// A ping of the leader.
#[derive(Clone, Copy, Debug)]
pub(in crate::replica) struct Ping {
    /// The term in which it leads.
    pub(in crate::replica) term: u64,
    /// A time of the leader, which it gets back.
    pub(in crate::replica) at_us: u64,
    /// The last report that it has got.
    pub(in crate::replica) heard: Option<Stamp>,
}

/// A report of another server, without its sessions.
#[derive(Clone, Copy, Debug)]
pub(in crate::replica) struct Reported {
    /// Raft id of the server.
    pub(in crate::replica) from: u64,
    pub(in crate::replica) stamp: Stamp,
    /// Number of the report before.
    pub(in crate::replica) base: u64,
}

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct SessionTracker {
    /// This process, in the origins of its clients' transactions, and its server's id in the lowest byte.
    process: u64,
    /// How much longer than its timeout a silent session lives.
    grace_ms: u64,
    random: ChaCha20Rng,
    /// Deadlines of all sessions, while this server leads.
    expiry: Expiry,
    /// Whether they are to be looked at before the next proposal.
    is_due: bool,
    /// Those of sessions that only this server knows.
    local: Expiry,
    /// What the leader knows of whom the others hear from.
    liveness: Liveness,
    /// Sessions that are moving to other servers.
    moves: Moves,
    /// Whom the leader was not told of.
    touches: Touches,
    reaper: Reaper,
}

canonical! {
    // What a leader knows of the other servers' clients begins anew when it begins to lead, and counts only then.
    // There is nothing to be reaped.
    SessionTracker(leads: bool, is_linked: impl Fn(u64) -> bool): process, grace_ms, is_due, moves; without reaper;
    |out, random, expiry, local, liveness, touches| {
        out.value(&random.get_word_pos());
        expiry.canonical(out);
        local.canonical(out);
        if leads {
            liveness.canonical(expiry.now_us(), is_linked, out);
        }
        touches.canonical(leads, out);
    }
}

impl SessionTracker {
    /// Of this process, with its source of passwords.
    pub(in crate::replica) fn new(process: u64, grace_ms: u64, random: ChaCha20Rng) -> Self {
        Self {
            process,
            grace_ms,
            random,
            expiry: Expiry::default(),
            is_due: false,
            local: Expiry::default(),
            liveness: Liveness::default(),
            moves: Moves::default(),
            touches: Touches::default(),
            reaper: Reaper::default(),
        }
    }

    /// Time has passed.
    pub(in crate::replica) fn tick(&mut self, now_us: u64) {
        self.expiry.tick(now_us);
        self.local.tick(now_us);
    }

    /// The password of a new session.
    pub(in crate::replica) fn new_password(&mut self) -> Password {
        let mut password = [0; PASSWORD_BYTES];
        self.random.fill_bytes(&mut password);
        password
    }

    /// A new session that only this server knows: its id and password.
    pub(in crate::replica) fn open_local(&mut self, timeout_ms: i32) -> (i64, Password) {
        let number = i64::try_from(self.random.next_u64() >> 10).expect("54 bits");
        let session = i64::from(server_of(self.process)) << 56 | LOCAL_SESSION | number;
        let password = self.new_password();
        self.local.track(session, timeout_ms);
        (session, password)
    }

    /// Sessions that only this server knows and that are overdue. They are forgotten.
    pub(in crate::replica) fn overdue_local(&mut self) -> Vec<i64> {
        let overdue = self.local.overdue(|_, _| false);
        for session in &overdue {
            self.local.forget(*session);
        }
        overdue
    }

    /// There is a leader: no session is only this server's any more.
    pub(in crate::replica) fn clear_local(&mut self) {
        self.local.clear();
    }

    /// How many sessions only this server knows.
    pub(in crate::replica) fn local_count(&self) -> usize {
        self.local.len()
    }

    /// A session's client was heard from. `leads`: by the leader; `is_told`: the leader is to know.
    pub(in crate::replica) fn touch(&mut self, session: i64, leads: bool, is_told: bool) {
        self.local.touch(session);
        if leads {
            self.expiry.touch(session);
        }
        if is_told {
            self.touches.insert(session);
        }
    }

    /// Begins to watch a session, for its timeout and the grace that is configured.
    fn track(&mut self, session: i64, timeout_ms: i32) {
        let grace_ms = if mutant!("grace-not-given") { 0 } else { self.grace_ms };
        self.expiry.track_with_grace(session, timeout_ms, grace_ms);
    }

    /// The leader has given a session to a process: the session has its full timeout from now on.
    pub(in crate::replica) fn attached(&mut self, id: i64, session: Session) {
        if self.remaining_ms(id).is_none() || !mutant!("attach-keeps-deadline") {
            self.track(id, session.timeout_ms);
        }
        let process = session.owner.0;
        if server_of(process) != server_of(self.process) {
            self.liveness.attached(process, self.expiry.now_us());
        }
    }

    /// The leader of this term takes another server's request to attach this session. If its password is
    /// right, its client is heard of now, not only when that is applied.
    pub(in crate::replica) fn moving(&mut self, term: u64, session: i64, is_heard: bool) {
        self.moves.taken(term, session);
        if is_heard && !mutant!("attach-keeps-deadline") {
            self.expiry.touch(session);
        }
    }

    /// Such a request was applied, from an entry of this term.
    pub(in crate::replica) fn moved(&mut self, term: u64, session: i64) {
        self.moves.applied(term, session);
    }

    /// A request to close it is on its way.
    pub(in crate::replica) fn set_closing(&mut self, session: i64) {
        self.expiry.set_closing(session);
    }

    /// It is closed.
    pub(in crate::replica) fn forget(&mut self, session: i64) {
        self.expiry.forget(session);
    }

    /// Whether this server, which leads, has not heard from a session for its whole timeout. False, where it does not
    /// watch the session.
    pub(in crate::replica) fn is_silent(&self, session: i64) -> bool {
        self.remaining_ms(session).is_some_and(|remaining_ms| remaining_ms <= self.grace_ms)
    }

    /// Milliseconds until a session is overdue, unless it is heard from.
    pub(in crate::replica) fn remaining_ms(&self, session: i64) -> Option<u64> {
        self.expiry.remaining_ms(session)
    }

    /// This server begins to lead: every session has its full timeout from now on, and the others may go on
    /// for a while without knowing.
    pub(in crate::replica) fn begin_to_lead(&mut self, sessions: &Sessions, now_us: u64) {
        self.touches.clear();
        // A majority has agreed on what it began with.
        self.touches.confirm(now_us);
        self.expiry.clear();
        for (id, session) in sessions.iter() {
            let is_spared = !mutant!("new-leader-knows-no-mercy");
            self.track(id, if is_spared { session.timeout_ms } else { 0 });
        }
        // An earlier process of this server has ended.
        let own = server_of(self.process);
        let owners = sessions.iter().map(|(_, session)| session.owner.0);
        let others = owners.filter(|process| server_of(*process) != own).collect();
        self.liveness.begin(others, self.expiry.now_us());
    }

    /// The leader's state was replaced, or it begins to decide when sessions end: each has its full timeout from now
    /// on. Who has heard from them is told as before.
    pub(in crate::replica) fn track_anew(&mut self, sessions: &Sessions) {
        self.expiry.clear();
        for (id, session) in sessions.iter() {
            self.track(id, session.timeout_ms);
        }
    }

    /// This server leads no longer, or its state was replaced.
    pub(in crate::replica) fn end_to_lead(&mut self) {
        self.expiry.clear();
    }

    /// A tick of a leader: deadlines are looked at before the next proposal, and what is old need not be told.
    pub(in crate::replica) fn tick_leader(&mut self, now_us: u64) {
        self.touches.forget_old(now_us);
        self.is_due = true;
    }

    /// Sessions that are overdue, once per tick, for the leader of this term: marked as closing.
    pub(in crate::replica) fn take_overdue(&mut self, term: u64, sessions: &Sessions) -> Vec<i64> {
        if !std::mem::take(&mut self.is_due) {
            return Vec::new();
        }
        let (liveness, moves) = (&self.liveness, &self.moves);
        let may_have_been_heard = |session, before_us| {
            let known = sessions.find(session);
            known.is_some_and(|known| liveness.may_have_heard(known.owner.0, before_us))
                && !mutant!("reports-not-awaited")
                || moves.may_have_moved(term, session) && !mutant!("moving-session-expires")
        };
        self.expiry.overdue(may_have_been_heard)
    }

    /// Gives the sessions of those who are gone, or have sent their clients away by now, their timeout
    /// from now on: the last answer may have been just given. Who was spared and has not been heard of
    /// since is not spared again.
    pub(in crate::replica) fn give_up_silent(&mut self, sessions: &Sessions) {
        let gone = self.liveness.give_up(self.expiry.now_us());
        if gone.is_empty() {
            return;
        }
        let mut owners = BTreeSet::new();
        for (id, session) in sessions.iter() {
            owners.insert(session.owner.0);
            if gone.contains(&session.owner.0) && !mutant!("given-up-sessions-not-spared") {
                self.expiry.spare(id);
            }
        }
        self.liveness.forget_given_up(&owners);
    }

    /// The last report of a server, to be confirmed with a ping. A leader that no majority has answered for long
    /// confirms nothing.
    pub(in crate::replica) fn report_of(&self, peer: u64, now_us: u64) -> Option<Stamp> {
        let is_sure = self.touches.confirmed_us() + DEPOSED_US_MAX > now_us;
        self.liveness.stamp(peer).filter(|_| is_sure)
    }

    /// The leader wants to know who was heard from: the reports for it.
    pub(in crate::replica) fn pinged(
        &mut self,
        ping: Ping,
        now_us: u64,
        wall_ms: i64,
    ) -> Vec<PeerMessage> {
        let Ping { term, at_us, heard } = ping;
        let process = self.process;
        self.touches.follow(term);
        if let Some(stamp) = heard.filter(|stamp| stamp.process == process) {
            self.touches.arrived(stamp.number, now_us);
        }
        let (number, base, mut sessions) = self.touches.report(now_us);
        if mutant!("touches-not-passed-on") {
            sessions.clear();
        }
        let mut reports = Vec::new();
        while sessions.len() > TOUCHES_MAX {
            // Only with the last of them is everything told.
            let stamp = Stamp { process, number: 0 };
            let sessions = sessions.split_off(sessions.len() - TOUCHES_MAX);
            reports.push(PeerMessage::Touch {
                term: 0,
                at_us: 0,
                wall_ms: 0,
                stamp,
                base: 0,
                sessions,
            });
        }
        let stamp = Stamp { process, number };
        reports.push(PeerMessage::Touch { term, at_us, wall_ms, stamp, base, sessions });
        reports
    }

    /// Another server has heard from these sessions. Who went elsewhere is heard of from there.
    pub(in crate::replica) fn heard_by(&mut self, process: u64, heard: &[i64], known: &Sessions) {
        for session in heard {
            if known.find(*session).is_some_and(|known| known.owner.0 == process) {
                self.expiry.touch(*session);
            }
        }
    }

    /// This leader takes a report that answers a ping of `asked_us`. False: what that server said before is
    /// missing.
    pub(in crate::replica) fn take_report(
        &mut self,
        report: Reported,
        asked_us: u64,
        now_us: u64,
    ) -> bool {
        let Reported { from, stamp, base } = report;
        let before = Stamp { number: base, ..stamp };
        if base != 0 && self.liveness.stamp(from) != Some(before) {
            return false;
        }
        // Of the time since then, not all counts.
        let asked_us = if mutant!("report-counts-from-arrival") { now_us } else { asked_us };
        let (counted_us, age_us) = (self.expiry.now_us(), now_us.saturating_sub(asked_us));
        self.liveness.told(stamp.process, counted_us.saturating_sub(age_us), counted_us);
        self.liveness.take(from, stamp, asked_us.min(now_us));
        true
    }

    /// When the last ping was sent that this server has answered.
    pub(in crate::replica) fn answered_us(&self, peer: u64) -> u64 {
        self.liveness.answered_us(peer)
    }

    /// This server is in touch with a majority.
    pub(in crate::replica) fn confirm(&mut self, now_us: u64) {
        self.touches.confirm(now_us);
    }

    /// When this server begins to doubt that it is heard.
    pub(in crate::replica) fn confirmed_until_us(&self) -> u64 {
        self.touches.confirmed_until_us()
    }

    /// What was on its way to another server may be lost.
    pub(in crate::replica) fn link_changed(&mut self) {
        self.touches.link_changed();
    }

    /// What looks for containers and TTL znodes whose time has come.
    pub(in crate::replica) fn reaper(&mut self) -> &mut Reaper {
        &mut self.reaper
    }

    /// This process, in the origins of its clients' transactions.
    #[cfg(test)]
    pub(in crate::replica) fn process(&self) -> u64 {
        self.process
    }

    /// How many sessions the leader is to be told of.
    #[cfg(test)]
    pub(in crate::replica) fn untold(&self) -> usize {
        self.touches.len()
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    /// The process of server 2.
    fn tracker() -> SessionTracker {
        SessionTracker::new(0x702, 0, ChaCha20Rng::from_seed([0; 32]))
    }

    fn with_session(owner: u64) -> Sessions {
        let mut sessions = Sessions::default();
        assert!(
            sessions.open(7, Session { timeout_ms: 100, password: [0; 16], owner: (owner, 1) })
        );
        sessions
    }

    #[test]
    fn deadlines_are_looked_at_once_per_tick_and_a_session_is_overdue_once() {
        let (mut tracker, sessions) = (tracker(), with_session(0x702));
        tracker.tick(0);
        tracker.begin_to_lead(&sessions, 0);
        for now_us in (50_000..=200_000).step_by(50_000) {
            tracker.tick(now_us);
        }
        assert!(tracker.take_overdue(1, &sessions).is_empty(), "no tick of a leader");
        tracker.tick_leader(0);
        assert_eq!(tracker.take_overdue(1, &sessions), [7]);
        tracker.tick_leader(0);
        assert!(tracker.take_overdue(1, &sessions).is_empty(), "it is closing");
    }

    #[test]
    fn a_session_of_another_server_waits_for_the_report_of_that_server() {
        let (mut tracker, sessions) = (tracker(), with_session(0x903));
        tracker.tick(0);
        tracker.begin_to_lead(&sessions, 0);
        for now_us in (50_000..=200_000).step_by(50_000) {
            tracker.tick(now_us);
        }
        tracker.tick_leader(0);
        assert!(tracker.take_overdue(1, &sessions).is_empty(), "its server may have heard it");
        let stamp = Stamp { process: 0x903, number: 1 };
        let report = Reported { from: 3, stamp, base: 0 };
        assert!(tracker.take_report(report, 200_000, 200_000));
        assert!(!tracker.take_report(Reported { base: 9, ..report }, 200_000, 200_000));
        tracker.tick(250_000);
        tracker.tick_leader(0);
        assert_eq!(tracker.take_overdue(1, &sessions), [7]);
    }

    #[test]
    fn a_local_session_carries_its_server_and_ends_by_itself() {
        let mut tracker = tracker();
        tracker.tick(0);
        let (session, _) = tracker.open_local(100);
        assert_eq!((session >> 56, session & LOCAL_SESSION), (2, LOCAL_SESSION));
        assert_eq!(tracker.local_count(), 1);
        for now_us in (50_000..=200_000).step_by(50_000) {
            tracker.tick(now_us);
        }
        assert_eq!(tracker.overdue_local(), [session]);
        assert_eq!(tracker.local_count(), 0);
    }
}
