//! SOCKETS AND TASKS: one running server, in this process.
//!
//! *Owns* [`Server`], the handle by which a program (the binary, a test, an application that wants a
//! lock server of its own) starts and stops one. *Invariants*: nothing is bound or created before
//! the configuration is known to be right; the client address is taken before the data is touched;
//! no client is answered before the server serves; when `stop` has returned, every thread has ended and
//! the data directory is free.

mod clients;
mod clock;
mod cpu_policy;
mod credentials;
mod disk;
mod driver;
mod error;
mod gssapi;
mod io_threads;
mod lifecycle;
pub mod limits;
mod log_lines;
mod mailbox;
mod metrics;
mod operators;
mod peer;
mod ports;
mod stop;
mod transport;
mod zookeeper;

pub use credentials::{file_faults, sasl_setup};
pub use error::{ServerError, StartError};
#[cfg(feature = "gssapi")]
pub use gssapi::{KEY_TAB_VARIABLE, is_in_environment};
pub(crate) use lifecycle::offline;
pub use lifecycle::{Builder, Ensemble, EnsembleBuilder, Recovered, Server};
