//! What is fuzzed of the disk: files that hold anything.
//!
//! *Owns* a file system in memory, and the bodies for images, backups, logs and identities. Every file has a
//! checksum over all of it, which stops random bytes at the door; so the bodies set the checksums
//! right, if the first byte says so, and what lies behind is tried as well. The rules: nothing
//! panics; whatever is accepted reads the same a second time; a log that opens gives all its entries
//! back, takes another one, and opens again.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use lockkeeper::internals::backup::{BackupReader, BackupWriter, Header};
use lockkeeper::internals::replica::{
    Append, Entry, EntryKind, Machine, Mark, RecordDigest, Restore, Urgency,
};
use lockkeeper::internals::storage::{
    DiskFile, FileLock, Fs, FsError, Identity, Images, Log, LogOptions, LogRecovery, Position,
    Reserved,
};
use lockkeeper::internals::tree::Options;

/// The ensemble whose files these are.
pub const CLUSTER: u128 = 0x4c4b;
const DIR: &str = "/data";
/// A log is not made of more files than this.
const SEGMENTS_MAX: usize = 4;

/// The log's options: segments as small as they can be.
pub fn log_options() -> LogOptions {
    LogOptions { cluster_id: CLUSTER, node_id: 1, segment_bytes: 512, ensemble: true }
}

/// An image; the first byte says whether its checksums are set right.
pub fn image(data: &[u8]) {
    let Some((mode, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if mode & 1 != 0 {
        seal_image(&mut file);
    }
    let index = file.get(32..40).map_or(1, number);
    let fs = MemoryFs::default();
    let images = Images::new(Arc::new(fs.clone()), Path::new(DIR), CLUSTER);
    fs.plant(&images.path(index), file);
    let Ok(reader) = images.open(index) else { return };
    let mark = reader.mark().clone();
    assert_eq!(mark.index, index);
    let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let read = reader.read(&mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        Ok(())
    });
    if read.is_err() {
        return;
    }
    assert_eq!(records.len() as u64, mark.records);
    assert!(records.is_sorted_by(|a, b| a.0 < b.0));
    // It is one that could have been written.
    let mut again = images.create(&mark).expect("there is room");
    for (key, value) in &records {
        again.record(key, value).expect("the keys ascend");
    }
    again.finish().expect("it reads back what it wrote");
    let mut chunks = images.open(index).expect("it was just written");
    let mut count = 0;
    while let Some(more) = chunks.next_records().expect("it was just written") {
        count += more.count();
    }
    assert_eq!(count, records.len());
}

/// A log of some segments, each of which begins with the magic; the first byte says whether their
/// checksums are set right, and whether they are chained as well.
pub fn log(data: &[u8]) {
    let Some((mode, bytes)) = data.split_first() else { return };
    let fs = MemoryFs::default();
    let mut chain = None;
    for mut file in segments(bytes) {
        if mode & 1 != 0 {
            chain = Some(seal_segment(&mut file, chain.filter(|_| mode & 2 != 0)));
        }
        let name = file.get(40..48).map_or(1, number);
        fs.plant(&Path::new(DIR).join(format!("{name:016x}.log")), file);
    }
    let Some((mut log, found)) = open_log(&fs) else { return };
    let mut next = found.first;
    log.each(found.first, found.last.index, &mut |entry| {
        assert_eq!(entry.index, next);
        next += 1;
        ControlFlow::Continue(())
    })
    .expect("all that was found can be read");
    assert_eq!(next, found.last.index + 1);
    log.term(found.last.index).expect("it is there");
    log.begin().expect("nothing fails");
    let entry = Entry {
        term: found.hard_state.term.max(found.last.term),
        index: found.last.index + 1,
        kind: EntryKind::Normal,
        data: Bytes::from_static(b"one more"),
    };
    let append = Append {
        number: 1,
        install: None,
        entries: vec![entry.clone()],
        hard_state: Some(found.hard_state),
        urgency: Urgency::High,
    };
    log.append(&[append]).expect("a log that was opened can be continued");
    drop(log);
    let (log, again) = open_log(&fs).expect("what was written can be opened");
    let last = Position { index: entry.index, term: entry.term };
    assert_eq!(again, LogRecovery { last, torn: None, ..found });
    assert_eq!(log.read(entry.index, entry.index, 0).expect("it was appended"), [entry]);
}

/// The identity of a directory; the first byte says whether its checksum is set right.
pub fn identity(data: &[u8]) {
    let Some((mode, text)) = data.split_first() else { return };
    let mut text = text.to_vec();
    if mode & 1 != 0 {
        let end = text.windows(7).rposition(|w| w == b"crc32c ").unwrap_or(text.len());
        text.truncate(end);
        text.extend(format!("crc32c {:08x}\n", crc32c::crc32c(&text)).into_bytes());
    }
    let fs = MemoryFs::default();
    fs.plant(&Path::new(DIR).join("identity"), text);
    if let Ok(Some(identity)) = Identity::load(&fs, Path::new(DIR)) {
        identity.store(&fs, Path::new(DIR)).expect("nothing fails");
        let again = Identity::load(&fs, Path::new(DIR)).expect("it was just written");
        assert_eq!(again, Some(identity));
    }
}

/// A backup; the first byte says whether its checksums are set right.
pub fn backup(data: &[u8]) {
    let Some((mode, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if mode & 1 != 0 {
        seal_backup(&mut file);
    }
    let Ok(reader) = BackupReader::open(&file[..], record_digest()) else { return };
    let header = reader.header().clone();
    let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let read = reader.read(&mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        Ok(())
    });
    let Ok(trailer) = read else { return };
    assert_eq!(records.len() as u64, trailer.records);
    assert!(records.is_sorted_by(|a, b| a.0 < b.0));
    // It is one that could have been written.
    let mut again = BackupWriter::begin(Vec::new(), &header, record_digest()).expect("it is short");
    for (key, value) in &records {
        again.record(key, value).expect("the keys ascend");
    }
    let (again, same) = again.finish().expect("nothing fails");
    assert_eq!(same, trailer);
    let reader = BackupReader::open(&again[..], record_digest()).expect("it was just written");
    assert_eq!(reader.header(), &header);
}

fn record_digest() -> RecordDigest {
    Machine::fresh(Options::default()).record_digest()
}

/// A good backup, which the tests change.
pub fn good_backup() -> Vec<u8> {
    let header = Header { release: "0.1.0".into(), index: 7, term: 2, ..Header::default() };
    let mut writer =
        BackupWriter::begin(Vec::new(), &header, record_digest()).expect("the header is short");
    let session = [&b"s"[..], &5_i64.to_be_bytes()].concat();
    for key in [&b"/a"[..], b"/b", b"c", &session[..]] {
        // What a record holds is for who restores it.
        let _ = writer.record(key, &[0; 100]);
    }
    writer.finish().expect("nothing fails").0
}

/// A good image, which the tests change.
pub fn good_image() -> Vec<u8> {
    let fs = MemoryFs::default();
    let images = Images::new(Arc::new(fs.clone()), Path::new(DIR), CLUSTER);
    let mut mark = Mark { index: 7, term: 2, records: 3, ..Mark::default() };
    mark.membership.voters = vec![1, 2, 3];
    let mut writer = images.create(&mark).expect("there is room");
    for key in [&b"/a"[..], b"/b", b"s1"] {
        writer.record(key, b"a value").expect("the keys ascend");
    }
    writer.finish().expect("it reads back what it wrote");
    fs.contents(&images.path(7))
}

/// A good log: segments one behind the other.
pub fn good_log() -> Vec<u8> {
    let fs = MemoryFs::default();
    Log::create(&fs, Path::new(DIR), &log_options()).expect("there is room");
    let (mut log, _) = open_log(&fs).expect("it was just made");
    log.begin().expect("nothing fails");
    for index in 1..12 {
        let data = Bytes::from(vec![b'x'; 40]);
        let entries = vec![Entry { term: 1, index, kind: EntryKind::Normal, data }];
        let append = Append {
            number: index,
            install: None,
            entries,
            hard_state: None,
            urgency: Urgency::High,
        };
        log.append(&[append]).expect("there is room");
    }
    drop(log);
    let mut names = fs.list(Path::new(DIR)).expect("it lists");
    names.retain(|name| name.ends_with(".log"));
    names.iter().flat_map(|name| fs.contents(&Path::new(DIR).join(name))).collect()
}

fn open_log(fs: &MemoryFs) -> Option<(Log, LogRecovery)> {
    Log::open(Arc::new(fs.clone()), Path::new(DIR), log_options()).ok()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// Where the checksums of an image are, they are right after this.
fn seal_backup(file: &mut [u8]) {
    let int = |file: &[u8], at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
    };
    let Some(text) = int(file, 12) else { return };
    let mut at = 16 + (text as usize).min(1 << 16);
    let Some(header) = file.get(..at) else { return };
    let mut crc = crc32c::crc32c(header);
    put(file, at, &crc.to_le_bytes());
    at += 4;
    while let Some(length) = int(file, at).map(|length| (length as usize).min(1 << 20)) {
        // The trailer has its checksum at its end, a chunk behind the count of its records.
        let (head, body) = if length == 0 { (28, 0) } else { (8, length) };
        let Some(known) = file.get(at..at + head) else { return };
        crc = crc32c::crc32c_append(crc, known);
        let Some(records) = file.get(at + head + 4..at + head + 4 + body) else { return };
        crc = crc32c::crc32c_append(crc, records);
        put(file, at + head, &crc.to_le_bytes());
        if length == 0 {
            return;
        }
        at += head + 4 + body;
    }
}

fn seal_image(file: &mut [u8]) {
    let int = |file: &[u8], at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
    };
    let Some(mark) = int(file, 28) else { return };
    let mut at = 32 + (mark as usize).min(1 << 16);
    let mut crc = match file.get(..at) {
        Some(header) => crc32c::crc32c(header),
        None => return,
    };
    put(file, at, &crc.to_le_bytes());
    at += 4;
    while let Some(len) = int(file, at) {
        let (from, end) = match len {
            // The footer.
            0 => (at + 12, at + 12),
            _ => (at + 8, at + 12 + len as usize),
        };
        let Some(rest) = file.get(at..end) else { return };
        crc = match len {
            0 => crc32c::crc32c_append(crc, rest),
            _ => crc32c::crc32c_append(crc32c::crc32c_append(crc, &rest[..8]), &rest[12..]),
        };
        put(file, from, &crc.to_le_bytes());
        if len == 0 {
            return;
        }
        at = end;
    }
}

/// Parts that begin with the magic of a segment.
fn segments(bytes: &[u8]) -> Vec<Vec<u8>> {
    let magic = b"LKLOGSEG";
    let mut begins: Vec<usize> =
        bytes.windows(8).enumerate().filter(|(_, w)| w == magic).map(|(at, _)| at).collect();
    begins.truncate(SEGMENTS_MAX);
    let ends = begins.iter().skip(1).copied().chain([bytes.len()]);
    begins.iter().zip(ends).map(|(begin, end)| bytes[*begin..end].to_vec()).collect()
}

/// Sets size and checksums of a segment right. With the checksum and the sequence number that end
/// the segment before, it continues that, and its records one another. Returns its own.
fn seal_segment(file: &mut Vec<u8>, before: Option<(u32, u64)>) -> (u32, u64) {
    file.resize(file.len().max(128), 0);
    let len = file.len() as u64;
    put(file, 48, &len.to_le_bytes());
    if let Some((crc, sequence)) = before {
        put(file, 72, &sequence.wrapping_add(1).to_le_bytes());
        put(file, 104, &crc.to_le_bytes());
    }
    let mut crc = crc32c::crc32c(&file[..124]);
    put(file, 124, &crc.to_le_bytes());
    let (tag, mut sequence) = (crc | 1, number(&file[72..80]).wrapping_sub(1));
    let mut at = 128;
    while at + 32 <= file.len() && file[at..at + 4] != [0; 4] {
        let payload = u32::from_le_bytes(file[at + 4..at + 8].try_into().expect("4 bytes"));
        let end = at.saturating_add(32).saturating_add(payload as usize);
        if payload < 36 || payload % 8 != 0 || end > file.len() {
            break;
        }
        put(file, at, &tag.to_le_bytes());
        sequence = sequence.wrapping_add(1);
        put(file, at + 12, &crc.to_le_bytes());
        put(file, at + 16, &sequence.to_le_bytes());
        crc = crc32c::crc32c_append(crc32c::crc32c(&file[at..at + 8]), &file[at + 12..end]);
        put(file, at + 8, &crc.to_le_bytes());
        at = end;
    }
    (crc, sequence)
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = file.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Files in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFs(Arc<Mutex<BTreeMap<PathBuf, Contents>>>);

type Contents = Arc<Mutex<Vec<u8>>>;

impl MemoryFs {
    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Contents>> {
        self.0.lock().expect("nothing panics while it holds the files")
    }

    /// Puts a file there.
    pub fn plant(&self, path: &Path, contents: Vec<u8>) {
        self.files().insert(path.to_owned(), Arc::new(Mutex::new(contents)));
    }

    /// What is in a file that is there.
    pub fn contents(&self, path: &Path) -> Vec<u8> {
        self.files()[path].lock().expect("as above").clone()
    }
}

fn not_found(path: &Path, operation: &'static str) -> FsError {
    FsError::new(path, operation, io::ErrorKind::NotFound.into())
}

impl Fs for MemoryFs {
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let file = self.files().get(path).cloned().ok_or_else(|| not_found(path, "open"))?;
        Ok(Box::new(MemoryFile(file)))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>, FsError> {
        let file = Contents::default();
        self.files().insert(path.to_owned(), Arc::clone(&file));
        Ok(Box::new(MemoryFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let file = self.files().remove(from).ok_or_else(|| not_found(from, "rename"))?;
        self.files().insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), FsError> {
        self.files().remove(path).map(drop).ok_or_else(|| not_found(path, "remove"))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FsError> {
        let files = self.files();
        let below = files.keys().filter(|path| path.parent() == Some(dir));
        let names = below.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        Ok(names.collect())
    }

    fn create_dir(&self, _: &Path) -> Result<(), FsError> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> Result<(), FsError> {
        Ok(())
    }

    fn lock(&self, _: &Path) -> Result<Option<Box<dyn FileLock>>, FsError> {
        Ok(Some(Box::new(Held)))
    }
}

#[derive(Debug)]
struct Held;

impl FileLock for Held {}

#[derive(Debug)]
struct MemoryFile(Contents);

impl MemoryFile {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nothing panics while it holds a file")
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        let bytes = self.bytes();
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&mut self, written: &[u8], offset: u64) -> Result<(), FsError> {
        let mut bytes = self.bytes();
        let at = usize::try_from(offset).expect("files are small");
        let end = at + written.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(written);
        Ok(())
    }

    fn len(&self) -> Result<u64, FsError> {
        Ok(self.bytes().len() as u64)
    }

    fn preallocate(&mut self, len: u64) -> Result<Reserved, FsError> {
        self.bytes().resize(usize::try_from(len).expect("files are small"), 0);
        Ok(Reserved::Yes)
    }

    fn sync(&mut self) -> Result<(), FsError> {
        Ok(())
    }
}
