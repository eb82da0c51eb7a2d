//! A line of the shell, and its words.
//!
//! Words are separated by blanks; one that begins with a quote ends at the next such quote. There is
//! no escaping, as in zkCli (`MyCommandOptions.parseCommand`).

/// The words of a line.
///
/// # Errors
/// A quote is not closed.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            quote @ ('"' | '\'') => rest[1..]
                .split_once(quote)
                .ok_or_else(|| format!("there is no second {quote} to end the word"))?,
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_string());
        rest = behind.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        assert!(words("set /a 'b").unwrap_err().contains("no second '"));
    }
}
