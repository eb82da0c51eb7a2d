//! MACHINE: what all servers agree on, and the entries that change it.
//!
//! *Owns* the replicated state (znodes, sessions, both clocks), the format of entries, and the text of the
//! members. *Invariant*: the same entries in the same order give the same state and digest. *Never* looks at a
//! clock, at a connection, or at who leads.

mod applied_state;
mod audit;
mod foreign;
pub(in crate::replica) mod members;
mod migration;
mod sessions;
pub mod state;
pub mod txn;
pub mod version;
mod write;

pub use foreign::{ForeignApplied, ForeignLoad, ForeignResult};
pub use migration::{
    ADDRESSES_MAX, EPOCH_JUMP, MigrateOp, Migration, Phase, cutover_epoch, followed_session,
    is_moved,
};
pub use state::new_ensemble;
pub use state::{Machine, STAMP_LEAD_MS_MAX};

pub(in crate::replica) use applied_state::AppliedState;
pub(in crate::replica) use sessions::{NO_CONNECTION, Session, Sessions};
pub(in crate::replica) use state::{Applied, SessionChange, open_entry};
pub(in crate::replica) use txn::{
    Batch, BatchBuilder, EntryTime, Identities, Origin, Txn, TxnOp, is_current, members_mark,
};
