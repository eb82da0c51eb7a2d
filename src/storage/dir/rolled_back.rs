//! Remembers on the disk that a data directory is an older copy of what its server had.
//!
//! *Owns* the file `rolled-back`, which holds the words with which the server refused to take part.
//! The servers that remember what the directory lacks do so in memory only: without the file it would be
//! accepted once they are restarted. *Invariants*: the file is written as a whole and is durable on return;
//! while it is there the directory is not opened, whatever is in the file; `--rejoin` moves it away, behind
//! everything else (`dir/quarantine.rs`). *Never* removes it: what the directory lacks it does not get back.

use std::path::Path;

use super::open_error::OpenError;
use crate::fs::{Fs, FsError, read_file, write_file};

/// Its name.
pub(crate) const FILE: &str = "rolled-back";
const TEMPORARY: &str = "rolled-back.tmp";
/// Most bytes of the file.
const BYTES_MAX: u64 = 64 << 10;
/// What is said where the file does not hold text.
const WITHOUT_WORDS: &str = "the data directory is an older copy of what this server had. Start the \
    server with --rejoin: that sets the data aside and fetches everything from the others";

/// Writes to `dir` that its server was rolled back, and must not use it any more; durable on return.
/// `words` say why, and what to do.
///
/// # Errors
/// The file system failed: the next start may accept the directory.
pub fn mark_rolled_back(fs: &dyn Fs, dir: &Path, words: &str) -> Result<(), FsError> {
    write_file(fs, dir, TEMPORARY, words.as_bytes())?;
    fs.rename(&dir.join(TEMPORARY), &dir.join(FILE))?;
    if mutant!("rollback-mark-not-synced") {
        return Ok(());
    }
    fs.sync_dir(dir)
}

/// Whether `dir` is marked.
pub(crate) fn is_rolled_back(fs: &dyn Fs, dir: &Path) -> Result<bool, FsError> {
    fs.has(dir, FILE)
}

/// That `dir` is not marked.
///
/// # Errors
/// It is: with the words that were written.
pub(crate) fn refuse_rolled_back(fs: &dyn Fs, dir: &Path) -> Result<(), OpenError> {
    if !is_rolled_back(fs, dir)? {
        return Ok(());
    }
    let path = dir.join(FILE);
    // A file that cannot be read refuses as well, with other words.
    let words = read_file(fs, &path, BYTES_MAX).ok();
    let words = words.and_then(|bytes| String::from_utf8(bytes).ok());
    let words = words.filter(|words| !words.trim().is_empty());
    let words = words.unwrap_or_else(|| WITHOUT_WORDS.to_owned());
    Err(OpenError::RolledBack { path, words })
}
