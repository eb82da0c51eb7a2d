//! Doubts: where something may have happened that no record tells of.
//!
//! *Owns* what operations with unknown outcome and sessions with unknown ends may have done, as far
//! as paths and zxids bound it. A reply that does not fit is a violation only where there is no doubt.

use std::collections::BTreeMap;

use crate::history::{History, Operation, Outcome};
use crate::op::{Answer, Call, Create};
use crate::path;
use crate::report;
use crate::witness::{Step, is_transaction};

/// What may have happened, by path.
pub(crate) struct Doubts {
    /// Znodes that may be there or not, or have other data.
    znodes: BTreeMap<String, Doubt>,
    /// Znodes whose children may be others.
    parents: BTreeMap<String, Doubt>,
}

#[derive(Clone)]
struct Doubt {
    /// Everything at and below this zxid is known.
    after: i64,
    reason: String,
}

impl Doubts {
    pub(crate) fn of(history: &History) -> Self {
        let mut doubts = Self { znodes: BTreeMap::new(), parents: BTreeMap::new() };
        let alive_until = last_signs_of_life(history);
        for operation in &history.operations {
            if operation.call.is_write() && matches!(operation.outcome, Outcome::Unknown { .. }) {
                let reason = format!("the unknown outcome of {}", report::operation(operation));
                let doubt = Doubt { after: -1, reason };
                doubts.add_call(&operation.call, &doubt);
            }
            let ephemerals = ephemerals(operation);
            if ephemerals.is_empty() {
                continue;
            }
            let after = alive_until.get(&operation.session).copied().unwrap_or(-1);
            let reason = format!("the unknown end of session {:#x}", operation.session);
            let doubt = Doubt { after, reason };
            ephemerals.iter().for_each(|path| doubts.add(path, &doubt));
        }
        doubts
    }

    fn add_call(&mut self, call: &Call, doubt: &Doubt) {
        match call {
            Call::Multi(parts) => parts.iter().for_each(|part| self.add_call(part, doubt)),
            Call::Create(Create { path, mode, .. }) if mode.is_sequential() => {
                // Nobody knows the name: any child may be the one.
                if let Some(parent) = path::lenient_parent(path) {
                    earliest(&mut self.znodes, parent, doubt);
                }
            }
            call => call.path().into_iter().for_each(|path| self.add(path, doubt)),
        }
    }

    fn add(&mut self, path: &str, doubt: &Doubt) {
        earliest(&mut self.znodes, path, doubt);
        if let Some(parent) = path::lenient_parent(path) {
            earliest(&mut self.parents, parent, doubt);
        }
    }

    /// Why a step may differ from what is due, if it may.
    pub(crate) fn on(&self, step: &Step<'_>) -> Option<&str> {
        self.on_call(&step.operation()?.call, step.zxid())
    }

    fn on_call(&self, call: &Call, zxid: i64) -> Option<&str> {
        if let Call::Multi(parts) | Call::MultiRead(parts) = call {
            return parts.iter().find_map(|part| self.on_call(part, zxid));
        }
        if matches!(call, Call::Ephemerals { .. } | Call::AllChildrenNumber { .. }) {
            let all = self.znodes.values().chain(self.parents.values());
            return live(all, zxid);
        }
        let path = call.path()?;
        let parent = path::lenient_parent(path).unwrap_or(path);
        let mut doubts: Vec<Option<&Doubt>> =
            vec![self.znodes.get(path), self.parents.get(path), self.znodes.get(parent)];
        if matches!(call, Call::Create(create) if create.mode.is_sequential()) {
            doubts.push(self.parents.get(parent));
        }
        live(doubts.into_iter().flatten(), zxid)
    }
}

fn live<'a>(mut doubts: impl Iterator<Item = &'a Doubt>, zxid: i64) -> Option<&'a str> {
    doubts.find(|doubt| doubt.after < zxid).map(|doubt| doubt.reason.as_str())
}

fn earliest(doubts: &mut BTreeMap<String, Doubt>, path: &str, doubt: &Doubt) {
    if doubts.get(path).is_none_or(|known| doubt.after < known.after) {
        doubts.insert(path.to_owned(), doubt.clone());
    }
}

/// The zxid up to which each session was certainly there: its last transaction. Behind its close
/// nothing is unknown.
fn last_signs_of_life(history: &History) -> BTreeMap<i64, i64> {
    let mut alive_until = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| is_transaction(operation)) {
        let (_, zxid, _) = operation.reply().expect("a transaction has one");
        let until = if operation.call == Call::Close { i64::MAX } else { zxid };
        let known = alive_until.entry(operation.session).or_insert(until);
        *known = until.max(*known);
    }
    alive_until
}

/// Ephemeral znodes that an operation asked for, by the name that they were given.
fn ephemerals(operation: &Operation) -> Vec<String> {
    let named = |call: &Call, answer: Option<&Answer>| match (call, answer) {
        (Call::Create(create), answer) if create.mode.is_ephemeral() => Some(match answer {
            Some(Answer::Path(path) | Answer::PathStat(path, _)) => path.clone(),
            _ => create.path.clone(),
        }),
        _ => None,
    };
    let answer = operation.reply().and_then(|(_, _, result)| result.as_ref().ok());
    match (&operation.call, answer) {
        (Call::Multi(parts), Some(Answer::Parts(results))) => {
            let pairs = parts.iter().zip(results);
            pairs.filter_map(|(part, result)| named(part, result.as_ref().ok())).collect()
        }
        (Call::Multi(parts), _) => parts.iter().filter_map(|part| named(part, None)).collect(),
        (call, answer) => named(call, answer).into_iter().collect(),
    }
}
