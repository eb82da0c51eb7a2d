//! What is wrong with a file of keys or certificates, or with what the keys of TLS ask for.

use std::fmt;
use std::path::{Path, PathBuf};

/// A fault of the TLS of a listener, with the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// The file, if it is one that is at fault.
    pub path: Option<PathBuf>,
    /// What is wrong, and what to do, as part of a sentence.
    pub reason: String,
}

impl TlsError {
    /// Of a file.
    pub(super) fn of(path: &Path, reason: impl fmt::Display) -> Self {
        Self { path: Some(path.to_owned()), reason: reason.to_string() }
    }

    /// Of no file.
    pub(super) fn general(reason: impl fmt::Display) -> Self {
        Self { path: None, reason: reason.to_string() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TlsError {}
