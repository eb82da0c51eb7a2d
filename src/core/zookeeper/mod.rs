//! ZOOKEEPER'S OWN RECORDS: transactions, snapshots and transaction logs, as Apache ZooKeeper writes them.
//!
//! *Owns* how bytes of ZooKeeper's data directories, and of its quorum protocol, become values and the other way
//! round; and the passwords that it computes for its sessions.
//!
//! *Invariants*: decoding is total: any bytes give a value or an error, never a panic; a length is compared with its
//! bound before memory is taken for it. What was encoded decodes to the same value.
//!
//! *Never*: opens a file, looks at a clock, or knows what a znode or a session means here.
//!
//! Reproduces `FileTxnLog`, `FileSnap`, `SerializeUtils`, `ReferenceCountedACLCache` and
//! `ZooKeeperServer.generatePasswd`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod adler;
pub mod log_file;
pub mod password;
pub mod snapshot;
pub mod snapshot_file;
pub mod txn;

pub use adler::Adler32;
pub use log_file::LogDecoder;
pub use password::password;
pub use snapshot::{Item, Node, SnapshotDecoder, StatPersisted};
pub use snapshot_file::{SnapshotFileDecoder, Trailer};
pub use txn::{CreateTxn, Lifetime, SubTxn, Txn, TxnBody, TxnDigest, TxnHeader};

/// Longest path, data, list or transaction that is believed, in bytes. ZooKeeper's own limit is `jute.maxbuffer`, one
/// megabyte unless an operator raises it.
pub const FIELD_BYTES_MAX: usize = 256 << 20;
