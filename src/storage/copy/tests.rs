//! What the runs promise, one test each, on a store that breaks on demand.

use std::collections::BTreeMap;

use super::compaction::{Merge, merge, scan};
use super::manifest::{Found, Manifest};
use super::run::{Run, RunWriter};
use super::runs::Runs;
use super::store::{BLOCK_BYTES, MemoryState, StateError, StateStore};
use crate::testing::TestState;
use crate::throttle::WorkBudget;
use lockkeeper_core::replica::{Mark, Record, Records};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs on a store, and what they should hold.
struct Bench {
    state: TestState,
    runs: Runs,
    model: Model,
    index: u64,
    put: Records,
}

impl Bench {
    fn new() -> Self {
        Self::collecting(4 * BLOCK_BYTES)
    }

    /// A run has at most about this many bytes at first.
    fn collecting(bytes: usize) -> Self {
        let state = TestState { collects: Some(bytes), ..TestState::default() };
        let runs = Runs::new(Box::new(state.clone()));
        Self { state, runs, model: Model::new(), index: 0, put: Records::default() }
    }

    /// Changes a key; it is of the next checkpoint.
    fn set(&mut self, key: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => drop(self.model.insert(key.into(), value.into())),
            None => drop(self.model.remove(key.as_bytes())),
        }
        self.put.push(key.as_bytes(), value);
    }

    fn mark(&self) -> Mark {
        Mark { index: self.index, records: self.model.len() as u64, ..Mark::default() }
    }

    fn close(&mut self) -> Result<(), StateError> {
        self.index += 1;
        self.runs.put(&std::mem::take(&mut self.put))?;
        self.runs.close(self.mark())
    }

    /// As after a restart.
    fn reopen(&mut self) -> Found {
        self.runs = Runs::new(Box::new(self.state.clone()));
        self.runs.open().unwrap()
    }

    fn manifest(&self) -> Manifest {
        let mut state = self.state.clone();
        match Manifest::read(&mut state).unwrap() {
            Found::State(manifest) => manifest,
            other => panic!("{other:?}"),
        }
    }

    fn scanned(&mut self) -> Result<Model, StateError> {
        let mut found = Model::new();
        self.runs.scan(&mut |key, value| {
            let last = found.last_key_value().map(|(key, _)| &key[..]);
            assert!(last.is_none_or(|last| last < key), "keys ascend");
            found.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    fn assert_kept(&mut self) {
        assert_eq!(self.scanned().unwrap(), self.model);
        // And nothing else is.
        let named: Vec<u64> = self.manifest().ids().collect();
        assert!(self.state.blocks().iter().all(|(run, _)| named.contains(run)));
    }
}

/// Numbers in no order.
fn scattered(i: u64, below: u64) -> u64 {
    (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) % below
}

#[test]
fn the_newest_record_of_a_key_counts_and_a_removed_one_is_gone() {
    let mut bench = Bench::new();
    for i in 0..400 {
        let key = format!("/k{}", scattered(i, 60));
        let value = vec![i as u8; (i % 90) as usize];
        bench.set(&key, (i % 4 > 0).then_some(&value));
        if i % 7 == 0 {
            bench.close().unwrap();
            bench.assert_kept();
        }
    }
    bench.close().unwrap();
    assert!(matches!(bench.reopen(), Found::State(_)));
    bench.assert_kept();
}

#[test]
fn a_removal_hides_older_values_and_vanishes_with_the_lowest_run() {
    let mut bench = Bench::new();
    for i in 0..1000 {
        bench.set(&format!("/k{i:04}"), Some(&[7; 100]));
    }
    bench.close().unwrap();
    bench.set("/k0500", None);
    bench.close().unwrap();
    bench.assert_kept();
    let removals = |bench: &Bench| bench.manifest().runs.iter().map(|run| run.removed).sum::<u64>();
    assert_eq!(removals(&bench), 1);
    // Until much is: then what it takes is given back, though removals are small.
    for i in 0..700 {
        bench.set(&format!("/k{i:04}"), None);
    }
    bench.close().unwrap();
    bench.assert_kept();
    assert_eq!(removals(&bench), 0);
    let [lowest] = &bench.manifest().runs[..] else { panic!("one run is left") };
    assert_eq!(lowest.records, 300);
}

#[test]
fn a_state_that_loses_all_its_records_but_one_leaves_one() {
    let mut bench = Bench::new();
    bench.set("a", Some(b"1"));
    bench.set("b", Some(b"2"));
    bench.close().unwrap();
    bench.set("a", None);
    bench.close().unwrap();
    bench.assert_kept();
    bench.set("b", None);
    bench.close().unwrap();
    assert_eq!(bench.manifest().runs, [], "nothing at all is a state as well");
    bench.assert_kept();
    assert_eq!(bench.state.blocks(), []);
}

#[test]
fn records_longer_than_a_block_and_empty_ones_come_back() {
    let mut bench = Bench::new();
    let lengths = [0, 1, BLOCK_BYTES - 9, BLOCK_BYTES, 3 * BLOCK_BYTES + 5, 0, 200_000, 2];
    for (i, len) in lengths.into_iter().enumerate() {
        bench.set(&format!("/{i}"), Some(&vec![i as u8; len]));
    }
    bench.set("", Some(b"the shortest key"));
    bench.close().unwrap();
    bench.assert_kept();
    assert!(bench.state.blocks().len() > 200_000 / BLOCK_BYTES);
}

#[test]
fn many_tiny_checkpoints_leave_few_runs() {
    let mut bench = Bench::new();
    let mut most = 0;
    for i in 0..20_000 {
        bench.set("clock", Some(&i.to_string().into_bytes()));
        bench.set(&format!("/k{}", scattered(i, 5000)), Some(&[1; 40]));
        bench.close().unwrap();
        most = most.max(bench.manifest().runs.len());
    }
    assert!(most <= 32, "{most} runs");
    bench.assert_kept();
}

#[test]
fn what_is_stored_stays_in_proportion_to_the_state() {
    let mut bench = Bench::new();
    let bytes = |bench: &Bench| bench.manifest().runs.iter().map(|run| run.bytes).sum::<u64>();
    for i in 0..3000 {
        bench.set(&format!("/k{i}"), Some(&[1; 60]));
    }
    bench.close().unwrap();
    let one = bytes(&bench);
    for i in 0..30_000 {
        bench.set(&format!("/k{}", scattered(i, 3000)), Some(&[2; 60]));
        if i % 100 == 0 {
            bench.close().unwrap();
            assert!(bytes(&bench) <= 3 * one + one / 8, "{} of {one}", bytes(&bench));
        }
    }
    bench.close().unwrap();
    bench.assert_kept();
}

#[test]
fn a_checkpoint_of_many_runs_is_merged_on_its_way() {
    let mut bench = Bench::new();
    for i in 0..20_000 {
        bench.set(&format!("/k{}", scattered(i, 1 << 40)), Some(&[3; 50]));
    }
    bench.runs.put(&std::mem::take(&mut bench.put)).unwrap();
    assert_eq!(bench.state.mark(), None, "it is not complete");
    let mut runs: Vec<u64> = bench.state.blocks().iter().map(|(run, _)| *run).collect();
    runs.dedup();
    assert!((2..20).contains(&runs.len()), "{} runs of about 60", runs.len());
    bench.close().unwrap();
    bench.assert_kept();
}

/// A closed checkpoint, and changes that make the next one merge everything.
fn before_a_merge() -> Bench {
    let mut bench = Bench::new();
    for round in 0..3 {
        for i in 0..300 - round * 100 {
            bench.set(&format!("/k{i}"), Some(&[round as u8; 150]));
        }
        bench.close().unwrap();
    }
    for i in 100..1100 {
        bench.set(&format!("/k{i}"), (i % 5 > 0).then_some(&[9; 130]));
    }
    bench
}

#[test]
fn a_kill_anywhere_in_a_checkpoint_or_a_merge_leaves_a_complete_state() {
    let (mut old, mut new, mut merged) = (0, 0, 0);
    for works_for in 0.. {
        let mut bench = before_a_merge();
        let before = bench.manifest();
        let (old_model, put) = {
            let mut runs = Runs::new(Box::new(bench.state.clone()));
            runs.open().unwrap();
            let mut model = Model::new();
            let mut take = |key: &[u8], value: &[u8]| {
                model.insert(key.to_vec(), value.to_vec());
                Ok(())
            };
            runs.scan(&mut take).unwrap();
            (model, bench.put.clone())
        };
        *bench.state.works_for.lock().unwrap() = Some(works_for);
        let closed = bench.close();
        *bench.state.works_for.lock().unwrap() = None;
        assert!(matches!(bench.reopen(), Found::State(_)));
        if bench.manifest().mark == before.mark {
            let new_model = std::mem::replace(&mut bench.model, old_model);
            bench.assert_kept();
            // And goes on: what was lost is drained again.
            (bench.model, bench.put) = (new_model, put);
            bench.close().unwrap();
            old += 1;
        } else {
            new += 1;
            merged += u32::from(bench.manifest().runs.len() == 1);
        }
        bench.assert_kept();
        if closed.is_ok() {
            assert!(old > 5 && new > 20 && merged > 1, "{old} {new} {merged}");
            return;
        }
    }
}

/// Every block of a store of several runs.
fn several_runs() -> Bench {
    let mut bench = Bench::collecting(16 * BLOCK_BYTES);
    for count in [900, 200, 30] {
        for i in 0..count {
            bench.set(&format!("/k{i}"), Some(&[count as u8; 60]));
        }
        bench.close().unwrap();
    }
    assert_eq!(bench.manifest().runs.len(), 3);
    bench
}

#[test]
fn a_block_that_is_lost_cut_longer_or_changed_is_noticed() {
    type Alter = fn(&mut Option<Box<[u8]>>);
    let alterations: [Alter; 6] = [
        |block| *block = None,
        |block| *block = Some([].into()),
        |block| *block = block.take().map(|bytes| bytes[..bytes.len() - 1].into()),
        |block| *block = block.take().map(|bytes| [&bytes[..], b"x"].concat().into()),
        |block| block.as_mut().unwrap()[0] ^= 0x80,
        |block| *block.as_mut().unwrap().last_mut().unwrap() ^= 1,
    ];
    for at in several_runs().state.blocks() {
        for (which, alter) in alterations.into_iter().enumerate() {
            let mut bench = several_runs();
            bench.state.alter(at, alter);
            bench.reopen();
            assert!(bench.scanned().is_err(), "alteration {which} of {at:?}");
        }
    }
}

#[test]
fn a_block_of_another_place_or_of_another_run_is_noticed() {
    let blocks = several_runs().state.blocks();
    for a in &blocks {
        for b in blocks.iter().filter(|b| *b > a) {
            let mut bench = several_runs();
            let (mut of_a, mut of_b) = (None, None);
            bench.state.alter(*a, |bytes| of_a = bytes.clone());
            bench.state.alter(*b, |bytes| of_b = std::mem::replace(bytes, of_a));
            bench.state.alter(*a, |bytes| *bytes = of_b);
            assert!(bench.scanned().is_err(), "{a:?} and {b:?}");
        }
    }
}

#[test]
fn a_block_as_it_was_in_an_earlier_life_of_its_run_is_noticed() {
    // The same run number, written again after a state from before it came back.
    let mut bench = several_runs();
    let earlier = several_runs();
    bench.set("/k1", Some(b"another value"));
    bench.close().unwrap();
    let mut other = earlier;
    other.set("/k1", Some(b"one more value"));
    other.close().unwrap();
    let at = *bench.state.blocks().last().unwrap();
    assert_eq!(Some(&at), other.state.blocks().last());
    let mut stale = None;
    other.state.alter(at, |bytes| stale = bytes.clone());
    bench.state.alter(at, |bytes| *bytes = stale);
    assert!(bench.scanned().is_err());
}

#[test]
fn a_merge_of_damaged_runs_fails_and_names_the_run() {
    let mut bench = several_runs();
    let damaged = bench.manifest().runs[0].id;
    bench.state.alter((damaged, 1), |bytes| bytes.as_mut().unwrap()[7] ^= 1);
    let before = bench.manifest();
    for i in 0..2000 {
        bench.set(&format!("/more{i}"), Some(&[1; 60]));
    }
    let error = bench.close().unwrap_err();
    assert!(error.what.contains(&format!("run {damaged} of 900 records")), "{error}");
    assert_ne!(bench.manifest(), before, "the checkpoint was complete before");
}

#[test]
fn a_store_from_an_earlier_moment_is_that_state_or_found_wrong() {
    let mut bench = several_runs();
    let (then, model) = (bench.state.twin(), bench.model.clone());
    for i in 0..3000 {
        bench.set(&format!("/k{i}"), Some(&[5; 60]));
    }
    bench.close().unwrap();
    // All of it from before.
    let now = std::mem::replace(&mut bench.state, then.twin());
    bench.reopen();
    assert_eq!(bench.scanned().unwrap(), model);
    // The manifest of one moment and the blocks of the other.
    for (manifest, blocks) in [(&now, &then), (&then, &now)] {
        bench.state = blocks.twin();
        let manifest = manifest.clone().manifest().unwrap().unwrap();
        bench.state.set_manifest(&manifest).unwrap();
        bench.reopen();
        assert!(bench.scanned().is_err());
    }
}

#[test]
fn a_state_with_another_number_of_records_is_not_scanned_nor_merged() {
    let mut bench = several_runs();
    let mark = Mark { records: bench.model.len() as u64 + 1, ..bench.mark() };
    bench.runs.close(mark.clone()).unwrap();
    let error = bench.scanned().unwrap_err();
    assert!(error.what.contains("has 900 records at index 3, the state has 901"), "{error}");
    for i in 0..900 {
        bench.set(&format!("/k{i}"), Some(&[4; 200]));
    }
    bench.runs.put(&bench.put).unwrap();
    assert!(bench.runs.close(mark).is_err());
}

#[test]
fn keys_of_a_run_that_do_not_ascend_are_refused() {
    for keys in [["/b", "/a"], ["/a", "/a"]] {
        let mut store = MemoryState::default();
        let mut writer = RunWriter::new(1);
        let record = |key: &'static str| Record { key: key.as_bytes(), value: None };
        writer.record(&mut store, record(keys[0])).unwrap();
        let error = writer.record(&mut store, record(keys[1])).unwrap_err();
        assert!(error.what.contains("do not ascend"), "{error}");
    }
}

#[test]
fn a_manifest_that_promises_more_than_memory_is_no_reason_to_take_it() {
    let mut store = MemoryState::default();
    store.put_block(1, 0, &[0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 1]).unwrap();
    let run = Run { id: 1, blocks: 1, records: 1, bytes: 9, ..Run::default() };
    let manifest = Manifest { mark: Mark::default(), runs: vec![run] };
    assert!(scan(&mut store, &manifest, None, &WorkBudget::default(), &mut |_, _| Ok(())).is_err());
}

#[test]
fn an_objection_while_scanning_is_given_back_and_nothing_is_wrong() {
    let mut bench = several_runs();
    let error = bench.runs.scan(&mut |_, _| Err("no".to_owned())).unwrap_err();
    assert_eq!(error.what, "no");
    bench.assert_kept();
}

/// As for an image.
fn scan_and_merge(bench: &mut Bench) -> Result<Model, StateError> {
    let mut found = Model::new();
    bench.runs.scan_and_merge(&mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        Ok(())
    })?;
    Ok(found)
}

/// Runs of which the newer ones come to about as much as the lowest.
fn worth_a_copy() -> Bench {
    let mut bench = several_runs();
    for i in 600..1300 {
        bench.set(&format!("/k{i}"), (i % 5 > 0).then_some(&[1; 60]));
    }
    bench.close().unwrap();
    assert_eq!(bench.manifest().runs.len(), 4);
    bench
}

#[test]
fn what_is_read_for_an_image_is_one_run_afterwards() {
    let mut bench = worth_a_copy();
    assert_eq!(scan_and_merge(&mut bench).unwrap(), bench.model);
    let [lowest] = &bench.manifest().runs[..] else { panic!("there are several") };
    assert_eq!((lowest.records, lowest.removed), (bench.model.len() as u64, 0));
    bench.assert_kept();
    // It goes on from there, also after a restart.
    bench.reopen();
    bench.set("/k7", None);
    bench.close().unwrap();
    bench.assert_kept();
}

#[test]
fn few_changes_are_no_reason_to_write_a_state_again() {
    let mut bench = several_runs();
    let before = bench.manifest();
    assert_eq!(scan_and_merge(&mut bench).unwrap(), bench.model);
    assert_eq!(bench.manifest(), before);
}

#[test]
fn nothing_is_left_of_a_state_without_records_that_is_read_for_an_image() {
    let mut bench = Bench::new();
    bench.close().unwrap();
    assert_eq!(scan_and_merge(&mut bench).unwrap(), Model::new());
    assert_eq!((bench.manifest().runs, bench.state.blocks()), (vec![], vec![]));
}

#[test]
fn an_image_that_cannot_be_written_leaves_the_runs_as_they_were() {
    let mut bench = worth_a_copy();
    let before = bench.manifest();
    let mut left = 500;
    let error = bench.runs.scan_and_merge(&mut |_, _| {
        left -= 1;
        if left == 0 { Err("no room".to_owned()) } else { Ok(()) }
    });
    assert_eq!(error.unwrap_err().what, "no room");
    assert_eq!(bench.manifest(), before);
    bench.runs.remove_unnamed().unwrap();
    bench.assert_kept();
    scan_and_merge(&mut bench).unwrap();
    bench.assert_kept();
}

#[test]
fn runs_that_no_checkpoint_names_yet_stay_when_the_others_become_one() {
    let mut bench = worth_a_copy();
    let model = bench.model.clone();
    for i in 0..4000 {
        bench.set(&format!("/new{i}"), Some(&[2; 90]));
    }
    // Most of the next checkpoint is stored, and it is not complete.
    bench.runs.put(&std::mem::take(&mut bench.put)).unwrap();
    assert_eq!(scan_and_merge(&mut bench).unwrap(), model);
    assert_eq!(bench.manifest().runs.len(), 1);
    bench.close().unwrap();
    bench.assert_kept();
}

#[test]
fn a_kill_anywhere_while_runs_become_one_leaves_a_complete_state() {
    let (mut old, mut new) = (0, 0);
    for works_for in 0.. {
        let mut bench = worth_a_copy();
        *bench.state.works_for.lock().unwrap() = Some(works_for);
        let merged = scan_and_merge(&mut bench);
        *bench.state.works_for.lock().unwrap() = None;
        assert!(matches!(bench.reopen(), Found::State(_)));
        match bench.manifest().runs.len() {
            1 => new += 1,
            _ => old += 1,
        }
        bench.assert_kept();
        if merged.is_ok() {
            assert!(old > 20 && new > 1, "{old} {new}");
            return;
        }
    }
}

#[test]
fn a_store_that_has_no_room_for_a_copy_says_so_and_is_not_used_again() {
    let mut bench = worth_a_copy();
    bench.state.is_full = true;
    bench.runs = Runs::new(Box::new(bench.state.clone()));
    bench.runs.open().unwrap();
    *bench.state.works_for.lock().unwrap() = Some(15);
    let error = scan_and_merge(&mut bench).unwrap_err();
    assert!(error.is_full, "{error}");
    assert_eq!(error.what, "broken");
}

#[test]
fn runs_are_not_written_once_more_where_an_image_may_need_the_room() {
    let mut bench = worth_a_copy();
    let before = bench.manifest();
    let bytes: u64 = before.runs.iter().map(|run| run.bytes).sum();
    let mut with_room = |room: u64| {
        bench.state.room = Some(room);
        bench.reopen();
        assert_eq!(scan_and_merge(&mut bench).unwrap(), bench.model);
        bench.assert_kept();
        bench.manifest()
    };
    assert_eq!(with_room(3 * bytes - 1), before);
    assert_eq!(with_room(3 * bytes).runs.len(), 1);
}

#[test]
fn damaged_runs_do_not_become_one() {
    let mut bench = worth_a_copy();
    let damaged = bench.manifest().runs[1].id;
    bench.state.alter((damaged, 1), |bytes| bytes.as_mut().unwrap()[7] ^= 1);
    let before = bench.manifest();
    assert!(scan_and_merge(&mut bench).is_err());
    assert_eq!(bench.manifest(), before);
}

#[test]
fn runs_of_any_kind_merge_to_what_a_map_would_hold() {
    for seed in 0..60 {
        let mut store = MemoryState::default();
        let mut runs = Vec::new();
        let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for id in 0..scattered(seed, 9) {
            let mut of_run = BTreeMap::new();
            for i in 0..scattered(seed * 31 + id, 40) {
                let number = scattered(seed << 20 | id << 10 | i, 50);
                let value = (!number.is_multiple_of(3)).then(|| vec![id as u8; number as usize]);
                of_run.insert(number.to_be_bytes().to_vec(), value);
            }
            let mut writer = RunWriter::new(id);
            for (key, value) in &of_run {
                writer.record(&mut store, Record { key, value: value.as_deref() }).unwrap();
            }
            runs.push(writer.finish(&mut store).unwrap());
            model.extend(of_run);
        }
        for is_lowest in [false, true] {
            let merged = merge(&mut store, &runs, 100, is_lowest, &WorkBudget::default()).unwrap();
            let mut reader = Merge::new(&mut store, &[merged], &WorkBudget::default()).unwrap();
            let mut found = BTreeMap::new();
            while reader.advance(&mut store).unwrap() {
                let Record { key, value } = reader.record();
                found.insert(key.to_vec(), value.map(<[u8]>::to_vec));
            }
            let mut expected = model.clone();
            expected.retain(|_, value| value.is_some() || !is_lowest);
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}
