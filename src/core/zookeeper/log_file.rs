//! The file of a transaction log: a header, then entries, each with its checksum.
//!
//! *Owns* the framing, and where a log ends: at its padding of zeros, at its last byte, or in the middle of an entry
//! that was being written when the server died. *Invariants*: an entry is handed out only if its checksum is right; a
//! log does not end in front of a whole entry: what looks like an end there is damage. *Never* says what a missing
//! entry means.

use bytes::Bytes;

use super::{Adler32, FIELD_BYTES_MAX, Txn};
use crate::proto::{Malformed, Writer};

/// "ZKLG".
const MAGIC: i32 = 0x5A4B_4C47;
const VERSION: i32 = 2;
const HEADER_BYTES: usize = 16;
/// A checksum, and a length.
const ENTRY_HEAD_BYTES: usize = 12;
/// Behind each entry.
const ENTRY_END: u8 = b'B';

/// Client, number of the request, zxid, time and kind: no transaction is shorter.
const TXN_BYTES_MIN: usize = 32;
/// Where the zxid of an entry is.
const ZXID_AT: usize = ENTRY_HEAD_BYTES + 12;
/// How many bytes are summed up in the search for an entry, at most: bytes that are made to look like the heads of many
/// entries would take hours.
const SEARCH_BYTES_MAX: u64 = 4 << 30;

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// Behind an entry, with nothing but zeros to follow.
    Whole,
    /// In the middle of one, which begins at this byte.
    TornAt(u64),
    /// It holds nothing, not even its header: a server died when it had made it.
    Empty,
}

/// Decodes a file whose bytes come in portions.
#[derive(Debug, Default)]
pub struct LogDecoder {
    buffer: Vec<u8>,
    at: usize,
    /// Bytes of the file in front of the buffer.
    before: u64,
    has_header: bool,
    /// The zxid of the last entry.
    last_zxid: i64,
    stop: Option<Stop>,
}

/// Where no whole entry follows; the bytes behind it are searched for one.
#[derive(Clone, Copy, Debug)]
struct Stop {
    /// The byte of the file.
    at: u64,
    /// Whether nothing but zeros was seen since.
    is_blank: bool,
    /// How many bytes may yet be summed up.
    search_bytes_left: u64,
}

/// What the search makes of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A whole entry begins here.
    Entry,
    /// None does; so many bytes were summed up to find that out.
    Other(u64),
    /// More bytes are needed to say it.
    Unknown,
}

impl LogDecoder {
    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let done = std::mem::take(&mut self.at);
        self.buffer.drain(..done);
        self.before += done as u64;
        self.buffer.extend_from_slice(bytes);
    }

    /// Where the next entry begins in the file, or the one that is not whole.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.stop.map_or(self.before + self.at as u64, |stop| stop.at)
    }

    /// The next transaction; `None` until more bytes are fed. To be called until then behind each portion.
    ///
    /// # Errors
    /// The file is no log, or an entry is damaged.
    pub fn next_txn(&mut self) -> Result<Option<Txn>, Malformed> {
        if !self.has_header && !self.read_header()? {
            return Ok(None);
        }
        if self.stop.is_some() {
            self.search(false)?;
            return Ok(None);
        }
        let left = &self.buffer[self.at..];
        let Some((head, behind)) = left.split_first_chunk::<ENTRY_HEAD_BYTES>() else {
            return Ok(None);
        };
        let sum = i64::from_be_bytes(head[..8].try_into().expect("eight bytes"));
        let length = i32::from_be_bytes(head[8..].try_into().expect("four bytes"));
        let length = match usize::try_from(length) {
            Ok(0) => return self.stops(),
            Ok(length) if length <= FIELD_BYTES_MAX => length,
            _ => return Err(Malformed::new("length of an entry", "is impossible")),
        };
        match behind.get(length) {
            None => return Ok(None),
            Some(&ENTRY_END) => {}
            // What was not written yet is zero.
            Some(0) => return self.stops(),
            Some(_) => return Err(Malformed::new("mark behind an entry", "is another one")),
        }
        if Adler32::of(&behind[..length]) != sum {
            return Err(Malformed::new("checksum of an entry", "is not that of its bytes"));
        }
        let txn = Txn::decode(Bytes::copy_from_slice(&behind[..length]))?;
        self.at += ENTRY_HEAD_BYTES + length + 1;
        self.last_zxid = txn.header.zxid;
        Ok(Some(txn))
    }

    /// How the file ended, when it has no more bytes and every transaction was taken.
    ///
    /// # Errors
    /// An entry is damaged: whole ones lie behind it.
    pub fn finish(&mut self) -> Result<LogEnd, Malformed> {
        if !self.has_header {
            return Ok(LogEnd::Empty);
        }
        self.stops()?;
        self.search(true)?;
        Ok(match self.stop {
            Some(Stop { at, is_blank: false, .. }) => LogEnd::TornAt(at),
            _ => LogEnd::Whole,
        })
    }

    /// No whole entry follows here.
    fn stops(&mut self) -> Result<Option<Txn>, Malformed> {
        if self.stop.is_none() {
            let at = self.position();
            self.stop = Some(Stop { at, is_blank: true, search_bytes_left: SEARCH_BYTES_MAX });
        }
        self.search(false)?;
        Ok(None)
    }

    /// Searches the bytes behind the stop for an entry, as far as they have come. A server appends to nothing but a
    /// whole log: one that finds an entry cut off begins a new file.
    fn search(&mut self, is_all: bool) -> Result<(), Malformed> {
        let Some(mut stop) = self.stop else { return Ok(()) };
        while self.at < self.buffer.len() {
            let left = &self.buffer[self.at..];
            let zeros = left.iter().position(|byte| *byte != 0).unwrap_or(left.len());
            if zeros >= ENTRY_HEAD_BYTES {
                // The last byte of a head may be the first that is not zero.
                self.at += zeros - (ENTRY_HEAD_BYTES - 1);
                continue;
            }
            let place = self.place(left);
            match place {
                Place::Entry => {
                    let field = if stop.at == 0 { "header" } else { "entry" };
                    return Err(Malformed::new(
                        field,
                        "is not whole, and whole entries lie behind it",
                    ));
                }
                Place::Unknown if !is_all => break,
                Place::Unknown => {}
                Place::Other(summed) => {
                    let Some(less) = stop.search_bytes_left.checked_sub(summed) else {
                        return Err(Malformed::new(
                            "entry",
                            "is not whole, and what lies behind it cannot be told from entries",
                        ));
                    };
                    stop.search_bytes_left = less;
                }
            }
            stop.is_blank &= left[0] == 0;
            self.at += 1;
        }
        self.stop = Some(stop);
        Ok(())
    }

    /// Whether an entry begins here, behind those that were handed out.
    fn place(&self, left: &[u8]) -> Place {
        let Some(zxid) = left.get(ZXID_AT..ZXID_AT + 8) else { return Place::Unknown };
        let zxid = i64::from_be_bytes(zxid.try_into().expect("eight bytes"));
        let sum = i64::from_be_bytes(left[..8].try_into().expect("eight bytes"));
        let length = i32::from_be_bytes(left[8..ENTRY_HEAD_BYTES].try_into().expect("four bytes"));
        let length = match usize::try_from(length) {
            Ok(length) if (TXN_BYTES_MIN..=FIELD_BYTES_MAX).contains(&length) => length,
            _ => return Place::Other(0),
        };
        if u32::try_from(sum).is_err() || zxid <= self.last_zxid {
            return Place::Other(0);
        }
        let behind = &left[ENTRY_HEAD_BYTES..];
        match behind.get(length) {
            None => return Place::Unknown,
            Some(&ENTRY_END) => {}
            Some(_) => return Place::Other(0),
        }
        let bytes = &behind[..length];
        if Adler32::of(bytes) == sum && Txn::decode(Bytes::copy_from_slice(bytes)).is_ok() {
            return Place::Entry;
        }
        Place::Other(length as u64)
    }

    /// Whether the header is there.
    fn read_header(&mut self) -> Result<bool, Malformed> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else {
            return Ok(false);
        };
        self.has_header = true;
        if *header == [0; HEADER_BYTES] {
            // Room was made for it, and it was not written.
            self.stops()?;
            return Ok(true);
        } else if header[..4] != MAGIC.to_be_bytes() {
            return Err(Malformed::new("magic", "is not that of a transaction log of ZooKeeper"));
        } else if header[4..8] != VERSION.to_be_bytes() {
            return Err(Malformed::new("version", "is one that this version does not know"));
        }
        self.at = HEADER_BYTES;
        Ok(true)
    }
}

/// Appends the header of a file.
pub fn put_header(out: &mut Vec<u8>) {
    out.put_int(MAGIC);
    out.put_int(VERSION);
    out.put_long(0);
}

/// Appends an entry.
pub fn put_entry(txn: &Txn, out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    txn.encode(&mut bytes);
    out.put_long(Adler32::of(&bytes));
    out.put_buffer(Some(&bytes));
    out.push(ENTRY_END);
}

#[cfg(test)]
mod tests {
    use super::super::txn::kind;
    use super::super::{TxnBody, TxnHeader};
    use super::*;

    fn txn(zxid: i64) -> Txn {
        let header = TxnHeader { zxid, kind: kind::DELETE, ..TxnHeader::default() };
        Txn { header, body: TxnBody::Delete { path: "/a".into() }, digest: None }
    }

    fn file() -> Vec<u8> {
        let mut out = Vec::new();
        put_header(&mut out);
        (1..=3).for_each(|zxid| put_entry(&txn(zxid), &mut out));
        out
    }

    fn read(bytes: &[u8], portion: usize) -> Result<(Vec<i64>, LogEnd), Malformed> {
        let mut decoder = LogDecoder::default();
        let mut zxids = Vec::new();
        for portion in bytes.chunks(portion) {
            decoder.feed(portion);
            while let Some(txn) = decoder.next_txn()? {
                zxids.push(txn.header.zxid);
            }
        }
        Ok((zxids, decoder.finish()?))
    }

    /// With room for more, as ZooKeeper makes it.
    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(4096, 0);
        bytes
    }

    const WHOLE_BEHIND: &str = "is not whole, and whole entries lie behind it";

    #[test]
    fn a_log_reads_back_in_any_portions_with_and_without_padding() {
        for portion in [1, 3, 16, 50, 4096] {
            for bytes in [file(), padded(file())] {
                assert_eq!(read(&bytes, portion), Ok((vec![1, 2, 3], LogEnd::Whole)), "{portion}");
            }
        }
    }

    #[test]
    fn a_torn_entry_ends_the_log_wherever_it_is_cut() {
        let whole = file();
        let entry = (whole.len() - HEADER_BYTES) / 3;
        for cut in HEADER_BYTES + 1..whole.len() {
            let entries = (cut - HEADER_BYTES) / entry;
            let is_whole = (cut - HEADER_BYTES).is_multiple_of(entry);
            let begins = (HEADER_BYTES + entries * entry) as u64;
            let (zxids, end) = read(&whole[..cut], 50).unwrap();
            assert_eq!(zxids.len(), entries);
            // A checksum that begins with zeros cannot be told from padding, and nothing is lost by that.
            let is_blank = whole[begins as usize..cut].iter().all(|byte| *byte == 0);
            let expected =
                if is_whole || is_blank { LogEnd::Whole } else { LogEnd::TornAt(begins) };
            assert_eq!(end, expected, "{cut}");
            // The rest of the file, for which room was made, is zero.
            for portion in [13, 4096] {
                let (zxids, end) = read(&padded(whole[..cut].to_vec()), portion).unwrap();
                assert_eq!((zxids.len(), end), (entries, expected), "{cut}");
            }
        }
        assert_eq!(read(b"", 1), Ok((vec![], LogEnd::Empty)));
        assert_eq!(read(&[0; 4096], 100), Ok((vec![], LogEnd::Whole)));
    }

    #[test]
    fn no_flipped_bit_gives_another_transaction() {
        let whole = file();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok((zxids, _)) = read(&bytes, 50) {
                assert_eq!(zxids, (1..=zxids.len() as i64).collect::<Vec<_>>(), "bit {bit}");
            }
        }
    }

    /// Two files: the second has room for more.
    fn both(bytes: &[u8]) -> [Vec<u8>; 2] {
        [bytes.to_vec(), padded(bytes.to_vec())]
    }

    #[test]
    fn no_flipped_bit_in_front_of_a_whole_entry_is_taken_for_the_end() {
        let whole = file();
        let entry = (whole.len() - HEADER_BYTES) / 3;
        for bit in HEADER_BYTES * 8..(HEADER_BYTES + 2 * entry) * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for bytes in both(&bytes) {
                for portion in [7, 4096] {
                    assert!(read(&bytes, portion).is_err(), "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn zeros_in_front_of_a_whole_entry_are_a_damage_of_the_entry_where_they_begin() {
        let whole = file();
        let entry = (whole.len() - HEADER_BYTES) / 3;
        let second = HEADER_BYTES + entry;
        let lost = [
            (second, second + ENTRY_HEAD_BYTES, "entry"),
            (second, second + entry, "entry"),
            (second + 8, second + 12, "entry"),
            (second + 20, second + entry, "entry"),
            (HEADER_BYTES, second + entry, "entry"),
            (0, HEADER_BYTES, "header"),
            (0, second + 5, "header"),
        ];
        for (from, until, field) in lost {
            let mut bytes = whole.clone();
            bytes[from..until].fill(0);
            for bytes in both(&bytes) {
                for portion in [7, 4096] {
                    let refused = read(&bytes, portion);
                    assert_eq!(
                        refused,
                        Err(Malformed::new(field, WHOLE_BEHIND)),
                        "{from}..{until}"
                    );
                }
            }
        }
        let mut bytes = padded(whole);
        bytes[second..second + ENTRY_HEAD_BYTES].fill(0);
        let mut decoder = LogDecoder::default();
        decoder.feed(&bytes);
        while matches!(decoder.next_txn(), Ok(Some(_))) {}
        assert_eq!(decoder.position(), second as u64);
    }

    #[test]
    fn bytes_that_are_no_entry_make_a_torn_one_and_an_older_entry_proves_nothing() {
        let whole = file();
        let entry = (whole.len() - HEADER_BYTES) / 3;
        let third = HEADER_BYTES + 2 * entry;
        // A disk has written the end of an entry in front of its beginning, when the server had not acknowledged it.
        let mut bytes = whole.clone();
        bytes[third..third + ENTRY_HEAD_BYTES].fill(0);
        for bytes in both(&bytes) {
            assert_eq!(read(&bytes, 9), Ok((vec![1, 2], LogEnd::TornAt(third as u64))));
        }
        let mut bytes = whole[..third + 20].to_vec();
        bytes.extend_from_slice(&[0; 100]);
        put_entry(&txn(2), &mut bytes);
        assert_eq!(read(&padded(bytes), 9), Ok((vec![1, 2], LogEnd::TornAt(third as u64))));
    }

    #[test]
    fn a_mark_that_is_neither_there_nor_missing_is_damage_even_behind_the_last_entry() {
        let mut bytes = file();
        *bytes.last_mut().unwrap() ^= 1;
        for bytes in both(&bytes) {
            assert_eq!(
                read(&bytes, 50),
                Err(Malformed::new("mark behind an entry", "is another one"))
            );
        }
    }

    #[test]
    fn bytes_that_look_like_many_entries_end_the_search() {
        let mut bytes = file();
        bytes.extend_from_slice(&[0; ENTRY_HEAD_BYTES]);
        for zxid in 4..9 {
            let begins = bytes.len();
            put_entry(&txn(zxid), &mut bytes);
            bytes[begins + 7] ^= 1;
        }
        let mut decoder = LogDecoder::default();
        decoder.feed(&bytes[..file().len() + ENTRY_HEAD_BYTES]);
        while decoder.next_txn().unwrap().is_some() {}
        decoder.stop.as_mut().unwrap().search_bytes_left = 100;
        decoder.feed(&bytes[file().len() + ENTRY_HEAD_BYTES..]);
        let refused = decoder.next_txn().and_then(|_| decoder.finish()).unwrap_err();
        assert!(refused.reason.contains("cannot be told"), "{refused}");
        let torn = LogEnd::TornAt(file().len() as u64);
        assert_eq!(read(&bytes, 50), Ok((vec![1, 2, 3], torn)));
    }
}
