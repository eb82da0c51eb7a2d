//! How three servers become an ensemble: the product's protocol of founding, in every order of steps.
//!
//! *Owns* the steps, and the rules. *Invariants*: what is right is written here by what was delivered to whom and
//! when, without looking at what a server remembers:
//!
//! * an ensemble is founded with the consent of all whose lines are the same, given within the time for which a word
//!   counts, but for one that an operator has left out, in the lives in which the others were then;
//! * it is founded over no state that the founder was told of, with no vote but of servers that are there, and without
//!   a server only if it does not run, where the founder can ask it;
//! * a server with a state gives up nothing; one that begins anew never takes the raft id of an earlier life;
//! * once all servers run with the same lines and hear each other, and an operator does what they say, all become
//!   members of one ensemble; only if two were founded one server is left with its own.
//!
//! Time passes in steps, behind each of which every server has its turn. Two servers tell each other at once who they
//! are, or one tells the other ([`Founding::is_one_way`]); any of it may be lost, for nothing has to be said. Client
//! ports answer at once: how long an answer counts is in the protocol.

mod host;
mod lone;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hash;
use std::rc::Rc;

use lockkeeper_core::replica::founding::{
    Brings, Decision, HEARD_US, Introduction, Port, Undecided,
};

use super::digest::{BEGIN_US, Digest};
use super::explorer::{Scope, Violation};
pub use host::Directory;
use host::{FIRST, Host, Process};

/// Steps after which all must be well, once faults are over; and those between two looks of the operator.
const ROUNDS_MAX: u32 = 100;
const ROUNDS_BETWEEN_LOOKS: u32 = 10;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Founding {
    pub ids: Vec<u8>,
    /// Every combination of these is a beginning.
    pub directories: Vec<Directory>,
    /// Beginnings in which the lines of one server leave another one out, instead of those with equal lines.
    pub has_unequal_lines: bool,
    pub crashes: u8,
    /// Pairs that are cut off from each other.
    pub cuts: u8,
    /// Servers that are started without lines first.
    pub alone: u8,
    /// Words of an operator who has a server found without another one.
    pub words: u8,
    /// What passes in one step of time, microseconds.
    pub step_us: u64,
    /// Words arrive in one direction only, instead of in both.
    pub is_one_way: bool,
    /// Reading a disk takes its time, instead of none.
    pub reads_slowly: bool,
    /// A second ensemble breaks a rule, too: no operator has a hand in it, and no data is of another one.
    pub only_one: bool,
}

impl Founding {
    /// Three servers with these directories, and no faults but words that get lost.
    pub fn of(directories: &[Directory]) -> Self {
        Self {
            ids: vec![1, 2, 3],
            directories: directories.to_vec(),
            has_unequal_lines: false,
            crashes: 0,
            cuts: 0,
            alone: 0,
            words: 0,
            step_us: 500_000,
            is_one_way: false,
            reads_slowly: false,
            only_one: false,
        }
    }
}

/// Longest time between two questions to the ports of a silent server.
const ASK_US: u64 = 1_000_000;
/// Time for which an operator's word counts here: the shorter, the fewer worlds.
const WORD_US: u64 = 2_000_000;

/// What counts of what one server says to another.
#[derive(Clone, Debug, Hash)]
struct Said {
    is_founded: bool,
    nonce: u64,
    candidate: Option<u8>,
    has_state: bool,
    names: Vec<u8>,
}

impl Said {
    fn of(introduction: &Introduction) -> Self {
        match introduction {
            Introduction::Founding(Undecided { nonce, candidate, brings, lines, .. }) => Self {
                is_founded: false,
                nonce: *nonce,
                candidate: *candidate,
                has_state: matches!(brings, Brings::State { .. }),
                names: lines.iter().map(|line| line.id).collect(),
            },
            Introduction::Founded(_) => Self {
                is_founded: true,
                nonce: 0,
                candidate: None,
                has_state: false,
                names: Vec::new(),
            },
        }
    }
}

/// An operator's word: the server that is left out, until when it counts, and the lives of the others.
#[derive(Clone, Debug)]
struct Given {
    without: u8,
    until_us: u64,
    lives: BTreeMap<u8, u64>,
}

#[derive(Clone)]
pub struct World {
    now_us: u64,
    hosts: Vec<Rc<Host>>,
    /// What was delivered to a server, from which other, and when.
    told: BTreeMap<(u8, u8), (Said, u64)>,
    cut: BTreeSet<(u8, u8)>,
    founded: BTreeSet<u128>,
    /// Raft ids that were given, by ensemble.
    given: BTreeSet<(u128, u64)>,
    crashes_left: u8,
    cuts_left: u8,
    alone_left: u8,
    words_left: u8,
    words: Vec<Given>,
    only_one: bool,
    /// Since faults are over.
    rounds: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Start(u8),
    StartAlone(u8),
    Stop(u8),
    Crash(u8),
    Read(u8),
    Meet(u8, u8),
    Hear { by: u8, from: u8 },
    Cut(u8, u8),
    Bootstrap { at: u8, without: u8 },
    Wait,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(id) => write!(f, "server {id} is started with its lines"),
            Self::StartAlone(id) => write!(f, "server {id} is started without lines, and serves"),
            Self::Stop(id) => write!(f, "server {id} is stopped"),
            Self::Crash(id) => write!(f, "server {id} dies"),
            Self::Read(id) => write!(f, "server {id} has read its disk"),
            Self::Meet(a, b) => write!(f, "servers {a} and {b} hear each other"),
            Self::Hear { by, from } => write!(f, "server {by} hears server {from}"),
            Self::Cut(a, b) => write!(f, "servers {a} and {b} do not reach each other any more"),
            Self::Bootstrap { at, without } => {
                write!(f, "server {at} is told to found without server {without}")
            }
            Self::Wait => write!(f, "time passes"),
        }
    }
}

impl Scope for Founding {
    type World = World;
    type Choice = Choice;

    fn beginnings(&self) -> Vec<(String, World)> {
        let kinds = self.directories.len();
        let combinations = kinds.pow(self.ids.len() as u32);
        let mut beginnings = Vec::new();
        for number in 0..combinations {
            let nth = |at: usize| self.directories[number / kinds.pow(at as u32) % kinds];
            let directories: Vec<Directory> = (0..self.ids.len()).map(nth).collect();
            for lines in self.lines() {
                let words = match self.has_unequal_lines {
                    true => format!("directories {directories:?}, lines {lines:?}"),
                    false => format!("directories {directories:?}"),
                };
                beginnings.push((words, self.world(&directories, &lines)));
            }
        }
        beginnings
    }

    fn begin(&self, beginning: usize) -> World {
        self.beginnings().swap_remove(beginning).1
    }

    fn cloned(&self, world: &World) -> Option<World> {
        Some(world.clone())
    }

    fn choices(&self, world: &World) -> Vec<Choice> {
        let mut choices = Vec::new();
        for host in &world.hosts {
            world.choices_of(host, self.is_one_way, &mut choices);
        }
        if world.cuts_left > 0 {
            for (at, a) in self.ids.iter().enumerate() {
                choices.extend(self.ids[at + 1..].iter().map(|b| Choice::Cut(*a, *b)));
            }
        }
        if world.hosts.iter().any(|host| host.founding().is_some()) {
            choices.push(Choice::Wait);
        }
        choices
    }

    fn take(&self, world: &mut World, choice: Choice) -> Result<(), Violation> {
        match choice {
            Choice::Start(id) => {
                let host = world.host_mut(id);
                host.start();
                if host.reads.is_some() && !self.reads_slowly {
                    host.read();
                }
                return world.turn(id);
            }
            Choice::StartAlone(id) => {
                let now_us = world.now_us;
                world.alone_left -= 1;
                world.host_mut(id).start_alone(now_us);
            }
            Choice::Stop(id) => world.host_mut(id).stop(),
            Choice::Crash(id) => {
                world.crashes_left -= 1;
                world.host_mut(id).stop();
                world.told.retain(|(by, _), _| *by != id);
            }
            Choice::Read(id) => {
                world.host_mut(id).read();
                return world.turn(id);
            }
            Choice::Meet(a, b) => return world.meet(&[(a, b), (b, a)]),
            Choice::Hear { by, from } => return world.meet(&[(by, from)]),
            Choice::Cut(a, b) => {
                world.cuts_left -= 1;
                world.cut.insert((a, b));
            }
            Choice::Bootstrap { at, without } => {
                world.bootstrap(at, without);
                return world.turn(at);
            }
            Choice::Wait => return world.wait(self.step_us),
        }
        Ok(())
    }

    fn fingerprint(&self, world: &World) -> u128 {
        world.fingerprint()
    }

    fn must_recover(&self) -> bool {
        true
    }

    fn recover(&self, world: &mut World) -> Result<bool, Violation> {
        let round = world.rounds.unwrap_or(0);
        if world.rounds.is_none() {
            world.end_faults(&self.ids);
        }
        world.rounds = Some(round + 1);
        for id in &self.ids {
            if world.host(*id).reads.is_some() {
                world.host_mut(*id).read();
            }
        }
        for by in &self.ids {
            for from in self.ids.iter().filter(|from| *from != by) {
                world.meet(&[(*by, *from)])?;
            }
        }
        world.wait(self.step_us)?;
        if world.hosts.iter().all(|host| host.is_member()) {
            return world.ended().map(|()| true);
        }
        if round % ROUNDS_BETWEEN_LOOKS == ROUNDS_BETWEEN_LOOKS - 1 {
            world.follow_advice();
        }
        if round < ROUNDS_MAX {
            return Ok(false);
        }
        let lost = world.hosts.iter().find(|host| !host.is_member()).expect("it was looked for");
        let words = lost.founding().and_then(|founding| founding.obstacle(world.now_us));
        Err(format!("server {} never becomes a member, and says: {words:?}", lost.id))
    }
}

impl Founding {
    /// Which servers the lines of each name.
    fn lines(&self) -> Vec<Vec<Vec<u8>>> {
        let equal = vec![self.ids.clone(); self.ids.len()];
        if !self.has_unequal_lines {
            return vec![equal];
        }
        let mut all = Vec::new();
        for at in 0..self.ids.len() {
            for left_out in self.ids.iter().filter(|id| **id != self.ids[at]) {
                let mut lines = equal.clone();
                lines[at].retain(|id| id != left_out);
                all.push(lines);
            }
        }
        all
    }

    fn world(&self, directories: &[Directory], lines: &[Vec<u8>]) -> World {
        let each = self.ids.iter().zip(directories).zip(lines);
        let host = |((id, directory), lines): ((&u8, &Directory), &Vec<u8>)| {
            Rc::new(Host::new(*id, &self.ids, lines.clone(), *directory))
        };
        let hosts: Vec<Rc<Host>> = each.map(host).collect();
        let first = hosts.iter().find(|host| host.ensemble() == Some(FIRST));
        let first = first.and_then(|host| host.disk.identity.clone());
        let voters = first.iter().flat_map(|identity| &identity.initial.voters);
        World {
            now_us: BEGIN_US,
            told: BTreeMap::new(),
            cut: BTreeSet::new(),
            founded: first.iter().map(|identity| identity.ensemble).collect(),
            given: voters.map(|raft_id| (FIRST, *raft_id)).collect(),
            hosts,
            crashes_left: self.crashes,
            cuts_left: self.cuts,
            alone_left: self.alone,
            words_left: self.words,
            words: Vec::new(),
            only_one: self.only_one,
            rounds: None,
        }
    }
}

impl World {
    fn host(&self, id: u8) -> &Host {
        self.hosts.iter().find(|host| host.id == id).expect("every id is a host's")
    }

    fn host_mut(&mut self, id: u8) -> &mut Host {
        let host = self.hosts.iter_mut().find(|host| host.id == id);
        Rc::make_mut(host.expect("every id is a host's"))
    }

    fn choices_of(&self, host: &Host, is_one_way: bool, choices: &mut Vec<Choice>) {
        let id = host.id;
        let is_up = matches!(host.process, Process::Undecided(_) | Process::Member);
        match &host.process {
            Process::Down => {
                choices.push(Choice::Start(id));
                let is_new = host.disk.identity.is_none() || host.is_standalone();
                let may_be_alone = is_new && !host.was_started && self.founded.is_empty();
                if may_be_alone && self.alone_left > 0 {
                    choices.push(Choice::StartAlone(id));
                }
            }
            Process::Alone => choices.push(Choice::Stop(id)),
            Process::Undecided(_) => {
                if host.reads.is_some() {
                    choices.push(Choice::Read(id));
                }
                let others = self.hosts.iter().map(|other| other.id).filter(|other| *other != id);
                let named = others.clone().filter(|_| self.words_left > 0);
                choices.extend(named.map(|without| Choice::Bootstrap { at: id, without }));
                for from in others.filter(|from| self.can_hear(id, *from)) {
                    if is_one_way {
                        choices.push(Choice::Hear { by: id, from });
                    } else if id < from || !self.can_hear(from, id) {
                        choices.push(Choice::Meet(id, from));
                    }
                }
            }
            Process::Member => {}
        }
        if is_up && self.crashes_left > 0 {
            choices.push(Choice::Crash(id));
        }
    }

    fn reach(&self, a: u8, b: u8) -> bool {
        !self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Whether one of them connects to the other, and that one is there.
    fn can_hear(&self, by: u8, from: u8) -> bool {
        let (hears, speaks) = (self.host(by), self.host(from));
        let dials = hears.lines.contains(&from) || speaks.lines.contains(&by);
        let speaks = matches!(speaks.process, Process::Undecided(_) | Process::Member);
        hears.founding().is_some() && speaks && dials && self.reach(by, from)
    }

    /// Each of these hears the other of its pair, if it can, as they were before; then they have their turns.
    fn meet(&mut self, pairs: &[(u8, u8)]) -> Result<(), Violation> {
        let now_us = self.now_us;
        let heard = pairs.iter().filter(|(by, from)| self.can_hear(*by, *from));
        let said = heard.map(|(by, from)| (*by, *from, self.host(*from).says(now_us)));
        let said: Vec<(u8, u8, Introduction)> = said.collect();
        for (by, from, said) in &said {
            self.hear(*by, *from, said.clone());
        }
        for (by, ..) in said {
            self.turn(by)?;
        }
        Ok(())
    }

    fn hear(&mut self, by: u8, from: u8, said: Introduction) {
        let is_stranger = !self.host(from).lines.contains(&by);
        let now_us = self.now_us;
        if !is_stranger {
            self.told.insert((by, from), (Said::of(&said), now_us));
        }
        let founding = self.host_mut(by).founding_mut().expect("it can hear");
        match is_stranger {
            true => founding.refused(from, format!("{from} does not know {by}"), now_us),
            false => founding.heard(from, said, Some(now_us), now_us),
        }
    }

    /// An operator's word; one that is not taken is as if it was not said.
    fn bootstrap(&mut self, at: u8, without: u8) {
        let (now_us, until_us) = (self.now_us, self.now_us + WORD_US);
        let founding = self.host_mut(at).founding_mut().expect("it waits");
        if founding.bootstrap(&[without], now_us, until_us).is_err() {
            return;
        }
        self.words_left -= 1;
        let nonce = |host: &Rc<Host>| match host.founding()?.introduction(now_us) {
            Introduction::Founding(said) => Some((host.id, said.nonce)),
            Introduction::Founded(_) => None,
        };
        let lives = self.hosts.iter().filter_map(nonce).collect();
        self.words.push(Given { without, until_us, lives });
    }

    /// Answer of the ports of a server to another one.
    fn port(&self, by: u8, of: u8) -> Port {
        let asked = self.host(of);
        let members = self
            .hosts
            .iter()
            .filter(|host| host.is_member() && host.ensemble() == asked.ensemble());
        let is_majority = members.count() > self.hosts.len() / 2;
        let serves =
            |mode: &str| Port::Serves { mode: mode.to_owned(), version: "lockkeeper".to_owned() };
        match asked.process {
            _ if !self.reach(by, of) => Port::Closed,
            Process::Alone => serves("standalone"),
            Process::Member if is_majority => serves("follower"),
            Process::Member | Process::Undecided(_) => Port::ServesNot,
            Process::Down => Port::Closed,
        }
    }

    /// What the shell does behind every message, and as time passes.
    fn turn(&mut self, id: u8) -> Result<(), Violation> {
        let now_us = self.now_us;
        let Some(founding) = self.host_mut(id).founding_mut() else { return Ok(()) };
        for of in founding.to_ask(now_us) {
            let port = self.port(id, of);
            self.host_mut(id).founding_mut().expect("it asks").answered(of, port, now_us);
        }
        // Two ensembles among those that are heard are for an operator.
        let founding = self.host_mut(id).founding_mut().expect("it asks");
        let Ok(Some(decision)) = founding.decide(now_us) else { return Ok(()) };
        self.judge(id, &decision)?;
        let ensemble = decision.identity.ensemble;
        if !self.founded.insert(ensemble) {
            for host in &mut self.hosts {
                if host.ensemble() == Some(ensemble) {
                    Rc::make_mut(host).disk.is_joined = true;
                }
            }
        }
        self.given.insert((ensemble, decision.identity.raft_id));
        self.host_mut(id).decided(decision);
        self.told.retain(|(by, _), _| *by != id);
        Ok(())
    }

    /// Time passes, and every server has its turn.
    fn wait(&mut self, step_us: u64) -> Result<(), Violation> {
        self.now_us += step_us;
        let now_us = self.now_us;
        // That there was a state counts until its server says something else.
        self.told.retain(|_, (said, at_us)| now_us - *at_us < HEARD_US || said.has_state);
        for at in 0..self.hosts.len() {
            self.turn(self.hosts[at].id)?;
        }
        Ok(())
    }

    fn judge(&self, id: u8, decision: &Decision) -> Result<(), Violation> {
        let (host, identity) = (self.host(id), &decision.identity);
        if host.disk.has_state && !decision.keeps_data {
            return Err(format!("server {id} gives up its state"));
        }
        if self.founded.contains(&identity.ensemble) {
            let is_again = host.disk.identity.as_ref().is_some_and(|known| {
                known.ensemble == identity.ensemble && known.raft_id == identity.raft_id
            });
            let is_given = self.given.contains(&(identity.ensemble, identity.raft_id));
            if is_given && !is_again {
                return Err(format!("server {id} takes the raft id that another life had"));
            }
            return Ok(());
        }
        self.judge_founding(host, decision)
    }

    fn judge_founding(&self, host: &Host, decision: &Decision) -> Result<(), Violation> {
        let (id, identity) = (host.id, &decision.identity);
        let told = self.told.iter().filter(|((by, _), _)| *by == id);
        let told: Vec<(u8, &Said)> = told.map(|((_, from), (said, _))| (*from, said)).collect();
        let consents = |(from, said): &&(u8, &Said)| {
            let is_fresh = self.now_us - self.told[&(id, *from)].1 < HEARD_US;
            is_fresh && said.candidate == Some(id) && said.names == host.lines
        };
        let consenting: Vec<u8> = told.iter().filter(consents).map(|(from, _)| *from).collect();
        let missing = host.lines.iter().copied();
        let missing: Vec<u8> =
            missing.filter(|other| *other != id && !consenting.contains(other)).collect();
        let is_left_out = |word: &Given| {
            let is_of_life = |(from, said): &(u8, &Said)| {
                *from == word.without || word.lives.get(from) == Some(&said.nonce)
            };
            missing == [word.without]
                && self.now_us < word.until_us + HEARD_US
                && told.iter().filter(consents).all(is_of_life)
        };
        if !missing.is_empty() && !self.words.iter().any(is_left_out) {
            return Err(format!(
                "server {id} founds an ensemble without the consent of {missing:?} of {:?}",
                host.lines
            ));
        }
        if let Some((other, _)) = told.iter().find(|(_, said)| said.has_state) {
            return Err(format!("server {id} founds over the state of server {other}"));
        }
        if host.disk.has_state && host.ensemble() != Some(identity.ensemble) {
            return Err(format!("server {id} founds another ensemble than that of its state"));
        }
        if identity.initial.voters != [identity.raft_id] {
            let voters = &identity.initial.voters;
            return Err(format!("server {id} founds with votes that are not there: {voters:x?}"));
        }
        if self.only_one && !self.founded.is_empty() {
            return Err(format!("server {id} founds a second ensemble"));
        }
        let runs = |other: &&u8| {
            let since_us = self.host(**other).alone_since_us;
            let is_old = since_us.is_some_and(|since_us| self.now_us - since_us >= ASK_US);
            is_old && self.reach(id, **other)
        };
        match missing.iter().find(runs) {
            Some(other) => Err(format!("server {id} founds while server {other} serves by itself")),
            None => Ok(()),
        }
    }

    /// All servers run with the same lines, and reach each other.
    fn end_faults(&mut self, ids: &[u8]) {
        self.cut.clear();
        (self.crashes_left, self.cuts_left, self.alone_left) = (0, 0, 0);
        self.words_left = 0;
        for id in ids {
            let host = self.host(*id);
            let runs = matches!(host.process, Process::Undecided(_) | Process::Member);
            if !runs || host.lines != ids {
                let host = self.host_mut(*id);
                host.stop();
                host.lines = ids.to_vec();
                host.start();
                self.told.retain(|(by, _), _| by != id);
            }
        }
    }

    /// An operator does what a server says.
    fn follow_advice(&mut self) {
        let now_us = self.now_us;
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let Some(founding) = host.founding() else { continue };
            let words = founding.obstacle(now_us).unwrap_or_default();
            let others = self.hosts.iter().any(|other| other.id != host.id && other.disk.has_state);
            let is_chosen = words.contains("each have a state") && others && host.disk.has_state;
            let conflict = founding.clone().decide(now_us).err();
            let wrong = match conflict {
                _ if words.contains("without server") || is_chosen => host.id,
                Some(conflict) => conflict.ensembles[1].0,
                None => continue,
            };
            let host = self.host_mut(wrong);
            host.stop();
            host.set_aside();
            host.start();
            self.told.retain(|(by, _), _| *by != wrong);
            return;
        }
    }

    /// All are members: of one ensemble, or one of them of the one that it founded beside that of the others.
    fn ended(&self) -> Result<(), Violation> {
        let of: Vec<u128> = self.hosts.iter().filter_map(|host| host.ensemble()).collect();
        let count = |ensemble: &u128| of.iter().filter(|other| *other == ensemble).count();
        match of.iter().map(count).max() {
            Some(most) if most > self.hosts.len() / 2 => Ok(()),
            Some(_) | None => Err(format!("no ensemble has a majority: {of:x?}")),
        }
    }

    fn fingerprint(&self) -> u128 {
        let Self {
            now_us,
            hosts,
            told,
            cut,
            founded,
            given,
            crashes_left,
            cuts_left,
            alone_left,
            words_left,
            words,
            only_one: _,
            rounds,
        } = self;
        let mut digest = Digest::at(*now_us);
        let counting = words.iter().filter(|word| word.until_us + HEARD_US > *now_us);
        let may_be_told = *words_left > 0 || counting.clone().next().is_some();
        for host in hosts {
            host.aged(*now_us, ASK_US, may_be_told).hash(&mut digest);
        }
        for (who, (said, at_us)) in told {
            (who, said, (now_us - at_us).min(HEARD_US)).hash(&mut digest);
        }
        for Given { without, until_us, lives } in counting {
            (without, until_us + HEARD_US - now_us, lives).hash(&mut digest);
        }
        let left = (crashes_left, cuts_left, alone_left, words_left);
        let round = rounds.map(|rounds| rounds % ROUNDS_BETWEEN_LOOKS);
        (cut, founded, given, left, round).hash(&mut digest);
        digest.finish_128()
    }
}
