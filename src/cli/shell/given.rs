//! What was given to a verb: flags, flags with values, and arguments, in any order.
//!
//! *Owns* how flags are written: `-s`, `-sw`, `-v 3`, `-v3`, `-v=3`, `-members x`, `--members=x`, and
//! `--` behind which nothing is a flag. *Invariant*: what a verb does not know is refused, never
//! ignored. Reproduces the part of commons-cli's `DefaultParser` that zkCli uses.

use std::str::FromStr;

use super::failure::Failure;
use super::verbs::Verb;

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
    pub(super) fn parse(verb: &Verb, words: &[String]) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::usage(format!("{what}\n{}", verb.usage()));
        let mut given = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                given.arguments.extend(words.by_ref().cloned());
            } else if !is_flag(word, verb) {
                given.arguments.push(word.clone());
            } else if let Some((name, value)) = valued(word, verb) {
                let value = value.or_else(|| words.next().cloned());
                let missing = || wrong(format!("Missing argument for option: {name}"));
                given.values.push((name, value.ok_or_else(missing)?));
            } else {
                for flag in word.trim_start_matches('-').chars() {
                    if !verb.flags.contains(flag) {
                        return Err(wrong(format!("Unrecognized option: {word}")));
                    }
                    given.flags.push(flag);
                }
            }
        }
        let count = given.arguments.len();
        if !verb.arguments.contains(&count) {
            let few = count < *verb.arguments.start();
            let what = if few { "something is missing" } else { "that is more than it takes" };
            return Err(wrong(format!("{}: {what}", verb.name)));
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
fn is_flag(word: &str, verb: &Verb) -> bool {
    match word.strip_prefix('-') {
        None | Some("") => false,
        Some(rest) => rest.parse::<u64>().is_err() || verb.flags.contains(rest),
    }
}

/// The flag with a value that the word is, and the value if it is in the same word.
fn valued(word: &str, verb: &Verb) -> Option<(&'static str, Option<String>)> {
    let bare = word.trim_start_matches('-');
    let (name, value) = match bare.split_once('=') {
        Some((name, value)) => (name, Some(value.to_string())),
        None => (bare, None),
    };
    if let Some(known) = verb.values.iter().find(|known| **known == name) {
        return Some((known, value));
    }
    // `-v3`, but not `-sv`.
    let short = verb.values.iter().find(|known| known.len() == 1 && bare.starts_with(**known))?;
    Some((short, Some(bare[1..].to_string())))
}

#[cfg(test)]
mod tests {
    use super::super::verbs::verb;
    use super::*;

    fn given(line: &str) -> Result<Given, Failure> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        Given::parse(verb(&words[0]).unwrap(), &words[1..])
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
}
