//! Lockkeeper: a ZooKeeper-compatible lock and coordination server.
//!
//! ```text
//!   cli, main      the commands             recipes  locks, over a client (feature "recipes")
//!   server         sockets and tasks          admin   what operators see
//!   bench          a load generator that knows nothing of the rest (feature "bench")
//!   storage        disk: log, images, sled
//!   -------------- below: deterministic, no I/O, no clock (feature "server" off) --------------
//!   replica        one server: consensus, sessions, watches, order
//!   tree           the znodes                 config  zoo.cfg
//!   locks          which znodes are locks, and whose
//!   proto          the wire
//! ```
//!
//! A server of one's own, inside a program or a test:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let server = lockkeeper::Server::builder()
//!     .data_dir(std::env::temp_dir().join(format!("lockkeeper-doc-{}", std::process::id())))
//!     .address("127.0.0.1", 0)
//!     .start()
//!     .await?;
//! println!("clients connect to {}", server.connect_string());
//! assert!(server.status().serving);
//! let directory = server.data_dir().expect("it is not in memory").to_path_buf();
//! server.stop().await?; // everything that was acknowledged is on the disk
//! # std::fs::remove_dir_all(directory)?;
//! # Ok(())
//! # })
//! # }
//! ```

#[macro_use]
#[doc(hidden)]
pub mod mutants;

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "server")]
pub mod cli;
pub mod config;
pub mod locks;
pub mod proto;
#[cfg(feature = "recipes")]
pub mod recipes;
pub mod replica;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod storage;
#[cfg(feature = "server")]
pub mod supervision;
pub mod tree;

#[cfg(feature = "server")]
pub use server::{Builder, Ensemble, EnsembleBuilder, Server, ServerError, StartError};
