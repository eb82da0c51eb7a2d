//! Copies of ZooKeeper's state that a leader has begun.
//!
//! *Owns* how many there were, and when operators were told last how far one is. *Never* knows what has come.

/// Time between two lines about a copy that is being made, in microseconds.
const TOLD_US: u64 = 10_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::replica) struct Copies {
    /// How many were begun since this server leads.
    pub(in crate::replica) begun: u64,
    /// When the last one was, in microseconds.
    pub(in crate::replica) since_us: u64,
    told_us: u64,
}

impl Copies {
    /// Another one begins.
    pub(super) fn begin(&mut self, now_us: u64) {
        *self = Self { begun: self.begun + 1, since_us: now_us, told_us: now_us };
    }

    /// Whether operators are to be told now how far it is.
    pub(in crate::replica) fn tells(&mut self, now_us: u64) -> bool {
        let tells = now_us.saturating_sub(self.told_us) >= TOLD_US;
        if tells {
            self.told_us = now_us;
        }
        tells
    }
}
