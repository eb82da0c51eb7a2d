//! Which four-letter words a client may ask.
//!
//! Owns [`FourLetterWords`], the value of `4lw.commands.whitelist`. Invariant: `srvr` is always
//! allowed (`zkServer.sh status` and most probes live on it). Does not know what a word answers.
//! Reproduces the whitelist of `FourLetterCommands`; only the default differs: ZooKeeper's allows
//! `srvr` alone, and every scraper fails silently on it.

use std::collections::BTreeSet;

/// The whitelist of four-letter words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FourLetterWords {
    /// Not configured: the cheap words from anywhere, all words from this machine.
    Default,
    /// `*`: every word from anywhere.
    All,
    /// Exactly these, from anywhere, and `srvr`.
    Listed(BTreeSet<String>),
}

impl FourLetterWords {
    /// Reads the key's value: `*`, `default`, or a comma list of words. An empty list leaves
    /// `srvr`. Words that this server does not know are left out, and named.
    #[must_use]
    pub fn parse(text: &str) -> (FourLetterWords, Option<String>) {
        if text == "default" {
            return (FourLetterWords::Default, None);
        }
        let (mut words, mut unknown) = (BTreeSet::new(), Vec::new());
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word == "*" {
                return (FourLetterWords::All, None);
            }
            if by_default(word).is_some() {
                words.insert(word.to_string());
            } else {
                unknown.push(format!("`{word}`"));
            }
        }
        let unknown = (!unknown.is_empty()).then(|| {
            format!(
                "there is no four-letter word {}; write a comma list such as `ruok, mntr`, `*` for all, or \
                 `default`",
                unknown.join(", ")
            )
        });
        (FourLetterWords::Listed(words), unknown)
    }

    /// May a client ask `word`? `from_loopback`: it is on this machine.
    #[must_use]
    pub fn allows(&self, word: &str, from_loopback: bool) -> bool {
        match self {
            FourLetterWords::All => true,
            FourLetterWords::Default => match by_default(word) {
                Some(ByDefault::Everywhere) => true,
                Some(ByDefault::Here) => from_loopback,
                Some(ByDefault::Nowhere) | None => false,
            },
            FourLetterWords::Listed(words) => word == "srvr" || words.contains(word),
        }
    }

    /// Read-only mode makes clients probe servers with `isro`: it is allowed then, as ZooKeeper
    /// does.
    pub(super) fn allow_isro(&mut self) {
        match self {
            FourLetterWords::All | FourLetterWords::Default => {}
            FourLetterWords::Listed(words) => {
                words.insert("isro".to_string());
            }
        }
    }

    /// The value as it would be written.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            FourLetterWords::All => "*".to_string(),
            FourLetterWords::Default => "default".to_string(),
            FourLetterWords::Listed(words) => {
                words.iter().map(String::as_str).collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// Places from which a word may be asked if nothing is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByDefault {
    /// From anywhere: it costs little and discloses no session or path.
    Everywhere,
    /// From this machine.
    Here,
    /// From nowhere: it shows digests that cost CPU at every write, which are kept only where the word is named.
    Nowhere,
}

use ByDefault::{Everywhere, Here, Nowhere};

/// Every word, and where it may be asked from if nothing is configured.
pub const WORDS: [(&str, ByDefault); 18] = [
    ("conf", Everywhere),
    ("cons", Here),
    ("crst", Here),
    ("dirs", Everywhere),
    ("dump", Here),
    ("envi", Everywhere),
    ("gtmk", Here),
    ("hash", Nowhere),
    ("isro", Everywhere),
    ("mntr", Everywhere),
    ("ruok", Everywhere),
    ("srst", Here),
    ("srvr", Everywhere),
    ("stat", Everywhere),
    ("stmk", Here),
    ("wchc", Here),
    ("wchp", Here),
    ("wchs", Everywhere),
];

fn by_default(word: &str) -> Option<ByDefault> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, by_default)| *by_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_costly_words_are_for_this_machine_only() {
        let words = FourLetterWords::Default;
        for word in ["ruok", "srvr", "stat", "mntr", "conf", "isro", "envi", "wchs", "dirs"] {
            assert!(words.allows(word, false), "{word}");
        }
        assert!(!words.allows("hash", true));
        for word in ["cons", "dump", "wchc", "wchp", "crst", "srst", "stmk"] {
            assert!(!words.allows(word, false), "{word}");
            assert!(words.allows(word, true), "{word}");
        }
    }

    #[test]
    fn a_list_allows_exactly_its_words_and_srvr() {
        let (words, None) = FourLetterWords::parse(" mntr ,, ruok,") else { panic!() };
        for (word, allowed) in [("mntr", true), ("ruok", true), ("srvr", true), ("stat", false)] {
            assert_eq!(words.allows(word, false), allowed, "{word}");
            assert_eq!(words.allows(word, true), allowed, "{word}");
        }
        assert!(FourLetterWords::parse("").0.allows("srvr", false));
        assert!(!FourLetterWords::parse("").0.allows("ruok", true));
    }

    #[test]
    fn a_star_anywhere_allows_all() {
        for text in ["*", "mntr, *"] {
            assert!(FourLetterWords::parse(text).0.allows("wchp", false));
        }
    }

    #[test]
    fn what_is_no_word_is_named_and_left_out() {
        for text in ["mntr;ruok", "ruo", "RUOK", "ruok stat", "reqs"] {
            let (words, unknown) = FourLetterWords::parse(&format!("{text},conf"));
            assert_eq!(words, FourLetterWords::parse("conf").0);
            assert!(unknown.is_some_and(|reason| reason.contains(&format!("`{text}`"))), "{text}");
        }
    }
}
