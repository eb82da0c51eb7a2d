//! What images promise, one test each.

use std::path::Path;
use std::sync::Arc;

use super::fs::Fs;
use super::image::{ImageError, Images};
use super::testing::{Fault, Machine, TestFs, UNSYNCED};
use crate::replica::{Mark, Restore};

const DIR: &str = "/image";

fn images(fs: &TestFs) -> Images {
    fs.create_dir(Path::new(DIR)).unwrap();
    Images::new(Arc::new(fs.clone()), Path::new(DIR), 0x5eed)
}

fn machine(index: u64, records: u64) -> Machine {
    let mut machine = Machine { applied: index, term: 2, ..Machine::default() };
    for i in 0..records {
        machine.records.insert(format!("/k{i:04}").into(), vec![b'v'; i as usize % 50]);
    }
    machine
}

fn write(images: &Images, machine: &Machine) -> Result<u64, ImageError> {
    let mut writer = images.create(&machine.mark())?;
    for (key, value) in &machine.records {
        writer.record(key, value)?;
    }
    writer.finish()
}

fn load(images: &Images, index: u64) -> Result<Machine, ImageError> {
    let mut machine = Machine::default();
    let reader = images.open(index)?;
    let mark: Mark = reader.mark().clone();
    reader.read(&mut |key, value| machine.record(key, value))?;
    machine.finish(&mark).unwrap();
    Ok(machine)
}

#[test]
fn an_image_gives_back_the_state_and_its_mark() {
    let fs = TestFs::default();
    let images = images(&fs);
    for (index, records) in [(1, 0), (2, 1), (3, 30_000)] {
        let machine = machine(index, records);
        let bytes = write(&images, &machine).unwrap();
        assert_eq!(images.open(index).unwrap().len(), bytes);
        assert_eq!(load(&images, index).unwrap(), machine);
    }
    assert_eq!(images.list().unwrap(), [3, 2, 1]);
    images.retain(&[3, 1]).unwrap();
    assert_eq!(images.list().unwrap(), [3, 1]);
}

#[test]
fn a_record_may_be_larger_than_a_chunk() {
    let fs = TestFs::default();
    let images = images(&fs);
    let mut machine = machine(5, 3);
    machine.records.insert(b"/k0001x".to_vec(), vec![7; 3 << 20]);
    write(&images, &machine).unwrap();
    assert_eq!(load(&images, 5).unwrap(), machine);
}

#[test]
fn every_changed_byte_is_refused() {
    let fs = TestFs::default();
    let images = images(&fs);
    write(&images, &machine(9, 20)).unwrap();
    let path = images.path(9);
    let whole = fs.contents(&path);
    for at in 0..whole.len() {
        for bit in [0, 6] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs.plant(&path, bytes);
            let error = load(&images, 9).unwrap_err();
            assert!(error.to_string().starts_with("/image/0000000000000009.image: "), "{error}");
        }
    }
}

#[test]
fn every_cut_and_every_addition_is_refused() {
    let fs = TestFs::default();
    let images = images(&fs);
    write(&images, &machine(9, 20)).unwrap();
    let path = images.path(9);
    let whole = fs.contents(&path);
    for len in 0..whole.len() {
        fs.plant(&path, whole[..len].to_vec());
        load(&images, 9).unwrap_err();
    }
    fs.plant(&path, [&whole[..], b"\0"].concat());
    load(&images, 9).unwrap_err();
}

#[test]
fn an_absurd_length_takes_no_memory() {
    let fs = TestFs::default();
    let images = images(&fs);
    write(&images, &machine(9, 3)).unwrap();
    let path = images.path(9);
    let mut bytes = fs.contents(&path);
    let chunk = bytes.windows(6).position(|w| w == b"/k0000").unwrap() - 8 - 12;
    bytes[chunk..chunk + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    fs.plant(&path, bytes);
    let error = load(&images, 9).unwrap_err().to_string();
    assert!(error.contains("a chunk of 4294967295 bytes does not fit"), "{error}");
}

#[test]
fn keys_must_ascend() {
    let fs = TestFs::default();
    let images = images(&fs);
    let mut writer = images.create(&machine(1, 2).mark()).unwrap();
    writer.record(b"b", b"").unwrap();
    writer.record(b"b", b"").unwrap_err();
    drop(writer);
    assert!(fs.files().is_empty(), "an unfinished image leaves nothing behind");
}

#[test]
fn the_number_of_records_must_be_that_of_the_mark() {
    let fs = TestFs::default();
    let images = images(&fs);
    let mut writer = images.create(&machine(1, 2).mark()).unwrap();
    writer.record(b"b", b"").unwrap();
    let error = writer.finish().unwrap_err();
    assert!(error.to_string().contains("1 records, expected 2"), "{error}");
    assert!(fs.files().is_empty());
}

#[test]
fn images_of_other_clusters_and_later_formats_are_refused_by_name() {
    let fs = TestFs::default();
    write(&images(&fs), &machine(1, 2)).unwrap();
    let other = Images::new(Arc::new(fs.clone()), Path::new(DIR), 1);
    let error = other.open(1).unwrap_err().to_string();
    assert!(error.contains("it belongs to cluster 0000"), "{error}");
    let path = other.path(1);
    let mut bytes = fs.contents(&path);
    bytes[8] = 9;
    fs.plant(&path, bytes);
    let error = other.open(1).unwrap_err();
    assert!(matches!(error, ImageError::Future { version: 9, .. }), "{error}");
}

#[test]
fn an_image_under_another_name_is_refused() {
    let fs = TestFs::default();
    let images = images(&fs);
    write(&images, &machine(1, 2)).unwrap();
    fs.rename(&images.path(1), &images.path(2)).unwrap();
    let error = images.open(2).unwrap_err().to_string();
    assert!(error.contains("it holds the state at index 1"), "{error}");
}

#[test]
fn whatever_fails_while_an_image_is_written_it_is_whole_or_not_there() {
    for n in 1.. {
        let fs = TestFs::default();
        let images = images(&fs);
        write(&images, &machine(1, 100)).unwrap();
        fs.fail_at(n, Fault::Crash);
        let written = write(&images, &machine(2, 40)).is_ok();
        for unsynced in UNSYNCED {
            let fs = fs.twin();
            fs.crash(unsynced);
            let images = self::images(&fs);
            for index in images.list().unwrap() {
                load(&images, index).unwrap_or_else(|e| panic!("change {n}, {unsynced:?}: {e}"));
            }
            assert!(!written || images.list().unwrap() == [2, 1], "change {n}, {unsynced:?}");
            write(&images, &machine(2, 40)).unwrap();
        }
        if written {
            assert!(n > 4);
            return;
        }
    }
}
