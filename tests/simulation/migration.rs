//! Live migrations: three servers follow a model of ZooKeeper's leader, under faults, and take over.
//!
//! *Owns* how a seed is played. The world is `migration/world.rs`, its rules are in `migration/judge.rs`.

mod client;
mod host;
mod judge;
mod world;

pub use world::Seen;

use super::conn::Violation;
use world::World;

/// Plays a seed. What it has seen.
///
/// # Errors
/// The rule that was broken.
pub fn run(seed: u64, prints: bool) -> Result<Seen, Violation> {
    let mut world = World::new(seed, prints);
    world
        .play()
        .map_err(|violation| format!("seed {seed}, step {}: {violation}", world.steps()))?;
    Ok(world.seen)
}
