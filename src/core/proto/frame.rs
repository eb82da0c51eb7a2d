//! Frames: a 32-bit length, then that many bytes. Nothing else is ever on the wire.

use bytes::{Buf, Bytes, BytesMut};

/// ZooKeeper's default for the longest frame a server accepts, in bytes (`jute.maxbuffer`).
pub const FRAME_BYTES_MAX_DEFAULT: usize = 0xf_ffff;

/// A length that no frame may have. The connection is closed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength(pub i32);

/// Takes the next whole frame from the front of `buffer`, if it is there already.
///
/// # Errors
/// When the length is negative or above `frame_bytes_max`.
pub fn next(buffer: &mut BytesMut, frame_bytes_max: usize) -> Result<Option<Bytes>, BadLength> {
    let Some(prefix) = buffer.first_chunk::<4>() else { return Ok(None) };
    let declared = i32::from_be_bytes(*prefix);
    let length = usize::try_from(declared).map_err(|_| BadLength(declared))?;
    if length > frame_bytes_max {
        return Err(BadLength(declared));
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Appends one frame whose payload `write` appends.
pub fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = super::jute::wire_len(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends one frame like [`append`], unless its payload is longer than `bytes_max` (below 2 GiB):
/// then the answer is false, and what was appended is of no use.
#[must_use]
pub fn append_within(
    out: &mut Vec<u8>,
    bytes_max: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = out.len() - start - 4;
    if length > bytes_max {
        return false;
    }
    out[start..start + 4].copy_from_slice(&super::jute::wire_len(length).to_be_bytes());
    true
}

/// The lengths of the payloads in `frames`, which holds whole frames one after the other.
pub fn lengths(frames: &[u8]) -> impl Iterator<Item = usize> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let (prefix, behind) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*prefix)).ok()?;
        rest = behind.get(length..)?;
        Some(length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8], max: usize) -> Result<Option<Bytes>, BadLength> {
        next(&mut BytesMut::from(bytes), max)
    }

    #[test]
    fn a_frame_at_the_limit_is_taken_and_one_above_is_not() {
        assert_eq!(take(b"\0\0\0\x03abc", 3), Ok(Some(Bytes::from_static(b"abc"))));
        assert_eq!(take(b"\0\0\0\x04abcd", 3), Err(BadLength(4)));
        assert_eq!(take(b"\xff\xff\xff\xff", 3), Err(BadLength(-1)));
        assert_eq!(take(b"GET /", 0xf_ffff), Err(BadLength(0x4745_5420)));
    }

    #[test]
    fn an_unfinished_frame_waits_for_the_rest() {
        assert_eq!(take(b"\0\0", 3), Ok(None));
        assert_eq!(take(b"\0\0\0\x03ab", 3), Ok(None));
    }

    #[test]
    fn a_payload_above_its_bound_is_told_and_one_at_it_is_not() {
        let mut out = Vec::new();
        assert!(append_within(&mut out, 3, |out| out.extend_from_slice(b"abc")));
        assert_eq!(out, b"\0\0\0\x03abc");
        assert!(!append_within(&mut out, 3, |out| out.extend_from_slice(b"abcd")));
    }

    #[test]
    fn lengths_are_those_of_whole_frames() {
        let frames = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01z";
        assert_eq!(lengths(frames).collect::<Vec<_>>(), [3, 0, 1]);
        assert_eq!(lengths(b"\0\0\0\x03ab").count(), 0);
        assert_eq!(lengths(b"\xff\xff\xff\xffab").count(), 0);
    }

    #[test]
    fn the_length_is_patched_after_the_payload() {
        let mut out = b"x".to_vec();
        append(&mut out, |out| out.extend_from_slice(b"abc"));
        assert_eq!(out, b"x\0\0\0\x03abc");
    }
}
