//! Links with ZooKeeper's leader, and with one that was deposed.
//!
//! *Owns* which leader a link is with. *Invariant*: of the leaders that answer, the one with the highest epoch is
//! linked with, as the server's shell has it.

use lockkeeper_core::learner::{Joining, Learner};
use lockkeeper_core::replica::{Input, LinkInput, Replica, ZooKeeperWork};

use super::super::super::conn::Violation;
use super::super::super::zookeeper::{Leader, LinkId};
use super::World;

/// How much later it is for a leader that was hung: its clients have been silent for as long.
const HUNG_MS: i64 = 60_000;

/// A leader that is hung, or awake again, and does not know that another one was elected.
pub(super) struct Deposed {
    leader: Leader,
    is_hung: bool,
    wakes_at_us: u64,
    ends_at_us: u64,
}

impl World {
    /// ZooKeeper's leader hangs, and another one is elected.
    pub(super) fn hang_leader(&mut self) {
        if self.deposed.is_some() {
            return;
        }
        self.seen.leaders_hung += 1;
        let survivors = self.rng.index(self.leader.proposed() + 1);
        let wakes_at_us = self.now_us + self.rng.range(100_000, 6_000_000);
        let ends_at_us = wakes_at_us + self.rng.range(100_000, 3_000_000);
        self.note(|| {
            format!("ZooKeeper's leader hangs and is deposed, {survivors} proposals survive")
        });
        let leader = self.leader.depose(survivors);
        self.deposed = Some(Deposed { leader, is_hung: true, wakes_at_us, ends_at_us });
    }

    /// Time passes for a leader that was deposed.
    pub(super) fn mind_deposed(&mut self) {
        let now_us = self.now_us;
        let now_ms = (now_us / 1000).cast_signed() + HUNG_MS;
        if self.deposed.take_if(|it| it.ends_at_us <= now_us).is_some() {
            self.note(|| "the deposed leader notices it".to_owned());
        }
        match &mut self.deposed {
            Some(it) if it.is_hung && it.wakes_at_us <= now_us => {
                it.is_hung = false;
                it.leader.wake(now_ms);
                self.note(|| "the deposed leader wakes".to_owned());
            }
            Some(it) if !it.is_hung => it.leader.tick(now_ms),
            Some(_) | None => {}
        }
    }

    pub(super) fn close_link(&mut self, link: LinkId) {
        self.leader.close(link);
        if let Some(deposed) = &mut self.deposed {
            deposed.leader.close(link);
        }
    }

    /// Bytes of ZooKeeper's leader.
    pub(super) fn carry(&mut self, id: u8) -> Result<(), Violation> {
        let host = &mut self.hosts[usize::from(id) - 1];
        let Some(link) = host.link else { return Ok(()) };
        let leader = match &mut self.deposed {
            Some(it) if it.leader.is_open(link) && it.is_hung => return Ok(()),
            Some(it) if it.leader.is_open(link) => &mut it.leader,
            Some(_) | None => &mut self.leader,
        };
        if let Some(complaint) = leader.complaint(link) {
            return Err(format!("ZooKeeper's leader complains of server {id}: {complaint}"));
        }
        if !host.replica.as_ref().is_some_and(Replica::takes_from_zookeeper) {
            return Ok(());
        }
        let most = if self.rng.chance(700) { usize::MAX } else { self.rng.index(400) };
        let bytes = leader.take_output(link, most);
        if !bytes.is_empty() {
            host.step(Input::ZooKeeper(LinkInput::Bytes(bytes.into())));
        } else if !leader.is_open(link) {
            host.link = None;
            self.seen.links_lost += 1;
            host.step(Input::ZooKeeper(LinkInput::Down { why: "it was closed".to_owned() }));
        }
        Ok(())
    }

    pub(super) fn link(&mut self, id: u8, work: ZooKeeperWork) {
        for words in work.news.iter().chain(&work.alarms) {
            self.note(|| format!("server {id}: {words}"));
        }
        let at = usize::from(id) - 1;
        if work.close
            && let Some(link) = self.hosts[at].link.take()
        {
            self.close_link(link);
        }
        if let Some((_, joining)) = work.connect {
            let up = match self.dial(&joining) {
                Some((link, learner)) => {
                    self.hosts[at].link = Some(link);
                    LinkInput::Up { remote: "zk:2888".to_owned(), learner }
                }
                None => LinkInput::Down { why: "refused".to_owned() },
            };
            self.hosts[at].step(Input::ZooKeeper(up));
        }
        if let Some(link) = self.hosts[at].link
            && !work.bytes.is_empty()
        {
            match &mut self.deposed {
                Some(it) if it.is_hung => it.leader.keep(link, &work.bytes),
                Some(it) => it.leader.feed(link, &work.bytes),
                None => {}
            }
            self.leader.feed(link, &work.bytes);
        }
        if let Some(attempt) = work.look {
            let is_slow = self.rng.chance(100);
            let takes_us = self.rng.below(if is_slow { 4_000_000 } else { 100_000 });
            self.looks.push((id, attempt, self.now_us + takes_us));
        }
    }

    /// A link with the leader whose epoch is the highest, of those that are reached and say one.
    fn dial(&mut self, joining: &Joining) -> Option<(LinkId, Box<Learner>)> {
        let deposed = self.deposed.as_mut().filter(|it| !it.is_hung).map(|it| &mut it.leader);
        // A server may reach the old leader alone.
        let fails = if deposed.is_some() { 500 } else { 100 };
        let reached = (!self.is_wild || !self.rng.chance(fails)).then_some(&mut self.leader);
        let mut answers = reached.into_iter().chain(deposed).filter_map(|leader| {
            let link = leader.connect();
            let mut learner = Box::new(Learner::new(joining.clone(), 0));
            leader.feed(link, &learner.take_output());
            learner.feed(&leader.take_output(link, usize::MAX), 0);
            let is_led = matches!(learner.next_event(), Ok(Some(_)));
            is_led.then_some((link, learner))
        });
        answers.next()
    }
}
