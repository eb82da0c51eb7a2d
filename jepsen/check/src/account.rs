//! The account: every transaction in its order, with who asked for it and what it changed.
//!
//! *Owns* the replay that the checks of watches, locks, sessions and names look at. *Invariant*: it
//! is made only of the servers' own account, for a change that nobody recorded makes every such
//! check cry wolf. *Never* judges a result: that is the witness's part.

use std::collections::BTreeMap;

use crate::audit::AuditLine;
use crate::history::{EventKind, History, Operation};
use crate::op::{Answer, Call, Create};
use crate::path;
use crate::tree::{Caller, Change, Tree};
use crate::verdict::Verdict;
use crate::witness::{self, Step};

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) zxid: i64,
    pub(crate) operation: Option<&'a Operation>,
    pub(crate) line: &'a AuditLine,
    /// What it changed, in order.
    pub(crate) changes: Vec<Change>,
}

/// Replays the servers' account.
///
/// # Errors
/// `Moot`: there is none. `Unknown`: it does not fit the history, which the witness says.
pub(crate) fn replay<'a>(
    history: &'a History,
    audit: Option<&'a [AuditLine]>,
) -> Result<Vec<Transaction<'a>>, Verdict> {
    let unknown = |why: &str| Verdict::Unknown(why.to_owned());
    let lines =
        audit.ok_or_else(|| Verdict::Moot("there is no account of the servers".to_owned()))?;
    let steps = witness::audited(history, lines)
        .map_err(|_| unknown("the servers' account does not fit the history: see the witness"))?;
    // Whether a time to live is allowed, the results say; here only changes count.
    let mut tree = Tree::new(true);
    let mut transactions = Vec::with_capacity(steps.len());
    for step in steps {
        let Step::Write { zxid, operation, line: Some(line) } = step else { continue };
        if line.result.is_ok() {
            carry_out(&mut tree, zxid, operation, line);
        }
        let changes = tree.take_changes();
        transactions.push(Transaction { zxid, operation, line, changes });
    }
    Ok(transactions)
}

fn carry_out(tree: &mut Tree, zxid: i64, operation: Option<&Operation>, line: &AuditLine) {
    let ends = ends_session(line);
    match (operation, &line.path) {
        _ if ends => {
            tree.close_session(zxid, line.session);
        }
        (Some(Operation { call: Call::Other(_), .. }), _) => {}
        (Some(operation), _) => {
            let who = Caller { session: operation.session, ids: &operation.ids };
            // What does not fit is the witness's to tell.
            let _ = tree.apply(zxid, who, &operation.call);
        }
        (None, Some(path)) if line.op == "deleteContainer" => {
            let _ = tree.reap(zxid, path);
        }
        (None, _) => {}
    }
}

/// Whether a transaction is the end of its session.
pub(crate) fn ends_session(line: &AuditLine) -> bool {
    line.result.is_ok() && matches!(line.op.as_str(), "closeSession" | "expireSession")
}

impl<'a> Transaction<'a> {
    /// The creates that it carried out, each with the path that the servers gave it.
    pub(crate) fn creates(&self) -> Vec<(&'a Create, String)> {
        let Some(operation) = self.operation.filter(|_| self.line.result.is_ok()) else {
            return Vec::new();
        };
        let told = operation.reply().and_then(|(_, _, result)| result.as_ref().ok());
        match (&operation.call, told) {
            (Call::Create(create), _) => {
                self.line.path.iter().map(|path| (create, path.clone())).collect()
            }
            (Call::Multi(parts), Some(Answer::Parts(results))) => {
                let pairs = parts.iter().zip(results);
                let named = pairs.filter_map(|(part, result)| match (part, result) {
                    (Call::Create(create), Ok(Answer::Path(path) | Answer::PathStat(path, _))) => {
                        Some((create, path.clone()))
                    }
                    _ => None,
                });
                named.collect()
            }
            // Nobody was told the names; the replay knows them.
            (Call::Multi(parts), _) => {
                let mut made =
                    self.changes.iter().filter(|change| change.kind == EventKind::Created);
                let creates = parts.iter().filter_map(|part| match part {
                    Call::Create(create) => Some(create),
                    _ => None,
                });
                creates.filter_map(|create| Some((create, made.next()?.path.clone()))).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// mzxid and pzxid of a znode, if it is there.
type State = Option<(i64, i64)>;

/// When and how znodes changed, by path.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// What data watches see.
    of_znodes: BTreeMap<String, Vec<(i64, EventKind)>>,
    /// What child watches see.
    of_parents: BTreeMap<String, Vec<(i64, EventKind)>>,
    /// What each znode was from a zxid on.
    states: BTreeMap<String, Vec<(i64, State)>>,
    /// What those who watch see of a transaction that a client asked for, in its order.
    orders: BTreeMap<i64, Vec<(EventKind, String)>>,
}

impl Changes {
    pub(crate) fn of(transactions: &[Transaction<'_>]) -> Self {
        let mut changes = Self::default();
        for transaction in transactions {
            for change in &transaction.changes {
                changes.add(transaction.zxid, change);
            }
            // In which order the znodes of a session go is not said.
            let is_ordered =
                transaction.operation.is_some_and(|operation| operation.call != Call::Close);
            if is_ordered && !transaction.changes.is_empty() {
                changes.orders.insert(transaction.zxid, in_order(&transaction.changes));
            }
        }
        changes
    }

    /// The place of an event among those of its transaction, if they have an order and it is there once.
    pub(crate) fn place(&self, zxid: i64, kind: EventKind, path: &str) -> Option<usize> {
        let all = self.orders.get(&zxid)?;
        let is_it = |(known, of): &(EventKind, String)| *known == kind && of == path;
        let first = all.iter().position(is_it)?;
        let last = all.iter().rposition(is_it)?;
        (first == last).then_some(first)
    }

    /// All changes behind `zxid`, up to `until`, that a persistent watch sees.
    pub(crate) fn of_path(&self, path: &str, zxid: i64, until: i64) -> Vec<(i64, EventKind)> {
        let of_znode =
            self.of_znodes.get(path).into_iter().flat_map(|all| within(all, zxid, until));
        let of_parent =
            self.of_parents.get(path).into_iter().flat_map(|all| within(all, zxid, until));
        // Its own end is in both, and told once.
        let of_children = of_parent.filter(|(_, kind)| *kind == EventKind::ChildrenChanged);
        of_znode.chain(of_children).copied().collect()
    }

    /// The same of a recursive watch, each with its path.
    pub(crate) fn below(&self, path: &str, zxid: i64, until: i64) -> Vec<(i64, EventKind, &str)> {
        let prefix = if path == "/" { path.to_owned() } else { format!("{path}/") };
        let own = self.of_znodes.get_key_value(path);
        let others = self.of_znodes.range(prefix.clone()..);
        let others = others.take_while(|(path, _)| path.starts_with(&prefix));
        let all = own.into_iter().filter(|(path, _)| **path != prefix).chain(others);
        all.flat_map(|(path, all)| {
            within(all, zxid, until).iter().map(move |(zxid, kind)| (*zxid, *kind, path.as_str()))
        })
        .collect()
    }

    fn add(&mut self, zxid: i64, Change { kind, path }: &Change) {
        self.of_znodes.entry(path.clone()).or_default().push((zxid, *kind));
        let before = self.state(path, zxid);
        let after = match kind {
            EventKind::Created => Some((zxid, zxid)),
            EventKind::Deleted => None,
            EventKind::DataChanged | EventKind::ChildrenChanged => {
                before.map(|(_, pzxid)| (zxid, pzxid))
            }
        };
        self.states.entry(path.clone()).or_default().push((zxid, after));
        if *kind == EventKind::DataChanged {
            return;
        }
        if *kind == EventKind::Deleted {
            self.of_parents.entry(path.clone()).or_default().push((zxid, EventKind::Deleted));
        }
        if let Some((parent, _)) = path::split(path) {
            let seen = (zxid, EventKind::ChildrenChanged);
            self.of_parents.entry(parent.to_owned()).or_default().push(seen);
            let state = self.state(parent, zxid).map(|(mzxid, _)| (mzxid, zxid));
            self.states.entry(parent.to_owned()).or_default().push((zxid, state));
        }
    }

    /// mzxid and pzxid of a znode after the transaction `zxid`, if it was there.
    pub(crate) fn state(&self, path: &str, zxid: i64) -> State {
        let is_from_the_start = path == "/" || path.starts_with("/zookeeper");
        let first = is_from_the_start.then_some((0, 0));
        let Some(states) = self.states.get(path) else { return first };
        match states.partition_point(|(since, _)| *since <= zxid) {
            0 => first,
            after => states[after - 1].1,
        }
    }

    /// The first change behind `zxid` that a data watch sees.
    pub(crate) fn next_of_znode(&self, path: &str, zxid: i64) -> Option<(i64, EventKind)> {
        next(self.of_znodes.get(path)?, zxid)
    }

    /// The first change behind `zxid` that a child watch sees.
    pub(crate) fn next_of_children(&self, path: &str, zxid: i64) -> Option<(i64, EventKind)> {
        next(self.of_parents.get(path)?, zxid)
    }
}

/// What those who watch see of changes: each one itself, then its parent's children.
fn in_order(changes: &[Change]) -> Vec<(EventKind, String)> {
    let mut all = Vec::with_capacity(changes.len());
    for Change { kind, path } in changes {
        all.push((*kind, path.clone()));
        let parent = path::split(path).filter(|_| *kind != EventKind::DataChanged);
        all.extend(parent.map(|(parent, _)| (EventKind::ChildrenChanged, parent.to_owned())));
    }
    all
}

/// Those behind `zxid`, up to `until`.
fn within(changes: &[(i64, EventKind)], zxid: i64, until: i64) -> &[(i64, EventKind)] {
    let from = changes.partition_point(|(at, _)| *at <= zxid);
    let to = changes.partition_point(|(at, _)| *at <= until).max(from);
    &changes[from..to]
}

fn next(changes: &[(i64, EventKind)], zxid: i64) -> Option<(i64, EventKind)> {
    changes.get(changes.partition_point(|(at, _)| *at <= zxid)).copied()
}
