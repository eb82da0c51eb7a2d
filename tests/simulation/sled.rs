//! What sled 0.34 was seen to do, as a model.
//!
//! *Owns* a state store whose contents survive a kill, and of which a power cut leaves any of what
//! was measured: everything, an older checkpoint, nothing at all without a word, a database that
//! does not open, or one whose contents are not what its mark says. *Never* seen, and never done
//! here: contents that pass their own checks but are of no moment at all.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lockkeeper::replica::Record;
use lockkeeper::storage::StateStore;
use lockkeeper::storage::state::{Contents, StateError, StateMark, Take};

use super::disk::Crash;
use super::rng::Rng;

/// How many older checkpoints a power cut can bring back.
const OLDER_MAX: usize = 3;

type Bytes = Box<[u8]>;

#[derive(Clone, Debug, Default)]
struct Database {
    mark: Option<StateMark>,
    records: BTreeMap<Bytes, Bytes>,
}

/// A moment at which the database was closed, and how to get back there from the next one.
#[derive(Debug)]
struct Checkpoint {
    mark: StateMark,
    /// What was changed since, oldest first: keys, and what they had before.
    undo: Vec<(Bytes, Option<Bytes>)>,
}

/// What was done to the database, for coverage.
#[derive(Clone, Copy, Debug, Default)]
pub struct SledFigures {
    pub broken: u64,
    pub emptied: u64,
    pub older: u64,
    pub altered: u64,
    pub errors: u64,
    pub set_aside: u64,
    pub checkpoints: u64,
}

/// The database and its fate.
#[derive(Debug)]
pub struct Sled {
    rng: Rng,
    database: Database,
    older: VecDeque<Checkpoint>,
    /// It does not open.
    broken: bool,
    /// An error at one in so many operations; 0 for never.
    error_one_in: u64,
    pub figures: SledFigures,
}

/// A handle on it.
#[derive(Clone, Debug)]
pub struct SimState(Arc<Mutex<Sled>>);

impl SimState {
    pub fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(Sled {
            rng,
            database: Database::default(),
            older: VecDeque::new(),
            broken: false,
            error_one_in: 0,
            figures: SledFigures::default(),
        })))
    }

    /// The state itself, for whoever plays fate.
    pub fn sled(&self) -> MutexGuard<'_, Sled> {
        self.0.lock().expect("nothing panics while it holds the store")
    }

    /// Begins an operation, which may fail.
    fn begin(&self) -> Result<MutexGuard<'_, Sled>, StateError> {
        let mut sled = self.sled();
        if sled.broken {
            return Err(error("it panicked: a segment has an id that cannot be"));
        }
        if sled.error_one_in > 0 {
            let one_in = sled.error_one_in;
            if sled.rng.below(one_in) == 0 {
                sled.figures.errors += 1;
                return Err(error("it panicked while it ran"));
            }
        }
        Ok(sled)
    }
}

impl Sled {
    /// One in so many operations fails; 0 for none.
    pub fn fail_one_in(&mut self, operations: u64) {
        self.error_one_in = operations;
    }

    /// It was on a disk that was emptied.
    pub fn wipe(&mut self) {
        self.database = Database::default();
        self.older.clear();
        self.broken = false;
    }

    /// The server has died.
    pub fn crashed(&mut self, crash: Crash) {
        if crash == Crash::Kill {
            return;
        }
        match self.rng.below(10) {
            0..=3 => {}
            4 | 5 => {
                self.broken = true;
                self.figures.broken += 1;
            }
            6 => {
                self.empty();
                self.figures.emptied += 1;
            }
            7 | 8 => {
                let at = self.rng.index(self.older.len().max(1));
                self.go_back(at);
            }
            _ => self.alter(),
        }
    }

    /// Changes a record. What it was.
    fn set(&mut self, key: &[u8], value: Option<Bytes>) -> Option<Bytes> {
        let records = &mut self.database.records;
        let old = match value {
            Some(value) => records.insert(key.into(), value),
            None => records.remove(key),
        };
        if let Some(checkpoint) = self.older.back_mut() {
            checkpoint.undo.push((key.into(), old.clone()));
        }
        old
    }

    fn empty(&mut self) {
        let records = std::mem::take(&mut self.database).records;
        if let Some(checkpoint) = self.older.back_mut() {
            checkpoint.undo.extend(records.into_iter().map(|(key, value)| (key, Some(value))));
        }
    }

    /// Brings back a checkpoint, if it is one.
    fn go_back(&mut self, at: usize) {
        while self.older.len() > at
            && let Some(Checkpoint { mark, undo }) = self.older.pop_back()
        {
            for (key, old) in undo.into_iter().rev() {
                match old {
                    Some(old) => drop(self.database.records.insert(key, old)),
                    None => drop(self.database.records.remove(&key)),
                }
            }
            self.database.mark = Some(mark.clone());
            if self.older.len() == at {
                self.older.push_back(Checkpoint { mark, undo: Vec::new() });
                self.figures.older += 1;
                return;
            }
        }
    }

    fn alter(&mut self) {
        let len = self.database.records.len();
        if len == 0 {
            return;
        }
        let at = self.rng.index(len);
        let key = self.database.records.keys().nth(at).expect("below the length").clone();
        if self.rng.chance(500) {
            self.set(&key, None);
        } else if let Some(mut value) = self.database.records.get(&key).cloned()
            && let Some(byte) = value.last_mut()
        {
            *byte ^= 0x40;
            self.set(&key, Some(value));
        }
        self.figures.altered += 1;
    }
}

fn error(what: &str) -> StateError {
    StateError { path: PathBuf::from(PATH), what: what.to_owned() }
}

const PATH: &str = "/data/state";

impl StateStore for SimState {
    fn path(&self) -> &Path {
        Path::new(PATH)
    }

    fn mark(&mut self) -> Result<Option<StateMark>, StateError> {
        Ok(self.begin()?.database.mark.clone())
    }

    fn set_mark(&mut self, mark: &StateMark) -> Result<(), StateError> {
        let mut sled = self.begin()?;
        sled.database.mark = Some(mark.clone());
        if matches!(mark, StateMark::Closed { .. }) {
            sled.figures.checkpoints += 1;
            sled.older.push_back(Checkpoint { mark: mark.clone(), undo: Vec::new() });
            if sled.older.len() > OLDER_MAX {
                sled.older.pop_front();
            }
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record], contents: &mut Contents) -> Result<(), StateError> {
        let mut sled = self.begin()?;
        let mut scratch = Vec::new();
        for Record { key, value } in records {
            if let Some(value) = value {
                contents.add(key, value, &mut scratch);
            }
            if let Some(old) = sled.set(key, value.clone()) {
                contents.remove(key, &old, &mut scratch);
            }
        }
        Ok(())
    }

    fn scan(&mut self, take: Take<'_>) -> Result<(), StateError> {
        let sled = self.begin()?;
        for (key, value) in &sled.database.records {
            take(key, value).map_err(|what| error(&what))?;
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), StateError> {
        self.begin()?.empty();
        Ok(())
    }

    fn set_aside(&mut self) -> Result<PathBuf, StateError> {
        let mut sled = self.sled();
        sled.broken = false;
        sled.database = Database::default();
        sled.older.clear();
        sled.figures.set_aside += 1;
        Ok(PathBuf::from("/data/state.bad"))
    }
}
