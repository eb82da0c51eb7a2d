//! Old copies of disks: a server's data directory is put back to what it was a while ago.
//!
//! *Owns* the copies, when one is put back, and what is expected then. *Invariants*: a copy is put back only
//! where the product promises to recognise it: another server runs, and is reached, that was seen to be given
//! a promise which the copy does not hold; until the server has refused, nothing else goes wrong with those
//! servers. Once it has, it must refuse at the next start as well, whichever servers are up then, and the operator
//! empties it. No other server may ever refuse. *Never* looks at what servers remember: what was promised is
//! what was seen to arrive ([`Evidence`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lockkeeper_core::replica::PeerMessage;
use lockkeeper_core::replica::inspect::Status;
use lockkeeper_core::replica::peer::{RaftMessage, RaftMessageType, server_of};
use lockkeeper_storage::{OpenError, Unusable, mark_unusable};

use super::agreement::Held;
use super::conn::Violation;
use super::disk::{Crash, DiskCopy};
use super::rng::Rng;
use super::server::DATA;
use super::sled::SledCopy;
use super::world::{Event, World};

/// How long a server on an old copy may take to refuse: links are made first, and those that answer may be
/// slow to hear.
const RECOGNISED_US_MAX: u64 = 2_000_000;
/// Longest time until the server is started again on the old copy.
const DOWN_US_MAX: u64 = 20_000;
/// How much longer what others say may take to get there: about an election timeout, so that one that does not
/// wait for it may stand. Twice that fits into the second after which a majority is enough: a heartbeat that
/// commits more than the copy holds cuts the link on which the first answer comes.
const SLOW_US: (u64, u64) = (340_000, 400_000);

/// A copy of everything that a server has on its disk.
#[derive(Debug)]
struct OldCopy {
    disk: DiskCopy,
    state: SledCopy,
    raft_id: u64,
    held: Held,
}

/// A server whose disk was put back, and which has not refused yet.
#[derive(Debug)]
struct Returning {
    host: usize,
    held: Held,
    /// Those who remember what the copy lacks.
    witnesses: Vec<Witness>,
    /// When it was put back.
    since_us: u64,
}

/// A process that was given a promise.
#[derive(Debug)]
struct Witness {
    host: usize,
    incarnation: u64,
    seen: Seen,
}

/// All of it in one world.
#[derive(Debug)]
pub(super) struct Rollbacks {
    rng: Rng,
    /// By host.
    copies: BTreeMap<usize, OldCopy>,
    returning: Option<Returning>,
    /// Whose acknowledgements of which term a later leader has cut off.
    cut: BTreeSet<(u64, u64)>,
}

impl Rollbacks {
    pub(super) fn new(rng: Rng) -> Self {
        Self { rng, copies: BTreeMap::new(), returning: None, cut: BTreeSet::new() }
    }

    /// Whether a server is to be recognised: nothing else is to go wrong meanwhile.
    pub(super) fn is_pending(&self) -> bool {
        self.returning.is_some()
    }

    /// What the disk of a server holds that is to be recognised.
    pub(super) fn held_by(&self, host: usize) -> Option<Held> {
        self.returning.as_ref().filter(|of| of.host == host).map(|of| of.held)
    }

    /// A disk is emptied.
    pub(super) fn wiped(&mut self, host: usize) {
        self.copies.remove(&host);
        self.returning.take_if(|of| of.host == host);
    }
}

/// What a server was seen to promise in the newest term: an index that it acknowledged, and for whom it
/// voted; 0 for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    term: u64,
    index: u64,
    vote: u64,
}

impl Seen {
    fn is_lacked_by(self, held: &Held) -> bool {
        let lacks_vote = self.vote != 0 && self.vote != held.vote;
        held.term < self.term || held.term == self.term && (held.last < self.index || lacks_vote)
    }
}

/// What other servers have promised to this process, as far as that can be told from its messages, and from
/// what it shows of itself at the end of a turn: no more than it must remember.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    by_id: BTreeMap<u64, Seen>,
    /// Came in this turn: from whom, what, its term, an index, and to whom.
    heard: Vec<(u64, RaftMessageType, u64, u64, u64)>,
    /// In which term it has asked for votes, unless it knows by now who won.
    stands_in: u64,
}

impl Evidence {
    /// Whether a server was seen to promise what `held` lacks.
    pub fn lacks(&self, id: u64, held: &Held) -> bool {
        self.by_id.get(&id).is_some_and(|seen| seen.is_lacked_by(held))
    }

    /// A message is given to the replica.
    pub fn hears(&mut self, from: u64, message: &PeerMessage) {
        let PeerMessage::Raft(message) = message else { return };
        let kind = message.get_msg_type();
        let index = match kind {
            RaftMessageType::MsgAppendResponse => message.index,
            RaftMessageType::MsgAppend | RaftMessageType::MsgHeartbeat => message.reject_hint,
            _ => 0,
        };
        if !message.reject {
            self.heard.push((from, kind, message.term, index, message.to));
        }
    }

    /// The replica sends a message.
    pub fn says(&mut self, message: &RaftMessage) {
        if message.get_msg_type() == RaftMessageType::MsgRequestVote {
            self.stands_in = message.term;
        }
    }

    /// The turn is over, after which the server `own` is like this. Whose votes it has counted.
    pub fn settle(&mut self, own: u8, now: &Status) -> Vec<u64> {
        let leads = now.leader == Some(own);
        let mut voters = Vec::new();
        for (from, kind, term, index, to) in std::mem::take(&mut self.heard) {
            if term != now.term {
                continue;
            }
            let (index, vote) = match kind {
                RaftMessageType::MsgAppendResponse if leads => (index, 0),
                RaftMessageType::MsgRequestVoteResponse if leads || self.stands_in == term => {
                    (0, to)
                }
                RaftMessageType::MsgRequestVote => (0, from),
                RaftMessageType::MsgAppend | RaftMessageType::MsgHeartbeat
                    if now.leader == Some(server_of(from)) =>
                {
                    (index.min(now.persisted), from)
                }
                _ => continue,
            };
            if kind == RaftMessageType::MsgRequestVoteResponse {
                voters.push(from);
            }
            let seen = self.by_id.entry(from).or_default();
            if seen.term < term {
                *seen = Seen { term, ..Seen::default() };
            }
            if seen.term == term {
                seen.index = seen.index.max(index);
                seen.vote = if vote == 0 { seen.vote } else { vote };
            }
        }
        if now.leader.is_some() {
            self.stands_in = 0;
        }
        voters
    }
}

impl World {
    /// A time to make a copy of a disk, or to put one back.
    pub(super) fn back_up(&mut self) {
        if !self.faults_are_on {
            return;
        }
        let every_us = self.config.old_copies_every_us.unwrap_or(1_000_000);
        let rng = &mut self.rollbacks.rng;
        let in_us = 1 + rng.below(2 * every_us);
        let (host, puts_back) = (rng.index(self.config.servers), rng.chance(600));
        self.at(in_us, Event::Backup);
        if puts_back && self.rollbacks.copies.contains_key(&host) {
            return self.put_back(host);
        }
        if self.rollbacks.is_pending() {
            return;
        }
        let Some(server) = &self.hosts[host].server else { return };
        let raft_id = server.identity.raft_id;
        let held = self.checker.agreement.held(raft_id);
        let disk = self.hosts[host].fs.disk().copy();
        let state = self.hosts[host].state.sled().copy();
        self.rollbacks.copies.insert(host, OldCopy { disk, state, raft_id, held });
    }

    /// The time that a server has to refuse which was put back then is over.
    pub(super) fn must_be_recognised(&self, put_back_us: u64) -> Result<(), Violation> {
        let returning = self.rollbacks.returning.as_ref();
        let overdue = returning.filter(|returning| returning.since_us == put_back_us);
        overdue.map_or(Ok(()), |Returning { host, .. }| {
            Err(format!("server {} runs on an old copy of its data", host + 1))
        })
    }

    /// A server has counted these votes. A moment later each of them may be followed by acknowledgements,
    /// which prove the same.
    pub(super) fn counted_votes(&mut self, voters: &[u64]) {
        for voter in voters {
            let host = usize::from(server_of(*voter)) - 1;
            let copies = &self.rollbacks.copies;
            if copies.contains_key(&host) && self.rollbacks.rng.chance(300) {
                self.at(1, Event::OldCopy(host));
            }
        }
    }

    /// Kills a server and puts the old copy of its disk in the place of what it has, if it must be
    /// recognised.
    pub(super) fn put_back(&mut self, host: usize) {
        let is_missing = self.missing.is_some_and(|server| !self.is_back(server));
        let is_possible = self.faults_are_on
            && !self.rollbacks.is_pending()
            && !is_missing
            && !self.is_spared()
            && self.hosts.iter().all(|host| host.hangs_until_us <= self.now_us)
            && !self.config.observers.contains(&host)
            && self.hosts[host].server.is_some();
        let Some(copy) = self.rollbacks.copies.get(&host).filter(|_| is_possible) else { return };
        let (raft_id, held) = (copy.raft_id, copy.held);
        let is_same_life = self.checker.agreement.id_of(host) == raft_id;
        let witnesses = self.witnesses(host, raft_id, &held);
        if !is_same_life || witnesses.is_empty() {
            return;
        }
        let Some(copy) = self.rollbacks.copies.remove(&host) else { return };
        let crash = match self.rollbacks.rng.chance(500) {
            true => Crash::Kill,
            false => Crash::PowerCut,
        };
        self.trace.note(
            self.now_us,
            format_args!("{} is put back from {crash:?} to an old copy: {held:?}", host + 1),
        );
        self.disturbed();
        self.missing = None;
        let is_of_vote = witnesses.iter().all(|witness| witness.seen.index == 0);
        self.coverage.rollbacks += 1;
        self.coverage.rollbacks_of_votes += u64::from(is_of_vote);
        self.turn_off(host, crash);
        let machine = &mut self.hosts[host];
        machine.fs.disk().put_copy(copy.disk);
        machine.state.sled().put_copy(copy.state);
        machine.flips.clear();
        machine.copies.clear();
        if self.rollbacks.rng.chance(500) {
            let slow_us = self.rollbacks.rng.range(SLOW_US.0, SLOW_US.1);
            self.slow_towards(host, slow_us);
        }
        let since_us = self.now_us;
        self.rollbacks.returning = Some(Returning { host, held, witnesses, since_us });
        self.at(RECOGNISED_US_MAX, Event::OldCopyKnown(since_us));
        let in_us = 1 + self.rollbacks.rng.below(DOWN_US_MAX);
        self.at(in_us, Event::Restart(host));
    }

    /// A server is off, whatever its disk was to do next.
    fn turn_off(&mut self, host: usize, crash: Crash) {
        self.hosts[host].fs.disk().crash(crash);
        self.cut_links(host, crash);
        self.checker.crashed(host);
        let mut disk = self.hosts[host].fs.disk();
        disk.restart();
        disk.disarm();
    }

    /// The voters that run, are reached by this server, and were given a promise that `held` lacks.
    fn witnesses(&self, host: usize, raft_id: u64, held: &Held) -> Vec<Witness> {
        let witness = |other: usize| {
            let machine = &self.hosts[other];
            let server = machine.server.as_ref().filter(|_| machine.paused_until_us == 0)?;
            let seen = *server.evidence.by_id.get(&raft_id)?;
            let is_reached = !self.is_blocked(host, other) && !self.is_blocked(other, host);
            let votes = other != host && !self.config.observers.contains(&other);
            let counts = votes && is_reached && seen.is_lacked_by(held);
            counts.then_some(Witness { host: other, incarnation: machine.incarnation, seen })
        };
        (0..self.config.servers).filter_map(witness).collect()
    }

    /// The disk of a server holds more. If a later leader has cut off an entry that it had acknowledged, as
    /// others remember, it is a good time to start it again: it lacks nothing that it must have. Whether it
    /// is killed.
    pub(super) fn is_killed_behind_a_cut(&mut self, host: usize) -> bool {
        let is_possible = self.config.old_copies_every_us.is_some()
            && self.faults_are_on
            && !self.is_spared()
            && !self.rollbacks.is_pending()
            && self.hosts[host].fs.disk().down().is_none();
        let server = self.hosts[host].server.as_ref().filter(|_| is_possible);
        let Some(id) = server.map(|server| server.identity.raft_id) else { return false };
        let agreement = &self.checker.agreement;
        let last = agreement.held(id).last;
        let is_cut = |seen: &&Seen| {
            let now = agreement.term_at(id, seen.index);
            now.map_or(last < seen.index, |term| term > seen.term)
        };
        let servers = self.hosts.iter().filter_map(|host| host.server.as_ref());
        let mut seen = servers.filter_map(|server| server.evidence.by_id.get(&id));
        let Some(seen) = seen.find(is_cut) else { return false };
        if !self.rollbacks.cut.insert((id, seen.term)) {
            return false;
        }
        self.coverage.acknowledged_entries_cut += 1;
        self.hosts[host].fs.disk().crash(Crash::Kill);
        self.die(host, Crash::Kill);
        true
    }

    /// A server refuses to take part.
    pub(super) fn refused(&mut self, host: usize, words: &str) -> Result<(), Violation> {
        if self.rollbacks.held_by(host).is_none() {
            return Err(format!("server {} refuses whole data: {words}", host + 1));
        }
        self.trace.note(self.now_us, format_args!("{} refuses: {words}", host + 1));
        self.coverage.rollbacks_recognised += 1;
        self.slow_down(false);
        // As the server does.
        let marked =
            mark_unusable(&self.hosts[host].fs, Path::new(DATA), Unusable::RolledBack, words);
        marked.map_err(|error| format!("an old copy cannot be marked: {error}"))?;
        let crash = self.draw_crash(host);
        self.turn_off(host, crash);
        let new = self.decide(host)?.ok_or("a directory with data is taken for an empty one")?;
        match self.open(host, new) {
            Err(OpenError::RolledBack { words: again, .. }) if again == words => {}
            Err(error) => {
                return Err(format!("an old copy is refused for another reason: {error}"));
            }
            Ok(_) => {
                let name = host + 1;
                return Err(format!("server {name} opens the old copy that it has refused before"));
            }
        }
        self.wipe(host);
        let in_us = 1 + self.rollbacks.rng.below(self.config.down_us_max);
        self.at(in_us, Event::Restart(host));
        Ok(())
    }

    /// A server has died. If no other one remembers what a server lacks that was put back, that one cannot
    /// know: the operator empties it.
    pub(super) fn call_off(&mut self, died: usize) {
        let is_there = |witness: &Witness| {
            let machine = &self.hosts[witness.host];
            machine.server.is_some() && machine.incarnation == witness.incarnation
        };
        let is_off = |of: &mut Returning| of.host == died || !of.witnesses.iter().any(is_there);
        if let Some(Returning { host, .. }) = self.rollbacks.returning.take_if(is_off) {
            self.trace.note(self.now_us, format_args!("{} need not be recognised", host + 1));
            self.slow_down(false);
            self.wipe(host);
        }
    }
}
