//! How members join and leave: an operator asks for one change, among elections, a crash and messages that are late.
//!
//! *Owns* the operator's request, and what must be so behind its answer. *Invariants*, beside those of
//! `ensemble/rules.rs`:
//!
//! * once a removal is answered, the removed servers may stop for good, and any majority of those that stay goes on: a
//!   leader is elected and they serve, whatever was under way is lost, and although disks forget that entries are
//!   committed;
//! * once faults are over, those that stay serve in any case, and a server that was to join serves, too, if that was
//!   answered.

use std::fmt;

use bytes::Bytes;
use lockkeeper_core::proto::{Request, Text};

use super::ensemble::host::line_of;
use super::explorer::{Scope, Violation};
use super::sessions::{self, Faults, Sessions};

/// Rounds of a second within which all must be well, once faults are over.
const ROUNDS_MAX: u32 = 20;
/// Rounds for which it must stay so. A server serves for a second without a leader.
const CALM_ROUNDS: u32 = 2;

/// How long the operator's session lives, who says nothing but what is asked for: longer than an answer may take.
pub const OPERATOR_MS: i32 = 6000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Add(u8),
    Remove(Vec<u8>),
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Members {
    /// The servers, the operator's connection, and the faults.
    pub sessions: Sessions,
    pub change: Change,
    pub must_recover: bool,
}

impl Members {
    /// Servers that leave an ensemble of these, for an operator at the server of that place (see
    /// [`Sessions::clients`]).
    pub fn remove(ids: &[u8], leave: &[u8], place: usize, faults: Faults) -> Self {
        let (ids, leave) = (ids.to_vec(), leave.to_vec());
        let sessions = Sessions {
            founders: ids.clone(),
            ids,
            clients: vec![place],
            timeout_ms: OPERATOR_MS,
            faults,
            ..Sessions::new()
        };
        Self { sessions, change: Change::Remove(leave), must_recover: true }
    }

    /// A server that joins the others.
    pub fn add(ids: &[u8], joins: u8, place: usize, faults: Faults) -> Self {
        let founders = ids.iter().copied().filter(|id| *id != joins).collect();
        let sessions = Sessions { founders, ..Self::remove(ids, &[], place, faults).sessions };
        Self { sessions, change: Change::Add(joins), must_recover: true }
    }

    fn leave(&self) -> &[u8] {
        match &self.change {
            Change::Add(_) => &[],
            Change::Remove(ids) => ids,
        }
    }
}

pub struct World {
    inner: sessions::World,
    /// The number of the request.
    asked: Option<i32>,
    /// Since faults are over, and of those the last in which all has been well.
    rounds: Option<(u32, u32)>,
}

impl World {
    /// Whether the change was answered: `Some(true)`, it is made.
    fn answer(&self) -> Option<bool> {
        let asked = self.asked?;
        let mut answers = self.inner.clients[0].answers.iter();
        answers.find(|(xid, _)| *xid == asked).map(|(_, err)| *err == 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Of(sessions::Choice),
    Reconfig,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(choice) => choice.fmt(f),
            Self::Reconfig => write!(f, "the operator asks for the change of members"),
        }
    }
}

impl Members {
    fn world(&self) -> World {
        let mut inner = self.sessions.world();
        let auth = Bytes::from_static(b"super:test");
        let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(auth) };
        inner.ask(0, &auth).expect("it is the operator");
        World { inner, asked: None, rounds: None }
    }

    /// Faults end with the answer of a removal, and what then happens is the worst that may.
    fn end_faults(&self, world: &mut World) -> Result<(), Violation> {
        let is_made = world.answer() == Some(true);
        let left = world.inner.left.crashes;
        world.inner.left = Faults::default();
        let ensemble = &mut world.inner.ensemble;
        let leave: Vec<u8> = if is_made { self.leave().to_vec() } else { Vec::new() };
        for id in &leave {
            if ensemble.runs(*id) {
                ensemble.kill(*id)?;
            }
        }
        let stay: Vec<u8> =
            self.sessions.ids.iter().copied().filter(|id| !leave.contains(id)).collect();
        // A server that crashed stays away where the others are a majority without it.
        let has_crashed = left < self.sessions.faults.crashes;
        for id in &stay {
            let is_needed = !(is_made && has_crashed && stay.len() > 2 && !leave.is_empty());
            if !ensemble.runs(*id) && is_needed {
                ensemble.start(*id, &self.sessions.ids)?;
            }
            ensemble.wake(*id)?;
            ensemble.release_disk(*id)?;
        }
        let held: Vec<(u8, u8)> = ensemble.links.keys().copied().collect();
        for (from, to) in held {
            ensemble.release(from, to)?;
        }
        Ok(())
    }

    fn all_is_well(&self, world: &World) -> bool {
        let ensemble = &world.inner.ensemble;
        let must_serve = |id: &u8| {
            let is_member = match self.change {
                Change::Add(joins) => *id != joins || world.answer() == Some(true),
                // Whether it is a member still, it need not know.
                Change::Remove(_) => !self.leave().contains(id),
            };
            is_member && ensemble.runs(*id)
        };
        let mut ids = self.sessions.ids.iter().filter(|id| must_serve(id));
        let leader = |id: &u8| ensemble.host(*id).replica.as_ref()?.status().leader;
        ids.all(|id| {
            ensemble.host(*id).is_serving()
                && leader(id).is_some_and(|leader| ensemble.runs(leader))
        })
    }
}

impl Scope for Members {
    type World = World;
    type Choice = Choice;

    fn beginnings(&self) -> Vec<(String, World)> {
        let world = self.world();
        let leader = world.inner.ensemble.leader().expect("it was there");
        let at = world.inner.clients[0].conn.map_or(0, |(server, _)| server);
        let words = format!(
            "server {leader} of {:?} leads, the operator is connected to {at}, the change is {:?}",
            self.sessions.founders, self.change
        );
        vec![(words, world)]
    }

    fn begin(&self, _: usize) -> World {
        self.world()
    }

    fn cloned(&self, _: &World) -> Option<World> {
        None
    }

    fn choices(&self, world: &World) -> Vec<Choice> {
        let of = self.sessions.choices(&world.inner).into_iter();
        // The operator's own session is of no interest.
        let of = of.filter(|choice| !matches!(choice, sessions::Choice::Ask(_)));
        let mut choices: Vec<Choice> = of.map(Choice::Of).collect();
        let can_ask = world.inner.clients[0]
            .conn
            .is_some_and(|(server, _)| !world.inner.ensemble.host(server).stands_still);
        if world.asked.is_none() && can_ask && !choices.is_empty() {
            choices.push(Choice::Reconfig);
        }
        choices
    }

    fn take(&self, world: &mut World, choice: Choice) -> Result<(), Violation> {
        match choice {
            Choice::Of(choice) => self.sessions.take(&mut world.inner, choice),
            Choice::Reconfig => {
                let list = |ids: &[u8]| {
                    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                    Text::from(ids.join(","))
                };
                let (joining, leaving) = match &self.change {
                    Change::Add(id) => (Some(line_of(*id)), None),
                    Change::Remove(ids) => (None, Some(list(ids))),
                };
                let change = Request::Reconfig { joining, leaving, members: None, version: -1 };
                world.asked = Some(world.inner.clients[0].next_xid + 1);
                world.inner.ask(0, &change)
            }
        }
    }

    fn fingerprint(&self, world: &World) -> u128 {
        let World { inner, asked, rounds } = world;
        let of = self.sessions.fingerprint(inner);
        twox_hash::XxHash3_128::oneshot(format!("{of} {asked:?} {rounds:?}").as_bytes())
    }

    fn recover(&self, world: &mut World) -> Result<bool, Violation> {
        let (rounds, calm) = world.rounds.map_or((0, 0), |(rounds, calm)| (rounds + 1, calm));
        if rounds == 0 {
            self.end_faults(world)?;
        }
        world.inner.ensemble.pass(1_000_000)?;
        let calm = if self.all_is_well(world) { calm + 1 } else { 0 };
        world.rounds = Some((rounds, calm));
        if rounds >= ROUNDS_MAX && calm == 0 {
            let made = match world.answer() {
                Some(true) => "was made and answered",
                Some(false) => "was refused",
                None => "was not answered",
            };
            return Err(format!(
                "not all serve {ROUNDS_MAX} s after the last fault; the change {made}"
            ));
        }
        Ok(calm >= CALM_ROUNDS)
    }

    fn must_recover(&self) -> bool {
        self.must_recover
    }
}
