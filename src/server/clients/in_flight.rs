//! How much is in flight: ZooKeeper's `globalOutstandingLimit`.
//!
//! *Owns* [`Throttle`], the server's count of unanswered requests and of their bytes, and
//! [`InFlight`], one connection's share of it. *Invariant*: what a connection has added is taken
//! off again when it is answered or when the connection ends. *Never* holds up anyone itself: a
//! connection asks before it reads. Reproduces `ServerCnxn.incrOutstandingAndCheckThrottle`, and
//! adds what ZooKeeper lacks: of long requests, and of those for long answers, few of one client are in flight at once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::server::limits::{
    ANSWER_BYTES_UNKNOWN, CONNECTION_BYTES_MAX, CONNECTION_REQUESTS_MAX, OUTSTANDING_BYTES_MAX,
};
use crate::server::metrics::Striped;

/// Unanswered requests of all connections.
#[derive(Debug)]
pub(crate) struct Throttle {
    requests: Striped,
    bytes: Striped,
    requests_max: u64,
}

impl Throttle {
    /// Nothing in flight.
    #[must_use]
    pub(crate) fn new(requests_max: u64) -> Self {
        Self { requests: Striped::default(), bytes: Striped::default(), requests_max }
    }

    /// Unanswered requests.
    #[must_use]
    pub(crate) fn requests(&self) -> u64 {
        self.requests.total()
    }

    fn is_above(&self) -> bool {
        self.requests() > self.requests_max || self.bytes.total() > OUTSTANDING_BYTES_MAX
    }
}

/// Unanswered requests of one connection.
#[derive(Debug)]
pub(super) struct InFlight {
    throttle: Arc<Throttle>,
    /// Payload bytes of each, oldest first.
    sizes: VecDeque<u32>,
    bytes: u64,
    /// How long the next answers are expected to be: as the recent ones were.
    answer_bytes: usize,
}

impl InFlight {
    /// None.
    #[must_use]
    pub(super) fn new(throttle: Arc<Throttle>) -> Self {
        Self { throttle, sizes: VecDeque::new(), bytes: 0, answer_bytes: ANSWER_BYTES_UNKNOWN }
    }

    /// How many more requests the connection may hand on, if their answers may take `bytes_left`.
    /// One that has nothing in flight always may: its own answers are what wakes a connection that
    /// may not.
    #[must_use]
    pub(super) fn room(&self, bytes_left: usize) -> usize {
        if self.sizes.is_empty() {
            return (bytes_left / self.answer_bytes).max(1);
        }
        let is_enough = self.sizes.len() >= CONNECTION_REQUESTS_MAX as usize
            || self.bytes >= CONNECTION_BYTES_MAX;
        if is_enough || self.throttle.is_above() {
            return 0;
        }
        (bytes_left / self.answer_bytes).saturating_sub(self.sizes.len())
    }

    /// Requests with payloads of these lengths go to the driver.
    pub(super) fn add(&mut self, sizes: &[u32]) {
        let bytes: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        self.sizes.extend(sizes);
        self.bytes += bytes;
        self.throttle.requests.add(sizes.len() as u64);
        self.throttle.bytes.add(bytes);
    }

    /// The oldest `replies` requests are answered, with this many bytes in all.
    pub(super) fn answered(&mut self, replies: u32, answer_bytes: usize) {
        if replies > 0 {
            let recent = answer_bytes / replies as usize;
            self.answer_bytes = recent.max(self.answer_bytes / 2).max(1);
        }
        let replies = self.sizes.len().min(replies as usize);
        let bytes: u64 = self.sizes.drain(..replies).map(u64::from).sum();
        self.take_off(replies as u64, bytes);
    }

    fn take_off(&mut self, requests: u64, bytes: u64) {
        self.bytes -= bytes;
        self.throttle.requests.take_off(requests);
        self.throttle.bytes.take_off(bytes);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.take_off(self.sizes.len() as u64, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More room for answers than any test fills.
    const BYTES: usize = 1 << 40;

    #[test]
    fn above_the_global_limit_only_connections_with_requests_in_flight_wait() {
        let throttle = Arc::new(Throttle::new(2));
        let mut busy = InFlight::new(Arc::clone(&throttle));
        let idle = InFlight::new(Arc::clone(&throttle));
        busy.add(&[10, 10]);
        assert!(busy.room(BYTES) > 0, "at the limit");
        busy.add(&[10]);
        assert_eq!(busy.room(BYTES), 0, "above the limit");
        assert!(idle.room(BYTES) > 0, "it has nothing in flight");
        busy.answered(1, 0);
        assert!(busy.room(BYTES) > 0);
    }

    #[test]
    fn bytes_count_as_well_as_requests() {
        let throttle = Arc::new(Throttle::new(1000));
        let mut busy = InFlight::new(Arc::clone(&throttle));
        let mut others = InFlight::new(Arc::clone(&throttle));
        others.add(&[u32::try_from(OUTSTANDING_BYTES_MAX).unwrap() - 1]);
        busy.add(&[1]);
        assert!(busy.room(BYTES) > 0, "at the limit");
        busy.add(&[1]);
        assert_eq!(busy.room(BYTES), 0, "above the limit");
    }

    #[test]
    fn the_bytes_of_one_connection_have_a_limit_of_their_own() {
        let mut busy = InFlight::new(Arc::new(Throttle::new(u64::MAX)));
        busy.add(&[u32::try_from(CONNECTION_BYTES_MAX).unwrap() - 1]);
        assert!(busy.room(BYTES) > 0);
        busy.add(&[1]);
        assert_eq!(busy.room(BYTES), 0);
        busy.answered(1, 0);
        assert!(busy.room(BYTES) > 0);
    }

    #[test]
    fn one_connection_has_a_limit_of_its_own() {
        let mut busy = InFlight::new(Arc::new(Throttle::new(u64::MAX)));
        busy.add(&[1; CONNECTION_REQUESTS_MAX as usize - 1]);
        assert!(busy.room(BYTES) > 0);
        busy.add(&[1]);
        assert_eq!(busy.room(BYTES), 0);
    }

    #[test]
    fn few_requests_for_long_answers_are_in_flight_at_once_and_many_for_short_ones() {
        let mut busy = InFlight::new(Arc::new(Throttle::new(u64::MAX)));
        let left = 1 << 20;
        assert_eq!(busy.room(left), left / ANSWER_BYTES_UNKNOWN, "nothing is known yet");
        busy.add(&[1; 4]);
        assert_eq!(busy.room(left), 0);
        busy.answered(4, 4 << 20);
        assert_eq!((busy.room(left), busy.room(0)), (1, 1), "never none with nothing in flight");
        for _ in 0..20 {
            busy.add(&[1]);
            busy.answered(1, 100);
        }
        assert_eq!(busy.room(left), left / 100);
        busy.add(&[1]);
        busy.answered(1, 0);
        busy.answered(0, 1 << 30);
        assert_eq!(busy.room(left), left / 50, "events are no answers");
    }

    #[test]
    fn what_a_connection_leaves_unanswered_is_taken_off_when_it_ends() {
        let throttle = Arc::new(Throttle::new(2));
        let mut one = InFlight::new(Arc::clone(&throttle));
        one.add(&[5; 9]);
        one.answered(4, 0);
        one.answered(u32::MAX, 0);
        one.add(&[5; 3]);
        drop(one);
        assert_eq!((throttle.requests(), throttle.bytes.total()), (0, 0));
    }
}
