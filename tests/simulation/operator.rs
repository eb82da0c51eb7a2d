//! The operator: empties a server now and then, and sees it back before the next one.
//!
//! *Owns* what docs/ENSEMBLE.md tells an operator to do, and the way of an empty server into the
//! ensemble. *Invariant*: one server at a time is emptied: the next one only when the leader counts the
//! last one again. Nothing but what a running server shows is looked at.

use lockkeeper_core::replica::founding::{Chance, Founding, Introduction};
use lockkeeper_core::replica::inspect::Mode;
use lockkeeper_storage::{Identity, peek};

use super::conn::Violation;
use super::server::{ensemble, new_identity, place};
use super::world::{Event, World};

/// Longest time between two looks at a server that is to come back.
const LOOK_US_MAX: u64 = 20_000;
/// Longest time between two questions of an empty server.
const ASK_US_MAX: u64 = 100_000;

impl World {
    /// The operator looks, and acts.
    pub(super) fn operate(&mut self) {
        if !self.faults_are_on {
            return;
        }
        if self.rollbacks.is_pending() {
            return self.at(LOOK_US_MAX, Event::Operator);
        }
        let every_us = self.config.wipe_every_us.unwrap_or(1_000_000);
        let in_us = match self.missing {
            // The same one may be emptied again, but that takes time.
            Some(_) if self.operator.chance(950) => self.operator.below(LOOK_US_MAX),
            Some(_) | None => self.operator.below(2 * every_us),
        };
        self.at(1 + in_us, Event::Operator);
        if self.is_spared() {
            return;
        }
        if let Some(server) = self.missing
            && self.is_back(server)
        {
            self.trace.note(self.now_us, format_args!("{} is back", server + 1));
            self.missing = None;
        } else if self.missing.is_none() || self.operator.chance(20) {
            let server = self.operator.index(self.config.servers);
            self.wipe(self.missing.unwrap_or(server));
        }
    }

    /// Whether a server that was emptied follows a leader that counts it, and everybody else.
    pub(super) fn is_back(&self, server: usize) -> bool {
        let shown = |host: usize| {
            let host = &self.hosts[host];
            let replica = host.server.as_ref().map(|server| &server.replica);
            replica.filter(|_| host.paused_until_us == 0).map(|replica| replica.status())
        };
        let Some(own) = shown(server) else { return false };
        if own.mode == Mode::Leader {
            return own.peers.iter().all(|peer| peer.is_synced);
        }
        let leader = own.leader.filter(|_| own.serving);
        let Some(leader) = leader.and_then(|id| shown(usize::from(id) - 1)) else { return false };
        let votes = |at: usize| !self.config.observers.contains(&at);
        let is_counted = |peer: &lockkeeper_core::replica::inspect::PeerStatus| {
            peer.is_synced && peer.votes == votes(usize::from(peer.server) - 1)
        };
        leader.mode == Mode::Leader && leader.peers.iter().all(is_counted)
    }

    /// Kills a server, if it runs, and empties its disk.
    pub(super) fn wipe(&mut self, server: usize) {
        if self.hosts[server].incarnation == 0 {
            return;
        }
        if self.hosts[server].server.is_some() {
            let crash = self.draw_crash(server);
            self.hosts[server].fs.disk().crash(crash);
            self.die(server, crash);
        }
        self.trace.note(self.now_us, format_args!("{} is emptied", server + 1));
        self.coverage.wipes += 1;
        self.missing = Some(server);
        let machine = &mut self.hosts[server];
        machine.fs.disk().wipe();
        machine.state.sled().wipe();
        machine.flips.clear();
        machine.copies.clear();
        machine.founding = None;
        machine.was_wiped = true;
        self.rollbacks.wiped(server);
        self.checker.wiped(server);
    }

    /// What an empty disk is to become. `None`: that is not clear yet, the server asks again.
    pub(super) fn decide(&mut self, host: usize) -> Result<Option<Identity>, Violation> {
        let machine = &self.hosts[host];
        let founder = new_identity(machine.id, &self.config);
        // What cannot be read is for the server to say.
        if !machine.was_wiped || !matches!(peek(&place(machine)), Ok(None)) {
            return Ok(Some(founder));
        }
        let is_reached = |other: &usize| {
            *other != host
                && !self.is_blocked(host, *other)
                && !self.is_blocked(*other, host)
                && self.hosts[*other].paused_until_us == 0
        };
        let reached = (0..self.config.servers).filter(is_reached);
        let said = |other: usize| {
            let server = self.hosts[other].server.as_ref()?;
            Some((self.hosts[other].id, Introduction::Founded(server.identity.identified())))
        };
        let said: Vec<_> = reached.filter_map(said).collect();
        let local_us = machine.local_us(self.now_us);
        let machine = &mut self.hosts[host];
        let chance = Chance {
            nonce: machine.rng.next(),
            ensemble: u128::from(machine.rng.next()),
            incarnation: (machine.rng.next() as u32).max(1),
        };
        let founding = machine
            .founding
            .get_or_insert_with(|| Founding::new(machine.id, &ensemble(&self.config), chance));
        for (id, introduction) in said {
            founding.heard(id, introduction, Some(local_us), local_us);
        }
        let decided = founding.decide(local_us).map_err(|conflict| conflict.to_string())?;
        if decided.is_none() {
            let in_us = 1 + machine.rng.below(ASK_US_MAX);
            self.at(in_us, Event::Restart(host));
        }
        let machine = &mut self.hosts[host];
        Ok(decided.map(|decision| {
            machine.founding = None;
            Identity::new(machine.id, decision.identity)
        }))
    }
}
