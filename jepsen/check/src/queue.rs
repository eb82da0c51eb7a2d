//! Queues (C10): whatever was put in and acknowledged is taken out once or still there, and nothing
//! else is.
//!
//! *Owns* the elements of each queue: the children of a znode, all persistent and sequential. Put in
//! by a create, taken out by the delete that succeeds. *Never* needs the servers' account: an operation with
//! unknown outcome may have happened or not, and only what it can explain is explained by it.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{History, Operation, Outcome};
use crate::op::{Answer, Call, Mode};
use crate::path;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// What is known of a queue.
#[derive(Debug, Default)]
struct Queue<'a> {
    put: BTreeMap<String, &'a Operation>,
    taken: BTreeMap<String, &'a Operation>,
    /// Puts whose name nobody was told.
    unnamed: Vec<&'a Operation>,
    maybe_taken: BTreeSet<String>,
    /// What was there when somebody looked last.
    left: Option<(&'a Operation, i64, BTreeSet<String>)>,
}

/// Checks every queue of which a list of the elements was read.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let mut queues: BTreeMap<String, Queue<'_>> = BTreeMap::new();
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for operation in &history.operations {
        match &operation.call {
            Call::Create(create) => {
                let Some(parent) = path::lenient_parent(&create.path) else { continue };
                match create.mode == Mode::PersistentSequential {
                    true => queues.entry(parent.to_owned()).or_default().put(operation),
                    false => drop(others.insert(parent)),
                }
            }
            // What a multi does is the witness's to judge.
            Call::Multi(parts) => {
                let paths = parts.iter().filter_map(Call::path);
                others.extend(paths.filter_map(path::lenient_parent));
            }
            _ => {}
        }
    }
    queues.retain(|path, _| !others.contains(path.as_str()));
    for operation in &history.operations {
        let checked = match &operation.call {
            Call::Delete { path, .. } => path::split(path)
                .and_then(|(parent, _)| queues.get_mut(parent))
                .map_or(Ok(()), |queue| queue.take(operation, path)),
            Call::GetChildren { path, .. } => {
                if let Some(queue) = queues.get_mut(path) {
                    queue.look(operation, path);
                }
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(violation) = checked {
            return Verdict::Invalid(violation);
        }
    }
    queues.retain(|_, queue| queue.left.is_some());
    if queues.is_empty() {
        return Verdict::Moot("there was no queue whose elements were read".to_owned());
    }
    let checked = queues.values().try_for_each(Queue::check);
    checked.into()
}

fn violation(what: String, around: &[&Operation]) -> Violation {
    let mut around: Vec<String> = around.iter().map(|one| report::operation(one)).collect();
    if let Some(last) = around.last_mut() {
        last.insert_str(0, "> ");
    }
    Violation { rule: Rule::Queue, what, around }
}

impl<'a> Queue<'a> {
    fn put(&mut self, operation: &'a Operation) {
        match &operation.outcome {
            Outcome::Replied {
                result: Ok(Answer::Path(path) | Answer::PathStat(path, _)), ..
            } => {
                self.put.insert(path.clone(), operation);
            }
            Outcome::Unknown { .. } => self.unnamed.push(operation),
            Outcome::Replied { .. } | Outcome::NotSent { .. } => {}
        }
    }

    fn take(&mut self, operation: &'a Operation, path: &str) -> Result<(), Violation> {
        match &operation.outcome {
            Outcome::Replied { result: Ok(_), .. } => {
                if let Some(first) = self.taken.insert(path.to_owned(), operation) {
                    return Err(violation(format!("{path} was taken twice"), &[first, operation]));
                }
                if !self.put.contains_key(path) && self.unnamed.is_empty() {
                    return Err(violation(format!("{path} was taken, never put in"), &[operation]));
                }
            }
            Outcome::Unknown { .. } => {
                self.maybe_taken.insert(path.to_owned());
            }
            Outcome::Replied { .. } | Outcome::NotSent { .. } => {}
        }
        Ok(())
    }

    fn look(&mut self, operation: &'a Operation, path: &str) {
        if let Some((_, zxid, Ok(Answer::Children(names, _)))) = operation.reply() {
            let base = path.trim_end_matches('/');
            let names = names.iter().map(|name| format!("{base}/{name}")).collect();
            if self.left.as_ref().is_none_or(|(_, last, _)| *last <= zxid) {
                self.left = Some((operation, zxid, names));
            }
        }
    }

    /// What was read last must be what was put in before and not taken.
    fn check(&self) -> Result<(), Violation> {
        let Some((read, zxid, left)) = &self.left else { return Ok(()) };
        let is_before = |one: &Operation| one.reply().is_some_and(|(_, of, _)| of <= *zxid);
        for (path, put) in self.put.iter().filter(|(_, put)| is_before(put)) {
            let is_gone = self.taken.contains_key(path) || self.maybe_taken.contains(path);
            if !left.contains(path) && !is_gone {
                return Err(violation(format!("{path} was put in and is lost"), &[put, read]));
            }
        }
        for (path, taken) in self.taken.iter().filter(|(_, taken)| is_before(taken)) {
            if left.contains(path) {
                return Err(violation(format!("{path} was taken and is there"), &[taken, read]));
            }
        }
        let unexplained = left.iter().filter(|path| !self.put.contains_key(*path)).count();
        if unexplained > self.unnamed.len() {
            let what = format!("{unexplained} elements are there that nobody put in");
            return Err(violation(what, &[read]));
        }
        Ok(())
    }
}
