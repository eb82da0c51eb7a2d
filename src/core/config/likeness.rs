//! Which key an unknown one was probably meant to be.
//!
//! Owns the measure. A name is like another one if it has the same words in another order (`timeTick`), if it
//! is the last part of it (`purgeInterval`), or if few letters differ (`clientPrt`, `initialLimit`).

use super::key::OWN_PREFIX;

/// Longer names than this are compared with none.
const BYTES_MAX: usize = 64;

/// The name that is most like this one, if one is at all. Own keys are compared with own ones, others with
/// others; families (`ssl.*`) with none, save that of the server lines.
pub(super) fn nearest(
    name: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if name.len() > BYTES_MAX {
        return None;
    }
    let is_own = |name: &str| name.starts_with(OWN_PREFIX);
    let (stem, number) = name.rsplit_once('.').unwrap_or((name, ""));
    let is_numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let line = is_numbered.then(|| difference(stem, "server")).flatten();
    names
        .filter(|known| is_own(known) == is_own(name) && !known.ends_with(['*', 'N']))
        .filter_map(|known| Some((difference(name, known)?, known)))
        .chain(line.map(|difference| (difference, "server.N")))
        .min()
        .map(|(_, known)| known)
}

/// How unlike a known name this one is; `None`: too much.
fn difference(name: &str, known: &str) -> Option<usize> {
    let (name, known) = (name.to_ascii_lowercase(), (known, known.to_ascii_lowercase()));
    let letters = distance(&name, &known.1);
    if letters == 0 {
        return Some(0);
    }
    let is_last_part = known.1.rsplit_once('.').is_some_and(|(_, last)| last == name);
    // The words of `name` are not known once it is in small letters: those of the known one are looked for.
    let has_same_words = words(known.0).len() > 1 && is_made_of(&name, words(known.0));
    if is_last_part || has_same_words {
        return Some(1);
    }
    let most = (name.len() / 4).max(2);
    (letters <= most && letters * 3 <= name.len()).then_some(letters)
}

/// `tickTime`: tick, time.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars().filter(|letter| *letter != '.') {
        match words.last_mut() {
            Some(word) if !letter.is_ascii_uppercase() => word.push(letter),
            _ => words.push(letter.to_ascii_lowercase().to_string()),
        }
    }
    words
}

/// Whether a name is these words, each once, in some order.
fn is_made_of(name: &str, words: Vec<String>) -> bool {
    if words.is_empty() {
        return name.is_empty();
    }
    (0..words.len()).any(|index| {
        let mut rest = words.clone();
        let word = rest.remove(index);
        name.strip_prefix(word.as_str()).is_some_and(|name| is_made_of(name, rest))
    })
}

/// Levenshtein's distance.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, byte) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 9] = [
        "tickTime",
        "initLimit",
        "syncLimit",
        "clientPort",
        "clientPortAddress",
        "autopurge.purgeInterval",
        "ssl.*",
        "lockkeeper.auditLog",
        "maxClientCnxns",
    ];

    #[test]
    fn a_misspelt_key_is_recognised() {
        for (name, meant) in [
            ("timeTick", "tickTime"),
            ("ticktime", "tickTime"),
            ("tick.time", "tickTime"),
            ("initialLimit", "initLimit"),
            ("initLimt", "initLimit"),
            ("clientPrt", "clientPort"),
            ("ClientPort", "clientPort"),
            ("portClient", "clientPort"),
            ("purgeInterval", "autopurge.purgeInterval"),
            ("autopurge.purgeInteval", "autopurge.purgeInterval"),
            ("maxClientCnxn", "maxClientCnxns"),
            ("sever.1", "server.N"),
            ("Server.12", "server.N"),
            ("lockkeeper.auditlogs", "lockkeeper.auditLog"),
        ] {
            assert_eq!(nearest(name, KEYS.into_iter()), Some(meant), "{name}");
        }
    }

    #[test]
    fn a_key_of_another_program_is_like_none() {
        for name in ["foo", "x", "log4j.rootLogger", "ssl", "lockkeeper.x", "node.id", "weird.1"] {
            assert_eq!(nearest(name, KEYS.into_iter()), None, "{name}");
        }
        assert_eq!(nearest(&"t".repeat(10_000), KEYS.into_iter()), None);
    }
}
