//! A contender of a lock, as its name tells.
//!
//! *Owns* [`Dialect`] (whose name it is), [`Contender`] (a name, read), and the order of the numbers.
//! *Invariants*: every known contender is read whatever style we write, because all of them draw their
//! numbers from one counter, that of the parent; the order is that of the counter, also across its
//! overflow; any text may be asked about.
//!
//! The layouts are those of Curator 5 (`InterProcessMutex`, `InterProcessReadWriteLock`), kazoo 2,
//! go-zookeeper 1 and of ZooKeeper's own recipes (`WriteLock`, `zkr_lock`).

use std::cmp::Ordering;
use std::fmt;

/// Whose contender it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// Curator's mutex, ours, or that of the Rust client.
    Curator,
    /// go-zookeeper's lock.
    Go,
    /// kazoo's `Lock` and `WriteLock`.
    Kazoo,
    /// kazoo's `ReadLock`.
    KazooRead,
    /// A subclass of kazoo's `Lock` that calls its contenders `<32 hex digits>-lock-N`, so that Curator
    /// understands them (examples/clients/python).
    KazooAsCurator,
    /// Curator's write lock.
    CuratorWrite,
    /// Curator's read lock.
    CuratorRead,
    /// `lock-` in front of the number, and no more that is known.
    Plain,
    /// ZooKeeper's own recipes.
    ZooKeeper,
}

impl Dialect {
    /// Whether those of that kind share the lock with each other.
    #[must_use]
    pub fn is_shared(self) -> bool {
        match self {
            Self::KazooRead | Self::CuratorRead => true,
            Self::Curator
            | Self::Go
            | Self::Kazoo
            | Self::KazooAsCurator
            | Self::CuratorWrite
            | Self::Plain
            | Self::ZooKeeper => false,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curator => "Curator",
            Self::Go => "go-zookeeper",
            Self::Kazoo => "kazoo",
            Self::KazooRead => "kazoo (read lock)",
            Self::KazooAsCurator => "kazoo (Curator's names)",
            Self::CuratorWrite => "Curator (write lock)",
            Self::CuratorRead => "Curator (read lock)",
            Self::Plain => "lock-N",
            Self::ZooKeeper => "x-N",
        })
    }
}

/// A contender as its name tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender<'a> {
    /// The whole name.
    pub name: &'a str,
    /// Whose it is.
    pub dialect: Dialect,
    /// Its number.
    pub sequence: i32,
}

impl<'a> Contender<'a> {
    /// `None` for a child that is no contender of a lock.
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let (stem, sequence) = split(name, |stem| dialect_of(stem).is_some())?;
        Some(Self { name, dialect: dialect_of(stem)?, sequence })
    }
}

/// A sequential znode's name in front of its number, and that. The sign of a negative number and the
/// hyphen with which many names end look alike: `is_stem` tells them apart.
#[must_use]
pub fn split(name: &str, is_stem: impl Fn(&str) -> bool) -> Option<(&str, i32)> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(SEQUENCE_DIGITS);
    let (front, digits) = name.split_at(name.len() - digits);
    let number: i64 = digits.parse().ok()?;
    let (stem, number) = if digits.len() == SEQUENCE_DIGITS && is_stem(front) {
        (front, number)
    } else if digits.len() >= SEQUENCE_DIGITS - 1 {
        // As wide as the others, sign included, unless it has all ten digits.
        (front.strip_suffix('-').filter(|stem| is_stem(stem))?, -number)
    } else {
        return None;
    };
    Some((stem, number.try_into().ok()?))
}

/// The order of two numbers of one counter. It goes from 2147483647 to -2147483648; contenders that
/// are there at the same time are less than half of it apart.
#[must_use]
pub fn compare(one: i32, other: i32) -> Ordering {
    if mutant!("numbers-compared-plainly") {
        return one.cmp(&other);
    }
    one.wrapping_sub(other).cmp(&0)
}

/// What is written to a contender's znode to ask it to leave: Curator's word, and that of ZooKeeper's
/// documentation. This library understands both.
pub const RELEASE_WORDS: [&str; 2] = ["__REVOKE__", "unlock"];

/// The word that a contender of that name is likely to understand.
#[must_use]
pub fn release_word(name: &str) -> &'static str {
    match Contender::parse(name).map(|contender| contender.dialect) {
        Some(Dialect::Plain | Dialect::ZooKeeper) => RELEASE_WORDS[1],
        Some(
            Dialect::Curator
            | Dialect::Go
            | Dialect::Kazoo
            | Dialect::KazooRead
            | Dialect::KazooAsCurator
            | Dialect::CuratorWrite
            | Dialect::CuratorRead,
        )
        | None => RELEASE_WORDS[0],
    }
}

/// Whether it is known to wait for every kind of contender, because this library has named it.
#[must_use]
pub fn is_of_this_library(contender: &Contender) -> bool {
    let version = match contender.dialect {
        Dialect::Curator | Dialect::CuratorRead | Dialect::CuratorWrite => {
            "_c_01234567-0123-".len()
        }
        Dialect::Kazoo | Dialect::KazooRead => "012345670123".len(),
        Dialect::Go | Dialect::KazooAsCurator | Dialect::Plain | Dialect::ZooKeeper => {
            return false;
        }
    };
    contender.name.as_bytes().get(version) == Some(&GUID_VERSION)
}

/// Of a name without its number.
fn dialect_of(stem: &str) -> Option<Dialect> {
    // Most specific first: kazoo's `__rlock__` is no `__lock__`, and neither ends with `lock-`.
    if stem.ends_with("__rlock__") {
        Some(Dialect::KazooRead)
    } else if stem.ends_with("__lock__") {
        Some(Dialect::Kazoo)
    } else if stem.ends_with("__READ__") {
        Some(Dialect::CuratorRead)
    } else if stem.ends_with("__WRIT__") {
        Some(Dialect::CuratorWrite)
    } else if let Some(front) = stem.strip_suffix("lock-") {
        let guid = front.strip_prefix("_c_").and_then(|front| front.strip_suffix('-'));
        Some(match guid {
            Some(guid) if guid.len() == HEX_DIGITS => Dialect::Go,
            Some(_) => Dialect::Curator,
            None if front.strip_suffix('-').is_some_and(is_hex) => Dialect::KazooAsCurator,
            None => Dialect::Plain,
        })
    } else {
        let session = stem.strip_prefix("x-")?.strip_suffix('-')?;
        let session = session.strip_prefix('-').unwrap_or(session);
        let is_number = !session.is_empty() && session.bytes().all(|b| b.is_ascii_hexdigit());
        is_number.then_some(Dialect::ZooKeeper)
    }
}

/// Whether it is a GUID without hyphens.
pub(super) fn is_hex(text: &str) -> bool {
    text.len() == HEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The number of a name that is `marker` and a number, with Curator's GUID in front or without.
#[must_use]
pub fn marked(name: &str, marker: &str) -> Option<i32> {
    let (stem, sequence) = split(name, |stem| stem.ends_with(marker))?;
    let front = stem.strip_suffix(marker)?;
    (front.is_empty() || is_protection(front)).then_some(sequence)
}

/// Whether it is no more and no less than what Curator (`_c_<uuid>-`) or go-zookeeper
/// (`_c_<32 hex digits>-`) put in front.
#[must_use]
pub fn is_protection(front: &str) -> bool {
    let guid = front.strip_prefix("_c_").and_then(|front| front.strip_suffix('-'));
    guid.is_some_and(|guid| {
        let is_hyphen = |at| guid.len() == UUID_CHARS && UUID_HYPHENS.contains(&at);
        let fits = |(at, byte): (_, u8)| {
            if is_hyphen(at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        };
        matches!(guid.len(), HEX_DIGITS | UUID_CHARS) && guid.bytes().enumerate().all(fits)
    })
}

/// In every GUID of ours, in this place.
const GUID_VERSION: u8 = b'8';
/// Digits of a sequential znode's number, its sign not counted.
const SEQUENCE_DIGITS: usize = 10;
/// Digits of a GUID without hyphens.
pub const HEX_DIGITS: usize = 32;
/// Characters of a GUID with hyphens.
const UUID_CHARS: usize = 36;
/// Where they are.
const UUID_HYPHENS: [usize; 4] = [8, 13, 18, 23];

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55";
    const HEX: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55";

    #[test]
    fn each_dialect_is_known_by_its_names() {
        for (name, dialect, sequence) in [
            (format!("_c_{UUID}-lock-0000000007"), Dialect::Curator, 7),
            (format!("_c_{HEX}-lock-0000000007"), Dialect::Go, 7),
            (format!("{HEX}__lock__0000000012"), Dialect::Kazoo, 12),
            (format!("{HEX}__rlock__0000000012"), Dialect::KazooRead, 12),
            (format!("_c_{UUID}-__READ__0000000001"), Dialect::CuratorRead, 1),
            (format!("_c_{UUID}-__WRIT__0000000001"), Dialect::CuratorWrite, 1),
            ("lock-2147483647".to_string(), Dialect::Plain, i32::MAX),
            (format!("{HEX}-lock-0000000001"), Dialect::KazooAsCurator, 1),
            (format!("{}-lock-0000000001", &HEX[1..]), Dialect::Plain, 1),
            ("x-00000000deadbeef-0000000003".to_string(), Dialect::ZooKeeper, 3),
            ("x--72057594037927936-0000000003".to_string(), Dialect::ZooKeeper, 3),
            (format!("_c_{UUID}-lock--2147483648"), Dialect::Curator, i32::MIN),
            (format!("{HEX}__lock__-2147483647"), Dialect::Kazoo, i32::MIN + 1),
            ("x-00000000deadbeef--2147483648".to_string(), Dialect::ZooKeeper, i32::MIN),
            ("lock--000000005".to_string(), Dialect::Plain, -5),
            (format!("{HEX}__lock__-999999999"), Dialect::Kazoo, -999_999_999),
        ] {
            let contender = Contender::parse(&name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((contender.dialect, contender.sequence), (dialect, sequence), "{name}");
        }
    }

    #[test]
    fn other_children_are_no_contenders() {
        for name in [
            "",
            "lock-",
            "lock-1",
            "0000000001",
            "leases",
            "qn-0000000001",
            "lock-000000000x",
            "lock-00000000005",
            "lock-000000005",
            "lock-9999999999",
            "x-0000000001",
            "x--0000000001",
            "\u{fc}ber-lock-000000001\u{fc}",
        ] {
            assert_eq!(Contender::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_order_goes_on_over_the_overflow_of_the_counter() {
        let names = ["lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483647"];
        let read = |name| Contender::parse(name).expect("a contender").sequence;
        for pair in names.windows(2) {
            assert_eq!(compare(read(pair[0]), read(pair[1])), Ordering::Less, "{pair:?}");
        }
    }
}
