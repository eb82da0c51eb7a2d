//! What the store in sled promises, one test each.

use super::*;
use crate::copy::manifest::Found;
use crate::copy::runs::Runs;
use crate::copy::store::BLOCK_BYTES;
use lockkeeper_core::replica::{Mark, Records};

/// Enough for several trees of sled's.
const BLOCKS: u32 = 2 * TREE_BLOCKS + 300;

fn block(run: u64, number: u32) -> Vec<u8> {
    let mut block = vec![run as u8; 200];
    block[..4].copy_from_slice(&number.to_be_bytes());
    block
}

fn put(state: &mut SledState, run: u64, blocks: u32) {
    for number in 0..blocks {
        state.put_block(run, number, &block(run, number)).unwrap();
    }
}

fn assert_has(state: &mut SledState, run: u64, blocks: u32) {
    for number in 0..blocks {
        let mut found = b"before".to_vec();
        assert!(state.read_block(run, number, &mut found).unwrap(), "{number} of {run}");
        assert_eq!(found.strip_prefix(b"before"), Some(&block(run, number)[..]));
    }
    assert!(!state.read_block(run, blocks, &mut Vec::new()).unwrap());
}

fn trees(state: &mut SledState) -> usize {
    state.with(|db| Ok(db.tree_names().iter().filter(|n| run_of(n).is_some()).count())).unwrap()
}

/// A store with some thousand records in a complete checkpoint.
fn filled(dir: &Path) -> Runs {
    let mut runs = Runs::new(Box::new(SledState::new(dir)));
    let mut records = Records::default();
    for i in 0..5000 {
        records.push(format!("/k{i:05}").as_bytes(), Some("v".repeat(i % 400).as_bytes()));
    }
    runs.put(&records).unwrap();
    runs.close(Mark { index: 7, records: 5000, ..Mark::default() }).unwrap();
    runs
}

#[test]
fn blocks_come_back_and_the_manifest_is_none_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(&dir.path().join("state"));
    assert_eq!(state.manifest().unwrap(), None);
    // By turns, as when a run is written while others are read.
    put(&mut state, 1, BLOCKS);
    put(&mut state, 2, 3);
    assert_eq!(state.manifest().unwrap(), None);
    state.set_manifest(b"something").unwrap();
    assert_has(&mut state, 1, BLOCKS);
    assert_has(&mut state, 2, 3);
    assert_eq!(state.manifest().unwrap().as_deref(), Some(&b"something"[..]));
}

#[test]
fn what_was_put_before_a_manifest_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(dir.path());
    put(&mut state, 9, BLOCKS);
    state.set_manifest(b"something").unwrap();
    drop(state);
    let mut state = SledState::new(dir.path());
    assert_eq!(state.manifest().unwrap().as_deref(), Some(&b"something"[..]));
    assert_has(&mut state, 9, BLOCKS);
}

#[test]
fn runs_that_are_not_retained_are_gone_and_the_others_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(dir.path());
    for run in 1..5 {
        put(&mut state, run, BLOCKS);
    }
    state.retain_runs(&[2, 4], &WorkBudget::default()).unwrap();
    for run in [1, 3] {
        assert!(!state.read_block(run, 0, &mut Vec::new()).unwrap());
    }
    drop(state);
    let mut state = SledState::new(dir.path());
    assert_has(&mut state, 2, BLOCKS);
    assert_has(&mut state, 4, BLOCKS);
    state.retain_runs(&[], &WorkBudget::default()).unwrap();
    assert_eq!(trees(&mut state), 0);
    // A number that was used comes back with new blocks only.
    put(&mut state, 2, 1);
    assert_has(&mut state, 2, 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_store_that_is_cleared_while_it_is_open_holds_no_files_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(&dir.path().join("state"));
    for run in 1..4 {
        put(&mut state, run, 300);
        state.set_manifest(b"something").unwrap();
        state.clear().unwrap();
        assert_eq!((state.manifest().unwrap(), trees(&mut state)), (None, 0));
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let held = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let gone = held.filter(|path| path.starts_with(dir.path()) && !path.exists());
    assert_eq!(gone.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}

#[test]
#[cfg(target_os = "linux")]
fn a_store_that_is_cleared_after_an_error_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let mut state = SledState::new(&path);
    put(&mut state, 1, 300);
    state.set_manifest(b"something").unwrap();
    state.with(|_| Err::<(), _>("it fails".into())).unwrap_err();
    state.clear().unwrap();
    assert!(!path.exists());
    // The database was not closed, and holds files that are gone.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| {
        let file = file.ok()?.path();
        std::fs::read_link(&file).ok()?.starts_with(&path).then(|| std::fs::metadata(file))
    });
    let held: Vec<u64> = open.filter_map(|file| Some(file.ok()?.len())).collect();
    assert!(!held.is_empty() && held.iter().all(|len| *len == 0), "{held:?}");
    assert_eq!(state.manifest().unwrap(), None, "it begins anew");
}

#[test]
fn an_error_for_want_of_room_is_known_as_such() {
    let failure = |kind: ErrorKind| Failure::from(sled::Error::Io(kind.into()));
    assert!(failure(ErrorKind::StorageFull).is_full);
    assert!(!failure(ErrorKind::PermissionDenied).is_full);
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(dir.path());
    let full = |_: &sled::Db| Err::<(), _>(failure(ErrorKind::StorageFull));
    assert!(state.with(full).unwrap_err().is_full);
}

#[test]
fn runs_that_come_and_go_give_their_room_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(dir.path());
    let blocks = 400;
    for run in 1..40 {
        for number in 0..blocks {
            state.put_block(run, number, &[run as u8; BLOCK_BYTES]).unwrap();
        }
        state.retain_runs(&[run], &WorkBudget::default()).unwrap();
        state.set_manifest(b"something").unwrap();
    }
    // sled is slow to give back little: with 150 MB in a run, less than three of them are there.
    let size = std::fs::metadata(dir.path().join("db")).unwrap().len();
    let all = 39 * u64::from(blocks) * BLOCK_BYTES as u64;
    assert!(size < all / 3, "{size} bytes of {all} are left, and a 39th is needed");
    let blobs = std::fs::read_dir(dir.path().join("blobs")).unwrap().count();
    assert_eq!(blobs, 0, "no leaf of sled's is too long");
}

#[test]
fn an_unfinished_snapshot_of_sled_does_not_keep_it_from_opening() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let left = dir.path().join("snap.0000000000000ABC.generating");
    std::fs::write(&left, b"half").unwrap();
    SledState::new(dir.path()).manifest().unwrap().unwrap();
    assert!(!left.exists());
}

#[test]
fn records_as_an_earlier_version_kept_them_are_known_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(dir.path());
    let mut mark = vec![1, 0];
    mark.extend_from_slice(&crc32c::crc32c(&mark).to_le_bytes());
    state
        .with(|db| {
            db.insert(b"r/key", b"value")?;
            db.insert(MANIFEST, mark)?;
            db.flush()?;
            Ok(())
        })
        .unwrap();
    let mut runs = Runs::new(Box::new(state));
    assert_eq!(runs.open().unwrap(), Found::Earlier);
    runs.clear().unwrap();
    drop(runs);
    let mut runs = Runs::new(Box::new(SledState::new(dir.path())));
    assert_eq!(runs.open().unwrap(), Found::Nothing);
}

#[test]
fn records_without_a_mark_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(dir.path());
    state.with(|db| Ok(db.insert(b"r/key", b"value")?)).unwrap();
    let error = state.manifest().unwrap_err();
    assert_eq!(error.what, "it has records but no mark");
}

#[test]
fn damage_is_an_error_or_seen_by_a_scan_but_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    drop(filled(&good));
    // Opens only once sled's threads have let go, and so have written everything.
    SledState::new(&good).manifest().unwrap().unwrap();
    let whole = std::fs::read(good.join("db")).unwrap();
    let used = whole.iter().rposition(|b| *b != 0).unwrap();
    for (n, at) in (0..used).step_by(used / 24).enumerate() {
        let bad = dir.path().join(format!("bad{n}"));
        std::fs::create_dir(&bad).unwrap();
        std::fs::copy(good.join("conf"), bad.join("conf")).unwrap();
        let mut bytes = whole.clone();
        let end = bytes.len().min(at + 512);
        bytes[at..end].fill(if n % 2 == 0 { 0 } else { 0xa5 });
        std::fs::write(bad.join("db"), bytes).unwrap();
        let mut runs = Runs::new(Box::new(SledState::new(&bad)));
        let found = runs.open();
        let mut expected = 0..5000;
        let scanned = runs.scan(&mut |key, value| {
            let i = expected.next().expect("no more");
            let expected = (format!("/k{i:05}").into_bytes(), "v".repeat(i % 400).into_bytes());
            // What follows is void if a record is not what it was.
            if (key, value) == (&expected.0, &expected.1) { Ok(()) } else { Err("no".into()) }
        });
        // Nothing at all, and an older state, are honest answers.
        if let (Ok(Found::State(_)), Ok(())) = (found, scanned) {
            assert_eq!(expected.next(), None, "offset {at}");
        }
        let _leaked = std::mem::ManuallyDrop::new(runs);
    }
}

#[test]
fn what_is_set_aside_is_kept_and_the_oldest_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = SledState::new(&dir.path().join("state"));
    for _ in 0..4 {
        state.set_manifest(b"something").unwrap();
        state.set_aside().unwrap();
        assert_eq!(state.manifest().unwrap(), None, "it begins anew");
    }
    let mut names: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["state", "state.bad-3", "state.bad-4"]);
}

#[test]
fn a_cleared_store_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let mut runs = filled(&dir.path().join("state"));
    runs.clear().unwrap();
    assert_eq!(runs.open().unwrap(), Found::Nothing);
    assert!(runs.scan(&mut |_, _| Ok(())).is_err());
}
