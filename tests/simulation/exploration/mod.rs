//! Small scopes of the product's core, explored exhaustively: every order of steps within bounds that are named.
//!
//! | file | part |
//! |---|---|
//! | `explorer.rs` | breadth first through all schedules, without those that lead to a state that was seen |
//! | `digest.rs` | a state as a number, with its times relative to now |
//! | `founding.rs`, `founding/` | three servers that become an ensemble, or not |
//! | `ensemble.rs`, `ensemble/` | servers with Raft, their links and disks, and what is right of them |
//! | `sessions.rs` | a client's session that moves, and is to end in time |
//! | `members.rs` | servers that join or leave |
//!
//! The simulation plays long lives at random and can miss what needs one order in a million; these scopes are
//! short and miss nothing within them. Used by the tests `exploration` and `exploration_raft` (`runs/`) and by the
//! example `explore`.

pub mod digest;
pub mod ensemble;
pub mod explorer;
pub mod founding;
pub mod members;
pub mod sessions;
