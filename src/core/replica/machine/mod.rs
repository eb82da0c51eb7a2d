//! MACHINE: what all servers agree on, and the entries that change it.
//!
//! *Owns* the replicated state (znodes, sessions, both clocks), the format of entries, and the text of the
//! members. *Invariant*: the same entries in the same order give the same state and digest. *Never* looks at a
//! clock, at a connection, or at who leads.

mod applied_state;
mod audit;
mod foreign;
mod foreign_load;
mod leaving;
pub(in crate::replica) mod members;
mod migration;
mod migration_record;
mod migration_step;
mod rule_flags;
mod sessions;
#[cfg(test)]
mod settings_tests;
pub mod state;
pub mod txn;
pub mod version;
mod write;

pub use foreign::{ForeignApplied, ForeignResult};
pub use foreign_load::ForeignLoad;
pub use migration::{EPOCH_JUMP, cutover_epoch, followed_session, is_moved};
pub use migration_record::{Decider, Migration, Phase};
pub use migration_step::{ADDRESSES_MAX, MigrateOp};
pub use state::new_ensemble;
pub use state::{Machine, STAMP_LEAD_MS_MAX};

pub(in crate::replica) use applied_state::AppliedState;
pub(in crate::replica) use audit::asked;
pub(in crate::replica) use leaving::Underway;
pub(in crate::replica) use migration::changes_members;
pub(in crate::replica) use rule_flags::xid_of;
pub(in crate::replica) use sessions::{NO_CONNECTION, Session, Sessions};
pub(in crate::replica) use state::{Applied, SessionChange, open_entry};
pub(in crate::replica) use txn::{
    Batch, BatchBuilder, EntryTime, Identities, Origin, Txn, TxnOp, is_current, members_mark,
};
