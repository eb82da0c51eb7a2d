//! Disks that hang: a log thread whose syncs return late, by seconds.
//!
//! *Owns* when that happens and to whom, and what must follow: a leader that lacks what others have
//! committed must not lead for longer than the bound and an election, and then it does not stand for
//! election while others lead, unless one asks it for the second time. *Invariant*: nothing is lost by it: a
//! sync that hung has its effect when it returns. Most hangs have the world for themselves, so that what must
//! follow can be told.

use std::cmp::Ordering;

use lockkeeper_core::replica::{Replica, Status};
use raft::eraftpb::{Message, MessageType};

use super::conn::Violation;
use super::world::{Event, World};

/// How long a handover may take beyond the bound, where nothing else is wrong: an attempt for each of the
/// others, and an election.
const HANDOVER_US_MAX: u64 = 3_000_000;
/// A server that knew of a leader less than this ago has no reason to stand in spite of its disk.
const LEADERLESS_US: u64 = 900_000;
/// Bounds for which a disk must have answered quickly before its server stands again.
const PROBATION_BOUNDS: u64 = 10;

impl World {
    /// A time for disks to hang.
    pub(super) fn hang(&mut self) {
        let Some(every_us) = self.config.hang_every_us.filter(|_| self.faults_are_on) else {
            return;
        };
        let (servers, bound_us) = (self.config.servers, self.config.disk_stall_ms * 1000);
        let longest_us = self.config.hang_us_max();
        let rng = &mut self.fate;
        let next_us = 1 + rng.below(2 * every_us);
        let lasts_us = match rng.chance(250) {
            true => longest_us,
            false => rng.range(bound_us / 2, 5 * bound_us),
        };
        let one = match rng.chance(700) {
            true => self.checker.agreement.newest_leader().unwrap_or(0),
            false => rng.index(servers),
        };
        let victims: Vec<usize> = match rng.below(8) {
            0 => (0..servers).collect(),
            1 => (0..servers / 2 + 1).map(|more| (one + more) % servers).collect(),
            _ => vec![one],
        };
        let is_alone = rng.chance(700);
        self.at(next_us + lasts_us, Event::Hang);
        if self.rollbacks.is_pending() {
            return;
        }
        self.trace.note(self.now_us, format_args!("disks of {victims:?} hang for {lasts_us}"));
        self.coverage.disk_hangs += 1;
        if is_alone {
            self.spared_until_us = self.now_us + lasts_us;
        }
        for host in victims {
            self.hosts[host].hangs_until_us = self.now_us + lasts_us;
        }
    }

    /// Whether nothing else is to go wrong now.
    pub(super) fn is_spared(&self) -> bool {
        self.now_us < self.spared_until_us
    }

    /// Something else went wrong, or was put right.
    pub(super) fn disturbed(&mut self) {
        self.calm_since_us = self.now_us;
    }

    /// A leader whose disk lacks what others have committed has had its time.
    pub(super) fn judge_hung_leader(&mut self, host: usize) -> Result<(), Violation> {
        if self.hosts[host].hangs_until_us <= self.now_us {
            self.hosts[host].behind = None;
            return Ok(());
        }
        if self.missing.is_some_and(|emptied| !self.is_back(emptied)) {
            // The vote of the life that it lost counts still: without the leader's own, the others may be no
            // majority, and then it stays.
            self.disturbed();
        }
        let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != host);
        let running = others.filter_map(|(_, other)| other.server.as_ref());
        let committed = running.map(|server| server.replica.status().applied).max().unwrap_or(0);
        let Some(server) = &self.hosts[host].server else { return Ok(()) };
        let status = server.replica.status();
        let is_behind = status.leading_ms.is_some() && status.persisted < committed;
        let known = self.hosts[host].behind.filter(|(index, term, _)| {
            is_behind && *index > status.persisted && *term == status.term
        });
        let behind = known.or(is_behind.then_some((committed, status.term, self.now_us)));
        self.hosts[host].behind = behind;
        let Some((index, term, since_us)) = behind else { return Ok(()) };
        let hanging = self.hosts.iter().filter(|host| host.hangs_until_us > self.now_us).count();
        let is_whole = hanging <= 1
            && !self.is_partitioned()
            && self.hosts.iter().all(|host| host.server.is_some() && host.paused_until_us == 0);
        let bound_us = self.config.disk_stall_ms * 1000;
        let since_us = since_us.max(self.calm_since_us);
        if !is_whole || self.now_us < since_us + bound_us {
            return Ok(());
        }
        self.coverage.hung_leaders += 1;
        if self.now_us > since_us + bound_us * 21 / 20 + HANDOVER_US_MAX {
            let name = host + 1;
            return Err(format!(
                "{name} leads on in term {term}, while its disk has lacked entry {index} for \
                 {} us",
                self.now_us - since_us
            ));
        }
        Ok(())
    }
}

/// Whether a server may stand for election, as far as is known from outside. Times are of its own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probation {
    handovers: u64,
    until_us: u64,
    knew_leader_us: u64,
    /// The last term in which a leader asked it to lead, and how often.
    asked: (u64, u64),
}

impl Probation {
    /// What the server shows of itself after a turn. True: it has handed over just now.
    pub fn look(&mut self, status: &Status, stall_ms: u64, now_us: u64) -> bool {
        let has_yielded = status.disk_handovers > self.handovers;
        self.handovers = status.disk_handovers;
        let is_slow = status.disk_waits_ms * 2 >= stall_ms;
        if has_yielded || now_us < self.until_us && is_slow {
            self.until_us = now_us + PROBATION_BOUNDS * stall_ms * 1000;
        }
        if status.leader.is_some() {
            self.knew_leader_us = now_us;
        }
        has_yielded
    }

    /// A leader asks it to lead, in this term.
    pub fn asked(&mut self, term: u64) {
        // One of an earlier term is late, and asks no more.
        match term.cmp(&self.asked.0) {
            Ordering::Less => {}
            Ordering::Equal => self.asked.1 += 1,
            Ordering::Greater => self.asked = (term, 1),
        }
    }

    /// It says this to another server.
    pub fn judge(
        &self,
        message: &Message,
        replica: &Replica,
        now_us: u64,
    ) -> Result<(), Violation> {
        let stands = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestPreVote | MessageType::MsgRequestVote
        );
        if !stands || now_us >= self.until_us {
            return Ok(());
        }
        // Ticks come at other moments than turns.
        let is_barred = now_us + 200_000 < self.until_us;
        // Asked again, it knows that the others do not take over.
        let is_asked = self.asked.0 + 1 == message.term && self.asked.1 > 1;
        // What it said when it stood long ago may have waited for its disk.
        let status = replica.status();
        let is_late = message.term < status.term || status.leader.is_some();
        let knew_leader = now_us < self.knew_leader_us + LEADERLESS_US;
        if is_barred && knew_leader && !is_late && !is_asked {
            return Err(format!(
                "{:#x} stands for election in term {} ({:?}), {} us before its disk has proved itself and {} us after \
                 it knew a leader",
                message.from,
                message.term,
                message.get_msg_type(),
                self.until_us - now_us,
                now_us - self.knew_leader_us,
            ));
        }
        Ok(())
    }
}
