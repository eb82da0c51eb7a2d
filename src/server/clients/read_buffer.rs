//! What a connection has read and not looked at yet.
//!
//! *Owns* the buffer, and how large it is. *Invariants*: a declared length claims one read's worth of
//! memory, however long it is: the rest is only made room for as the bytes arrive. An empty buffer holds
//! about what the last reads took: what a long frame or a burst needed is given back.

use bytes::BytesMut;

use crate::server::limits::READ_BYTES_MAX;

/// Smallest buffer to read into: what an idle connection holds. Most requests are half as long.
const READ_BYTES_MIN: usize = 512;
/// An empty buffer that is so many times as long as the next read is expected to be is given back.
const SPARE_FACTOR_MAX: usize = 4;

/// The buffer of one connection.
#[derive(Debug)]
pub(super) struct Intake {
    /// Bytes read and not decoded yet.
    pub buffer: BytesMut,
    /// How much to make room for before the next read.
    read_bytes: usize,
    /// Bytes that the buffer holds, those that were taken from its front included.
    held_bytes: usize,
}

impl Intake {
    /// Goes on with what was read already.
    #[must_use]
    pub(super) fn new(buffer: BytesMut) -> Self {
        Self { held_bytes: buffer.capacity(), buffer, read_bytes: READ_BYTES_MIN }
    }

    /// Makes room for the next read, and says how much.
    pub(super) fn make_room(&mut self) -> usize {
        if self.buffer.is_empty() && self.held_bytes > SPARE_FACTOR_MAX * self.read_bytes {
            // It would be used again and again otherwise, and never shrink.
            (self.buffer, self.held_bytes) = (BytesMut::new(), 0);
        }
        let wanted = rest_of_frame(&self.buffer).clamp(self.read_bytes, READ_BYTES_MAX);
        if self.buffer.capacity() - self.buffer.len() < wanted / 2 {
            self.buffer.reserve(wanted);
            self.held_bytes = self.buffer.capacity();
        }
        self.buffer.capacity() - self.buffer.len()
    }

    /// So many bytes were read, of those that there was `room` for.
    pub(super) fn note_read(&mut self, read: usize, room: usize) {
        if read == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if read < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }
}

/// Bytes missing to the end of the frame that `buffer` begins with, 0 if that is not known.
fn rest_of_frame(buffer: &BytesMut) -> usize {
    let Some(prefix) = buffer.first_chunk::<4>() else { return 0 };
    usize::try_from(i32::from_be_bytes(*prefix))
        .map_or(0, |length| (4 + length).saturating_sub(buffer.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::frame;

    /// Reads a stream of bytes, at most `at_once` of them at a time, and takes the frames out of it.
    fn read(intake: &mut Intake, mut bytes: &[u8], at_once: usize) {
        while !bytes.is_empty() {
            let room = intake.make_room();
            let (now, rest) = bytes.split_at(room.min(at_once).min(bytes.len()));
            intake.buffer.extend_from_slice(now);
            intake.note_read(now.len(), room);
            bytes = rest;
            while frame::next(&mut intake.buffer, usize::MAX).unwrap().is_some() {}
        }
        intake.make_room();
    }

    fn framed(length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::append(&mut bytes, |out| out.resize(out.len() + length, 7));
        bytes
    }

    #[test]
    fn what_a_long_frame_took_is_given_back() {
        let mut intake = Intake::new(BytesMut::new());
        for at_once in [1 << 20, 5000] {
            read(&mut intake, &framed(1_000_000), at_once);
            assert!(intake.held_bytes <= SPARE_FACTOR_MAX * READ_BYTES_MAX, "{intake:?}");
        }
    }

    #[test]
    fn what_a_burst_took_is_given_back_when_reads_are_short_again() {
        let mut intake = Intake::new(BytesMut::new());
        read(&mut intake, &framed(200).repeat(10_000), 1 << 20);
        assert!(intake.held_bytes >= READ_BYTES_MAX, "it has grown: {intake:?}");
        let ping = framed(8);
        for _ in 0..10 {
            read(&mut intake, &ping, 1 << 20);
        }
        assert!(intake.held_bytes <= SPARE_FACTOR_MAX * READ_BYTES_MIN, "{intake:?}");
    }

    #[test]
    fn a_declared_length_claims_no_more_than_one_read() {
        let mut intake = Intake::new(BytesMut::new());
        intake.make_room();
        intake.buffer.extend_from_slice(&i32::MAX.to_be_bytes());
        assert!(intake.make_room() <= 2 * READ_BYTES_MAX);
    }
}
