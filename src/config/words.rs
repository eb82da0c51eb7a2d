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
    /// `srvr`.
    ///
    /// # Errors
    /// Names the entry that is no four-letter word.
    pub fn parse(text: &str) -> Result<FourLetterWords, String> {
        if text == "default" {
            return Ok(FourLetterWords::Default);
        }
        let mut words = BTreeSet::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word == "*" {
                return Ok(FourLetterWords::All);
            }
            if word.len() != 4 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                return Err(format!(
                    "`{word}` is not a four-letter word; write a comma list such as `ruok, mntr`, \
                     `*` for all, or `default`"
                ));
            }
            words.insert(word.to_string());
        }
        Ok(FourLetterWords::Listed(words))
    }

    /// May a client ask `word`? `from_loopback`: it is on this machine.
    #[must_use]
    pub fn allows(&self, word: &str, from_loopback: bool) -> bool {
        match self {
            FourLetterWords::All => true,
            FourLetterWords::Default => word != HASH && (from_loopback || CHEAP.contains(&word)),
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

/// Shows digests that cost CPU at every write: they are kept only where the word is named.
const HASH: &str = "hash";
/// Words that cost little and disclose no session or path: allowed from anywhere by default.
pub const CHEAP: [&str; 9] =
    ["ruok", "srvr", "stat", "mntr", "conf", "isro", "envi", "wchs", "dirs"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_costly_words_are_for_this_machine_only() {
        let words = FourLetterWords::Default;
        for word in CHEAP {
            assert!(words.allows(word, false), "{word}");
        }
        for word in ["cons", "dump", "wchc", "wchp", "crst", "srst", "stmk"] {
            assert!(!words.allows(word, false), "{word}");
            assert!(words.allows(word, true), "{word}");
        }
    }

    #[test]
    fn a_list_allows_exactly_its_words_and_srvr() {
        let words = FourLetterWords::parse(" mntr ,, ruok,").unwrap();
        for (word, allowed) in [("mntr", true), ("ruok", true), ("srvr", true), ("stat", false)] {
            assert_eq!(words.allows(word, false), allowed, "{word}");
            assert_eq!(words.allows(word, true), allowed, "{word}");
        }
        assert!(FourLetterWords::parse("").unwrap().allows("srvr", false));
        assert!(!FourLetterWords::parse("").unwrap().allows("ruok", true));
    }

    #[test]
    fn a_star_anywhere_allows_all() {
        for text in ["*", "mntr, *"] {
            assert!(FourLetterWords::parse(text).unwrap().allows("wchp", false));
        }
    }

    #[test]
    fn what_is_no_word_is_refused_by_name() {
        for text in ["mntr;ruok", "ruo", "RUOK", "ruok stat"] {
            assert!(FourLetterWords::parse(text).is_err(), "{text}");
        }
    }
}
