//! What is measured of entries on their way.
//!
//! *Owns* nothing: looks at what the consensus appends and commits, and tells the figures. *Never* changes anything
//! else.

use crate::replica::Replica;
use crate::replica::durable::{Append, EntryKind};
use crate::replica::machine::txn;

impl Replica {
    /// Measures what is appended now, and what is committed by now.
    pub(in crate::replica) fn measure(&mut self, append: Option<&Append>) {
        let (now_us, wall_ms) = (self.clocks.now_us(), self.clocks.wall_ms());
        let is_leader = self.consensus.is_leader();
        let entries = append.map(|append| append.entries.as_slice()).unwrap_or_default();
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            let stamped = entries.iter().filter(|entry| entry.kind == EntryKind::Normal);
            let ages = stamped.filter_map(|entry| {
                let age_ms = wall_ms.checked_sub(txn::stamped_ms(&entry.data)?)?;
                // Clocks that disagree measure nothing.
                u64::try_from(age_ms).ok()
            });
            let ages = (!is_leader).then(|| ages.collect());
            self.figures.appended((first.index, last.index), now_us, ages);
        }
        self.figures.committed(self.consensus.log_ends().0, now_us, is_leader);
    }
}
