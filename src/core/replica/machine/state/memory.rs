//! The memory of one server, which may change without an entry of the log.
//!
//! *Owns* nothing: reaches the tree for the scrub, and for tests that change one server alone. *Never* is called for an
//! entry.

use super::Machine;
#[cfg(test)]
use crate::replica::machine::version;
#[cfg(test)]
use crate::tree::{Context, Rules};

impl Machine {
    /// See `Tree::scrub`.
    pub(in crate::replica) fn scrub(
        &mut self,
        znodes_max: usize,
        bytes_max: usize,
    ) -> Option<bool> {
        self.tree.scrub(znodes_max, bytes_max)
    }

    /// See `Tree::flip_a_byte`.
    pub(in crate::replica) fn flip_a_byte(&mut self, path: &str) {
        self.tree.flip_a_byte(path);
    }

    /// Changes a znode on this server alone.
    #[cfg(test)]
    pub(in crate::replica) fn change_alone(&mut self, path: &str) {
        let context = Context {
            zxid: self.last_zxid,
            time_ms: self.last_time_ms,
            steady_ms: self.steady_ms,
            session: 0,
            ids: &[],
            rules: Rules { skip_acl: true, ..Rules::DEFAULT },
        };
        self.tree.set_data(&context, &path.into(), Some(b"other"), -1, &mut Vec::new()).unwrap();
    }

    /// As if an earlier release had begun.
    #[cfg(test)]
    pub(in crate::replica) fn back_to_the_first_version(&mut self) {
        self.version = version::FIRST;
    }
}
