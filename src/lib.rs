//! Lockkeeper: a ZooKeeper-compatible lock and coordination server.

pub mod config;
pub mod proto;
pub mod replica;
