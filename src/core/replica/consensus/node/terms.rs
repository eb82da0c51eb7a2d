//! How far the terms of other servers may raise this one's.
//!
//! *Owns* a token bucket of terms. *Invariants*: a server never takes a term from a message that is more
//! than [`TERM_STEP_MAX`] above the greater of its own and that of the answer by which it joined; one
//! message or many raise the term by no more than that at once, and after it by one term in a second. So
//! a forger of messages needs 96 days to use up all terms, while elections are never so many for
//! so long. *Never* limits the terms of elections that this server stands in itself: a majority has agreed to
//! each of them before.
//!
//! The bucket is full when the server starts: a forger gains [`TERM_STEP_MAX`] terms by each restart.

use crate::replica::bounds::{TERM_MAX, TERM_STEP_MAX};
use crate::replica::timing::TICK_MS;

/// Ticks in which the bucket gets room for another term: one second.
const TICKS_PER_TERM: u64 = 1000 / TICK_MS;

/// See the module.
#[derive(Debug)]
pub(super) struct Terms {
    /// The own term, as it was when the bucket was full; it follows the own term slowly.
    base: u64,
    ticks: u64,
}

impl Terms {
    /// Of a server that starts with this term.
    pub(super) fn new(own: u64) -> Self {
        Self { base: own, ticks: 0 }
    }

    /// Another server, to which this one has connected, is in this term. That counts for a server only that
    /// has no term yet: it has just joined.
    pub(super) fn introduced(&mut self, own: u64, term: u64) {
        if own == 0 {
            self.base = self.base.max(term);
        }
    }

    /// A tick has passed.
    pub(super) fn tick(&mut self, own: u64) {
        self.ticks += 1;
        if self.ticks >= TICKS_PER_TERM {
            self.ticks = 0;
            self.base += u64::from(self.base < own);
        }
    }

    /// The highest term that is taken from a message now.
    pub(super) fn limit(&self, own: u64) -> u64 {
        (self.base + TERM_STEP_MAX).max(own).min(TERM_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_taken_up_to_the_step_above_the_own_one_or_that_of_the_answer() {
        let mut terms = Terms::new(100);
        assert_eq!(terms.limit(100), 100 + TERM_STEP_MAX);
        terms.introduced(100, 3_000_000);
        assert_eq!(terms.limit(100), 100 + TERM_STEP_MAX, "it knows a term already");
        let mut joining = Terms::new(0);
        joining.introduced(0, 3_000_000);
        assert_eq!(joining.limit(0), 3_000_000 + TERM_STEP_MAX);
        joining.introduced(0, TERM_MAX);
        assert_eq!(joining.limit(0), TERM_MAX);
    }

    #[test]
    fn messages_one_after_the_other_raise_it_no_further_than_one_does() {
        let mut terms = Terms::new(5);
        let mut own = 5;
        for _ in 0..200 {
            own = terms.limit(own);
        }
        assert_eq!(own, 5 + TERM_STEP_MAX);
        // In ten seconds, ten more.
        for _ in 0..10 * TICKS_PER_TERM {
            terms.tick(own);
            own = terms.limit(own);
        }
        assert_eq!(own, 5 + TERM_STEP_MAX + 10);
        // When nothing raises it any more, the room comes back.
        for _ in 0..TERM_STEP_MAX * TICKS_PER_TERM {
            terms.tick(own);
        }
        assert_eq!(terms.limit(own), own + TERM_STEP_MAX);
    }
}
