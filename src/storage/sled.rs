//! The state store on sled.
//!
//! *Owns* the directory `state/`. *Invariant*: every call into sled runs under `catch_unwind`, since
//! its corruption shows as panics. *Never* relies on sled's `flush`, which calls no fsync: what sled
//! lost in a power cut is noticed by its mark and the sum over its contents, and sled is filled again.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::state::{Contents, StateError, StateMark, StateStore, Take};
use crate::replica::Record;

/// sled's cache. It uses several times as much.
const CACHE_BYTES: u64 = 8 << 20;
/// How many stores that were set aside are kept.
const SET_ASIDE_MAX: usize = 2;
/// How long, and in which steps, a store that was just closed is waited for.
const UNLOCK_MAX: Duration = Duration::from_secs(5);
const UNLOCK_PAUSE: Duration = Duration::from_millis(10);
/// Key of the mark. Keys of records have [`RECORD`] before them, so that they sort behind it.
const MARK: &[u8] = b"m";
const RECORD: u8 = b'r';

/// sled in a directory, opened when it is first used.
pub struct SledState {
    dir: PathBuf,
    db: Option<sled::Db>,
}

impl std::fmt::Debug for SledState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledState")
            .field("dir", &self.dir)
            .field("open", &self.db.is_some())
            .finish()
    }
}

impl SledState {
    /// The store in `dir`, which need not exist.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), db: None }
    }

    /// Runs `f` on the open database, opening it first if need be. After an error the database is
    /// abandoned, not dropped: its destructor writes, and may panic or wait for ever.
    fn with<T>(&mut self, f: impl FnOnce(&sled::Db) -> Result<T, String>) -> Result<T, StateError> {
        let dir = self.dir.clone();
        let held = self.db.take().map(ManuallyDrop::new);
        let result = catch_unwind(AssertUnwindSafe(move || {
            let db = match held {
                Some(db) => db,
                None => ManuallyDrop::new(open(&dir)?),
            };
            let value = f(&db)?;
            Ok((db, value))
        }));
        match result {
            Ok(Ok((db, value))) => {
                self.db = Some(ManuallyDrop::into_inner(db));
                Ok(value)
            }
            Ok(Err(what)) => Err(self.error(what)),
            Err(panic) => {
                let what = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("unknown reason");
                Err(self.error(format!("sled panicked: {what}")))
            }
        }
    }

    fn error(&self, what: String) -> StateError {
        StateError { path: self.dir.clone(), what }
    }

    fn io(&self, what: &str, error: &std::io::Error) -> StateError {
        self.error(format!("cannot {what}: {error}"))
    }

    /// Closes the database without running into what may be wrong with it.
    fn abandon(&mut self) {
        if let Some(db) = self.db.take() {
            std::mem::forget(db);
        }
    }

    /// Where the next store that is set aside goes; the oldest ones are removed.
    fn aside(&self) -> Result<PathBuf, StateError> {
        let parent = self.dir.parent().unwrap_or(Path::new("."));
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!("{name}.bad-");
        let mut taken = Vec::new();
        let entries =
            std::fs::read_dir(parent).map_err(|e| self.io("list the directory of", &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| self.io("list the directory of", &e))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix(&prefix)?.parse::<u64>().ok());
            taken.extend(number);
        }
        taken.sort_unstable_by(|a, b| b.cmp(a));
        for old in taken.iter().skip(SET_ASIDE_MAX - 1) {
            let old = parent.join(format!("{prefix}{old}"));
            std::fs::remove_dir_all(&old).map_err(|e| self.io("remove an older copy of", &e))?;
        }
        Ok(parent.join(format!("{prefix}{}", taken.first().unwrap_or(&0) + 1)))
    }
}

impl Drop for SledState {
    /// The destructor of the database syncs its file and panics if that fails, so the disk is tried
    /// first: nothing relies on what is lost with a database that is abandoned.
    fn drop(&mut self) {
        let tried = std::fs::File::open(self.dir.join("db")).and_then(|file| file.sync_all());
        if let Err(error) = tried {
            if self.db.is_some() {
                tracing::warn!(path = %self.dir.display(), %error, "the state store is not closed");
            }
            self.abandon();
        }
    }
}

impl StateStore for SledState {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn mark(&mut self) -> Result<Option<StateMark>, StateError> {
        self.with(|db| match db.get(MARK).map_err(text)? {
            Some(bytes) => match StateMark::decode(&bytes) {
                Some(mark) => Ok(Some(mark)),
                None => Err("its mark is damaged".to_owned()),
            },
            None if db.is_empty() => Ok(None),
            None => Err("it has records but no mark".to_owned()),
        })
    }

    fn set_mark(&mut self, mark: &StateMark) -> Result<(), StateError> {
        self.with(|db| {
            db.insert(MARK, mark.encode()).map_err(text)?;
            if let StateMark::Closed { .. } = mark {
                // Not durable, but out of the process: a kill does not lose the checkpoint.
                db.flush().map_err(text)?;
            }
            Ok(())
        })
    }

    /// One record after the other: a batch of sled's takes twice the time, and its being whole is of no
    /// use between [`StateMark::Open`] and [`StateMark::Closed`].
    fn put(&mut self, records: &[Record], contents: &mut Contents) -> Result<(), StateError> {
        self.with(|db| {
            let (mut stored, mut scratch) = (vec![RECORD], Vec::new());
            for Record { key, value } in records {
                stored.truncate(1);
                stored.extend_from_slice(key);
                let old = match value {
                    Some(value) => {
                        contents.add(key, value, &mut scratch);
                        db.insert(&stored, &**value).map_err(text)?
                    }
                    None => db.remove(&stored).map_err(text)?,
                };
                if let Some(old) = old {
                    contents.remove(key, &old, &mut scratch);
                }
            }
            Ok(())
        })
    }

    fn scan(&mut self, take: Take<'_>) -> Result<(), StateError> {
        // An objection of `take` says nothing against the database.
        let path = self.dir.clone();
        self.with(|db| {
            for item in db.scan_prefix([RECORD]) {
                let (key, value) = item.map_err(text)?;
                if let Err(what) = take(&key[1..], &value) {
                    return Ok(Err(StateError { path, what }));
                }
            }
            Ok(Ok(()))
        })?
    }

    fn clear(&mut self) -> Result<(), StateError> {
        self.abandon();
        match std::fs::remove_dir_all(&self.dir) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(self.io("remove", &e)),
        }
    }

    fn set_aside(&mut self) -> Result<PathBuf, StateError> {
        self.abandon();
        let aside = self.aside()?;
        match std::fs::rename(&self.dir, &aside) {
            Ok(()) => Ok(aside),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(aside),
            Err(e) => Err(self.io("rename", &e)),
        }
    }
}

/// Opens the database in `dir`. One that this process has just dropped keeps its lock until sled's
/// own threads have let go of it; the lock of the data directory says that nobody else can hold it.
fn open(dir: &Path) -> Result<sled::Db, String> {
    remove_unfinished_snapshots(dir).map_err(|e| format!("cannot prepare it: {e}"))?;
    let give_up = Instant::now() + UNLOCK_MAX;
    loop {
        let opened =
            sled::Config::new().path(dir).cache_capacity(CACHE_BYTES).flush_every_ms(None).open();
        match opened {
            Err(sled::Error::Io(error)) if is_lock(&error) && Instant::now() < give_up => {
                std::thread::sleep(UNLOCK_PAUSE);
            }
            opened => return opened.map_err(text),
        }
    }
}

/// sled makes an error of its own of a lock that is held, which only its text tells apart.
fn is_lock(error: &std::io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Removes what sled was writing when it was killed: it would not open beside that.
fn remove_unfinished_snapshots(dir: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|n| n.starts_with("snap.") && n.ends_with(".generating")) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn text(error: sled::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Mark;

    fn record(key: &str, value: &str) -> Record {
        Record { key: key.as_bytes().into(), value: Some(value.as_bytes().into()) }
    }

    fn scanned(state: &mut SledState) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut records = Vec::new();
        state
            .scan(&mut |key, value| {
                records.push((key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
        records
    }

    /// A store of some thousand records in a closed checkpoint.
    fn filled(dir: &Path) -> (SledState, Contents) {
        let mut state = SledState::new(dir);
        let mut contents = Contents::default();
        let records: Vec<Record> =
            (0..5000).map(|i| record(&format!("/k{i:05}"), &"v".repeat(i % 200))).collect();
        state.set_mark(&StateMark::Open).unwrap();
        state.put(&records, &mut contents).unwrap();
        state.set_mark(&StateMark::Closed { mark: Mark::default(), contents }).unwrap();
        (state, contents)
    }

    #[test]
    fn records_come_back_in_order_of_their_keys_and_the_mark_is_none_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = SledState::new(&dir.path().join("state"));
        assert_eq!(state.mark().unwrap(), None);
        let mut contents = Contents::default();
        state.put(&[record("/b", "2"), record("/a", "1"), record("", "0")], &mut contents).unwrap();
        state
            .put(&[record("/a", "3"), Record { value: None, ..record("/b", "") }], &mut contents)
            .unwrap();
        state.set_mark(&StateMark::Open).unwrap();
        let expected: Vec<(Vec<u8>, Vec<u8>)> =
            vec![(b"".to_vec(), b"0".to_vec()), (b"/a".to_vec(), b"3".to_vec())];
        assert_eq!(scanned(&mut state), expected);
        let mut actual = Contents::default();
        for (key, value) in &expected {
            actual.add(key, value, &mut Vec::new());
        }
        assert_eq!(contents, actual);
    }

    #[test]
    fn a_closed_checkpoint_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let (state, contents) = filled(dir.path());
        drop(state);
        let mut state = SledState::new(dir.path());
        let closed = StateMark::Closed { mark: Mark::default(), contents };
        assert_eq!(state.mark().unwrap(), Some(closed));
        assert_eq!(scanned(&mut state).len(), 5000);
    }

    #[test]
    fn an_unfinished_snapshot_of_sled_does_not_keep_it_from_opening() {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path()));
        let left = dir.path().join("snap.0000000000000ABC.generating");
        std::fs::write(&left, b"half").unwrap();
        SledState::new(dir.path()).mark().unwrap().unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn damage_is_an_error_or_seen_in_the_contents_but_never_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        let good = dir.path().join("good");
        let (state, expected) = filled(&good);
        drop(state);
        // Opens only once sled's threads have let go, and so have written everything.
        SledState::new(&good).mark().unwrap().unwrap();
        let whole = std::fs::read(good.join("db")).unwrap();
        let used = whole.iter().rposition(|b| *b != 0).unwrap();
        for (n, at) in (0..used).step_by(used / 12).enumerate() {
            let bad = dir.path().join(format!("bad{n}"));
            std::fs::create_dir(&bad).unwrap();
            std::fs::copy(good.join("conf"), bad.join("conf")).unwrap();
            let mut bytes = whole.clone();
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(if n % 2 == 0 { 0 } else { 0xa5 });
            std::fs::write(bad.join("db"), bytes).unwrap();
            let mut state = SledState::new(&bad);
            let mut actual = Contents::default();
            let mut scratch = Vec::new();
            let found = state.mark().and_then(|mark| {
                state.scan(&mut |key, value| {
                    actual.add(key, value, &mut scratch);
                    Ok(())
                })?;
                Ok(mark)
            });
            // An older state is an honest answer: its mark says so.
            if let Ok(Some(StateMark::Closed { contents, .. })) = found {
                assert_eq!((contents, actual), (expected, expected), "offset {at}");
            }
            state.abandon();
        }
    }

    #[test]
    fn what_is_set_aside_is_kept_and_the_oldest_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = SledState::new(&dir.path().join("state"));
        for _ in 0..4 {
            state.set_mark(&StateMark::Open).unwrap();
            state.set_aside().unwrap();
            assert_eq!(state.mark().unwrap(), None, "it begins anew");
        }
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["state", "state.bad-3", "state.bad-4"]);
    }

    #[test]
    fn a_cleared_store_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (mut state, _) = filled(&dir.path().join("state"));
        state.clear().unwrap();
        assert_eq!(state.mark().unwrap(), None);
        assert!(scanned(&mut state).is_empty());
    }

    #[test]
    fn an_objection_while_scanning_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut state, _) = filled(dir.path());
        let error = state.scan(&mut |_, _| Err("no".to_owned())).unwrap_err();
        assert_eq!(error.what, "no");
        assert_eq!(scanned(&mut state).len(), 5000, "the store is as good as before");
    }
}
