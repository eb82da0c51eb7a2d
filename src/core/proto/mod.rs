//! THE WIRE: bytes <-> values, as a ZooKeeper client sees them.
//!
//! *Owns* the encoding of every record that crosses the client port: jute primitives and their
//! limits, frames, opcodes, error codes, the connect exchange, requests, replies and events.
//!
//! *Invariants*: a decoder never panics and never allocates more than its input justifies; what a
//! value says is what the bytes said, except where ZooKeeper itself is lenient (malformed UTF-8 is
//! replaced, trailing bytes are ignored).
//!
//! *Never*: looks at a znode, a session or a clock; knows nothing of the rest of this crate.
//!
//! Reproduces `zookeeper.jute`, `BinaryInputArchive`, `BinaryOutputArchive`, `ZooDefs` and
//! `KeeperException.Code`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod acl;
pub mod connect;
mod create;
pub mod error;
pub mod frame;
pub mod jute;
pub mod multi;
pub mod op;
pub mod request;
pub mod response;
pub mod stat;

pub use acl::Acl;
pub use connect::{ConnectRequest, ConnectResponse};
pub use error::ErrorCode;
pub use jute::{Malformed, Reader, Text, Writer};
pub use multi::{MultiOp, MultiResult, ReadOp, encode_end as encode_end_of_multi};
pub use op::{OpCode, RequestClass};
pub use request::{Request, RequestHeader};
pub use response::{EventType, Response};
pub use stat::Stat;
