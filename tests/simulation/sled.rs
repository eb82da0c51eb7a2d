//! What sled 0.34 was seen to do, as a model.
//!
//! *Owns* a state store whose contents survive a kill, and of which a power cut leaves any of what
//! was measured: everything, an older checkpoint, nothing at all without a word, a database that
//! does not open, or one whose blocks are not what its manifest says: one is gone, damaged, or of
//! another place. *Never* seen, and never done here: contents that pass their own checks but are of
//! no moment at all.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lockkeeper_storage::{StateError, StateStore, WorkBudget};

use super::disk::Crash;
use super::rng::Rng;

/// How many older checkpoints a power cut can bring back.
const OLDER_MAX: usize = 3;

type Bytes = Box<[u8]>;
/// Which run a block is of, and its number.
type Place = (u64, u32);

#[derive(Clone, Debug, Default)]
struct Database {
    manifest: Option<Vec<u8>>,
    blocks: BTreeMap<Place, Bytes>,
}

/// A moment at which the manifest was set, and how to get back there from the next one.
#[derive(Debug)]
struct Checkpoint {
    manifest: Vec<u8>,
    /// What was changed since, oldest first: places, and what was there before.
    undo: Vec<(Place, Option<Bytes>)>,
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
    /// How many bytes are collected before something is written there.
    collects: usize,
    /// It does not open.
    broken: bool,
    /// An error at one in so many operations; 0 for never.
    error_one_in: u64,
    pub figures: SledFigures,
}

/// A copy, and whether it opens.
#[derive(Debug)]
pub struct SledCopy(Database, bool);

/// A handle on it.
#[derive(Clone, Debug)]
pub struct SimState(Arc<Mutex<Sled>>);

impl SimState {
    pub fn new(mut rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(Sled {
            collects: *rng.pick(&[400, 5000, 1 << 20]),
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

    /// A copy of it.
    pub fn copy(&self) -> SledCopy {
        SledCopy(self.database.clone(), self.broken)
    }

    /// The copy is there instead.
    pub fn put_copy(&mut self, SledCopy(database, broken): SledCopy) {
        (self.database, self.broken) = (database, broken);
        self.older.clear();
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

    /// Changes a block.
    fn set(&mut self, place: Place, bytes: Option<Bytes>) {
        let blocks = &mut self.database.blocks;
        let old = match bytes {
            Some(bytes) => blocks.insert(place, bytes),
            None => blocks.remove(&place),
        };
        if let Some(checkpoint) = self.older.back_mut() {
            checkpoint.undo.push((place, old));
        }
    }

    fn empty(&mut self) {
        let blocks = std::mem::take(&mut self.database).blocks;
        if let Some(checkpoint) = self.older.back_mut() {
            checkpoint.undo.extend(blocks.into_iter().map(|(place, bytes)| (place, Some(bytes))));
        }
    }

    /// Brings back a checkpoint, if it is one.
    fn go_back(&mut self, at: usize) {
        while self.older.len() > at
            && let Some(Checkpoint { manifest, undo }) = self.older.pop_back()
        {
            for (place, old) in undo.into_iter().rev() {
                match old {
                    Some(old) => drop(self.database.blocks.insert(place, old)),
                    None => drop(self.database.blocks.remove(&place)),
                }
            }
            self.database.manifest = Some(manifest.clone());
            if self.older.len() == at {
                self.older.push_back(Checkpoint { manifest, undo: Vec::new() });
                self.figures.older += 1;
                return;
            }
        }
    }

    /// Loses a block, damages it, or puts another one in its place.
    fn alter(&mut self) {
        let len = self.database.blocks.len();
        if len == 0 {
            return;
        }
        let mut places = self.database.blocks.keys().copied();
        let place = places.nth(self.rng.index(len)).expect("below the length");
        let mut bytes = self.database.blocks[&place].clone();
        match self.rng.below(3) {
            0 => self.set(place, None),
            1 => {
                let at = self.rng.index(bytes.len());
                bytes[at] ^= 0x40;
                self.set(place, Some(bytes));
            }
            _ => {
                let mut others = self.database.blocks.values();
                let other = others.nth(self.rng.index(len)).expect("below the length").clone();
                self.set(place, Some(other));
            }
        }
        self.figures.altered += 1;
    }
}

fn error(what: &str) -> StateError {
    StateError::new(Path::new(PATH), what)
}

const PATH: &str = "/data/state";

impl StateStore for SimState {
    fn path(&self) -> &Path {
        Path::new(PATH)
    }

    fn collected_bytes_max(&self) -> usize {
        self.sled().collects
    }

    fn manifest(&mut self) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.begin()?.database.manifest.clone())
    }

    fn set_manifest(&mut self, manifest: &[u8]) -> Result<(), StateError> {
        let mut sled = self.begin()?;
        sled.database.manifest = Some(manifest.to_vec());
        sled.figures.checkpoints += 1;
        sled.older.push_back(Checkpoint { manifest: manifest.to_vec(), undo: Vec::new() });
        if sled.older.len() > OLDER_MAX {
            sled.older.pop_front();
        }
        Ok(())
    }

    fn put_block(&mut self, run: u64, number: u32, bytes: &[u8]) -> Result<(), StateError> {
        self.begin()?.set((run, number), Some(bytes.into()));
        Ok(())
    }

    fn read_block(&mut self, run: u64, number: u32, out: &mut Vec<u8>) -> Result<bool, StateError> {
        let sled = self.begin()?;
        let block = sled.database.blocks.get(&(run, number));
        out.extend_from_slice(block.map_or(&[], |block| block));
        Ok(block.is_some())
    }

    fn retain_runs(&mut self, runs: &[u64], _: &WorkBudget) -> Result<(), StateError> {
        let mut sled = self.begin()?;
        let places: Vec<Place> =
            sled.database.blocks.keys().copied().filter(|(run, _)| !runs.contains(run)).collect();
        for place in places {
            sled.set(place, None);
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
