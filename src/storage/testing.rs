//! A disk in memory that fails on demand and forgets what was not synced, and a small machine to
//! store: for the tests of this module.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::copy::{Found, Manifest, MemoryState, StateError, StateStore};
use super::fs::{DiskFile, FileLock, Fs, FsError, Reserved};
use super::throttle::WorkBudget;
use crate::rng::Rng;
use lockkeeper_core::replica::{
    Append, Entry, EntryKind, HardState, Mark, Membership, Record, RecordDigest, Records, Restore,
    Urgency,
};

const SECTOR: usize = 512;

/// What happens to a change of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The power goes: this and everything after it fails, a write may have happened in part.
    Crash,
    /// Only this one fails.
    Error(io::ErrorKind),
}

/// What becomes of changes that were not synced when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    Lost,
    Kept,
    /// Any sector and any name, each by itself.
    Torn(u64),
}

pub(super) const UNSYNCED: [Unsynced; 5] =
    [Unsynced::Lost, Unsynced::Kept, Unsynced::Torn(1), Unsynced::Torn(2), Unsynced::Torn(3)];

#[derive(Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// What was written and not synced: a sync that fails forgets it, and the next one succeeds
    /// without it, as on Linux.
    dirty: Vec<std::ops::Range<usize>>,
}

/// A change of names: one that is taken away, one that is there. A file that gets another name
/// never has none, whenever the power goes.
#[derive(Clone, Debug)]
struct NameChange {
    gone: Option<PathBuf>,
    there: Option<(PathBuf, usize)>,
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        if let Some(path) = &self.gone {
            names.remove(path);
        }
        if let Some((path, inode)) = &self.there {
            names.insert(path.clone(), *inode);
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        let path = self.there.as_ref().map(|(path, _)| path).or(self.gone.as_ref());
        path.and_then(|path| path.parent()) == Some(dir)
    }
}

#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// What leads from the durable names to the current ones.
    name_changes: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    changes: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    crashed: bool,
}

impl Disk {
    fn change_name(&mut self, gone: Option<&Path>, there: Option<(&Path, usize)>) {
        let there = there.map(|(path, inode)| (path.to_owned(), inode));
        let change = NameChange { gone: gone.map(Path::to_owned), there };
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

/// The disk.
#[derive(Clone, Debug, Default)]
pub(super) struct TestFs(Arc<Mutex<Disk>>);

impl TestFs {
    /// The `n`th change from now on, from 1, meets `fault`.
    pub(super) fn fail_at(&self, n: u64, fault: Fault) {
        let mut disk = self.0.lock().unwrap();
        disk.fault = Some((disk.changes + n, fault));
    }

    /// The power goes and comes back.
    pub(super) fn crash(&self, unsynced: Unsynced) {
        let mut disk = self.0.lock().unwrap();
        let Disk { inodes, names, durable_names, name_changes, .. } = &mut *disk;
        let mut rng = match unsynced {
            Unsynced::Lost | Unsynced::Kept => None,
            Unsynced::Torn(seed) => Some(Rng::new(seed, 0)),
        };
        let mut keep = || match &mut rng {
            None => unsynced == Unsynced::Kept,
            Some(rng) => rng.below(2) == 0,
        };
        for change in name_changes.drain(..) {
            if keep() {
                change.apply(durable_names);
            }
        }
        names.clone_from(durable_names);
        for inode in inodes {
            if inode.current.len() != inode.durable.len() && keep() {
                inode.durable.resize(inode.current.len(), 0);
            }
            for (i, sector) in inode.durable.chunks_mut(SECTOR).enumerate() {
                let from = inode.current.get(i * SECTOR..).unwrap_or_default();
                let len = sector.len().min(from.len());
                if sector[..len] != from[..len] && keep() {
                    sector[..len].copy_from_slice(&from[..len]);
                }
            }
            inode.current = inode.durable.clone();
            inode.dirty.clear();
        }
        disk.locked.clear();
        disk.fault = None;
        disk.crashed = false;
    }

    /// How often something was synced.
    pub(super) fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }

    /// How many changes were tried.
    pub(super) fn changes(&self) -> u64 {
        self.0.lock().unwrap().changes
    }

    pub(super) fn contents(&self, path: &Path) -> Vec<u8> {
        let disk = self.0.lock().unwrap();
        disk.inodes[disk.names[path]].current.clone()
    }

    /// Puts other contents there, durably, behind everyone's back.
    pub(super) fn plant(&self, path: &Path, contents: Vec<u8>) {
        let mut disk = self.0.lock().unwrap();
        let inode = Inode { durable: contents.clone(), current: contents, dirty: Vec::new() };
        match disk.names.get(path).copied() {
            Some(at) => disk.inodes[at] = inode,
            None => {
                disk.inodes.push(inode);
                let at = disk.inodes.len() - 1;
                disk.names.insert(path.to_owned(), at);
                disk.durable_names.insert(path.to_owned(), at);
            }
        }
    }

    /// Every file and its contents.
    pub(super) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let disk = self.0.lock().unwrap();
        disk.names.iter().map(|(p, i)| (p.clone(), disk.inodes[*i].current.clone())).collect()
    }

    /// A disk with the same files, all durable.
    pub(super) fn copy(&self) -> Self {
        let copy = Self::default();
        for (path, contents) in self.files() {
            copy.plant(&path, contents);
        }
        copy.0.lock().unwrap().dirs = self.0.lock().unwrap().dirs.clone();
        copy
    }

    /// A disk in exactly the same state, durable or not.
    pub(super) fn twin(&self) -> Self {
        let disk = self.0.lock().unwrap();
        let inodes = disk.inodes.iter();
        let inodes = inodes
            .map(|i| Inode {
                durable: i.durable.clone(),
                current: i.current.clone(),
                dirty: i.dirty.clone(),
            })
            .collect();
        Self(Arc::new(Mutex::new(Disk {
            inodes,
            names: disk.names.clone(),
            durable_names: disk.durable_names.clone(),
            name_changes: disk.name_changes.clone(),
            dirs: disk.dirs.clone(),
            ..Disk::default()
        })))
    }

    /// Counts a change; says whether it fails, and if so whether a write happens in part.
    fn change(&self, path: &Path, operation: &'static str) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        disk.changes += 1;
        if disk.crashed {
            return Err(FsError::new(path, operation, io::Error::other("crashed")));
        }
        match disk.fault {
            Some((at, fault)) if at == disk.changes => {
                let kind = match fault {
                    Fault::Crash => io::ErrorKind::Other,
                    Fault::Error(kind) => kind,
                };
                disk.crashed = fault == Fault::Crash;
                Err(FsError::new(path, operation, kind.into()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn find(&self, path: &Path, operation: &'static str) -> Result<usize, FsError> {
        let found = self.0.lock().unwrap().names.get(path).copied();
        found.ok_or_else(|| FsError::new(path, operation, io::ErrorKind::NotFound.into()))
    }

    fn file(&self, path: &Path, inode: usize) -> Box<dyn DiskFile> {
        Box::new(TestFile { fs: self.clone(), path: path.to_owned(), inode })
    }
}

impl Fs for TestFs {
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let inode = self.find(path, "open")?;
        Ok(self.file(path, inode))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        self.change(path, "create")?;
        let mut disk = self.0.lock().unwrap();
        if disk.names.contains_key(path) {
            return Err(FsError::new(path, "create", io::ErrorKind::AlreadyExists.into()));
        }
        disk.inodes.push(Inode::default());
        let inode = disk.inodes.len() - 1;
        disk.change_name(None, Some((path, inode)));
        drop(disk);
        Ok(self.file(path, inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.change(from, "rename")?;
        let inode = self.find(from, "rename")?;
        self.0.lock().unwrap().change_name(Some(from), Some((to, inode)));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), FsError> {
        self.change(path, "remove")?;
        self.find(path, "remove")?;
        self.0.lock().unwrap().change_name(Some(path), None);
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError> {
        let disk = self.0.lock().unwrap();
        let below = disk.names.keys().chain(&disk.dirs).filter(|p| p.parent() == Some(dir));
        let names: BTreeSet<String> =
            below.map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, dir: &Path) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        disk.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FsError> {
        self.change(dir, "sync directory")?;
        let mut disk = self.0.lock().unwrap();
        disk.syncs += 1;
        let Disk { names, durable_names, name_changes, .. } = &mut *disk;
        name_changes.retain(|change| !change.is_in(dir));
        durable_names.retain(|p, _| p.parent() != Some(dir));
        let below = names.iter().filter(|(p, _)| p.parent() == Some(dir));
        durable_names.extend(below.map(|(p, i)| (p.clone(), *i)));
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FsError> {
        let mut disk = self.0.lock().unwrap();
        if !disk.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        if !disk.names.contains_key(path) {
            disk.inodes.push(Inode::default());
            let inode = disk.inodes.len() - 1;
            disk.change_name(None, Some((path, inode)));
        }
        drop(disk);
        Ok(Some(Box::new(TestLock { fs: self.clone(), path: path.to_owned() })))
    }
}

#[derive(Debug)]
struct TestLock {
    fs: TestFs,
    path: PathBuf,
}

impl FileLock for TestLock {}

impl Drop for TestLock {
    fn drop(&mut self) {
        self.fs.0.lock().unwrap().locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct TestFile {
    fs: TestFs,
    path: PathBuf,
    inode: usize,
}

impl DiskFile for TestFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        let disk = self.fs.0.lock().unwrap();
        let bytes = disk.inodes[self.inode].current.get(offset as usize..).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), FsError> {
        let failed = self.fs.change(&self.path, "write");
        let mut disk = self.fs.0.lock().unwrap();
        let Inode { current, dirty, .. } = &mut disk.inodes[self.inode];
        // A write that fails has happened in part.
        let bytes = if failed.is_err() { &bytes[..bytes.len() / 2] } else { bytes };
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        if current.len() < end {
            current.resize(end, 0);
        }
        current[begin..end].copy_from_slice(bytes);
        dirty.push(begin..end);
        failed
    }

    fn len(&self) -> Result<u64, FsError> {
        Ok(self.fs.0.lock().unwrap().inodes[self.inode].current.len() as u64)
    }

    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError> {
        self.fs.change(&self.path, "reserve space for")?;
        self.fs.0.lock().unwrap().inodes[self.inode].current.resize(len as usize, 0);
        Ok(Reserved::Yes)
    }

    fn sync(&mut self) -> Result<(), FsError> {
        let failed = self.fs.change(&self.path, "sync");
        let mut disk = self.fs.0.lock().unwrap();
        let Inode { current, durable, dirty } = &mut disk.inodes[self.inode];
        let dirty = std::mem::take(dirty);
        failed?;
        durable.resize(current.len(), 0);
        for range in dirty {
            durable[range.clone()].copy_from_slice(&current[range]);
        }
        disk.syncs += 1;
        Ok(())
    }
}

/// A state store that outlives the process, and fails on demand.
#[derive(Clone, Debug, Default)]
pub(super) struct TestState {
    pub(super) kept: Arc<Mutex<MemoryState>>,
    /// Calls that still succeed, once set.
    pub(super) works_for: Arc<Mutex<Option<u32>>>,
    pub(super) cannot_be_read: bool,
    /// Whether it fails because there is no room. Then it can be emptied and set aside even so.
    pub(super) is_full: bool,
    /// How often it was set aside.
    pub(super) set_aside: Arc<Mutex<u32>>,
    /// How many bytes are collected for it, if not as many as always.
    pub(super) collects: Option<usize>,
    pub(super) blocks_read: Arc<AtomicU64>,
    /// How many bytes it has room for, if that is little.
    pub(super) room: Option<u64>,
    /// Whether it failed: it must be emptied or set aside then.
    pub(super) has_failed: Arc<AtomicBool>,
}

impl TestState {
    /// Another one with the same contents, which works.
    pub(super) fn twin(&self) -> Self {
        let kept = self.kept.lock().unwrap().clone();
        Self { kept: Arc::new(Mutex::new(kept)), ..Self::default() }
    }

    /// The state of its last complete checkpoint.
    pub(super) fn mark(&self) -> Option<Mark> {
        match Manifest::read(&mut *self.kept.lock().unwrap()).unwrap() {
            Found::State(manifest) => Some(manifest.mark),
            Found::Nothing => None,
            Found::Earlier => panic!("nothing here makes one"),
        }
    }

    /// How often a block was read.
    pub(super) fn blocks_read(&self) -> u64 {
        self.blocks_read.load(Ordering::Relaxed)
    }

    /// The blocks of all runs, by run and number.
    pub(super) fn blocks(&self) -> Vec<(u64, u32)> {
        self.kept.lock().unwrap().blocks.keys().copied().collect()
    }

    /// Changes a block, or loses it, as sled may in a power cut.
    pub(super) fn alter(&self, block: (u64, u32), alter: impl FnOnce(&mut Option<Box<[u8]>>)) {
        let blocks = &mut self.kept.lock().unwrap().blocks;
        let mut bytes = blocks.remove(&block);
        alter(&mut bytes);
        if let Some(bytes) = bytes {
            blocks.insert(block, bytes);
        }
    }

    fn work(&self) -> Result<(), StateError> {
        if let Some(left) = &mut *self.works_for.lock().unwrap() {
            if *left == 0 {
                if self.has_failed.swap(true, Ordering::Relaxed) {
                    return Err(StateError::new(self.path(), "it was used after it had failed"));
                }
                let broken = StateError::new(self.path(), "broken");
                return Err(StateError { is_full: self.is_full, ..broken });
            }
            *left -= 1;
        }
        Ok(())
    }
}

impl StateStore for TestState {
    fn path(&self) -> &Path {
        Path::new("test")
    }
    fn room(&self) -> u64 {
        self.room.unwrap_or(MemoryState::default().room())
    }
    fn collected_bytes_max(&self) -> usize {
        self.collects.unwrap_or(MemoryState::default().collected_bytes_max())
    }
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, StateError> {
        self.work()?;
        self.kept.lock().unwrap().manifest()
    }
    fn set_manifest(&mut self, manifest: &[u8]) -> Result<(), StateError> {
        self.work()?;
        self.kept.lock().unwrap().set_manifest(manifest)
    }
    fn put_block(&mut self, run: u64, number: u32, bytes: &[u8]) -> Result<(), StateError> {
        self.work()?;
        self.kept.lock().unwrap().put_block(run, number, bytes)
    }
    fn read_block(&mut self, run: u64, number: u32, out: &mut Vec<u8>) -> Result<bool, StateError> {
        self.work()?;
        self.blocks_read.fetch_add(1, Ordering::Relaxed);
        if self.cannot_be_read {
            return Err(StateError::new(self.path(), "unreadable"));
        }
        self.kept.lock().unwrap().read_block(run, number, out)
    }
    fn retain_runs(&mut self, runs: &[u64], work_budget: &WorkBudget) -> Result<(), StateError> {
        self.work()?;
        self.kept.lock().unwrap().retain_runs(runs, work_budget)
    }
    fn clear(&mut self) -> Result<(), StateError> {
        if !self.is_full {
            self.work()?;
        }
        self.has_failed.store(false, Ordering::Relaxed);
        self.kept.lock().unwrap().clear()
    }
    fn set_aside(&mut self) -> Result<PathBuf, StateError> {
        if !self.is_full {
            self.work()?;
        }
        self.has_failed.store(false, Ordering::Relaxed);
        *self.set_aside.lock().unwrap() += 1;
        self.kept.lock().unwrap().set_aside()
    }
}

/// Records by key, changed by entries `key=value` and `key` (removes).
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) applied: u64,
    pub(super) term: u64,
    pub(super) dirty: BTreeSet<Vec<u8>>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records at {}", self.records.len(), self.applied)
    }
}

impl Machine {
    pub(super) fn mark(&self) -> Mark {
        let mut digest = 0_u128;
        for (key, value) in &self.records {
            digest = digest.wrapping_add(digest_of(key, value));
        }
        Mark {
            index: self.applied,
            term: self.term,
            zxid: self.applied as i64,
            digest,
            records: self.records.len() as u64,
            membership: Membership { voters: vec![1], learners: Vec::new() },
        }
    }

    /// All records that changed since the last call.
    pub(super) fn drain(&mut self) -> Records {
        let dirty = std::mem::take(&mut self.dirty);
        let value = |key| self.records.get(key).map(|value| &value[..]);
        dirty.iter().map(|key| Record { key, value: value(key) }).collect()
    }

    pub(super) fn all(&mut self) -> Records {
        self.dirty.clear();
        self.records.iter().map(|(key, value)| Record { key, value: Some(value) }).collect()
    }
}

fn digest_of(key: &[u8], value: &[u8]) -> u128 {
    let bytes = [&key.len().to_le_bytes(), key, value].concat();
    twox_hash::XxHash3_128::oneshot(&bytes)
}

impl Restore for Machine {
    fn record_digest(&self) -> RecordDigest {
        |key, value| Ok(digest_of(key, value))
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.records.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn finish(&mut self, mark: &Mark) -> Result<(), String> {
        (self.applied, self.term) = (mark.index, mark.term);
        if self.mark() == *mark { Ok(()) } else { Err("the digest disagrees".to_owned()) }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        assert_eq!(entry.index, self.applied + 1, "entries come in order");
        (self.applied, self.term) = (entry.index, entry.term);
        let text = std::str::from_utf8(&entry.data).map_err(|e| e.to_string())?;
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        match value {
            Some("poison") => return Err("poison".to_owned()),
            Some(value) => self.records.insert(key.into(), value.into()),
            None => self.records.remove(key.as_bytes()),
        };
        self.dirty.insert(key.into());
        Ok(())
    }
}

pub(super) fn entry(index: u64, term: u64, data: impl Into<String>) -> Entry {
    Entry { term, index, kind: EntryKind::Normal, data: Bytes::from(data.into()) }
}

/// A batch of entries that commits what came before them.
pub(super) fn append(entries: Vec<Entry>) -> Append {
    let commit = entries.first().map_or(0, |e| e.index - 1);
    let term = entries.last().map_or(0, |e| e.term);
    let hard_state = Some(HardState { term, vote: 1, commit });
    Append { number: 0, install: None, entries, hard_state, urgency: Urgency::High }
}
