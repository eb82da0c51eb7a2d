//! Removals of members: an operator removes servers of an ensemble, and others stop at the very answer.
//!
//! *Owns* who is removed, and who stops then; nothing goes wrong before the answer. *Rule*: after the answer to a
//! removal, any majority of those that stay elects a leader and takes a write, whichever servers stop at that
//! moment and whatever they had still to send, and also if those that go on lose their power then.

pub(crate) mod disk;
mod judge;
pub(crate) mod world;

use lockkeeper_core::proto::{Request, Text};
use lockkeeper_core::replica::Replica;

use super::conn::Violation;
use super::rng::Rng;
use world::{World, create};

/// How long an attempt to write may take, and how many there may be.
const ATTEMPT_US: u64 = 5_000_000;
const ATTEMPTS_MAX: u64 = 10;
/// The operator's connection, and that of a client that writes all the time.
const OPERATOR: u64 = 1;
const WRITER: u64 = 2;
/// The operator's request.
const REMOVAL: i32 = 1000;

/// A seed that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    pub outcome: Outcome,
    pub simulated_ms: u64,
}

/// What became of the removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The removal was answered, and those that stay went on.
    Acknowledged,
    /// It was refused, or its connection was closed.
    Unknown,
}

/// Plays a seed.
///
/// # Errors
/// The rule that was broken.
pub fn run(seed: u64) -> Result<Played, Violation> {
    let mut rng = Rng::new(seed, 40);
    let count = *rng.pick(&[3, 4, 5, 5, 6, 7]);
    let mut world = World::new(rng, count, &(1..=count).collect::<Vec<u8>>(), false);
    let outcome = play(&mut world)?;
    Ok(Played { outcome, simulated_ms: world.now_us / 1000 })
}

/// For how long a seed that went well was simulated.
pub fn simulated_ms(played: &Result<Played, Violation>) -> Option<u64> {
    played.as_ref().ok().map(|played| played.simulated_ms)
}

fn play(world: &mut World) -> Result<Outcome, Violation> {
    world.until("a leader", |world| world.serving().is_some())?;
    let count = world.servers.len();
    let leaves = draw_leaving(world);
    // As many as may be down are, of those that leave.
    let mut down: Vec<u8> = leaves.clone();
    down.truncate((count - 1) / 2);
    let is_down = world.rng.chance(700);
    if is_down {
        down.iter().for_each(|server| world.kill(*server));
    }
    let stays: Vec<u8> = world.ids().filter(|id| !leaves.contains(id)).collect();
    world.until("a leader", |world| world.serving().is_some())?;
    let asked = *world.rng.pick(&stays);
    world.until("it serves", |world| world.replica(asked).is_some_and(Replica::is_serving))?;
    if !world.connect_super_user(asked, OPERATOR)? {
        return Ok(Outcome::Unknown);
    }
    world.connect(asked, WRITER);
    let leaving: Vec<String> = leaves.iter().map(ToString::to_string).collect();
    let leaving = Some(Text::from(leaving.join(",")));
    let removal = Request::Reconfig { joining: None, leaving, members: None, version: -1 };
    world.writer = Some((asked, WRITER));
    let pause_us = world.rng.below(300_000);
    world.pass(pause_us)?;
    world.ask(asked, OPERATOR, REMOVAL, &removal);
    world.until("an answer", |world| {
        world.is_closed(asked, OPERATOR) || world.answer(asked, OPERATOR, REMOVAL).is_some()
    })?;
    if world.answer(asked, OPERATOR, REMOVAL) != Some(0) {
        return Ok(Outcome::Unknown);
    }
    any_majority_goes_on(world, &stays)?;
    Ok(Outcome::Acknowledged)
}

/// At least two stay.
fn draw_leaving(world: &mut World) -> Vec<u8> {
    let mut ids: Vec<u8> = world.ids().collect();
    let leave = 1 + world.rng.index(ids.len() - 2);
    (0..leave).map(|_| ids.swap_remove(world.rng.index(ids.len()))).collect()
}

/// Now, at the answer: a majority of those that stay goes on, and nothing else does.
fn any_majority_goes_on(world: &mut World, stays: &[u8]) -> Result<(), Violation> {
    world.writer = None;
    let mut goes_on = stays.to_vec();
    while goes_on.len() > stays.len() / 2 + 1 {
        goes_on.swap_remove(world.rng.index(goes_on.len()));
    }
    // Those that stop have sent what they have sent, or the links have lost it.
    if world.rng.chance(700) {
        world.relink();
    }
    for id in world.ids().filter(|id| !goes_on.contains(id)) {
        world.kill(id);
    }
    if world.rng.chance(400) {
        for id in &goes_on {
            world.kill(*id);
        }
        for id in &goes_on {
            world.start(*id);
        }
    }
    let what = format!("a leader of {goes_on:?}, after the answer to a removal left {stays:?}");
    takes_a_write(world, &what)
}

/// A leader is elected and takes a write: one that was sent away, or asked a leader that is none any more, asks again.
pub(super) fn takes_a_write(world: &mut World, what: &str) -> Result<(), Violation> {
    for attempt in 0..ATTEMPTS_MAX {
        let conn = 1_000_000 + attempt;
        world.until(what, |world| world.serving().is_some())?;
        let leader = world.serving().expect("waited for");
        world.connect(leader, conn);
        world.next_xid += 1;
        let xid = world.next_xid;
        let given_up_us = world.now_us + ATTEMPT_US;
        let is_over = |world: &World| world.is_closed(leader, conn) || world.now_us > given_up_us;
        let is_open = |world: &World| !world.answers(leader, conn).is_empty();
        world.until(what, |world| is_open(world) || is_over(world))?;
        world.ask(leader, conn, xid, &create(xid));
        let is_written = |world: &World| world.answer(leader, conn, xid) == Some(0);
        world.until(what, |world| is_written(world) || is_over(world))?;
        if is_written(world) {
            return Ok(());
        }
    }
    Err(format!("no write is taken by {what}"))
}
