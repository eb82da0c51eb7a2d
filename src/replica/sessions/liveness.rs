//! Session liveness round: which sessions the other servers have heard from, as far as the leader knows.
//!
//! *Owns* for each process that clients are connected to, up to when it has told this leader whom it
//! heard from, and until when it may go on answering if nothing reaches it any more. *Invariants*: a
//! session does not end while its process may have heard from it in time, unknown to the leader; an answer
//! counts only if it goes on from the last one that counted, or from none, so that together they name all
//! that there is to be told; a process that cannot have answered any more is given up once, and its sessions
//! get their timeout once more.
//! *Never* compares the clocks of two servers: each gets its own readings back, with
//! [`PeerMessage::Ping`] and [`PeerMessage::Touch`].
//!
//! Takes the place of the pings of `LearnerHandler`.

use std::collections::{BTreeMap, BTreeSet};

use super::touches::CONFIRMED_US_MAX;
use crate::replica::Replica;
use crate::replica::bounds::TICK_MS;
use crate::replica::consensus::LEADERLESS_MS_MAX;
use crate::replica::messages::{PeerMessage, Stamp, server_of};

const TICK_US: u64 = TICK_MS * 1000;
/// A process that has told nothing for longer is silent.
const SILENT_US: u64 = 4 * TICK_US;
/// How long a process answers its clients at most after the last that was heard of it: until it is not
/// sure any more of being heard, and then until it sends them away. Clocks differ by a tenth at most.
const ANSWERS_US_MAX: u64 = (CONFIRMED_US_MAX + LEADERLESS_MS_MAX * 1000) * 11 / 10;
/// A leader that no majority has answered for longer confirms nothing: so long after another one was
/// elected, a deposed one may have.
pub(in crate::replica) const DEPOSED_US_MAX: u64 = 15 * TICK_US;

/// A process of a server, by the number that is in the origins of its clients' transactions.
#[derive(Clone, Copy, Debug)]
struct Process {
    /// What it has heard from its clients until then is known.
    told_us: u64,
    /// It sends its clients away before that, if nothing more is heard of it.
    answers_until_us: u64,
    /// That time is over.
    is_given_up: bool,
}

/// What this leader knows. Times are those of `Expiry`.
#[derive(Debug, Default)]
pub(in crate::replica) struct Liveness {
    processes: BTreeMap<u64, Process>,
    /// The last report of each server, by its raft id: it is told that it arrived.
    stamps: BTreeMap<u64, Stamp>,
    /// When the last ping was sent that each of them has answered, by the replica's time.
    answered: BTreeMap<u64, u64>,
}

impl Liveness {
    /// A new leader knows nothing but who may have clients.
    fn begin(&mut self, processes: BTreeSet<u64>, now_us: u64) {
        self.stamps.clear();
        self.answered.clear();
        let answers_until_us = now_us + ANSWERS_US_MAX + DEPOSED_US_MAX;
        let process = Process { told_us: now_us, answers_until_us, is_given_up: false };
        self.processes = processes.into_iter().map(|id| (id, process)).collect();
    }

    /// A client was given to this process: it knew its leader just before.
    fn attached(&mut self, process: u64, now_us: u64) {
        let fresh = Process { told_us: now_us, answers_until_us: 0, is_given_up: false };
        let known = self.processes.entry(process).or_insert(fresh);
        known.answers_until_us = known.answers_until_us.max(now_us + ANSWERS_US_MAX);
        known.is_given_up = false;
    }

    /// A process has answered the ping of this time.
    fn told(&mut self, process: u64, ping_us: u64, now_us: u64) {
        let told_us = ping_us.min(now_us);
        let known = self.processes.entry(process).or_insert(Process {
            told_us,
            answers_until_us: 0,
            is_given_up: false,
        });
        known.told_us = known.told_us.max(told_us);
        known.answers_until_us = known.answers_until_us.max(now_us + ANSWERS_US_MAX);
        known.is_given_up = false;
        // There is one at a time: those before it have ended.
        for (id, other) in &mut self.processes {
            if *id != process && server_of(*id) == server_of(process) {
                other.answers_until_us = other.answers_until_us.min(now_us);
            }
        }
    }

    /// Whether a client of this process may have been heard of before that, unknown to this leader.
    pub(in crate::replica) fn may_have_heard(&self, process: u64, before_us: u64) -> bool {
        self.processes
            .get(&process)
            .is_some_and(|known| !known.is_given_up && known.told_us < before_us)
    }

    /// Those who cannot have answered anybody since, for the first time.
    fn give_up(&mut self, now_us: u64) -> BTreeSet<u64> {
        let over = self.processes.iter_mut().filter(|(_, process)| {
            !process.is_given_up
                && now_us >= process.answers_until_us
                && now_us > process.told_us + SILENT_US
        });
        over.map(|(id, process)| {
            process.is_given_up = true;
            *id
        })
        .collect()
    }
}

impl Replica {
    /// Asks the others whom they have heard from.
    pub(in crate::replica) fn ping_others(&mut self) {
        let Some(term) = self.leading else { return };
        let (own, at_us, steady_ms) = (self.consensus.id(), self.now_us, self.steady_ms());
        let is_sure = self.touches.confirmed_us() + DEPOSED_US_MAX > at_us;
        for peer in self.consensus.peers().iter().map(|peer| peer.id).filter(|id| *id != own) {
            let heard = self.liveness.stamps.get(&peer).copied().filter(|_| is_sure);
            self.output.send(peer, PeerMessage::Ping { term, at_us, steady_ms, heard });
        }
    }

    /// Another server has said whom it heard from. False: nobody asked it, or what it said before is missing.
    pub(in crate::replica) fn touched(
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
        for session in sessions {
            // Who went elsewhere is heard of from there.
            let known = self.machine.sessions().find(*session);
            if known.is_some_and(|known| known.owner.0 == stamp.process) {
                self.expiry.touch(*session);
            }
        }
        if self.leading == Some(term) {
            let before = Stamp { number: base, ..stamp };
            if base != 0 && self.liveness.stamps.get(&from) != Some(&before) {
                return false;
            }
            // Of the time since then, not all counts.
            let (now_us, age_us) = (self.expiry.now_us(), self.now_us.saturating_sub(at_us));
            self.liveness.told(stamp.process, now_us.saturating_sub(age_us), now_us);
            self.liveness.stamps.insert(from, stamp);
            let asked_us = at_us.min(self.now_us);
            self.clocks.read(from, wall_ms, asked_us, self.now_us);
            self.answered_by(from, asked_us);
        }
        true
    }

    /// A server has answered the ping of this time: with it, perhaps a majority.
    fn answered_by(&mut self, peer: u64, at_us: u64) {
        let answered = &mut self.liveness.answered;
        let known = answered.entry(peer).or_default();
        *known = at_us.max(*known);
        let (own, now_us) = (self.consensus.id(), self.now_us);
        let heard = |id: u64| match id == own {
            true => now_us,
            false => answered.get(&id).copied().unwrap_or_default(),
        };
        self.touches.confirm(self.consensus.majority_heard(heard));
    }

    /// This server begins to lead: the others may go on for a while without knowing.
    pub(in crate::replica) fn begin_liveness(&mut self) {
        // An earlier process of this server has ended.
        let own = self.setup.server_id;
        let owners = self.machine.sessions().iter().map(|(_, session)| session.owner.0);
        let others = owners.filter(|process| server_of(*process) != own).collect();
        self.liveness.begin(others, self.expiry.now_us());
    }

    /// The leader has given a session to a process.
    pub(in crate::replica) fn attached_to(&mut self, process: u64) {
        if server_of(process) != self.setup.server_id {
            self.liveness.attached(process, self.expiry.now_us());
        }
    }

    /// Gives the sessions of those who are gone, or have sent their clients away by now, their timeout
    /// from now on: the last answer may have been just given. Who was spared and has not been heard of
    /// since is not spared again.
    pub(in crate::replica) fn give_up_silent(&mut self) {
        let gone = self.liveness.give_up(self.expiry.now_us());
        if gone.is_empty() {
            return;
        }
        let mut owners = BTreeSet::new();
        for (id, session) in self.machine.sessions().iter() {
            owners.insert(session.owner.0);
            if gone.contains(&session.owner.0) {
                self.expiry.spare(id);
            }
        }
        self.liveness.processes.retain(|id, process| !process.is_given_up || owners.contains(id));
    }
}
