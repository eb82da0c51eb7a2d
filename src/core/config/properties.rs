//! Java properties text -> keys and values with line numbers.
//!
//! Owns the syntax only: what a key means is the table's business. Reproduces
//! `java.util.Properties.load` on text: `key=value`, `key:value` or `key value`; `#` and `!`
//! comments; `\t \n \r \f \uXXXX`, any other escaped character stands for itself; a line that ends
//! in an odd number of backslashes goes on in the next one, whose leading blanks are dropped and
//! which is never a comment. Two differences, both on purpose: the text is UTF-8 instead of
//! Latin-1, and a line without a key is a fault instead of a key with an empty name.
//! Never reads a file.

use std::fmt;
use std::str::Chars;

/// One `key=value` of a properties text, escapes resolved. Duplicates are all here, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Property {
    /// Line on which the property begins, from 1.
    pub line: u32,
    /// The key.
    pub key: String,
    /// The value: leading blanks dropped, trailing blanks kept (as Java does).
    pub value: String,
}

/// A line that is not a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PropertyError {
    /// Line on which the faulty property begins, from 1.
    pub line: u32,
    /// What is wrong with it.
    pub fault: LineFault,
}

/// What may be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineFault {
    /// It has no key. (In Java the key is an empty name.)
    NoKey,
    /// An escape is wrong: Java does not read such a text either.
    Escape(&'static str),
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineFault::NoKey => f.write_str("a line without a key; write key=value"),
            LineFault::Escape(reason) => f.write_str(reason),
        }
    }
}

/// Parses a whole text. Every good line is returned, and every faulty one is named.
#[must_use]
pub(super) fn parse(text: &str) -> (Vec<Property>, Vec<PropertyError>) {
    let mut properties = Vec::new();
    let mut errors = Vec::new();
    // A byte order mark would silently make the first key an unknown one.
    let mut lines = NaturalLines { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 0 };
    while let Some((line, raw)) = lines.next() {
        let first = raw.trim_start_matches(BLANKS);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let logical = with_continuations(first, &mut lines);
        if logical.is_empty() {
            continue;
        }
        match property(line, &logical) {
            Ok(property) => properties.push(property),
            Err(fault) => errors.push(PropertyError { line, fault }),
        }
    }
    (properties, errors)
}

/// The text without the properties whose keys `unwanted` names; comments, blank lines and everything
/// else stay as they are, faulty lines included.
#[must_use]
pub(super) fn without(text: &str, unwanted: impl Fn(&str) -> bool) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut lines = NaturalLines { rest: text, line: 0 };
    loop {
        let start = lines.rest;
        let Some((line, raw)) = lines.next() else { return kept };
        let first = raw.trim_start_matches('\u{feff}').trim_start_matches(BLANKS);
        let is_property = !first.is_empty() && !first.starts_with(['#', '!']);
        let drop = is_property && {
            let logical = with_continuations(first, &mut lines);
            property(line, &logical).is_ok_and(|property| unwanted(&property.key))
        };
        if !drop {
            kept.push_str(&start[..start.len() - lines.rest.len()]);
        }
    }
}

/// Joins a line with those that it continues in.
fn with_continuations(first: &str, lines: &mut NaturalLines<'_>) -> String {
    let mut logical = first.to_string();
    while ends_in_odd_backslashes(&logical) {
        logical.pop();
        match lines.next() {
            Some((_, next)) => logical.push_str(next.trim_start_matches(BLANKS)),
            None => break,
        }
    }
    logical
}

fn ends_in_odd_backslashes(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn property(line: u32, logical: &str) -> Result<Property, LineFault> {
    let (key, rest) = logical.split_at(key_end(logical));
    let rest = rest.trim_start_matches(BLANKS);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(BLANKS);
    if key.is_empty() {
        return Err(LineFault::NoKey);
    }
    Ok(Property { line, key: unescape(key)?, value: unescape(value)? })
}

/// Byte index of the first separator that is not escaped.
fn key_end(logical: &str) -> usize {
    let mut escaped = false;
    for (index, char) in logical.char_indices() {
        if !escaped && (matches!(char, '=' | ':') || BLANKS.contains(&char)) {
            return index;
        }
        escaped = char == '\\' && !escaped;
    }
    logical.len()
}

fn unescape(text: &str) -> Result<String, LineFault> {
    // UTF-16, because a character beyond the basic plane is written as two \u escapes.
    let mut units = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == '\\' {
            // The caller cut a trailing lone backslash off: it continues the line.
            let Some(escape) = chars.next() else { break };
            match escape {
                'u' => units.push(unicode_escape(&mut chars)?),
                't' => units.push(u16::from(b'\t')),
                'n' => units.push(u16::from(b'\n')),
                'r' => units.push(u16::from(b'\r')),
                'f' => units.push(0x0c),
                other => units.extend_from_slice(other.encode_utf16(&mut [0; 2])),
            }
        } else {
            units.extend_from_slice(char.encode_utf16(&mut [0; 2]));
        }
    }
    String::from_utf16(&units)
        .map_err(|_| LineFault::Escape("a \\u escape is half of a surrogate pair"))
}

fn unicode_escape(chars: &mut Chars<'_>) -> Result<u16, LineFault> {
    let mut unit: u16 = 0;
    for _ in 0..4 {
        let digit = chars.next().and_then(|char| char.to_digit(16));
        let digit = digit.ok_or(LineFault::Escape("a \\u escape needs four hexadecimal digits"))?;
        unit = (unit << 4) | u16::try_from(digit).expect("a hexadecimal digit is below 16");
    }
    Ok(unit)
}

/// Lines as they stand in the text, ended by `\n`, `\r` or `\r\n`, counted from 1.
struct NaturalLines<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Iterator for NaturalLines<'a> {
    type Item = (u32, &'a str);

    fn next(&mut self) -> Option<(u32, &'a str)> {
        if self.rest.is_empty() {
            return None;
        }
        self.line = self.line.saturating_add(1);
        let (line, rest) = match self.rest.find(['\n', '\r']) {
            None => (self.rest, ""),
            Some(end) => {
                let after = &self.rest[end..];
                let newline = if after.starts_with("\r\n") { 2 } else { 1 };
                (&self.rest[..end], &after[newline..])
            }
        };
        self.rest = rest;
        Some((self.line, line))
    }
}

/// What Java's parser skips between tokens.
const BLANKS: [char; 3] = [' ', '\t', '\x0c'];

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(u32, String, String)> {
        let (properties, errors) = parse(text);
        assert_eq!(errors, []);
        properties.into_iter().map(|p| (p.line, p.key, p.value)).collect()
    }

    fn pair(text: &str) -> (String, String) {
        let all = pairs(text);
        assert_eq!(all.len(), 1, "{all:?}");
        (all[0].1.clone(), all[0].2.clone())
    }

    fn owned(key: &str, value: &str) -> (String, String) {
        (key.to_string(), value.to_string())
    }

    #[test]
    fn equals_colon_and_blank_separate_key_from_value() {
        for text in ["a=b", "a:b", "a b", "a = b", "  a\t:\x0cb", "a\t=b", "a =b"] {
            assert_eq!(pair(text), owned("a", "b"), "{text:?}");
        }
    }

    #[test]
    fn only_the_first_separator_counts() {
        assert_eq!(pair("a=b=c:d e"), owned("a", "b=c:d e"));
        assert_eq!(pair("a==b"), owned("a", "=b"));
        assert_eq!(pair("a : = b"), owned("a", "= b"));
        assert_eq!(pair("server.1=[::1]:1:2"), owned("server.1", "[::1]:1:2"));
    }

    #[test]
    fn a_key_alone_has_an_empty_value() {
        assert_eq!(pair("a"), owned("a", ""));
        assert_eq!(pair("a="), owned("a", ""));
        assert_eq!(pair("a   "), owned("a", ""));
    }

    #[test]
    fn trailing_blanks_belong_to_the_value() {
        assert_eq!(pair("a=b  "), owned("a", "b  "));
    }

    #[test]
    fn comments_and_blank_lines_are_skipped_and_counted() {
        let all = pairs("# c\n\n  ! c\n \t\x0c\na=1\n#b=2\nc=3");
        assert_eq!(all, [(5, "a".into(), "1".into()), (7, "c".into(), "3".into())]);
    }

    #[test]
    fn a_hash_behind_the_value_is_part_of_it() {
        assert_eq!(pair("a=b # c"), owned("a", "b # c"));
    }

    #[test]
    fn every_line_ending_counts_one_line() {
        let all = pairs("a=1\r\nb=2\rc=3\nd=4");
        let lines: Vec<u32> = all.iter().map(|p| p.0).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert_eq!(all[0].2, "1");
    }

    #[test]
    fn escapes_are_resolved_in_keys_and_values() {
        assert_eq!(pair(r"a\ b\=\:c=d\te\nf\rg\fh"), owned("a b=:c", "d\te\nf\rg\x0ch"));
        assert_eq!(pair(r"a=\z\\\#\!\'"), owned("a", r"z\#!'"));
        assert_eq!(pair(r"\u0061=\u00e9\u20AC"), owned("a", "\u{e9}\u{20ac}"));
        assert_eq!(pair(r"a=\uD83D\uDE00"), owned("a", "\u{1f600}"));
    }

    #[test]
    fn a_bad_unicode_escape_names_its_line_and_spares_the_others() {
        for bad in [r"b=\u12", r"b=\u12x4", r"b=\u", r"\u00g0=1", r"b=\uD83D", r"b=\uDE00\uD83D"] {
            let (properties, errors) = parse(&format!("a=1\n{bad}\nc=3"));
            assert_eq!(properties.len(), 2, "{bad}");
            assert_eq!(errors.len(), 1, "{bad}");
            assert_eq!(errors[0].line, 2, "{bad}");
        }
    }

    #[test]
    fn an_odd_backslash_continues_the_line() {
        let all = pairs("a=b,\\\n   c,\\\r\n\td\ne=f");
        assert_eq!(all, [(1, "a".into(), "b,c,d".into()), (4, "e".into(), "f".into())]);
    }

    #[test]
    fn an_even_backslash_does_not() {
        let all = pairs("a=b\\\\\nc=d");
        assert_eq!(all, [(1, "a".into(), "b\\".into()), (2, "c".into(), "d".into())]);
        let all = pairs("a=b\\\\\\\nc");
        assert_eq!(all, [(1, "a".into(), "b\\c".into())]);
    }

    #[test]
    fn a_continuation_is_never_a_comment_and_a_comment_never_continues() {
        assert_eq!(pair("a=b\\\n#c"), owned("a", "b#c"));
        assert_eq!(pairs("# x\\\na=1").len(), 1);
    }

    #[test]
    fn a_blank_line_or_the_end_closes_a_continuation() {
        let all = pairs("a=b\\\n\nc=d");
        assert_eq!(all, [(1, "a".into(), "b".into()), (3, "c".into(), "d".into())]);
        assert_eq!(pair("a=b\\"), owned("a", "b"));
        assert_eq!(pairs("\\\n\na=b").len(), 1);
        assert_eq!(pairs("\\").len(), 0);
    }

    #[test]
    fn duplicates_are_all_reported_in_order() {
        let all = pairs("a=1\na=2");
        assert_eq!(all, [(1, "a".into(), "1".into()), (2, "a".into(), "2".into())]);
    }

    #[test]
    fn a_line_without_a_key_is_an_error() {
        for text in ["=b", " : b"] {
            let (properties, errors) = parse(text);
            assert!(properties.is_empty());
            assert_eq!(errors[0].line, 1, "{text}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_key() {
        assert_eq!(pair("\u{feff}a=b"), owned("a", "b"));
    }
}
