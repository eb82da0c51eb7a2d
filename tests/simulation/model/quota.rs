//! What quotas count, as ZooKeeper's documents say: the znodes at and below a path that has limits, and the bytes
//! of their data.
//!
//! *Owns* the znode that shows the usage of a path, and the hard limits.

use super::Model;

/// Below it are the limits and the usage of each path that has a quota.
pub const QUOTA: &str = "/zookeeper/quota";
pub const LIMITS: &str = "/zookeeper_limits";
pub const USAGE: &str = "/zookeeper_stats";

impl Model {
    /// A znode at this path came (1), went (-1) or changed (0), and the bytes of its data with it.
    pub(super) fn count(&mut self, path: &str, znodes: i64, bytes: i64) {
        let Some(quota) = self.quota_of(path) else { return };
        let Some(usage) = self.znodes.get_mut(&format!("{QUOTA}{quota}{USAGE}")) else { return };
        let known = usage.data.as_deref().and_then(figures);
        if let Some((count, length)) = known {
            usage.data = Some(text(count + znodes, length + bytes));
        }
    }

    /// Whether a hard limit forbids this many znodes and bytes more at a path.
    pub(super) fn exceeds(&self, path: &str, znodes: i64, bytes: i64) -> bool {
        let Some(quota) = self.quota_of(path) else { return false };
        let text_of = |name: &str| {
            let znode = self.znodes.get(&format!("{QUOTA}{quota}{name}"))?;
            std::str::from_utf8(znode.data.as_deref()?).ok()
        };
        let (Some(limits), Some(usage)) = (text_of(LIMITS), text_of(USAGE)) else { return false };
        let exceeds = |more: i64, limit: &str, used: &str| {
            let limit = figure(limits, limit).filter(|limit| *limit > -1);
            more != 0 && limit.is_some_and(|limit| figure(usage, used).unwrap_or(-1) + more > limit)
        };
        exceeds(znodes, "countHardLimit", "count") || exceeds(bytes, "byteHardLimit", "bytes")
    }

    /// The deepest path with limits that is this one or above it.
    fn quota_of<'a>(&self, path: &'a str) -> Option<&'a str> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let mut tops = ends.filter(|end| *end > 0).map(|end| &path[..end]);
        tops.rfind(|top| self.znodes.contains_key(&format!("{QUOTA}{top}{LIMITS}")))
    }

    /// What a znode for usage shows when it is created at this path: what is there by then.
    pub(super) fn usage_at(&self, path: &str) -> Option<Vec<u8>> {
        let top = path.strip_prefix(QUOTA)?.strip_suffix(USAGE).filter(|top| !top.is_empty())?;
        let below = format!("{top}/");
        let counted = self.znodes.iter().filter(|(at, _)| *at == top || at.starts_with(&below));
        let lengths = counted.map(|(_, znode)| znode.data.as_ref().map_or(0, Vec::len) as i64);
        let (count, bytes) = lengths.fold((0, 0), |(count, bytes), more| (count + 1, bytes + more));
        Some(text(count, bytes))
    }
}

fn text(count: i64, bytes: i64) -> Vec<u8> {
    format!("count={count},bytes={bytes}").into_bytes()
}

/// One figure of a text of limits or usage.
fn figure(text: &str, key: &str) -> Option<i64> {
    let mut pairs = text.split([',', ';']).map(|pair| pair.split('='));
    let value = pairs.find_map(|mut parts| (parts.next() == Some(key)).then(|| parts.next()));
    value.flatten()?.parse().ok()
}

/// As [`text`] writes them; no client of these tests writes others.
fn figures(data: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(data).ok()?;
    let (count, bytes) = text.split_once(',')?;
    let number = |pair: &str, key: &str| pair.strip_prefix(key)?.parse().ok();
    Some((number(count, "count=")?, number(bytes, "bytes=")?))
}
