//! The rules that make short names of principals: `security.auth_to_local`.
//!
//! *Owns* their syntax, `DEFAULT` and `RULE:[n:format](match)s/from/to/g`, and what they make of a name. *Invariants*:
//! a rule that could fail for some name is refused when it is read; no rule makes a name with `/` or `@`. *Never*
//! knows the realm of a machine: it is told.
//!
//! Reproduces `KerberosName`. Patterns are those of regex-lite, which lacks what makes Java's slow: references back,
//! and looking around.

use std::fmt;

use regex_lite::{Captures, Regex};

use super::Principal;

/// The rules where none are given.
const RULES_DEFAULT: &str = "DEFAULT";

/// Rules, in their order: the first that applies to a name makes it short.
#[derive(Clone)]
pub struct AuthToLocal {
    text: String,
    rules: Vec<Rule>,
    default_realm: Option<String>,
}

#[derive(Clone)]
enum Rule {
    /// A name of the machine's own realm: its primary.
    Default,
    /// A name of so many components: what is made of them.
    Made(Box<Made>),
}

#[derive(Clone)]
struct Made {
    components: usize,
    format: Vec<Piece>,
    matching: Option<Regex>,
    substitution: Option<Substitution>,
}

/// A piece of a text: words, or the number of what is put there.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Words(String),
    Number(usize),
}

#[derive(Clone)]
struct Substitution {
    from: Regex,
    to: Vec<Piece>,
    is_for_all: bool,
}

impl AuthToLocal {
    /// Reads the rules.
    ///
    /// # Errors
    /// Which rule is none, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut rules, mut rest) = (Vec::new(), text.trim());
        while !rest.is_empty() {
            let (rule, behind) = rule(rest).map_err(|reason| format!("`{rest}`: {reason}"))?;
            rules.push(rule);
            rest = behind.trim_start();
        }
        Ok(Self { text: text.to_owned(), rules, default_realm: None })
    }

    /// With the realm whose names `DEFAULT` applies to. Without one it applies to those of every realm.
    #[must_use]
    pub fn in_realm(mut self, realm: &str) -> Self {
        self.default_realm = Some(realm.to_owned());
        self
    }

    /// The short name. `None`: no rule applies, or one makes a name that is not short.
    #[must_use]
    pub fn short_name(&self, name: &Principal<'_>) -> Option<String> {
        let Some(realm) = name.realm() else { return Some(name.primary().to_owned()) };
        let components: Vec<&str> =
            [realm, name.primary()].into_iter().chain(name.host()).collect();
        let short = self.rules.iter().find_map(|rule| match rule {
            Rule::Default => {
                let is_own = self.default_realm.as_deref().is_none_or(|own| own == realm);
                is_own.then(|| name.primary().to_owned())
            }
            Rule::Made(made) => made.apply(&components),
        });
        short.filter(|short| !short.contains(['/', '@']))
    }
}

impl Made {
    /// `components`: the realm, and what is in front of it.
    fn apply(&self, components: &[&str]) -> Option<String> {
        if components.len() != self.components + 1 {
            return None;
        }
        let base = joined(&self.format, |number| components.get(number).copied());
        if !self.matching.as_ref().is_none_or(|matching| matching.is_match(&base)) {
            return None;
        }
        let Some(Substitution { from, to, is_for_all }) = &self.substitution else {
            return Some(base);
        };
        let put = |found: &Captures<'_>| {
            joined(to, |number| found.get(number).map(|group| group.as_str()))
        };
        let limit = if *is_for_all { 0 } else { 1 };
        Some(from.replacen(&base, limit, put).into_owned())
    }
}

fn joined<'a>(pieces: &[Piece], put: impl Fn(usize) -> Option<&'a str>) -> String {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Words(words) => text.push_str(words),
            Piece::Number(number) => text.push_str(put(*number).unwrap_or_default()),
        }
    }
    text
}

/// The rule that a text begins with, and what is behind it.
fn rule(text: &str) -> Result<(Rule, &str), String> {
    if let Some(rest) = text.strip_prefix("DEFAULT") {
        return Ok((Rule::Default, rest));
    }
    let expected = || {
        "a rule is DEFAULT or RULE:[n:format], and may go on with (match) and s/from/to/ or s/from/to/g"
            .to_owned()
    };
    let rest = text.strip_prefix("RULE:[").ok_or_else(expected)?;
    let (head, mut rest) = rest.split_once(']').ok_or_else(expected)?;
    let (components, format) = head.split_once(':').ok_or_else(expected)?;
    let components = components.parse().map_err(|_| expected())?;
    if components > COMPONENTS_MAX {
        return Err(format!("a name has at most {COMPONENTS_MAX} components"));
    }
    let format = pieces(format, components, false)?;
    let mut matching = None;
    if let Some((pattern, behind)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        // All of the name, as in Java.
        matching = Some(pattern_of(&format!(r"\A(?:{pattern})\z"))?);
        rest = behind;
    }
    let mut substitution = None;
    if let Some(behind) = rest.strip_prefix("s/") {
        let (from, behind) = behind.split_once('/').ok_or_else(expected)?;
        let (to, behind) = behind.split_once('/').ok_or_else(expected)?;
        let from = pattern_of(from)?;
        let to = pieces(to, from.captures_len() - 1, true)?;
        let (is_for_all, behind) = match behind.strip_prefix('g') {
            Some(behind) => (true, behind),
            None => (false, behind),
        };
        substitution = Some(Substitution { from, to, is_for_all });
        rest = behind;
    }
    Ok((Rule::Made(Box::new(Made { components, format, matching, substitution })), rest))
}

fn pattern_of(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| format!("the pattern `{text}`: {error}"))
}

/// Takes a text with `$N` apart; N is at most `most`. In what is put for a match a number ends where it would be too
/// large, and `\` makes the next character plain, as in Java.
fn pieces(text: &str, most: usize, is_replacement: bool) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut words = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if is_replacement => match characters.next() {
                Some(plain) => words.push(plain),
                None => return Err(format!("`{text}` ends with \\")),
            },
            '$' => {
                let mut number: Option<usize> = None;
                while let Some(digit) = characters.peek().and_then(|next| next.to_digit(10)) {
                    let longer =
                        number.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize);
                    if is_replacement && number.is_some() && longer > most {
                        break;
                    }
                    number = Some(longer);
                    characters.next();
                }
                match number {
                    Some(number) if number <= most => {
                        if !words.is_empty() {
                            pieces.push(Piece::Words(std::mem::take(&mut words)));
                        }
                        pieces.push(Piece::Number(number));
                    }
                    _ => return Err(format!("in `{text}` $ is followed by a number up to {most}")),
                }
            }
            plain => words.push(plain),
        }
    }
    if !words.is_empty() {
        pieces.push(Piece::Words(words));
    }
    Ok(pieces)
}

impl Default for AuthToLocal {
    fn default() -> Self {
        Self { text: RULES_DEFAULT.to_owned(), rules: vec![Rule::Default], default_realm: None }
    }
}

/// Patterns are compared by their text.
impl PartialEq for AuthToLocal {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.default_realm) == (&other.text, &other.default_realm)
    }
}

impl Eq for AuthToLocal {}

impl fmt::Debug for AuthToLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuthToLocal").field(&self.text).field(&self.default_realm).finish()
    }
}

/// Components of a name, without its realm.
const COMPONENTS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn short(rules: &str, name: &str) -> Option<String> {
        let rules = AuthToLocal::parse(rules).unwrap().in_realm("EXAMPLE.COM");
        rules.short_name(&Principal::parse(name).unwrap())
    }

    #[test]
    fn the_default_rule_takes_names_of_the_own_realm_alone() {
        for (name, expected) in [
            ("bob@EXAMPLE.COM", Some("bob")),
            ("hbase/node1@EXAMPLE.COM", Some("hbase")),
            ("bob@OTHER", None),
            ("bob", Some("bob")),
        ] {
            assert_eq!(short("DEFAULT", name).as_deref(), expected, "{name}");
        }
        let anywhere = AuthToLocal::default();
        let name = Principal::parse("bob@OTHER").unwrap();
        assert_eq!(anywhere.short_name(&name).as_deref(), Some("bob"));
        assert_eq!(AuthToLocal::parse("").unwrap().short_name(&name), None, "there is no rule");
    }

    #[test]
    fn rules_of_hadoop_do_what_they_do_there() {
        // Of Hadoop's and ZooKeeper's own tests and guides.
        let rules = "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g\nRULE:[2:$1](johndoe)s/^.*$/guest/\n\
             RULE:[2:$1;$2](^.*;admin$)s/;admin$//\nRULE:[2:$2](root)\nDEFAULT";
        for (name, expected) in [
            ("App.service-1@EXAMPLE.COM", Some("service-1")),
            ("johndoe/desk@OTHER", Some("guest")),
            ("joe/admin@OTHER", Some("joe")),
            ("joe/root@OTHER", Some("root")),
            ("joe@EXAMPLE.COM", Some("joe")),
            ("joe/desk@OTHER", None),
        ] {
            assert_eq!(short(rules, name).as_deref(), expected, "{name}");
        }
        let rules =
            "RULE:[2:$1@$0](nn@EXAMPLE.COM)s/.*/hdfs/ RULE:[1:$1@$0](.*@OTHER)s/@.*//DEFAULT";
        for (name, expected) in [
            ("nn/host@EXAMPLE.COM", Some("hdfs")),
            ("nn/host@EXAMPLE.COMX", None),
            ("bob@OTHER", Some("bob")),
            ("bob@EXAMPLE.COM", Some("bob")),
        ] {
            assert_eq!(short(rules, name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_substitution_is_for_the_first_match_or_for_all() {
        assert_eq!(short("RULE:[1:$1]s/a/b/", "aXa@R").as_deref(), Some("bXa"));
        assert_eq!(short("RULE:[1:$1]s/a/b/g", "aXa@R").as_deref(), Some("bXb"));
        assert_eq!(short("RULE:[1:$1]s/(x)(y)/$2$10\\$/", "xy@R").as_deref(), Some("yx0$"));
        assert_eq!(short("RULE:[1:$1]s/a//", "ab@R").as_deref(), Some("b"));
    }

    #[test]
    fn a_name_that_is_not_short_ends_the_search() {
        assert_eq!(short("RULE:[1:$1@$0] DEFAULT", "bob@EXAMPLE.COM"), None);
    }

    #[test]
    fn what_is_no_rule_is_refused_when_it_is_read() {
        for rules in [
            "default",
            "RULE:[1:$1",
            "RULE:[:$1]",
            "RULE:[x:$1]",
            "RULE:[3:$1]",
            "RULE:[1:$2]",
            "RULE:[1:$]",
            "RULE:[1:$1](a",
            "RULE:[1:$1](a[)",
            "RULE:[1:$1]((a))",
            "RULE:[1:$1]s/a",
            "RULE:[1:$1]s/a/b",
            "RULE:[1:$1]s/a/$1/",
            "RULE:[1:$1]s/a/\\/",
            "RULE:[1:$1]s/(?=a)/b/",
            "RULE:[1:$1]s/a/b//L",
            "DEFAULT x",
        ] {
            assert!(AuthToLocal::parse(rules).is_err(), "{rules}");
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut random = crate::rng::Rng::new(11, 0);
        let parts = [
            "RULE:[", "1:", "2:", "$1", "$", "]", "(", ")", "s/", "/", "g", "DEFAULT", "\\", ".*",
            "a", " ",
        ];
        for _ in 0..5_000 {
            let count = random.below(20);
            let text: String = (0..count)
                .map(|_| parts[usize::try_from(random.below(parts.len() as u64)).unwrap()])
                .collect();
            if let Ok(rules) = AuthToLocal::parse(&text) {
                let short = rules.short_name(&Principal::parse("a/b@R").unwrap());
                assert!(short.is_none_or(|short| !short.contains(['/', '@'])));
            }
        }
    }
}
