//! The copy of the state, as sorted runs in a state store.
//!
//! *Owns* the store. What changed is collected, sorted and written as a run (`copy/run.rs`), which nothing
//! refers to until its checkpoint is complete; then the manifest (`copy/manifest.rs`) names it, and when
//! there are many runs, or much in them is void, some are merged into one (`copy/compaction.rs`); all of them
//! best when they are read for an image. So a change costs a part of a large write at the end of a file,
//! whatever else is stored.
//!
//! *Invariants*: what the manifest names was written before it and is not touched while it is named,
//! so whenever the process is killed, the last complete checkpoint is there; runs that no manifest
//! names are removed. *Never* gives anything for the state of its mark that is not: a scan checks every
//! byte and the number of records.

use std::path::{Path, PathBuf};

use super::compaction::{first_to_merge, is_worth_a_copy, merge, scan};
use super::manifest::{Found, Manifest};
use super::memtable::Collected;
use super::run::{Run, RunWriter};
use super::store::{StateError, StateStore, Take};
use crate::formats::Formats;
use crate::throttle::WorkBudget;
use lockkeeper_core::replica::{Mark, Records};

/// How many times what the runs come to there must be room for, before they are read for an image and
/// written as one besides: the image needs once, what is written up to twice.
const COPY_ROOM_TIMES: u64 = 3;

/// A state store, and what this process knows of it.
#[derive(Debug)]
pub struct Runs {
    store: Box<dyn StateStore>,
    /// The last complete checkpoint.
    manifest: Option<Manifest>,
    /// Runs of the next one, oldest first.
    unclosed: Vec<Run>,
    collected: Collected,
    /// Number of the next run.
    next: u64,
    work_budget: WorkBudget,
    formats: Formats,
}

impl Runs {
    /// Nothing is known of `store` yet: see `Runs::open`.
    #[must_use]
    pub fn new(store: Box<dyn StateStore>) -> Self {
        Self {
            formats: Formats::default(),
            store,
            manifest: None,
            unclosed: Vec::new(),
            collected: Collected::default(),
            next: 1,
            work_budget: WorkBudget::default(),
        }
    }

    /// From now on its work asks this how much of a core it may take.
    pub(crate) fn ask(&mut self, work_budget: &WorkBudget) {
        self.work_budget = work_budget.clone();
    }

    /// Where they are, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// Looks at what the store says it has, and removes what no checkpoint needs. What it has is
    /// proved by [`Runs::scan`] only.
    ///
    /// # Errors
    /// The store fails, its manifest is damaged, or it was written by a later version.
    pub(crate) fn open(&mut self) -> Result<Found, StateError> {
        let found = Manifest::read(&mut *self.store)?;
        if let Found::State(manifest) = &found {
            self.next = manifest.ids().max().map_or(1, |id| id + 1);
            self.manifest = Some(manifest.clone());
        }
        if found != Found::Earlier {
            self.remove_unnamed()?;
        }
        Ok(found)
    }

    /// The state of the last complete checkpoint, if there is one.
    #[must_use]
    pub fn mark(&self) -> Option<&Mark> {
        self.manifest.as_ref().map(|manifest| &manifest.mark)
    }

    /// Takes records of the next checkpoint.
    ///
    /// # Errors
    /// The store fails.
    pub fn put(&mut self, records: &Records) -> Result<(), StateError> {
        let bytes_max = self.store.collected_bytes_max();
        for record in records.iter() {
            self.collected.push(record);
            if self.collected.bytes() >= bytes_max {
                self.write_collected()?;
                if let Some(first) = first_to_merge(&self.unclosed, false) {
                    let newer = self.unclosed.split_off(first);
                    let merged = self.merged(&newer, false)?;
                    self.unclosed.extend(merged);
                    self.remove_unnamed()?;
                }
            }
        }
        Ok(())
    }

    fn write_collected(&mut self) -> Result<(), StateError> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let mut writer = RunWriter::new(self.next);
        self.next += 1;
        let store = &mut *self.store;
        self.collected.take(&self.work_budget, |record| writer.record(store, record))?;
        self.unclosed.push(writer.finish(store)?);
        Ok(())
    }

    /// Completes a checkpoint: with the records that were put since the last one, the store has the
    /// state of `mark`.
    ///
    /// # Errors
    /// The store fails, or shows that it has not.
    pub fn close(&mut self, mark: Mark) -> Result<(), StateError> {
        self.write_collected()?;
        // The next one may come later, or be small.
        self.collected = Collected::default();
        let mut runs = self.manifest.take().map(|manifest| manifest.runs).unwrap_or_default();
        runs.append(&mut self.unclosed);
        let mut manifest = Manifest { mark, runs };
        self.store.set_manifest(&self.encoded(&manifest))?;
        while let Some(first) = first_to_merge(&manifest.runs, true) {
            let merged = self.merged(&manifest.runs[first..], first == 0)?;
            if first == 0 {
                let records = merged.as_ref().map_or(0, |run| run.records);
                manifest.check_records(self.store.path(), records)?;
            }
            manifest.runs.truncate(first);
            manifest.runs.extend(merged);
            self.store.set_manifest(&self.encoded(&manifest))?;
            let named: Vec<u64> = manifest.ids().collect();
            self.store.retain_runs(&named, &self.work_budget)?;
        }
        self.manifest = Some(manifest);
        Ok(())
    }

    fn encoded(&self, manifest: &Manifest) -> Vec<u8> {
        manifest.encode(self.formats.numbers().manifest)
    }

    /// Several runs as a new one; none if nothing is left of them.
    fn merged(&mut self, runs: &[Run], is_lowest: bool) -> Result<Option<Run>, StateError> {
        let id = self.next;
        self.next += 1;
        let run = merge(&mut *self.store, runs, id, is_lowest, &self.work_budget)?;
        Ok((run.records > 0).then_some(run))
    }

    /// Removes the runs of checkpoints that were not completed, those that were merged, and what was to
    /// become one.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) fn remove_unnamed(&mut self) -> Result<(), StateError> {
        let named = self.manifest.iter().flat_map(Manifest::ids);
        let named: Vec<u64> = named.chain(self.unclosed.iter().map(|run| run.id)).collect();
        self.store.retain_runs(&named, &self.work_budget)
    }

    /// Gives all records of the last complete checkpoint to `take` in ascending order of keys. If
    /// that succeeds, they are exactly what was put there, and as many as its state has.
    ///
    /// # Errors
    /// There is none, it is not what was put there, it cannot be read, or `take` objects.
    pub fn scan(&mut self, take: Take<'_>) -> Result<(), StateError> {
        let manifest = self.manifest.as_ref().ok_or_else(|| no_checkpoint(&*self.store))?;
        scan(&mut *self.store, manifest, None, &self.work_budget, take)
    }

    /// As [`Runs::scan`]; and if the newer runs have come to a good part of the lowest, and there is room
    /// enough, all of them are one afterwards.
    ///
    /// # Errors
    /// As [`Runs::scan`], or the store cannot be written. If it was `take` that objected, the state is what
    /// it was, and [`Runs::remove_unnamed`] gives back the room that was taken so far.
    pub(crate) fn scan_and_merge(&mut self, take: Take<'_>) -> Result<(), StateError> {
        let manifest = self.manifest.as_ref().ok_or_else(|| no_checkpoint(&*self.store))?;
        let bytes: u64 = manifest.runs.iter().map(|run| run.bytes).sum();
        let has_room = self.store.room() / COPY_ROOM_TIMES >= bytes;
        if !has_room || !is_worth_a_copy(&manifest.runs) {
            return self.scan(take);
        }
        let mut copy = RunWriter::new(self.next);
        self.next += 1;
        scan(&mut *self.store, manifest, Some(&mut copy), &self.work_budget, take)?;
        let run = copy.finish(&mut *self.store)?;
        let runs = Vec::from_iter((run.records > 0).then_some(run));
        let manifest = Manifest { mark: manifest.mark.clone(), runs };
        self.store.set_manifest(&self.encoded(&manifest))?;
        self.manifest = Some(manifest);
        self.remove_unnamed()
    }

    /// The same; manifests are written as `formats` says.
    #[must_use]
    pub(crate) fn writing(self, formats: &Formats) -> Self {
        Self { formats: formats.clone(), ..self }
    }

    fn forget(&mut self) {
        self.manifest = None;
        self.unclosed.clear();
        self.collected = Collected::default();
        self.next = 1;
    }

    /// Begins anew with nothing stored.
    ///
    /// # Errors
    /// What is stored cannot be removed.
    pub fn clear(&mut self) -> Result<(), StateError> {
        self.forget();
        self.store.clear()
    }

    /// Keeps what is stored elsewhere for inspection, then begins anew with nothing stored. Returns
    /// where it was put.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn set_aside(&mut self) -> Result<PathBuf, StateError> {
        self.forget();
        self.store.set_aside()
    }

    /// Begins anew with nothing stored, in another store.
    pub(crate) fn replace(&mut self, store: Box<dyn StateStore>) {
        self.forget();
        self.store = store;
    }
}

fn no_checkpoint(store: &dyn StateStore) -> StateError {
    StateError::new(store.path(), "it has no complete checkpoint")
}
