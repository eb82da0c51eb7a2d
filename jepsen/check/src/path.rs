//! Paths of znodes as ZooKeeper reads them: strictly when one is created or written, leniently when
//! one is looked up.

/// Znodes that are always there and that no client deletes.
const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// How the name of a znode begins that asks for a lock to be shared.
pub const SHARED: &str = "read-";

/// Whether a znode may be created or written under this path.
#[must_use]
pub fn is_valid(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.split('/').all(|name| !matches!(name, "" | "." | "..")) && path.chars().all(is_allowed)
}

/// The rule is made of UTF-16 units, and a character of two of them consists of refused ones.
fn is_allowed(c: char) -> bool {
    !matches!(u32::from(c),
        0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// Whether it is one of the znodes that no client deletes.
#[must_use]
pub fn is_special(path: &str) -> bool {
    SPECIAL.contains(&path)
}

/// What stands before the last slash, as create and delete look for it before they know whether the
/// path is any good; `None` if there is no slash, or a NUL.
#[must_use]
pub fn lenient_parent(path: &str) -> Option<&str> {
    let at = path.rfind('/').filter(|_| !path.contains('\0'))?;
    Some(if at == 0 { "/" } else { &path[..at] })
}

/// Parent and name of a valid path; `None` for the root.
#[must_use]
pub fn split(path: &str) -> Option<(&str, &str)> {
    let at = path.rfind('/')?;
    let (parent, name) = (&path[..at], &path[at + 1..]);
    (!name.is_empty()).then_some((if at == 0 { "/" } else { parent }, name))
}

/// The number that the server appended to what was asked for.
#[must_use]
pub fn sequence(asked: &str, created: &str) -> Option<i32> {
    let tail = created.strip_prefix(asked)?;
    (tail.len() >= 10).then(|| tail.parse().ok())?
}

/// The number at the end of the name of a sequential znode, whatever stands before it.
#[must_use]
pub fn trailing_number(name: &str) -> Option<u64> {
    let digits = name.get(name.len().checked_sub(10)?..)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Whether a znode asks for a lock that others may hold at the same time, by the names that the
/// recipe for shared locks gives.
#[must_use]
pub fn is_shared(path: &str) -> bool {
    split(path).is_some_and(|(_, name)| name.starts_with(SHARED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_are_refused_and_dots_within_names_are_not() {
        for good in ["/", "/a", "/a/b", "/.a", "/a..", "/...", "/\u{d7ff}", "/\u{f900}"] {
            assert!(is_valid(good), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "/a/",
            "//a",
            "/a/../b",
            "/.",
            "/\u{1}",
            "/\u{1f512}",
            "/\u{e000}",
            "/\u{fff0}",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_number_of_a_sequential_name_may_be_negative() {
        assert_eq!(sequence("/a/x-", "/a/x-0000000007"), Some(7));
        assert_eq!(sequence("/a/", "/a/0000000007"), Some(7));
        assert_eq!(sequence("/a/x-", "/a/x--2147483648"), Some(i32::MIN));
        assert_eq!(sequence("/a/x-", "/a/x--000000005"), Some(-5));
        assert_eq!(sequence("/a/x-", "/a/x-7"), None);
        assert_eq!(sequence("/a/x-", "/a/y-0000000007"), None);
    }

    #[test]
    fn the_number_stands_at_the_end_of_a_name() {
        assert_eq!(trailing_number("_c_0000000001-lock-0000000007"), Some(7));
        assert_eq!(trailing_number("0000000007"), Some(7));
        assert_eq!(trailing_number("000000007"), None);
        assert_eq!(trailing_number("lock--000000007"), None);
        assert_eq!(trailing_number("\u{fc}000000007"), None);
    }

    #[test]
    fn the_parent_is_what_stands_before_the_last_slash() {
        assert_eq!(lenient_parent("/nope//x"), Some("/nope/"));
        assert_eq!(lenient_parent("/"), Some("/"));
        assert_eq!(lenient_parent("x"), None);
        assert_eq!(split("/a/b"), Some(("/a", "b")));
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!(split("/"), None);
    }
}
