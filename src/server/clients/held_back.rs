//! Connections of a reconnect storm that are accepted and not served yet.
//!
//! They wait here and not in the system's queue, because that drops the handshakes that it has no room for, and clients
//! repeat those after seconds only.
//!
//! *Owns* the queue. *Invariants*: connections are served in the order of their coming, at the rate of `admission`; one
//! that comes alone does not wait. *Never* decides whether there is room for one: the listener does, and accepts none
//! that would have to yield while others wait here.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpStream;

use super::admission::Accepting;
use super::place::Counted;
use crate::server::transport::Protection;

/// A connection that there is room for.
pub(super) struct Admitted {
    pub(super) stream: TcpStream,
    pub(super) remote: SocketAddr,
    pub(super) speaks: Protection,
    pub(super) counted: Counted,
}

/// Those that wait.
pub(super) struct HeldBack {
    queue: VecDeque<Admitted>,
    accepting: Accepting,
    /// When the first of them is to be looked at again; none if there is none.
    due: Option<Instant>,
}

impl HeldBack {
    pub(super) fn new(accepting: Accepting) -> Self {
        Self { queue: VecDeque::new(), accepting, due: None }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// When [`HeldBack::admitted`] is to be asked again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Gives back the one that may be served at once; otherwise it waits.
    pub(super) fn take_turn(&mut self, admitted: Admitted, now: Instant) -> Option<Admitted> {
        if self.due.is_none() {
            self.due = self.accepting.next(now);
        }
        if self.due.is_none() {
            return Some(admitted);
        }
        self.queue.push_back(admitted);
        None
    }

    /// Those whose turn it is.
    pub(super) fn admitted(&mut self, now: Instant) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        self.due = None;
        while self.due.is_none() && !self.queue.is_empty() {
            self.due = self.accepting.next(now);
            if self.due.is_none() {
                admitted.extend(self.queue.pop_front());
            }
        }
        admitted
    }
}
