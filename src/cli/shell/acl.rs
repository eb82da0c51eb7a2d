//! Access control lists as the shell takes and shows them: `scheme:id:cdrwa,...`
//!
//! The id may hold colons: it ends at the last one. Reproduces `AclParser`, save that what is wrong is
//! refused: there, an entry that cannot be read is left out.

use crate::proto::acl::perms;
use crate::proto::{Acl, Text};

/// In the order in which they are shown.
const LETTERS: [(char, i32); 5] = [
    ('c', perms::CREATE),
    ('d', perms::DELETE),
    ('r', perms::READ),
    ('w', perms::WRITE),
    ('a', perms::ADMIN),
];

/// Reads a list.
///
/// # Errors
/// Names the entry that is none.
pub(super) fn parse(text: &str) -> Result<Vec<Acl>, String> {
    text.split(',').map(entry).collect()
}

fn entry(text: &str) -> Result<Acl, String> {
    let parts =
        text.split_once(':').and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
    let Some((scheme, (id, letters))) = parts else {
        return Err(format!("{text} does not have the form scheme:id:perm"));
    };
    let perms =
        perms_of(letters).map_err(|letter| format!("{text}: Unknown perm type: {letter}"))?;
    Ok(Acl { perms, scheme: Text::copy_from(scheme), id: Text::copy_from(id) })
}

/// The permissions of letters.
///
/// # Errors
/// The letter that is none.
pub(super) fn perms_of(letters: &str) -> Result<i32, char> {
    letters.chars().try_fold(0, |perms, letter| {
        let known = LETTERS.iter().find(|(known, _)| *known == letter);
        Ok(perms | known.ok_or(letter)?.1)
    })
}

/// The letters of permissions.
pub(super) fn letters(perms: i32) -> String {
    LETTERS.iter().filter(|(_, bit)| perms & bit != 0).map(|(letter, _)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_may_hold_colons() {
        let list = parse("world:anyone:r,digest:bob:pw=:cdrwa").unwrap();
        assert_eq!((list[0].perms, list[0].id.as_str()), (perms::READ, "anyone"));
        assert_eq!((list[1].perms, list[1].id.as_str()), (perms::ALL, "bob:pw="));
        assert_eq!(letters(perms::ALL), "cdrwa");
        assert_eq!(letters(perms::READ | perms::ADMIN), "ra");
    }

    #[test]
    fn an_entry_that_is_none_is_refused() {
        for text in ["", "world", "world:anyone", "world:anyone:x", "world:anyone:r,"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("auth::").unwrap()[0].perms, 0);
    }
}
