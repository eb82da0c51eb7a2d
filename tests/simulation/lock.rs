//! The lock recipe, as its users write it: an ephemeral sequential znode, a watch on the one in
//! front of it.
//!
//! *Owns* one client's way to the lock. *Invariants*: it holds the lock only after a read showed its
//! own znode with the lowest number; after a lost connection it finds its znode by asking for its
//! session's ephemerals, never by creating another one.

use std::collections::BTreeSet;

use bytes::Bytes;
use lockkeeper_core::proto::request::{Create, CreateKind};
use lockkeeper_core::proto::{Acl, Request, Response, Text};

use super::model::{DELETED, NO_NODE};

/// How far a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    MakeParent,
    Enter,
    Find,
    Identify,
    List,
    Watch(String),
    Wait(String),
    Hold { until_us: u64 },
    Leave,
}

/// The lock was granted: the zxid of the read that showed it, and the fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub zxid: i64,
    pub token: i64,
}

/// One client's view of one lock.
#[derive(Clone, Debug)]
pub struct Lock {
    pub dir: String,
    step: Step,
    /// A request is on its way.
    is_asked: bool,
    /// Its znode: path and czxid.
    pub own: Option<(String, i64)>,
    pub is_held: bool,
    pub grants: u64,
    /// Who waits, as reads have shown it, with their zxids.
    pub listed: Vec<(i64, BTreeSet<String>)>,
}

impl Lock {
    pub fn new(dir: String) -> Self {
        let step = Step::MakeParent;
        let (own, listed) = (None, Vec::new());
        Self { dir, step, is_asked: false, own, is_held: false, grants: 0, listed }
    }

    /// What to ask next, if anything.
    pub fn next(&mut self, now_us: u64) -> Option<Request> {
        if self.is_asked {
            return None;
        }
        if let Step::Hold { until_us } = self.step {
            if now_us < until_us {
                return None;
            }
            self.step = Step::Leave;
        }
        let own = || self.own.as_ref().map_or("", |(path, _)| path).into();
        let request = match &self.step {
            Step::MakeParent => create(&self.dir, 0),
            Step::Enter => create(&format!("{}/lock-", self.dir), 3),
            Step::Find => Request::GetEphemerals { prefix: Some(self.dir.as_str().into()) },
            Step::Identify => Request::Exists { path: own(), watch: false },
            Step::List => {
                let path = self.dir.as_str().into();
                Request::GetChildren { path, watch: false, stat: false }
            }
            Step::Watch(before) => Request::Exists { path: before.as_str().into(), watch: true },
            Step::Leave => Request::Delete { path: own(), version: -1 },
            Step::Wait(_) | Step::Hold { .. } => return None,
        };
        self.is_asked = true;
        Some(request)
    }

    /// An answer to what was asked.
    pub fn answer(
        &mut self,
        outcome: Result<Response, i32>,
        zxid: i64,
        hold_until_us: u64,
    ) -> Option<Grant> {
        self.is_asked = false;
        match (std::mem::replace(&mut self.step, Step::List), outcome) {
            (Step::MakeParent, _) => self.step = Step::Enter,
            (Step::Enter, Ok(Response::PathStat(path, stat))) => {
                self.own = Some((path.to_string(), stat.czxid));
            }
            // Somebody removed the parent, or the like.
            (Step::Enter, _) => self.step = Step::MakeParent,
            (Step::Find, Ok(Response::Names(names))) => {
                let name = names.first().map(Text::to_string);
                self.step = if name.is_some() { Step::Identify } else { Step::Enter };
                self.own = name.map(|path| (path, 0));
                self.is_held &= self.own.is_some();
            }
            (Step::Identify, Ok(Response::Stat(stat))) => {
                self.own = self.own.take().map(|(path, _)| (path, stat.czxid));
            }
            (Step::List, Ok(Response::Names(names))) => {
                self.listed.push((zxid, names.iter().map(Text::to_string).collect()));
                return self.judge(&names, zxid, hold_until_us);
            }
            (Step::Watch(before), Ok(_)) => self.step = Step::Wait(before),
            (Step::Watch(_), Err(NO_NODE)) => {}
            (Step::Leave, _) => self.reset(),
            (Step::Find | Step::Identify | Step::List | Step::Watch(_), _) => self.reset(),
            (step @ (Step::Wait(_) | Step::Hold { .. }), _) => self.step = step,
        }
        None
    }

    /// Who is in front?
    fn judge(&mut self, names: &[Text], zxid: i64, hold_until_us: u64) -> Option<Grant> {
        let (path, token) = self.own.clone()?;
        let own = path.rsplit('/').next().unwrap_or_default();
        if !names.iter().any(|name| name.as_str() == own) {
            self.reset();
            return None;
        }
        let in_front = names.iter().map(Text::as_str).filter(|name| *name < own).max();
        if let Some(name) = in_front {
            self.step = Step::Watch(format!("{}/{name}", self.dir));
            return None;
        }
        self.step = Step::Hold { until_us: hold_until_us };
        self.is_held = true;
        self.grants += 1;
        Some(Grant { zxid, token })
    }

    /// An event arrived.
    pub fn event(&mut self, kind: i32, path: &str) {
        if matches!(&self.step, Step::Wait(before) if before == path) && kind == DELETED {
            self.step = Step::List;
        }
    }

    /// The connection is gone, and with it the watch and every answer.
    pub fn disconnected(&mut self) {
        self.is_asked = false;
        self.step = match self.step {
            Step::MakeParent => Step::MakeParent,
            _ => Step::Find,
        };
    }

    /// The session is gone, and with it the znode.
    pub fn expired(&mut self) {
        self.is_asked = false;
        self.reset();
    }

    fn reset(&mut self) {
        self.step = Step::Enter;
        self.own = None;
        self.is_held = false;
    }

    /// Whether it waits for somebody else.
    pub fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Wait(_))
    }
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create(Create {
        kind: CreateKind::Create2,
        path: path.into(),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
    })
}
