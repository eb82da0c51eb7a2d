//! The file of a snapshot: a header, the body, seals, and what later versions put behind it.
//!
//! *Owns* the header, the seals and the optional parts. *Invariant*: what is handed out counts only once `finish` has
//! compared the checksum of all bytes before it. *Never* knows of compression: it is given the bytes that ZooKeeper
//! computes its checksum of.

use bytes::Bytes;

use super::Adler32;
use super::snapshot::{Item, SnapshotDecoder};
use crate::proto::jute::wire_len;
use crate::proto::{Malformed, Reader, Writer};

/// "ZKSN".
const MAGIC: i32 = 0x5A4B_534E;
const VERSION: i32 = 2;
const DBID: i64 = -1;
const HEADER_BYTES: usize = 16;
/// A checksum, and the string `/`.
const SEAL_BYTES: usize = 13;
const SEAL_END: &[u8] = b"/";
/// The last zxid, and its seal.
const LAST_ZXID_BYTES: usize = 8 + SEAL_BYTES;
/// Longest part behind the body: seals, digest, last zxid.
const TRAILER_BYTES_MAX: usize = 256;

/// What stands behind the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Since 3.6: the digest of the tree at a zxid, which is that of the name or a later one: zxid, version, digest.
    pub digest: Option<(i64, i32, u64)>,
    /// Since 3.9, if ZooKeeper was told to: the last zxid.
    pub last_zxid: Option<i64>,
}

/// Decodes a file whose bytes come in portions.
#[derive(Debug, Default)]
pub struct SnapshotFileDecoder {
    /// As far as it came.
    header: Vec<u8>,
    /// Once the header is whole.
    body: Option<SnapshotDecoder>,
}

impl SnapshotFileDecoder {
    /// Takes the next bytes of the file. What they give is to be taken before more is fed.
    ///
    /// # Errors
    /// The file is no snapshot that this version knows, or has bytes behind its end.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let (header, bytes) = bytes.split_at(bytes.len().min(HEADER_BYTES - self.header.len()));
        self.header.extend_from_slice(header);
        if self.header.len() == HEADER_BYTES {
            if self.body.is_none() {
                check_header(&self.header)?;
            }
            let body = self.body.get_or_insert_with(|| SnapshotDecoder::behind(&self.header));
            if body.has_ended() && body.rest().len() + bytes.len() > TRAILER_BYTES_MAX {
                return Err(Malformed::new("snapshot", "has bytes behind its end"));
            }
            body.feed(bytes);
        }
        Ok(())
    }

    /// The next item of the body; `None` until more bytes are fed, or behind the end.
    ///
    /// # Errors
    /// The bytes are no snapshot.
    pub fn next_item(&mut self) -> Result<Option<Item>, Malformed> {
        self.body.as_mut().map_or(Ok(None), SnapshotDecoder::next_item)
    }

    /// To be called at the end of the file, when every item was taken.
    ///
    /// # Errors
    /// The file ends too early, or a checksum is not that of what was read.
    pub fn finish(self) -> Result<Trailer, Malformed> {
        match self.body {
            Some(body) if body.has_ended() => read_trailer(body.rest(), &mut body.adler()),
            _ => Err(Malformed::new("snapshot", "ends too early")),
        }
    }
}

fn check_header(header: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(Bytes::copy_from_slice(header));
    if reader.int("magic")? != MAGIC {
        return Err(Malformed::new("magic", "is not that of a snapshot of ZooKeeper"));
    }
    match reader.int("version")? {
        VERSION => Ok(()),
        _ => Err(Malformed::new("version", "is one that this version does not know")),
    }
}

/// Reads the trailer; `adler` is that of everything in front of it.
fn read_trailer(bytes: &[u8], adler: &mut Adler32) -> Result<Trailer, Malformed> {
    let mut rest = check_seal(bytes, adler)?;
    let mut trailer = Trailer::default();
    if !rest.is_empty() && rest.len() != LAST_ZXID_BYTES {
        let mut reader = Reader::new(Bytes::copy_from_slice(rest));
        let zxid = reader.long("zxid of the digest")?;
        let version = reader.int("version of the digest")?;
        let digest = if version < 2 {
            let hex = reader.string("digest")?;
            u64::from_str_radix(hex.as_str(), 16)
                .map_err(|_| Malformed::new("digest", "is no number"))?
        } else {
            reader.long("digest")?.cast_unsigned()
        };
        trailer.digest = Some((zxid, version, digest));
        let used = rest.len() - reader.remaining();
        adler.add(&rest[..used]);
        rest = check_seal(&rest[used..], adler)?;
    }
    if !rest.is_empty() {
        let mut reader = Reader::new(Bytes::copy_from_slice(rest));
        trailer.last_zxid = Some(reader.long("last zxid")?);
        adler.add(&rest[..8]);
        rest = check_seal(&rest[8..], adler)?;
    }
    if !rest.is_empty() {
        return Err(Malformed::new("snapshot", "has bytes behind its end"));
    }
    Ok(trailer)
}

/// Checks the seal at the front, and gives what is behind it.
fn check_seal<'a>(bytes: &'a [u8], adler: &mut Adler32) -> Result<&'a [u8], Malformed> {
    let (seal, rest) =
        bytes.split_at_checked(SEAL_BYTES).ok_or(Malformed::new("seal", "ends too early"))?;
    let mut reader = Reader::new(Bytes::copy_from_slice(seal));
    if reader.long("seal")? != adler.sum() {
        return Err(Malformed::new("checksum", "is not that of the file: it is damaged"));
    }
    if reader.buffer("seal")?.as_deref() != Some(SEAL_END) {
        return Err(Malformed::new("seal", "is damaged"));
    }
    adler.add(seal);
    Ok(rest)
}

/// Writes a file piece by piece: each piece is given to the caller, who appends it.
#[derive(Debug, Default)]
pub struct SnapshotFileEncoder {
    adler: Adler32,
}

impl SnapshotFileEncoder {
    /// The header.
    #[must_use]
    pub fn header(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_int(MAGIC);
        out.put_int(VERSION);
        out.put_long(DBID);
        self.adler.add(&out);
        out
    }

    /// Counts a piece of the body, made by the functions of `snapshot`.
    pub fn count(&mut self, piece: &[u8]) {
        self.adler.add(piece);
    }

    /// What stands behind the body.
    #[must_use]
    pub fn trailer(mut self, trailer: &Trailer) -> Vec<u8> {
        let mut out = Vec::new();
        self.seal(&mut out);
        if let Some((zxid, version, digest)) = trailer.digest {
            let start = out.len();
            out.put_long(zxid);
            out.put_int(version);
            out.put_long(digest.cast_signed());
            self.adler.add(&out[start..]);
            self.seal(&mut out);
        }
        if let Some(zxid) = trailer.last_zxid {
            let start = out.len();
            out.put_long(zxid);
            self.adler.add(&out[start..]);
            self.seal(&mut out);
        }
        out
    }

    fn seal(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_long(self.adler.sum());
        out.put_int(wire_len(SEAL_END.len()));
        out.extend_from_slice(SEAL_END);
        self.adler.add(&out[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::body;
    use super::*;

    fn file(trailer: &Trailer) -> Vec<u8> {
        let mut encoder = SnapshotFileEncoder::default();
        let mut file = encoder.header();
        encoder.count(&body());
        file.extend_from_slice(&body());
        file.extend_from_slice(&encoder.trailer(trailer));
        file
    }

    fn read(bytes: &[u8], portion: usize) -> Result<(usize, Trailer), Malformed> {
        let mut decoder = SnapshotFileDecoder::default();
        let mut items = 0;
        for portion in bytes.chunks(portion) {
            decoder.feed(portion)?;
            while decoder.next_item()?.is_some() {
                items += 1;
            }
        }
        decoder.finish().map(|trailer| (items, trailer))
    }

    fn trailers() -> [Trailer; 4] {
        let digest = Some((5, 2, 0x1234));
        [
            Trailer::default(),
            Trailer { digest, last_zxid: None },
            Trailer { digest: None, last_zxid: Some(5) },
            Trailer { digest, last_zxid: Some(5) },
        ]
    }

    #[test]
    fn files_of_all_versions_read_back_in_any_portions() {
        for trailer in trailers() {
            let file = file(&trailer);
            for portion in [1, 7, 16, 17, 100, file.len()] {
                assert_eq!(read(&file, portion), Ok((6, trailer)), "{portion}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for trailer in trailers() {
            let file = file(&trailer);
            // The number of the database, which no reader looks at, is part of the checksum.
            for bit in 0..file.len() * 8 {
                let mut file = file.clone();
                file[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&file, 50).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_file_that_ends_early_is_refused_unless_a_whole_part_is_missing() {
        let whole = Trailer { digest: Some((5, 2, 1)), last_zxid: Some(5) };
        let bytes = file(&whole);
        let body_end = file(&Trailer::default()).len();
        let digest_end = file(&Trailer { last_zxid: None, ..whole }).len();
        for len in 0..bytes.len() {
            let is_whole = len == body_end || len == digest_end;
            assert_eq!(read(&bytes[..len], 50).is_ok(), is_whole, "{len} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read(&longer, 50).is_err());
    }
}
