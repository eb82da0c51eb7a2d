//! A canonical dump of a replica's state: two replicas with equal dumps go on alike, whatever happens to them.
//!
//! *Owns* the form of the dump. Each owner has a part, which names every one of its fields: a new one does not compile
//! before it is thought of. Times are written as they are: who compares dumps takes a time by its distance from now, so
//! that states that differ only in the date count as equal. *Invariant*: a field is left out only where its part says
//! why nothing depends on it; a time is cut off at an age only from which on every rule takes it for the same. *Never*
//! changes anything. It is for `tests/simulation/exploration`, where the wall clock stands still and there are neither
//! containers nor znodes with a time to live: the steady clock is left out.

use std::fmt::{Debug, Write};

use bytes::Bytes;

use super::Replica;
use super::machine::Batch;
use super::messages::server_of;

/// The part of an owner: its fields that are written as they are, those that are left out, and what is written of the
/// others.
macro_rules! canonical {
    (
        $owner:ident $(($($arg:ident: $type:ty),+))?: $($field:ident),*;
        $(without $($left_out:ident),+;)?
        $(|$to:ident, $($used:ident),+| $write:expr)?
    ) => {
        impl $owner {
            pub(in crate::replica) fn canonical(
                &self,
                $($($arg: $type,)+)?
                out: &mut $crate::replica::canonical::Canonical,
            ) {
                let Self { $($field,)* $($($left_out: _,)+)? $($($used,)+)? } = self;
                $(out.value($field);)*
                $(
                    let $to = out;
                    $write;
                )?
            }
        }
    };
}

/// Takes the parts of a dump.
#[derive(Debug)]
pub(in crate::replica) struct Canonical {
    now_us: u64,
    text: String,
}

impl Canonical {
    pub(in crate::replica) fn value(&mut self, value: &dyn Debug) {
        let _memory_takes_all = write!(self.text, "{value:?};");
    }

    /// A time that counts no more from this age on.
    pub(in crate::replica) fn time_up_to(&mut self, at_us: u64, age_us_max: u64) {
        self.value(&at_us.max(self.now_us.saturating_sub(age_us_max)));
    }

    /// A time that there need not be.
    pub(in crate::replica) fn maybe_time_up_to(&mut self, at_us: Option<u64>, age_us_max: u64) {
        match at_us {
            Some(at_us) => self.time_up_to(at_us, age_us_max),
            None => self.value(&()),
        }
    }

    /// The data of an entry of the log, without what only tells the date.
    pub(in crate::replica) fn entry(&mut self, data: &Bytes) {
        match Batch::decode(data) {
            Ok(Batch { time, txns, .. }) => self.value(&(time.wall_ms, time.is_agreed, txns)),
            Err(_) => self.value(data),
        }
    }
}

impl Replica {
    /// What an entry of the log holds, as [`Replica::canonical`] has it: without what only tells the date.
    #[doc(hidden)]
    #[must_use]
    pub fn canonical_entry(data: &Bytes) -> String {
        let mut out = Canonical { now_us: 0, text: String::new() };
        out.entry(data);
        out.text
    }

    /// All that what this replica does depends on, for comparison with another one's (see `replica/canonical.rs`).
    /// To be called when [`Replica::ready`] has nothing to be done.
    #[must_use]
    pub fn canonical(&self) -> String {
        let Self {
            setup,
            clocks,
            consensus,
            leadership,
            reads,
            state,
            clients,
            forwarding,
            sessions,
            following,
            ensemble,
            comparison: _explored_servers_compare_nothing,
            output,
            unapplied: _none_between_turns,
            deferred: _none_between_turns_either,
            figures: _operators_alone_see_them,
        } = self;
        let mut out = Canonical { now_us: clocks.now_us(), text: String::with_capacity(4096) };
        let is_linked = |peer: u64| ensemble.connected(server_of(peer)) == Some(peer);
        out.value(&(setup.raft_id, setup.seed, reads, forwarding, output));
        clocks.canonical(&mut out);
        consensus.canonical(&mut out);
        following.canonical(&mut out);
        leadership.canonical(clients.waiting_since_us().is_some(), &mut out);
        state.canonical(&mut out);
        clients.canonical(&mut out);
        sessions.canonical(leadership.leads().is_some(), is_linked, &mut out);
        ensemble.canonical(&mut out);
        out.text
    }
}
