//! What the checkpointer promises, one test each; the state store is a model that breaks on demand.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::checkpointer::{Checkpointer, Ingredients, Outcome, Source};
use super::log_since_image::IMAGE_OVERDUE_TIMES;
use crate::copy::{Found, Manifest, Runs, scan};
use crate::fs::Fs;
use crate::image::Images;
use crate::testing::{Fault, Machine, TestFs, TestState, entry};
use crate::throttle::WorkBudget;
use lockkeeper_core::replica::{Changes, Mark, Restore};

const EVERY: u64 = 1000;

pub(crate) struct Bench {
    pub(crate) fs: TestFs,
    pub(crate) state: TestState,
    pub(crate) images: Images,
    pub(crate) written: Arc<AtomicU64>,
    pub(crate) machine: Machine,
    pub(crate) source: Source,
    pub(crate) log_last: u64,
    pub(crate) ensemble: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let fs = TestFs::default();
        fs.create_dir(Path::new("/image")).unwrap();
        Self {
            images: Images::new(Arc::new(fs.clone()), Path::new("/image"), 1),
            fs,
            state: TestState::default(),
            written: Arc::default(),
            machine: Machine::default(),
            source: Source::Log,
            log_last: 1_000_000,
            ensemble: false,
        }
    }

    pub(crate) fn checkpointer(&self) -> Checkpointer {
        Checkpointer::new(Ingredients {
            state: Runs::new(Box::new(self.state.clone())),
            record_digest: self.machine.record_digest(),
            images: self.images.clone(),
            source: self.source,
            image: None,
            ensemble: self.ensemble,
            log_last: self.log_last,
            image_bytes: 0,
            written: Arc::clone(&self.written),
            written_at_image: 0,
            image_every_bytes: EVERY,
        })
    }

    /// Applies entries and gives what changed, with a mark.
    pub(crate) fn changes(&mut self, count: u64) -> Changes {
        for _ in 0..count {
            let index = self.machine.applied + 1;
            let data = format!("/k{}={index}", index % 50);
            self.machine.entry(&entry(index, 1, data)).unwrap();
        }
        let records = self.machine.drain();
        Changes { begins_full_pass: false, records, mark: Some(self.machine.mark()) }
    }

    pub(crate) fn full_pass(&mut self) -> Changes {
        let records = self.machine.all();
        Changes { begins_full_pass: true, records, mark: Some(self.machine.mark()) }
    }

    pub(crate) fn stored(&self) -> Machine {
        let mut machine = Machine::default();
        let mut state = self.state.clone();
        let Found::State(manifest) = Manifest::read(&mut state).unwrap() else {
            panic!("no complete checkpoint");
        };
        let mut take = |key: &[u8], value: &[u8]| machine.record(key, value);
        scan(&mut state, &manifest, None, &WorkBudget::default(), &mut take).unwrap();
        let mark = manifest.mark;
        machine.finish(&mark).unwrap();
        machine
    }

    pub(crate) fn assert_stored(&self) {
        assert_eq!(self.stored().records, self.machine.records);
    }

    /// So many calls of the store, then none; `None`: all.
    pub(crate) fn store_works_for(&self, calls: Option<u32>) {
        *self.state.works_for.lock().unwrap() = calls;
    }

    pub(crate) fn log_grows(&self) {
        self.written.fetch_add(EVERY, Ordering::Relaxed);
    }
}

#[test]
fn no_image_is_written_of_records_that_are_not_the_state() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let _done = checkpointer.apply(bench.changes(50)).unwrap();
    bench.log_grows();
    // As many records as there should be, each as it was put there; but one change never was.
    let mut changes = bench.changes(10);
    changes.records = changes.records.iter().filter(|record| record.key != b"/k3").collect();
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::RecordsLost);
    assert_eq!(checkpointer.images().written, 0);
    assert!(bench.images.list().unwrap().is_empty());
    // The machine has it still.
    let _done = checkpointer.apply(bench.full_pass()).unwrap();
    assert_eq!(bench.images.list().unwrap(), [60]);
}

#[test]
fn a_mark_completes_a_checkpoint() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    assert_eq!(checkpointer.begin().unwrap(), Outcome::Continue);
    for count in [10, 70, 3] {
        let changes = bench.changes(count);
        assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
        bench.assert_stored();
    }
    assert!(bench.images.list().unwrap().is_empty(), "there is little log yet");
}

#[test]
fn an_image_is_overdue_while_no_checkpoint_completes_and_the_log_grows() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    for _ in 0..IMAGE_OVERDUE_TIMES {
        bench.log_grows();
        let changes = Changes { mark: None, ..bench.changes(1) };
        checkpointer.apply(changes).unwrap();
        assert!(!checkpointer.is_image_overdue());
    }
    bench.log_grows();
    assert!(checkpointer.is_image_overdue());
    assert_eq!(checkpointer.since_image().bytes(), EVERY * (IMAGE_OVERDUE_TIMES + 1));
    let changes = bench.changes(1);
    checkpointer.apply(changes).unwrap();
    assert!(!checkpointer.is_image_overdue());
    assert_eq!(checkpointer.since_image().bytes(), 0);
}

#[test]
fn removed_records_are_removed() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(20);
    checkpointer.apply(changes).unwrap();
    for (i, key) in ["/k3", "/k4"].into_iter().enumerate() {
        bench.machine.entry(&entry(21 + i as u64, 1, key)).unwrap();
    }
    let changes = bench.changes(1);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
    bench.assert_stored();
    assert_eq!(bench.stored().records.len(), 19);
}

#[test]
fn changes_without_a_mark_are_collected_so_that_a_busy_key_is_written_once() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    for _ in 0..5 {
        let changes = Changes { mark: None, ..bench.changes(60) };
        checkpointer.apply(changes).unwrap();
        assert_eq!(bench.state.blocks(), [], "nothing is written before the mark");
    }
    let changes = bench.changes(1);
    checkpointer.apply(changes).unwrap();
    bench.assert_stored();
}

#[test]
fn a_checkpoint_that_was_not_completed_leaves_the_one_before_as_it_was() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(10);
    checkpointer.apply(changes).unwrap();
    let complete = bench.stored();
    let blocks = bench.state.blocks();
    let big = format!("/big={}", "x".repeat(9 << 20));
    bench.machine.entry(&entry(11, 1, big)).unwrap();
    let changes = Changes { mark: None, ..bench.changes(1) };
    checkpointer.apply(changes).unwrap();
    assert!(bench.state.blocks().len() > blocks.len() + 1000, "much is written before the mark");
    assert!(bench.stored() == complete);
    // After a restart now it is what is gone on from, and the rest is removed.
    let mut again = bench.checkpointer();
    assert_eq!(again.begin().unwrap(), Outcome::Continue);
    assert_eq!(bench.state.blocks(), blocks);
    let records = bench.machine.all();
    let mark = Some(bench.machine.mark());
    again.apply(Changes { begins_full_pass: false, records, mark }).unwrap();
    bench.assert_stored();
}

#[test]
fn an_image_that_is_wanted_in_the_middle_of_a_checkpoint_is_written_of_the_one_before() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(10);
    checkpointer.apply(changes).unwrap();
    let begun = Changes { mark: None, ..bench.changes(5) };
    checkpointer.apply(begun).unwrap();
    assert_eq!(checkpointer.wanted(7), Outcome::Continue);
    assert_eq!(bench.images.list().unwrap(), [10]);
}

#[test]
fn the_log_is_cut_to_the_older_of_two_verified_images() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        bench.log_grows();
        let changes = bench.changes(10);
        outcomes.push(checkpointer.apply(changes).unwrap());
    }
    use Outcome::{Continue, CutLog};
    assert_eq!(outcomes, [Continue, CutLog(10), CutLog(20), CutLog(30)]);
    assert_eq!(bench.images.list().unwrap(), [40, 30]);
}

#[test]
fn an_image_that_is_there_already_is_not_written_twice_and_counts_once() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    for _ in 0..2 {
        bench.log_grows();
        let changes = bench.changes(10);
        checkpointer.apply(changes).unwrap();
    }
    assert_eq!(bench.images.list().unwrap(), [20, 10]);
    // Another server asks for a later one, again and again, before there is a checkpoint of that.
    for _ in 0..3 {
        assert_eq!(checkpointer.wanted(25), Outcome::Continue);
    }
    assert_eq!(bench.images.list().unwrap(), [20, 10]);
    // Without the older one, there is one image, however often that is written.
    assert_eq!(checkpointer.damaged(10), Outcome::Continue);
    assert_eq!(checkpointer.images().written, 2);
    // What was asked for is written as soon as there is something to write it from, and that is the
    // second one.
    let changes = bench.changes(5);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::CutLog(20));
    assert_eq!(bench.images.list().unwrap(), [25, 20]);
}

#[test]
fn an_image_that_was_loaded_counts_as_verified() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    bench.log_grows();
    let changes = bench.changes(10);
    checkpointer.apply(changes).unwrap();
    bench.source = Source::Image(10);
    let mut again = bench.checkpointer();
    assert_eq!(again.begin().unwrap(), Outcome::Continue);
    bench.log_grows();
    let changes = bench.changes(5);
    assert_eq!(again.apply(changes).unwrap(), Outcome::CutLog(10));
}

#[test]
fn images_are_spaced_by_their_own_size() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let big = format!("/big={}", "x".repeat(5000));
    bench.machine.entry(&entry(1, 1, big)).unwrap();
    for expected in [1, 1, 1, 1, 1, 1, 2] {
        bench.log_grows();
        let changes = bench.changes(1);
        checkpointer.apply(changes).unwrap();
        assert_eq!(bench.images.list().unwrap().len(), expected);
    }
}

#[test]
fn an_image_that_cannot_be_written_is_tried_again_and_nothing_is_cut() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    bench.log_grows();
    bench.fs.fail_at(3, Fault::Error(ErrorKind::StorageFull));
    let changes = bench.changes(10);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
    assert!(bench.fs.files().is_empty(), "the unfinished file is removed");
    bench.assert_stored();
    let changes = bench.changes(1);
    checkpointer.apply(changes).unwrap();
    assert!(bench.images.list().unwrap().is_empty(), "not at once");
    bench.log_grows();
    let changes = bench.changes(1);
    checkpointer.apply(changes).unwrap();
    assert_eq!(bench.images.list().unwrap(), [12]);
}

#[test]
fn after_a_restart_the_store_is_verified_and_continued() {
    let mut bench = Bench::new();
    let changes = bench.changes(10);
    bench.checkpointer().apply(changes).unwrap();
    // The server died later than the checkpoint: what changed since the log's begin comes again.
    bench.machine.restart();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(15);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
    bench.assert_stored();
}

#[test]
fn a_checkpoint_beyond_the_end_of_the_log_ends_the_server() {
    let mut bench = Bench::new();
    let changes = bench.changes(10);
    bench.checkpointer().apply(changes).unwrap();
    bench.log_last = 9;
    let error = bench.checkpointer().begin().unwrap_err().to_string();
    assert!(error.contains("state at index 10, but the log ends at 9"), "{error}");
    bench.assert_stored();
}

impl Bench {
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.state.mark(), None);
        assert_eq!(self.state.blocks(), []);
    }
}

#[test]
fn a_start_from_the_store_alone_writes_an_image_before_it_touches_the_store() {
    let mut bench = Bench::new();
    let changes = bench.changes(30);
    let mut checkpointer = bench.checkpointer();
    checkpointer.apply(changes).unwrap();
    drop(checkpointer);
    assert!(bench.images.list().unwrap().is_empty());
    bench.source = Source::State(30);
    assert_eq!(bench.checkpointer().begin().unwrap(), Outcome::Continue);
    assert_eq!(bench.images.list().unwrap(), [30]);
}

/// An image of a later state, as if another server had sent it and the log thread installed it.
fn install(bench: &mut Bench) -> Mark {
    bench.machine.restart();
    (bench.machine.applied, bench.machine.term) = (500, 3);
    bench.machine.records.insert(b"/far".to_vec(), b"away".to_vec());
    let mark = bench.machine.mark();
    let mut writer = bench.images.create(&mark).unwrap();
    writer.record(b"/far", b"away").unwrap();
    writer.finish().unwrap();
    mark
}

#[test]
fn an_installed_image_replaces_all_older_ones_and_the_next_cuts_the_log_to_it() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    for _ in 0..3 {
        bench.log_grows();
        let changes = bench.changes(10);
        checkpointer.apply(changes).unwrap();
    }
    assert_eq!(checkpointer.newest().unwrap().index, 30);
    let mark = install(&mut bench);
    checkpointer.installed(&mark);
    assert_eq!(bench.images.list().unwrap(), [500]);
    assert_eq!(checkpointer.newest(), Some(&mark));
    assert_eq!(checkpointer.since_image().bytes(), 0);
    bench.log_grows();
    let changes = bench.full_pass();
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue, "it is that image");
    bench.assert_stored();
    bench.log_grows();
    let changes = bench.changes(10);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::CutLog(500));
    assert_eq!(bench.images.list().unwrap(), [510, 500]);
}

#[test]
fn what_was_said_of_the_state_before_an_installed_image_is_ignored() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let begun = Changes { mark: None, ..bench.changes(10) };
    checkpointer.apply(begun).unwrap();
    let late = bench.changes(10);
    let mark = install(&mut bench);
    checkpointer.installed(&mark);
    bench.log_grows();
    assert_eq!(checkpointer.apply(late).unwrap(), Outcome::Continue);
    bench.assert_empty();
    let changes = bench.full_pass();
    checkpointer.apply(changes).unwrap();
    bench.assert_stored();
    assert_eq!(bench.stored().records.len(), 1, "nothing of the state before is among them");
}

#[test]
fn a_store_that_fails_when_an_image_is_installed_is_filled_all_the_same() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(10);
    checkpointer.apply(changes).unwrap();
    let mark = install(&mut bench);
    bench.store_works_for(Some(0));
    checkpointer.installed(&mark);
    bench.log_grows();
    let changes = bench.full_pass();
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::Continue);
    bench.log_grows();
    let changes = bench.changes(1);
    assert_eq!(checkpointer.apply(changes).unwrap(), Outcome::CutLog(500));
}

#[test]
fn on_an_ensemble_a_log_that_lost_its_end_is_to_be_fetched_again() {
    let mut bench = Bench::new();
    let changes = bench.changes(10);
    bench.checkpointer().apply(changes).unwrap();
    bench.log_last = 9;
    bench.ensemble = true;
    let error = bench.checkpointer().begin().unwrap_err().to_string();
    assert!(error.contains("lockkeeper server --rejoin"), "{error}");
}

#[test]
fn an_image_found_damaged_later_is_set_aside_and_another_one_written_at_once() {
    let mut bench = Bench::new();
    let mut checkpointer = bench.checkpointer();
    let changes = bench.changes(10);
    bench.log_grows();
    checkpointer.apply(changes).unwrap();
    assert_eq!(bench.images.list().unwrap(), [10]);
    // The store holds exactly that state still.
    assert_eq!(checkpointer.damaged(10), Outcome::Continue);
    assert_eq!(bench.images.list().unwrap(), [10]);
    assert_eq!(checkpointer.newest().map(|mark| mark.index), Some(10));
    let aside = bench.fs.list(Path::new("/image")).unwrap();
    assert_eq!(aside.iter().filter(|name| name.ends_with(".bad")).count(), 1, "{aside:?}");
    // Without a complete checkpoint the next one is waited for, but no log.
    bench.store_works_for(Some(0));
    assert_eq!(checkpointer.damaged(10), Outcome::RecordsLost);
    bench.store_works_for(None);
    assert_eq!((checkpointer.newest(), bench.images.list().unwrap()), (None, vec![]));
    bench.changes(5);
    checkpointer.apply(bench.full_pass()).unwrap();
    assert_eq!(bench.images.list().unwrap(), [15]);
    assert_eq!(checkpointer.damaged(10), Outcome::Continue, "that one is gone");
    assert_eq!(bench.images.list().unwrap(), [15]);
}
