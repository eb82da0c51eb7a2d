//! Quotas: their limits and usage as text, and which paths have one.
//!
//! *Owns* [`Figures`], what `zookeeper_limits` and `zookeeper_stats` hold, and [`QuotaPaths`]. For the path `/a/b`
//! limits lie in `/zookeeper/quota/a/b/zookeeper_limits` and usage in `/zookeeper/quota/a/b/zookeeper_stats`; both are
//! znodes that clients make. *Invariants*: what was parsed and is written again says the same; text that cannot be
//! parsed is no limit. *Never* looks at a znode: `usage.rs` does.
//!
//! Reproduces `StatsTrack` and `Quotas`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::path;

/// Znodes that one multi counts afresh after its first count. Counting was a walk once; it costs nothing any more, but
/// every release has to decide alike.
pub(super) const RECOUNTED_ZNODES_MAX: i64 = 10_000;

pub(super) const LIMITS: &str = "/zookeeper_limits";
pub(super) const USAGE: &str = "/zookeeper_stats";

/// How much of [`RECOUNTED_ZNODES_MAX`] a multi has left. Outside of a multi, and before the first
/// count inside, nothing is set.
#[derive(Debug, Default)]
pub(super) struct Recounts(Option<i64>);

impl Recounts {
    pub(super) fn left(&self) -> i64 {
        self.0.unwrap_or(i64::MAX)
    }

    /// Books a count of this many znodes inside a multi.
    pub(super) fn book(&mut self, znodes: i64) {
        self.0 = Some(self.0.map_or(RECOUNTED_ZNODES_MAX, |left| (left - znodes).max(0)));
    }
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

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(|path| &**path)
    }

    /// The longest path with a quota that is `path` or an ancestor of it.
    pub(super) fn deepest<'a>(&self, path: &'a str) -> Option<&'a str> {
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
pub(super) fn used_by(znode: &str) -> Option<&str> {
    below_quota(znode)?.strip_suffix(USAGE).filter(|path| !path.is_empty())
}

/// Where the limits or the usage of a quota lie.
pub(super) fn figures_path(quota: &str, which: &str) -> String {
    format!("{}{quota}{which}", path::QUOTA)
}

fn below_quota(znode: &str) -> Option<&str> {
    znode.strip_prefix(path::QUOTA).filter(|rest| rest.starts_with('/'))
}

/// Bytes of data as quotas count them.
pub(super) fn length(data: Option<&[u8]>) -> i64 {
    data.map_or(0, |data| i64::try_from(data.len()).unwrap_or(i64::MAX))
}

/// Longer text is no figures: it would be parsed again at every write below the quota.
const FIGURES_BYTES_MAX: usize = 1024;

/// The text of limits and of usage: `count=1,bytes=2`, then `=` and further keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures(BTreeMap<String, i64>);

impl Figures {
    /// `None` when ZooKeeper's parser would fail.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > FIGURES_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let mut figures = BTreeMap::new();
        for pair in text.split([',', ';']).filter(|pair| !pair.is_empty()) {
            let mut parts = pair.split('=');
            let (key, number) = (parts.next()?, parts.next()?);
            let number = if number.is_empty() { -1 } else { number.parse().ok()? };
            figures.insert(key.to_owned(), number);
        }
        Some(Self(figures))
    }

    /// -1 stands for unset.
    #[must_use]
    pub fn figure(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(-1)
    }

    /// Sets a figure, or with -1 unsets it.
    pub fn set(&mut self, key: &str, number: i64) {
        self.0.insert(key.to_owned(), number);
    }

    pub(super) fn hard_limit(&self, key: &str) -> Option<i64> {
        Some(self.figure(key)).filter(|limit| *limit > -1)
    }

    pub(super) fn add(&mut self, count: i64, bytes: i64) {
        self.set("count", self.figure("count").wrapping_add(count));
        self.set("bytes", self.figure("bytes").wrapping_add(bytes));
    }

    /// As it is stored.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("count={},bytes={}", self.figure("count"), self.figure("bytes"));
        let mut further =
            self.0.iter().filter(|(key, _)| !matches!(key.as_str(), "count" | "bytes")).peekable();
        if further.peek().is_some() {
            // Makes ZooKeeper's oldest parsers stop here.
            text.push('=');
        }
        for (key, number) in further {
            write!(text, ";{key}={number}").expect("a String takes everything");
        }
        text
    }
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

    fn rewritten(text: &str) -> Option<String> {
        Figures::parse(text.as_bytes()).map(|figures| figures.text())
    }

    #[test]
    fn figures_are_written_as_zookeeper_does() {
        assert_eq!(rewritten("").unwrap(), "count=-1,bytes=-1");
        assert_eq!(rewritten("bytes=5,count=2").unwrap(), "count=2,bytes=5");
        assert_eq!(
            rewritten("count=4,bytes=5=;countHardLimit=10;byteHardLimit=20").unwrap(),
            "count=4,bytes=5=;byteHardLimit=20;countHardLimit=10"
        );
        assert_eq!(rewritten("count=,bytes=1").unwrap(), "count=-1,bytes=1");
    }

    #[test]
    fn text_that_is_no_figures_parses_to_nothing() {
        for text in ["count", "count=x", "count=1.5"] {
            assert_eq!(rewritten(text), None, "{text}");
        }
        assert_eq!(Figures::parse(b"\xff"), None);
    }

    #[test]
    fn figures_are_limited_in_length() {
        let padded = |length: usize| format!("count={}1", "0".repeat(length - "count=1".len()));
        assert_eq!(rewritten(&padded(FIGURES_BYTES_MAX)).unwrap(), "count=1,bytes=-1");
        assert_eq!(rewritten(&padded(FIGURES_BYTES_MAX + 1)), None);
        assert_eq!(rewritten(&padded(1 << 20)), None);
    }
}
