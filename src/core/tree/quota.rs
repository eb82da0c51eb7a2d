//! Quotas: limits on the number of znodes and bytes below a path.
//!
//! *Owns* the text of limits and usage, which paths have a quota, and keeping usage right. For
//! the path `/a/b` limits lie in `/zookeeper/quota/a/b/zookeeper_limits` and usage in
//! `/zookeeper/quota/a/b/zookeeper_stats`; both are znodes that clients make.
//! *Invariants*: usage changes in place (no version, no zxid, no event) on every server alike, and
//! is persisted like any data. Only the deepest quota above a znode counts it.
//! A multi cannot count without end: see [`RECOUNTED_ZNODES_MAX`].
//! *Never* logs or enforces a soft limit. Text that cannot be parsed is no limit, and as usage it
//! is left alone (ZooKeeper's server dies of it).
//! Reproduces `StatsTrack`, `Quotas` and the quota parts of `DataTree`. Unlike there, an operation
//! of a multi sees the ones before it, and loading does not recount: servers that start must not
//! come to another usage than those that run.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;
use super::edit::NewData;
use super::figures::Figures;
use super::path;
use super::slab::ZnodeId;
use crate::proto::ErrorCode;

/// Znodes that one multi counts afresh after its first count, which takes as long as it takes: each
/// usage znode it creates would walk the same tree again.
pub(super) const RECOUNTED_ZNODES_MAX: usize = 10_000;

const LIMITS: &str = "/zookeeper_limits";
const USAGE: &str = "/zookeeper_stats";

/// How much of [`RECOUNTED_ZNODES_MAX`] a multi has left. Outside of a multi, and before the first
/// count inside, nothing is set.
#[derive(Debug, Default)]
pub(super) struct Recounts(Option<usize>);

impl Recounts {
    fn left(&self) -> usize {
        self.0.unwrap_or(usize::MAX)
    }

    /// Books a count of this many znodes inside a multi.
    pub(super) fn book(&mut self, znodes: usize) {
        self.0 = Some(self.0.map_or(RECOUNTED_ZNODES_MAX, |left| left.saturating_sub(znodes)));
    }
}

/// What a usage znode that is created holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    count: i64,
    bytes: i64,
}

/// Paths that have limits. Kept by length: a lookup costs as many steps as there are different
/// lengths, however deep the path.
#[derive(Debug, Default)]
pub(super) struct QuotaPaths(BTreeMap<usize, BTreeSet<Box<str>>>);

impl QuotaPaths {
    /// To be told the path of every znode that appears.
    pub(super) fn appeared(&mut self, path: &str) {
        if let Some(path) = limited_by(path) {
            self.0.entry(path.len()).or_default().insert(path.into());
        }
    }

    /// To be told the path of every znode that disappears.
    pub(super) fn disappeared(&mut self, path: &str) {
        if let Some(path) = limited_by(path) {
            let Some(paths) = self.0.get_mut(&path.len()) else {
                return;
            };
            paths.remove(path);
            if paths.is_empty() {
                self.0.remove(&path.len());
            }
        }
    }

    /// The longest path with a quota that is `path` or an ancestor of it.
    fn deepest<'a>(&self, path: &'a str) -> Option<&'a str> {
        let ends_component =
            |length: &usize| matches!(path.as_bytes().get(*length), None | Some(b'/'));
        self.0
            .range(..=path.len())
            .rev()
            .filter(|(length, _)| ends_component(length))
            .find(|(length, paths)| paths.contains(&path[..**length]))
            .map(|(length, _)| &path[..*length])
    }
}

/// The path whose limits the znode `znode` holds, if it does. The root cannot have a quota.
fn limited_by(znode: &str) -> Option<&str> {
    below_quota(znode)?.strip_suffix(LIMITS).filter(|path| !path.is_empty())
}

/// The path whose usage the znode `znode` holds, if it does.
fn used_by(znode: &str) -> Option<&str> {
    below_quota(znode)?.strip_suffix(USAGE).filter(|path| !path.is_empty())
}

/// Where the limits or the usage of a quota lie.
fn figures_path(quota: &str, which: &str) -> String {
    format!("{}{quota}{which}", path::QUOTA)
}

fn below_quota(znode: &str) -> Option<&str> {
    znode.strip_prefix(path::QUOTA).filter(|rest| rest.starts_with('/'))
}

impl Tree {
    /// Whether a hard limit forbids this many znodes and bytes more at `path`. Figures that do not
    /// change are not checked.
    pub(super) fn exceeds_quota(&self, path: &str, count: i64, bytes: i64) -> bool {
        if !self.options.enforce_quota {
            return false;
        }
        let Some(quota) = self.quotas.deepest(path) else {
            return false;
        };
        let (Some((_, limits)), Some((_, usage))) =
            (self.figures(&figures_path(quota, LIMITS)), self.figures(&figures_path(quota, USAGE)))
        else {
            return false;
        };
        let exceeds = |difference: i64, used: &str, limit: &str| {
            let limit = limits.hard_limit(limit);
            difference != 0
                && limit.is_some_and(|limit| usage.figure(used).saturating_add(difference) > limit)
        };
        exceeds(count, "count", "countHardLimit") || exceeds(bytes, "bytes", "byteHardLimit")
    }

    /// Books a change at `path` with the quota that counts it.
    pub(super) fn book_usage(&mut self, path: &str, count: i64, bytes: i64) {
        if count == 0 && bytes == 0 {
            return;
        }
        let Some(quota) = self.quotas.deepest(path) else {
            return;
        };
        let path = figures_path(quota, USAGE);
        if let Some((id, mut usage)) = self.figures(&path) {
            usage.add(count, bytes);
            self.rewrite(id, &path, &usage);
        }
    }

    /// Counts afresh when `path` is a znode for usage that is about to be created with `data`,
    /// whatever that holds. Inside a multi it sees what was done before it.
    ///
    /// # Errors
    /// QuotaExceeded beyond [`RECOUNTED_ZNODES_MAX`].
    pub(super) fn count_usage(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
    ) -> Result<Option<Counted>, ErrorCode> {
        let Some(quota) = used_by(path) else {
            return Ok(None);
        };
        let Some(top) = self.find(quota) else {
            return Ok(Some(Counted { count: 0, bytes: 0 }));
        };
        let most = self.journal.recounts.left();
        let (mut seen, mut bytes) = (0, 0);
        let mut unseen = vec![top];
        while let Some(id) = unseen.pop() {
            let znode = &self.slab[id];
            seen += 1;
            bytes += length(znode.data());
            // Before they are copied: there may be millions.
            if seen + unseen.len() + znode.children().len() > most {
                return Err(ErrorCode::QuotaExceeded);
            }
            unseen.extend(znode.children());
        }
        self.journal.book_recount(seen);
        let mut count = i64::try_from(seen).expect("ids are 32 bits wide");
        if path.strip_prefix(quota).is_some_and(|rest| rest.starts_with('/')) {
            // The new znode is below what it counts.
            count += 1;
            bytes += length(data);
        }
        Ok(Some(Counted { count, bytes }))
    }

    /// Puts what was counted into the usage znode that was created since.
    pub(super) fn start_usage(&mut self, id: ZnodeId, path: &str, counted: Option<Counted>) {
        let Some(Counted { count, bytes }) = counted else {
            return;
        };
        let mut usage = Figures::default();
        usage.set("count", count);
        usage.set("bytes", bytes);
        self.rewrite(id, path, &usage);
    }

    /// Counts the usage of every quota afresh, where there is a znode for it.
    pub fn recount_usage(&mut self) {
        let quotas: Vec<Box<str>> = self.quotas.0.values().flatten().cloned().collect();
        for quota in quotas {
            let path = figures_path(&quota, USAGE);
            let Some(id) = self.find(&path) else { continue };
            if let Ok(counted) = self.count_usage(&path, None) {
                self.start_usage(id, &path, counted);
            }
        }
    }

    fn figures(&self, path: &str) -> Option<(ZnodeId, Figures)> {
        let id = self.find(path)?;
        Some((id, Figures::parse(self.slab[id].data().unwrap_or_default())?))
    }

    fn rewrite(&mut self, id: ZnodeId, path: &str, usage: &Figures) {
        let text = usage.text();
        let meta = self.slab[id].meta;
        self.amend(id, path, meta, NewData::Replace(Some(text.as_bytes())));
    }
}

/// Bytes of data as quotas count them.
pub(super) fn length(data: Option<&[u8]>) -> i64 {
    data.map_or(0, |data| i64::try_from(data.len()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_quota_counts_and_only_whole_components_match() {
        let mut quotas = QuotaPaths::default();
        quotas.appeared("/zookeeper/quota/a/zookeeper_limits");
        quotas.appeared("/zookeeper/quota/a/b/zookeeper_limits");
        assert_eq!(quotas.deepest("/a"), Some("/a"));
        assert_eq!(quotas.deepest("/a/x"), Some("/a"));
        assert_eq!(quotas.deepest("/a/b/c"), Some("/a/b"));
        assert_eq!(quotas.deepest("/ab"), None);
        assert_eq!(quotas.deepest("/a/bc"), Some("/a"));
        quotas.disappeared("/zookeeper/quota/a/b/zookeeper_limits");
        assert_eq!(quotas.deepest("/a/b/c"), Some("/a"));
    }

    #[test]
    fn the_root_has_no_quota() {
        let mut quotas = QuotaPaths::default();
        quotas.appeared("/zookeeper/quota/zookeeper_limits");
        quotas.appeared("/zookeeper/quotas/a/zookeeper_limits");
        assert_eq!(quotas.deepest("/a"), None);
    }
}
