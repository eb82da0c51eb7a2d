//! Figures of the disk code, on the directory named by LOCKKEEPER_BENCH_DIR (default: the target
//! directory): `cargo bench --bench storage`.

#![allow(clippy::disallowed_methods)] // a benchmark measures time

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::replica::{Changes, Mark, Record};
use lockkeeper::storage::{Checkpointer, Fs, Images, Ingredients, Log, OsFs, SledState, Source};

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
    for batch in [1, 64] {
        bare(&dir, batch);
        append(&dir, batch);
    }
    reopen(&dir);
    image(&dir);
    state(&dir);
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
        state: Box::new(SledState::new(&dir.join("state"))),
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

/// A million records into sled, verified after reopening.
fn state(dir: &Path) {
    let dir = dir.join("state");
    let mut checkpointer = self::checkpointer(&dir, Source::Log);
    let before = resident_kib();
    let begun = Instant::now();
    let total = 1_000_000;
    for first in (0..total).step_by(10_000) {
        let records = (first..first + 10_000)
            .map(|i| Record { key: key(i).into(), value: Some(Box::new([9; 118])) })
            .collect();
        let end = first + 10_000;
        let mark = (end == total).then(|| Mark { index: 1, records: total, ..Mark::default() });
        let changes = Changes { begins_full_pass: false, records, mark };
        checkpointer.apply(changes).expect("apply");
    }
    println!(
        "checkpoint of {total} records: {:?}, {} MiB resident more",
        begun.elapsed(),
        (resident_kib() - before) / 1024
    );
    drop(checkpointer);
    let before = resident_kib();
    let mut checkpointer = self::checkpointer(&dir, Source::Log);
    let begun = Instant::now();
    let outcome = checkpointer.begin().expect("begin");
    println!(
        "state store verified after reopening: {:?} ({outcome:?}), {} MiB resident more",
        begun.elapsed(),
        (resident_kib() - before) / 1024
    );
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}
