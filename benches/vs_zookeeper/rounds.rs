//! What is measured in turns, round by round: which servers, where they are, how often and how long.

use std::path::PathBuf;
use std::time::Duration;

use crate::figures::PeerName;
use crate::kinds::Kind;

pub struct Rounds {
    pub kinds: Vec<Kind>,
    /// Servers of each kind, an ensemble if more than one.
    pub servers: u16,
    pub count: usize,
    pub warm_up: Duration,
    pub window: Duration,
    /// Unmeasured load on each ZooKeeper before the first round, for its compiler; others get a
    /// fifth of it.
    pub first_warm_up: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

impl Rounds {
    /// The kinds, as figures name them.
    pub fn peers(&self) -> Vec<PeerName> {
        self.kinds.iter().map(Kind::peer).collect()
    }

    pub fn window_ms(&self) -> u64 {
        self.window.as_millis() as u64
    }
}
