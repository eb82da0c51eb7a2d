//! Checks of what a ZooKeeper-compatible service promises, over what clients and servers recorded.
//!
//! Everything here is a pure function over a [`History`](history::History) and, where the servers
//! wrote one, their [audit log](audit): no files, no sockets, no clocks, and nothing of the server
//! under test, whose mistakes must not be repeated by the judge. The word of a check is a
//! [`Verdict`](verdict::Verdict).
//!
//! | check | rule |
//! |---|---|
//! | [`witness::check`] | the zxids of the replies are an order that explains every reply and keeps real time |
//! | [`search::check`] | some order of each path's operations explains its answers |

pub mod acl;
pub mod audit;
mod doubt;
pub mod history;
pub mod json;
pub mod op;
pub mod path;
mod realtime;
pub mod register;
pub mod report;
pub mod search;
pub mod tree;
pub mod verdict;
pub mod witness;
