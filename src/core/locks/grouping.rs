//! Which contenders of one directory make one queue.
//!
//! *Owns* [`queues`]. Most names say it: they have a word in front of the number. Where a name is not of a
//! known layout, what is in front of the number may be the lock's name, or the contender's own: its session or
//! its host. So these are taken off, and what is left is the lock's name; and where one contender watches
//! another one, as each does with the one in front of it, both are in one queue whatever they are called.
//! *Invariants*: linear in contenders and watches; every contender is in one queue, in the directory's order.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::clients::Clients;
use super::snapshot::{Directory, Znode};
use super::species::Species;

/// Contenders of one directory that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class<'a> {
    Lock,
    Semaphore,
    Election,
    Party,
    Named(&'a str),
}

impl<'a> Class<'a> {
    pub(super) fn of(species: Species<'a>) -> Self {
        match species {
            Species::Lock(_) | Species::DocRead | Species::DocWrite | Species::Simple => Self::Lock,
            Species::Latch | Species::Candidate | Species::SessionCandidate => Self::Election,
            Species::Lease | Species::KazooLease => Self::Semaphore,
            Species::Party => Self::Party,
            Species::Named { stem, .. } => Self::Named(stem),
        }
    }
}

/// The contenders of one lock in one directory.
pub(super) struct Group<'a> {
    pub(super) directory: &'a Directory,
    pub(super) class: Class<'a>,
    pub(super) members: Vec<(&'a Znode, Species<'a>)>,
    /// What all of them have in front of their numbers, but for themselves; `None` if it is not the same.
    pub(super) stem: Option<&'a str>,
    /// Sessions that watch one of them, with the name of that one.
    pub(super) watches: Vec<(i64, &'a str)>,
}

/// All queues of a directory.
pub(super) fn queues<'a>(directory: &'a Directory, clients: &Clients<'a>) -> Vec<Group<'a>> {
    let mut kinds = BTreeMap::new();
    let mut members = Vec::new();
    for znode in &directory.contenders {
        let Some((species, _)) = Species::of(&znode.name) else { continue };
        let species = match species {
            Species::Named { stem, is_protected: false } => {
                Species::Named { stem: without_own(stem, znode), is_protected: false }
            }
            known => known,
        };
        let next = kinds.len();
        let number = *kinds.entry(Class::of(species)).or_insert(next);
        members.push((znode, species, number));
    }
    let watches = clients.watches_below(&directory.path);
    let joined = joined(&members, watches, kinds.len());
    let mut names = BTreeMap::new();
    let mut classes: Vec<(Class<'a>, usize)> = kinds.into_iter().collect();
    classes.sort_unstable();
    let mut queues: BTreeMap<usize, Group<'a>> = BTreeMap::new();
    for (class, number) in classes {
        let queue = queues.entry(joined[number]).or_insert(Group {
            directory,
            class,
            members: Vec::new(),
            stem: stem_of(class),
            watches: Vec::new(),
        });
        if stem_of(class) != queue.stem {
            queue.stem = None;
        }
    }
    for (znode, species, number) in members {
        let Some(queue) = queues.get_mut(&joined[number]) else { continue };
        let species = match (species, queue.class) {
            // One kind, so that it waits for itself.
            (Species::Named { is_protected, .. }, Class::Named(stem)) => {
                Species::Named { stem, is_protected }
            }
            (known, _) => known,
        };
        names.insert(znode.name.as_str(), joined[number]);
        queue.members.push((znode, species));
    }
    for (session, name) in watches {
        if let Some(queue) = names.get(name).and_then(|number| queues.get_mut(number)) {
            queue.watches.push((*session, *name));
        }
    }
    queues.into_values().collect()
}

fn stem_of(class: Class<'_>) -> Option<&str> {
    match class {
        Class::Named(stem) => Some(stem),
        Class::Lock | Class::Semaphore | Class::Election | Class::Party => None,
    }
}

/// For each kind, by its number, the number of the queue that it belongs to.
fn joined(
    members: &[(&Znode, Species<'_>, usize)],
    watches: &[(i64, &str)],
    count: usize,
) -> Vec<usize> {
    let mut parents: Vec<usize> = (0..count).collect();
    // Those that may belong to another queue than their names say, by name and by session.
    let mut names = BTreeMap::new();
    let mut sessions: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (znode, species, number) in members {
        if let Species::Named { is_protected: false, .. } = species {
            names.insert(znode.name.as_str(), *number);
            let own = sessions.entry(znode.session).or_default();
            if own.last() != Some(number) {
                own.push(*number);
            }
        }
    }
    for (session, name) in watches {
        // A session with contenders of several kinds does not say for which of them it watches.
        if let Some(watched) = names.get(name)
            && let Some([own]) = sessions.get(session).map(Vec::as_slice)
        {
            let (one, other) = (root(&mut parents, *watched), root(&mut parents, *own));
            parents[one.max(other)] = one.min(other);
        }
    }
    (0..count).map(|number| root(&mut parents, number)).collect()
}

/// The smallest number that a number is joined with; halves the way there.
fn root(parents: &mut [usize], mut number: usize) -> usize {
    while parents[number] != number {
        parents[number] = parents[parents[number]];
        number = parents[number];
    }
    number
}

/// What is in front of a number, without the contender's own session or host in front of that.
fn without_own<'a>(stem: &'a str, znode: &Znode) -> &'a str {
    let rest = without_session(stem, znode.session);
    let identity = znode.identity.as_deref().unwrap_or_default();
    let host = identity.split([':', ' ', ',', '/', '@']).next().unwrap_or_default();
    let known = [identity, host].into_iter().filter(|own| own.len() >= HOST_CHARS_MIN);
    let behind_host =
        known.into_iter().find_map(|own| behind(rest, own)).or_else(|| behind_address(rest));
    behind_host.map_or(rest, |rest| without_session(rest, znode.session))
}

/// The same of a contender that has left, without what its clients watched or said of themselves.
pub(super) fn class_without_clients(species: Species<'_>, session: i64) -> Class<'_> {
    match species {
        Species::Named { stem, is_protected: false } => {
            Class::Named(without_session(stem, session))
        }
        known => Class::of(known),
    }
}

fn without_session(stem: &str, id: i64) -> &str {
    if id == 0 {
        return stem;
    }
    let forms = [format!("{id}"), format!("0x{id:x}"), format!("{id:016x}"), format!("{id:x}")];
    forms.iter().find_map(|form| behind(stem, form)).unwrap_or(stem)
}

/// What is behind that and a separator.
fn behind<'a>(stem: &'a str, own: &str) -> Option<&'a str> {
    stem.strip_prefix(own)?.strip_prefix(SEPARATORS)
}

/// What is behind an IPv4 address, with a port or without.
fn behind_address(stem: &str) -> Option<&str> {
    let digits = |c: char| !c.is_ascii_digit() && c != '.';
    let end = stem.find(digits)?;
    stem[..end].parse::<Ipv4Addr>().ok()?;
    let rest = &stem[end..];
    let port =
        rest.strip_prefix(':').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    port.unwrap_or(rest).strip_prefix(SEPARATORS)
}

/// What stands between a contender's own name and the rest.
const SEPARATORS: [char; 3] = ['-', '_', ':'];
/// A shorter text may be anything.
const HOST_CHARS_MIN: usize = 3;
