//! What is wrong with a lock, in plain words.
//!
//! *Owns* the rules by which a [`Finding`] is made. *Invariants*: nothing is found in what is not known: a server that
//! has not answered makes no contender an orphan; what is gone a moment later is not found.

use std::collections::{BTreeMap, BTreeSet};

use super::clients::{Clients, Presence};
use super::grouping::Group;
use super::lock::{Finding, FindingKind, Kind, Lock, Mode, Place};
use super::respect;
use super::snapshot::{Directory, WatchKind};
use super::species::Species;

/// Paths that a finding names.
const NODES_MAX: usize = 10;
/// A client that has made its znode needs a moment to watch another one.
const ORPHAN_AGE_MS_MIN: u64 = 2_000;
/// From here on, nine tenths of the numbers are used up.
const COUNTER_MAX: i32 = 1_932_735_282;

/// All findings of one lock by itself, in the order of their kinds.
pub(super) fn of(
    lock: &Lock,
    group: &Group<'_>,
    queue: Option<&Group<'_>>,
    clients: &Clients<'_>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(mixed_dialects(lock, group));
    found.extend(orphans(lock));
    found.extend(herds(lock, group.directory, clients));
    found.extend(disconnected(lock));
    found.extend(not_ephemeral(lock));
    for directory in std::iter::once(group.directory).chain(queue.map(|queue| queue.directory)) {
        found.extend(strangers(lock, directory));
        found.extend(counter(directory));
    }
    found
}

fn finding<'a>(
    kind: FindingKind,
    text: String,
    nodes: impl IntoIterator<Item = &'a str>,
) -> Finding {
    let nodes = nodes.into_iter().take(NODES_MAX).map(str::to_owned).collect();
    Finding { kind, text, nodes, cycle: Vec::new() }
}

fn paths<'a>(places: &[&'a Place]) -> impl Iterator<Item = &'a str> {
    places.iter().map(|place| place.node.as_str())
}

fn mixed_dialects(lock: &Lock, group: &Group<'_>) -> Option<Finding> {
    let species: BTreeSet<Species<'_>> =
        group.members.iter().map(|(_, species)| *species).collect();
    // Those of this library wait for all.
    let careless: BTreeSet<Species<'_>> = group
        .members
        .iter()
        .filter(|(znode, _)| !respect::waits_for_all(&znode.name))
        .map(|(_, species)| *species)
        .collect();
    let mut pairs = BTreeSet::new();
    for later in &careless {
        for earlier in &species {
            let is_safe = respect::waits(*later, *earlier) || respect::share(*later, *earlier);
            if later != earlier && !is_safe && lock.kind != Kind::Party {
                pairs.insert((word(*later), word(*earlier)));
            }
        }
    }
    if pairs.is_empty() {
        return None;
    }
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(later, earlier)| format!("{later} does not wait for {earlier}"))
        .collect();
    let text = format!("contenders that do not exclude each other: {}", pairs.join(", "));
    Some(finding(FindingKind::MixedDialects, text, lock.holders.iter().map(|p| p.node.as_str())))
}

/// As people call it.
fn word(species: Species<'_>) -> String {
    match species {
        Species::Lock(dialect) => dialect.to_string(),
        Species::DocRead => "read-N".to_string(),
        Species::DocWrite => "write-N".to_string(),
        Species::Latch => "Curator's LeaderLatch".to_string(),
        Species::Candidate => "n_N".to_string(),
        Species::SessionCandidate => "<session>-<node>-n_N".to_string(),
        Species::Simple => "the znode lock".to_string(),
        Species::Lease => "Curator's leases".to_string(),
        Species::KazooLease => "kazoo's leases".to_string(),
        Species::Party => "kazoo's party".to_string(),
        Species::Named { stem, .. } => format!("{stem}N"),
    }
}

fn orphans(lock: &Lock) -> Option<Finding> {
    let is_orphan = |place: &&Place| {
        let is_there = matches!(place.presence, Presence::Connected { .. });
        let is_blind = place.watches.as_ref().is_some_and(Vec::is_empty);
        is_there && is_blind && place.age_ms >= ORPHAN_AGE_MS_MIN
    };
    let orphans: Vec<&Place> = lock.waiters.iter().filter(is_orphan).collect();
    if orphans.is_empty() {
        return None;
    }
    let text = "contenders that wait for nothing: their clients have given up and left them, so that \
                the lock will get stuck on them until those sessions end";
    Some(finding(FindingKind::Orphan, text.to_owned(), paths(&orphans)))
}

fn herds(lock: &Lock, directory: &Directory, clients: &Clients<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut watchers: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for place in &lock.waiters {
        // Readers may all go on when a writer is done.
        let is_reader = place.mode == Mode::Read;
        for (path, kind) in place.watches.iter().flatten().filter(|_| !is_reader) {
            if *kind == WatchKind::Data && *path != directory.path {
                watchers.entry(path).or_default().insert(place.session);
            }
        }
    }
    for (path, sessions) in watchers.into_iter().filter(|(_, sessions)| sessions.len() > 1) {
        let text = format!("herd: {} waiters are woken together by one znode", sessions.len());
        found.push(finding(FindingKind::Herd, text, [path]));
    }
    if lock.kind == Kind::Party {
        return found;
    }
    let places = lock.waiters.iter().filter(|place| place.session != 0);
    let listers: BTreeSet<i64> = places
        .map(|place| place.session)
        .filter(|session| clients.watches_list(*session, &directory.path))
        .collect();
    if listers.len() > 1 {
        let text = format!(
            "herd: {} waiters are woken by every change of the list of contenders",
            listers.len()
        );
        found.push(finding(FindingKind::Herd, text, [directory.path.as_str()]));
    }
    found
}

fn disconnected(lock: &Lock) -> Option<Finding> {
    let gone: Vec<&Place> =
        lock.holders.iter().filter(|place| place.presence == Presence::Disconnected).collect();
    let first = gone.first()?;
    let when = match first.expires_in_ms {
        Some(ms) => format!("; unless it comes back, its session ends in {} ms", ms),
        None => String::new(),
    };
    let text = match gone.len() {
        1 => format!("the holder's client is not connected to any server{when}"),
        many => format!("the clients of {many} holders are not connected to any server"),
    };
    Some(finding(FindingKind::HolderDisconnected, text, paths(&gone)))
}

fn not_ephemeral(lock: &Lock) -> Option<Finding> {
    let places = lock.holders.iter().chain(&lock.waiters);
    let lasting: Vec<&Place> = places.filter(|place| place.session == 0).collect();
    if lasting.is_empty() {
        return None;
    }
    let text = "contenders that are not ephemeral: they stay when their clients die".to_owned();
    Some(finding(FindingKind::NotEphemeral, text, paths(&lasting)))
}

fn strangers(lock: &Lock, directory: &Directory) -> Option<Finding> {
    if directory.strangers == 0 || !lock.dialects.contains(&"go") {
        return None;
    }
    let text = format!(
        "{} children that are no contenders: go-zookeeper's lock fails for everybody because of them",
        directory.strangers
    );
    let names: Vec<String> =
        directory.stranger_names.iter().map(|name| directory.child(name)).collect();
    Some(finding(FindingKind::Stranger, text, names.iter().map(String::as_str)))
}

fn counter(directory: &Directory) -> Option<Finding> {
    let next = directory.next;
    let text = if next < 0 {
        "the numbers of contenders have gone over 2147483647: libraries that compare them as text \
         take later ones for earlier ones; let the directory be made anew"
            .to_owned()
    } else if next > COUNTER_MAX {
        format!(
            "{next} contenders were made here: from 2147483648 on, libraries that compare their \
             numbers as text get the order wrong; let the directory be made anew"
        )
    } else {
        return None;
    };
    Some(finding(FindingKind::Counter, text, [directory.path.as_str()]))
}
