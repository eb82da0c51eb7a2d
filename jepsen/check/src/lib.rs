//! Checks of what a ZooKeeper-compatible service promises, over what clients and servers recorded.
//!
//! Everything here is a pure function over a [`History`](history::History) and, where the servers
//! wrote one, their [audit log](audit): no files, no sockets, no clocks, and nothing of the server
//! under test, whose mistakes must not be repeated by the judge. The word of a check is a
//! [`Verdict`](verdict::Verdict).
//!
//! [`trial::judge`] runs all that a run has evidence for.
//!
//! | check | rule |
//! |---|---|
//! | [`witness::check`] | the zxids of the replies are an order that explains every reply and keeps real time |
//! | [`search::check`] | some order of each path's operations explains its answers |
//! | [`sequence::check`] | sequential znodes get the next number of their parent |
//! | [`ephemerals::check`] | sessions begin and end once, and their ephemeral znodes with them |
//! | [`session_timing::check`] | sessions end neither within their timeout nor long after it |
//! | [`fifo::check`] | the requests of a connection are answered and carried out in order |
//! | [`monotonic::check`] | no session goes back in time |
//! | [`sync::check`] | a read behind a `sync` has everything that had returned before |
//! | [`locks::check`] | a lock has one holder at every zxid, and its tokens rise |
//! | [`belief::check`] | two believe to hold a lock only if the first could not know better |
//! | [`liveness::check`] | once faults are over, who waits for a lock gets it, and nothing is left of who is gone |
//! | [`fencing::check`] | a store that asks for tokens loses no write |
//! | [`queue::check`] | what was put in is taken out once or still there |
//! | [`reaped::check`] | a server removes by itself only what may go, and not before its time |
//! | [`watches::check`] | a watch fires once, rightly and before a reply that shows the change |
//! | [`watches::check_reconnects`] | so does one that was brought along to another server |
//! | [`convergence::check`] | servers that were left in peace have the same state |
//! | [`log_matching::check`] | at one place of the log all servers have the same entry |
//! | [`coverage::check`] | what the run was to bring about has happened |

mod account;
pub mod acl;
pub mod audit;
pub mod belief;
mod clock;
pub mod convergence;
pub mod coverage;
mod doubt;
pub mod ephemerals;
pub mod fencing;
pub mod fifo;
pub mod history;
pub mod json;
pub mod liveness;
pub mod locks;
pub mod log_matching;
pub mod monotonic;
pub mod op;
pub mod path;
pub mod queue;
mod realtime;
pub mod reaped;
pub mod register;
mod reigns;
pub mod report;
pub mod search;
pub mod sequence;
pub mod session_timing;
pub mod sync;
pub mod tree;
pub mod trial;
pub mod verdict;
pub mod watches;
pub mod witness;
