//! Deterministic simulation of a server: the replica and the disk code as they are, everything
//! around them made up from a seed.
//!
//! | file | part |
//! |---|---|
//! | `config.rs` | what a seed is: the swarm |
//! | `rng.rs`, `trace.rs`, `coverage.rs`, `tempo.rs` | chance, what happened, what was seen, how fast |
//! | `disk.rs`, `sled.rs` | the fakes below the server: a disk that forgets, a sled that fails |
//! | `host.rs`, `server.rs` | a machine, and the shell's part around the replica, in steps |
//! | `client.rs`, `ops.rs`, `lock.rs` | the fakes above: clients that send real frames |
//! | `upgrades.rs` | programs of two releases, and the operator who finishes an upgrade |
//! | `foreign.rs` | a program in the network that is no server |
//! | `network.rs`, `transfer.rs` | links between servers, images on their way |
//! | `world.rs`, `faults.rs`, `run.rs` | time and the clients' network, fate, the phases of a run |
//! | `bounds.rs` | how much a world may hold |
//! | `removals.rs`, `removals/` | a world of its own: who stops at the answer to a removal of members |
//! | `changes.rs` | the same world: any change of members, among crashes, old copies and emptied disks |
//! | `founding.rs`, `founding/` | another world: how servers become an ensemble |
//! | `reaped.rs` | how many znodes may be removed in which time |
//! | `clocks.rs` | wall clocks that are wrong, and the rules of time |
//! | `hangs.rs` | disks whose syncs return late, by seconds |
//! | `rollback.rs` | old copies of disks, and what was promised since they were made |
//! | `operator.rs` | who empties servers, one at a time, and how they come back |
//! | `model.rs`, `history.rs`, `sessions.rs` | what is right, written without looking at `src/tree` |
//! | `observer.rs` | a run as steps of the model in spec/ |
//! | `catalogue.rs` | deliberate bugs, and how they are hunted |
//! | `checker.rs`, `judge.rs`, `agreement.rs`, `membership.rs`, `view.rs`, `conn.rs` | whether servers say just that |
//!
//! Used by the test `simulation` (`runs/`) and by the examples `simulate` and `explore`.

#![allow(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "its users are the programs of this repository, not the public"
)]

pub mod agreement;
pub mod attacks;
pub mod bounds;
pub mod busy;
#[cfg(feature = "mutants")]
pub mod catalogue;
pub mod changes;
pub mod checker;
pub mod client;
pub mod clocks;
pub mod config;
pub mod conn;
pub mod coverage;
pub mod disk;
pub mod exploration;
mod faults;
mod foreign;
pub mod founding;
mod hangs;
pub mod history;
pub mod host;
mod judge;
pub mod lock;
pub mod membership;
pub mod migration;
pub mod model;
pub mod network;
pub mod observer;
mod operator;
pub mod ops;
mod reaped;
pub mod removals;
pub mod rng;
pub mod rollback;
pub mod run;
pub mod server;
pub mod sessions;
pub mod sled;
pub mod tempo;
pub mod trace;
pub mod transfer;
mod upgrades;
pub mod view;
mod wires;
pub mod world;
pub mod zookeeper;
