//! Servers that found an ensemble, in a world without sockets and clocks.

mod recovered;
mod word;

use super::founding::*;
use crate::config::ServerSpec;
use crate::replica::durable::Membership;
use crate::replica::messages::raft_id;
use crate::rng::Rng;

const MS: u64 = 1000;
/// An ensemble that has lost its majority for ever.
const BEFORE: u128 = 0xbef0;

fn servers(participants: u8, observers: u8) -> Vec<ServerSpec> {
    let spec = |id: u8| {
        let role = if id > participants { "observer" } else { "participant" };
        ServerSpec::parse(id, &format!("h{id}:1:2:{role}")).unwrap()
    };
    (1..=participants + observers).map(spec).collect()
}

enum State {
    Off,
    /// It serves by itself, without the lines of an ensemble.
    Alone,
    Undecided(Box<Founding>),
    Decided(Decision),
}

fn serves() -> Port {
    Port::Serves { mode: "standalone".to_owned(), version: "3.9.5-lockkeeper-0.2.0".to_owned() }
}

/// What has become of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Undecided,
    Founder,
    Joined,
}

use Fate::{Founder, Joined, Undecided};

/// Servers that introduce themselves to whom they reach, ten times in a second.
struct World {
    specs: Vec<ServerSpec>,
    servers: Vec<State>,
    cut: Vec<(u8, u8)>,
    now_us: u64,
    lives: u64,
}

impl World {
    fn new(participants: u8, observers: u8) -> Self {
        let specs = servers(participants, observers);
        let states = specs.iter().map(|_| State::Off).collect();
        Self { specs, servers: states, cut: Vec::new(), now_us: 0, lives: 0 }
    }

    fn state(&mut self, id: u8) -> &mut State {
        &mut self.servers[usize::from(id) - 1]
    }

    fn chance(&mut self) -> Chance {
        self.lives += 1;
        Chance {
            nonce: 100 + self.lives,
            ensemble: u128::from(1000 + self.lives),
            incarnation: 7000 + u32::try_from(self.lives).unwrap(),
        }
    }

    fn start_empty(&mut self, id: u8) {
        let chance = self.chance();
        *self.state(id) = State::Undecided(Box::new(Founding::new(id, &self.specs, chance)));
    }

    /// As one whose data of an ensemble was set aside.
    fn start_joining(&mut self, id: u8) {
        self.start_empty(id);
        let chance = self.chance();
        *self.state(id) = State::Undecided(Box::new(Founding::joining(id, &self.specs, chance)));
    }

    /// As one that was on its own and has these znodes.
    fn start_with_state(&mut self, id: u8, znodes: u64) {
        let chance = self.chance();
        let mut founding = Founding::reading(id, &self.specs, chance);
        founding.has_read(Some((standalone(id), znodes)));
        *self.state(id) = State::Undecided(Box::new(founding));
    }

    /// As one that an operator has declared to be alone after [`BEFORE`], with these znodes.
    fn start_alone(&mut self, id: u8, znodes: u64) {
        let chance = self.chance();
        let mut founding = Founding::alone(id, &self.specs, chance, BEFORE);
        founding.has_read(Some((standalone(id), znodes)));
        *self.state(id) = State::Undecided(Box::new(founding));
    }

    fn founding(&mut self, id: u8) -> &mut Founding {
        match self.state(id) {
            State::Undecided(founding) => founding,
            State::Off | State::Alone | State::Decided(_) => panic!("server {id} asks no server"),
        }
    }

    fn obstacle(&mut self, id: u8) -> String {
        let now_us = self.now_us;
        self.founding(id).obstacle(now_us).unwrap_or_default()
    }

    /// An operator has it found without others.
    fn bootstrap(&mut self, id: u8, without: &[u8]) -> Result<Word, Vec<String>> {
        let now_us = self.now_us;
        self.founding(id).bootstrap(without, now_us, now_us + WORD_COUNTS_US)
    }

    fn stop(&mut self, id: u8) {
        *self.state(id) = State::Off;
    }

    fn introductions(&self) -> Vec<(u8, Introduction)> {
        let of = |(spec, state): (&ServerSpec, &State)| match state {
            State::Off | State::Alone => None,
            State::Undecided(founding) => Some((spec.id, founding.introduction(self.now_us))),
            State::Decided(decision) => {
                Some((spec.id, Introduction::Founded(decision.identity.clone())))
            }
        };
        self.specs.iter().zip(&self.servers).filter_map(of).collect()
    }

    fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.now_us += 100 * MS;
            let said = self.introductions();
            let is_alone: Vec<bool> =
                self.servers.iter().map(|state| matches!(state, State::Alone)).collect();
            for (spec, state) in self.specs.iter().zip(&mut self.servers) {
                let State::Undecided(founding) = state else { continue };
                for (from, introduction) in &said {
                    let is_cut = self.cut.contains(&(*from, spec.id))
                        || self.cut.contains(&(spec.id, *from));
                    if !is_cut {
                        let asked_us = Some(self.now_us);
                        founding.heard(*from, introduction.clone(), asked_us, self.now_us);
                    }
                }
                for asked in founding.to_ask(self.now_us) {
                    let is_cut = self.cut.contains(&(asked, spec.id))
                        || self.cut.contains(&(spec.id, asked));
                    let at = usize::from(asked) - 1;
                    let port = match (is_cut, is_alone[at]) {
                        (true, _) => Port::Closed,
                        (false, true) => serves(),
                        (false, false) if said.iter().any(|(id, _)| *id == asked) => {
                            Port::ServesNot
                        }
                        (false, false) => Port::Closed,
                    };
                    founding.answered(asked, port, self.now_us);
                }
                if let Some(decision) = founding.decide(self.now_us).unwrap() {
                    *state = State::Decided(decision);
                }
            }
        }
    }

    fn decision(&self, id: u8) -> Option<&Decision> {
        match &self.servers[usize::from(id) - 1] {
            State::Decided(decision) => Some(decision),
            State::Undecided(_) | State::Off | State::Alone => None,
        }
    }

    /// What has become of each server.
    fn fates(&self) -> Vec<Fate> {
        let fate = |spec: &ServerSpec| match self.decision(spec.id) {
            None => Undecided,
            Some(decision) if decision.identity.raft_id > 0xff => Joined,
            Some(_) => Founder,
        };
        self.specs.iter().map(fate).collect()
    }

    fn ensembles(&self) -> Vec<u128> {
        let id = |spec: &ServerSpec| self.decision(spec.id).map(|d| d.identity.ensemble);
        let mut all: Vec<u128> = self.specs.iter().filter_map(id).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[test]
fn servers_that_start_together_found_one_ensemble_at_once() {
    let mut world = World::new(3, 1);
    (1..=4).for_each(|id| world.start_empty(id));
    world.run_ms(500);
    assert_eq!(world.fates(), [Founder, Joined, Joined, Joined]);
    assert_eq!(world.ensembles().len(), 1);
    for id in 1..=4 {
        let decision = world.decision(id).unwrap();
        assert_eq!(
            decision.identity.initial.voters,
            [1],
            "no vote is counted on that is not there"
        );
        assert!(decision.identity.initial.learners.is_empty());
    }
}

#[test]
fn a_majority_founds_nothing_without_the_others_and_says_whom_it_waits_for() {
    let mut world = World::new(3, 0);
    world.start_empty(2);
    world.start_empty(3);
    world.run_ms(3000);
    assert_eq!(world.obstacle(2), "", "they may be starting");
    world.run_ms(1000);
    let said = world.obstacle(2);
    assert!(
        said.starts_with("server 2 waits for server 1, not heard for more than 3 s:"),
        "{said}"
    );
    assert!(said.contains("`lockkeeper member bootstrap --without 1`"), "{said}");
    world.run_ms(7200 * 1000);
    assert_eq!(world.fates(), [Undecided; 3]);
    let said = world.obstacle(3);
    assert!(said.contains("not heard for more than an hour"), "{said}");
    world.start_empty(1);
    world.run_ms(500);
    assert_eq!(world.fates(), [Founder, Joined, Joined]);
}

#[test]
fn a_minority_is_given_no_command_that_could_not_help() {
    let mut world = World::new(5, 0);
    world.start_empty(1);
    world.start_empty(2);
    world.run_ms(10_000);
    let said = world.obstacle(1);
    assert!(said.contains("waits for server 3, 4, 5,") && said.ends_with("Start them"), "{said}");
}

#[test]
fn observers_neither_found_nor_consent() {
    let mut world = World::new(3, 3);
    world.start_empty(1);
    world.start_empty(2);
    (4..=6).for_each(|id| world.start_empty(id));
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    let objections = world.bootstrap(4, &[3]).unwrap_err();
    assert!(objections.contains(&"server 4 is an observer: say it to a participant".to_owned()));
    world.start_empty(3);
    world.run_ms(500);
    assert!(world.decision(4).unwrap().identity.raft_id > 0xff);
}

#[test]
fn servers_that_do_not_all_hear_the_candidate_found_nothing() {
    for (a, b, founded) in [(1, 2, 0), (1, 3, 0), (2, 3, 1)] {
        let mut world = World::new(3, 0);
        world.cut.push((a, b));
        (1..=3).for_each(|id| world.start_empty(id));
        world.run_ms(5000);
        // Server 1 is the candidate.
        assert_eq!(world.ensembles().len(), founded, "without a link between {a} and {b}");
        world.cut.clear();
        world.run_ms(1000);
        assert_eq!(world.ensembles().len(), 1);
        assert!(!world.fates().contains(&Undecided));
    }
}

#[test]
fn whatever_starts_stops_is_cut_and_said_at_most_one_ensemble_has_a_majority() {
    let (mut taken, mut founded) = (0, 0);
    for seed in 0..300 {
        let mut dice = Rng::new(seed, 0);
        let mut below = |limit: u64| u8::try_from(dice.below(limit)).unwrap();
        let mut world = World::new(5, 1);
        for _ in 0..20 {
            let id = 1 + below(6);
            match below(5) {
                0 => world.cut.push((id, 1 + below(6))),
                1 => drop(world.cut.pop()),
                2 if world.decision(id).is_none() => world.stop(id),
                3 if matches!(world.state(id), State::Undecided(_)) => {
                    let off = (1..=5).filter(|id| matches!(world.state(*id), State::Off));
                    let off: Vec<u8> = off.collect();
                    taken += usize::from(world.bootstrap(id, &off).is_ok());
                }
                _ if world.decision(id).is_none() => world.start_empty(id),
                _ => {}
            }
            world.run_ms(u64::from(below(50)) * 100);
            let conflict = world.ensembles().len() > 1;
            if conflict {
                break;
            }
        }
        let founders = |ensemble: &u128| {
            let is_in = |id: &u8| {
                let decision = world.decision(*id);
                decision.is_some_and(|d| d.identity.ensemble == *ensemble)
            };
            (1..=5).filter(is_in).count()
        };
        let majorities = world.ensembles().iter().filter(|e| founders(e) >= 3).count();
        assert!(majorities <= 1, "seed {seed}");
        founded += world.ensembles().len();
    }
    assert!(taken > 0 && founded > 0, "{taken} words were taken, {founded} ensembles founded");
}

#[test]
fn a_wiped_server_comes_back_as_another_one() {
    let mut world = World::new(3, 0);
    (1..=3).for_each(|id| world.start_empty(id));
    world.run_ms(500);
    // Also the one that founded, and while another one is away.
    world.stop(3);
    world.stop(1);
    world.start_empty(1);
    world.run_ms(3000);
    let wiped = world.decision(1).unwrap();
    assert!(wiped.identity.raft_id > 0xff);
    assert_eq!(wiped.identity.founders, []);
    assert_eq!(world.ensembles().len(), 1);
}

#[test]
fn two_ensembles_among_the_peers_are_an_operators_mistake() {
    let chance = Chance { nonce: 1, ensemble: 2, incarnation: 3 };
    let mut founding = Founding::new(3, &servers(3, 0), chance);
    for (server, ensemble) in [(1, 10), (2, 11)] {
        let founders = vec![(server, 5)];
        let initial = Membership::default();
        let (raft_id, members) = (u64::from(server), Vec::new());
        let identity = Identified { ensemble, raft_id, founders, initial, members };
        founding.heard(server, Introduction::Founded(identity), Some(0), 0);
    }
    let conflict = founding.decide(1).unwrap_err();
    assert_eq!(conflict.ensembles, [(1, 10), (2, 11)]);
    assert!(conflict.to_string().contains("server 2 to 0000000000000000000000000000000b"));
}

#[test]
fn a_server_whose_data_was_set_aside_founds_nothing_and_helps_no_other_to() {
    for joining in 1..=2 {
        let mut world = World::new(3, 0);
        world.start_empty(3 - joining);
        world.start_joining(joining);
        world.run_ms(10_000);
        assert_eq!(world.ensembles(), [], "server {joining} of 1 and 2");
    }
    let mut world = World::new(3, 0);
    (1..=3).for_each(|id| world.start_empty(id));
    world.run_ms(500);
    world.stop(3);
    world.start_joining(3);
    world.run_ms(500);
    assert!(world.decision(3).is_some_and(|decision| decision.identity.raft_id > 0xff));
}

#[test]
fn strangers_are_not_heard() {
    let chance = Chance { nonce: 1, ensemble: 2, incarnation: 3 };
    let mut founding = Founding::new(1, &servers(3, 0), chance);
    let (founders, initial) = (Vec::new(), Membership::default());
    let members = Vec::new();
    let identity = Identified { ensemble: 9, raft_id: 8, founders, initial, members };
    founding.heard(8, Introduction::Founded(identity.clone()), Some(0), 0);
    founding.heard(1, Introduction::Founded(identity), Some(0), 0);
    assert_eq!(founding.decide(1), Ok(None));
}

/// Who a server on its own is.
fn standalone(id: u8) -> Identified {
    let raft_id = raft_id(0, id);
    Identified {
        ensemble: 0xa10e_0000 + u128::from(id),
        raft_id,
        founders: Vec::new(),
        initial: Membership { voters: vec![raft_id], learners: Vec::new() },
        members: Vec::new(),
    }
}

#[test]
fn the_server_that_brings_a_state_is_the_only_voter_and_the_others_join() {
    for first in 1..=3 {
        let mut world = World::new(3, 0);
        (1..=3).filter(|id| *id != first).for_each(|id| world.start_empty(id));
        world.start_with_state(first, 12);
        world.run_ms(500);
        let founder = world.decision(first).unwrap().clone();
        assert!(founder.keeps_data);
        assert_eq!(founder.identity.initial.voters, [u64::from(first)]);
        assert_eq!(founder.identity.members.len(), 3);
        for id in (1..=3).filter(|id| *id != first) {
            let joined = world.decision(id).unwrap();
            assert!(!joined.keeps_data && joined.identity.raft_id > 0xff);
            assert_eq!(joined.identity.ensemble, founder.identity.ensemble);
            assert_eq!(joined.identity.initial, founder.identity.initial);
        }
    }
}

#[test]
fn a_state_that_was_heard_once_keeps_empty_servers_from_founding_also_an_observers() {
    // An observer's, too: all participants are there without it.
    let mut world = World::new(3, 1);
    (1..=2).for_each(|id| world.start_empty(id));
    world.start_with_state(4, 12);
    world.run_ms(500);
    world.stop(4);
    world.run_ms(10_000);
    world.start_empty(3);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    // Its data was set aside.
    world.start_empty(4);
    world.run_ms(500);
    assert_eq!(world.ensembles().len(), 1);
}

#[test]
fn servers_that_are_not_said_to_be_new_found_nothing_empty_and_say_what_they_wait_for() {
    let mut world = World::new(3, 0);
    (1..=3).for_each(|id| world.start_joining(id));
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    let said = world.obstacle(2);
    assert!(said.contains("db.autocreate is false and there is no file `initialize`"), "{said}");
    world.start_empty(1);
    world.start_empty(2);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [], "server 3 may have been in an ensemble");
    let said = world.obstacle(1);
    assert!(said.contains("servers 3 and 1 do not agree"), "{said}");
    // It consents to a state.
    world.start_with_state(1, 12);
    world.run_ms(500);
    assert_eq!(world.fates(), [Founder, Joined, Joined]);
}

#[test]
fn empty_servers_found_nothing_while_a_silent_one_serves_by_itself() {
    let mut world = World::new(3, 0);
    *world.state(1) = State::Alone;
    world.start_empty(2);
    world.start_empty(3);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    for id in [2, 3] {
        let expected =
            "server 1 serves by itself (Mode: standalone): restart it with these server lines";
        assert_eq!(world.obstacle(id), expected);
    }
    // However long its restart takes: it has a state.
    *world.state(1) = State::Off;
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    let said = world.obstacle(2);
    assert!(said.contains("served by itself (Mode: standalone) when it answered last"), "{said}");
    // It is restarted as it was told.
    world.start_with_state(1, 12);
    world.run_ms(500);
    assert_eq!(world.ensembles(), [standalone(1).ensemble]);
    assert_eq!(world.fates(), [Founder, Joined, Joined]);
}

#[test]
fn a_state_is_waited_for_while_it_is_read_from_the_disk() {
    let mut world = World::new(3, 0);
    world.start_empty(2);
    world.start_empty(3);
    let chance = world.chance();
    let reading = Founding::reading(1, &world.specs, chance);
    *world.state(1) = State::Undecided(Box::new(reading));
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    world.founding(1).has_read(Some((standalone(1), 5)));
    world.run_ms(500);
    assert_eq!(world.ensembles(), [standalone(1).ensemble]);
}

#[test]
fn a_server_that_never_served_counts_as_empty() {
    let mut world = World::new(3, 0);
    for id in 1..=3 {
        let chance = world.chance();
        let mut founding = Founding::reading(id, &world.specs, chance);
        founding.has_read(None);
        *world.state(id) = State::Undecided(Box::new(founding));
    }
    world.run_ms(500);
    assert_eq!(world.fates(), [Founder, Joined, Joined]);
    assert!((1..=3).all(|id| !world.decision(id).unwrap().keeps_data));
}

#[test]
fn of_two_states_none_is_chosen_and_both_are_named() {
    let mut world = World::new(3, 0);
    world.start_with_state(1, 12);
    world.start_with_state(3, 5);
    world.start_empty(2);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    for id in 1..=3 {
        let said = world.obstacle(id);
        assert!(
            said.starts_with("server 1 (12 znodes) and server 3 (5 znodes) each have"),
            "{said}"
        );
    }
    // One of them was set aside, as the words advise.
    world.start_empty(3);
    world.run_ms(2500);
    assert_eq!(world.ensembles(), [standalone(1).ensemble]);
}

#[test]
fn servers_whose_lines_name_other_participants_do_not_count_and_are_named_on_both_sides() {
    let mut world = World::new(3, 0);
    world.start_empty(1);
    world.specs = servers(2, 0);
    world.start_empty(2);
    world.specs = servers(3, 0);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    let of_two =
        "the server lines of server 2 name the participants 1, 2, those of server 1 name 1, 2, 3";
    let of_one =
        "the server lines of server 1 name the participants 1, 2, 3, those of server 2 name 1, 2";
    assert!(world.obstacle(1).starts_with(of_two), "{}", world.obstacle(1));
    assert!(world.obstacle(2).starts_with(of_one), "{}", world.obstacle(2));
    world.start_empty(2);
    world.start_empty(3);
    world.run_ms(500);
    assert_eq!(world.fates(), [Founder, Joined, Joined]);
}

#[test]
fn a_founder_is_named_as_the_others_reach_it() {
    let named = |own: u8, hosts: [&str; 3]| {
        let spec = |(id, host): (u8, &str)| {
            ServerSpec::parse(id, &format!("{host}:2888:3888;2181")).unwrap()
        };
        let lines: Vec<ServerSpec> = (1..=3).zip(hosts).map(spec).collect();
        let number = u64::from(own);
        let chance = Chance { nonce: number, ensemble: number.into(), incarnation: 9 };
        Founding::new(own, &lines, chance)
    };
    // As container images write them: each server binds all addresses of its own.
    let mut founding = [
        named(1, ["0.0.0.0", "zk2", "zk3"]),
        named(2, ["zk1", "0.0.0.0", "zk3"]),
        named(3, ["zk1", "zk2", "0.0.0.0"]),
    ];
    for now_us in [0, 100 * MS] {
        let said = [0, 1, 2].map(|at: usize| founding[at].introduction(now_us));
        for (at, founding) in founding.iter_mut().enumerate() {
            for (id, said) in (1..=3).zip(&said) {
                founding.heard(id, said.clone(), Some(now_us), now_us);
            }
            if at > 0 {
                assert_eq!(founding.decide(now_us), Ok(None));
            }
        }
    }
    let decision = founding[0].decide(100 * MS).unwrap().unwrap();
    let members: Vec<String> = decision.identity.members.iter().map(ToString::to_string).collect();
    let expected =
        ["zk1", "zk2", "zk3"].map(|host| format!("{host}:2888:3888:participant;0.0.0.0:2181"));
    assert_eq!(members, expected);
}
