//! The one order in which everything happened, and the state at any place of it.
//!
//! *Owns* every transaction that any server ever applied, by place: the first server to apply one
//! adds it, all others must apply the same. *Invariant*: the model at a place is what the
//! transactions before it make of an empty one, so that a server far behind is judged by the state
//! that it is in.

use lockkeeper_core::proto::{Request, Response};
use lockkeeper_core::replica::{AuditLine, ConnId};
use lockkeeper_core::tree::Rules;

use super::model::acl::Id;
use super::model::{Code, Event, Model, Txn};
use super::sessions::Grant;

/// A copy of the model is kept at every so many transactions.
const COPY_EVERY: usize = 128;

/// What a transaction does to the znodes.
#[derive(Clone, Debug)]
pub enum Effect {
    Nothing,
    /// The session's ephemerals go.
    CloseSession,
    Reap(String),
    Write {
        ids: Vec<Id>,
        request: Request,
    },
    /// The first members of the ensemble are named.
    Found(String),
    /// It takes a zxid and fails whatever the znodes are.
    Fail(Code),
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Line {
    pub audit: AuditLine,
    /// The steady clock.
    pub steady_ms: i64,
    /// Rules of the leader that proposed it.
    pub rules: Rules,
    pub effect: Effect,
    /// The connection that asked for it.
    pub conn: Option<ConnId>,
    /// That connection has the session from here on.
    pub grant: Option<Grant>,
}

/// All of them.
#[derive(Debug)]
pub struct History {
    pub lines: Vec<Line>,
    copies: Vec<Model>,
}

impl Line {
    /// Carries it out. What a client is told, and the events.
    pub fn apply(&self, model: &mut Model, events: &mut Vec<Event>) -> Result<Response, Code> {
        let AuditLine { zxid, time_ms, session, .. } = self.audit;
        let steady_ms = self.steady_ms;
        match &self.effect {
            Effect::Nothing => Ok(Response::Empty),
            Effect::CloseSession => {
                model.close_session(zxid, session, events);
                Ok(Response::Empty)
            }
            Effect::Reap(path) => {
                model.reap(zxid, steady_ms, path, events).map(|()| Response::Empty)
            }
            Effect::Write { ids, request } => {
                let rules = self.rules;
                let txn = Txn { zxid, time_ms, steady_ms, session, ids, rules };
                model.write(&txn, request, events)
            }
            Effect::Found(lines) => {
                model.found(zxid, time_ms, lines, events).map(|()| Response::Empty)
            }
            Effect::Fail(code) => Err(*code),
        }
    }
}

impl History {
    pub fn new(model: Model) -> Self {
        Self { lines: Vec::new(), copies: vec![model] }
    }

    /// Number of transactions.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// How many of the last transactions share an entry.
    pub fn in_last_entry(&self) -> usize {
        let Some(last) = self.lines.last() else { return 0 };
        let index = last.audit.index;
        self.lines.iter().rev().take_while(|line| line.audit.index == index).count()
    }

    /// zxid of the last transaction before a place.
    pub fn zxid_at(&self, place: usize) -> i64 {
        place.checked_sub(1).map_or(0, |last| self.lines[last].audit.zxid)
    }

    /// zxid of the last transaction ever applied.
    pub fn zxid(&self) -> i64 {
        self.zxid_at(self.len())
    }

    /// The place behind the last transaction up to `zxid`.
    pub fn place_of(&self, zxid: i64) -> usize {
        self.lines.partition_point(|line| line.audit.zxid <= zxid)
    }

    /// Adds a transaction; `model` is what it has led to.
    pub fn push(&mut self, line: Line, model: &Model) {
        self.lines.push(line);
        if self.lines.len().is_multiple_of(COPY_EVERY) {
            self.copies.push(model.clone());
        }
    }

    /// The state at a place.
    pub fn model_at(&self, place: usize) -> Model {
        let copy = (place / COPY_EVERY).min(self.copies.len() - 1);
        let mut model = self.copies[copy].clone();
        for line in &self.lines[copy * COPY_EVERY..place] {
            // Success or failure was judged when it came first.
            let _outcome = line.apply(&mut model, &mut Vec::new());
        }
        model
    }
}
