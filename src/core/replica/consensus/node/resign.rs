//! The hand-over of leadership to another server.
//!
//! *Owns* nothing: chooses among the voters that Raft's leader hears. *Never* decides when: the steps do.

use super::Consensus;

impl Consensus {
    /// Hands leadership over to the server that has most of the log. False: there is none.
    pub(in crate::replica) fn resign(&mut self) -> bool {
        if !self.is_leader() {
            return false;
        }
        let own = self.id();
        let others = self.peers();
        let best = others
            .iter()
            .filter(|peer| peer.votes && peer.is_active && peer.id != own)
            .max_by_key(|peer| (peer.matched, u64::MAX - peer.id));
        let Some(best) = best else { return false };
        self.node.transfer_leader(best.id);
        self.fix_timeout();
        true
    }

    /// Asks that server to lead instead.
    #[cfg(test)]
    pub(in crate::replica) fn transfer_to(&mut self, id: u64) {
        self.node.transfer_leader(id);
    }
}
