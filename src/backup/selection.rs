//! Which records belong to a part of a tree.
//!
//! *Owns* the rule. *Invariant*: what is selected is a state that can be loaded: the znodes that lead to the part, and
//! those that every tree has, belong to it. *Never* selects a session: a part of a tree has none.

use crate::tree::path;

/// All of a state, or a part of its tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    subtree: Option<String>,
}

impl Selection {
    /// All of it.
    pub fn all() -> Self {
        Self::default()
    }

    /// The znode at `path` and those below. `/`: all of it.
    ///
    /// # Errors
    /// It is no path of a znode.
    pub fn below(path: &str) -> Result<Self, String> {
        if path == path::ROOT {
            return Ok(Self::all());
        }
        let valid = path::ZnodePath::parse(path).map(|_| ());
        valid.map_err(|invalid| format!("{path}: it {}", invalid.0))?;
        Ok(Self { subtree: Some(path.to_owned()) })
    }

    /// The part; `None`: all.
    pub fn subtree(&self) -> Option<&str> {
        self.subtree.as_deref()
    }

    /// Whether this record belongs to it.
    pub fn includes(&self, key: &[u8]) -> bool {
        let Some(subtree) = &self.subtree else { return true };
        if key.first() != Some(&b'/') {
            return key.first() != Some(&SESSION);
        }
        let is_special = std::str::from_utf8(key).is_ok_and(path::is_special);
        is_special || is_below(key, subtree.as_bytes()) || leads_to(key, subtree.as_bytes())
    }

    /// Whether the part has the znode at this path, which is there for its own sake.
    pub fn has(&self, path: &str) -> bool {
        match &self.subtree {
            None => true,
            Some(subtree) => is_below(path.as_bytes(), subtree.as_bytes()),
        }
    }
}

/// First byte of a session's key.
const SESSION: u8 = b's';

fn is_below(path: &[u8], subtree: &[u8]) -> bool {
    path.strip_prefix(subtree).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

fn leads_to(path: &[u8], subtree: &[u8]) -> bool {
    path == path::ROOT.as_bytes() || is_below(subtree, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_what_is_below_and_the_way_there() {
        let part = Selection::below("/a/b").unwrap();
        for (key, is_included) in [
            ("/", true),
            ("/a", true),
            ("/a/b", true),
            ("/a/b/c", true),
            ("/a/bc", false),
            ("/ab", false),
            ("/b", false),
            ("/zookeeper", true),
            ("/zookeeper/config", true),
            ("c", true),
            ("v", true),
            ("s1234567", false),
        ] {
            assert_eq!(part.includes(key.as_bytes()), is_included, "{key}");
            assert!(Selection::all().includes(key.as_bytes()), "{key}");
        }
        assert!(part.has("/a/b/c") && !part.has("/a") && Selection::all().has("/a"));
        assert_eq!(Selection::below("/").unwrap(), Selection::all());
        assert!(Selection::below("a").is_err());
    }
}
