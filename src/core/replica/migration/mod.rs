//! MIGRATION, the leader's half: the link with ZooKeeper's leader, and what waits for an answer of it.
//!
//! *Owns* [`Following`]: the link, requests that are on their way to ZooKeeper, transactions of ZooKeeper on their way
//! into the log, and a cutover that an operator has asked for. *Invariants*: of all servers only the one that leads
//! has a link; a request is handed to ZooKeeper once, and what became of it is known by its transaction alone: where
//! the link breaks before that, its client's connection is closed and never answered; transactions go into the log in
//! ZooKeeper's order. *Never* changes the state of the machine: the log does.
//!
//! What all servers agree on is in `machine/migration/`; what joins both is in `steps/migration.rs`, for requests of
//! clients in `steps/migration_requests.rs`, and for the cutover in `steps/cutover.rs`.

mod copies;
mod cutover;
mod following;
mod hosts;
mod waiting;

pub(in crate::replica) use cutover::Stage;
pub(in crate::replica) use following::{Following, PROPOSED_AT_ONCE};
pub use following::{LinkInput, MigrateOrder, ZooKeeperWork};
pub use hosts::ZooKeeperHost;
pub(in crate::replica) use hosts::ZooKeeperHosts;
pub(in crate::replica) use waiting::Unproven;

#[cfg(test)]
mod tests;
