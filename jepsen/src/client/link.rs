//! One connection: whole frames out, whole frames in.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of the longest frame that is taken from a server.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// A connection that is not there after this long will not come.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// A server that takes no bytes for this long takes none.
const WRITE_MAX: Duration = Duration::from_secs(2);
/// Bytes asked of the kernel at once.
const READ_BYTES: usize = 16 << 10;
/// A shorter timeout of a socket is none.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A connection.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens, or not in time.
    pub fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_MAX))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The connection is gone; nobody knows how much of the frame has arrived.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.stream.write_all(frame)
    }

    /// The next frame without its length, or `None` if there is none by `until`.
    ///
    /// # Errors
    /// The connection is gone, or a length is absurd.
    pub fn receive(&mut self, until: Instant) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(frame) = self.whole()? {
                return Ok(Some(frame));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left.max(WAIT_MIN)))?;
            let mut bytes = [0; READ_BYTES];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn whole(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((length, rest)) = self.received.split_first_chunk::<4>() else { return Ok(None) };
        let announced = i32::from_be_bytes(*length);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            let what = format!("a frame of {announced} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.received.drain(..4 + length);
        Ok(Some(frame))
    }
}
