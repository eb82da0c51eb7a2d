//! The outgoing end of a link: frames from the driver to a socket.
//!
//! *Owns* [`Wire`]. When nothing is queued, the driver writes by itself, since waking a task costs
//! more than a small write; everything that is queued leaves in one write. *Invariants*: bytes leave
//! in the order in which they were pushed; nothing is left out between the first byte and the end of
//! the link: a queue beyond [`PEER_QUEUE_BYTES_MAX`] ends it. *Never* blocks the driver.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::server::limits::{PEER_DIRECT_BYTES_MAX, PEER_QUEUE_BYTES_MAX};
use crate::server::transport::Writer;

/// Shared by the driver and the link's task.
#[derive(Debug)]
pub(crate) struct Wire {
    queue: Mutex<Queue>,
    /// There is something to write, or the end has come.
    work: Notify,
    writer: Writer,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    /// The task is writing what it took.
    is_writing: bool,
    is_closed: bool,
}

/// The link cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overfull;

impl Wire {
    /// For a socket whose hello was accepted.
    #[must_use]
    pub(in crate::server) fn new(writer: Writer) -> Self {
        let (queue, work) = (Mutex::default(), Notify::new());
        Self { queue, work, writer, bytes_max: PEER_QUEUE_BYTES_MAX }
    }

    /// Sends whole frames, and leaves `bytes` empty.
    ///
    /// # Errors
    /// More waits than may: the link is closed.
    pub(crate) fn push(&self, bytes: &mut Vec<u8>) -> Result<(), Overfull> {
        let mut queue = self.lock();
        if queue.is_closed {
            bytes.clear();
            return Ok(());
        }
        if queue.is_writing || !queue.bytes.is_empty() {
            if queue.bytes.len() > self.bytes_max {
                bytes.clear();
                self.end(queue);
                return Err(Overfull);
            }
            queue.bytes.append(bytes);
        } else {
            // Under the lock: the task only takes it when it is called. A socket that is broken is
            // the task's to deal with.
            let is_small = bytes.len() <= PEER_DIRECT_BYTES_MAX;
            let written = match &self.writer {
                Writer::Plain(writer) if is_small => writer.try_write(bytes).unwrap_or(0),
                // To encrypt it is the task's.
                Writer::Plain(_) | Writer::Tls(_) => 0,
            };
            if written == bytes.len() {
                bytes.clear();
                return Ok(());
            }
            if written == 0 {
                std::mem::swap(&mut queue.bytes, bytes);
            } else {
                queue.bytes.extend_from_slice(&bytes[written..]);
                bytes.clear();
            }
        }
        drop(queue);
        self.work.notify_one();
        Ok(())
    }

    /// Bytes that wait behind what is being written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.lock().bytes.len()
    }

    /// Ends the link.
    pub(crate) fn close(&self) {
        self.end(self.lock());
    }

    /// Writes what is queued until the link is closed or breaks.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) async fn run(&self) -> io::Result<()> {
        let mut taken = Vec::new();
        loop {
            self.work.notified().await;
            loop {
                taken.clear();
                {
                    let mut queue = self.lock();
                    if queue.is_closed {
                        return Ok(());
                    }
                    std::mem::swap(&mut queue.bytes, &mut taken);
                    queue.is_writing = !taken.is_empty();
                    if taken.is_empty() {
                        break;
                    }
                }
                self.write(&taken).await?;
                if taken.capacity() > BUFFER_BYTES_KEPT {
                    taken = Vec::new();
                }
            }
        }
    }

    async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let writer = match &self.writer {
            Writer::Plain(writer) => writer,
            Writer::Tls(writer) => {
                let mut writer = writer.lock().await;
                writer.write_all(bytes).await?;
                return writer.flush().await;
            }
        };
        while !bytes.is_empty() {
            match writer.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    writer.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.is_closed = true;
        queue.bytes = Vec::new();
        drop(queue);
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that holds the lock can panic half-way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A larger buffer is given back once it is written.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn wire(bytes_max: usize) -> (Arc<Wire>, TcpStream, impl Drop) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (keep, writer) = stream.unwrap().into_split();
        let wire = Arc::new(Wire { bytes_max, ..Wire::new(Writer::Plain(writer)) });
        (wire, accepted.unwrap().0, Box::new(keep))
    }

    #[tokio::test]
    async fn bytes_arrive_in_the_order_in_which_they_were_pushed() {
        let (wire, mut reader, _keep) = wire(usize::MAX).await;
        let task = tokio::spawn({
            let wire = Arc::clone(&wire);
            async move { wire.run().await }
        });
        let mut expected = Vec::new();
        for round in 0..200_u32 {
            let length = [3, PEER_DIRECT_BYTES_MAX + 1, 70_000][round as usize % 3];
            let mut bytes = vec![round.to_le_bytes()[0]; length];
            expected.extend_from_slice(&bytes);
            wire.push(&mut bytes).unwrap();
            assert!(bytes.is_empty());
            if round % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut received = vec![0; expected.len()];
        reader.read_exact(&mut received).await.unwrap();
        assert!(received == expected);
        wire.close();
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_queue_beyond_its_limit_ends_the_link() {
        let (wire, _reader, _keep) = wire(1 << 20).await;
        // Neither end reads, and none writes what the socket does not take at once.
        let mut pushed = 0;
        while wire.push(&mut vec![7; 512 << 10]).is_ok() {
            pushed += 1;
            assert!(pushed < 10, "it never ended");
        }
        assert!(pushed >= 2, "the limit was not reached");
        assert_eq!(wire.push(&mut vec![7; 10]), Ok(()), "it goes nowhere");
        wire.run().await.unwrap();
    }
}
