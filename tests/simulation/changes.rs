//! Changes of members among faults: one after another, and back, while servers die, lose their power, their data, or
//! the newest part of it.
//!
//! *Owns* what an operator asks for, and what goes wrong meanwhile. *Invariants*: a disk is emptied, or put back to an
//! older copy, only where a majority of the voters before and after the change is left without it; of one that is put
//! back some other server remembers a promise that the copy lacks, and is linked with it. *Rules*:
//!
//! * a server that leads without a vote, because a change has taken that, leads no longer than a second;
//! * a server that is put back to an older copy refuses it within two seconds;
//! * a server votes only once a majority of both sets has answered what it remembers, by what it knows of the voters or
//!   has in its log;
//! * once all run again, or those alone that the last change left where that was answered, the voters are the
//!   participants that the members name, a write is taken, and all that were answered are there.

use std::collections::BTreeSet;

use lockkeeper_core::proto::{ErrorCode, Request, Text};
use lockkeeper_core::replica::peer::raft_id;
use lockkeeper_core::replica::{Machine, Replica};

use super::agreement::Held;
use super::conn::Violation;
use super::removals::disk::Disk;
use super::removals::takes_a_write;
use super::removals::world::{World, line};
use super::rng::Rng;

/// Longest wait for an answer to the operator, microseconds: an answer may take 5 s, and elections more.
const ANSWER_US_MAX: u64 = 20_000_000;
/// Latest fault after the operator has asked, microseconds.
const FAULT_US_MAX: u64 = 120_000;
/// Longest time for which a server is down, microseconds.
const DOWN_US_MAX: u64 = 3_000_000;
/// Time within which a server refuses an older copy of its disk, microseconds.
const RECOGNISED_US_MAX: u64 = 2_000_000;
/// Connections of operators, and of clients that write.
const OPERATORS: u64 = 10;
const WRITERS: u64 = 1000;
/// The operator's request.
const CHANGE: i32 = -100;

/// A seed that went well, and what it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub made: u64,
    pub refused: u64,
    /// Joint changes in the middle of which something went wrong.
    pub disturbed: u64,
    pub put_back: u64,
    pub emptied: u64,
    pub written: u64,
    pub simulated_ms: u64,
}

impl Played {
    /// Adds what another seed has seen.
    pub fn add(&mut self, other: &Self) {
        self.made += other.made;
        self.refused += other.refused;
        self.disturbed += other.disturbed;
        self.put_back += other.put_back;
        self.emptied += other.emptied;
        self.written += other.written;
        self.simulated_ms += other.simulated_ms;
    }
}

/// For how long a seed that went well was simulated.
pub fn simulated_ms(played: &Result<Played, Violation>) -> Option<u64> {
    played.as_ref().ok().map(|played| played.simulated_ms)
}

/// Plays a seed.
///
/// # Errors
/// The rule that was broken.
pub fn run(seed: u64) -> Result<Played, Violation> {
    let mut rng = Rng::new(seed, 41);
    if rng.chance(200) {
        return draw_one(&mut rng);
    }
    let count: u8 = *rng.pick(&[3, 4, 5, 6, 6]);
    let is_swap = count == 6 && rng.chance(500);
    let first = if is_swap { vec![1, 2, 3] } else { draw(&mut rng, count) };
    let (has_checkpoints, leaves_out) = (rng.chance(600), rng.chance(400));
    let world = World::new(rng, count, &first, has_checkpoints);
    let mut play = Play {
        world,
        is_swap,
        leaves_out,
        votes: first,
        copy: None,
        has_lost: false,
        conns: 0,
        played: Played::default(),
    };
    play.run()?;
    play.played.written = play.world.written.len() as u64;
    play.played.simulated_ms = play.world.now_us / 1000;
    Ok(play.played)
}

/// One change of an ensemble of five in which some are down.
fn draw_one(rng: &mut Rng) -> Result<Played, Violation> {
    let (old, new) = (draw(rng, 5), draw(rng, 5));
    let down: Vec<u8> = (1..=5).filter(|_| rng.chance(350)).collect();
    let is_up = |id: &&u8| !down.contains(id);
    if old.iter().filter(is_up).count() <= old.len() / 2 {
        return Ok(Played::default());
    }
    let is_made =
        one(&old, &new, &down).map_err(|v| format!("{old:?} to {new:?}, {down:?} down: {v}"))?;
    Ok(Played { made: u64::from(is_made), refused: u64::from(!is_made), ..Played::default() })
}

/// At least two of so many servers.
fn draw(rng: &mut Rng, count: u8) -> Vec<u8> {
    let mut ids: Vec<u8> = (1..=count).collect();
    let stay = 2 + rng.index(usize::from(count) - 1);
    while ids.len() > stay {
        ids.swap_remove(rng.index(ids.len()));
    }
    ids
}

struct Play {
    world: World,
    /// Servers 1 to 3 and 4 to 6 take turns.
    is_swap: bool,
    /// Servers without a vote are no members, instead of observers.
    leaves_out: bool,
    /// Voters by the last change that was answered.
    votes: Vec<u8>,
    /// A server, its raft id, and its disk as it was a while ago.
    copy: Option<(u8, u64, Disk)>,
    /// A disk was emptied or put back.
    has_lost: bool,
    conns: u64,
    played: Played,
}

/// Request for these voters. The others are observers, which have what they would need to vote, or no members.
fn change_to(world: &World, votes: &[u8], leaves_out: bool) -> Request {
    let members = world.ids().filter(|id| votes.contains(id) || !leaves_out);
    let lines = members.map(|id| format!("server.{id}={}", line(id, votes.contains(&id))));
    let members = Some(Text::from(lines.collect::<Vec<_>>().join("\n")));
    Request::Reconfig { joining: None, leaving: None, members, version: -1 }
}

impl Play {
    fn run(&mut self) -> Result<(), Violation> {
        self.world.until("a leader", |world| world.serving().is_some())?;
        let rounds = 1 + self.world.rng.below(4);
        let mut is_answered = true;
        for round in 1..=rounds {
            self.write()?;
            let pause_us = self.world.rng.below(400_000);
            self.world.pass(pause_us)?;
            self.back_up();
            is_answered = self.change()?;
            if round < rounds || self.world.rng.chance(500) {
                self.restart()?;
            }
        }
        // Who left may stop for good where that was answered.
        let leave_for_good = is_answered && self.world.rng.chance(700);
        self.recover(leave_for_good)
    }

    /// A client writes from now on.
    fn write(&mut self) -> Result<(), Violation> {
        self.world.until("a leader", |world| world.serving().is_some())?;
        let running: Vec<u8> = self
            .world
            .ids()
            .filter(|id| self.world.replica(*id).is_some_and(Replica::is_serving))
            .collect();
        let id = *self.world.rng.pick(&running);
        self.conns += 1;
        let conn = WRITERS + self.conns;
        self.world.connect(id, conn);
        self.world.writer = Some((id, conn));
        Ok(())
    }

    /// A copy of a disk is made.
    fn back_up(&mut self) {
        if self.copy.is_none() {
            let ids: Vec<u8> = self.world.ids().collect();
            let id = *self.world.rng.pick(&ids);
            let server = self.world.server(id);
            self.copy = Some((id, server.raft_id, server.disk.clone()));
        }
    }

    /// The operator asks for other members, and something goes wrong. Whether that was answered, and is made.
    fn change(&mut self) -> Result<bool, Violation> {
        let target = self.target();
        let serving =
            self.world.ids().find(|id| self.world.replica(*id).is_some_and(Replica::is_serving));
        let Some(asked) = serving else { return Ok(false) };
        self.conns += 1;
        let conn = OPERATORS + self.conns;
        if !self.world.connect_super_user(asked, conn)? {
            return Ok(false);
        }
        let change = change_to(&self.world, &target, self.leaves_out && !self.is_swap);
        self.world.ask(asked, conn, CHANGE, &change);
        if self.world.rng.chance(800) {
            let until_us = self.world.now_us + FAULT_US_MAX;
            if self.world.rng.chance(600) {
                self.world
                    .until("a joint change", |world| is_joint(world) || world.now_us > until_us)?;
            }
            let late_us = match self.world.rng.chance(600) {
                true => self.world.rng.below(10_000),
                false => self.world.rng.below(FAULT_US_MAX),
            };
            self.world.pass(late_us)?;
            self.go_wrong(&target)?;
        }
        let until_us = self.world.now_us + ANSWER_US_MAX;
        let is_over = |world: &World| {
            !world.runs(asked)
                || world.is_closed(asked, conn)
                || world.answer(asked, conn, CHANGE).is_some()
                || world.now_us >= until_us
        };
        self.world.until("an answer to the operator", is_over)?;
        match self.world.answer(asked, conn, CHANGE) {
            Some(0) => {
                self.played.made += 1;
                self.votes = target;
                Ok(true)
            }
            answer => {
                self.played.refused += u64::from(answer.is_some());
                Ok(false)
            }
        }
    }

    fn target(&mut self) -> Vec<u8> {
        match (self.is_swap, self.votes.as_slice()) {
            (true, [1, 2, 3]) => vec![4, 5, 6],
            (true, _) => vec![1, 2, 3],
            (false, _) => draw(&mut self.world.rng, self.world.servers.len() as u8),
        }
    }

    fn go_wrong(&mut self, target: &[u8]) -> Result<(), Violation> {
        self.played.disturbed += u64::from(is_joint(&self.world));
        let ids: Vec<u8> = self.world.ids().collect();
        let leader = self.world.serving();
        let can_lose = !self.has_lost && target.len() > 2 && self.has_three_voters();
        match self.world.rng.below(7) {
            0 | 1 => leader.into_iter().for_each(|id| self.world.kill(id)),
            2 => {
                let id = *self.world.rng.pick(&ids);
                self.world.kill(id);
            }
            3 => {
                for id in &ids {
                    self.world.kill(*id);
                }
                for id in &ids {
                    self.world.start(*id);
                }
            }
            4 => {
                let set =
                    if self.world.rng.chance(500) { self.votes.clone() } else { target.to_vec() };
                set.iter().take(set.len() / 2 + 1).for_each(|id| self.world.kill(*id));
                if self.world.rng.chance(500) {
                    let left: Vec<u8> =
                        self.world.ids().filter(|id| self.world.runs(*id)).collect();
                    left.iter().for_each(|id| self.world.kill(*id));
                    left.iter().for_each(|id| self.world.start(*id));
                    self.world.pass(DOWN_US_MAX)?;
                }
            }
            5 if can_lose => return self.put_back(),
            _ if can_lose => {
                let id = *self.world.rng.pick(&ids);
                self.empty(id);
            }
            _ => self.world.relink(),
        }
        Ok(())
    }

    /// A voter without which the others are a majority, also those that are down now, by all that a leader knows.
    fn spared(&mut self) -> Option<u8> {
        let world = &self.world;
        let replica = world.serving().and_then(|leader| world.replica(leader))?;
        let voters = world.voters(world.serving()?, replica.status().applied).ok()?;
        let votes = |id: &u8| voters.voters.contains(&world.server(*id).raft_id);
        let voting: Vec<u8> = self.votes.iter().copied().filter(votes).collect();
        let is_enough = !voters.is_joint() && voting.len() > voters.voters.len() / 2 + 1;
        (is_enough && !self.has_lost).then(|| *self.world.rng.pick(&voting))
    }

    /// Whether the loss of a disk leaves a majority, by all that a leader knows.
    fn has_three_voters(&self) -> bool {
        let world = &self.world;
        let Some(replica) = world.serving().and_then(|leader| world.replica(leader)) else {
            return false;
        };
        let (applied, text) = (replica.status().applied, replica.machine().members_text());
        let voters = world.serving().map(|leader| world.voters(leader, applied));
        self.votes.len() > 2
            && text.matches(":participant").count() > 2
            && voters.is_some_and(|voters| voters.is_ok_and(|voters| voters.fewest() > 2))
    }

    /// A server's disk is emptied, and it begins another life.
    fn empty(&mut self, id: u8) {
        self.has_lost = true;
        self.played.emptied += 1;
        self.world.kill(id);
        let server = self.world.server_mut(id);
        server.disk = Disk::default();
        server.raft_id = raft_id(1, id);
        self.world.start(id);
    }

    /// A server's disk is put back to an older copy, if another one remembers what that lacks.
    fn put_back(&mut self) -> Result<(), Violation> {
        let Some((id, raft_id, disk)) = self.copy.take() else { return Ok(()) };
        let last = disk.entries.keys().next_back().copied().unwrap_or(0);
        let held = Held { term: disk.hard_state.term, vote: disk.hard_state.vote, last };
        let remembers = |world: &World, other: &u8| {
            *other != id
                && world.is_linked(id, *other)
                && world.server(*other).evidence.lacks(raft_id, &held)
        };
        let witnesses: Vec<u8> =
            self.world.ids().filter(|other| remembers(&self.world, other)).collect();
        if !self.world.runs(id) || self.world.server(id).raft_id != raft_id || witnesses.is_empty()
        {
            return Ok(());
        }
        self.has_lost = true;
        self.played.put_back += 1;
        self.world.kill(id);
        self.world.server_mut(id).disk = disk;
        self.world.start(id);
        let until_us = self.world.now_us + RECOGNISED_US_MAX;
        let is_refused =
            |world: &World| world.replica(id).is_some_and(|replica| replica.refused().is_some());
        self.world.until("an older copy is refused", |world| {
            is_refused(world) || world.now_us >= until_us
        })?;
        if !is_refused(&self.world)
            && witnesses.iter().any(|other| self.world.is_linked(id, *other))
        {
            return Err(format!(
                "server {id} runs on an older copy of its data; {witnesses:?} remember: {held:?}"
            ));
        }
        self.empty(id);
        Ok(())
    }

    /// Servers that are down are started again, but for a few, and perhaps only a while later.
    fn restart(&mut self) -> Result<(), Violation> {
        let down: Vec<u8> = self.world.ids().filter(|id| !self.world.runs(*id)).collect();
        for id in down {
            let late_us = self.world.rng.below(DOWN_US_MAX);
            self.world.pass(late_us)?;
            self.world.start(id);
        }
        Ok(())
    }

    /// Nothing goes wrong any more.
    fn recover(&mut self, leave_for_good: bool) -> Result<(), Violation> {
        let stops = if leave_for_good { self.spared() } else { None };
        for id in self
            .world
            .ids()
            .filter(|id| Some(*id) == stops || leave_for_good && !self.votes.contains(id))
        {
            self.world.kill(id);
        }
        for id in self.world.ids().filter(|id| Some(*id) != stops) {
            if !self.world.runs(id) && (self.votes.contains(&id) || !leave_for_good) {
                self.world.start(id);
            }
        }
        let votes = leave_for_good.then(|| self.votes.clone());
        let is_well = |world: &World| {
            world.serving().is_some_and(|leader| is_well(world, leader, votes.as_deref()))
        };
        self.world.until("the voters are the members'", is_well)?;
        self.world.writer = None;
        takes_a_write(&mut self.world, "a leader, once all is well")?;
        let is_equal = |world: &World| {
            let zxids = members(world).map(|(_, machine)| machine.last_zxid());
            zxids.collect::<BTreeSet<i64>>().len() == 1
        };
        self.world.until("all apply the same", is_equal)?;
        self.judge()
    }

    /// Judges whether all servers have the same state, with all that was answered.
    fn judge(&self) -> Result<(), Violation> {
        let digests: BTreeSet<u128> =
            members(&self.world).map(|(_, machine)| machine.digest()).collect();
        if digests.len() != 1 {
            return Err(format!("states differ: {digests:x?}"));
        }
        let Some((id, machine)) = members(&self.world).next() else {
            return Err("no server runs".to_owned());
        };
        let lost = self
            .world
            .written
            .iter()
            .find(|number| machine.tree().data_unchecked(&format!("/n{number}")).is_none());
        lost.map_or(Ok(()), |number| {
            Err(format!("write {number} was answered, and server {id} does not have it"))
        })
    }
}

/// Whether a server knows of two sets of voters.
fn is_joint(world: &World) -> bool {
    world.ids().any(|id| {
        let applied = world.replica(id).map(|replica| replica.status().applied);
        let voters = applied.and_then(|applied| world.voters(id, applied).ok());
        voters.is_some_and(|voters| voters.is_joint())
    })
}

/// The members that run, as the leader's state names them, and their states.
fn members(world: &World) -> impl Iterator<Item = (u8, &Machine)> {
    let text = world.serving().and_then(|leader| world.replica(leader));
    let text = text.map_or("", |replica| replica.machine().members_text());
    let is_member = move |id: &u8| text.contains(&format!("server.{id}="));
    world.ids().filter(is_member).filter_map(|id| Some((id, world.replica(id)?.machine())))
}

/// Whether the voters are the participants that the members name, and `votes` where that is known.
fn is_well(world: &World, leader: u8, votes: Option<&[u8]>) -> bool {
    let Some(replica) = world.replica(leader) else { return false };
    let (status, text) = (replica.status(), replica.machine().members_text());
    let is_participant = |id: &u8| {
        let line = text.lines().find(|line| line.starts_with(&format!("server.{id}=")));
        line.is_some_and(|line| line.contains(":participant"))
    };
    let Ok(voters) = world.voters(leader, status.applied) else { return false };
    let participants: BTreeSet<u64> =
        world.ids().filter(is_participant).map(|id| world.server(id).raft_id).collect();
    let is_asked = votes.is_none_or(|votes| {
        participants == votes.iter().map(|id| world.server(*id).raft_id).collect()
    });
    let is_member = |id: &u8| text.contains(&format!("server.{id}="));
    let serve = |id: u8| world.replica(id).is_none_or(Replica::is_serving);
    let all_serve = world.ids().filter(is_member).all(serve);
    !voters.is_joint() && voters.voters == participants && is_asked && all_serve
}

/// Asks for one change of the voters of an ensemble in which some servers are `down`: whether it is made. The others
/// are observers before it, and no members behind it.
///
/// # Errors
/// It was neither made nor refused within a second, although it should have been; writes did not go on within a second;
/// or it is not as it should be once all run.
pub fn one(old: &[u8], new: &[u8], down: &[u8]) -> Result<bool, Violation> {
    const SECOND_US: u64 = 1_000_000;
    let count = *old.iter().chain(new).chain(down).max().unwrap_or(&1);
    let mut world = World::new(Rng::new(1, 42), count, old, false);
    let are_linked = |world: &World| {
        world.serving().and_then(|leader| world.replica(leader)).is_some_and(|leader| {
            let peers = leader.status().peers;
            peers.len() + 1 == usize::from(count) && peers.iter().all(|peer| peer.is_synced)
        })
    };
    world.until("all keep up", are_linked)?;
    down.iter().for_each(|id| world.kill(*id));
    world.pass(2 * SECOND_US)?;
    world.until("a leader", |world| world.serving().is_some())?;
    let is_up = |id: &&u8| !down.contains(id);
    let stays = old.iter().filter(is_up).find(|id| new.contains(id));
    let asked = *stays.or(old.iter().find(is_up)).ok_or("no server is up")?;
    world.until("it serves", |world| world.replica(asked).is_some_and(Replica::is_serving))?;
    world.connect_super_user(asked, OPERATORS)?;
    world.connect(asked, WRITERS);
    world.writer = Some((asked, WRITERS));
    world.pass(SECOND_US / 10)?;
    let change = change_to(&world, new, true);
    world.ask(asked, OPERATORS, CHANGE, &change);
    let until_us = world.now_us + SECOND_US;
    let answered = |world: &World| world.answer(asked, OPERATORS, CHANGE);
    world.until("an answer", |world| answered(world).is_some() || world.now_us > until_us)?;
    let may = new.iter().filter(is_up).count() > new.len() / 2;
    let answer = answered(&world);
    if answer != Some(if may { 0 } else { ErrorCode::NewConfigNoQuorum as i32 }) {
        return Err(format!("within a second, the answer is {answer:?}"));
    }
    let written = world.written.len();
    world.pass(SECOND_US)?;
    if world.written.len() == written {
        return Err(format!("no write is answered within a second: {}", world.all_shown()));
    }
    // Those that left do, too: they go on as servers without a vote.
    let serves = |id: &u8| world.replica(*id).is_none_or(Replica::is_serving);
    if let Some(id) = old.iter().find(|id| !serves(id)) {
        return Err(format!("server {id} does not serve any more"));
    }
    let votes = if may { new } else { old };
    for id in down.iter().filter(|id| !may || new.contains(id)) {
        world.start(*id);
    }
    let all_well =
        |world: &World| world.serving().is_some_and(|leader| is_well(world, leader, Some(votes)));
    world.until("the voters are the members'", all_well)?;
    Ok(may)
}

/// Every change of the voters of `count` servers, each of which votes before it or behind it, with every set of them
/// down that leaves the voters a majority.
pub fn every(count: u8) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    // Of a server: whether it votes before, and behind it; whether it is down.
    const KINDS: [(bool, bool, bool); 6] = [
        (true, true, false),
        (true, false, false),
        (false, true, false),
        (true, true, true),
        (true, false, true),
        (false, true, true),
    ];
    let mut all = Vec::new();
    let mut kinds = vec![0; usize::from(count)];
    loop {
        let which = |is_so: fn(&(bool, bool, bool)) -> bool| -> Vec<u8> {
            (1..=count).filter(|id| is_so(&KINDS[kinds[usize::from(*id) - 1]])).collect()
        };
        let (old, new, down) = (which(|kind| kind.0), which(|kind| kind.1), which(|kind| kind.2));
        let lost = old.iter().filter(|id| down.contains(id)).count();
        if old.len() > 1 && new.len() > 1 && lost < old.len().div_ceil(2) {
            all.push((old, new, down));
        }
        let Some(next) = kinds.iter().position(|kind| kind + 1 < KINDS.len()) else { return all };
        kinds[..next].fill(0);
        kinds[next] += 1;
    }
}
