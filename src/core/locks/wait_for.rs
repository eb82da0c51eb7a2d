//! The wait-for graph: sessions that hold one lock and wait for another, and cycles of them.
//!
//! *Owns* the search for deadlocks among the locks of one view. *Invariants*: linear in the contenders; of what
//! is found, every step was seen: a session waits, another one holds what it waits for; of a semaphore all
//! holders must be stuck, because any one of them could give its permit back. *Never* finds a deadlock in what
//! need not be one: candidates of elections and numbered znodes of unknown layouts do not block their clients,
//! a session that waits for a lock that it holds itself has several threads, and a wait that has just begun may
//! be over.
//!
//! Graph reduction: sessions that wait for nothing are free, and what they hold will be released; a session
//! that waits for that alone is free in turn. The sessions that are left over wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use super::lock::{Finding, FindingKind, Kind, Lock, Place, Step};
use super::respect;
use super::species::Species;

/// A wait that is shorter is not looked at: most of them end by themselves.
const WAIT_MS_MIN: u64 = 2_000;
/// Sessions of one cycle that its finding names.
const STEPS_MAX: usize = 10;

/// Adds a finding to each lock of each cycle. Of cycles that share a session one is found.
pub(super) fn add_deadlocks(locks: &mut [Lock]) {
    for cycle in cycles(locks) {
        let finding = finding(locks, &cycle);
        let places: BTreeSet<usize> = cycle.iter().map(|edge| edge.lock).collect();
        for at in places {
            locks[at].findings.insert(0, finding.clone());
        }
    }
}

/// A session waits for a lock that another one holds.
#[derive(Clone, Copy, Debug)]
struct Edge {
    lock: usize,
    /// Which of its waiters.
    waiter: usize,
    /// Which of its holders.
    holder: usize,
}

/// What has to happen before waiters of a lock go on.
#[derive(Debug, Default)]
struct Condition {
    lock: usize,
    /// The first place of each session that holds it.
    holders: Vec<(i64, usize)>,
    /// How many of these sessions are not known to be free.
    stuck: usize,
    /// One of them is enough.
    needs_one: bool,
    is_met: bool,
    /// Sessions that wait for that, and the place of each.
    waiters: Vec<(i64, usize)>,
}

/// What is known of a session.
#[derive(Debug, Default)]
struct Session {
    /// Conditions that it waits for.
    waits: Vec<usize>,
    /// How many of them are not met.
    unmet: usize,
    /// Conditions that wait for it.
    blocks: Vec<usize>,
}

fn cycles(locks: &[Lock]) -> Vec<Vec<Edge>> {
    let mut conditions = conditions(locks);
    let mut sessions: BTreeMap<i64, Session> = BTreeMap::new();
    for (at, condition) in conditions.iter().enumerate() {
        for (session, _) in &condition.waiters {
            let session = sessions.entry(*session).or_default();
            session.waits.push(at);
            session.unmet += 1;
        }
        for (session, _) in &condition.holders {
            sessions.entry(*session).or_default().blocks.push(at);
        }
    }
    let mut free: Vec<i64> =
        sessions.iter().filter(|(_, known)| known.unmet == 0).map(|(id, _)| *id).collect();
    while let Some(id) = free.pop() {
        let blocks = sessions.get_mut(&id).map(|session| std::mem::take(&mut session.blocks));
        for at in blocks.unwrap_or_default() {
            let condition = &mut conditions[at];
            condition.stuck -= 1;
            if condition.is_met || !(condition.needs_one || condition.stuck == 0) {
                continue;
            }
            condition.is_met = true;
            for (waiter, _) in &condition.waiters {
                let Some(waiting) = sessions.get_mut(waiter) else { continue };
                waiting.unmet -= 1;
                if waiting.unmet == 0 {
                    free.push(*waiter);
                }
            }
        }
    }
    walk(&conditions, &sessions)
}

/// Every session that is left waits for one that is left: from each on to such a one, until the way comes to where it
/// was.
fn walk(conditions: &[Condition], sessions: &BTreeMap<i64, Session>) -> Vec<Vec<Edge>> {
    let is_stuck = |id: &i64| sessions.get(id).is_some_and(|session| session.unmet > 0);
    let next = |id: i64| -> Option<(i64, Edge)> {
        let waits = &sessions.get(&id)?.waits;
        let condition = waits.iter().map(|at| &conditions[*at]).find(|one| !one.is_met)?;
        let (_, waiter) = condition.waiters.iter().find(|(waiter, _)| *waiter == id)?;
        let (holder, at) = condition.holders.iter().find(|(holder, _)| is_stuck(holder))?;
        Some((*holder, Edge { lock: condition.lock, waiter: *waiter, holder: *at }))
    };
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for start in sessions.keys().copied().filter(is_stuck) {
        let (mut way, mut place_on_way) = (Vec::new(), BTreeMap::new());
        let mut at = start;
        while seen.insert(at) {
            place_on_way.insert(at, way.len());
            let Some((holder, edge)) = next(at) else { break };
            way.push(edge);
            at = holder;
        }
        if let Some(begin) = place_on_way.get(&at)
            && *begin < way.len()
        {
            cycles.push(way.split_off(*begin));
        }
    }
    cycles
}

/// What waiters of these locks wait for, as far as that may be part of a deadlock.
fn conditions(locks: &[Lock]) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (at, lock) in locks.iter().enumerate() {
        let is_limited = match lock.kind {
            Kind::Mutex | Kind::ReadWrite => false,
            Kind::Semaphore => true,
            Kind::Election | Kind::Party | Kind::Sequence => continue,
        };
        let is_free = lock.limit.is_some_and(|limit| lock.holders.len() < limit as usize);
        if is_limited && (is_free || lock.hidden > 0) {
            continue;
        }
        let own: BTreeSet<i64> = lock.holders.iter().map(|place| place.session).collect();
        let mut first = own.clone();
        let waiters = lock.waiters.iter().enumerate().filter(|(_, place)| {
            place.session != 0 && place.age_ms >= WAIT_MS_MIN && first.insert(place.session)
        });
        let is_mixed = lock.findings.iter().any(|one| one.kind == FindingKind::MixedDialects);
        let mut of_lock: BTreeMap<Option<Respects<'_>>, Condition> = BTreeMap::new();
        for (number, waiter) in waiters {
            // Where all wait for all, those in front go on when the holders do.
            let respects = is_mixed.then(|| Respects::of(waiter));
            let condition = of_lock.entry(respects).or_insert_with(|| Condition {
                lock: at,
                needs_one: is_limited,
                holders: holders(lock, respects),
                ..Condition::default()
            });
            condition.waiters.push((waiter.session, number));
        }
        for mut condition in of_lock.into_values() {
            condition.stuck = condition.holders.len();
            let is_lasting = condition.holders.iter().any(|(session, _)| *session == 0);
            // Of a contender without a session it is not known what becomes of it.
            if condition.stuck > 0 && !is_lasting {
                conditions.push(condition);
            }
        }
    }
    conditions
}

/// For which holders a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Respects<'a> {
    species: Option<Species<'a>>,
    all: bool,
}

impl<'a> Respects<'a> {
    fn of(place: &'a Place) -> Self {
        let name = name(place);
        let species = Species::of(name).map(|(species, _)| species);
        Self { species, all: respect::waits_for_all(name) }
    }

    fn respects(self, holder: &Place) -> bool {
        let Some((earlier, _)) = Species::of(name(holder)) else { return false };
        self.species.is_some_and(|later| {
            respect::waits(later, earlier) || self.all && !respect::share(later, earlier)
        })
    }
}

/// The holders that count, each session once.
fn holders(lock: &Lock, respects: Option<Respects<'_>>) -> Vec<(i64, usize)> {
    let mut first = BTreeSet::new();
    let all = lock.holders.iter().enumerate();
    let counts = |place: &Place| respects.is_none_or(|respects| respects.respects(place));
    all.filter(|(_, place)| counts(place) && first.insert(place.session))
        .map(|(at, place)| (place.session, at))
        .collect()
}

fn name(place: &Place) -> &str {
    place.node.rsplit('/').next().unwrap_or_default()
}

fn finding(locks: &[Lock], cycle: &[Edge]) -> Finding {
    let steps = cycle.iter().enumerate().take(STEPS_MAX).map(|(at, edge)| {
        // What it holds is what the one in front of it on the way waits for.
        let held = &cycle[(at + cycle.len() - 1) % cycle.len()];
        let waiter = &locks[edge.lock].waiters[edge.waiter];
        Step {
            session: waiter.session,
            identity: waiter.identity.clone(),
            holds: locks[held.lock].label(),
            holds_node: locks[held.lock].holders[held.holder].node.clone(),
            waits_for: locks[edge.lock].label(),
            waits_node: waiter.node.clone(),
        }
    });
    let steps: Vec<Step> = steps.collect();
    let words: Vec<String> = steps
        .iter()
        .map(|step| {
            let who = step.identity.as_ref().map(|who| format!(" ({who})")).unwrap_or_default();
            let (session, holds, waits) = (step.session, &step.holds, &step.waits_for);
            format!("session {session:#x}{who} holds {holds} and waits for {waits}")
        })
        .collect();
    let more = match cycle.len() - steps.len() {
        0 => String::new(),
        more => format!("; and so on, {more} more sessions"),
    };
    let text = format!(
        "{} sessions wait for each other: {}{more}. None of them goes on until one gives up, is broken or ends, \
         unless a client holds and waits in different threads",
        cycle.len(),
        words.join("; ")
    );
    let nodes = steps.iter().map(|step| step.holds_node.clone()).collect();
    Finding { kind: FindingKind::Deadlock, text, nodes, cycle: steps }
}

#[cfg(test)]
mod tests;
