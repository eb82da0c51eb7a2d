//! A leader that is hung while another one is elected, and then goes on as if it led.
//!
//! *Invariant*: it commits nothing: what it is asked for later, no majority has.

use std::mem::take;

use lockkeeper_core::zookeeper::Txn;

use super::{Decider, Leader, LinkId};

/// Links that one leader may have had before the next one.
const LINKS_OF_ONE: LinkId = 1 << 32;

impl Leader {
    /// As [`replace`](Self::replace), but the leader does not die: it keeps its links, and is returned.
    pub fn depose(&mut self, survivors: usize) -> Self {
        let mut deposed = Self::new(self.ticks, self.now_ms);
        for committed in &self.history {
            let txn = Txn::decode(committed.bytes.clone()).expect("it was encoded");
            deposed.applied.apply_foreign(&txn);
        }
        let deposed = Self {
            pinged_ms: self.pinged_ms,
            epoch: self.epoch,
            counter: self.counter,
            decider: std::mem::replace(&mut self.decider, Decider::fresh()),
            proposed: self.proposed.clone(),
            committed: self.committed.clone(),
            history: self.history.clone(),
            log_max: self.log_max,
            last_processed: self.last_processed,
            sessions: take(&mut self.sessions),
            links: take(&mut self.links),
            links_made: self.links_made,
            syncs: take(&mut self.syncs),
            is_deposed: true,
            ..deposed
        };
        self.links_made += LINKS_OF_ONE;
        self.replace(survivors);
        deposed
    }

    /// It was hung until now: what its learners have sent meanwhile is read behind the end of sessions that are silent.
    pub fn wake(&mut self, now_ms: i64) {
        self.links.values_mut().for_each(|link| link.heard_ms = now_ms);
        self.tick(now_ms);
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.feed(link, &[]));
    }

    /// Keeps what a learner has sent until [`wake`](Self::wake).
    pub fn keep(&mut self, link: LinkId, bytes: &[u8]) {
        if let Some(link) = self.links.get_mut(&link) {
            link.input.extend_from_slice(bytes);
        }
    }
}
