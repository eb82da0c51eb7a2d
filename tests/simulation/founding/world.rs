//! The machines, what lies between them, and who starts and stops them.
//!
//! *Owns* time and chance. *Invariant*: between two servers that hear each other, messages arrive in the
//! order in which they were sent, a step later or some.

mod judge;
mod lost_majority;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockkeeper_core::replica::founding::{Introduction, Port, Undecided, WORD_COUNTS_US};
use lockkeeper_core::replica::peer::server_of;
use lockkeeper_core::replica::{Input, PeerMessage, TICK_MS};

use super::super::conn::Violation;
use super::super::rng::Rng;
use super::Seen;
use super::host::{Host, is_standalone, kept_by};
use lost_majority::Loss;
pub use lost_majority::SeenOfLoss;

const STEP_US: u64 = TICK_MS * 1000;
/// The time at which a world begins.
const BEGIN_US: u64 = 1_000_000;
/// A server must have served by itself for so long before it counts as found.
const ALONE_US_MIN: u64 = 4_000_000;
/// How long the servers have in the end, and how long the operator waits between two looks.
const SETTLE_US_MAX: u64 = 60_000_000;
const LOOK_US: u64 = 5_000_000;

/// An operator's word, until when it counts, and the lives of the others in which it was said, by what they say.
struct Said {
    without: Vec<u8>,
    until_us: u64,
    lives: BTreeMap<u8, u64>,
}

pub struct World {
    rng: Rng,
    prints: bool,
    now_us: u64,
    hosts: Vec<Host>,
    /// Pairs that do not hear each other, the lower id first.
    cut: BTreeSet<(u8, u8)>,
    /// Links of running servers, and what is on its way on each, with the step of its arrival.
    links: BTreeMap<(u8, u8), VecDeque<(u64, PeerMessage)>>,
    /// Znodes that a serving leader had applied, by ensemble.
    acknowledged: BTreeMap<u128, BTreeSet<String>>,
    /// By server: the ensemble that it was on its own, with a znode in it that nobody set aside.
    states: BTreeMap<u8, u128>,
    founded: BTreeSet<u128>,
    /// What a server that belongs to no ensemble was told last by another one that does not either, and when.
    told: BTreeMap<(u8, u8), (Undecided, u64)>,
    /// Servers that answered to one that belongs to no ensemble that they serve, and were not heard by it since.
    served: BTreeSet<(u8, u8)>,
    /// Last answers of the ports of servers to others, and when they were given.
    ports: BTreeMap<(u8, u8), (Port, u64)>,
    /// Answers of others to a server that stands still, and when it had asked.
    unread: Vec<(u8, u8, Introduction, u64)>,
    /// Words of operators that were taken.
    words: Vec<Said>,
    had_unequal_lines: bool,
    writes: u64,
    /// What is known of a majority that was lost, once it is.
    loss: Option<Loss>,
    /// The highest zxid that any server had.
    highest_zxid: i64,
    seen: Seen,
}

impl World {
    pub fn new(rng: Rng, ids: &[u8], prints: bool) -> Self {
        let mut world = Self::unused(rng, ids, prints);
        for host in &mut world.hosts {
            host.is_port_known = world.rng.chance(750);
        }
        // Some machines were used before.
        let states_max = world.rng.below(3);
        for at in 0..world.hosts.len() {
            match world.rng.below(4) {
                0 => world.begin_alone(at, false),
                1 if (world.states.len() as u64) < states_max => world.begin_alone(at, true),
                _ => {}
            }
        }
        world
    }

    /// Of machines that were never used.
    fn unused(mut rng: Rng, ids: &[u8], prints: bool) -> Self {
        let hosts: Vec<Host> = ids.iter().copied().map(Host::new).collect();
        Self {
            prints,
            now_us: BEGIN_US,
            hosts,
            cut: BTreeSet::new(),
            links: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            states: BTreeMap::new(),
            founded: BTreeSet::new(),
            told: BTreeMap::new(),
            served: BTreeSet::new(),
            ports: BTreeMap::new(),
            unread: Vec::new(),
            words: Vec::new(),
            had_unequal_lines: false,
            writes: 0,
            loss: None,
            highest_zxid: 0,
            seen: Seen::default(),
            rng: Rng::new(rng.next(), 21),
        }
    }

    /// What this run has seen.
    pub fn seen(&self) -> Seen {
        Seen { simulated_ms: (self.now_us - BEGIN_US) / 1000, ..self.seen }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        if self.prints {
            println!("{:>9.2} {what}", self.now_us as f64 / 1e6);
        }
    }

    /// A server was on its own once, and is stopped.
    fn begin_alone(&mut self, at: usize, keeps: bool) {
        self.hosts[at].lines.clear();
        self.start(at);
        self.tick(at);
        if keeps {
            self.keep_state(at);
        }
        self.note(format_args!("{} was on its own, with a state: {keeps}", self.hosts[at].id));
        self.hosts[at].stop();
    }

    fn keep_state(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.create(&kept_by(host.id));
        if host.has(&kept_by(host.id)) {
            self.states.insert(host.id, host.ensemble().expect("it runs"));
        }
    }

    fn start(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let before = host.disk.identity.clone();
        let id = host.id;
        host.start(&mut self.rng);
        self.told.retain(|(by, _), _| *by != id);
        self.served.retain(|(by, _)| *by != id);
        self.ports.retain(|(by, _), _| *by != id);
        self.unread.retain(|(to, ..)| *to != id);
        self.seen.restarts += 1;
        let lines = host.lines.clone();
        self.note(format_args!(
            "{} starts with lines {lines:?}, was {:x?}",
            self.hosts[at].id,
            before.map(|i| i.ensemble)
        ));
    }

    fn stop(&mut self, at: usize) {
        self.note(format_args!("{} stops", self.hosts[at].id));
        self.hosts[at].stop();
        let id = self.hosts[at].id;
        let gone: Vec<(u8, u8)> =
            self.links.keys().filter(|(a, b)| *a == id || *b == id).copied().collect();
        for pair in gone {
            self.unlink(pair);
        }
    }

    fn unlink(&mut self, pair: (u8, u8)) {
        self.links.remove(&pair);
        for (own, other) in [pair, (pair.1, pair.0)] {
            let peer = self.host(other).disk.identity.as_ref().map(|identity| identity.raft_id);
            if let Some(peer) = peer {
                self.host_mut(own).step(Input::PeerDown { peer });
            }
        }
    }

    fn host(&self, id: u8) -> &Host {
        let host = self.hosts.iter().find(|host| host.id == id);
        host.expect("every id is a host's")
    }

    fn host_mut(&mut self, id: u8) -> &mut Host {
        let host = self.hosts.iter_mut().find(|host| host.id == id);
        host.expect("every id is a host's")
    }

    fn everybody(&self) -> Vec<u8> {
        self.hosts.iter().map(|host| host.id).collect()
    }

    /// Something happens.
    pub fn act(&mut self) {
        let at = self.rng.index(self.hosts.len());
        let other = self.rng.index(self.hosts.len());
        match self.rng.below(16) {
            0 | 1 => self.stop(at),
            10..=14 => self.bootstrap(at),
            15 => {
                self.stand_still(at);
            }
            2..=6 => {
                self.stop(at);
                self.hosts[at].lines = self.draw_lines(at);
                self.start(at);
            }
            7 => drop(self.cut.pop_first()),
            8 if at != other => {
                let pair = (at.min(other) as u8 + 1, at.max(other) as u8 + 1);
                self.note(format_args!("{pair:?} do not hear each other"));
                self.cut.insert(pair);
                for pair in [pair, (pair.1, pair.0)] {
                    if self.links.contains_key(&pair) {
                        self.unlink(pair);
                    }
                }
            }
            _ => self.write(),
        }
    }

    /// A process stands still: what the others said last lies unread until it goes on.
    fn stand_still(&mut self, at: usize) {
        let (id, now_us) = (self.hosts[at].id, self.now_us);
        self.note(format_args!("{id} stands still"));
        self.hosts[at].hangs_until_us = now_us + self.rng.range(500_000, 4_000_000);
        let members = self.hosts[at].members.clone();
        for other in members.into_iter().filter(|other| *other != id) {
            let host = self.host(other);
            let is_asked = self.hear_each_other(id, other) && host.members.contains(&id);
            if let Some(said) =
                host.introduction(now_us).filter(|_| is_asked && !host.hangs(now_us))
            {
                self.unread.push((id, other, said, now_us));
            }
        }
    }

    /// Servers that go on read what has lain there.
    fn read_late(&mut self) {
        let now_us = self.now_us;
        for (to, from, said, asked_us) in std::mem::take(&mut self.unread) {
            match self.host(to).hangs(now_us) {
                true => self.unread.push((to, from, said, asked_us)),
                false => {
                    self.tell(to, from, said.clone(), Some(asked_us));
                    self.tell(to, from, said, None);
                }
            }
        }
    }

    /// An operator has a server found without those that do not run, or without others by mistake.
    fn bootstrap(&mut self, at: usize) {
        let now_us = self.now_us;
        let own = self.hosts[at].id;
        let is_mistaken = self.rng.chance(200);
        let down = |host: &&Host| host.process.is_none() || host.lines.is_empty();
        let mut without: Vec<u8> = self.hosts.iter().filter(down).map(|host| host.id).collect();
        if is_mistaken {
            without = vec![*self.rng.pick(&self.everybody())];
        }
        without.retain(|id| *id != own || is_mistaken);
        let Some(founding) = self.hosts[at].founding() else { return };
        let until_us = now_us + WORD_COUNTS_US;
        let taken = founding.bootstrap(&without, now_us, until_us);
        self.note(format_args!("{own} is told to found without {without:?}: {taken:?}"));
        let Ok(word) = taken else { return };
        let nonce = |host: &Host| match host.introduction(now_us)? {
            Introduction::Founding(said) => Some((host.id, said.nonce)),
            Introduction::Founded(_) => None,
        };
        let lives = self.hosts.iter().filter_map(nonce).collect();
        self.words.push(Said { without: word.without, until_us, lives });
        let other = self.rng.index(self.hosts.len());
        if self.hosts[other].founding().is_some() && self.rng.chance(400) {
            // It is another life of that server: the word does not bind it.
            self.stop(other);
            self.start(other);
        }
    }

    /// The lines with which a server is started next. A member of an ensemble keeps its lines, and so does
    /// a server whose operator has begun to make it one: what is served without lines beside an ensemble
    /// no server can know of.
    fn draw_lines(&mut self, at: usize) -> Vec<u8> {
        let host = &self.hosts[at];
        let own = host.id;
        let may_be_alone = host.lines.is_empty()
            && host.disk.identity.as_ref().is_none_or(|identity| {
                is_standalone(identity) && !self.founded.contains(&identity.ensemble)
            })
            && self.founded.is_empty();
        if may_be_alone && self.rng.chance(250) {
            return Vec::new();
        }
        let mut all = self.everybody();
        if self.rng.chance(100) {
            self.had_unequal_lines = true;
            let left_out = all[self.rng.index(all.len())];
            all.retain(|id| *id != left_out || *id == own);
        }
        all
    }

    /// A client writes to some server that serves.
    fn write(&mut self) {
        let serving: Vec<usize> =
            (0..self.hosts.len()).filter(|at| self.hosts[*at].is_serving()).collect();
        if serving.is_empty() {
            return;
        }
        let at = serving[self.rng.index(serving.len())];
        if self.hosts[at].lines.is_empty() {
            return self.keep_state(at);
        }
        self.writes += 1;
        self.seen.writes += 1;
        let path = format!("/w{}", self.writes);
        self.hosts[at].create(&path);
        // Not every server that serves leads, and not every write arrives: what a leader has applied counts.
        let ensemble = self.hosts[at].ensemble().expect("it serves");
        if self.hosts[at].has(&path) {
            self.acknowledged.entry(ensemble).or_default().insert(path);
        }
    }

    /// Time passes: up to some seconds.
    pub fn live(&mut self) -> Result<(), Violation> {
        let steps = *self.rng.pick(&[1, 10, 60, 160]);
        for _ in 0..self.rng.range(1, steps) {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Violation> {
        self.now_us += STEP_US;
        self.read_late();
        if self.now_us.is_multiple_of(2 * STEP_US) {
            self.introduce_all();
        }
        self.link_all();
        self.deliver();
        self.send_images();
        for at in 0..self.hosts.len() {
            self.tick(at);
        }
        for at in 0..self.hosts.len() {
            self.decide(at)?;
        }
        if self.rng.chance(20) {
            self.write();
        }
        self.check()
    }

    fn tick(&mut self, at: usize) {
        if self.hosts[at].hangs(self.now_us) {
            return;
        }
        let (now_us, wall_ms) = (self.now_us, self.now_us as i64 / 1000);
        self.hosts[at].step(Input::Tick { now_us, wall_ms });
        self.turn(at);
        let host = &mut self.hosts[at];
        let is_alone = host.lines.is_empty() && host.is_serving();
        host.alone_since_us = match (is_alone, host.alone_since_us) {
            (false, _) => None,
            (true, known) => Some(known.unwrap_or(now_us)),
        };
    }

    fn turn(&mut self, at: usize) {
        let mut out = Vec::new();
        let own = self.hosts[at].id;
        self.hosts[at].turn(&mut out);
        for (to, message) in out {
            let arrives_us = self.now_us + STEP_US * self.rng.below(3);
            let is_right = |other: &Host| {
                other.disk.identity.as_ref().is_some_and(|identity| identity.raft_id == to)
            };
            if !is_right(self.host(server_of(to))) {
                continue;
            }
            if let Some(link) = self.links.get_mut(&(own, server_of(to))) {
                let last_us = link.back().map_or(0, |(us, _)| *us);
                link.push_back((arrives_us.max(last_us), message));
            }
        }
    }

    fn deliver(&mut self) {
        let mut arrived = Vec::new();
        for ((from, to), link) in &mut self.links {
            while link.front().is_some_and(|(us, _)| *us <= self.now_us) {
                let (_, message) = link.pop_front().expect("it was just seen");
                arrived.push((*from, *to, message));
            }
        }
        for (from, to, message) in arrived {
            let Some(identity) = &self.host(from).disk.identity else { continue };
            let from = identity.raft_id;
            self.host_mut(to).step(Input::Peer { from, message });
        }
    }

    fn hear_each_other(&self, a: u8, b: u8) -> bool {
        !self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Every server that belongs to no ensemble asks all that its lines name, and is asked by others.
    fn introduce_all(&mut self) {
        let ids = self.everybody();
        for from in &ids {
            for to in ids.iter().filter(|to| *to != from) {
                let dials = self.host(*from).members.contains(to);
                if dials && self.hear_each_other(*from, *to) {
                    self.introduce(*from, *to);
                }
            }
        }
        for id in ids {
            self.ask_silent(id);
        }
    }

    /// One server connects to another, and each says who it is, or that the other is a stranger.
    fn introduce(&mut self, from: u8, to: u8) {
        let now_us = self.now_us;
        let (Some(said), Some(answered)) =
            (self.host(from).introduction(now_us), self.host(to).introduction(now_us))
        else {
            return;
        };
        if self.host(from).hangs(now_us) || self.host(to).hangs(now_us) {
            return;
        }
        let is_member = self.host(to).members.contains(&from);
        self.tell(to, from, said, None);
        if is_member {
            self.tell(from, to, answered, Some(now_us));
        } else if let Some(founding) = self.host_mut(from).founding() {
            founding.refused(to, format!("{to} does not know {from}"), now_us);
        }
    }

    /// A server hears what another one says of itself, or said when it was asked.
    fn tell(&mut self, to: u8, from: u8, said: Introduction, asked_us: Option<u64>) {
        let now_us = self.now_us;
        self.served.remove(&(to, from));
        match (&said, asked_us) {
            (Introduction::Founding(said), Some(asked_us)) => {
                self.told.insert((to, from), (said.clone(), asked_us));
            }
            (Introduction::Founding(_), None) => {}
            (Introduction::Founded(_), _) => {
                self.told.remove(&(to, from));
            }
        }
        let host = self.host_mut(to);
        if let Some(founding) = host.founding() {
            founding.heard(from, said, asked_us, now_us);
        } else if let Some(lost) = host.recovering() {
            lost.heard(from, said, now_us);
        }
    }

    fn ask_silent(&mut self, id: u8) {
        let now_us = self.now_us;
        if self.host_mut(id).recovering().is_some() {
            return self.ask_all(id);
        }
        let Some(founding) = self.host_mut(id).founding() else { return };
        for asked in founding.to_ask(now_us) {
            let port = self.ask(id, asked);
            self.ports.insert((id, asked), (port.clone(), now_us));
            if let Port::Serves { .. } = port {
                self.seen.serving_alone += 1;
                self.served.insert((id, asked));
            }
            if let Some(founding) = self.host_mut(id).founding() {
                founding.answered(asked, port, now_us);
            }
        }
    }

    /// Answer of the ports of another server.
    fn ask(&self, by: u8, of: u8) -> Port {
        match self.hear_each_other(by, of) {
            true => self.host(of).port(self.now_us),
            false => Port::Closed,
        }
    }

    /// Running servers of one ensemble that follow each other have links.
    fn link_all(&mut self) {
        let ids = self.everybody();
        for a in ids.iter().copied() {
            for b in ids.iter().copied().filter(|b| a != *b) {
                let (from, to) = (self.host(a), self.host(b));
                let runs = |host: &Host| host.replica().is_some() && !host.lines.is_empty();
                let is_one = from.ensemble() == to.ensemble();
                let follow = from.members.contains(&b) && to.members.contains(&a);
                let linked =
                    runs(from) && runs(to) && is_one && follow && self.hear_each_other(a, b);
                match (linked, self.links.contains_key(&(a, b))) {
                    (true, false) => {
                        self.links.insert((a, b), VecDeque::new());
                        let peer = |host: &Host| host.disk.identity.as_ref().map(|it| it.raft_id);
                        let (of_a, of_b) = (peer(self.host(a)), peer(self.host(b)));
                        if let (Some(of_a), Some(of_b)) = (of_a, of_b) {
                            self.host_mut(a).step(Input::PeerUp { peer: of_b });
                            self.host_mut(b).step(Input::PeerUp { peer: of_a });
                        }
                    }
                    (false, true) => self.unlink((a, b)),
                    (true, true) | (false, false) => {}
                }
            }
        }
    }

    fn decide(&mut self, at: usize) -> Result<(), Violation> {
        let now_us = self.now_us;
        if self.hosts[at].hangs(now_us) {
            return Ok(());
        }
        let Some(founding) = self.hosts[at].founding() else { return Ok(()) };
        let obstacle = founding.obstacle(now_us).unwrap_or_default();
        let decided = founding.decide(now_us);
        self.seen.two_states += u64::from(obstacle.contains("each have a state"));
        self.seen.unequal_lines += u64::from(obstacle.contains("name the participants"));
        self.seen.late +=
            u64::from(obstacle.contains("came too late") || obstacle.contains("without server"));
        // Two ensembles among those that are heard are for an operator.
        let Ok(Some(decision)) = decided else { return Ok(()) };
        let ensemble = decision.identity.ensemble;
        self.note(format_args!(
            "{} decides: {ensemble:x}, raft {:x}, keeps its data: {}",
            self.hosts[at].id, decision.identity.raft_id, decision.keeps_data
        ));
        let id = self.hosts[at].id;
        if self.founded.insert(ensemble) {
            self.may_found_beside_loss(at)?;
            self.founds(
                at,
                &decision.identity.members.iter().map(|spec| spec.id).collect::<Vec<_>>(),
            )?;
            match decision.keeps_data {
                true => self.seen.with_state += 1,
                false => self.seen.empty += 1,
            }
            self.seen.without += u64::from(!decision.without.is_empty());
        } else {
            self.seen.joined += 1;
        }
        if !decision.keeps_data {
            self.seen.unused += u64::from(self.hosts[at].disk.identity.is_some());
            if let Some(state) = self.states.get(&id) {
                return Err(format!("server {id} gave up the state {state:x}"));
            }
        }
        self.hosts[at].decided(decision, &mut self.rng);
        self.turn(at);
        Ok(())
    }

    /// From now on all lines are equal, all servers run, and all hear each other.
    pub fn heal(&mut self) {
        self.note(format_args!("all is healed"));
        self.cut.clear();
        for host in &mut self.hosts {
            host.hangs_until_us = 0;
        }
        let all = self.everybody();
        for at in 0..self.hosts.len() {
            if self.hosts[at].process.is_none() || self.hosts[at].lines != all {
                self.stop(at);
                self.hosts[at].lines.clone_from(&all);
                self.start(at);
            }
        }
    }

    /// An operator does what the servers say, until all of them serve, or some cannot.
    pub fn settle(&mut self) -> Result<(), Violation> {
        let end_us = self.now_us + SETTLE_US_MAX;
        let mut look_us = self.now_us + LOOK_US;
        while self.now_us < end_us {
            self.step()?;
            if self.hosts.iter().all(Host::is_serving) {
                return Ok(());
            }
            if self.now_us >= look_us {
                look_us += LOOK_US;
                self.follow_advice();
            }
        }
        let now_us = self.now_us;
        // Who belongs to an ensemble and is no member is told so when it makes a link, and `/readyz` says it.
        let is_refused = |host: &Host| {
            let refuses = |other: &&Host| {
                host.members.contains(&other.id) && !other.members.contains(&host.id)
            };
            self.hosts.iter().filter(|other| other.is_serving()).find(refuses).map(|other| other.id)
        };
        let refused: Vec<Option<u8>> = self.hosts.iter().map(is_refused).collect();
        for (host, refused) in self.hosts.iter_mut().zip(refused) {
            let id = host.id;
            let words = match host.founding() {
                Some(founding) => match founding.decide(now_us) {
                    Err(conflict) => Some(conflict.to_string()),
                    Ok(_) => founding.obstacle(now_us),
                },
                None => {
                    let obstacle = host.replica().and_then(|it| it.obstacle().map(str::to_owned));
                    obstacle.or(refused.map(|by| format!("{by} says that {id} is no member")))
                }
            };
            let is_explained = words.is_some() && self.had_unequal_lines;
            if !host.is_serving() && !is_explained {
                return Err(format!("server {id} does not serve, and says: {words:?}"));
            }
        }
        Ok(())
    }

    /// Server that is set aside of two that belong to different ensembles: without a state, and with fewer members.
    fn wrong_one(&mut self) -> Option<u8> {
        let now_us = self.now_us;
        let conflicts =
            self.hosts.iter_mut().filter_map(|host| host.founding()?.decide(now_us).err());
        let ensembles = conflicts.last()?.ensembles;
        let members =
            |of: &u128| self.hosts.iter().filter(|host| host.ensemble() == Some(*of)).count();
        let is_kept = |of: &u128| self.states.values().any(|state| state == of);
        ensembles.into_iter().min_by_key(|(_, of)| (is_kept(of), members(of))).map(|(id, _)| id)
    }

    fn follow_advice(&mut self) {
        let now_us = self.now_us;
        let wrong = self.wrong_one();
        for at in 0..self.hosts.len() {
            let id = self.hosts[at].id;
            let words = match self.hosts[at].founding() {
                Some(founding) => founding.obstacle(now_us),
                None => self.hosts[at].replica().and_then(|it| it.obstacle().map(str::to_owned)),
            };
            let words = words.unwrap_or_default();
            let others = self.states.keys().any(|other| *other != id);
            let is_chosen =
                words.contains("each have a state") && others && self.states.contains_key(&id);
            // The others may have founded one of their own while this one was away.
            let ensemble = self.hosts[at].ensemble();
            let is_elsewhere = |other: &Host| other.is_serving() && other.ensemble() != ensemble;
            let is_left = words.contains("If they belong to another ensemble, start this one")
                && self.hosts.iter().any(is_elsewhere);
            if words.contains("without server") || is_chosen || is_left || wrong == Some(id) {
                self.note(format_args!("{id} is set aside, as it says"));
                self.stop(at);
                self.hosts[at].set_aside();
                self.states.remove(&id);
                self.seen.set_aside += 1;
                self.start(at);
                return;
            }
        }
    }
}
