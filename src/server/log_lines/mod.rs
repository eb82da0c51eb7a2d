//! THE STORY: log lines that tell an operator what became of this server.
//!
//! *Owns* when a line is written about the server's role, its leader, the leader's rules, its majority, servers whose
//! state differs, its members, the clients that it turns away and the room on its disks. *Invariants*: what changed is
//! said once, with how long it took; lines of one cause are bounded, and how many were left out is said. *Never*
//! decides anything: nothing follows from it but words.

mod away;
mod differing;
mod limited;
mod members;
mod role;
mod room;
mod rules;

pub(in crate::server) use away::AwayLog;
pub(in crate::server) use differing::DifferingLog;
pub(in crate::server) use limited::{Limited, SPAN};
pub(in crate::server) use role::RoleLog;
pub(in crate::server) use room::RoomLog;
pub(in crate::server) use rules::RulesLog;
