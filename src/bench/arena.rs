//! Who holds one lock: known to all connections that contend for it.
//!
//! *Invariants*, checked at each grant: no other client holds the lock, and the new holder's znode has a
//! higher czxid and a higher sequence number than that of every holder before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Fault;

/// The holders of one lock, now and before.
#[derive(Debug)]
pub(super) struct Arena {
    /// The sequence number of the client that holds the lock.
    holder: Option<i64>,
    /// Sequence number and czxid of the last one who did.
    last: (i64, i64),
    /// When the last release was sent.
    released: Option<Instant>,
}

/// An arena that several connections know, on whichever threads they are.
pub(super) type Shared = Arc<Mutex<Arena>>;

/// The arena, for as long as what is returned lives.
pub(super) fn enter(shared: &Shared) -> MutexGuard<'_, Arena> {
    // It is whole between any two of its statements.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    /// Of a lock that was never held.
    pub(super) fn new() -> Shared {
        Arc::new(Mutex::new(Arena { holder: None, last: (-1, -1), released: None }))
    }

    /// Notes that the lock is held now, by the contender with this sequence number and czxid.
    ///
    /// # Errors
    /// It cannot be.
    pub(super) fn grant(&mut self, node: i64, czxid: i64) -> Result<(), Fault> {
        if let Some(holder) = self.holder {
            return Err(Fault::wrong(format!("{node} and {holder} hold the lock at a time")));
        }
        if self.last.0 >= node || self.last.1 >= czxid {
            return Err(Fault::wrong(format!(
                "{node} (czxid {czxid:#x}) holds the lock after {} (czxid {:#x})",
                self.last.0, self.last.1
            )));
        }
        self.holder = Some(node);
        self.last = (node, czxid);
        Ok(())
    }

    /// Notes that the holder sends its release now.
    pub(super) fn release(&mut self, now: Instant) {
        self.holder = None;
        self.released = Some(now);
    }

    /// When the last release was sent.
    pub(super) fn released(&self) -> Option<Instant> {
        self.released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_at_a_time_are_found() {
        let arena = Arena::new();
        let mut arena = enter(&arena);
        arena.grant(1, 10).expect("free");
        let error = arena.grant(2, 11).expect_err("held");
        assert!(error.to_string().contains("at a time"), "{error}");
        arena.release(Instant::now());
        arena.grant(2, 11).expect("released");
    }

    #[test]
    fn a_holder_out_of_turn_is_found() {
        for later in [(4, 12), (5, 12), (6, 10), (6, 9)] {
            let arena = Arena::new();
            let mut arena = enter(&arena);
            arena.grant(5, 10).expect("free");
            arena.release(Instant::now());
            let error = arena.grant(later.0, later.1).expect_err("its turn was before");
            assert!(error.to_string().contains("after 5 (czxid 0xa)"), "{error}");
        }
    }
}
