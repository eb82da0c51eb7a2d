//! Simulated foundings: servers with mixed directories are started, stopped, cut off and given other lines,
//! in any order, until they are one ensemble or say why not.
//!
//! *Owns* the run of one seed. *Invariants*: the same seed gives the same run; the protocol of founding and
//! the replica are the product's own, while what is right is written here without looking at them:
//!
//! * servers with lines that serve clients all belong to one ensemble;
//! * an ensemble is founded with the consent of all, but for participants that an operator has left out, of which
//!   nothing is known that speaks against it;
//! * what a server on its own kept is in every ensemble that goes on from it, and stays on its disk unless
//!   an operator sets it aside;
//! * what was acknowledged stays;
//! * in the end, with equal lines and an operator who follows what the servers say, all serve, or say why
//!   they do not.

mod host;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::conn::Violation;
use super::rng::Rng;
pub use world::SeenOfLoss;
use world::World;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Ensembles that were founded with a state, and by empty servers.
    pub with_state: u64,
    pub empty: u64,
    /// Servers that joined later.
    pub joined: u64,
    /// Ensembles among these that an operator had founded without some participants.
    pub without: u64,
    /// Servers that came too late with a state, and those that the operator had join.
    pub late: u64,
    pub set_aside: u64,
    /// Servers that were kept from founding by one that served by itself.
    pub serving_alone: u64,
    pub two_states: u64,
    pub unequal_lines: u64,
    /// Unused directories that began anew.
    pub unused: u64,
    pub restarts: u64,
    pub writes: u64,
    pub simulated_ms: u64,
}

impl Seen {
    /// Adds what another run has seen.
    pub fn add(&mut self, other: &Seen) {
        for (mine, theirs) in self.all_mut().into_iter().zip(other.all()) {
            *mine += theirs.1;
        }
    }

    /// All of it by name.
    pub fn all(&self) -> [(&'static str, u64); 13] {
        [
            ("with_state", self.with_state),
            ("empty", self.empty),
            ("without", self.without),
            ("joined", self.joined),
            ("late", self.late),
            ("set_aside", self.set_aside),
            ("serving_alone", self.serving_alone),
            ("two_states", self.two_states),
            ("unequal_lines", self.unequal_lines),
            ("unused", self.unused),
            ("restarts", self.restarts),
            ("writes", self.writes),
            ("simulated_ms", self.simulated_ms),
        ]
    }

    fn all_mut(&mut self) -> [&mut u64; 13] {
        [
            &mut self.with_state,
            &mut self.empty,
            &mut self.without,
            &mut self.joined,
            &mut self.late,
            &mut self.set_aside,
            &mut self.serving_alone,
            &mut self.two_states,
            &mut self.unequal_lines,
            &mut self.unused,
            &mut self.restarts,
            &mut self.writes,
            &mut self.simulated_ms,
        ]
    }
}

/// Ids of servers: in every fourth seed those of which something else could be meant.
const IDS: [u8; 5] = [1, 2, 3, 4, 5];
const IDS_AT_THE_EDGES: [u8; 5] = [0, 128, 254, 1, 127];

/// For how long a seed that went well was simulated.
pub fn simulated_ms(run: &Result<Seen, Violation>) -> Option<u64> {
    run.as_ref().ok().map(|seen| seen.simulated_ms)
}

/// Plays a seed with three or five servers.
///
/// # Errors
/// The rule that was broken, and when.
pub fn run(seed: u64, prints: bool) -> Result<Seen, Violation> {
    let mut rng = Rng::new(seed, 20);
    let servers = if rng.chance(700) { 3 } else { 5 };
    let acts = rng.range(5, 25);
    let played = catch_unwind(AssertUnwindSafe(|| {
        let ids = if seed.is_multiple_of(4) { IDS_AT_THE_EDGES } else { IDS };
        let mut world = World::new(rng, &ids[..servers], prints);
        for _ in 0..acts {
            world.act();
            world.live()?;
        }
        world.heal();
        world.settle()?;
        Ok(world.seen())
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of unknown kind")))
    })
}

/// Plays a seed of an ensemble that loses its majority for ever, with three or five servers. What it has seen, and for
/// how many milliseconds it was simulated.
///
/// # Errors
/// The rule that was broken.
pub fn run_loss(seed: u64, prints: bool) -> Result<(SeenOfLoss, u64), Violation> {
    let mut rng = Rng::new(seed, 22);
    let servers = if rng.chance(400) { 3 } else { 5 };
    let played =
        catch_unwind(AssertUnwindSafe(|| World::lose_and_go_on(rng, &IDS[..servers], prints)));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of unknown kind")))
    })
}
