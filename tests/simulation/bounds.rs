//! How much a world may hold.
//!
//! *Owns* the bounds, each several times what any seed without a deliberate bug was seen to hold. *Invariant*: the
//! same seed breaks a bound at the same step. *Never* counts more often than once in [`COUNT_EVERY`] steps: a bug that
//! makes a world grow without end is found in time, and the other worlds do not pay for it.

use super::conn::Violation;
use super::host::{Host, HostEvent};
use super::world::{Event, World};

/// Steps between two looks.
const COUNT_EVERY: u64 = 512;
/// Outputs of a server in one turn.
pub const OUTPUTS_MAX: usize = 10_000;

/// What is counted, and the most that there may be.
pub const BOUNDS: [(&str, usize); 7] = [
    ("events to come", 20_000),
    ("bytes on their way", 64 << 20),
    ("bytes on disks", 1 << 30),
    ("transactions", 100_000),
    ("entries proposed", 100_000),
    ("writes asked for", 100_000),
    ("connections", 500_000),
];

impl World {
    /// A step was made.
    pub(super) fn holds_no_more_than_it_may(&self) -> Result<(), Violation> {
        if !self.steps.is_multiple_of(COUNT_EVERY) {
            return Ok(());
        }
        judge(self.held())
    }

    /// In the order of [`BOUNDS`].
    fn held(&self) -> [usize; BOUNDS.len()] {
        let waiting = self.waiting();
        let backlogs = self.hosts.iter().flat_map(Host::backlog);
        let on_their_way = waiting.map(bytes_of).chain(backlogs.map(bytes_of_host));
        [
            self.event_count(),
            on_their_way.sum::<usize>() + self.network.held_bytes(),
            self.hosts.iter().map(|host| host.fs.disk().bytes()).sum(),
            self.checker.history.len(),
            self.checker.agreement.proposal_count(),
            self.checker.writes.len(),
            self.checker.handshakes.len(),
        ]
    }
}

pub fn judge(held: [usize; BOUNDS.len()]) -> Result<(), Violation> {
    for ((what, most), count) in BOUNDS.into_iter().zip(held) {
        if count > most {
            return Err(format!("the world holds {count} {what}, more than {most}"));
        }
    }
    Ok(())
}

fn bytes_of(event: &Event) -> usize {
    if let Event::Host { what, .. } = event {
        bytes_of_host(what)
    } else if let Event::ToClient(_, bytes) = event {
        bytes.len()
    } else {
        0
    }
}

fn bytes_of_host(what: &HostEvent) -> usize {
    if let HostEvent::Bytes(_, bytes)
    | HostEvent::FromPeer(_, bytes)
    | HostEvent::Forged(_, bytes) = what
    {
        bytes.len()
    } else {
        0
    }
}
