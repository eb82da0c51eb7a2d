//! Session liveness round: which sessions the other servers have heard from, as far as the leader knows.
//!
//! *Owns* for each process that clients are connected to, up to when it has told this leader whom it
//! heard from, and until when it may go on answering if nothing reaches it any more. *Invariants*: a
//! session does not end while its process may have heard from it in time, unknown to the leader; an answer
//! counts only if it goes on from the last one that counted, or from none, so that together they name all
//! that there is to be told; a process that cannot have answered any more is given up once, and its sessions
//! get their timeout once more.
//! *Never* compares the clocks of two servers: each gets its own readings back, with
//! `PeerMessage::Ping` and `PeerMessage::Touch`.
//!
//! Takes the place of the pings of `LearnerHandler`.

use std::collections::{BTreeMap, BTreeSet};

use super::touches::{DEPOSED_US_MAX, UNCONFIRMED_US_MAX};
use crate::replica::messages::{Stamp, server_of};
use crate::replica::timing::TICK_MS;

const TICK_US: u64 = TICK_MS * 1000;
/// A process that has told nothing for longer is silent.
const SILENT_US: u64 = 4 * TICK_US;
/// How long a process answers its clients at most after the last that was heard of it: until it is not
/// sure any more of being heard, and then until it sends them away. Clocks differ by a tenth at most.
const ANSWERS_US_MAX: u64 = UNCONFIRMED_US_MAX * 11 / 10;

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
pub(super) struct Liveness {
    processes: BTreeMap<u64, Process>,
    /// The last report of each server, by its raft id: it is told that it arrived.
    stamps: BTreeMap<u64, Stamp>,
    /// When the last ping was sent that each of them has answered, by the replica's time.
    answered: BTreeMap<u64, u64>,
}

canonical! {
    // For `expiry`, it is this late. Of a server without a link the process has ended, where dumps are compared, and
    // its last report is one that no other goes on from.
    Liveness(now_us: u64, is_linked: impl Fn(u64) -> bool):;
    |out, processes, stamps, answered| {
        let left = |at_us: u64| i128::from(at_us) - i128::from(now_us);
        for (id, Process { told_us, answers_until_us, is_given_up }) in processes {
            // That it answers no more counts once.
            let answers_until = left(*answers_until_us).max(0);
            let told = (!is_given_up).then(|| left(*told_us));
            out.value(&(id, told, answers_until, is_given_up));
        }
        for (peer, Stamp { process, number }) in stamps {
            out.value(&(peer, process));
            out.time_up_to(*number, if is_linked(*peer) { u64::MAX } else { UNCONFIRMED_US_MAX });
        }
        for (peer, at_us) in answered {
            out.value(peer);
            out.time_up_to(*at_us, UNCONFIRMED_US_MAX);
        }
    }
}

impl Liveness {
    /// A new leader knows nothing but who may have clients.
    pub(super) fn begin(&mut self, processes: BTreeSet<u64>, now_us: u64) {
        self.stamps.clear();
        self.answered.clear();
        let answers_until_us = now_us + ANSWERS_US_MAX + DEPOSED_US_MAX;
        let process = Process { told_us: now_us, answers_until_us, is_given_up: false };
        self.processes = processes.into_iter().map(|id| (id, process)).collect();
    }

    /// A client was given to this process: it knew its leader just before.
    pub(super) fn attached(&mut self, process: u64, now_us: u64) {
        let fresh = Process { told_us: now_us, answers_until_us: 0, is_given_up: false };
        let known = self.processes.entry(process).or_insert(fresh);
        known.answers_until_us = known.answers_until_us.max(now_us + ANSWERS_US_MAX);
        known.is_given_up = false;
    }

    /// A process has answered the ping of this time.
    pub(super) fn told(&mut self, process: u64, ping_us: u64, now_us: u64) {
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
    pub(super) fn may_have_heard(&self, process: u64, before_us: u64) -> bool {
        self.processes
            .get(&process)
            .is_some_and(|known| !known.is_given_up && known.told_us < before_us)
    }

    /// Those who cannot have answered anybody since, for the first time.
    pub(super) fn give_up(&mut self, now_us: u64) -> BTreeSet<u64> {
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

    /// Forgets those who were given up and own no session any more.
    pub(super) fn forget_given_up(&mut self, owners: &BTreeSet<u64>) {
        self.processes.retain(|id, process| !process.is_given_up || owners.contains(id));
    }

    /// The last report of a server.
    pub(super) fn stamp(&self, peer: u64) -> Option<Stamp> {
        self.stamps.get(&peer).copied()
    }

    /// A server has answered the ping of this time with this report.
    pub(super) fn take(&mut self, peer: u64, stamp: Stamp, asked_us: u64) {
        self.stamps.insert(peer, stamp);
        let known = self.answered.entry(peer).or_default();
        *known = asked_us.max(*known);
    }

    /// When the last ping was sent that a server has answered.
    pub(super) fn answered_us(&self, peer: u64) -> u64 {
        self.answered.get(&peer).copied().unwrap_or_default()
    }
}
