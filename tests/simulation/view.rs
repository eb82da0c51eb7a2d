//! What one server has shown so far, as the checker sees it.
//!
//! *Owns* the server's place in the history, the state there, and its connections. *Invariant*: a
//! server goes through the history in order; what it says is judged by the state at its own place.

use std::collections::BTreeMap;

use lockkeeper_core::proto::Response;
use lockkeeper_core::replica::ConnId;

use super::conn::{Conn, Pending, Violation};
use super::history::{History, Line};
use super::model::{Code, Event, Model};
use super::sessions::Grant;

/// One server.
#[derive(Debug)]
pub struct View {
    /// How many transactions it has applied.
    pub place: usize,
    /// The state there.
    pub model: Model,
    pub conns: BTreeMap<ConnId, Conn>,
    /// The term that it leads in.
    pub leads_in: Option<u64>,
    /// Since when, by its own clock.
    pub serving_since: Option<u64>,
    /// How far it ever was.
    pub farthest: usize,
}

impl View {
    pub fn new(model: Model) -> Self {
        Self {
            place: 0,
            model,
            conns: BTreeMap::new(),
            leads_in: None,
            serving_since: None,
            farthest: 0,
        }
    }

    /// The server died: its connections and watches are gone.
    pub fn crashed(&mut self) {
        self.conns.clear();
        self.leads_in = None;
        self.serving_since = None;
    }

    /// Its disk was emptied.
    pub fn wiped(&mut self, history: &History) {
        self.jump(history, 0);
        self.farthest = 0;
    }

    /// The server has the state of a place, however it came by it.
    pub fn jump(&mut self, history: &History, place: usize) {
        let own = self.model.own;
        self.model = Model { own, ..history.model_at(place) };
        self.place = place;
        self.farthest = self.farthest.max(place);
    }

    /// The server has applied the next transaction: what that means for its connections.
    pub fn advance(
        &mut self,
        line: &Line,
        outcome: Result<Response, Code>,
        events: &[Event],
    ) -> Result<(), Violation> {
        self.place += 1;
        self.farthest = self.farthest.max(self.place);
        for conn in self.conns.values_mut() {
            for event in events {
                conn.witness(line.audit.zxid, event);
            }
        }
        if let Some(grant) = &line.grant {
            self.grant(grant);
        } else if let Some(conn) = line.conn.and_then(|conn| self.conns.get_mut(&conn)) {
            conn.applied(line.audit.cxid, line.audit.zxid, outcome)?;
        }
        if let "expireSession" | "closeSession" = line.audit.op
            && line.audit.result == "ok"
        {
            self.end_session(line.audit.session);
        }
        Ok(())
    }

    /// A session is given to a connection: any other that has it ends.
    fn grant(&mut self, grant: &Grant) {
        for (id, conn) in &mut self.conns {
            if *id == grant.conn {
                conn.granted = Some(*grant);
            } else if conn.session() == Some(grant.session) && conn.must_close.is_none() {
                conn.end("its session moved");
            }
        }
    }

    /// A session is closed: its connection ends, but for the answer to its own wish.
    fn end_session(&mut self, session: i64) {
        for conn in self.conns.values_mut() {
            if conn.session() != Some(session) || conn.must_close.is_some() {
                continue;
            }
            if conn.pending.iter().skip(1).any(Pending::closed_the_session) {
                // It is answered in its turn.
                continue;
            }
            let closing = conn.pending.pop_front().filter(Pending::closed_the_session);
            conn.end("its session is closed");
            conn.pending.extend(closing);
        }
    }
}
