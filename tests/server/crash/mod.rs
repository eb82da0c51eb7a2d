//! A server that is killed at any moment, or whose machine loses power, has lost nothing that it
//! acknowledged.
//!
//! Real processes on a real file system. About a minute by default;
//! `LOCKKEEPER_KILLS=200 LOCKKEEPER_POWER_CUTS=30` for the long run. Kills at exact system calls
//! need `strace`; power cuts and read-only disks need root, loop devices and ext4. Where that is
//! missing, the tests that need it say so by name and do nothing.

mod autopsy;
#[path = "../../../jepsen/src/cluster/disk.rs"]
mod disk;
mod history;
mod link;
mod model;
mod process;
mod strace;
mod writer;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use disk::Disk;
use history::{History, count};
use process::{PATIENCE, Process};
use rustix::process::Signal;
use testkit::left_out::left_out;
use testkit::rng::Rng;

/// Kills in `cargo test`.
const KILLS: u64 = 24;
/// Power cuts in `cargo test`.
const POWER_CUTS: u64 = 3;

/// Lets a server live on a directory of its own, and what `befall`s it be told at the end.
fn tell(name: &str, befall: impl FnOnce(&mut History, &mut Process)) {
    let begun = Instant::now();
    let directory = tempfile::tempdir().unwrap();
    let mut history = History::new(name, &directory.path().join("data"), directory.path());
    let mut process = history.begin();
    befall(&mut history, &mut process);
    history.report(name, begun);
}

/// As [`tell`], where there is an strace.
fn tell_traced(name: &str, befall: impl FnOnce(&mut History, &mut Process)) {
    match strace::available() {
        Ok(()) => tell(name, befall),
        Err(why) => left_out(name, &why),
    }
}

fn kill_after_a_while(process: &mut Process, random: &mut Rng) {
    std::thread::sleep(Duration::from_millis(20 + random.below(600)));
    process.kill();
}

#[test]
fn nothing_acknowledged_is_lost_when_a_server_is_killed_at_any_time() {
    tell("kills at any time", |history, process| {
        for _ in 0..count("LOCKKEEPER_KILLS", KILLS, 1, 3) {
            history.load(process, kill_after_a_while);
            history.died("at any time");
            *process = history.recover();
        }
    });
}

#[test]
fn nothing_acknowledged_is_lost_when_a_server_is_killed_at_a_system_call() {
    tell_traced("kills at a system call", |history, process| {
        for turn in 0..count("LOCKKEEPER_KILLS", KILLS, 5, 12) {
            let (call, max) = strace::CALLS[turn as usize % strace::CALLS.len()];
            let is_hit = history.load(process, |process, random| {
                let n = random.spread(max);
                let tracer = strace::Tracer::attach(process.id(), true, call, "signal=KILL", n);
                let _tracer = tracer.expect("as before");
                let is_hit = process.end_within(Duration::from_secs(2)).is_some();
                process.kill();
                is_hit
            });
            let how = if is_hit { format!("at {call}") } else { format!("waiting for {call}") };
            history.died(&how);
            *process = history.recover();
        }
    });
}

#[test]
fn nothing_acknowledged_is_lost_when_a_server_is_killed_while_it_recovers() {
    let name = "kills during recovery";
    let can_trace = strace::available();
    if let Err(why) = &can_trace {
        left_out(&format!("{name} at a system call"), why);
    }
    tell(name, |history, process| {
        history.load(process, |process, _| {
            std::thread::sleep(Duration::from_millis(1200));
            process.kill();
        });
        history.died("before recovery");
        *process = history.recover();
        let turns = count("LOCKKEEPER_KILLS", KILLS, 3, 12);
        for turn in 0..turns {
            // What it recovers from must be worth it.
            if turn % 3 == 0 {
                history.load(process, kill_after_a_while);
                history.died("before recovery");
            } else {
                process.kill();
                history.died("idle");
            }
            let is_traced = can_trace.is_ok() && turn % 3 != 2;
            if is_traced {
                let (call, max) = *history.random.pick(&strace::CALLS_AT_START);
                let n = history.random.spread(max);
                let mut victim = history.start_in_vain(&strace::wrapper(call, "signal=KILL", n));
                let is_hit = victim.address.is_none();
                victim.kill();
                let how =
                    if is_hit { format!("recovering, at {call}") } else { "just recovered".into() };
                history.died(&how);
            } else {
                let wait = Duration::from_micros(500 + history.random.below(30_000));
                history.kill_after_start(wait);
                history.died("recovering, at any time");
            }
            *process = history.recover();
        }
    });
}

/// What a server says last.
fn last_words(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("lockkeeper: ")).collect()
}

/// How many segments a server says it could not make ahead of need.
fn segments_not_made(said: &Path) -> usize {
    let said = std::fs::read_to_string(said).expect("it was started");
    said.matches("cannot make the next log segment").count()
}

#[test]
fn an_error_of_the_logs_disk_ends_the_server_and_loses_nothing() {
    tell_traced("errors of the log's disk", |history, process| {
        for (call, error) in [
            ("fdatasync", "EIO"),
            ("fdatasync", "ENOSPC"),
            ("pwrite64", "EIO"),
            ("pwrite64", "ENOSPC"),
        ] {
            let said = history.layout.said_path(history.generation());
            let status = history.load(process, |process, random| {
                let thread = process.thread("lk-log");
                let deadline = Instant::now() + PATIENCE;
                let mut passed_over = 0;
                loop {
                    let n = random.spread(100);
                    let what = format!("error={error}");
                    let tracer = strace::Tracer::attach(thread, false, call, &what, n);
                    let _tracer = tracer.expect("as before");
                    // The next segment is made ahead of need: that may fail, and is not meant.
                    while process.ended().is_none() && segments_not_made(&said) == passed_over {
                        assert!(Instant::now() < deadline, "{call} {error}: it did not end");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    passed_over = segments_not_made(&said);
                    if let Some(status) = process.ended() {
                        break status;
                    }
                }
            });
            let said = history.said();
            assert_eq!((status.code(), status.signal()), (Some(1), None), "{call} {error}: {said}");
            let words = last_words(&said);
            assert_eq!(words.len(), 1, "{call} {error}: {said}");
            assert!(words[0].contains("the log cannot be written"), "{call} {error}: {said}");
            history.died(&format!("{error} of {call}"));
            *process = history.recover();
        }
    });
}

#[test]
fn a_disk_that_fails_as_a_whole_ends_the_server_in_words_and_not_in_a_panic() {
    tell_traced("a disk that fails as a whole", |history, process| {
        for _ in 0..2 {
            let status = history.load(process, |process, _| {
                let (calls, what) = ("fdatasync,fsync", "error=EIO");
                let tracer = strace::Tracer::attach(process.id(), true, calls, what, "1+");
                let _tracer = tracer.expect("as before");
                process.end_within(PATIENCE).expect("it ends by itself")
            });
            let said = history.said();
            assert_eq!((status.code(), status.signal()), (Some(1), None), "{said}");
            assert_eq!(last_words(&said).len(), 1, "{said}");
            assert!(!said.contains("panicked"), "{said}");
            history.died("the whole disk");
            *process = history.recover();
        }
    });
}

#[test]
fn an_error_of_the_images_disk_does_not_end_the_server() {
    tell_traced("errors of the images' disk", |history, process| {
        for (call, error) in [("pwrite64", "EIO"), ("fdatasync", "EIO"), ("pwrite64", "ENOSPC")] {
            let said = history.layout.said_path(history.generation());
            history.load(process, |process, random| {
                let thread = process.thread("lk-state");
                let n = random.spread(3);
                let tracer =
                    strace::Tracer::attach(thread, false, call, &format!("error={error}"), n);
                let _tracer = tracer.expect("as before");
                let deadline = Instant::now() + PATIENCE;
                while !is_complaining(&std::fs::read_to_string(&said).unwrap()) {
                    assert!(Instant::now() < deadline, "{call} {error}: it did not notice");
                    std::thread::sleep(Duration::from_millis(5));
                }
                let ended = process.end_within(Duration::from_millis(200 + random.below(500)));
                process.kill();
                assert!(ended.is_none(), "{call} {error}: it ended: {ended:?}");
            });
            history.died(&format!("after {error} of {call}"));
            *process = history.recover();
        }
    });
}

fn is_complaining(said: &str) -> bool {
    said.contains("no image written") || said.contains("refilled")
}

/// Where disks are made: in memory, if that is possible, as a test's disk need not outlive it.
fn directory_for_disks() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A disk of its own for this test, if the machine can have one.
fn disk_below(directory: &Path, name: &str) -> Option<Disk> {
    Disk::new(directory, "mount").map_err(|why| left_out(name, &why)).ok()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_is_cut() {
    let name = "power cuts";
    let begun = Instant::now();
    let directory = directory_for_disks();
    let Some(mut disk) = disk_below(directory.path(), name) else { return };
    let mut history = History::new(name, &disk.path().join("data"), directory.path());
    let mut process = history.begin();
    for turn in 0..count("LOCKKEEPER_POWER_CUTS", POWER_CUTS, 1, 1) {
        let wait = Duration::from_millis(100 + history.random.below(1000));
        if turn % 2 == 0 {
            let ended = history.load_with_promises(&mut process, |process, _, promises| {
                std::thread::sleep(wait);
                // The system survives this power cut and goes on to answer: while it loses its disk
                // it has been seen to call an fdatasync a success that was none.
                promises.are_over.store(true, Ordering::SeqCst);
                disk.cut_power().expect("the power can be cut");
                process.end_within(PATIENCE)
            });
            history.promises.are_over.store(false, Ordering::SeqCst);
            let code = ended.expect("a server without a disk ends").code();
            assert_eq!(code, Some(1), "{}", history.said());
            assert_eq!(last_words(&history.said()).len(), 1, "{}", history.said());
            disk.restart().expect("a file system that recovers");
        } else {
            let copy = history.load(&mut process, |process, _| {
                std::thread::sleep(wait);
                process.signal(Signal::STOP);
                process.wait_until_stopped();
                let copy = disk.copy().expect("a disk at rest");
                process.kill();
                copy
            });
            disk.replace(copy).expect("a file system that recovers");
        }
        history.died(if turn % 2 == 0 { "the disk went" } else { "what the disk had then" });
        process = history.recover();
    }
    process.kill();
    history.report(name, begun);
}

#[test]
fn a_server_whose_disk_becomes_read_only_ends_in_words_and_starts_where_it_can_write_again() {
    let name = "a disk that becomes read-only";
    let begun = Instant::now();
    let directory = directory_for_disks();
    let Some(disk) = disk_below(directory.path(), name) else { return };
    let mut history = History::new(name, &disk.path().join("data"), directory.path());
    let mut process = history.begin();
    let ended = history.load_with_promises(&mut process, |process, _, promises| {
        // As with a power cut: the file system drops what it has not written yet.
        promises.are_over.store(true, Ordering::SeqCst);
        disk.become_read_only().expect("the file system can be made read-only");
        process.end_within(PATIENCE)
    });
    history.promises.are_over.store(false, Ordering::SeqCst);
    let code = ended.expect("a server that cannot write ends").code();
    let said = history.said();
    assert_eq!((code, last_words(&said).len()), (Some(1), 1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    history.died("read-only while it served");

    disk.restart_read_only().expect("a file system that recovers");
    let mut in_vain = history.start_in_vain(&[]);
    let code = in_vain.end_within(PATIENCE).expect("it cannot write").code();
    let said = history.said();
    assert_eq!((code, last_words(&said).len()), (Some(1), 1), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    history.died("read-only from the start");

    disk.restart().expect("a file system that recovers");
    history.recover().kill();
    history.report(name, begun);
}
