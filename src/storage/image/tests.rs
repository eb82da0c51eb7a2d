//! What images promise, one test each.

use std::path::Path;
use std::sync::Arc;

use super::images::{Copy, ImageError, Images};
use crate::fs::{Fs, OsFs};
use crate::testing::{Fault, Machine, TestFs, UNSYNCED};
use lockkeeper_core::replica::{Mark, Restore};

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

fn receive(images: &Images, machine: &Machine) -> Result<u64, ImageError> {
    let mut writer = images.receive(&machine.mark())?;
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
fn records_can_be_taken_a_chunk_at_a_time() {
    let fs = TestFs::default();
    let images = images(&fs);
    let machine = machine(5, 30_000);
    write(&images, &machine).unwrap();
    let mut reader = images.open(5).unwrap();
    let mut records = Vec::new();
    let mut chunks = 0;
    while let Some(chunk) = reader.next_records().unwrap() {
        chunks += 1;
        records.extend(chunk.map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    assert!(chunks > 3, "{chunks}");
    assert_eq!(records, machine.records.into_iter().collect::<Vec<_>>());
    assert!(reader.next_records().unwrap().is_none(), "the end is the end");
}

#[test]
fn damage_is_noticed_before_the_end_is_reached() {
    let fs = TestFs::default();
    let images = images(&fs);
    write(&images, &machine(5, 30_000)).unwrap();
    let path = images.path(5);
    let whole = fs.contents(&path);
    // In the first chunk, in the last one, in the count at the end.
    for at in [200, whole.len() - 20, whole.len() - 10] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs.plant(&path, bytes);
        let mut reader = images.open(5).unwrap();
        let error = loop {
            match reader.next_records() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the end, in spite of byte {at}"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("checksum mismatch"), "{error}");
    }
}

#[test]
fn an_image_that_is_being_read_may_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let images = Images::new(Arc::new(OsFs), dir.path(), 1);
    let machine = machine(5, 30_000);
    write(&images, &machine).unwrap();
    write(&images, &self::machine(6, 3)).unwrap();
    let reader = images.open(5).unwrap();
    images.retain(&[6]).unwrap();
    assert_eq!(images.list().unwrap(), [6]);
    let mut records = 0;
    reader
        .read(&mut |_, _| {
            records += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(records, 30_000);
}

#[test]
fn an_image_newer_than_those_that_are_kept_is_not_removed() {
    let fs = TestFs::default();
    let images = images(&fs);
    for index in [2, 4, 6, 9] {
        write(&images, &machine(index, 1)).unwrap();
    }
    images.retain(&[4, 6]).unwrap();
    assert_eq!(images.list().unwrap(), [9, 6, 4]);
}

#[test]
fn a_received_image_is_none_of_ours_until_it_is_installed() {
    let fs = TestFs::default();
    let images = images(&fs);
    write(&images, &machine(3, 2)).unwrap();
    receive(&images, &machine(9, 20)).unwrap();
    assert_eq!((images.list().unwrap(), images.received().unwrap()), (vec![3], vec![9]));
    images.install(9).unwrap();
    assert_eq!((images.list().unwrap(), images.received().unwrap()), (vec![9, 3], vec![]));
    assert_eq!(load(&images, 9).unwrap(), machine(9, 20));
}

#[test]
fn the_same_image_can_be_received_twice_at_once() {
    let fs = TestFs::default();
    let images = images(&fs);
    let machine = machine(9, 2);
    let mut first = images.receive(&machine.mark()).unwrap();
    let second = images.receive(&machine.mark()).unwrap();
    for (key, value) in &machine.records {
        first.record(key, value).unwrap();
    }
    drop(second);
    first.finish().unwrap();
    assert_eq!(images.received().unwrap(), [9]);
}

#[test]
fn received_images_that_are_never_installed_do_not_fill_the_disk() {
    let fs = TestFs::default();
    let images = images(&fs);
    for index in 1..10 {
        receive(&images, &machine(index, 2)).unwrap();
    }
    assert_eq!(images.received().unwrap(), [9, 8, 7]);
    images.forget_received(8).unwrap();
    assert_eq!(images.received().unwrap(), [9]);
}

#[test]
fn a_received_image_that_is_to_be_installed_stays() {
    let fs = TestFs::default();
    let images = images(&fs);
    receive(&images, &machine(1, 2)).unwrap();
    images.clone().hold_received(1);
    for index in 2..6 {
        receive(&images, &machine(index, 2)).unwrap();
    }
    assert!(images.received().unwrap().contains(&1));
    images.release_received();
    receive(&images, &machine(6, 2)).unwrap();
    assert_eq!(images.received().unwrap(), [6, 5, 4]);
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
    fs.plant(&path, bytes.clone());
    let error = other.open(1).unwrap_err();
    assert!(error.to_string().contains("checksum mismatch"), "a damaged version: {error}");
    let header = bytes.windows(6).position(|w| w == b"/k0000").unwrap() - 8 - 12 - 4;
    let crc = crc32c::crc32c(&bytes[..header]);
    bytes[header..header + 4].copy_from_slice(&crc.to_le_bytes());
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
    let is_received = |images: &Images| images.received().unwrap() == [2];
    let is_written = |images: &Images| images.list().unwrap() == [2, 1];
    interrupted(write, is_written);
    interrupted(receive, is_received);
}

/// Lets the power go at every change of the disk that `make` needs; once it has returned, the image
/// must be there after every power cut.
fn interrupted(
    make: fn(&Images, &Machine) -> Result<u64, ImageError>,
    is_there: impl Fn(&Images) -> bool,
) {
    for n in 1.. {
        let fs = TestFs::default();
        let images = images(&fs);
        write(&images, &machine(1, 100)).unwrap();
        fs.fail_at(n, Fault::Crash);
        let made = make(&images, &machine(2, 40)).is_ok();
        for unsynced in UNSYNCED {
            let fs = fs.twin();
            fs.crash(unsynced);
            let images = self::images(&fs);
            for index in images.list().unwrap() {
                load(&images, index).unwrap_or_else(|e| panic!("change {n}, {unsynced:?}: {e}"));
            }
            for index in images.received().unwrap() {
                images.open_copy(index, Copy::Received).unwrap().read(&mut |_, _| Ok(())).unwrap();
            }
            assert!(!made || is_there(&images), "change {n}, {unsynced:?}");
            images.remove_unfinished().unwrap();
            make(&images, &machine(2, 40)).unwrap();
            assert!(is_there(&images));
        }
        if made {
            assert!(n > 4);
            return;
        }
    }
}
