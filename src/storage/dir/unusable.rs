//! Remembers on the disk why a data directory must not be used any more.
//!
//! *Owns* the files `rolled-back`, `diverged` and `undecided`, which hold the words with which the server refused to
//! take part.
//! Others know why in memory only: without the file the directory would be accepted once they are restarted.
//! *Invariants*: a file is written as a whole and is durable on return; while it is there the directory is not opened,
//! whatever is in the file; `--rejoin` moves it away, after everything else (`dir/quarantine.rs`). *Never* removes it:
//! what the directory lacks it does not get back. Of `undecided`, an operator removes it where the state is right.

use std::path::Path;

use super::open_error::OpenError;
use crate::fs::{Fs, FsError, read_file, write_file};

/// Why a directory must not be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Older copy of what its server had.
    RolledBack,
    /// Copies of a state that the majority does not have, beside a log that is right.
    Diverged,
    /// No majority had the same state: an operator decides whether this one is right.
    Undecided,
}

impl Unusable {
    const ALL: [Self; 3] = [Self::RolledBack, Self::Diverged, Self::Undecided];

    /// Name of the file.
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::RolledBack => "rolled-back",
            Self::Diverged => "diverged",
            Self::Undecided => "undecided",
        }
    }

    /// Words for a file that does not hold text.
    fn words(self) -> &'static str {
        match self {
            Self::RolledBack => {
                "the data directory is an older copy of what this server had. Start the server with --rejoin: that \
                 sets the data aside and fetches everything from the others"
            }
            Self::Undecided => {
                "no majority of the voters had the same state. On the server whose state is right, remove this \
                 file and start it; start the others with --rejoin"
            }
            Self::Diverged => {
                "the state of this server was not that of the majority. Start the server with --rejoin: that sets \
                 its copies of the state aside, keeps the log, and fetches the state from the others"
            }
        }
    }
}

/// Most bytes of the file.
const BYTES_MAX: u64 = 64 << 10;

/// Writes to `dir` that its server must not use it any more; durable on return. `words` say why, and what to do.
///
/// # Errors
/// The file system failed: the next start may accept the directory.
pub fn mark_unusable(fs: &dyn Fs, dir: &Path, why: Unusable, words: &str) -> Result<(), FsError> {
    let temporary = format!("{}.tmp", why.file());
    write_file(fs, dir, &temporary, words.as_bytes())?;
    fs.rename(&dir.join(temporary), &dir.join(why.file()))?;
    if mutant!("rollback-mark-not-synced") {
        return Ok(());
    }
    fs.sync_dir(dir)
}

/// Why `dir` must not be used, if it is marked.
pub(crate) fn unusable(fs: &dyn Fs, dir: &Path) -> Result<Option<Unusable>, FsError> {
    for why in Unusable::ALL {
        if fs.has(dir, why.file())? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Checks that `dir` is not marked.
///
/// # Errors
/// It is: with the words that were written.
pub(crate) fn refuse_unusable(fs: &dyn Fs, dir: &Path) -> Result<(), OpenError> {
    let Some(why) = unusable(fs, dir)? else { return Ok(()) };
    let path = dir.join(why.file());
    // A file that cannot be read refuses as well, with other words.
    let words = read_file(fs, &path, BYTES_MAX).ok();
    let words = words.and_then(|bytes| String::from_utf8(bytes).ok());
    let words = words.filter(|words| !words.trim().is_empty());
    let words = words.unwrap_or_else(|| why.words().to_owned());
    Err(OpenError::RolledBack { path, words })
}
