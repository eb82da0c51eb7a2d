//! What becomes of a state store that fails, is full, or holds something else, one test each.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::checkpointer::{FAULTS_MAX, Outcome, Source};
use super::tests::Bench;
use crate::copy::StateStore as _;
use crate::fs::Fs;
use crate::testing::Fault;

#[test]
fn a_store_at_fault_is_set_aside_and_filled_by_a_full_pass() {
    for works_for in 0.. {
        let mut bench = Bench::new();
        let mut checkpointer = bench.checkpointer();
        let changes = bench.changes(10);
        checkpointer.apply(changes).unwrap();
        bench.log_grows();
        bench.store_works_for(Some(works_for));
        let changes = bench.changes(10);
        let outcome = checkpointer.apply(changes).unwrap();
        bench.store_works_for(None);
        if outcome == Outcome::Continue {
            assert_eq!(bench.images.list().unwrap(), [20]);
            assert!(works_for > 6, "a run, the manifest, a merge and the image were tried");
            return;
        }
        assert_eq!(outcome, Outcome::RecordsLost, "{works_for}");
        assert!(bench.images.list().unwrap().is_empty());
        // What was drained before the replica knew is ignored.
        let changes = bench.changes(10);
        assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
        assert!(bench.images.list().unwrap().is_empty());
        let changes = bench.full_pass();
        assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
        assert_eq!(bench.images.list().unwrap(), [30], "images go on");
    }
}

#[test]
fn a_store_without_room_is_emptied_and_no_copy_of_it_is_kept() {
    for works_for in 0..6 {
        let mut bench = Bench::new();
        bench.state.is_full = true;
        let mut checkpointer = bench.checkpointer();
        bench.log_grows();
        let changes = bench.changes(10);
        checkpointer.apply(changes).unwrap();
        assert_eq!(bench.images.list().unwrap(), [10]);
        bench.log_grows();
        bench.store_works_for(Some(works_for));
        let changes = bench.changes(10);
        let mut outcome = checkpointer.apply(changes).unwrap();
        for _ in 1..FAULTS_MAX {
            assert_eq!(outcome, Outcome::RecordsLost, "{works_for}");
            assert_eq!(bench.state.blocks(), []);
            bench.store_works_for(Some(0));
            let changes = bench.full_pass();
            outcome = checkpointer.apply(changes).unwrap();
        }
        assert_eq!(outcome, Outcome::RecordsLost);
        // Memory takes its place, and what room it had is free.
        let changes = bench.full_pass();
        assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::CutLog(10));
        assert_eq!(bench.images.list().unwrap(), [20, 10]);
        assert_eq!(bench.state.blocks(), []);
        assert_eq!(*bench.state.set_aside.lock().unwrap(), 0);
    }
}

#[test]
fn a_store_that_fails_behind_an_image_that_failed_is_at_fault() {
    let (mut image_alone, mut both) = (0, 0);
    for works_for in 0..12 {
        let mut bench = Bench::new();
        let mut checkpointer = bench.checkpointer();
        bench.log_grows();
        let changes = bench.changes(10);
        checkpointer.apply(changes).unwrap();
        bench.log_grows();
        bench.store_works_for(Some(works_for));
        bench.fs.fail_at(1, Fault::Error(ErrorKind::StorageFull));
        let changes = bench.changes(10);
        let outcome = checkpointer.apply(changes).unwrap();
        let is_broken = *bench.state.works_for.lock().unwrap() == Some(0)
            && bench.state.has_failed.load(Ordering::Relaxed);
        match outcome {
            Outcome::Continue => {
                assert!(!is_broken, "{works_for}");
                image_alone += 1;
            }
            outcome => {
                assert_eq!(outcome, Outcome::RecordsLost, "{works_for}");
                both += 1;
            }
        }
    }
    assert!(image_alone > 0 && both > 0, "{image_alone} {both}");
}

#[test]
fn a_store_that_has_room_again_is_filled_again() {
    let mut bench = Bench::new();
    bench.state.is_full = true;
    let mut checkpointer = bench.checkpointer();
    bench.log_grows();
    let changes = bench.changes(10);
    checkpointer.apply(changes).unwrap();
    bench.store_works_for(Some(1));
    let changes = bench.changes(10);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::RecordsLost);
    bench.store_works_for(None);
    let changes = bench.full_pass();
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
    bench.assert_stored();
}

#[test]
fn a_store_without_room_is_kept_as_long_as_there_is_no_image() {
    let mut bench = Bench::new();
    bench.state.is_full = true;
    let changes = bench.changes(10);
    bench.checkpointer().apply(changes).unwrap();
    // It is what the server came back from, and no image can be written of it.
    bench.source = Source::State(10);
    let mut checkpointer = bench.checkpointer();
    bench.fs.fail_at(1, Fault::Error(ErrorKind::StorageFull));
    assert_eq!(checkpointer.begin().unwrap(), Outcome::Continue);
    assert!(bench.images.list().unwrap().is_empty());
    bench.store_works_for(Some(1));
    let changes = bench.changes(10);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::RecordsLost);
    assert_eq!(*bench.state.set_aside.lock().unwrap(), 1);
}

#[test]
fn a_store_that_keeps_failing_is_replaced_by_memory_and_images_go_on() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    bench.store_works_for(Some(0));
    let changes = bench.changes(10);
    let mut outcome = checkpointer.apply(changes).unwrap();
    let mut passes = 0;
    while outcome == Outcome::RecordsLost {
        passes += 1;
        assert!(passes <= FAULTS_MAX);
        bench.log_grows();
        let changes = bench.full_pass();
        outcome = checkpointer.apply(changes).unwrap();
    }
    assert_eq!(bench.images.list().unwrap(), [10]);
}

#[test]
fn a_store_that_takes_everything_and_gives_nothing_back_is_replaced_as_well() {
    let mut bench = Bench::new();
    bench.state.cannot_be_read = true;
    let mut checkpointer = bench.checkpointer();
    bench.log_grows();
    let changes = bench.changes(10);
    let mut outcome = checkpointer.apply(changes).unwrap();
    for _ in 0..FAULTS_MAX {
        assert_eq!(outcome, Outcome::RecordsLost);
        let changes = bench.full_pass();
        outcome = checkpointer.apply(changes).unwrap();
    }
    assert_eq!(outcome, Outcome::Continue);
    assert_eq!(bench.images.list().unwrap(), [10]);
}

#[test]
fn a_store_with_other_contents_than_were_put_there_is_never_made_an_image() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(10);
    checkpointer.apply(changes).unwrap();
    // Another value for one key: as many records, but not the right ones.
    let [block] = bench.state.blocks()[..] else { panic!("there is little") };
    bench.state.alter(block, |bytes| *bytes.as_mut().unwrap().last_mut().unwrap() ^= 1);
    bench.log_grows();
    let changes = bench.changes(1);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::RecordsLost);
    assert!(bench.images.list().unwrap().is_empty());
}

#[test]
fn a_store_with_another_number_of_records_than_the_state_is_never_made_an_image() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let mut changes = bench.changes(10);
    changes.records = changes.records.iter().take(9).collect();
    bench.log_grows();
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::RecordsLost);
    assert!(bench.images.list().unwrap().is_empty());
    assert_eq!(bench.fs.list(Path::new("/image")).unwrap(), Vec::<String>::new());
    let changes = bench.full_pass();
    checkpointer.apply(changes).unwrap();
    assert_eq!(bench.images.list().unwrap(), [10]);
}

#[test]
fn a_store_that_changed_meanwhile_is_lost() {
    let mut bench = Bench::new();
    let changes = bench.changes(10);
    bench.checkpointer().apply(changes).unwrap();
    let [block] = bench.state.blocks()[..] else { panic!("there is little") };
    bench.state.alter(block, |bytes| *bytes = None);
    assert_eq!(bench.checkpointer().begin().unwrap(), Outcome::RecordsLost);
}

#[test]
fn a_store_older_than_the_image_or_missing_is_filled_anew() {
    let mut bench = Bench::new();
    bench.source = Source::Image(5);
    assert_eq!(bench.checkpointer().begin().unwrap(), Outcome::RecordsLost);
    bench.source = Source::Log;
    let changes = bench.changes(10);
    bench.checkpointer().apply(changes).unwrap();
    bench.source = Source::Image(11);
    assert_eq!(bench.checkpointer().begin().unwrap(), Outcome::RecordsLost);
    bench.assert_empty();
}

#[test]
fn a_store_of_an_earlier_version_is_filled_anew_and_one_of_a_later_is_set_aside() {
    for (version, source) in [(1, Source::Log), (1, Source::Image(10)), (3, Source::Image(10))] {
        let mut bench = Bench::new();
        bench.source = source;
        bench.changes(10);
        let mut manifest = vec![version, 0];
        manifest.extend_from_slice(&crc32c::crc32c(&manifest).to_le_bytes());
        bench.state.clone().set_manifest(&manifest).unwrap();
        let mut checkpointer = bench.checkpointer();
        assert_eq!(checkpointer.begin().unwrap(), Outcome::RecordsLost);
        bench.assert_empty();
        assert_eq!(*bench.state.set_aside.lock().unwrap(), u32::from(version == 3));
        checkpointer.apply(bench.full_pass()).unwrap();
        bench.assert_stored();
    }
}
