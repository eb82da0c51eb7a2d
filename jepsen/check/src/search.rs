//! The search (C1 for unknown outcomes): is there an order of a path's operations that explains every
//! answer and keeps real time?
//!
//! *Owns* just-in-time linearization after Lowe: the history is read event by event; a set of
//! configurations (a state and which open operations have taken effect in it) is carried along, and an
//! operation takes effect at the latest when it returns. Memory follows concurrency, not length. An
//! operation with unknown outcome may take effect at any time after it was asked for, or never; it is
//! open to the end. *Invariants*: the verdict does not depend on zxids, which the witness has checked; a
//! path whose configurations exceed [`CONFIGURATIONS_MAX`] gets `Unknown`, never a guess.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::history::{History, Operation};
use crate::op::Call;
use crate::register::{Ask, Register, Said};
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// Configurations of one path beyond which the search gives up.
pub const CONFIGURATIONS_MAX: usize = 1 << 16;

/// What operations do to a state.
pub trait Model {
    /// The state; small, for many are kept.
    type State: Clone + Ord + Debug;
    /// What was asked.
    type Ask: Debug;
    /// What was answered.
    type Said: Debug;

    /// The state before everything.
    fn initial(&self) -> Self::State;

    /// Every state in which `ask` may leave `state` if it is answered by `said`; none if it cannot be
    /// answered so. `None` for an answer that nobody has seen: all that may come of it.
    fn step(
        &self,
        state: &Self::State,
        ask: &Self::Ask,
        said: Option<&Self::Said>,
        next: &mut Vec<Self::State>,
    );
}

/// An operation of a search: times are any numbers that rise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval<A, S> {
    pub invoked: u64,
    /// End and answer; `None` if the outcome is unknown.
    pub returned: Option<(u64, S)>,
    pub ask: A,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is an order.
    Order,
    /// There is none: this operation cannot have returned as it did.
    NoOrder(usize),
    /// Too many possibilities.
    GaveUp(usize),
}

/// A state, and the open operations that have taken effect in it: those that will return, and those
/// that never do.
type Configuration<S> = (S, BTreeSet<usize>, BTreeSet<usize>);

/// Searches for an order. Operations that end and begin at one time are concurrent.
pub fn search<M: Model>(model: &M, operations: &[Interval<M::Ask, M::Said>]) -> Found {
    // At one time, what begins comes before what ends.
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(operations.len() * 2);
    for (at, operation) in operations.iter().enumerate() {
        events.push((operation.invoked, false, at));
        if let Some((end, _)) = &operation.returned {
            events.push((*end, true, at));
        }
    }
    events.sort_unstable();
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut configurations: BTreeSet<Configuration<M::State>> =
        BTreeSet::from([(model.initial(), BTreeSet::new(), BTreeSet::new())]);
    for (_, is_end, at) in events {
        if !is_end {
            open.insert(at);
            continue;
        }
        let Some(all) = with_effect(model, operations, &open, configurations, at) else {
            return Found::GaveUp(at);
        };
        if all.is_empty() {
            return Found::NoOrder(at);
        }
        open.remove(&at);
        configurations = without_dominated(all);
    }
    Found::Order
}

/// All configurations in which `returning` has taken effect, and is forgotten; `None` if there are too
/// many on the way.
fn with_effect<M: Model>(
    model: &M,
    operations: &[Interval<M::Ask, M::Said>],
    open: &BTreeSet<usize>,
    configurations: BTreeSet<Configuration<M::State>>,
    returning: usize,
) -> Option<BTreeSet<Configuration<M::State>>> {
    let mut done = BTreeSet::new();
    let mut seen: BTreeSet<Configuration<M::State>> = BTreeSet::new();
    let mut waiting: Vec<Configuration<M::State>> = configurations.into_iter().collect();
    let mut next = Vec::new();
    while let Some(configuration) = waiting.pop() {
        if configuration.1.contains(&returning) {
            let (state, mut known, unknown) = configuration;
            known.remove(&returning);
            done.insert((state, known, unknown));
            continue;
        }
        if seen.contains(&configuration) {
            continue;
        }
        let (state, known, unknown) = &configuration;
        for at in open.iter().filter(|at| !known.contains(at) && !unknown.contains(at)) {
            let operation = &operations[*at];
            let said = operation.returned.as_ref().map(|(_, said)| said);
            model.step(state, &operation.ask, said, &mut next);
            for state in next.drain(..) {
                let (mut known, mut unknown) = (known.clone(), unknown.clone());
                if said.is_some() {
                    known.insert(*at)
                } else {
                    unknown.insert(*at)
                };
                waiting.push((state, known, unknown));
            }
        }
        seen.insert(configuration);
        if seen.len() + done.len() > CONFIGURATIONS_MAX {
            return None;
        }
    }
    Some(done)
}

/// A configuration that has used up fewer operations of unknown outcome can do whatever one can that
/// has used up those and more.
fn without_dominated<S: Clone + Ord>(
    all: BTreeSet<Configuration<S>>,
) -> BTreeSet<Configuration<S>> {
    let mut groups: BTreeMap<(S, BTreeSet<usize>), Vec<BTreeSet<usize>>> = BTreeMap::new();
    for (state, known, unknown) in all {
        let kept = groups.entry((state, known)).or_default();
        if !kept.iter().any(|less| less.is_subset(&unknown)) {
            kept.retain(|more| !unknown.is_subset(more));
            kept.push(unknown);
        }
    }
    let flat = groups.into_iter().flat_map(|((state, known), kept)| {
        kept.into_iter().map(move |unknown| (state.clone(), known.clone(), unknown))
    });
    flat.collect()
}

/// Checks each path for itself: a znode as a register that may be absent. Plain reads may be old and
/// are left out, unless `linearizable_reads`; a read right behind a `sync` of its client is as new as
/// the begin of that. Paths that a multi, a sequential or an ephemeral create, a container or a time to
/// live may change are left to the witness: what changes them is not all on the path.
#[must_use]
pub fn check(history: &History, linearizable_reads: bool) -> Verdict {
    let paths = by_path(history, linearizable_reads);
    if paths.is_empty() {
        return Verdict::Moot("no path has operations that can be searched".to_owned());
    }
    let mut verdict = Verdict::Valid;
    for (path, found) in paths {
        let (operations, intervals): (Vec<&Operation>, Vec<_>) = found.into_iter().unzip();
        verdict = verdict.and(match search(&Register, &intervals) {
            Found::Order => Verdict::Valid,
            Found::NoOrder(at) => {
                let what = format!("no order of the operations on {path} explains an answer");
                let line = |operation: &&Operation| report::operation(operation);
                let around = report::around(&operations, at, line);
                Verdict::Invalid(Violation { rule: Rule::Linearizable, what, around })
            }
            Found::GaveUp(at) => Verdict::Unknown(format!(
                "more than {CONFIGURATIONS_MAX} possibilities on {path} at {}",
                report::operation(operations[at])
            )),
        });
    }
    verdict
}

/// The operations that concern one path alone, by path.
type ByPath<'a> = BTreeMap<&'a str, Vec<(&'a Operation, Interval<Ask, Said>)>>;

fn by_path(history: &History, linearizable_reads: bool) -> ByPath<'_> {
    let mut paths: ByPath<'_> = BTreeMap::new();
    let mut left_out: BTreeSet<String> = BTreeSet::new();
    let mut previous: BTreeMap<u64, &Operation> = BTreeMap::new();
    for operation in &history.operations {
        let before = previous.insert(operation.process, operation);
        left_out.extend(Register::reaches_elsewhere(operation));
        let (Some(mut interval), Some(path)) =
            (Register::interval(operation), operation.call.path())
        else {
            continue;
        };
        if operation.call.is_read() && !linearizable_reads {
            let Some(sync) = before.filter(|before| is_sync_for(before, operation)) else {
                continue;
            };
            interval.invoked = sync.invoked.time_ns;
        }
        paths.entry(path).or_default().push((operation, interval));
    }
    let (prefixes, exact): (Vec<String>, Vec<String>) =
        left_out.into_iter().partition(|path| path.ends_with('*'));
    let is_left_out = |path: &str| {
        let begins = |prefix: &String| path.starts_with(prefix.trim_end_matches('*'));
        exact.iter().any(|left| left == path) || prefixes.iter().any(begins)
    };
    paths.retain(|path, _| !is_left_out(path));
    paths
}

/// Whether a read is as new as a `sync` right before it.
fn is_sync_for(sync: &Operation, read: &Operation) -> bool {
    matches!(sync.call, Call::Sync { .. })
        && sync.reply().is_some_and(|(_, _, result)| result.is_ok())
        && (sync.session, &sync.node) == (read.session, &read.node)
}
