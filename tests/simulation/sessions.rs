//! Sessions and what is asked in their name, as the checker knows them.
//!
//! *Owns* whose a session is at any place of the history, and when each server heard of it. Times are
//! those of the server's own clock: no server can be asked to know more.

use std::collections::BTreeMap;

use lockkeeper_core::proto::Request;
use lockkeeper_core::replica::ConnId;

use super::model::acl::Id;

/// How many signs of life are remembered.
const HEARD_MAX: usize = 64;

/// A write that a server was given.
#[derive(Clone, Debug)]
pub struct Write {
    pub session: i64,
    pub xid: i32,
    /// When the server was given it, counted in inputs.
    pub given: u64,
    /// The highest zxid of all servers by then: it takes effect later.
    pub floor: i64,
    pub request: Request,
    pub ids: Vec<Id>,
}

/// A session was given to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub session: i64,
    pub conn: ConnId,
    pub timeout_ms: i32,
    pub password: [u8; 16],
}

/// A session, open or not.
#[derive(Debug)]
pub struct Session {
    pub password: [u8; 16],
    /// Its place in the history.
    pub opened: usize,
    /// Where it ended.
    pub closed: Option<usize>,
    /// Where it was given to whom.
    grants: Vec<(usize, Grant)>,
    /// By server: when it was heard from, and its timeout from then on.
    heard: BTreeMap<usize, Vec<(u64, u64)>>,
    /// By server: when it had a connection of this session's client and answered it, and its timeout.
    answered: BTreeMap<usize, Vec<(u64, u64)>>,
    /// Number of grants before each of these answers.
    granted: BTreeMap<(usize, u64), usize>,
    /// By server: when it last heard from the client, and until when its answers promise nothing because the
    /// client was late.
    asked: BTreeMap<usize, (u64, u64)>,
}

impl Session {
    pub fn new(place: usize, grant: Grant) -> Self {
        Self {
            password: grant.password,
            opened: place,
            closed: None,
            grants: vec![(place, grant)],
            heard: BTreeMap::new(),
            answered: BTreeMap::new(),
            granted: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// It is given to another connection.
    pub fn grant(&mut self, place: usize, grant: Grant) {
        self.grants.push((place, grant));
    }

    /// Whether it is open as far as is known.
    pub fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Whether it is open at a place of the history.
    pub fn is_open_at(&self, place: usize) -> bool {
        self.opened < place && self.closed.is_none_or(|closed| closed >= place)
    }

    /// Who has it, behind so many transactions.
    pub fn owner_at(&self, place: usize) -> Option<&Grant> {
        let at = self.grants.partition_point(|(granted, _)| *granted < place);
        at.checked_sub(1).map(|at| &self.grants[at].1)
    }

    /// A server that is at this place heard of it.
    pub fn hear(&mut self, server: usize, place: usize, now_us: u64) {
        let Some(grant) = self.owner_at(place) else { return };
        let now = (now_us, grant.timeout_ms as u64 * 1000);
        keep(self.heard.entry(server).or_default(), now);
    }

    /// A server that is at this place answers what its client asked at this time. One that asks too late is
    /// answered as long as the server does not know that its session's end was decided before. `rates`: of this
    /// server's clock and of the fastest one, by which a leader may decide.
    pub fn answer(&mut self, server: usize, place: usize, heard_us: u64, rates: (u64, u64)) {
        let Some(grant) = self.owner_at(place) else { return };
        let timeout_us = grant.timeout_ms as u64 * 1000;
        let (last_us, late_until_us) = self.asked.entry(server).or_insert((heard_us, 0));
        if heard_us >= *last_us + timeout_us * rates.0 / rates.1 {
            *late_until_us = heard_us + timeout_us;
        }
        *last_us = heard_us.max(*last_us);
        if heard_us >= *late_until_us {
            keep(self.answered.entry(server).or_default(), (heard_us, timeout_us));
            let before = self.grants.partition_point(|(granted, _)| *granted < place);
            self.granted.insert((server, heard_us), before);
        }
    }

    /// A server that is at this place gives it to a client, now.
    pub fn give(&mut self, server: usize, place: usize, now_us: u64, rates: (u64, u64)) {
        self.asked.remove(&server);
        self.hear(server, place, now_us);
        self.answer(server, place, now_us, rates);
    }

    /// When a server last heard of it before a time, and its timeout then.
    pub fn last_heard(&self, server: usize, before_us: u64) -> Option<(u64, u64)> {
        last_before(self.heard.get(&server)?, before_us)
    }

    /// When a server, before a time, last heard what it answered, and the timeout then.
    pub fn last_answered(&self, server: usize, before_us: u64) -> Option<(u64, u64)> {
        last_before(self.answered.get(&server)?, before_us)
    }

    /// Least timeout of the session since a server at a time answered its client, microseconds: it counts from its
    /// grant on, also where the client has dropped that connection before it heard of it.
    pub fn least_timeout_since(&self, server: usize, answered_us: u64) -> Option<u64> {
        let at = self.granted.get(&(server, answered_us)).copied().unwrap_or_default();
        let later = self.grants.iter().skip(at);
        later.map(|(_, grant)| grant.timeout_ms as u64 * 1000).min()
    }
}

fn keep(times: &mut Vec<(u64, u64)>, now: (u64, u64)) {
    if times.last() == Some(&now) {
        return;
    }
    if times.len() == HEARD_MAX {
        times.remove(0);
    }
    times.push(now);
}

fn last_before(times: &[(u64, u64)], before_us: u64) -> Option<(u64, u64)> {
    let before = times.iter().filter(|(time_us, _)| *time_us < before_us);
    before.max_by_key(|(time_us, _)| *time_us).copied()
}
