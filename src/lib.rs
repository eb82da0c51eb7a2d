//! Lockkeeper: a ZooKeeper-compatible lock and coordination server.

#[cfg(feature = "server")]
pub mod cli;
pub mod config;
pub mod proto;
pub mod replica;
pub mod tree;
