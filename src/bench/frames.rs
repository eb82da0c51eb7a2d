//! The receive side of one connection: bytes in from a socket, whole frames out.
//!
//! Used by the load generator and by the null server. Reads in large pieces and never blocks; a
//! frame longer than [`wire::FRAME_MAX`] is an error, so memory is bounded.

use std::io::{self, Read};

use super::wire;

/// Bytes asked of the kernel at once.
const READ_SIZE: usize = 64 * 1024;

/// Bytes that were received and not looked at yet.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// What a read found out about the connection.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum Source {
    /// There may be more later.
    Open,
    /// There will be no more.
    Ended,
}

impl Frames {
    /// Reads until the socket has no more for now.
    ///
    /// A read shorter than the room it had means that the socket was drained; asking again only
    /// to be told so would cost a system call per wake-up. The next arrival is a new edge.
    ///
    /// # Errors
    /// The operating system's.
    pub fn fill(&mut self, source: &mut impl Read) -> io::Result<Source> {
        loop {
            self.make_room();
            match source.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Ok(Source::Ended),
                Ok(count) => {
                    self.end += count;
                    if self.end < self.bytes.len() {
                        return Ok(Source::Open);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Source::Open),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The next whole frame without its length prefix; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Its length is out of range.
    pub fn next_frame(&mut self) -> io::Result<Option<&[u8]>> {
        let waiting = &self.bytes[self.start..self.end];
        let Some(length) = wire::int_at(waiting, 0) else { return Ok(None) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > wire::FRAME_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "frame length out of range"));
        }
        if waiting.len() < 4 + length {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(Some(&self.bytes[from..from + length]))
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.bytes.len() - self.end >= READ_SIZE / 2 {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.bytes.len() - self.end < READ_SIZE / 2 {
            self.bytes.resize(self.end + READ_SIZE, 0);
        }
    }
}
