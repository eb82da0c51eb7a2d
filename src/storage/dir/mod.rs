//! DATA DIRECTORY: whose it is, how it is opened, and what is done with one that must not be used.
//!
//! *Owns* the identity, the lock, recovery, repair of a lost copy, the count of errors, and what `--rejoin` sets
//! aside. *Invariants*: a directory that is refused is not changed; a server never starts with less than it has
//! acknowledged. *Never* deletes what may be data.

mod error_count;
mod format_switch;
mod identity;
mod last_backup;
mod open;
mod open_error;
#[cfg(test)]
mod open_tests;
mod place;
mod quarantine;
mod read;
mod recovery;
mod repair;
mod replacement;
mod seed;
mod unusable;

pub use error_count::ErrorCount;
pub use format_switch::FormatSwitch;
pub use identity::Identity;
#[cfg(test)]
pub(crate) use identity::IdentityError;
pub use last_backup::BackupMade;
pub use open::{Opened, Options, Report, open, peek};
pub use open_error::OpenError;
pub use place::{Lock, Place, hold, is_initialized};
pub use quarantine::begin_anew;
pub use quarantine::{set_aside, was_set_aside};
pub use read::{ReadState, read};
pub use repair::Mending;
pub use replacement::{finish_replacement, replace};
pub use seed::{Seed, origin, seed};
pub use unusable::{Unusable, mark_unusable};
