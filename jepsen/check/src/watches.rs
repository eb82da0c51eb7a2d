//! Watches (C11, C12): a watch fires once, at the first change behind the read that set it, before
//! any reply that could show that change; a persistent watch, or a recursive one of a znode or any above it, fires
//! at every change; and a watch that a client brings along to another server fires at once if it has missed
//! something, else it stands as if it had never moved. What one transaction changes is told in its order.
//!
//! *Owns* what each connection was to be told, computed from the servers' account, compared with what
//! it was told. *Invariant*: a watch lives as long as its connection; what was missed between two is
//! the part of `setWatches`. *Never* judges paths whose watches were taken away, nor a connection that
//! takes recursive ones away.

use std::collections::{BTreeMap, BTreeSet};

use crate::account::{self, Changes};
use crate::audit::AuditLine;
use crate::history::{EventKind, History, Notice, NoticeKind, Operation};
use crate::op::{Answer, Call, Code, SetWatches};
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// What one connection asked and was told.
#[derive(Debug, Default)]
struct Connection<'a> {
    /// Its replies, in the order in which they came: index of recording, zxid, operation.
    replies: Vec<(u64, i64, &'a Operation)>,
    /// What it was told unasked, in that order.
    events: Vec<&'a Notice>,
}

/// An event that a connection is to be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// The transaction; for what `setWatches` finds, the state that it looked at.
    zxid: i64,
    kind: EventKind,
    path: String,
    /// Found by `setWatches`, for which kind of watch: each tells of it.
    missed: Option<Kinds>,
    /// How often it was due in this transaction before: several children may come and go in one.
    before: usize,
}

/// Each with the reply, by its index, from which on it may be due.
type Dues = BTreeMap<Due, u64>;

/// Checks watches that reads set.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    judge(history, audit, Rule::Watch)
}

/// Checks watches that `setWatches` brought along.
#[must_use]
pub fn check_reconnects(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    judge(history, audit, Rule::WatchReconnect)
}

/// A connection that brought watches along is judged by the second rule, the others by the first.
fn judge(history: &History, audit: Option<&[AuditLine]>, rule: Rule) -> Verdict {
    let connections = connections(history);
    let brought = |operation: &Operation| matches!(operation.call, Call::SetWatches(_));
    let is_its = |connection: &&Connection<'_>| {
        let is_brought = connection.replies.iter().any(|(_, _, operation)| brought(operation));
        is_brought == (rule == Rule::WatchReconnect)
    };
    let mut judged =
        connections.iter().filter(is_its).filter(|connection| connection.sets_watches());
    let Some(first) = judged.next() else {
        return Verdict::Moot(format!("no connection set watches ({rule})"));
    };
    let changes = match account::replay(history, audit) {
        Ok(transactions) => Changes::of(&transactions),
        Err(verdict) => return verdict,
    };
    for connection in std::iter::once(first).chain(judged) {
        if let Err(violation) = connection.check(&changes, rule) {
            return Verdict::Invalid(violation);
        }
    }
    Verdict::Valid
}

/// What happened on each connection: between two connects of a process.
fn connections(history: &History) -> Vec<Connection<'_>> {
    let mut begins: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for operation in &history.operations {
        if matches!(operation.call, Call::Connect { .. }) {
            begins.entry(operation.process).or_default().push(operation.invoked.index);
        }
    }
    let number = |process: u64, index: u64| {
        begins.get(&process).map_or(0, |begins| begins.partition_point(|begin| *begin <= index))
    };
    let mut connections: BTreeMap<(u64, usize), Connection<'_>> = BTreeMap::new();
    for operation in &history.operations {
        let Some((at, zxid, _)) = operation.reply() else { continue };
        let key = (operation.process, number(operation.process, operation.invoked.index));
        connections.entry(key).or_default().replies.push((at.index, zxid, operation));
    }
    for notice in &history.notices {
        if let NoticeKind::Watch { .. } = notice.kind {
            let key = (notice.process, number(notice.process, notice.at.index));
            connections.entry(key).or_default().events.push(notice);
        }
    }
    let mut all: Vec<Connection<'_>> = connections.into_values().collect();
    all.iter_mut().for_each(|connection| connection.replies.sort_by_key(|(index, _, _)| *index));
    all
}

impl<'a> Connection<'a> {
    fn sets_watches(&self) -> bool {
        let sets = |call: &Call| match call {
            Call::SetWatches(_) => true,
            Call::Exists { watch, .. }
            | Call::GetData { watch, .. }
            | Call::GetChildren { watch, .. } => *watch,
            Call::AddWatch { .. } => true,
            _ => false,
        };
        self.replies.iter().any(|(_, _, operation)| sets(&operation.call))
    }

    /// What it is told must be what is due, in time.
    fn check(&self, changes: &Changes, rule: Rule) -> Result<(), Violation> {
        let left_out = self.left_out();
        let is_taken_away = |(_, _, operation): &(u64, i64, &Operation)| match &operation.call {
            Call::AddWatch { path, recursive: true } => left_out.contains(path.as_str()),
            Call::SetWatches(SetWatches { recursive, .. }) => {
                recursive.iter().any(|path| left_out.contains(path.as_str()))
            }
            _ => false,
        };
        if self.replies.iter().any(is_taken_away) {
            return Ok(());
        }
        let mut due = self.due(changes);
        due.retain(|due, _| !left_out.contains(due.path.as_str()));
        let told = self.told(&due, &left_out, rule)?;
        self.in_order(changes, rule)?;
        let replies = self.states_shown();
        for (due, since) in &due {
            let shows = replies.partition_point(|(_, zxid, _)| *zxid < due.zxid);
            let behind = replies.partition_point(|(index, _, _)| index < since);
            let Some((index, _, operation)) = replies.get(shows.max(behind)) else { continue };
            let what = match told.get(due) {
                Some(told) if told < index => continue,
                Some(_) => format!("{} came too late", text(due)),
                None => format!("{} never came", text(due)),
            };
            let around = vec![format!("> {}", report::operation(operation))];
            return Err(Violation { rule, what, around });
        }
        Ok(())
    }

    /// Replies that show a state: index, the highest zxid so far, operation.
    fn states_shown(&self) -> Vec<(u64, i64, &'a Operation)> {
        let speaks = |operation: &Operation| {
            let said = operation.reply().map(|(_, _, said)| said);
            said.is_some_and(|said| said.as_ref().err().is_none_or(|code| code.is_of_the_znodes()))
        };
        let mut newest = i64::MIN;
        let shown = self.replies.iter().filter(|(_, _, operation)| speaks(operation));
        shown
            .map(|(index, zxid, operation)| {
                newest = newest.max(*zxid);
                (*index, newest, *operation)
            })
            .collect()
    }

    /// What is told of one transaction is told in its order.
    fn in_order(&self, changes: &Changes, rule: Rule) -> Result<(), Violation> {
        let mut before: Option<(i64, usize, &Notice)> = None;
        for notice in &self.events {
            let NoticeKind::Watch { zxid, event, path } = &notice.kind else { continue };
            let Some(place) = changes.place(*zxid, *event, path) else { continue };
            if let Some((of, last, other)) = before
                && of == *zxid
                && place < last
            {
                let what =
                    format!("{event:?} of {path} came behind what its transaction did later");
                let around = vec![report::notice(other), format!("> {}", report::notice(notice))];
                return Err(Violation { rule, what, around });
            }
            before = Some((*zxid, place, notice));
        }
        Ok(())
    }

    /// The last state that it was shown or told of.
    fn last_zxid(&self) -> i64 {
        let told = self.events.iter().filter_map(|notice| match &notice.kind {
            NoticeKind::Watch { zxid, .. } => Some(*zxid),
            _ => None,
        });
        self.replies.iter().map(|(_, zxid, _)| *zxid).chain(told).max().unwrap_or_default()
    }

    /// When each event that was due was told.
    fn told(
        &self,
        due: &Dues,
        left_out: &BTreeSet<&str>,
        rule: Rule,
    ) -> Result<BTreeMap<Due, u64>, Violation> {
        let mut waiting: BTreeMap<(&str, EventKind), Vec<&Due>> = BTreeMap::new();
        for due in due.keys().rev() {
            waiting.entry((&due.path, due.kind)).or_default().push(due);
        }
        let mut told = BTreeMap::new();
        for notice in &self.events {
            let NoticeKind::Watch { zxid, event, path } = &notice.kind else { continue };
            if left_out.contains(path.as_str()) {
                continue;
            }
            let fits = |due: &&Due| *zxid < 0 || *zxid == due.zxid || due.missed.is_some();
            let of_path = waiting.get_mut(&(path.as_str(), *event));
            let found = of_path.and_then(|waiting| {
                let place = waiting.iter().rposition(fits)?;
                Some(waiting.remove(place))
            });
            let Some(found) = found else {
                let what = format!("{event:?} of {path} came, and nothing was due");
                let around = vec![format!("> {}", report::notice(notice))];
                return Err(Violation { rule, what, around });
            };
            told.insert(found.clone(), notice.at.index);
        }
        Ok(told)
    }

    /// All that it is to be told, if it lasts.
    fn due(&self, changes: &Changes) -> Dues {
        let mut due = Dues::new();
        let until = self.last_zxid();
        for (index, zxid, operation) in &self.replies {
            let Some((_, _, said)) = operation.reply() else { continue };
            let mut add = |found: Option<(i64, EventKind)>, path: &str, missed: Option<Kinds>| {
                let Some((zxid, kind)) = found else { return };
                let found = Due { zxid, kind, path: path.to_owned(), missed, before: 0 };
                due.entry(found).or_insert(*index);
            };
            let stay = |due: &mut Dues, path: &str, recursive: bool| {
                let all = match recursive {
                    true => changes.below(path, *zxid, until),
                    false => {
                        let all = changes.of_path(path, *zxid, until);
                        all.into_iter().map(|(zxid, kind)| (zxid, kind, path)).collect()
                    }
                };
                let mut counts: BTreeMap<(i64, EventKind, &str), usize> = BTreeMap::new();
                for (zxid, kind, path) in all {
                    let count = counts.entry((zxid, kind, path)).or_default();
                    let (path, before) = (path.to_owned(), *count);
                    *count += 1;
                    due.entry(Due { zxid, kind, path, missed: None, before }).or_insert(*index);
                }
            };
            match &operation.call {
                Call::Exists { path, watch: true }
                    if matches!(said, Ok(_) | Err(Code::NO_NODE)) =>
                {
                    add(changes.next_of_znode(path, *zxid), path, None);
                }
                Call::GetData { path, watch: true } if said.is_ok() => {
                    add(changes.next_of_znode(path, *zxid), path, None);
                }
                Call::GetChildren { path, watch: true, .. } if said.is_ok() => {
                    add(changes.next_of_children(path, *zxid), path, None);
                }
                Call::SetWatches(watches) if *said == Ok(Answer::Done) => {
                    for (path, is_there, kinds) in of_each(watches) {
                        let state = changes.state(path, *zxid);
                        match kinds.missed(state, is_there, watches.relative_zxid) {
                            Some(kind) => add(Some((*zxid, kind)), path, Some(kinds)),
                            None => add(kinds.next(changes, path, *zxid), path, None),
                        }
                    }
                    watches.persistent.iter().for_each(|path| stay(&mut due, path, false));
                    watches.recursive.iter().for_each(|path| stay(&mut due, path, true));
                }
                Call::AddWatch { path, recursive } if said.is_ok() => {
                    stay(&mut due, path, *recursive);
                }
                _ => {}
            }
        }
        due
    }

    /// Paths whose watch was taken away.
    fn left_out(&self) -> BTreeSet<&'a str> {
        let mut paths = BTreeSet::new();
        for (_, _, operation) in &self.replies {
            if let Call::RemoveWatches { path, .. } = &operation.call {
                paths.insert(path.as_str());
            }
        }
        paths
    }
}

/// What a watch looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kinds {
    Znode,
    Children,
}

impl Kinds {
    /// What has changed since `relative_zxid`, for a watch that was set on a znode that was there.
    fn missed(
        self,
        state: Option<(i64, i64)>,
        was_there: bool,
        relative_zxid: i64,
    ) -> Option<EventKind> {
        match (self, state) {
            (_, None) => was_there.then_some(EventKind::Deleted),
            (_, Some(_)) if !was_there => Some(EventKind::Created),
            (Kinds::Znode, Some((mzxid, _))) => {
                (mzxid > relative_zxid).then_some(EventKind::DataChanged)
            }
            (Kinds::Children, Some((_, pzxid))) => {
                (pzxid > relative_zxid).then_some(EventKind::ChildrenChanged)
            }
        }
    }

    fn next(self, changes: &Changes, path: &str, zxid: i64) -> Option<(i64, EventKind)> {
        match self {
            Kinds::Znode => changes.next_of_znode(path, zxid),
            Kinds::Children => changes.next_of_children(path, zxid),
        }
    }
}

/// Each watch: its path, whether the znode was there when it was set, and what it looks at.
fn of_each(watches: &SetWatches) -> impl Iterator<Item = (&String, bool, Kinds)> {
    let data = watches.data.iter().map(|path| (path, true, Kinds::Znode));
    let exist = watches.exist.iter().map(|path| (path, false, Kinds::Znode));
    let child = watches.child.iter().map(|path| (path, true, Kinds::Children));
    data.chain(exist).chain(child)
}

fn text(due: &Due) -> String {
    format!("{:?} of {} (zxid {:#x})", due.kind, due.path, due.zxid)
}
