//! Lockkeeper: a ZooKeeper-compatible lock and coordination server.
//!
//! Three things can be embedded: a [`Server`] or an [`Ensemble`] inside a program or a test (feature `server`),
//! the locks as a client's library ([`recipes`]), and the deterministic core, [`Replica`], in an event loop of
//! one's own (always there). What stands in this documentation is what a version promises; everything else is private.
//!
//! ```text
//!   cli, main      the commands             recipes  locks, over a client (feature "recipes")
//!   server         sockets and tasks          admin   what operators see
//!   bench          a load generator that knows nothing of the rest (feature "bench")
//!   transfer       ZooKeeper's data directories, read and written (feature "cli")
//!   storage        disk: log, images, sled    tls    keys, certificates, what listeners do
//!   peer_auth      how servers prove to each other that they share a secret; no I/O
//!   -------------- below: deterministic, no I/O, no clock (feature "server" off) --------------
//!   replica        one server: consensus, sessions, watches, order
//!   tree           the znodes                 config  zoo.cfg
//!   locks          which znodes are locks, and whose
//!   learner        ZooKeeper's quorum protocol, as one of its observers speaks it
//!   zookeeper      the records of ZooKeeper's own files and quorum protocol
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
//!
//! The core of a server without any disk, clock or socket; the caller gives it time and bytes, and writes down what
//! it is told to:
//!
//! ```
//! use lockkeeper::{ClientRequest, ConnectRequest, Input, Machine, Ready, Replica, Restored, Setup, TreeOptions};
//!
//! # fn main() -> Result<(), String> {
//! /// Does what the replica says is to be done, until there is nothing left to do.
//! fn turn(replica: &mut Replica) -> Result<Vec<u8>, String> {
//!     let mut sent = Vec::new();
//!     while let Some(ready) = replica.ready()? {
//!         let Ready { append, client, .. } = ready;
//!         // A server appends `append.entries` to its log and calls fsync here.
//!         if let Some(append) = append {
//!             replica.persisted(append.number);
//!         }
//!         client.into_iter().for_each(|outgoing| sent.extend(outgoing.frames));
//!     }
//!     Ok(sent)
//! }
//!
//! let machine = Machine::fresh(TreeOptions::default());
//! let mut replica = Replica::new(Setup::default(), machine, Restored::default())?;
//! replica.step(Input::Tick { now_us: 50_000, wall_ms: 1_700_000_000_000 });
//! turn(&mut replica)?; // a lone voter elects itself
//!
//! let request = ConnectRequest {
//!     protocol_version: 0,
//!     last_zxid_seen: 0,
//!     timeout_ms: 10_000,
//!     session_id: 0,
//!     password: vec![0; 16].into(),
//!     read_only: Some(false),
//! };
//! let remote = std::net::IpAddr::from([127, 0, 0, 1]);
//! replica.step(Input::Connected { conn: 1, remote, remote_port: 40_000, proven: Vec::new(), request });
//! assert_eq!(turn(&mut replica)?.len(), 4 + 37); // the answer to the connect request, in its frame
//!
//! // xid 1, opcode 3 (exists), the path, no watch
//! let payload = b"\0\0\0\x01\0\0\0\x03\0\0\0\x01/\0".to_vec();
//! let requests = vec![ClientRequest::decode(payload.into()).expect("it has a header")];
//! replica.step(Input::Requests { conn: 1, requests });
//! assert_eq!(turn(&mut replica)?.len(), 4 + 16 + 68); // header and stat
//! # Ok(())
//! # }
//! ```

// What only this project's own tests reach is idle without the feature that hands it out; with it, nothing may be idle
// or more public than it is reached.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]
#![cfg_attr(feature = "internals", deny(unreachable_pub))]
#![deny(missing_docs)]

// The deterministic core, a crate of its own: the compiler keeps what is here out of it.
#[macro_use]
extern crate lockkeeper_core;
use lockkeeper_core::{config, learner, locks, mutants, proto, replica, sasl, tree, zookeeper};
#[cfg(feature = "server")]
use lockkeeper_peer_auth as peer_auth;
#[cfg(feature = "server")]
use lockkeeper_storage as storage;
#[cfg(all(feature = "server", not(test)))]
use lockkeeper_supervision as supervision;
// Unit tests spawn outside of a server, which only a supervision that is compiled with them allows.
#[cfg(all(feature = "server", test))]
#[path = "supervision/lib.rs"]
#[allow(unreachable_pub)]
mod supervision;

#[cfg(feature = "server")]
mod admin;
#[cfg(feature = "server")]
mod backup;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "recipes")]
pub mod recipes;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "server")]
mod transfer;

// What the unit tests share with the tests from outside.
#[cfg(test)]
#[path = "../tests/simulation/rng.rs"]
#[allow(unreachable_pub)]
mod rng;

#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;

// A server or an ensemble inside a program or a test, and how it is configured.
pub use config::{Config, ConfigError, Draft};
#[cfg(feature = "server")]
pub use server::{Builder, Ensemble, EnsembleBuilder, Recovered, Server, ServerError, StartError};
#[cfg(feature = "tls")]
pub use tls::TlsError;

// The core and its seam: what a replica is given, and what it says is to be done.
pub use proto::ConnectRequest;
pub use replica::{
    Append, AuditLine, ClientRequest, ConnId, Entry, EntryKind, Fetch, HardState, Input, Inspect,
    Machine, Mark, Member, Membership, Outgoing, PeerMessage, Ready, Replica, Report, Restored,
    SendImage, Setup, Status, TICK_MS, Urgency,
};
pub use sasl::{AuthToLocal, SaslSetup, SaslUsers, ServiceKey, Verdict};
pub use tree::{Options as TreeOptions, Rules};

/// The command line of the binary.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use cli::run;
