//! What a start has found on the disk.

use std::time::Instant;

use crate::replica::Status;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether there was nothing: the data directory is new, or there is none.
    pub is_new: bool,
    /// Whether no copy of the tree was usable: one is fetched from another server, and what else is
    /// said here is not known yet.
    pub is_fetching: bool,
    /// Znodes, as ZooKeeper counts them.
    pub znodes: u64,
    /// Sessions that are waited for.
    pub sessions: u64,
    /// The last zxid.
    pub zxid: i64,
    /// Milliseconds from the start to serving.
    pub took_ms: u64,
}

impl Recovered {
    pub(super) fn of(status: &Status, is_new: bool, start: Instant) -> Self {
        Self {
            is_new,
            is_fetching: false,
            znodes: status.znode_count,
            sessions: status.sessions,
            zxid: status.zxid,
            took_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}
