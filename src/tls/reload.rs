//! A listener's configuration that follows its files.
//!
//! *Owns* what new connections are served by. *Invariants*: what is in use could be loaded whole; files that cannot be
//! leave it as it is, until they change again or it is asked for; connections that were made keep what they were made
//! by. *Never* looks at a file by itself: the server says when.
//! Takes the place of `client.certReload` and `FileChangeWatcher`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use twox_hash::XxHash3_128;

use super::TlsError;
use super::listener::{ListenerSettings, Loaded, server_config};
use super::stores::read_file;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reloadable {
    settings: ListenerSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: Loaded,
    /// The files as they were when they were read last.
    seen: Vec<Stamp>,
    /// Why what was read last is not in use.
    failed: Option<TlsError>,
}

/// A file as it was read: by its contents, for two versions of it can have the same length and, where the clock of the
/// file system is coarse, the same time.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// A hash of its contents; `None`: it cannot be read.
    contents: Option<u128>,
}

impl Stamp {
    fn of(path: &Path) -> Self {
        let contents = read_file(path).ok().map(|bytes| XxHash3_128::oneshot(&bytes));
        Self { path: path.to_owned(), contents }
    }
}

impl Reloadable {
    /// Loads it.
    ///
    /// # Errors
    /// A file is at fault, or what is asked for is not there.
    pub(crate) fn load(settings: ListenerSettings) -> Result<Self, TlsError> {
        let seen = settings.files().map(Stamp::of).collect();
        let loaded = server_config(&settings)?;
        let state = Mutex::new(State { loaded, seen, failed: None });
        Ok(Self { settings, state })
    }

    /// What a new connection is served by.
    #[must_use]
    pub(crate) fn current(&self) -> Loaded {
        self.state().loaded.clone()
    }

    /// Why the files of today are not in use; `None`: they are.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<TlsError> {
        self.state().failed.clone()
    }

    /// Where its key is.
    #[must_use]
    pub(crate) fn key_store(&self) -> &Path {
        &self.settings.key_store.path
    }

    /// Loads it again if one of its files has changed since they were read. `None`: none has.
    pub(crate) fn follow(&self) -> Option<Result<(), TlsError>> {
        let seen: Vec<Stamp> = self.settings.files().map(Stamp::of).collect();
        if self.state().seen == seen {
            return None;
        }
        Some(self.take(seen))
    }

    /// Loads it again in any case.
    ///
    /// # Errors
    /// As [`Reloadable::load`]; what was in use stays.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        self.take(self.settings.files().map(Stamp::of).collect())
    }

    fn take(&self, seen: Vec<Stamp>) -> Result<(), TlsError> {
        let loaded = server_config(&self.settings);
        let mut state = self.state();
        state.seen = seen;
        match loaded {
            Ok(loaded) => (state.loaded, state.failed) = (loaded, None),
            Err(error) => state.failed = Some(error),
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_of_the_same_length_and_time_with_other_contents_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let write = |text: &[u8]| {
            let mut file = File::create(&path).unwrap();
            file.write_all(text).unwrap();
            file.set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH)).unwrap();
        };
        write(b"one");
        let first = Stamp::of(&path);
        assert_eq!(Stamp::of(&path), first);
        write(b"two");
        assert_ne!(Stamp::of(&path), first);
        std::fs::remove_file(&path).unwrap();
        assert_ne!(Stamp::of(&path), first);
    }
}
