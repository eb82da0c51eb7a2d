//! A canonical dump of a replica's state: two replicas with equal dumps go on alike, whatever happens to them.
//!
//! *Owns* how a time is written, by its distance from now, so that states that differ only in the date have equal
//! dumps. Each owner writes its own part, and names every one of its fields: a new one does not compile before it
//! is thought of. *Invariant*: a field is left out only where its part says why nothing depends on it; a time is
//! cut off at an age only from which on every rule takes it for the same. *Never* changes anything. It is for
//! `tests/simulation/exploration`, where the wall clock stands still and there are neither containers nor znodes
//! with a time to live: the steady clock is left out.

use std::fmt::{Debug, Write};

/// Takes the parts of a dump.
#[derive(Debug)]
pub(in crate::replica) struct Canonical {
    now_us: u64,
    text: String,
}

impl Canonical {
    /// Of a replica for which it is this late.
    pub(in crate::replica) fn at(now_us: u64) -> Self {
        Self { now_us, text: String::with_capacity(4096) }
    }

    /// What has no times.
    pub(in crate::replica) fn value(&mut self, value: &dyn Debug) {
        let _memory_takes_all = write!(self.text, "{value:?};");
    }

    /// A time, past or to come.
    pub(in crate::replica) fn time(&mut self, at_us: u64) {
        let age_us = i128::from(self.now_us) - i128::from(at_us);
        let _memory_takes_all = write!(self.text, "@{age_us};");
    }

    /// A time that counts no more from this age on.
    pub(in crate::replica) fn time_up_to(&mut self, at_us: u64, age_us_max: u64) {
        self.time(at_us.max(self.now_us.saturating_sub(age_us_max)));
    }

    /// A time that there need not be.
    pub(in crate::replica) fn maybe_time(&mut self, at_us: Option<u64>) {
        match at_us {
            Some(at_us) => self.time(at_us),
            None => self.value(&()),
        }
    }

    pub(in crate::replica) fn finish(self) -> String {
        self.text
    }
}
