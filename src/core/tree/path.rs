//! Paths of znodes: what may be one, and how it splits.
//!
//! *Owns* the syntax rules, in one parser: a [`ZnodePath`] is valid ever after.
//! *Never* looks at a znode. Reads do not parse (ZooKeeper answers NoNode for any odd string), so
//! [`parent_length`] and [`is_special`] also take text that is no path.
//! Reproduces `PathUtils.validatePath` and `DataTree.isSpecialPath`.

use std::fmt;

use crate::proto::Text;

/// The root.
pub const ROOT: &str = "/";
/// Parent of everything that belongs to the server.
pub const ZOOKEEPER: &str = "/zookeeper";
/// Parent of limits and usage of quotas.
pub const QUOTA: &str = "/zookeeper/quota";
/// Holds the members of the ensemble.
pub const CONFIG: &str = "/zookeeper/config";

/// Why a string is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPath(pub &'static str);

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The full path of a znode that may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZnodePath<'a>(&'a str);

impl<'a> ZnodePath<'a> {
    /// Checks the syntax. There is no limit of length: the frame has one.
    ///
    /// # Errors
    /// [`InvalidPath`], with the rule that was broken.
    pub fn parse(path: &'a str) -> Result<Self, InvalidPath> {
        let Some(components) = path.as_bytes().strip_prefix(b"/") else {
            return Err(InvalidPath("does not start with /"));
        };
        if components.is_empty() {
            return Ok(Self(path));
        }
        for component in components.split(|byte| *byte == b'/') {
            match component {
                b"" => return Err(InvalidPath("has an empty component or ends with /")),
                b"." | b".." => return Err(InvalidPath("has a component . or ..")),
                _ => {}
            }
        }
        let plain = path.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if !plain && path.chars().any(is_forbidden) {
            return Err(InvalidPath("has a character that paths may not have"));
        }
        Ok(Self(path))
    }

    /// The whole path.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The path of the parent; the root has none.
    #[must_use]
    pub fn parent(self) -> Option<&'a str> {
        match last_slash(self.0) {
            Some(0) if self.0.len() == 1 => None,
            Some(0) => Some(ROOT),
            Some(slash) => Some(&self.0[..slash]),
            None => unreachable!("a valid path starts with a slash"),
        }
    }

    /// The last component; empty for the root.
    #[must_use]
    pub fn name(self) -> &'a str {
        name(self.0)
    }
}

/// The path of a child.
#[must_use]
pub fn child(parent: &str, name: &str) -> String {
    let parent = if parent == ROOT { "" } else { parent };
    format!("{parent}/{name}")
}

/// Characters that ZooKeeper refuses. Its check looks at UTF-16 units, so everything that takes a
/// surrogate pair is refused too.
fn is_forbidden(character: char) -> bool {
    matches!(
        u32::from(character),
        0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=u32::MAX
    )
}

/// What follows the last slash.
#[must_use]
pub fn name(path: &str) -> &str {
    last_slash(path).map_or(path, |slash| &path[slash + 1..])
}

/// Where the last slash is. Names are short: a look at each byte from the end is faster than
/// `str::rfind`, which prepares for long strings.
#[must_use]
pub fn last_slash(path: &str) -> Option<usize> {
    path.bytes().rposition(|byte| byte == b'/')
}

/// The path of a sequential znode. Once the counter has gone over, the number has a sign.
#[must_use]
pub fn numbered(prefix: &str, number: i32) -> Text {
    let Ok(mut rest) = u32::try_from(number) else {
        return Text::from(format!("{prefix}{number:010}"));
    };
    let mut digits = [b'0'; 10];
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    // As long as it is filled: nothing is copied again.
    let mut path = String::with_capacity(prefix.len() + digits.len());
    path.push_str(prefix);
    path.push_str(std::str::from_utf8(&digits).expect("they are digits"));
    Text::from(path)
}

/// Where the parent of `path` ends, for strings that are not known to be valid; 0 stands for the
/// root. `None` when there is no slash or there is a NUL, the two things that create and delete
/// refuse before they look at anything else.
#[must_use]
pub fn parent_length(path: &str) -> Option<usize> {
    if path.as_bytes().contains(&0) {
        return None;
    }
    last_slash(path)
}

/// The four znodes that cannot be deleted.
#[must_use]
pub fn is_special(path: &str) -> bool {
    matches!(path, ROOT | ZOOKEEPER | QUOTA | CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(path: &str) -> bool {
        ZnodePath::parse(path).is_ok()
    }

    #[test]
    fn sequential_numbers_have_ten_characters_and_the_least_of_all_eleven() {
        for (number, name) in [
            (0, "0000000000"),
            (1_234_567_890, "1234567890"),
            (i32::MAX, "2147483647"),
            (-1, "-000000001"),
            (i32::MIN, "-2147483648"),
        ] {
            assert_eq!(numbered("/a/n-", number).as_str(), format!("/a/n-{name}"));
        }
    }

    #[test]
    fn paths_that_zookeeper_accepts() {
        for path in ["/", "/a", "/a/b", "/.a", "/a..", "/...", "/a b", "/\u{d7ff}", "/\u{f900}"] {
            assert!(is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn paths_that_zookeeper_refuses() {
        for path in
            ["", "a", "/a/", "//a", "/a//b", "/.", "/..", "/a/../b", "/a/./b", "//", "/a/.."]
        {
            assert!(!is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn characters_outside_the_allowed_ranges_are_refused() {
        for forbidden in [
            '\0', '\u{1}', '\u{1f}', '\u{7f}', '\u{9f}', '\u{e000}', '\u{f8ff}', '\u{fff0}',
            '\u{ffff}',
        ] {
            assert!(!is_valid(&format!("/a{forbidden}")), "{forbidden:?}");
        }
        assert!(!is_valid("/\u{1f600}"), "an emoji is a surrogate pair in UTF-16");
        assert!(is_valid("/\u{a0}\u{ffef}"));
    }

    #[test]
    fn a_path_splits_into_parent_and_name() {
        let split = |path| {
            let path = ZnodePath::parse(path).unwrap();
            (path.parent(), path.name())
        };
        assert_eq!(split("/"), (None, ""));
        assert_eq!(split("/a"), (Some("/"), "a"));
        assert_eq!(split("/a/b"), (Some("/a"), "b"));
    }

    #[test]
    fn the_lenient_split_wants_a_slash_and_no_nul() {
        assert_eq!(parent_length("/a"), Some(0));
        assert_eq!(parent_length("/nope//x"), Some(6));
        assert_eq!(parent_length("a"), None);
        assert_eq!(parent_length("/a\0"), None);
    }
}
