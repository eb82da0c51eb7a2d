//! The file of a transaction log: a header, then entries, each with its checksum.
//!
//! *Owns* the framing, and where a log ends: at its padding of zeros, at its last byte, or in the middle of an entry
//! that was being written when the server died. *Invariant*: an entry is handed out only if its checksum is right.
//! *Never* says what a missing entry means.

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

/// What a decoder hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem {
    /// A transaction.
    Txn(Txn),
    /// The padding begins: nothing follows.
    Padding,
    /// Behind an entry the mark of its end is missing: it was not written whole, and nothing follows.
    Torn,
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// Behind an entry.
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
    end: Option<LogItem>,
}

impl LogDecoder {
    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let done = std::mem::take(&mut self.at);
        self.buffer.drain(..done);
        self.before += done as u64;
        if self.end.is_none() {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Where the next entry begins in the file.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The next item; `None` until more bytes are fed. Behind an end it gives that again.
    ///
    /// # Errors
    /// The file is no log, or an entry is damaged.
    pub fn next_item(&mut self) -> Result<Option<LogItem>, Malformed> {
        if let Some(end) = &self.end {
            return Ok(Some(end.clone()));
        }
        if !self.has_header && !self.read_header()? {
            return Ok(None);
        }
        let left = &self.buffer[self.at..];
        let Some((head, behind)) = left.split_first_chunk::<ENTRY_HEAD_BYTES>() else {
            return Ok(None);
        };
        let sum = i64::from_be_bytes(head[..8].try_into().expect("eight bytes"));
        let length = i32::from_be_bytes(head[8..].try_into().expect("four bytes"));
        let length = match usize::try_from(length) {
            Ok(0) => return Ok(self.ends(LogItem::Padding)),
            Ok(length) if length <= FIELD_BYTES_MAX => length,
            _ => return Err(Malformed::new("length of an entry", "is impossible")),
        };
        let Some(&end) = behind.get(length) else {
            return Ok(None);
        };
        if end != ENTRY_END {
            return Ok(self.ends(LogItem::Torn));
        }
        if Adler32::of(&behind[..length]) != sum {
            return Err(Malformed::new("checksum of an entry", "is not that of its bytes"));
        }
        let txn = Txn::decode(Bytes::copy_from_slice(&behind[..length]))?;
        self.at += ENTRY_HEAD_BYTES + length + 1;
        Ok(Some(LogItem::Txn(txn)))
    }

    /// How the file ended, when it has no more bytes and every item was taken.
    #[must_use]
    pub fn finish(&self) -> LogEnd {
        match &self.end {
            Some(LogItem::Torn) => LogEnd::TornAt(self.position()),
            Some(_) => LogEnd::Whole,
            None if !self.has_header => LogEnd::Empty,
            None if self.buffer[self.at..].iter().all(|byte| *byte == 0) => LogEnd::Whole,
            None => LogEnd::TornAt(self.position()),
        }
    }

    fn ends(&mut self, item: LogItem) -> Option<LogItem> {
        self.end = Some(item.clone());
        Some(item)
    }

    /// Whether the header is there.
    fn read_header(&mut self) -> Result<bool, Malformed> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else {
            return Ok(false);
        };
        if *header == [0; HEADER_BYTES] {
            // Room was made for it, and it was not written.
            self.end = Some(LogItem::Padding);
        } else if header[..4] != MAGIC.to_be_bytes() {
            return Err(Malformed::new("magic", "is not that of a transaction log of ZooKeeper"));
        } else if header[4..8] != VERSION.to_be_bytes() {
            return Err(Malformed::new("version", "is one that this version does not know"));
        }
        self.has_header = true;
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
            while let Some(LogItem::Txn(txn)) = decoder.next_item()? {
                zxids.push(txn.header.zxid);
            }
        }
        Ok((zxids, decoder.finish()))
    }

    #[test]
    fn a_log_reads_back_in_any_portions_with_and_without_padding() {
        let mut padded = file();
        padded.resize(4096, 0);
        for portion in [1, 3, 16, 50, 4096] {
            for bytes in [file(), padded.clone()] {
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
            if !whole[begins as usize..cut].iter().all(|byte| *byte == 0) {
                let expected = if is_whole { LogEnd::Whole } else { LogEnd::TornAt(begins) };
                assert_eq!(end, expected, "{cut}");
            }
            // The rest of the file, for which room was made, is zero.
            let mut padded = whole[..cut].to_vec();
            padded.resize(4096, 0);
            if let Ok((zxids, _)) = read(&padded, 4096) {
                assert_eq!(zxids.len(), entries, "{cut}");
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
}
