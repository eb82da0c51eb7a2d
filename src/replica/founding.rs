//! How servers without data become an ensemble, and how one that comes back empty finds its way.
//!
//! *Owns* [`Founding`], what an empty server does before it has an identity, and [`Introduction`],
//! what every server says of itself. *Invariants*: a server belongs to one ensemble, for ever, and
//! only after it has said so durably does it take part; a server that was empty when others were not
//! is a new one for Raft (another incarnation), because it may have voted in the life that it lost.
//! *Never* takes a clock, a random number or a socket: it is given all three.
//!
//! One server founds: the lowest one, when it hears all participants, or has heard a majority for
//! [`PATIENCE_US`]. Only servers that take it for the lowest count, so that two servers that do not
//! hear each other cannot both win over a third. The number that an empty server draws (its nonce)
//! goes into the list of founders: whoever finds itself there founds, too; whoever does not, because
//! it was not there or has been emptied since, joins. Even if two servers should found, every server
//! follows one of them, so at most one ensemble has a majority.

use std::collections::BTreeMap;

use super::durable::Membership;
use super::peer::raft_id;
use crate::config::{Role, ServerSpec};

/// How long a majority is enough to found an ensemble, microseconds: the others may still be starting.
pub const PATIENCE_US: u64 = 2_000_000;
/// How long a server counts as heard after its last word, microseconds.
pub const HEARD_US: u64 = 1_500_000;

/// What a server says of itself to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Introduction {
    /// It has no data and belongs nowhere yet.
    Founding {
        /// Drawn when it was started.
        nonce: u64,
        /// The lowest participant without data that it hears, itself included; 0 for none.
        lowest: u8,
    },
    /// It belongs to an ensemble.
    Founded(Identified),
}

/// Who a server is, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The ensemble.
    pub ensemble: u128,
    /// The server's raft id.
    pub raft_id: u64,
    /// Server id and nonce of each server that was heard when the ensemble was founded. Empty if this
    /// server joined later, or was a standalone one.
    pub founders: Vec<(u8, u64)>,
    /// Who took part when the ensemble was founded: equal on all its servers, also those that came
    /// later, because the log's changes of membership begin with it.
    pub initial: Membership,
}

/// What was decided. It must be durable before the server says so or takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who the server is.
    pub identity: Identified,
}

/// Random numbers, from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    /// Tells this life of an empty server from others.
    pub nonce: u64,
    /// The ensemble's id, should this server found it.
    pub ensemble: u128,
    /// The incarnation, should it join. Not 0.
    pub incarnation: u32,
}

/// A server without data.
#[derive(Clone, Debug)]
pub struct Founding {
    own: u8,
    chance: Chance,
    /// It had data: there is an ensemble, and it founds none.
    only_joins: bool,
    roles: BTreeMap<u8, Role>,
    heard: BTreeMap<u8, (Introduction, u64)>,
    majority_since_us: Option<u64>,
}

impl Founding {
    /// The server `own` of those that its configuration names.
    ///
    /// # Panics
    /// If the incarnation is 0, which is that of the founders.
    #[must_use]
    pub fn new(own: u8, servers: &[ServerSpec], chance: Chance) -> Self {
        assert!(chance.incarnation != 0, "incarnation 0 is that of the founders");
        let roles = servers.iter().map(|server| (server.id, server.role)).collect();
        let heard = BTreeMap::new();
        Self { own, chance, only_joins: false, roles, heard, majority_since_us: None }
    }

    /// As [`Founding::new`], of a server whose data was put away: it waits for one that has data,
    /// however many have none.
    #[must_use]
    pub fn joining(own: u8, servers: &[ServerSpec], chance: Chance) -> Self {
        Self { only_joins: true, ..Self::new(own, servers, chance) }
    }

    /// What this server says of itself.
    #[must_use]
    pub fn introduction(&self, now_us: u64) -> Introduction {
        let lowest = self.empty(now_us).find(|id| self.is_participant(*id)).unwrap_or(0);
        // Nobody founds with the consent of one that only joins.
        let lowest = if self.only_joins { 0 } else { lowest };
        Introduction::Founding { nonce: self.chance.nonce, lowest }
    }

    /// Another server has introduced itself. One that the configuration does not name is not asked.
    pub fn heard(&mut self, server: u8, introduction: Introduction, now_us: u64) {
        if server != self.own && self.roles.contains_key(&server) {
            self.heard.insert(server, (introduction, now_us));
        }
    }

    /// What to do, once that is clear. To be asked whenever something was heard, and as time passes.
    ///
    /// # Errors
    /// Two servers belong to different ensembles: an operator must say which is right.
    pub fn decide(&mut self, now_us: u64) -> Result<Option<Decision>, Conflict> {
        self.heard.retain(|_, (_, at_us)| at_us.saturating_add(HEARD_US) > now_us);
        if let Some(decision) = self.follow()? {
            return Ok(Some(decision));
        }
        Ok(self.found(now_us))
    }

    /// Some server has data: belong to its ensemble.
    fn follow(&self) -> Result<Option<Decision>, Conflict> {
        let own = (self.own, self.chance.nonce);
        let mut followed: Option<(u8, &Identified)> = None;
        for (&server, (introduction, _)) in &self.heard {
            let Introduction::Founded(identity) = introduction else { continue };
            match followed {
                Some((first, known)) if known.ensemble != identity.ensemble => {
                    let ensembles = [(first, known.ensemble), (server, identity.ensemble)];
                    return Err(Conflict { ensembles });
                }
                // Whoever joined does not know the founders.
                Some((_, known)) if known.founders.contains(&own) => {}
                Some(_) | None => followed = Some((server, identity)),
            }
        }
        let Some((_, identity)) = followed else { return Ok(None) };
        if identity.founders.contains(&own) {
            let raft_id = raft_id(0, self.own);
            return Ok(Some(Decision { identity: Identified { raft_id, ..identity.clone() } }));
        }
        let identity = Identified {
            raft_id: match mutant!("emptied-server-keeps-identity") {
                true => raft_id(0, self.own),
                false => raft_id(self.chance.incarnation, self.own),
            },
            founders: Vec::new(),
            ..identity.clone()
        };
        Ok(Some(Decision { identity }))
    }

    /// Nobody has data: found, if it is this server's turn.
    fn found(&mut self, now_us: u64) -> Option<Decision> {
        let participants = self.roles.values().filter(|role| **role == Role::Participant).count();
        // Observers have no say in who is the lowest.
        let agrees = |(id, (introduction, _)): &(&u8, &(Introduction, u64))| match introduction {
            Introduction::Founding { lowest, .. } => {
                self.is_participant(**id) && *lowest == self.own
            }
            Introduction::Founded(_) => false,
        };
        let agreeing = self.heard.iter().filter(agrees).count() + 1;
        let is_own_turn = self.introduction(now_us)
            == Introduction::Founding { nonce: self.chance.nonce, lowest: self.own };
        if !is_own_turn || agreeing <= participants / 2 {
            self.majority_since_us = None;
            return None;
        }
        let since_us = *self.majority_since_us.get_or_insert(now_us);
        let is_patient = now_us >= since_us.saturating_add(PATIENCE_US);
        if agreeing < participants && !is_patient {
            return None;
        }
        let mut founders = vec![(self.own, self.chance.nonce)];
        for (id, (introduction, _)) in &self.heard {
            if let Introduction::Founding { nonce, .. } = introduction {
                founders.push((*id, *nonce));
            }
        }
        founders.sort_unstable();
        Some(self.founder(self.chance.ensemble, founders))
    }

    fn founder(&self, ensemble: u128, founders: Vec<(u8, u64)>) -> Decision {
        let of_role = |wanted: Role| {
            let of_role = self.roles.iter().filter(move |(_, role)| **role == wanted);
            of_role.map(|(id, _)| raft_id(0, *id)).collect()
        };
        let initial =
            Membership { voters: of_role(Role::Participant), learners: of_role(Role::Observer) };
        Decision {
            identity: Identified { ensemble, raft_id: raft_id(0, self.own), founders, initial },
        }
    }

    /// Servers without data, itself included, in order of their ids.
    fn empty(&self, now_us: u64) -> impl Iterator<Item = u8> {
        let is_empty = move |id: &u8| match self.heard.get(id) {
            Some((Introduction::Founding { .. }, at_us)) => at_us + HEARD_US > now_us,
            Some((Introduction::Founded(_), _)) => false,
            None => *id == self.own,
        };
        self.roles.keys().copied().filter(is_empty)
    }

    fn is_participant(&self, id: u8) -> bool {
        self.roles.get(&id) == Some(&Role::Participant)
    }
}

/// Two servers that the configuration names belong to different ensembles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Server id and ensemble of each.
    pub ensembles: [(u8, u128); 2],
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(a, of_a), (b, of_b)] = self.ensembles;
        write!(
            f,
            "server {a} belongs to ensemble {of_a:032x}, server {b} to {of_b:032x}: one of them has \
             the wrong data directory"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    fn servers(participants: u8, observers: u8) -> Vec<ServerSpec> {
        let spec = |id: u8| {
            let role = if id > participants { "observer" } else { "participant" };
            ServerSpec::parse(id, &format!("h{id}:1:2:{role}")).unwrap()
        };
        (1..=participants + observers).map(spec).collect()
    }

    enum State {
        Off,
        Empty(Founding),
        Decided(Decision),
    }

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

        fn start_empty(&mut self, id: u8) {
            self.lives += 1;
            let chance = Chance {
                nonce: 100 + self.lives,
                ensemble: u128::from(1000 + self.lives),
                incarnation: 7000 + u32::try_from(self.lives).unwrap(),
            };
            *self.state(id) = State::Empty(Founding::new(id, &self.specs, chance));
        }

        fn stop(&mut self, id: u8) {
            *self.state(id) = State::Off;
        }

        fn introductions(&self) -> Vec<(u8, Introduction)> {
            let of = |(spec, state): (&ServerSpec, &State)| match state {
                State::Off => None,
                State::Empty(founding) => Some((spec.id, founding.introduction(self.now_us))),
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
                for (spec, state) in self.specs.iter().zip(&mut self.servers) {
                    let State::Empty(founding) = state else { continue };
                    for (from, introduction) in &said {
                        let is_cut = self.cut.contains(&(*from, spec.id))
                            || self.cut.contains(&(spec.id, *from));
                        if !is_cut {
                            founding.heard(*from, introduction.clone(), self.now_us);
                        }
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
                State::Empty(_) | State::Off => None,
            }
        }

        fn raft_ids(&self) -> Vec<Option<u64>> {
            let id = |spec: &ServerSpec| self.decision(spec.id).map(|d| d.identity.raft_id);
            self.specs.iter().map(id).collect()
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
        assert_eq!(world.raft_ids(), [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(world.ensembles().len(), 1);
        for id in 1..=4 {
            let decision = world.decision(id).unwrap();
            assert_eq!(decision.identity.initial.voters, [1, 2, 3]);
            assert_eq!(decision.identity.initial.learners, [4]);
            assert_eq!(decision.identity.founders.len(), 4);
        }
    }

    #[test]
    fn a_majority_waits_for_the_others_a_while_and_the_late_one_joins() {
        let mut world = World::new(3, 0);
        world.start_empty(3);
        world.run_ms(10_000);
        assert_eq!(world.raft_ids(), [None, None, None], "one of three founds nothing");
        world.start_empty(2);
        world.run_ms(1900);
        assert_eq!(world.raft_ids(), [None, None, None]);
        world.run_ms(500);
        assert_eq!(world.raft_ids(), [None, Some(2), Some(3)]);
        world.start_empty(1);
        world.run_ms(500);
        let late = world.decision(1).unwrap();
        assert_eq!(late.identity.raft_id & 0xff, 1);
        assert!(late.identity.raft_id > 0xff, "another incarnation");
        assert_eq!(late.identity.initial.voters, [1, 2, 3], "as the others began");
        assert!(!late.identity.initial.voters.contains(&late.identity.raft_id));
        assert_eq!(world.ensembles().len(), 1);
    }

    #[test]
    fn a_third_server_that_comes_in_time_is_a_founder() {
        let mut world = World::new(3, 0);
        world.start_empty(1);
        world.start_empty(2);
        world.run_ms(1500);
        world.start_empty(3);
        world.run_ms(300);
        assert_eq!(world.raft_ids(), [Some(1), Some(2), Some(3)]);
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
    fn a_server_that_hears_one_of_four_founds_nothing() {
        let mut world = World::new(5, 0);
        world.start_empty(1);
        world.start_empty(2);
        world.run_ms(10_000);
        assert_eq!(world.ensembles(), []);
    }

    #[test]
    fn observers_neither_found_nor_count() {
        let mut world = World::new(3, 3);
        world.start_empty(1);
        (4..=6).for_each(|id| world.start_empty(id));
        world.run_ms(10_000);
        assert_eq!(world.ensembles(), []);
        world.start_empty(2);
        world.run_ms(3000);
        let late_observer = world.decision(4).unwrap();
        assert_eq!(late_observer.identity.raft_id, 4, "it was heard, so it founded, too");
    }

    #[test]
    fn two_servers_that_do_not_hear_each_other_do_not_both_win_the_third() {
        for (a, b) in [(1, 2), (1, 3), (2, 3)] {
            let mut world = World::new(3, 0);
            world.cut.push((a, b));
            (1..=3).for_each(|id| world.start_empty(id));
            world.run_ms(5000);
            assert_eq!(world.ensembles().len(), 1, "without a link between {a} and {b}");
            world.cut.clear();
            world.run_ms(1000);
            assert_eq!(world.ensembles().len(), 1);
            assert!(world.raft_ids().iter().all(Option::is_some));
        }
    }

    #[test]
    fn whatever_starts_stops_and_is_cut_at_most_one_ensemble_has_a_majority() {
        use rand_core::{RngCore, SeedableRng};
        for seed in 0..300 {
            let mut dice = rand_chacha::ChaCha20Rng::seed_from_u64(seed);
            let mut below = |limit: u64| u8::try_from(dice.next_u64() % limit).unwrap();
            let mut world = World::new(5, 1);
            for _ in 0..20 {
                let id = 1 + below(6);
                match below(4) {
                    0 => world.cut.push((id, 1 + below(6))),
                    1 => drop(world.cut.pop()),
                    2 if world.decision(id).is_none() => world.stop(id),
                    _ if world.decision(id).is_none() => world.start_empty(id),
                    _ => {}
                }
                world.run_ms(u64::from(below(15)) * 100);
                let conflict = world.ensembles().len() > 1;
                if conflict {
                    break;
                }
            }
            let founders = |ensemble: &u128| {
                let is_in = |id: &u8| {
                    let decision = world.decision(*id);
                    decision.is_some_and(|d| {
                        d.identity.ensemble == *ensemble && d.identity.raft_id <= 0xff
                    })
                };
                (1..=5).filter(is_in).count()
            };
            let majorities = world.ensembles().iter().filter(|e| founders(e) >= 3).count();
            assert!(majorities <= 1, "seed {seed}");
        }
    }

    #[test]
    fn two_ensembles_among_the_peers_are_an_operators_mistake() {
        let chance = Chance { nonce: 1, ensemble: 2, incarnation: 3 };
        let mut founding = Founding::new(3, &servers(3, 0), chance);
        for (server, ensemble) in [(1, 10), (2, 11)] {
            let founders = vec![(server, 5)];
            let initial = Membership::default();
            let identity = Identified { ensemble, raft_id: u64::from(server), founders, initial };
            founding.heard(server, Introduction::Founded(identity), 0);
        }
        let conflict = founding.decide(1).unwrap_err();
        assert_eq!(conflict.ensembles, [(1, 10), (2, 11)]);
        assert!(conflict.to_string().contains("server 2 to 0000000000000000000000000000000b"));
    }

    #[test]
    fn those_who_put_their_data_away_found_nothing_and_help_nobody_to() {
        for joining in 1..=2 {
            let mut world = World::new(3, 0);
            world.start_empty(1);
            world.start_empty(2);
            let State::Empty(founding) = &mut world.servers[joining - 1] else { panic!() };
            founding.only_joins = true;
            world.run_ms(10_000);
            assert_eq!(world.ensembles(), [], "server {joining} of 1 and 2");
        }
        let mut world = World::new(3, 0);
        (1..=3).for_each(|id| world.start_empty(id));
        world.run_ms(500);
        world.stop(3);
        world.start_empty(3);
        let State::Empty(founding) = &mut world.servers[2] else { panic!() };
        founding.only_joins = true;
        world.run_ms(500);
        assert!(world.decision(3).is_some_and(|decision| decision.identity.raft_id > 0xff));
    }

    #[test]
    fn strangers_are_not_heard() {
        let chance = Chance { nonce: 1, ensemble: 2, incarnation: 3 };
        let mut founding = Founding::new(1, &servers(3, 0), chance);
        let (founders, initial) = (Vec::new(), Membership::default());
        let identity = Identified { ensemble: 9, raft_id: 8, founders, initial };
        founding.heard(8, Introduction::Founded(identity.clone()), 0);
        founding.heard(1, Introduction::Founded(identity), 0);
        assert_eq!(founding.decide(1), Ok(None));
    }
}
