//! LIFE CYCLE: how a server is configured, started, and put together.
//!
//! *Owns* the order of a start, what is opened when, and the builders of a server and of an ensemble within one
//! process.
//! *Invariants*: nothing is bound or created before the configuration is known to be right; no client is answered
//! before the server serves. *Never* takes part in what happens while a server runs: the driver does.

mod builder;
mod ensemble;
mod handle;
mod member;
pub(crate) mod offline;
mod ports;
mod recovered;
mod recovery;
mod settings;
mod start;

pub use builder::Builder;
pub use ensemble::{Ensemble, EnsembleBuilder};
pub use handle::Server;
pub use recovered::Recovered;
