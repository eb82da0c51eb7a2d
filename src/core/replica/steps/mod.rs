//! STEPS: what one input, or one turn of the shell, does to several owners.
//!
//! *Owns* nothing: each file is a part of `Replica` that joins two owners or more, in the order in which things have to
//! happen. *Invariant*: what concerns one owner alone is that owner's method, in its room; no owner and no room knows
//! of these steps. *Never* holds state: a field that is needed here belongs to an owner.

mod apply;
mod chores;
mod clocks;
mod compare;
mod connect;
mod cutover;
mod hung_disk;
mod image;
mod inspect;
mod leadership;
mod liveness;
mod locks;
mod measure;
pub(super) mod membership;
mod migration;
mod migration_requests;
mod migration_view;
mod obstacle;
mod peer_message;
mod propose;
mod requests;
mod tick;
mod votes;
mod znode;
