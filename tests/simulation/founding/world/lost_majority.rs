//! A majority is lost for ever, and an operator has a survivor go on alone.
//!
//! *Owns* what the operator does, mistakes included, and what is right then, written here without looking at the
//! product:
//!
//! * of the survivors the one goes on whose log is the longest, and with all that is in it;
//! * none does while another one runs with the log, or is neither asked nor declared dead;
//! * servers without data that are started meanwhile found no ensemble of their own, whatever another operator says;
//! * no zxid of the new ensemble was one of the old, those included that no survivor ever heard of;
//! * in the end all serve, as one ensemble.

use std::collections::BTreeSet;

use lockkeeper_core::replica::founding::{Brings, Position};
use lockkeeper_core::replica::lost_majority::LostMajority;
use lockkeeper_core::replica::new_ensemble::term_of_new_ensemble;
use lockkeeper_core::replica::{Input, Machine, Membership};
use lockkeeper_core::tree;

use super::super::super::conn::Violation;
use super::super::super::rng::Rng;
use super::super::host::{Base, Disk, Host, Process, load, standalone};
use super::{SETTLE_US_MAX, World};

/// How long the operator listens to the others before a decision.
const LISTEN_US: u64 = 3_200_000;

/// A majority that was lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The ensemble that was.
    before: u128,
    survivors: BTreeSet<u8>,
    /// The survivor with the longest log, how far it goes, and the znodes in its state.
    best: Position,
    kept: Vec<String>,
    /// The highest zxid that any server of the old ensemble had.
    highest_zxid: i64,
    /// Who goes on.
    winner: Option<u8>,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenOfLoss {
    /// Majorities that were lost, with a survivor that went on.
    pub recovered: u64,
    /// Operators who were refused before they made it right.
    pub refused: u64,
    /// Survivors whose logs were shorter.
    pub shorter: u64,
    /// Zxids of the old ensemble that no survivor had heard of.
    pub unheard: u64,
}

impl World {
    /// Plays a seed: an ensemble lives, loses its majority, and goes on.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn lose_and_go_on(
        rng: Rng,
        ids: &[u8],
        prints: bool,
    ) -> Result<(SeenOfLoss, u64), Violation> {
        let mut world = Self::unused(rng, ids, prints);
        for at in 0..ids.len() {
            world.hosts[at].lines = ids.to_vec();
            world.start(at);
        }
        for _ in 0..world.rng.range(4, 14) {
            world.shake();
            world.live()?;
        }
        world.cut.clear();
        let seen = world.lose()?;
        Ok((seen, (world.now_us - super::BEGIN_US) / 1000))
    }

    fn shake(&mut self) {
        let at = self.rng.index(self.hosts.len());
        match self.rng.below(6) {
            0 => self.stop(at),
            1 => drop(self.cut.pop_first()),
            2 => {
                let other = self.rng.index(self.hosts.len());
                let (one, other) = (self.hosts[at].id, self.hosts[other].id);
                if one != other {
                    self.separate(one, other);
                }
            }
            _ => {
                if self.hosts[at].process.is_none() {
                    self.start(at);
                }
                self.write();
            }
        }
    }

    fn separate(&mut self, one: u8, other: u8) {
        self.cut.insert((one.min(other), one.max(other)));
        for pair in [(one, other), (other, one)] {
            if self.links.contains_key(&pair) {
                self.unlink(pair);
            }
        }
    }

    fn lose(&mut self) -> Result<SeenOfLoss, Violation> {
        let mut seen = SeenOfLoss::default();
        let mut ids = self.everybody();
        let survive = 1 + self.rng.index((ids.len() - 1) / 2);
        let survivors: BTreeSet<u8> =
            (0..survive).map(|_| ids.swap_remove(self.rng.index(ids.len()))).collect();
        if self.rng.chance(600) {
            // The others go on without them for a while.
            for at in 0..self.hosts.len() {
                if self.hosts[at].process.is_none() {
                    self.start(at);
                }
            }
            for (one, other) in
                survivors.iter().flat_map(|one| ids.iter().map(move |id| (*one, *id)))
            {
                self.separate(one, other);
            }
            for _ in 0..6 {
                self.live()?;
                self.write();
            }
            self.cut.clear();
        }
        self.note_zxids();
        let states: Vec<Position> =
            survivors.iter().filter_map(|id| self.host(*id).position()).collect();
        let Some(best) = states.iter().copied().max_by_key(Position::rank) else { return Ok(seen) };
        let is_one = states.len() == survivors.len()
            && states.iter().all(|position| position.ensemble == best.ensemble);
        // A survivor that never had a word of the ensemble is none.
        let members = self.founded.contains(&best.ensemble);
        if !is_one || !members {
            return Ok(seen);
        }
        let holder = survivors.iter().find(|id| self.host(**id).position() == Some(best));
        let holder = *holder.expect("it was just found");
        let mut rng = Rng::new(self.rng.next(), 23);
        let state = self.host(holder).whole_state(&mut rng);
        if state.tree().config_text().is_empty() {
            // It has not begun to serve anybody.
            return Ok(seen);
        }
        seen.unheard += u64::from(self.highest_zxid > state.last_zxid());
        seen.shorter += states.iter().filter(|other| other.rank() < best.rank()).count() as u64;
        let kept = (1..=self.writes).map(|write| format!("/w{write}"));
        let kept = kept.filter(|path| state.tree().stat_unchecked(path).is_some()).collect();
        self.note(format_args!("servers {ids:?} are lost for ever, {survivors:?} are left"));
        for id in &ids {
            let at = self.at(*id);
            self.stop(at);
            self.hosts[at].disk = Disk::default();
        }
        self.loss = Some(Loss {
            before: best.ensemble,
            survivors: survivors.clone(),
            best,
            kept,
            highest_zxid: self.highest_zxid,
            winner: None,
        });
        // New machines in their places, some of them at once.
        for id in &ids {
            if self.rng.chance(600) {
                let at = self.at(*id);
                self.start(at);
            }
        }
        // Mistakes: a survivor that runs on, or that the operator forgets.
        for id in &survivors {
            let at = self.at(*id);
            match self.rng.below(10) {
                0 | 1 if survivors.len() > 1 => {
                    if self.hosts[at].process.is_none() {
                        self.start(at);
                    }
                }
                2 | 3 if survivors.len() > 1 => self.stop(at),
                _ => self.ask_operator(at),
            }
        }
        // Without a word of the old ensemble, a majority of new machines founds another one: no fault of this
        // command.
        let first = self.at(*survivors.first().expect("there is one"));
        if survivors.iter().all(|id| self.host(*id).process.is_none()) {
            self.ask_operator(first);
        }
        let dead: BTreeSet<u8> = ids.iter().copied().collect();
        for round in 0.. {
            self.listen()?;
            if self.decide_at_survivors(&dead, &mut rng)? {
                break;
            }
            if round > 0 {
                return Err("no survivor may go on, and all were asked".to_owned());
            }
            seen.refused += 1;
            for id in &survivors {
                let at = self.at(*id);
                if self.hosts[at].recovering().is_none() {
                    self.stop(at);
                    self.ask_operator(at);
                }
            }
            // A new machine that has joined what is no more, by a survivor that ran on, begins again.
            for id in &ids {
                let at = self.at(*id);
                if self.hosts[at].ensemble() == Some(best.ensemble) {
                    self.stop(at);
                    self.hosts[at].disk = Disk::default();
                }
            }
        }
        seen.recovered += 1;
        self.go_on(&ids)?;
        Ok(seen)
    }

    fn at(&self, id: u8) -> usize {
        self.hosts.iter().position(|host| host.id == id).expect("every id is a host's")
    }

    /// Its server is stopped, and the command begins.
    fn ask_operator(&mut self, at: usize) {
        self.stop(at);
        let position = self.hosts[at].position().expect("a survivor has a log");
        let id = self.hosts[at].id;
        let lost = LostMajority::new((id, position), self.everybody());
        self.hosts[at].process = Some(Process::Recovering(Box::new(lost)));
    }

    fn listen(&mut self) -> Result<(), Violation> {
        if self.rng.chance(300) {
            // The command is given up and begun again: meanwhile nothing is heard of the survivors.
            self.beside_others(LISTEN_US)?;
            let is_asked = |host: &Host| matches!(host.process, Some(Process::Recovering(_)));
            let asked = (0..self.hosts.len()).filter(|at| is_asked(&self.hosts[*at]));
            let asked: Vec<usize> = asked.collect();
            asked.iter().for_each(|at| self.stop(*at));
            self.beside_others(2 * LISTEN_US)?;
            asked.iter().for_each(|at| self.ask_operator(*at));
        }
        self.beside_others(LISTEN_US)
    }

    /// Time passes, while another operator has the new machines go on.
    fn beside_others(&mut self, time_us: u64) -> Result<(), Violation> {
        let end_us = self.now_us + time_us;
        while self.now_us < end_us {
            self.step()?;
            if self.rng.chance(30) {
                let at = self.rng.index(self.hosts.len());
                self.bootstrap(at);
            }
        }
        Ok(())
    }

    /// Every survivor that was asked is told the same servers.
    fn decide_at_survivors(
        &mut self,
        dead: &BTreeSet<u8>,
        rng: &mut Rng,
    ) -> Result<bool, Violation> {
        let now_us = self.now_us;
        let loss = self.loss.clone().expect("it was lost");
        let mut asked: Vec<u8> = loss.survivors.iter().copied().collect();
        if self.rng.chance(500) {
            asked.reverse();
        }
        for id in asked {
            let at = self.at(id);
            let Some(lost) = self.hosts[at].recovering() else { continue };
            if let Err(refusal) = lost.judge(dead, now_us) {
                self.note(format_args!("{id} may not go on: {refusal:?}"));
                continue;
            }
            let Some(lost) = self.hosts[at].recovering() else { continue };
            let position = lost.position();
            for other in loss.survivors.iter().filter(|other| **other != id) {
                let host = self.host(*other);
                if host.replica().is_some() {
                    return Err(format!("{id} goes on while {other} runs with the log"));
                }
                if host.process.is_none() {
                    return Err(format!(
                        "{id} goes on, and the operator has not spoken of {other}"
                    ));
                }
            }
            if position.rank() < loss.best.rank() {
                return Err(format!("{id} goes on with {position:?}, and {:?} is left", loss.best));
            }
            self.carry_out(at, position, rng)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn carry_out(&mut self, at: usize, position: Position, rng: &mut Rng) -> Result<(), Violation> {
        let id = self.hosts[at].id;
        let mut machine = self.hosts[at].whole_state(rng);
        let seen = self.hosts[at].disk.hard_state.term.max(position.term);
        let term = term_of_new_ensemble(seen).map_err(|what| format!("{id}: {what}"))?;
        machine.begin_ensemble(term, true);
        let identity = standalone(id, rng);
        let membership = Membership { voters: vec![identity.raft_id], learners: Vec::new() };
        let (mark, records) = machine.into_records((1, term), membership);
        self.hosts[at].stop();
        self.hosts[at].disk = Disk {
            identity: Some(identity),
            base: Some(Base { mark, records }),
            alone_after: Some(position.ensemble),
            ..Disk::default()
        };
        let hard_state = &mut self.hosts[at].disk.hard_state;
        (hard_state.term, hard_state.commit) = (term, 1);
        let loss = self.loss.as_mut().expect("it was lost");
        loss.winner = Some(id);
        self.note(format_args!("{id} goes on alone in term {term}"));
        Ok(())
    }

    /// The winner is started, then all others, and they become one ensemble.
    fn go_on(&mut self, replaced: &[u8]) -> Result<(), Violation> {
        let loss = self.loss.clone().expect("it was lost");
        let winner = loss.winner.expect("one goes on");
        let at = self.at(winner);
        for _ in 0..self.rng.below(10) {
            self.step()?;
        }
        self.start(at);
        for _ in 0..self.rng.range(1, 100) {
            self.step()?;
        }
        for id in replaced.iter().chain(&loss.survivors).filter(|id| **id != winner) {
            let at = self.at(*id);
            if loss.survivors.contains(id) {
                self.stop(at);
                self.hosts[at].set_aside();
                self.seen.set_aside += 1;
            }
            if self.hosts[at].process.is_none() {
                self.start(at);
            }
        }
        let end_us = self.now_us + SETTLE_US_MAX;
        while !self.hosts.iter().all(|host| host.is_serving()) {
            self.step()?;
            if self.now_us > end_us {
                let idle = self.hosts.iter().filter(|host| !host.is_serving());
                let idle: Vec<u8> = idle.map(|host| host.id).collect();
                return Err(format!("servers {idle:?} do not serve"));
            }
        }
        for host in &self.hosts {
            if host.ensemble() == Some(loss.before) || host.ensemble() != self.hosts[at].ensemble()
            {
                return Err(format!("server {} is in another ensemble", host.id));
            }
            if let Some(missing) = loss.kept.iter().find(|path| !host.has(path)) {
                return Err(format!("server {} lacks {missing}, which a survivor had", host.id));
            }
        }
        Ok(())
    }

    /// While an operator is asked, and after, no other server founds.
    pub(super) fn may_found_beside_loss(&self, at: usize) -> Result<(), Violation> {
        let Some(loss) = &self.loss else { return Ok(()) };
        let id = self.hosts[at].id;
        let is_asked = self.told.iter().any(|((by, from), (said, _))| {
            *by == id && loss.survivors.contains(from) && matches!(said.brings, Brings::Position(_))
        });
        if loss.winner != Some(id) && (is_asked || loss.winner.is_some()) {
            return Err(format!("server {id} founds an ensemble of its own beside the survivors"));
        }
        Ok(())
    }

    /// The client ports of all others are asked.
    pub(super) fn ask_all(&mut self, id: u8) {
        for other in self.everybody().into_iter().filter(|other| *other != id) {
            let port = self.ask(id, other);
            if let Some(lost) = self.host_mut(id).recovering() {
                lost.answered(other, port);
            }
        }
    }

    /// The zxids that there are; those of the new ensemble are all higher than those of the old.
    fn note_zxids(&mut self) {
        let zxids =
            self.hosts.iter().filter_map(|host| Some(host.replica()?.machine().last_zxid()));
        self.highest_zxid = zxids.fold(self.highest_zxid, i64::max);
    }

    /// Images go from one server to the other at once.
    pub(super) fn send_images(&mut self) {
        self.note_zxids();
        for at in 0..self.hosts.len() {
            for order in std::mem::take(&mut self.hosts[at].images) {
                let base = self.hosts[at].disk.base.clone();
                let is_receiver = |identity: &lockkeeper_core::replica::founding::Identified| {
                    identity.raft_id == order.to
                };
                let to = self.hosts.iter().position(|host| {
                    host.replica().is_some() && host.disk.identity.as_ref().is_some_and(is_receiver)
                });
                let ok = match (base, to) {
                    (Some(base), Some(to)) if base.mark.index == order.index => {
                        let rules = tree::Rules { skip_acl: true, ..tree::Rules::DEFAULT };
                        let options = tree::Options { rules, ..tree::Options::default() };
                        let mut machine = Machine::fresh(options);
                        load(&mut machine, &base.mark, &base.records);
                        let (mark, machine) = (base.mark.clone(), Box::new(machine));
                        self.hosts[to].received = Some(base);
                        let message = order.message;
                        self.hosts[to].step(Input::ImageReceived { message, mark, machine });
                        true
                    }
                    _ => false,
                };
                self.hosts[at].step(Input::ImageSent { to: order.to, ok });
            }
        }
    }

    /// A server of the new ensemble has applied something.
    pub(super) fn check_zxids(&self) -> Result<(), Violation> {
        let Some(Loss { winner: Some(winner), highest_zxid, before, .. }) = &self.loss else {
            return Ok(());
        };
        for host in self.hosts.iter().filter(|host| host.ensemble() != Some(*before)) {
            let zxid = host.replica().map(|replica| replica.machine().last_zxid());
            if let Some(zxid) = zxid.filter(|zxid| *zxid != 0 && zxid <= highest_zxid) {
                return Err(format!(
                    "server {} is at zxid {zxid:#x} of the ensemble of {winner}, and the old one had {highest_zxid:#x}",
                    host.id
                ));
            }
        }
        Ok(())
    }
}
