//! Frames between servers: a length, a checksum, the bytes.
//!
//! *Owns* the frame `length u32 | crc32c u32 of the payload | payload`, big-endian. *Invariant*: a
//! payload is handed out only if its checksum agrees; a length above the limit is refused before
//! anything is allocated for it; on a secured link the end of a payload is its tag. *Never* looks into a payload.

use std::{fmt, io};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt as _};

use crate::peer_auth::{Broken, Seal, Seals, TAG_BYTES};
use crate::server::transport::Stream;

/// A connection, and what its frames are sealed with.
pub(super) type Secured = (Stream, Seals);

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 8;

/// Why a link must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadFrame {
    /// So many bytes were announced.
    TooLong(usize),
    /// The checksum does not agree.
    Damaged,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(f, "a frame of {bytes} bytes is longer than any can be"),
            Self::Damaged => write!(f, "the checksum of a frame is wrong"),
        }
    }
}

/// Appends a frame whose payload is what `encode` appends.
///
/// # Panics
/// If that is 4 GiB or more.
pub(super) fn append(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    encode(out);
    let payload = &out[start + HEADER_BYTES..];
    let length = u32::try_from(payload.len()).expect("messages are bounded far below 4 GiB");
    let crc = crc32c::crc32c(payload);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
}

/// Appends a frame with the tag of a secured link behind what `encode` appends; without one on a plain link.
pub(super) fn append_sealed(
    out: &mut Vec<u8>,
    seal: Option<&mut Seal>,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    append(out, |out| {
        let start = out.len();
        encode(out);
        if let Some(seal) = seal {
            seal.seal(out, start);
        }
    });
}

/// What a payload holds beside its tag; all of it on a plain link.
///
/// # Errors
/// It is not the next one of the other side.
pub(super) fn opened(mut payload: Bytes, seal: Option<&mut Seal>) -> Result<Bytes, Broken> {
    if let Some(seal) = seal {
        payload.truncate(seal.open(&payload)?);
    }
    Ok(payload)
}

/// Reads one frame, and nothing behind it.
///
/// # Errors
/// The stream's; within that, the frame's.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<Result<Bytes, BadFrame>> {
    let mut buffer = BytesMut::zeroed(HEADER_BYTES);
    stream.read_exact(&mut buffer).await?;
    let missing = missing(&buffer);
    // Before anything is allocated for it.
    if missing > bytes_max {
        return Ok(Err(BadFrame::TooLong(missing)));
    }
    buffer.resize(HEADER_BYTES + missing, 0);
    stream.read_exact(&mut buffer[HEADER_BYTES..]).await?;
    Ok(next(&mut buffer, bytes_max).map(|payload| payload.expect("all of it was read")))
}

/// Sends one frame on a secured connection.
///
/// # Errors
/// The connection broke.
pub(super) async fn send(
    (stream, seals): &mut Secured,
    encode: impl FnOnce(&mut Vec<u8>),
) -> io::Result<()> {
    let mut bytes = Vec::new();
    append_sealed(&mut bytes, seals.send.as_mut(), encode);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// As [`receive`], on a secured connection: what the frame holds beside its tag.
///
/// # Errors
/// The connection broke, or the frame is at fault.
pub(super) async fn take((stream, seals): &mut Secured, bytes_max: usize) -> io::Result<Bytes> {
    let payload = receive(stream, bytes_max + TAG_BYTES).await?.map_err(invalid)?;
    opened(payload, seals.receive.as_mut()).map_err(invalid)
}

/// The error of a connection on which this came.
pub(super) fn invalid(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Takes the payload of a whole frame off the front of `buffer`; `None` if it is not whole yet.
///
/// # Errors
/// It is longer than `bytes_max`, or damaged.
pub(super) fn next(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, BadFrame> {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = field(&header[..4]);
    if length > bytes_max {
        return Err(BadFrame::TooLong(length));
    }
    if buffer.len() - HEADER_BYTES < length {
        return Ok(None);
    }
    let crc = field(&header[4..]);
    buffer.advance(HEADER_BYTES);
    let payload = buffer.split_to(length).freeze();
    if crc32c::crc32c(&payload) as usize != crc {
        return Err(BadFrame::Damaged);
    }
    Ok(Some(payload))
}

/// Bytes that are missing to the end of the frame that `buffer` begins with; 0 if it is not known.
#[must_use]
pub(super) fn missing(buffer: &BytesMut) -> usize {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return 0 };
    (HEADER_BYTES + field(&header[..4])).saturating_sub(buffer.len())
}

fn field(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payloads: &[&[u8]]) -> BytesMut {
        let mut out = Vec::new();
        for payload in payloads {
            append(&mut out, |out| out.extend_from_slice(payload));
        }
        BytesMut::from(&out[..])
    }

    #[test]
    fn frames_come_back_in_order_and_only_when_they_are_whole() {
        let whole = framed(&[b"one", b"", b"three"]);
        let mut buffer = BytesMut::new();
        let mut payloads = Vec::new();
        for byte in whole {
            buffer.extend_from_slice(&[byte]);
            while let Some(payload) = next(&mut buffer, 100).unwrap() {
                payloads.push(payload);
            }
        }
        assert_eq!(payloads, [&b"one"[..], b"", b"three"]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn any_changed_byte_of_a_payload_is_noticed() {
        let whole = framed(&[b"payload"]);
        for at in 4..whole.len() {
            let mut buffer = whole.clone();
            buffer[at] ^= 0x10;
            assert_eq!(next(&mut buffer, 100), Err(BadFrame::Damaged), "byte {at}");
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_at_once() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 101, 0, 0, 0, 0][..]);
        assert_eq!(next(&mut buffer.clone(), 100), Err(BadFrame::TooLong(101)));
        buffer[3] = 100;
        assert_eq!(next(&mut buffer, 100), Ok(None));
        assert_eq!(missing(&buffer), 100);
    }
}
