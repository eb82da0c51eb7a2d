//! What was given to a verb: flags, flags with values, and arguments, in any order.
//!
//! *Owns* the words of a line, what a verb takes ([`Form`]), and how flags are written: `-s`, `-sw`, `-v 3`, `-v3`,
//! `-v=3`, `-members x`, `--members=x`, and `--` behind which nothing is a flag. *Invariant*: what a verb does not know
//! is refused, never ignored. Reproduces the part of commons-cli's `DefaultParser` that zkCli uses.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::failure::Failure;

/// The words of a line. They are separated by blanks; one that begins with a quote ends at the next such quote. There
/// is no escaping, as in zkCli (`MyCommandOptions.parseCommand`).
///
/// # Errors
/// A quote is not closed.
pub(super) fn words_of(line: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            quote @ ('"' | '\'') => rest[1..].split_once(quote).ok_or_else(|| {
                Failure::usage(format!("there is no second {quote} to end the word"))
            })?,
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_string());
        rest = behind.trim_start();
    }
    Ok(words)
}

/// Arguments of a verb.
pub(super) struct Form {
    /// Flags without a value, a letter each.
    pub flags: String,
    /// Flags with one.
    pub values: Vec<&'static str>,
    /// Number of arguments.
    arguments: RangeInclusive<usize>,
}

impl Form {
    /// Reads it from how it is written for people: `[-s] [-v version] path [data]`.
    pub(super) fn of(text: &'static str) -> Self {
        let (mut flags, mut values) = (String::new(), Vec::new());
        let (mut least, mut most) = (0, 0);
        let mut words = text.split_whitespace().filter(|word| *word != "|");
        while let Some(word) = words.next() {
            let bare = word.trim_matches(['[', ']']);
            let names = bare.split('|').map(|name| name.trim_start_matches('-'));
            if !bare.starts_with('-') {
                most += 1;
                least += usize::from(bare == word);
            } else if word.ends_with(']') {
                flags.extend(names);
            } else {
                values.extend(names);
                // What the value is.
                words.next();
            }
        }
        Self { flags, values, arguments: least..=most }
    }

    /// The flag with a value that the word is, and the value if it is in the same word.
    fn valued(&self, word: &str) -> Option<(&'static str, Option<String>)> {
        let bare = word.trim_start_matches('-');
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (bare, None),
        };
        if let Some(known) = self.values.iter().find(|known| **known == name) {
            return Some((known, value));
        }
        // `-v3`, but not `-sv`.
        let is_begun = |known: &&&str| known.len() == 1 && bare.starts_with(**known);
        Some((self.values.iter().find(is_begun)?, Some(bare[1..].to_string())))
    }
}

/// The words behind a verb, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    flags: Vec<char>,
    values: Vec<(&'static str, String)>,
    /// What is no flag.
    pub arguments: Vec<String>,
}

impl Given {
    /// Understands the words behind a verb.
    ///
    /// # Errors
    /// The verb has no such flag, a value is missing, or there are too few or too many arguments.
    pub(super) fn parse(verb: &str, text: &'static str, words: &[String]) -> Result<Self, Failure> {
        let form = Form::of(text);
        let usage = format!("usage: {verb} {text}");
        let wrong = |what: String| Failure::usage(format!("{what}\n{}", usage.trim_end()));
        let mut given = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                given.arguments.extend(words.by_ref().cloned());
            } else if !is_flag(word) {
                given.arguments.push(word.clone());
            } else if let Some((name, value)) = form.valued(word) {
                let value = value.or_else(|| words.next().cloned());
                let missing = || wrong(format!("Missing argument for option: {name}"));
                given.values.push((name, value.ok_or_else(missing)?));
            } else {
                for flag in word.trim_start_matches('-').chars() {
                    if !form.flags.contains(flag) {
                        return Err(wrong(format!("Unrecognized option: {word}")));
                    }
                    given.flags.push(flag);
                }
            }
        }
        let count = given.arguments.len();
        if !form.arguments.contains(&count) {
            let few = count < *form.arguments.start();
            let what = if few { "something is missing" } else { "that is more than it takes" };
            return Err(wrong(format!("{verb}: {what}")));
        }
        Ok(given)
    }

    pub(super) fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag)
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The value as a number.
    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let parsed = |text: &str| {
            let wrong = |_| Failure::usage(format!("-{name}: `{text}` is no number it can take"));
            text.parse().map_err(wrong)
        };
        self.value(name).map(parsed).transpose()
    }

    /// The version that is demanded; -1 is any.
    pub(super) fn version(&self) -> Result<i32, Failure> {
        Ok(self.number("v")?.unwrap_or(-1))
    }

    /// The first argument: in most verbs, the path.
    pub(super) fn path(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }
}

/// A negative number and a single dash are arguments.
fn is_flag(word: &str) -> bool {
    let rest = word.strip_prefix('-').filter(|rest| !rest.is_empty());
    rest.is_some_and(|rest| rest.parse::<u64>().is_err())
}

#[cfg(test)]
mod tests {
    use super::super::verbs::verb;
    use super::*;

    fn given(line: &str) -> Result<Given, Failure> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        let verb = verb(&words[0]).unwrap();
        Given::parse(verb.name, verb.form, &words[1..])
    }

    #[test]
    fn flags_stand_anywhere_and_together() {
        for line in ["ls -s -w /a", "ls /a -sw", "ls -w /a -s"] {
            let given = given(line).unwrap();
            assert!(given.has('s') && given.has('w') && !given.has('R'), "{line}");
            assert_eq!(given.path(), "/a");
        }
    }

    #[test]
    fn values_follow_their_flag_in_every_spelling() {
        for line in ["set -v 3 /a b", "set -v3 /a b", "set /a b -v=3", "set /a b --v 3"] {
            assert_eq!(given(line).unwrap().version(), Ok(3), "{line}");
        }
        assert_eq!(given("set /a b -v -1").unwrap().version(), Ok(-1));
        assert!(given("set /a b -v x").unwrap().version().is_err());
        assert_eq!(given("reconfig -remove 1,2").unwrap().value("remove"), Some("1,2"));
    }

    #[test]
    fn what_a_verb_does_not_take_is_refused_with_its_usage() {
        for line in ["ls -x /a", "ls -sx /a", "ls /a /b", "delete", "set /a b -v", "get -S /a"] {
            let failure = given(line).unwrap_err();
            assert_eq!(failure.exit, 2);
            assert!(failure.text.contains("usage: "), "{line}: {}", failure.text);
        }
    }

    #[test]
    fn data_may_begin_with_a_dash_if_it_is_a_number_or_stands_behind_two() {
        assert_eq!(given("set /a -5").unwrap().arguments, ["/a", "-5"]);
        assert_eq!(given("set /a -").unwrap().arguments, ["/a", "-"]);
        assert_eq!(given("set -s -- /a -s").unwrap().arguments, ["/a", "-s"]);
    }

    #[test]
    fn what_a_verb_takes_is_what_its_usage_shows() {
        for (text, flags, values, arguments) in [
            ("", "", vec![], 0..=0),
            ("[-s] [-e] [-t ttl] path [data] [acl]", "se", vec!["t"], 1..=3),
            ("[-n|-b|-N|-B] path", "nbNB", vec![], 1..=1),
            ("-n|-b|-N|-B limit path", "", vec!["n", "b", "N", "B"], 1..=1),
            ("[-on-conflict fail|skip] file path", "", vec!["on-conflict"], 2..=2),
            (
                "[-s] [-file path | -add server,... -remove id,...]",
                "s",
                vec!["file", "add", "remove"],
                0..=0,
            ),
            ("[on|off]", "", vec![], 0..=1),
        ] {
            let form = Form::of(text);
            assert_eq!((&*form.flags, form.values, form.arguments), (flags, values, arguments));
        }
    }

    #[test]
    fn quotes_hold_a_word_together() {
        for (line, expected) in [
            ("", vec![]),
            ("  ls  /a\n", vec!["ls", "/a"]),
            ("set /a 'two words'", vec!["set", "/a", "two words"]),
            ("set /a \"it's\" -s", vec!["set", "/a", "it's", "-s"]),
            ("set /a ''", vec!["set", "/a", ""]),
            ("set /a b'c", vec!["set", "/a", "b'c"]),
        ] {
            assert_eq!(words_of(line).unwrap(), expected, "{line}");
        }
        assert!(words_of("set /a 'b").unwrap_err().text.contains("no second '"));
    }
}
