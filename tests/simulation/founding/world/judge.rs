//! What may never be: an ensemble that is founded without those that it needs, two that serve, a state that is lost.
//!
//! *Invariant*: judges by what servers were told, said and did, and asks no server for its reasons.

use std::collections::BTreeSet;

use lockkeeper_core::replica::founding::{Brings, HEARD_US, Port};

use super::super::super::conn::Violation;
use super::super::host::{Host, kept_by};
use super::{ALONE_US_MIN, World};

/// Greatest age of the last answer of a silent server's ports.
const ASKED_US_MAX: u64 = 2_000_000;

impl World {
    /// A server founds an ensemble: with the consent of all that its lines name, but for those that an operator has
    /// left out in the lives in which the others are now, and of which nothing is known that speaks against it.
    pub(super) fn founds(&self, at: usize, participants: &[u8]) -> Result<(), Violation> {
        if self.hosts[at].disk.alone_after.is_some() {
            return Ok(());
        }
        let own = self.hosts[at].id;
        let lines = &self.hosts[at].lines;
        let consents = |from: &&u8| {
            let heard = self.told.get(&(own, **from));
            heard.is_some_and(|(said, at_us)| {
                let named: Vec<u8> = said.lines.iter().map(|line| line.id).collect();
                self.now_us - at_us < HEARD_US && said.candidate == Some(own) && named == *lines
            })
        };
        let brings_state = |from: &&u8| {
            let heard = self.told.get(&(own, **from));
            heard.is_some_and(|(said, _)| matches!(said.brings, Brings::State { .. }))
        };
        if let Some(other) = lines.iter().find(brings_state) {
            return Err(format!("server {own} founds over the state of server {other}"));
        }
        if let Some(other) = lines.iter().find(|id| self.served.contains(&(own, **id))) {
            return Err(format!(
                "server {own} founds without server {other}, which served by itself and may start again"
            ));
        }
        let missing = lines.iter().copied().filter(|id| *id != own && !consents(&id));
        let mut missing: Vec<u8> = missing.collect();
        missing.sort_unstable();
        let is_left_out = self.words.iter().any(|word| {
            let others = lines.iter().filter(|id| **id != own && !missing.contains(id));
            let mut said = others.map(|id| (id, self.told[&(own, *id)].0.nonce));
            word.without == missing
                && self.now_us < word.until_us + HEARD_US
                && said.all(|(id, nonce)| word.lives.get(id) == Some(&nonce))
        });
        if !missing.is_empty() && !is_left_out {
            return Err(format!(
                "server {own} founds an ensemble without the consent of {missing:?} of {lines:?}"
            ));
        }
        let may_run = |id: &&u8| match self.ports.get(&(own, **id)) {
            Some((port, at_us)) => *port != Port::Closed || self.now_us - at_us > ASKED_US_MAX,
            None => true,
        };
        if let Some(other) = missing.iter().find(may_run) {
            return Err(format!("server {own} founds without server {other}, which may run"));
        }
        for id in participants.iter().filter(|id| **id != own) {
            let other = self.host(*id);
            let is_old =
                other.alone_since_us.is_some_and(|since_us| self.now_us >= since_us + ALONE_US_MIN);
            if is_old && other.is_port_known && self.hear_each_other(own, *id) {
                return Err(format!("server {own} founds while server {id} serves by itself"));
            }
        }
        Ok(())
    }

    pub(super) fn check(&mut self) -> Result<(), Violation> {
        self.check_zxids()?;
        let serving: Vec<&Host> =
            self.hosts.iter().filter(|host| host.is_serving() && !host.lines.is_empty()).collect();
        let ensembles: BTreeSet<u128> = serving.iter().filter_map(|host| host.ensemble()).collect();
        if ensembles.len() > 1 {
            let who: Vec<(u8, Option<u128>)> =
                serving.iter().map(|host| (host.id, host.ensemble())).collect();
            return Err(format!("clients are served by more than one ensemble: {who:x?}"));
        }
        let judges_joined = self.seen.set_aside == 0 && self.loss.is_none();
        for host in serving.iter().filter(|_| judges_joined) {
            let belongs = |other: &&Host| other.ensemble() == host.ensemble();
            let joined = self.hosts.iter().filter(belongs).count();
            let participants = host.disk.identity.as_ref().map_or(0, |it| it.members.len());
            if joined <= participants / 2 {
                return Err(format!(
                    "server {} serves an ensemble that {joined} of {participants} belong to",
                    host.id
                ));
            }
        }
        for host in &serving {
            for (id, state) in &self.states {
                if host.ensemble() == Some(*state) && !host.has(&kept_by(*id)) {
                    return Err(format!("server {} serves without what {id} has kept", host.id));
                }
            }
        }
        for (id, state) in &self.states {
            if self.host(*id).ensemble() != Some(*state) {
                return Err(format!("the state {state:x} of server {id} is gone"));
            }
        }
        for host in &serving {
            let is_leader = host.replica().is_some_and(|it| it.status().leading_ms.is_some());
            let known = host.ensemble().and_then(|ensemble| self.acknowledged.get(&ensemble));
            if let Some(missing) =
                known.into_iter().flatten().find(|path| is_leader && !host.has(path))
            {
                return Err(format!(
                    "the leader {} lacks {missing}, which was acknowledged",
                    host.id
                ));
            }
        }
        Ok(())
    }
}
