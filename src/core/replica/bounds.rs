//! Bounds of the numbers that another server or a disk gives.
//!
//! *Owns* the highest term, index and raft id, and the table below. *Invariant*: a number from outside is
//! compared with its bound where it is decoded, before anything is computed from it.
//!
//! number; comes in; bound, and where it is compared:
//!
//! * a term (of a message, an entry, a commit, an image); `raft_codec`, `peer_codec`, hello, disk;
//!   [`TERM_MAX`]; decoding, `consensus/node/guards.rs` for the disk
//! * a term that is above the own one; the same; `consensus/node/terms.rs`: [`TERM_STEP_MAX`]
//! * an index, a commit, a hint of one; `raft_codec`; [`INDEX_MAX`]; decoding. What Raft would
//!   believe of it: `consensus/node/guards.rs`
//! * a raft id (sender, receiver, member, vote); `raft_codec`, `peer_codec`, hello, disk;
//!   [`RAFT_ID_MAX`]; decoding, `consensus/node/guards.rs` for the disk
//! * a time of this server that comes back, the number of a report; `peer_codec`; [`INDEX_MAX`];
//!   decoding, and the own clock where it is used
//! * the steady clock of a leader; `peer_codec`, `txn`; [`STEADY_MS_MAX`]; decoding
//! * a wall clock of another server; `peer_codec`, `txn`; all 64 bits: only its difference from the own
//!   one matters, and a majority has to agree (`consensus/clocks.rs`)
//! * a nonce, a question, a process, a session id; hello, `peer_codec`; all 64 bits are a name:
//!   compared for equality only
//! * the length of a frame, a batch, a text; `peer_frame`, `proto::Reader`; `MESSAGE_BYTES_MAX`,
//!   `HELLO_BYTES_MAX`, and what is there
//! * a count (entries, members, founders, sessions); `raft_codec`, `peer_codec`, hello;
//!   `MESSAGE_ENTRIES_MAX`, `MEMBERS_MAX`, `FOUNDERS_MAX`, `TOUCHED_SESSIONS_MAX`, and the bytes
//!   that are there
//! * a server id, a kind, a flag, a version; all; one or two bytes; every value is known or
//!   malformed

/// Highest term. A session's id carries a term in 23 bits (`sessions/tracker.rs`).
pub const TERM_MAX: u64 = (1 << 23) - 1;
/// How far above what a server knows the term of another one may be. An ensemble in which this many
/// elections were missed has held one in every second for 18 hours.
pub const TERM_STEP_MAX: u64 = 1 << 16;
/// Highest index of an entry: sums of two of them do not overflow.
pub const INDEX_MAX: u64 = 1 << 62;
/// Highest steady clock, milliseconds: 146 million years, so that sums with it do not overflow.
pub const STEADY_MS_MAX: i64 = 1 << 62;
/// Highest raft id: an incarnation of 32 bits, and the server's id in the lowest byte.
pub const RAFT_ID_MAX: u64 = (1 << 40) - 1;
