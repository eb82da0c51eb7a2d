//! The text of a quota's limits and of its usage.
//!
//! *Owns* [`Figures`]: what `zookeeper_limits` and `zookeeper_stats` hold. *Invariant*: what was
//! parsed and is written again says the same. *Never* knows which znode it comes from.
//! Reproduces `StatsTrack`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Longer text is no figures: it would be parsed again at every write below the quota.
pub(super) const FIGURES_BYTES_MAX: usize = 1024;

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
