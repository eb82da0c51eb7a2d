//! What is wrong with a configuration, in the form an operator can act on.
//!
//! Owns [`ConfigError`] and nothing else. Invariant: the printed form is always
//! `file:line: key: reason` (without `:line` where no line is to blame, as for a missing key or a
//! command line flag).

use std::fmt;

/// One fault of a configuration. Printed as `file:line: key: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as the caller named it, or the command line flag that gave the value.
    pub file: String,
    /// Line of the file, from 1; 0 where no line is to blame.
    pub line: u32,
    /// The key as it was written; empty where the text has no key.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// Where a value came from: a line of a file, or a flag (line 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file as the caller named it, or the flag.
    pub file: String,
    /// Line of the file, from 1; 0 for a flag.
    pub line: u32,
}

impl Origin {
    pub(super) fn error(&self, key: &str, reason: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: self.line,
            key: key.to_string(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        Ok(())
    }
}
