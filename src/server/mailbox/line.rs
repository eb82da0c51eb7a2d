//! The way from the driver to one client.

use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

use tokio::net::tcp::OwnedWriteHalf;

use super::outbox::Outbox;
use super::wakeups::Wakeups;
use crate::replica::{ConnId, Outgoing};

/// An I/O thread, as the driver reaches its tasks.
#[derive(Clone, Debug)]
pub(in crate::server) struct IoThreadOf {
    /// The thread's number, from 0 on.
    pub index: usize,
    /// The way to its tasks.
    pub wakeups: Arc<Wakeups>,
}

/// The way to a client: shared by its task and the driver.
#[derive(Debug)]
pub(in crate::server) struct Line {
    /// Answers that wait to be written.
    pub outbox: Outbox,
    /// Half of the socket that writes, for the side that the outbox names.
    pub writer: OwnedWriteHalf,
    /// Whether bytes are written as they are: without TLS.
    pub is_plain: bool,
    /// The thread that the socket is read and written by, unless it is the driver's.
    pub thread: Option<IoThreadOf>,
    /// Place of the connection in what is counted, until it is dropped: behind the socket.
    #[expect(dead_code, reason = "held, not read")]
    pub place: Option<Box<dyn Any + Send + Sync>>,
}

impl Line {
    /// Whether the driver may write to the socket: its own thread has it, and nothing is to be encrypted.
    pub(in crate::server) fn is_open_to_driver(&self) -> bool {
        self.is_plain && self.thread.is_none()
    }

    /// Sends a client away that comes before there is anything for anybody.
    pub(in crate::server) fn refuse(&self, conn: ConnId, now_us: u64) {
        let refused = Outgoing { conn, close: true, ..Outgoing::default() };
        // Its task learns of the end, and has nothing to write.
        let _ = self.outbox.push(refused, now_us, |_| 0, Waker::wake);
    }
}
