//! Figures of the disk code, on the directory named by LOCKKEEPER_BENCH_DIR (default: the target
//! directory): `cargo bench --bench storage`, or one part of them: `-- log`, `-- image`, `-- state`, `-- start`.

#![allow(clippy::disallowed_methods)] // a benchmark measures time

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockkeeper::internals::proto::Acl;
use lockkeeper::internals::replica::{Changes, Machine, Mark, Records};
use lockkeeper::internals::storage::{
    Checkpointer, Fs, Identity, Images, Ingredients, Log, Opened, Options, OsFs, Place, Runs, Seed,
    SledState, Source, open, seed,
};
use lockkeeper::internals::zookeeper::txn::kind;
use lockkeeper::internals::zookeeper::{CreateTxn, Lifetime, Txn, TxnBody, TxnHeader};

#[path = "common/logs.rs"]
mod logs;

use logs::{batch, new_log, options};

fn main() {
    let root = std::env::var_os("LOCKKEEPER_BENCH_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
        std::path::PathBuf::from,
    );
    let dir = root.join("bench-storage");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("the directory for the benchmark can be made");
    let only = std::env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    let is_asked = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if is_asked("log") {
        for batch in [1, 64] {
            bare(&dir, batch);
            append(&dir, batch);
        }
        reopen(&dir);
    }
    if is_asked("image") {
        image(&dir);
    }
    if is_asked("state") {
        state(&dir);
    }
    if is_asked("start") {
        start(&dir);
    }
    std::fs::remove_dir_all(&dir).expect("the directory of the benchmark can be removed");
}

/// What the disk itself can do: writes of that size into a file of its final size, each synced.
fn bare(dir: &Path, count: u64) {
    let mut file = OsFs.create(&dir.join(format!("bare-{count}"))).expect("create");
    file.preallocate(64 << 20).expect("preallocate");
    file.sync().expect("sync");
    let bytes = vec![7; 80 + 213 * count as usize];
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut offset = 0;
    while begun.elapsed() < Duration::from_secs(3) && offset < 60 << 20 {
        let at = Instant::now();
        file.write_at(&bytes, offset).expect("write");
        file.sync().expect("sync");
        times.push(at.elapsed());
        offset += bytes.len() as u64;
    }
    report("bare writes", count, times.len() as u64 * count, begun.elapsed(), times);
}

fn report(what: &str, count: u64, entries: u64, elapsed: Duration, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!(
        "{what}, {count} entries per sync: {:.0} entries/s, p50 {:?}, p99 {:?}",
        entries as f64 / elapsed.as_secs_f64(),
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}

/// Durable entries of 200 bytes per second, one sync per `count` of them.
fn append(dir: &Path, count: u64) {
    let dir = dir.join(format!("append-{count}"));
    let mut log = new_log(&dir);
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut index = 1;
    while begun.elapsed() < Duration::from_secs(3) {
        let at = Instant::now();
        log.append(&[batch(index, count)]).expect("append");
        times.push(at.elapsed());
        log.prepare();
        index += count;
    }
    report("append", count, index - 1, begun.elapsed(), times);
}

fn reopen(dir: &Path) {
    let dir = dir.join("reopen");
    let mut log = new_log(&dir);
    let mut index = 1;
    while index < 1_000_000 {
        log.append(&[batch(index, 256)]).expect("append");
        index += 256;
    }
    drop(log);
    let begun = Instant::now();
    let (log, found) = Log::open(Arc::new(OsFs), &dir, options()).expect("open");
    let opened = begun.elapsed();
    let begun = Instant::now();
    let mut bytes = 0;
    log.each(found.first, found.last.index, &mut |entry| {
        bytes += entry.data.len();
        std::ops::ControlFlow::Continue(())
    })
    .expect("read");
    println!(
        "reopen {} entries: verified in {opened:?}, read again in {:?} ({bytes} bytes)",
        found.last.index,
        begun.elapsed()
    );
}

fn key(i: u64) -> Vec<u8> {
    format!("/app/svc{:03}/locks/lock-{i:010}", i / 1000).into_bytes()
}

fn image(dir: &Path) {
    let dir = dir.join("image");
    std::fs::create_dir_all(&dir).expect("directory");
    let images = Images::new(Arc::new(OsFs), &dir, 1);
    let records = 1_000_000;
    let mark = Mark { index: 1, records, ..Mark::default() };
    let begun = Instant::now();
    let mut writer = images.create(&mark).expect("create");
    let value = [9; 118];
    for i in 0..records {
        writer.record(&key(i), &value).expect("record");
    }
    let bytes = writer.finish().expect("finish");
    let written = begun.elapsed();
    let begun = Instant::now();
    let mut sum = 0;
    let reader = images.open(1).expect("open");
    reader
        .read(&mut |key, value| {
            sum += key.len() + value.len();
            Ok(())
        })
        .expect("read");
    println!(
        "image of {records} records, {bytes} bytes: written, synced and verified in {written:?}, \
         read in {:?} ({sum})",
        begun.elapsed()
    );
}

fn checkpointer(dir: &Path, source: Source) -> Checkpointer {
    let images_dir = dir.join("images");
    std::fs::create_dir_all(&images_dir).expect("directory");
    Checkpointer::new(Ingredients {
        record_digest: |_, _| Ok(0),
        state: Runs::new(Box::new(SledState::new(&dir.join("state")))),
        images: Images::new(Arc::new(OsFs), &images_dir, 1),
        source,
        image: None,
        ensemble: false,
        log_last: u64::MAX,
        image_bytes: 0,
        written: Arc::default(),
        written_at_image: 0,
        image_every_bytes: u64::MAX,
    })
}

/// Records of the state that is measured.
const STATE_RECORDS: u64 = 1_000_000;
/// Records that are handed over at once, and how often a checkpoint is completed then.
const BITE: u64 = 1024;
const BITES_PER_CHECKPOINT: u64 = 64;

/// What the copy of a million znodes costs: made, changed all over, changed by one record, read.
fn state(dir: &Path) {
    let dir = dir.join("state");
    let sets = std::env::var("LOCKKEEPER_BENCH_SETS").ok().and_then(|n| n.parse().ok());
    let before = resident_kib();
    let mut store = Store { checkpointer: self::checkpointer(&dir, Source::Log), index: 0 };
    store.measure("creates", STATE_RECORDS, |i| i);
    store.measure("scattered sets", STATE_RECORDS, scattered);
    let begun = (Instant::now(), cpu_ms());
    for i in 0..1000 {
        store.changes(std::iter::once(scattered(i)), true);
    }
    println!(
        "checkpoint of one record: {:?}, {} us of CPU",
        begun.0.elapsed() / 1000,
        cpu_ms() - begun.1
    );
    println!("state/ {} MiB, {} MiB resident more", mib_in(&dir), (resident_kib() - before) / 1024);
    store.measure("more scattered sets", sets.unwrap_or(10_000_000), scattered);
    println!("state/ {} MiB, {} MiB resident more", mib_in(&dir), (resident_kib() - before) / 1024);
    drop(store);
    let before = resident_kib();
    let mut checkpointer = self::checkpointer(&dir, Source::Log);
    let begun = (Instant::now(), cpu_ms());
    let outcome = checkpointer.begin().expect("begin");
    println!(
        "state store verified after reopening: {:?}, {} ms of CPU ({outcome:?}), {} MiB resident more",
        begun.0.elapsed(),
        cpu_ms() - begun.1,
        (resident_kib() - before) / 1024
    );
}

/// A state of a million znodes of 100 bytes.
fn million() -> Machine {
    let mut machine = Machine::fresh(Default::default());
    let mut zxid = 0;
    let mut create = |path: &str, bytes: usize| {
        zxid += 1;
        let header = TxnHeader { client_id: 0, cxid: 0, zxid, time_ms: zxid, kind: kind::CREATE };
        let body = TxnBody::Create(CreateTxn {
            path: path.into(),
            data: Some(Bytes::from(vec![9; bytes])),
            acl: vec![Acl::open()],
            lifetime: Lifetime::Persistent,
            parent_cversion: -1,
        });
        let applied = machine.apply_foreign(&Txn { header, body, digest: None });
        assert!(applied.results.iter().all(Result::is_ok), "{path}: {applied:?}");
    };
    create("/app", 0);
    for i in 0..STATE_RECORDS {
        let path = String::from_utf8(key(i)).expect("a path");
        if i % 1000 == 0 {
            let (locks, _) = path.rsplit_once('/').expect("a parent");
            let (service, _) = locks.rsplit_once('/').expect("a parent");
            create(service, 0);
            create(locks, 0);
        }
        create(&path, 100);
    }
    machine
}

/// Time of a start with a million znodes: from an image, and from the state store, which is read only where no
/// image can be used.
fn start(dir: &Path) {
    let dir = dir.join("start");
    let identity = Identity::standalone(1, 1);
    let mut machine = million();
    machine.begin_ensemble(1, false);
    let (mark, records) = machine.into_records((1, 1), identity.membership.clone());
    let origin = "a benchmark".to_owned();
    let seed_of = Seed { identity, mark, records, origin };
    std::fs::create_dir_all(&dir).expect("directory");
    seed(&Place::on_disk(&dir, &dir), &seed_of, 64 << 20).expect("seed");

    started(&dir);
    let mut opened = started(&dir);
    let _has_none = opened.checkpointer.begin().expect("begin");
    let bites = seed_of.records.chunks(BITE as usize);
    let last = bites.len() - 1;
    for (at, bite) in bites.enumerate() {
        let mut records = Records::default();
        for (key, value) in bite {
            records.push(key, Some(value));
        }
        let mark = (at == last).then(|| seed_of.mark.clone());
        let changes = Changes { begins_full_pass: at == 0, records, mark };
        opened.checkpointer.apply(changes).expect("apply");
    }
    drop(opened);
    started(&dir);
    std::fs::remove_dir_all(dir.join("image")).expect("the images can be removed");
    started(&dir);
    started(&dir);
}

/// Opens the directory of a server, into a new state.
fn started(dir: &Path) -> Opened {
    let mut machine = Machine::fresh(Default::default());
    let options = Options { image_every_bytes: u64::MAX, ..Options::standalone(1) };
    let begun = (Instant::now(), cpu_ms());
    let opened = open(Place::on_disk(dir, dir), &options, &mut machine).expect("open");
    println!(
        "start from {}: {:?}, {:?} of them for {} records, {} ms of CPU",
        opened.report.begun_from,
        begun.0.elapsed(),
        opened.report.begin_took,
        opened.report.records,
        cpu_ms() - begun.1
    );
    opened
}

/// Numbers below [`STATE_RECORDS`] in no order.
fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
        & 0xff_ffff_ffff
}

struct Store {
    checkpointer: Checkpointer,
    index: u64,
}

impl Store {
    fn measure(&mut self, what: &str, count: u64, number: impl Fn(u64) -> u64) {
        let begun = (Instant::now(), cpu_ms());
        let mut longest = Duration::ZERO;
        for (bite, first) in (0..count).step_by(BITE as usize).enumerate() {
            let end = count.min(first + BITE);
            let mark = (bite as u64 + 1).is_multiple_of(BITES_PER_CHECKPOINT) || end == count;
            let at = Instant::now();
            self.changes((first..end).map(&number), mark);
            longest = longest.max(at.elapsed());
        }
        println!(
            "{count} {what}: {:.2} us of CPU each, {:?} in all, longest pause {longest:?}",
            (cpu_ms() - begun.1) as f64 * 1000.0 / count as f64,
            begun.0.elapsed(),
        );
    }

    fn changes(&mut self, numbers: impl Iterator<Item = u64>, mark: bool) {
        self.index += 1;
        let mut value = [9; 118];
        value[..8].copy_from_slice(&self.index.to_le_bytes());
        let mut records = Records::default();
        for number in numbers {
            records.push(&key(number % STATE_RECORDS), Some(&value));
        }
        let mark =
            mark.then(|| Mark { index: self.index, records: self.records(), ..Mark::default() });
        let changes = Changes { begins_full_pass: false, records, mark };
        self.checkpointer.apply(changes).expect("apply");
    }

    /// How many there are: the first ones come in order.
    fn records(&self) -> u64 {
        STATE_RECORDS.min(self.index * BITE)
    }
}

/// Milliseconds of CPU that this process has had.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    (ticks(12) + ticks(13)) * 10
}

fn mib_in(directory: &Path) -> u64 {
    let mut bytes = 0;
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    bytes >> 20
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}
