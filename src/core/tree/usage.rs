//! Usage of quotas, kept right.
//!
//! *Owns* counting what is below a path that has a quota, and the check of hard limits. *Invariants*: usage changes in
//! place (no version, no zxid, no event) on every server alike, and is persisted like any data. Only the deepest quota
//! above a znode counts it. A multi cannot count without end: see [`RECOUNTED_ZNODES_MAX`]. *Never* logs or enforces a
//! soft limit. Text that cannot be parsed is left alone (ZooKeeper's server dies of it).
//!
//! Reproduces the quota parts of `DataTree`. Unlike there, an operation of a multi sees the ones before it, and loading
//! does not recount: servers that start must not come to another usage than those that run.
//!
//! [`RECOUNTED_ZNODES_MAX`]: super::quota::RECOUNTED_ZNODES_MAX

use super::edit::NewData;
use super::quota::{Figures, LIMITS, USAGE, figures_path, length, used_by};
use super::slab::ZnodeId;
use super::znode::Totals;
use super::{Rules, Tree};
use crate::proto::ErrorCode;

/// What a usage znode that is created holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    count: i64,
    bytes: i64,
}

impl Tree {
    /// Whether a hard limit forbids this many znodes and bytes more at `path`. Figures that do not
    /// change are not checked.
    pub(super) fn exceeds_quota(&self, rules: Rules, path: &str, count: i64, bytes: i64) -> bool {
        if !rules.enforce_quota {
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
        let znode = &self.slab[top];
        let Totals { znodes, bytes } = znode.below();
        let (mut count, mut bytes) = (znodes + 1, bytes + length(znode.data()));
        if count > self.journal.recounts.left() {
            return Err(ErrorCode::QuotaExceeded);
        }
        self.journal.book_recount(count);
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
        let quotas: Vec<String> = self.quotas.all().map(str::to_owned).collect();
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
