//! CREDENTIALS: keys, certificates, users and secrets in files, as they are now.
//!
//! *Owns* how these files are read, when they are looked at again, and what is logged of them. *Invariant*: a file that
//! cannot be used leaves in use what was in use.

mod certificates;
mod sasl;
mod secrets;
mod users;

pub(in crate::server) use certificates::{
    Followed, of_clients, of_metrics, of_operators, of_peers, of_zookeeper,
};
pub(in crate::server) use sasl::learner_login;
pub use sasl::sasl_setup;
pub use secrets::file_faults;
pub(in crate::server) use secrets::{warn_of_readable, warn_of_unknown_peers};
pub(in crate::server) use users::FollowedUsers;
