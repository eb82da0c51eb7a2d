//! Questions of a scrape of `/metrics`, beyond the counters: locks, namespaces and room on the disks.
//!
//! *Owns* those questions. *Invariants*: how many numbers there are does not depend on how many locks
//! there are; one server of an ensemble has those of locks, so that their sum over all servers is true; a server or a
//! disk that is busy is not waited for. *Never* keeps anything between two questions.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;

use super::Source;
use super::locks::Asked;
use super::metrics::{LockFigures, Reading};
use crate::locks::view::{Kind, Lock};
use crate::locks::{FindingKind, Scope};
use crate::replica::inspect::{Inspect, Mode, Report};
use crate::supervision::{Task, spawn_blocking};

/// Reads everything: figures of locks are not there for the taking, the server and its peers are asked.
pub(super) async fn reading(source: &dyn Source) -> Reading {
    let status = source.status();
    let locks = locks(source).await;
    let namespaces = match timeout(ANSWER_MAX, source.inspect(Inspect::Namespaces)).await {
        Ok(Some(Report::Namespaces(namespaces))) => Some(namespaces),
        _ => None,
    };
    let free_bytes = free_bytes(source).await.unwrap_or_default();
    Reading { locks, namespaces, free_bytes, ..Reading::now(status, source.counters()) }
}

/// Free room on the disks, by what is there. A disk that hangs is not waited for.
async fn free_bytes(source: &dyn Source) -> Option<Vec<(&'static str, u64)>> {
    let facts = source.facts();
    let places = [("data", facts.data_dir.clone()), ("log", facts.log_dir.clone())];
    let free_at = |directory: Option<PathBuf>| {
        let disk = rustix::fs::statvfs(&directory?).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    };
    let look = spawn_blocking(Task::HttpAnswer, move || {
        let known = places.into_iter().filter_map(|(key, place)| Some((key, free_at(place)?)));
        known.collect()
    });
    timeout(ANSWER_MAX, look).await.ok()?.ok()
}

/// Asks for figures of locks, as the page of locks does; `None` on a server that neither leads nor runs alone,
/// and while it is stopping or too busy to answer.
async fn locks(source: &dyn Source) -> Option<LockFigures> {
    let status = source.status();
    if !status.serving || !matches!(status.mode, Mode::Leader | Mode::Standalone) {
        return None;
    }
    let everywhere = Scope::Locks { prefix: "/".to_owned() };
    let asked = timeout(ANSWER_MAX, Asked::ask(everywhere, source)).await.ok()??;
    spawn_blocking(Task::HttpAnswer, move || figures_of(&asked)).await.ok()
}

fn figures_of(asked: &Asked) -> LockFigures {
    let locks = asked.locks();
    let kinds = Kind::ALL.map(|kind| {
        let of_kind = locks.iter().filter(|lock| lock.kind == kind);
        (kind.name(), of_kind.count() as u64)
    });
    let findings = FindingKind::ALL.map(|kind| {
        let found = locks.iter().flat_map(|lock| &lock.findings);
        (kind.name(), found.filter(|finding| finding.kind == kind).count() as u64)
    });
    let (holders, waiters) =
        (|| locks.iter().flat_map(|lock| &lock.holders), || locks.iter().flat_map(|l| &l.waiters));
    let hidden: u64 = locks.iter().map(|lock| lock.hidden).sum();
    let used = |next: i32| if next < 0 { 1.0 } else { f64::from(next) / f64::from(i32::MAX) };
    let directories = asked.snapshot.directories.iter();
    LockFigures {
        kinds: kinds.to_vec(),
        holders: holders().count() as u64,
        waiters: waiters().count() as u64 + hidden,
        longest_wait_ms: waiters().map(|place| place.age_ms).max().unwrap_or(0),
        longest_hold_ms: holders().filter_map(|place| place.held_ms).max().unwrap_or(0),
        findings: findings.to_vec(),
        counter_ratio_max: directories.map(|one| used(one.next)).fold(0.0, f64::max),
        queues: longest_queues(&locks),
        is_cut: asked.is_cut(),
    }
}

fn longest_queues(locks: &[Lock]) -> Vec<(String, u64)> {
    let length = |lock: &Lock| lock.waiters.len() as u64 + lock.hidden;
    let queues = locks.iter().map(|lock| (lock.path.clone(), length(lock)));
    let is_shown = |(path, length): &(String, u64)| *length > 0 && path.len() <= PATH_BYTES_MAX;
    let mut queues: Vec<(String, u64)> = queues.filter(is_shown).collect();
    queues.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    queues.truncate(QUEUES_MAX);
    queues
}

/// Each is a label of a metric, so there must not be many.
const QUEUES_MAX: usize = 20;
/// A longer path is no label: a client may make one as long as a request.
const PATH_BYTES_MAX: usize = 1024;

/// Longest time for an answer: a collector of metrics does not wait for a busy server.
const ANSWER_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(path: &str, hidden: u64) -> Lock {
        Lock {
            path: path.to_owned(),
            name: None,
            kind: Kind::Mutex,
            dialects: Vec::new(),
            limit: None,
            holders: Vec::new(),
            waiters: Vec::new(),
            hidden,
            findings: Vec::new(),
        }
    }

    #[test]
    fn the_longest_queues_are_labels_unless_their_path_is_longer_than_a_label_may_be() {
        let path = "/".to_owned() + &"x".repeat(PATH_BYTES_MAX - 1);
        let locks =
            [lock(&path, 3), lock(&(path.clone() + "x"), 9), lock("/none-waits", 0), lock("/a", 5)];
        assert_eq!(longest_queues(&locks), [("/a".to_owned(), 5), (path, 3)]);
        let many: Vec<Lock> =
            (1..=QUEUES_MAX as u64 + 5).map(|n| lock(&format!("/{n}"), n)).collect();
        let shown = longest_queues(&many);
        assert_eq!((shown.len(), shown[0].1, shown[QUEUES_MAX - 1].1), (QUEUES_MAX, 25, 6));
    }
}
