//! What a backup promises, one test each.

use super::*;
use crate::replica::{Machine, Membership, Restore as _};
use crate::tree::Options;

fn header() -> Header {
    Header {
        release: "0.1.0".to_owned(),
        ensemble: 0xabc,
        server_id: 2,
        index: 7,
        term: 3,
        zxid: (3 << 32) | 5,
        made_ms: 1_700_000_000_000,
        subtree: None,
    }
}

/// A state, and a backup of it.
fn backup() -> (Machine, Vec<u8>) {
    let machine = Machine::fresh(Options::default());
    let digest = machine.record_digest();
    let mut writer = BackupWriter::begin(Vec::new(), &header(), digest).unwrap();
    let (mark, records) =
        Machine::fresh(Options::default()).into_records((7, 3), Membership::default());
    for (key, value) in &records {
        writer.record(key, value).unwrap();
    }
    let (bytes, trailer) = writer.finish().unwrap();
    assert_eq!((trailer.digest, trailer.records), (mark.digest, mark.records));
    (machine, bytes)
}

fn verify(bytes: &[u8]) -> Result<(Header, Trailer), BackupError> {
    let digest = Machine::fresh(Options::default()).record_digest();
    let reader = BackupReader::open(bytes, digest)?;
    let header = reader.header().clone();
    Ok((header, reader.read(&mut |_, _| Ok(()))?))
}

#[test]
fn what_was_written_is_read() {
    let (machine, bytes) = backup();
    let (read, trailer) = verify(&bytes).unwrap();
    assert_eq!((read, trailer.digest), (header(), machine.digest()));
}

#[test]
fn every_bit_that_changes_is_noticed() {
    let (_, bytes) = backup();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn a_file_that_is_cut_anywhere_or_longer_is_no_backup() {
    let (_, mut bytes) = backup();
    for length in 0..bytes.len() {
        assert!(verify(&bytes[..length]).is_err(), "{length} bytes");
    }
    bytes.push(0);
    assert!(verify(&bytes).unwrap_err().to_string().contains("behind its end"));
}

#[test]
fn a_later_format_is_refused_with_the_release_that_wrote_it() {
    let (_, mut bytes) = backup();
    bytes[8] = 9;
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c(&bytes[..16 + length]);
    bytes[16 + length..][..4].copy_from_slice(&crc.to_le_bytes());
    let refused = verify(&bytes).unwrap_err();
    assert!(
        matches!(&refused, BackupError::Future { version: 9, release } if release == "0.1.0"),
        "{refused}"
    );
}

#[test]
fn a_length_that_lies_takes_no_memory() {
    let (_, mut bytes) = backup();
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let chunk = 16 + length + 4;
    bytes[chunk..chunk + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(verify(&bytes).unwrap_err().to_string().contains("the file ends here"));
}

#[test]
fn records_out_of_order_are_refused_when_they_are_written() {
    let digest = Machine::fresh(Options::default()).record_digest();
    let mut writer = BackupWriter::begin(Vec::new(), &header(), digest).unwrap();
    let (_, records) =
        Machine::fresh(Options::default()).into_records((7, 3), Membership::default());
    writer.record(&records[1].0, &records[1].1).unwrap();
    assert!(writer.record(&records[0].0, &records[0].1).is_err());
}
