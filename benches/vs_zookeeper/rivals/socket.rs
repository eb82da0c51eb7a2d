//! One connection of a rival's client: bytes out when they can be, bytes in as they come.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;

use mio::net::TcpStream;

/// Bytes asked of the kernel at once.
const READ_SIZE: usize = 16 * 1024;

/// A connection that does not block.
pub struct Socket {
    pub stream: TcpStream,
    /// What was received and not taken yet.
    pub received: Vec<u8>,
    /// What is to be sent.
    pub unsent: Vec<u8>,
}

impl Socket {
    /// Connects, and waits for that.
    pub fn open(addr: SocketAddr) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("{addr}: {e}");
        let stream = std::net::TcpStream::connect(addr).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        let stream = TcpStream::from_std(stream);
        Ok(Socket { stream, received: Vec::new(), unsent: Vec::new() })
    }

    /// Sends what the kernel takes.
    pub fn flush(&mut self) -> Result<(), String> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(0) => return Err("send: the connection is gone".to_owned()),
                Ok(count) => sent += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("send: {e}")),
            }
        }
        self.unsent.drain(..sent);
        Ok(())
    }

    /// Takes in what has come. A read that fills less than it could has emptied the socket.
    pub fn fill(&mut self) -> Result<(), String> {
        loop {
            let from = self.received.len();
            self.received.resize(from + READ_SIZE, 0);
            let outcome = self.stream.read(&mut self.received[from..]);
            self.received.truncate(from + *outcome.as_ref().unwrap_or(&0));
            match outcome {
                Ok(0) => return Err("receive: the server closed the connection".to_owned()),
                Ok(READ_SIZE) => {}
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("receive: {e}")),
            }
        }
    }
}
