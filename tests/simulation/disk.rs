//! A disk that forgets what was not synced.
//!
//! *Owns* the simulated file system, on which servers have handles (`disk/handles.rs`). A file is what is
//! durable plus the writes that are not synced yet; a directory likewise. *Invariants*: a power cut
//! keeps, drops or tears (at 512 bytes) every unsynced write on its own; an unsynced name may or may
//! not be there; a kill loses nothing; a sync that fails leaves its pages looking clean, so that the
//! next sync succeeds without them. After a power cut or a kill nothing more happens until
//! [`Disk::restart`].

mod handles;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lockkeeper_storage::fs::Reserved;

use super::rng::Rng;

/// What a power cut can tear.
const SECTOR: usize = 512;

/// How a server ends unexpectedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; what it wrote is in the page cache.
    Kill,
    /// The machine dies; what was not synced may be lost.
    PowerCut,
}

/// What happened to the disk, for coverage.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFigures {
    pub writes_dropped: u64,
    pub writes_torn: u64,
    pub writes_kept: u64,
    pub names_dropped: u64,
    pub sync_errors: u64,
    pub full: u64,
}

#[derive(Clone, Debug)]
enum Write {
    Data { offset: usize, bytes: Vec<u8> },
    Len(usize),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    cached: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Write>,
    /// A sync failed: `cached` and `durable` may differ for good.
    lost_pages: bool,
    /// Where writes began, ascending; a write forgets those at and behind its own beginning.
    writes: Vec<usize>,
    /// Bytes that have their blocks: less than the length of a sparse file.
    allocated: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Dir,
}

#[derive(Clone, Debug)]
enum NameOp {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl NameOp {
    fn path(&self) -> &Path {
        match self {
            Self::Add(path, _) | Self::Remove(path) | Self::Rename(_, path, _) => path,
        }
    }

    fn dir(&self) -> &Path {
        self.path().parent().expect("nothing is done to the root")
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Add(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// The state of the disk.
#[derive(Debug)]
pub struct Disk {
    rng: Rng,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    unsynced_names: Vec<NameOp>,
    locks: BTreeSet<PathBuf>,
    /// Handles of an earlier one are dead.
    epoch: u64,
    /// It has crashed and was not restarted.
    down: Option<Crash>,
    /// A crash after so many more operations.
    crash_in: Option<(u64, Crash)>,
    /// A failing sync after so many more syncs.
    sync_error_in: Option<u64>,
    capacity: usize,
    pub figures: DiskFigures,
}

/// What no power cut could take away, at some time.
#[derive(Debug)]
pub struct DiskCopy {
    names: BTreeMap<PathBuf, Node>,
    inodes: BTreeMap<u64, Inode>,
}

/// A handle on a disk.
#[derive(Clone, Debug)]
pub struct SimFs(Arc<Mutex<Disk>>);

impl SimFs {
    pub fn new(rng: Rng) -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Dir)]);
        Self(Arc::new(Mutex::new(Disk {
            rng,
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: root.clone(),
            durable_names: root,
            unsynced_names: Vec::new(),
            locks: BTreeSet::new(),
            epoch: 0,
            down: None,
            crash_in: None,
            sync_error_in: None,
            capacity: usize::MAX,
            figures: DiskFigures::default(),
        })))
    }

    /// The state itself, for whoever plays fate.
    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("nothing panics while it holds the disk")
    }

    /// A disk with only what a power cut could not take away now, as far as it is below `dir` or
    /// above it.
    pub fn durable_copy(&self, dir: &Path) -> Self {
        let copy = Self::new(Rng::new(0, 0));
        {
            let (mut to, from) = (copy.disk(), self.disk());
            for (path, node) in &from.durable_names {
                if !path.starts_with(dir) && !dir.starts_with(path) {
                    continue;
                }
                to.names.insert(path.clone(), *node);
                if let Some(number) = node.inode() {
                    let cached = from.inodes[&number].durable.clone();
                    to.inodes.insert(number, Inode { cached, ..Inode::default() });
                }
            }
            to.drop_orphans();
        }
        copy
    }
}

impl Disk {
    /// The server dies now.
    pub fn crash(&mut self, crash: Crash) {
        self.down = Some(crash);
    }

    /// The server dies at the `operations`-th next operation that changes something.
    pub fn crash_in(&mut self, operations: u64, crash: Crash) {
        self.crash_in = Some((operations, crash));
    }

    /// Somebody puts an empty disk in the place of this one.
    pub fn wipe(&mut self) {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Dir)]);
        self.inodes.clear();
        self.names = root.clone();
        self.durable_names = root;
        self.unsynced_names.clear();
    }

    /// A copy of what is durable now.
    pub fn copy(&self) -> DiskCopy {
        let mut inodes = BTreeMap::new();
        for number in self.durable_names.values().filter_map(Node::inode) {
            let Some(inode) = self.inodes.get(&number) else { continue };
            let durable = inode.durable.clone();
            let (cached, allocated) = (durable.clone(), durable.len());
            let writes = inode.writes.clone();
            inodes.insert(number, Inode { cached, durable, writes, allocated, ..Inode::default() });
        }
        DiskCopy { names: self.durable_names.clone(), inodes }
    }

    /// Somebody puts a copy in the place of everything that is here.
    pub fn put_copy(&mut self, copy: DiskCopy) {
        self.inodes = copy.inodes;
        self.durable_names.clone_from(&copy.names);
        self.names = copy.names;
        self.unsynced_names.clear();
        self.drop_orphans();
    }

    /// Whether, and how, the server has died.
    pub fn down(&self) -> Option<Crash> {
        self.down
    }

    /// The `syncs`-th next sync fails.
    pub fn sync_error_in(&mut self, syncs: u64) {
        self.sync_error_in = Some(syncs);
    }

    /// No more than `room` bytes can be written from now on; `None` takes the limit away.
    pub fn limit_room(&mut self, room: Option<usize>) {
        self.capacity = room.map_or(usize::MAX, |room| self.used() + room);
    }

    /// Forgets all faults that were ordered and did not happen yet.
    pub fn disarm(&mut self) {
        self.crash_in = None;
        self.sync_error_in = None;
        self.capacity = usize::MAX;
    }

    /// Begins anew after a crash, with what is left.
    pub fn restart(&mut self) {
        self.epoch += 1;
        self.locks.clear();
        self.crash_in = None;
        match self.down.take() {
            None | Some(Crash::Kill) => {}
            Some(Crash::PowerCut) => self.lose_power(),
        }
    }

    fn lose_power(&mut self) {
        let Self { rng, inodes, figures, .. } = self;
        for inode in inodes.values_mut() {
            for write in std::mem::take(&mut inode.unsynced) {
                inode.keep_or_lose(&write, rng, figures);
            }
            inode.cached.clone_from(&inode.durable);
            inode.allocated = inode.cached.len();
            inode.lost_pages = false;
        }
        let ops = std::mem::take(&mut self.unsynced_names);
        // A journal keeps a prefix; other file systems promise nothing.
        let is_journal = self.rng.chance(500);
        let prefix = self.rng.index(ops.len() + 1);
        for (at, op) in ops.iter().enumerate() {
            let kept = if is_journal { at < prefix } else { self.rng.chance(500) };
            if kept {
                op.apply(&mut self.durable_names);
            } else {
                self.figures.names_dropped += 1;
            }
        }
        self.names.clone_from(&self.durable_names);
        self.drop_orphans();
    }

    /// Removes what lies in a directory that is not there.
    fn drop_orphans(&mut self) {
        for path in self.names.keys().cloned().collect::<Vec<_>>() {
            let is_there = path.parent().is_none_or(|dir| self.names.contains_key(dir));
            if !is_there {
                self.names.remove(&path);
                self.durable_names.remove(&path);
            }
        }
        let used: BTreeSet<u64> = self.names.values().filter_map(Node::inode).collect();
        self.inodes.retain(|number, _| used.contains(number));
    }

    /// What a power cut could take away of the files below `dir` whose names end with `suffix`.
    pub fn unsynced(&mut self, dir: &Path, suffix: &str) -> Option<String> {
        let is_meant =
            |path: &Path| path.starts_with(dir) && path.to_string_lossy().ends_with(suffix);
        for op in &self.unsynced_names {
            if is_meant(op.path()) && !matches!(op, NameOp::Remove(_)) {
                return Some(format!("the name {}", op.path().display()));
            }
        }
        for (path, node) in &self.names {
            let Some(number) = node.inode().filter(|_| is_meant(path)) else { continue };
            let inode = self.inodes.get_mut(&number).expect("a name has an inode");
            if let Some(write) = inode.unsynced.last() {
                return Some(format!("a write to {}: {}", path.display(), write.summary()));
            }
            if inode.lost_pages {
                if inode.cached != inode.durable {
                    return Some(format!("pages of {} that a failed sync lost", path.display()));
                }
                inode.lost_pages = false;
            }
        }
        None
    }

    /// The files below `dir` whose names end with `suffix`, their lengths, and where the write
    /// before the last one to each began.
    pub fn files(&self, dir: &Path, suffix: &str) -> Vec<(PathBuf, usize, usize)> {
        let mut files = Vec::new();
        for (path, node) in self.names.range(dir.to_owned()..) {
            let meant = path.starts_with(dir) && path.to_string_lossy().ends_with(suffix);
            if let Some(number) = node.inode().filter(|_| meant) {
                let inode = &self.inodes[&number];
                let before_last = inode.writes.iter().rev().nth(1).copied().unwrap_or(0);
                files.push((path.clone(), inode.cached.len(), before_last));
            }
        }
        files
    }

    /// The files in `dir` whose names end with `suffix` and could not be taken away by a power cut.
    pub fn durable_names(&self, dir: &Path, suffix: &str) -> Vec<PathBuf> {
        let below = self.durable_names.range(dir.to_owned()..);
        let files = below.filter(|(path, node)| path.starts_with(dir) && node.inode().is_some());
        let meant = files.filter(|(path, _)| path.to_string_lossy().ends_with(suffix));
        meant.map(|(path, _)| path.clone()).collect()
    }

    /// The contents of a file.
    pub fn contents(&self, path: &Path) -> Vec<u8> {
        match self.names.get(path).and_then(Node::inode) {
            Some(number) => self.inodes[&number].cached.clone(),
            None => Vec::new(),
        }
    }

    /// Puts a file there, durably: somebody restores it from a copy, and syncs its directory. So a
    /// name that the server gave it before cannot take it away later.
    pub fn put_back(&mut self, path: &Path, contents: &[u8]) {
        let number = self.next_inode;
        self.next_inode += 1;
        let (cached, durable) = (contents.to_vec(), contents.to_vec());
        let inode = Inode { allocated: cached.len(), cached, durable, ..Inode::default() };
        self.inodes.insert(number, inode);
        self.settle_names(path.parent().expect("a file is in a directory"));
        for names in [&mut self.names, &mut self.durable_names] {
            names.insert(path.to_owned(), Node::File(number));
        }
    }

    /// Turns one bit over, as if it had always been so; twice is not at all.
    pub fn flip(&mut self, path: &Path, offset: usize, bit: u8) {
        let Some(Node::File(number)) = self.names.get(path) else { return };
        let inode = self.inodes.get_mut(number).expect("a name has an inode");
        for bytes in [&mut inode.cached, &mut inode.durable] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// How much all that it knows of takes, also what is not synced.
    pub fn bytes(&self) -> usize {
        let of_write = |write: &Write| match write {
            Write::Data { bytes, .. } => bytes.len(),
            Write::Len(_) => 0,
        };
        let of_inode = |inode: &Inode| {
            let unsynced: usize = inode.unsynced.iter().map(of_write).sum();
            inode.cached.len() + inode.durable.len() + unsynced
        };
        self.inodes.values().map(of_inode).sum()
    }

    fn used(&self) -> usize {
        let inodes = self.names.values().filter_map(Node::inode);
        inodes.map(|number| self.inodes[&number].allocated).sum()
    }

    fn is_alive(&self, epoch: u64) -> io::Result<()> {
        if self.down.is_some() || self.epoch != epoch {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(())
    }

    /// An operation that changes something was begun: does the machine survive it?
    fn operation(&mut self) -> io::Result<()> {
        let Some((left, crash)) = &mut self.crash_in else { return Ok(()) };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return Ok(());
        }
        let crash = *crash;
        self.crash_in = None;
        self.down = Some(crash);
        Err(io::Error::other("the machine went off"))
    }

    /// Whether this sync is the one that fails.
    fn sync_fails(&mut self) -> bool {
        let Some(left) = &mut self.sync_error_in else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.sync_error_in = None;
        self.figures.sync_errors += 1;
        true
    }

    fn change_names(&mut self, op: NameOp) -> io::Result<()> {
        op.apply(&mut self.names);
        self.unsynced_names.push(op);
        self.operation()
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Node::File(number)) => Ok(*number),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir_exists(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|dir| self.names.get(dir)) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<u64> {
        self.dir_exists(path)?;
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, Inode::default());
        self.change_names(NameOp::Add(path.to_owned(), Node::File(number)))?;
        Ok(number)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.dir_exists(to)?;
        let node = Node::File(self.file(from)?);
        self.change_names(NameOp::Rename(from.to_owned(), to.to_owned(), node))
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if !self.names.contains_key(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.operation()?;
        if self.sync_fails() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.settle_names(dir);
        Ok(())
    }

    /// The names in `dir` are durable from now on.
    fn settle_names(&mut self, dir: &Path) {
        let Self { unsynced_names, durable_names, .. } = self;
        unsynced_names.retain(|op| {
            let synced = op.dir() == dir;
            if synced {
                op.apply(durable_names);
            }
            !synced
        });
    }

    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        if self.names.get(dir) == Some(&Node::Dir) {
            return Ok(());
        }
        let parent = dir.parent().expect("the root is there");
        self.create_dir(parent)?;
        self.change_names(NameOp::Add(dir.to_owned(), Node::Dir))
    }

    fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let used = self.used();
        let inode = self.inodes.entry(number).or_default();
        let grows = (offset + bytes.len()).saturating_sub(inode.allocated);
        let room = self.capacity.saturating_sub(used);
        let fits = bytes.len() - grows.saturating_sub(room).min(bytes.len());
        inode.allocated = inode.allocated.max(offset + fits);
        inode.write(Write::Data { offset, bytes: bytes[..fits].to_vec() });
        self.operation()?;
        if fits < bytes.len() {
            self.figures.full += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn preallocate(&mut self, number: u64, len: usize) -> io::Result<Reserved> {
        let fits = self.used().saturating_add(len) <= self.capacity;
        let inode = self.inodes.entry(number).or_default();
        inode.write(Write::Len(len));
        if fits {
            inode.allocated = len;
        }
        self.operation()?;
        Ok(if fits { Reserved::Yes } else { Reserved::No })
    }

    fn sync(&mut self, number: u64) -> io::Result<()> {
        self.operation()?;
        let fails = self.sync_fails();
        let Self { rng, inodes, figures, .. } = self;
        let inode = inodes.entry(number).or_default();
        let writes = std::mem::take(&mut inode.unsynced);
        if fails {
            for write in writes {
                inode.keep_or_lose(&write, rng, figures);
            }
            inode.lost_pages = true;
            return Err(io::Error::from_raw_os_error(EIO));
        }
        for write in writes {
            write.apply(&mut inode.durable);
        }
        Ok(())
    }
}

const EIO: i32 = 5;

impl Node {
    fn inode(&self) -> Option<u64> {
        match self {
            Self::File(number) => Some(*number),
            Self::Dir => None,
        }
    }
}

impl Write {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Len(len) => bytes.resize(*len, 0),
            Self::Data { offset, bytes: data } => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
        }
    }

    fn summary(&self) -> String {
        match self {
            Self::Len(len) => format!("length {len}"),
            Self::Data { offset, bytes } => format!("{} bytes at {offset}", bytes.len()),
        }
    }
}

impl Inode {
    fn write(&mut self, write: Write) {
        if let Write::Data { offset, .. } = &write {
            while self.writes.last().is_some_and(|last| last >= offset) {
                self.writes.pop();
            }
            self.writes.push(*offset);
        }
        write.apply(&mut self.cached);
        self.unsynced.push(write);
    }

    /// A write that was not synced reaches the disk, or does not, or in part.
    fn keep_or_lose(&mut self, write: &Write, rng: &mut Rng, figures: &mut DiskFigures) {
        match rng.below(3) {
            0 => figures.writes_dropped += 1,
            1 => {
                write.apply(&mut self.durable);
                figures.writes_kept += 1;
            }
            _ => {
                self.tear(write, rng);
                figures.writes_torn += 1;
            }
        }
    }

    fn tear(&mut self, write: &Write, rng: &mut Rng) {
        let Write::Data { offset, bytes } = write else { return };
        let mut at = 0;
        while at < bytes.len() {
            let end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
            let end = end.min(bytes.len());
            if rng.chance(500) {
                let part = bytes[at..end].to_vec();
                Write::Data { offset: offset + at, bytes: part }.apply(&mut self.durable);
            }
            at = end;
        }
    }
}
