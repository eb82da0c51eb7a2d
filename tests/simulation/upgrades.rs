//! Programs of two releases: one knows the first version of ensembles alone, the other one the second as well.
//!
//! *Owns* which of them is started on which machine, and the operator who finishes the upgrade. *Invariants*: until the
//! operator has asked for that, a machine may get either program at any start, so servers go forth and back; the
//! operator asks only while every server runs the later one, as `admin/upgrade.rs` makes sure, and starts no earlier
//! one from then on. What must follow is what always must: all servers agree, and none stops.

use lockkeeper_core::replica::txn_version::{FIRST, SECOND};
use lockkeeper_core::replica::{Input, Machine};

use super::rng::Rng;
use super::server::Arrival;
use super::world::{Event, World};

/// Longest time between two looks of the operator.
const LOOK_US_MAX: u64 = 200_000;
/// How many starts of 1000 are of the later program.
const LATER: u64 = 800;

impl World {
    /// The last version that the program knows which is started on this machine now.
    pub(super) fn known_version(&mut self, host: usize) -> u8 {
        if self.is_upgraded || !self.config.upgrades {
            return SECOND;
        }
        // Before an ensemble of the earlier release exists, there is nothing to upgrade.
        let is_written = self.machines().any(|machine| machine.last_zxid() > 0);
        self.is_begun |= is_written;
        let of_start = self.hosts[host].incarnation << 8 | host as u64;
        let is_later = Rng::new(self.config.seed ^ of_start << 20, 17).chance(LATER);
        if self.is_begun && is_later { SECOND } else { FIRST }
    }

    fn machines(&self) -> impl Iterator<Item = &Machine> {
        let servers = self.hosts.iter().filter_map(|host| host.server.as_ref());
        servers.map(|server| server.replica.machine())
    }

    /// The operator looks whether the upgrade can be finished, and sees to it until it is.
    pub(super) fn finish_upgrade(&mut self) {
        if !self.faults_are_on {
            return;
        }
        let in_us = 1 + self.operator.below(LOOK_US_MAX);
        self.at(in_us, Event::Upgrade);
        let machines: Vec<_> = self.machines().collect();
        if machines.iter().any(|machine| machine.version() == SECOND) {
            self.coverage.upgrades = 1;
            return;
        }
        let all_know = machines.iter().all(|machine| machine.known_version() == SECOND);
        if self.is_upgraded || all_know && machines.len() == self.hosts.len() {
            self.is_upgraded = true;
            self.trace.note(self.now_us, format_args!("the operator finishes the upgrade"));
            for server in self.hosts.iter_mut().filter_map(|host| host.server.as_mut()) {
                server.arrive(Arrival::Input(Input::FinishUpgrade { version: SECOND }));
            }
        }
    }
}
