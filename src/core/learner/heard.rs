//! The sessions that were heard from, as the answers to pings name them.
//!
//! *Owns* what is to be said of sessions in the next answer. *Invariants*: each session is named once in an answer; no
//! packet is longer than a leader reads; there is a bound to what is kept.

use std::collections::BTreeMap;

use super::packet::{self, kind};
use crate::proto::Writer as _;

/// Most sessions of one packet. Its data is then of 600 000 bytes: a leader reads no more than 1 MB, unless its
/// `jute.maxbuffer` says otherwise.
pub const HEARD_PER_PACKET_MAX: usize = 50_000;
/// Most sessions that are kept between two pings. More are not named.
pub const HEARD_SESSIONS_MAX: usize = 1 << 20;

/// The sessions that were heard from, with their timeouts.
#[derive(Debug, Default)]
pub(super) struct Heard {
    sessions: BTreeMap<i64, i32>,
}

impl Heard {
    /// A session was heard from.
    pub(super) fn note(&mut self, session: i64, timeout_ms: i32) {
        if self.sessions.len() < HEARD_SESSIONS_MAX || self.sessions.contains_key(&session) {
            self.sessions.insert(session, timeout_ms);
        }
    }

    /// Appends the answer to a ping, which names all of them, and forgets them. Where they are too many for one packet,
    /// it is several: the leader takes each for itself.
    pub(super) fn answer(&mut self, zxid: i64, out: &mut Vec<u8>) {
        let mut sessions = std::mem::take(&mut self.sessions).into_iter().peekable();
        loop {
            let mut data = Vec::new();
            for (session, timeout_ms) in sessions.by_ref().take(HEARD_PER_PACKET_MAX) {
                data.put_long(session);
                data.put_int(timeout_ms);
            }
            packet::put(kind::PING, zxid, Some(&data), None, out);
            if sessions.peek().is_none() {
                return;
            }
        }
    }
}
