//! What goes wrong in the world of a migration, and how it ends.
//!
//! *Owns* deaths of servers and of ZooKeeper's leader, and cuts between servers. *Invariant*: each fault ends at a time
//! that is known when it begins, so that a course without further faults comes to rest.

use lockkeeper_core::replica::Input;

use super::{SERVERS, World};

impl World {
    pub(super) fn go_wrong(&mut self) {
        match self.rng.below(1000) {
            0..4 => {
                self.seen.leaders_replaced += 1;
                let survivors = self.rng.index(self.leader.proposed() + 1);
                self.note(|| format!("ZooKeeper's leader dies, {survivors} proposals survive"));
                self.leader.replace(survivors);
            }
            4..8 => {
                let id = self.rng.range(1, SERVERS.into());
                self.kill(u8::try_from(id).expect("a server"));
            }
            8..12 => {
                let from = u8::try_from(self.rng.range(1, SERVERS.into())).expect("a server");
                let to = from % SERVERS + 1;
                let until_us = self.now_us + self.rng.range(50_000, 1_500_000);
                self.cut(from, to, until_us);
            }
            12..16 => {
                let links: Vec<_> = self.hosts.iter().filter_map(|host| host.link).collect();
                if let Some(link) = links.first() {
                    self.note(|| "the link breaks".to_owned());
                    self.close_link(*link);
                }
            }
            16..19 => {
                self.slow_until_us = self.now_us + self.rng.range(500_000, 5_000_000);
                self.note(|| "ZooKeeper commits nothing for a time".to_owned());
            }
            19..22 => self.hang_leader(),
            _ => {}
        }
    }

    pub(super) fn start(&mut self, id: u8) {
        self.hosts[usize::from(id) - 1].start(&mut self.rng);
        for other in (1..=SERVERS).filter(|other| *other != id) {
            if self.hosts[usize::from(other) - 1].replica.is_some() && !self.is_cut(id, other) {
                self.connect(id, other);
            }
        }
    }

    fn connect(&mut self, one: u8, other: u8) {
        self.hosts[usize::from(one) - 1].step(Input::PeerUp { peer: other.into() });
        self.hosts[usize::from(other) - 1].step(Input::PeerUp { peer: one.into() });
    }

    fn disconnect(&mut self, one: u8, other: u8) {
        self.queues.remove(&(one, other));
        self.queues.remove(&(other, one));
        self.hosts[usize::from(one) - 1].step(Input::PeerDown { peer: other.into() });
        self.hosts[usize::from(other) - 1].step(Input::PeerDown { peer: one.into() });
    }

    pub(super) fn kill(&mut self, id: u8) {
        if self.hosts.iter().any(|host| host.replica.is_none()) {
            return;
        }
        self.note(|| format!("server {id} dies"));
        self.seen.servers_killed += 1;
        let host = &mut self.hosts[usize::from(id) - 1];
        host.replica = None;
        host.restarts_at_us = self.now_us + self.rng.range(100_000, 2_000_000);
        self.looks.retain(|(at, ..)| *at != id);
        if let Some(link) = host.link.take() {
            self.close_link(link);
        }
        for client in self.clients.iter_mut().filter(|it| it.place.is_some_and(|(at, _)| at == id))
        {
            client.closed();
        }
        for other in (1..=SERVERS).filter(|other| *other != id) {
            self.disconnect(id, other);
        }
    }

    pub(super) fn cut(&mut self, one: u8, other: u8, until_us: u64) {
        self.note(|| format!("no link between {one} and {other}"));
        self.cuts.insert((one.min(other), one.max(other)), until_us);
        self.disconnect(one, other);
    }

    pub(super) fn is_cut(&self, one: u8, other: u8) -> bool {
        self.cuts.contains_key(&(one.min(other), one.max(other)))
    }

    /// What was broken for a time comes back.
    pub(super) fn mend(&mut self) {
        let now_us = self.now_us;
        let over: Vec<(u8, u8)> = self
            .cuts
            .iter()
            .filter(|(_, until_us)| **until_us <= now_us)
            .map(|(pair, _)| *pair)
            .collect();
        for (one, other) in over {
            self.cuts.remove(&(one, other));
            let runs = |id: u8| self.hosts[usize::from(id) - 1].replica.is_some();
            if runs(one) && runs(other) {
                self.connect(one, other);
            }
        }
        for id in 1..=SERVERS {
            let host = &self.hosts[usize::from(id) - 1];
            if host.replica.is_none() && host.restarts_at_us <= now_us {
                self.note(|| format!("server {id} starts"));
                self.start(id);
            }
        }
    }

    /// A server and the others hear nothing of each other for a time, and are not told so.
    pub(super) fn isolate(&mut self, id: u8, until_us: u64) {
        for other in (1..=SERVERS).filter(|other| *other != id) {
            self.queues.remove(&(id, other));
            self.queues.remove(&(other, id));
            self.cuts.insert((id.min(other), id.max(other)), until_us);
        }
    }
}
