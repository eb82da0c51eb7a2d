//! LIFE CYCLE: how a server is configured, started, and put together.
//!
//! *Owns* the order of a start, what is opened when, and the builders of a server and of an ensemble within one
//! process.
//! *Invariants*: nothing is bound or created before the configuration is known to be right; no client is answered
//! before the server serves. *Never* takes part in what happens while a server runs: the driver does.

mod builder;
mod certificates;
mod ensemble;
mod member;
mod ports;
mod recovery;
mod sasl;
mod secrets;
mod settings;
mod start;
mod users;

pub use builder::Builder;
pub(in crate::server) use certificates::{Followed, of_peers as certificates_of_peers};
pub use ensemble::{Ensemble, EnsembleBuilder};
pub use sasl::sasl_setup;
pub use secrets::file_faults;
pub(in crate::server) use settings::{SERVER_ID_STANDALONE, tree_options};
pub use start::Recovered;
pub(in crate::server) use start::Running;
pub(in crate::server) use users::FollowedUsers;
