//! What the log promises, one test each; faults come from the test disk.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::LogError;
use super::files::{Log, LogRecovery};
use super::segment::LogOptions;
use crate::formats::KNOWN;
use crate::fs::Fs;
use crate::testing::{Fault, TestFs, UNSYNCED, Unsynced, append, entry};
use lockkeeper_core::replica::{Append, Entry, HardState, Mark, Urgency};

const DIR: &str = "/log";

fn options() -> LogOptions {
    LogOptions { cluster_id: 0x5eed, node_id: 1, segment_bytes: 1024, ensemble: false }
}

fn created() -> TestFs {
    let fs = TestFs::default();
    fs.create_dir(Path::new(DIR)).unwrap();
    Log::create(&fs, Path::new(DIR), &options()).unwrap();
    fs
}

fn try_open(fs: &TestFs) -> Result<(Log, LogRecovery), LogError> {
    Log::open(Arc::new(fs.clone()), Path::new(DIR), options())
}

fn open(fs: &TestFs) -> Log {
    let (mut log, _) = try_open(fs).unwrap();
    log.begin().unwrap();
    log
}

fn all(log: &Log) -> Vec<Entry> {
    let mut entries = Vec::new();
    log.each(log.base().index + 1, log.last().index, &mut |e| {
        entries.push(e);
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

fn segments(fs: &TestFs) -> Vec<PathBuf> {
    fs.files().into_keys().collect()
}

/// A batch of `count` entries from `index` on.
fn batch(index: u64, count: u64, term: u64) -> Append {
    append((index..index + count).map(|i| entry(i, term, format!("k{i}={term}"))).collect())
}

/// A log of three segments.
fn filled() -> (TestFs, Vec<Entry>) {
    let fs = created();
    let mut log = open(&fs);
    for i in 0..14 {
        log.append(&[batch(i * 5 + 1, 5, 1)]).unwrap();
    }
    let entries = all(&log);
    assert_eq!((entries.len(), segments(&fs).len()), (70, 3));
    (fs, entries)
}

#[test]
fn what_was_appended_is_there_after_reopening() {
    let (fs, entries) = filled();
    let (log, found) = try_open(&fs).unwrap();
    assert_eq!(all(&log), entries);
    assert_eq!((found.first, found.last.index, found.last.term), (1, 70, 1));
    assert_eq!(found.hard_state, HardState { term: 1, vote: 1, commit: 65 });
    assert_eq!(found.torn, None);
}

#[test]
fn many_batches_cost_one_sync() {
    let fs = created();
    let mut log = open(&fs);
    let before = fs.syncs();
    log.append(&[batch(1, 1, 1), batch(2, 1, 1), batch(3, 1, 1)]).unwrap();
    assert_eq!(fs.syncs(), before + 1);
    assert_eq!(all(&log).len(), 3);
}

#[test]
fn a_commit_alone_waits_for_the_next_record_or_for_the_close() {
    let fs = created();
    let mut log = open(&fs);
    log.append(&[batch(1, 2, 1)]).unwrap();
    let before = fs.changes();
    let commit = Append {
        number: 2,
        install: None,
        entries: Vec::new(),
        hard_state: Some(HardState { term: 1, vote: 1, commit: 2 }),
        urgency: Urgency::None,
    };
    log.append(&[commit]).unwrap();
    assert_eq!(fs.changes(), before);
    assert_eq!(try_open(&fs).unwrap().1.hard_state.commit, 0);
    log.close().unwrap();
    assert_eq!(try_open(&fs).unwrap().1.hard_state.commit, 2);
}

#[test]
fn a_vote_is_durable_without_entries() {
    let fs = created();
    let vote = HardState { term: 9, vote: 3, commit: 0 };
    let append = Append {
        number: 1,
        install: None,
        entries: Vec::new(),
        hard_state: Some(vote),
        urgency: Urgency::High,
    };
    open(&fs).append(&[append]).unwrap();
    fs.crash(Unsynced::Lost);
    assert_eq!(try_open(&fs).unwrap().1.hard_state, vote);
}

#[test]
fn a_commit_is_never_ahead_of_the_entries_in_a_record() {
    let fs = created();
    let mut log = open(&fs);
    let large = "x".repeat(9 << 20);
    let mut append = append(vec![entry(1, 1, large.clone()), entry(2, 1, large)]);
    append.hard_state = Some(HardState { term: 1, vote: 1, commit: 2 });
    // The batch becomes two records; the power goes at the sync of the second, which lies in a
    // segment of its own: create, reserve, sync, write, sync, rename, sync, write, sync.
    fs.fail_at(18, Fault::Crash);
    log.append(&[append]).unwrap_err();
    fs.crash(Unsynced::Lost);
    let found = try_open(&fs).unwrap().1;
    assert_eq!((found.last.index, found.hard_state.commit), (1, 1));
}

#[test]
fn the_last_writer_of_an_index_wins() {
    let fs = created();
    let mut log = open(&fs);
    log.append(&[batch(1, 10, 1)]).unwrap();
    log.append(&[Append { hard_state: None, ..batch(5, 2, 2) }]).unwrap();
    log.append(&[Append { hard_state: None, ..batch(7, 1, 2) }]).unwrap();
    let terms: Vec<u64> = all(&log).iter().map(|e| e.term).collect();
    assert_eq!(terms, [1, 1, 1, 1, 2, 2, 2]);
    let (reopened, _) = try_open(&fs).unwrap();
    assert_eq!(all(&reopened), all(&log));
}

#[test]
fn a_conflict_may_reach_back_over_segments() {
    let fs = created();
    let mut log = open(&fs);
    for i in 0..16 {
        log.append(&[Append { hard_state: None, ..batch(i * 4 + 1, 4, 1) }]).unwrap();
    }
    let before = segments(&fs).len();
    assert!(before > 2);
    log.append(&[Append { hard_state: None, ..batch(3, 2, 2) }]).unwrap();
    assert_eq!(log.last().index, 4);
    let (mut reopened, found) = try_open(&fs).unwrap();
    assert_eq!((found.first, found.last.index, found.last.term), (1, 4, 2));
    assert_eq!(all(&reopened), all(&log));
    // What was overwritten can be cut away with what it was written over.
    reopened.begin().unwrap();
    while reopened.cut(2).unwrap() {}
    assert_eq!((segments(&fs).len(), reopened.base().index), (1, 2));
    assert_eq!(try_open(&fs).unwrap().1.last.index, 4);
}

#[test]
fn within_one_batch_later_entries_overwrite_earlier_ones() {
    let fs = created();
    let mut log = open(&fs);
    log.append(&[batch(1, 5, 1), Append { hard_state: None, ..batch(3, 1, 2) }]).unwrap();
    assert_eq!(all(&log).iter().map(|e| e.term).collect::<Vec<_>>(), [1, 1, 2]);
}

#[test]
fn committed_entries_are_never_overwritten_and_gaps_never_made() {
    for index in [3, 5, 8] {
        let mut log = open(&created());
        log.append(&[batch(1, 5, 1), batch(6, 1, 1)]).unwrap();
        let error = log.append(&[batch(index, 1, 2)]).unwrap_err();
        assert!(matches!(error, LogError::OutOfOrder { first: 6, last: 6, .. }), "{error}");
    }
}

#[test]
fn reading_is_bounded_by_bytes_but_gives_at_least_one_entry() {
    let (fs, entries) = filled();
    let (log, _) = try_open(&fs).unwrap();
    assert_eq!(log.read(3, 70, 0).unwrap(), entries[2..3]);
    assert_eq!(log.read(3, 70, 12).unwrap(), entries[2..5]);
    assert_eq!(log.read(3, 7, 1000).unwrap(), entries[2..7]);
    assert!(matches!(log.read(30, 71, 1), Err(LogError::NotHeld { last: 70, .. })));
    assert!(matches!(log.read(0, 3, 1), Err(LogError::NotHeld { first: 1, .. })));
}

#[test]
fn reading_checks_checksums_again() {
    let (fs, _) = filled();
    let (log, _) = try_open(&fs).unwrap();
    let path = segments(&fs).remove(0);
    let mut bytes = fs.contents(&path);
    bytes[200] ^= 1;
    fs.plant(&path, bytes);
    let error = log.read(1, 70, usize::MAX).unwrap_err();
    assert!(matches!(error, LogError::Damaged { offset: 128, .. }), "{error}");
}

#[test]
fn a_cut_removes_whole_segments_only() {
    let (fs, entries) = filled();
    let mut log = open(&fs);
    assert!(!log.cut(9).unwrap());
    assert_eq!(segments(&fs).len(), 3);
    assert!(!log.cut(40).unwrap());
    assert_eq!(segments(&fs).len(), 2);
    let base = log.base();
    assert!(base.index > 9 && base.index <= 40);
    assert_eq!(log.term(base.index).unwrap(), 1);
    assert_eq!(all(&log), entries[base.index as usize..]);
    let (reopened, found) = try_open(&fs).unwrap();
    assert_eq!((found.base, found.last.index), (base, 70));
    assert_eq!(all(&reopened), all(&log));
    // The segment that is written to stays.
    assert!(!log.cut(70).unwrap());
    assert_eq!(segments(&fs).len(), 1);
}

#[test]
fn a_log_that_is_cut_in_part_begins_where_a_conflict_does() {
    let fs = created();
    let mut log = open(&fs);
    let mut append = |first, term| {
        log.append(&[Append { hard_state: None, ..batch(first, 5, term) }]).unwrap();
    };
    (0..14).for_each(|i| append(i * 5 + 1, 1));
    // Entries of another term begin in the middle of all that, and lie in segments of their own.
    (0..12).for_each(|i| append(i * 5 + 31, 2));
    assert!(segments(&fs).len() > 4);
    let entries = all(&log);
    let mut is_more = true;
    while is_more {
        is_more = log.cut(80).unwrap();
        let base = log.base();
        assert!(base.index <= 80, "{base:?}");
        assert_eq!(base.term, if base.index > 30 { 2 } else { 1 });
        assert_eq!(log.term(base.index).unwrap(), base.term);
        assert_eq!(all(&log), entries[base.index as usize..]);
        let (reopened, found) = try_open(&fs).unwrap();
        assert_eq!((found.base, all(&reopened)), (base, all(&log)));
    }
    assert!(log.base().index >= 30, "{:?}", log.base());
}

#[test]
fn a_reset_log_begins_behind_the_image() {
    let (fs, _) = filled();
    let mut log = open(&fs);
    log.reset(&Mark { index: 100, term: 7, ..Mark::default() }).unwrap();
    assert_eq!((log.base().index, log.last().term), (100, 7));
    log.append(&[batch(101, 3, 7)]).unwrap();
    let (reopened, found) = try_open(&fs).unwrap();
    assert_eq!((found.first, found.last.index, found.hard_state.commit), (101, 103, 100));
    assert_eq!(all(&reopened), all(&log));
}

#[test]
fn a_reset_keeps_a_higher_term_and_the_vote_in_it() {
    for (term, vote) in [(9, 3), (7, 3), (6, 0)] {
        let (fs, _) = filled();
        let mut log = open(&fs);
        let hard_state = Some(HardState { term, vote: 3, commit: 65 });
        let entries = Vec::new();
        log.append(&[Append {
            number: 1,
            install: None,
            entries,
            hard_state,
            urgency: Urgency::High,
        }])
        .unwrap();
        log.reset(&Mark { index: 100, term: 7, ..Mark::default() }).unwrap();
        let found = try_open(&fs).unwrap().1;
        let expected = HardState { term: term.max(7), vote, commit: 100 };
        assert_eq!(found.hard_state, expected);
    }
}

#[test]
fn a_log_is_never_emptied_for_less_than_what_is_committed() {
    let (fs, entries) = filled();
    let mut log = open(&fs);
    let error = log.reset(&Mark { index: 64, term: 7, ..Mark::default() }).unwrap_err();
    assert!(matches!(error, LogError::WouldForget { index: 64, commit: 65 }), "{error}");
    assert_eq!(all(&open(&fs)), entries);
}

#[test]
fn a_reset_that_was_interrupted_is_completed_by_the_next_server() {
    for n in 1.. {
        let (fs, _) = filled();
        let mut log = open(&fs);
        fs.fail_at(n, Fault::Crash);
        let is_done = log.reset(&Mark { index: 100, term: 7, ..Mark::default() }).is_ok();
        fs.crash(Unsynced::Kept);
        let log = open(&fs);
        match log.base().index {
            0 => assert_eq!(log.last().index, 70),
            base => assert_eq!((base, log.last().index, segments(&fs).len()), (100, 100, 1)),
        }
        if is_done {
            assert_eq!(log.base().index, 100);
            assert!(n > 5);
            return;
        }
    }
}

#[test]
fn a_segment_made_ahead_is_used_or_removed() {
    let fs = created();
    let mut log = open(&fs);
    log.append(&[batch(1, 10, 1)]).unwrap();
    log.append(&[batch(11, 10, 1)]).unwrap();
    log.prepare();
    let prepared = Path::new(DIR).join("prepared");
    assert!(fs.files().contains_key(&prepared));
    log.append(&[batch(21, 10, 1)]).unwrap();
    log.append(&[batch(31, 10, 1)]).unwrap();
    assert!(!fs.files().contains_key(&prepared));
    log.prepare();
    drop(log);
    assert_eq!(all(&open(&fs)).len(), 40);
    assert!(!fs.files().contains_key(&prepared));
}

#[test]
fn an_entry_larger_than_a_segment_gets_one_of_its_own() {
    let fs = created();
    let mut log = open(&fs);
    log.append(&[batch(1, 1, 1)]).unwrap();
    log.append(&[append(vec![entry(2, 1, "x".repeat(5000))])]).unwrap();
    log.append(&[batch(3, 1, 1)]).unwrap();
    let (reopened, _) = try_open(&fs).unwrap();
    assert_eq!(all(&reopened), all(&log));
    assert_eq!(reopened.read(2, 2, 0).unwrap()[0].data.len(), 5000);
}

#[test]
fn every_changed_byte_is_dropped_as_torn_or_refused() {
    let (fs, entries) = filled();
    let before_last = 65;
    let paths = segments(&fs);
    for (n, path) in paths.iter().enumerate() {
        let whole = fs.contents(path);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            fs.plant(path, bytes);
            match try_open(&fs) {
                Err(LogError::Damaged { path: named, .. }) => assert!(paths.contains(&named)),
                Err(LogError::Future { .. }) => assert!((8..12).contains(&at)),
                Err(error) => panic!("{} byte {at}: {error}", path.display()),
                Ok((log, found)) => {
                    // Only behind or in the very last record; and nothing else is missing.
                    assert_eq!(n, 2, "{} byte {at}", path.display());
                    assert!(found.torn.is_some());
                    let left = all(&log);
                    assert!(left == entries || left == entries[..before_last], "byte {at}");
                }
            }
        }
        fs.plant(path, whole);
    }
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let (fs, _) = filled();
    for path in segments(&fs) {
        let whole = fs.contents(&path);
        for len in 0..whole.len() {
            fs.plant(&path, whole[..len].to_vec());
            let error = try_open(&fs).unwrap_err();
            assert!(matches!(error, LogError::Damaged { .. }), "length {len}: {error}");
        }
        fs.plant(&path, whole);
    }
}

#[test]
fn a_missing_segment_is_refused() {
    let (fs, _) = filled();
    for (n, path) in segments(&fs).iter().enumerate() {
        let copy = fs.copy();
        copy.remove(path).unwrap();
        match try_open(&copy) {
            Err(LogError::Damaged { .. }) => assert_eq!(n, 1),
            // Without the first, it is a log that was cut; without the last, one that ends earlier:
            // images and the identity tell those (see `dir/open.rs`).
            Ok((log, _)) => assert_ne!(log.read(1, 70, usize::MAX).ok().map(|e| e.len()), Some(70)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn damage_is_named_with_file_offset_checksums_and_what_to_do() {
    let (fs, _) = filled();
    let path = segments(&fs).remove(1);
    let mut bytes = fs.contents(&path);
    bytes[170] ^= 1;
    fs.plant(&path, bytes);
    let text = try_open(&fs).unwrap_err().to_string();
    assert!(
        text.starts_with("/log/0000000000000002.log: damaged at offset 128: checksum"),
        "{text}"
    );
    assert!(text.contains("crc32c expected 0x") && text.contains("actual 0x"), "{text}");
    assert!(text.contains("restore the file from a copy") && !text.contains("--rejoin"), "{text}");
    let options = LogOptions { ensemble: true, ..options() };
    let error = Log::open(Arc::new(fs), Path::new(DIR), options).unwrap_err().to_string();
    assert!(error.contains("lockkeeper server --rejoin"), "{error}");
}

#[test]
fn a_torn_record_is_wiped_before_anything_is_written_behind_it() {
    let (fs, entries) = filled();
    let mut log = open(&fs);
    // A record of several sectors of which only the later ones arrive.
    let large = append(vec![entry(71, 1, "y".repeat(3000))]);
    fs.fail_at(6 + 2, Fault::Crash);
    log.append(&[large]).unwrap_err();
    for seed in 0..20 {
        let fs = fs.copy();
        let path = segments(&fs).pop().unwrap();
        let mut bytes = fs.contents(&path);
        let written = bytes.iter().rposition(|b| *b != 0).unwrap();
        let torn = 128 + (written - 128) * seed / 20;
        bytes[128..torn].fill(0);
        fs.plant(&path, bytes);
        let (mut log, found) = try_open(&fs).unwrap();
        assert_eq!(all(&log), entries);
        let untouched = fs.files();
        assert!(found.torn.is_some());
        assert_eq!(fs.files(), untouched, "opening changes nothing");
        log.begin().unwrap();
        log.append(&[batch(71, 1, 2)]).unwrap();
        let (log, found) = try_open(&fs).unwrap();
        assert_eq!((log.last().index, log.last().term, found.torn), (71, 2, None));
    }
}

#[test]
fn clients_cannot_forge_records_in_their_data() {
    // A copy of a whole valid segment of another server, as the data of a torn entry.
    let (other, _) = filled();
    let forged = other.contents(&segments(&other)[0]);
    let fs = TestFs::default();
    fs.create_dir(Path::new(DIR)).unwrap();
    let options = LogOptions { cluster_id: 0xbeef, ..options() };
    Log::create(&fs, Path::new(DIR), &options).unwrap();
    let reopen = || Log::open(Arc::new(fs.clone()), Path::new(DIR), options.clone());
    let mut log = reopen().unwrap().0;
    log.begin().unwrap();
    let data = bytes::Bytes::from(forged[128..700].to_vec());
    let bait = Entry { data, ..entry(1, 1, "") };
    log.append(&[append(vec![bait])]).unwrap();
    let path = segments(&fs).pop().unwrap();
    let mut bytes = fs.contents(&path);
    bytes[128 + 40] ^= 1;
    fs.plant(&path, bytes);
    let found = reopen().unwrap().1;
    assert!(found.torn.is_some());
}

#[test]
fn a_record_whose_sync_failed_is_durable_before_the_next_server_relies_on_it() {
    let fs = created();
    let mut log = open(&fs);
    log.append(&[batch(1, 1, 1)]).unwrap();
    fs.fail_at(2, Fault::Error(ErrorKind::Other));
    log.append(&[batch(2, 1, 1)]).unwrap_err();
    drop(log);
    // The process is started again, and finds the record in the page cache.
    let log = open(&fs);
    assert_eq!(log.last().index, 2);
    drop(log);
    fs.crash(Unsynced::Lost);
    let log = open(&fs);
    assert_eq!(log.last().index, 2);
}

#[test]
fn an_error_poisons_the_log_and_is_never_retried() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        for change in 1..=2 {
            let fs = created();
            let mut log = open(&fs);
            log.append(&[batch(1, 1, 1)]).unwrap();
            fs.fail_at(change, Fault::Error(kind));
            match log.append(&[batch(2, 1, 1)]).unwrap_err() {
                LogError::Fs(e) => assert_eq!(e.is_full(), kind != ErrorKind::Other),
                error => panic!("{error}"),
            }
            let changes = fs.changes();
            assert!(matches!(log.append(&[batch(2, 1, 1)]), Err(LogError::Poisoned(_))));
            assert!(matches!(log.close(), Err(LogError::Poisoned(_))));
            assert!(matches!(log.cut(1), Err(LogError::Poisoned(_))));
            log.prepare();
            assert_eq!(fs.changes(), changes);
        }
    }
}

#[test]
fn other_servers_logs_and_later_formats_are_refused_by_name() {
    let (fs, _) = filled();
    let foreign = LogOptions { node_id: 2, ..options() };
    let error = Log::open(Arc::new(fs.clone()), Path::new(DIR), foreign).unwrap_err();
    assert!(error.to_string().contains("belongs to server 1 (raft id 1) of cluster"), "{error}");
    let path = segments(&fs).remove(0);
    let mut bytes = fs.contents(&path);
    let later = KNOWN.segment + 1;
    bytes[8] = u8::try_from(later).unwrap();
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    fs.plant(&path, bytes);
    let error = try_open(&fs).unwrap_err();
    let named = format!("format version {later}, this program knows up to {}", KNOWN.segment);
    assert!(error.to_string().contains(&named), "{error}");
    let empty = TestFs::default();
    assert!(matches!(try_open(&empty), Err(LogError::Missing { .. })));
}

/// What a run has been told is durable, and what it had asked for when it failed.
struct Model {
    acknowledged: Vec<Entry>,
    asked: Vec<Entry>,
}

impl Model {
    fn overwrite(entries: &mut Vec<Entry>, with: &[Entry]) {
        entries.retain(|e| e.index < with[0].index);
        entries.extend_from_slice(with);
    }
}

/// Appends, conflicts, cuts and preparations until something fails.
fn run(log: &mut Log, model: &mut Model) -> Result<(), LogError> {
    let mut commit = 0;
    for i in 0..14_u64 {
        let last = model.acknowledged.last().map_or(0, |e| e.index);
        // Every fourth batch overwrites the one before.
        let first = if i % 4 == 3 { last - 1 } else { last + 1 };
        let entries: Vec<Entry> = (first..first + 2 + i % 3)
            .map(|n| entry(n, i, format!("k{n}={}", "v".repeat((i as usize * 37) % 300))))
            .collect();
        Model::overwrite(&mut model.asked, &entries);
        let hard_state = Some(HardState { term: i, vote: 1, commit });
        log.append(&[Append {
            number: i,
            install: None,
            entries,
            hard_state,
            urgency: Urgency::High,
        }])?;
        model.acknowledged = model.asked.clone();
        if i % 5 == 4 {
            commit = last.saturating_sub(2);
            log.prepare();
            while log.cut(commit)? {}
        }
    }
    Ok(())
}

#[test]
fn whatever_change_of_the_disk_fails_no_acknowledged_entry_is_lost() {
    let faults =
        [Fault::Crash, Fault::Error(ErrorKind::Other), Fault::Error(ErrorKind::StorageFull)];
    for fault in faults {
        let mut n = 1;
        while !survives(n, fault) {
            n += 1;
        }
        assert!(n > 40, "{n} changes were tried");
    }
}

/// Lets the `n`th change fail, and looks at what is there after the power went as well. Whether the
/// run came to its end with all changes.
fn survives(n: u64, fault: Fault) -> bool {
    let fs = created();
    let mut model = Model { acknowledged: Vec::new(), asked: Vec::new() };
    let mut log = open(&fs);
    let before = fs.changes();
    fs.fail_at(n, fault);
    let done = run(&mut log, &mut model).is_ok();
    drop(log);
    for unsynced in UNSYNCED {
        let fs = crashed(&fs, unsynced, n, &model);
        // And again, when the power goes while the log is being repaired.
        for again in 1..4 {
            let fs = fs.copy();
            let (mut log, _) = try_open(&fs).unwrap();
            fs.fail_at(again, Fault::Crash);
            let _ = log.begin();
            crashed(&fs, unsynced, n, &model);
        }
    }
    done && fs.changes() - before < n
}

/// What is found after the power went: all that was acknowledged, and at most what was asked for.
fn crashed(fs: &TestFs, unsynced: Unsynced, n: u64, model: &Model) -> TestFs {
    let after = fs.twin();
    after.crash(unsynced);
    let (log, _) = try_open(&after).unwrap_or_else(|e| panic!("change {n}, {unsynced:?}: {e}"));
    let base = log.base().index;
    let expected = |entries: &[Entry]| -> Vec<Entry> {
        entries.iter().filter(|e| e.index > base).cloned().collect()
    };
    let found = all(&log);
    // A batch that overwrites may have removed what it overwrites, and not have arrived itself: an
    // elected leader sent it, so no server counts on what was there.
    let kept = |e: &&Entry| model.asked.contains(e);
    let between: Vec<Entry> = model.acknowledged.iter().filter(kept).cloned().collect();
    assert!(
        found == expected(&model.acknowledged)
            || found == expected(&model.asked)
            || found == expected(&between),
        "change {n}, {unsynced:?}: {} entries found, {} acknowledged",
        found.len(),
        model.acknowledged.len()
    );
    after
}
