//! Lockkeeper: a ZooKeeper-compatible lock and coordination server.

pub mod proto;
pub mod replica;
