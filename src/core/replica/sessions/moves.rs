//! Sessions that are moving to another server: what other servers asked for and this leader has not applied.
//!
//! *Owns* how many requests to attach each session the leader has taken from other servers in its term and
//! not applied. *Invariant*: a follower applies what is committed without waiting for the leader's disk, so
//! that it may serve a session of which the leader still takes another server for the owner; a session that
//! is in here does not expire, and from the moment when the leader applies its move it has its full timeout.
//! *Never* keeps a session alive for longer than its requests are on their way through the log.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// The term in which they were taken. Those of earlier terms are lost, or applied before this server
    /// serves.
    term: u64,
    sessions: BTreeMap<i64, u32>,
}

impl Moves {
    /// The leader of this term takes a request to attach this session to another server.
    pub(super) fn taken(&mut self, term: u64, session: i64) {
        if self.term != term {
            self.term = term;
            self.sessions.clear();
        }
        *self.sessions.entry(session).or_default() += 1;
    }

    /// Such a request was applied, from an entry of this term.
    pub(super) fn applied(&mut self, term: u64, session: i64) {
        if self.term != term {
            return;
        }
        if let Some(count) = self.sessions.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.sessions.remove(&session);
            }
        }
    }

    /// Whether the session may be served elsewhere by now, unknown to the leader of this term.
    pub(super) fn may_have_moved(&self, term: u64, session: i64) -> bool {
        self.term == term && self.sessions.contains_key(&session)
    }
}
