//! What the contenders of a lock are called, by whom, and in which order they come.
//!
//! *Owns* [`Style`] and [`SharedStyle`]: how we name ours. How names are read is in `locks`, which the
//! server shares. *Never* asks a server anything.

pub use crate::locks::Dialect;
pub(super) use crate::locks::contender::{Contender, compare, is_of_this_library, marked};

/// How a contender's znode is named. Who shares a path should write one style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// `_c_<uuid>-lock-N`: Curator, go-zookeeper and ZooKeeper's own recipes respect it. Missing parents become
    /// containers, which the server removes when they are empty.
    #[default]
    Curator,
    /// `<32 hex digits>__lock__N`: kazoo and go-zookeeper respect it, Curator does not, and ZooKeeper's
    /// own recipe in C crashes.
    Kazoo,
    /// `lock-N`: as Curator's, for readers that compare whole names.
    Plain,
    /// `x-<session id, 16 hex digits>-N`: only ZooKeeper's own recipes in C and Java.
    ZooKeeper,
}

/// How readers and writers are named. Who shares a path should write one style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedStyle {
    /// `_c_<uuid>-__READ__N`, `_c_<uuid>-__WRIT__N`: Curator's read-write lock respects them, its mutex
    /// does not.
    #[default]
    Curator,
    /// `<32 hex digits>__rlock__N`, `<32 hex digits>__lock__N`: kazoo's `ReadLock` and `WriteLock`
    /// respect them; its `Lock` respects writers only.
    Kazoo,
}

impl Style {
    /// The start of the name of our own contender; the server appends the number.
    pub(super) fn prefix(self, guid: &Guid, session: i64) -> String {
        match self {
            Self::Curator => format!("_c_{}-lock-", guid.hyphenated()),
            Self::Kazoo => format!("{}__lock__", guid.hex()),
            Self::Plain => "lock-".to_string(),
            Self::ZooKeeper => format!("x-{session:016x}-"),
        }
    }

    /// Whether the name alone tells one contender of a session from another.
    pub(super) fn names_are_unique(self) -> bool {
        match self {
            Self::Curator | Self::Kazoo => true,
            Self::Plain | Self::ZooKeeper => false,
        }
    }

    /// Whose contenders ours look like.
    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::Curator => Dialect::Curator,
            Self::Kazoo => Dialect::Kazoo,
            Self::Plain => Dialect::Plain,
            Self::ZooKeeper => Dialect::ZooKeeper,
        }
    }

    /// Whether a contender of that dialect waits for one of this style that came before it.
    #[must_use]
    pub fn is_respected_by(self, dialect: Dialect) -> bool {
        dialect.waits_for(self.dialect())
    }
}

/// Tells a contender from all others, whatever session they are of.
#[derive(Clone, Debug)]
pub(super) struct Guid([u8; 16]);

impl Guid {
    /// # Errors
    /// The operating system has no random numbers.
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        // Version 8 is for private use; the GUIDs of Curator and kazoo are of version 4.
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Ok(Self(bytes))
    }

    pub(super) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn hyphenated(&self) -> String {
        let hex = self.hex();
        let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        groups.join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55";

    #[test]
    fn our_names_are_read_as_what_they_imitate() {
        let guid = Guid::random().unwrap();
        for style in [Style::Curator, Style::Kazoo, Style::Plain, Style::ZooKeeper] {
            let name = style.prefix(&guid, -5) + "0000000009";
            assert_eq!(Contender::parse(&name).map(|c| c.dialect), Some(style.dialect()), "{name}");
            assert!(style.is_respected_by(style.dialect()), "{name}");
        }
        assert_ne!(guid.hex(), Guid::random().unwrap().hex());
        assert_eq!(guid.hyphenated().len(), UUID.len());
    }
}
