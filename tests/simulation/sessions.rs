//! Sessions and their writes, as the checker knows them.
//!
//! *Owns* what was ever asked in a session's name and when each server heard of it. Times are those
//! of the server's own clock: no server can be asked to know more.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::proto::Request;
use lockkeeper::replica::ConnId;

use super::model::Id;

/// A write that a server was given.
#[derive(Clone, Debug)]
pub struct Write {
    pub conn: ConnId,
    /// Number among the writes of its connection, from 1.
    pub order: u64,
    /// When the server was given it, counted in inputs.
    pub given: u64,
    /// The highest zxid that anybody had been told of by then: it takes effect later.
    pub floor: i64,
    pub request: Request,
    pub ids: Vec<Id>,
    pub is_applied: bool,
    /// A crash took it before it was durable.
    pub is_lost: bool,
}

/// A session, open or not.
#[derive(Debug)]
pub struct Session {
    pub timeout_us: u64,
    pub opened_timeout_us: u64,
    pub password: [u8; 16],
    /// Its place in the history.
    pub opened: usize,
    /// Where it ended.
    pub closed: Option<usize>,
    pub is_attached: bool,
    pub conn: Option<ConnId>,
    /// By server: when it was heard from, and its timeout from then on.
    heard: BTreeMap<usize, Vec<(u64, u64)>>,
    /// It was refused because its end was on its way, so it must come.
    pub refused_us: Option<u64>,
    pub writes: BTreeMap<i32, Write>,
    /// Connection and xid of those that are on their way.
    pub under_way: BTreeSet<(ConnId, i32)>,
    pub last_applied: (ConnId, u64),
}

impl Session {
    pub fn new(opened: usize, timeout_us: u64) -> Self {
        Self {
            timeout_us,
            opened_timeout_us: timeout_us,
            password: [0; 16],
            opened,
            closed: None,
            is_attached: false,
            conn: None,
            heard: BTreeMap::new(),
            refused_us: None,
            writes: BTreeMap::new(),
            under_way: BTreeSet::new(),
            last_applied: (0, 0),
        }
    }

    /// Whether it is open as far as is known.
    pub fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Whether it is open at a place of the history.
    pub fn is_open_at(&self, place: usize) -> bool {
        self.opened < place && self.closed.is_none_or(|closed| closed >= place)
    }

    /// A server heard of it.
    pub fn hear(&mut self, server: usize, now_us: u64) {
        const KEPT: usize = 64;
        let heard = self.heard.entry(server).or_default();
        let now = (now_us, self.timeout_us);
        if heard.last() == Some(&now) {
            return;
        }
        if heard.len() == KEPT {
            heard.remove(0);
        }
        heard.push(now);
    }

    /// When a server last heard of it, at or before a time.
    pub fn last_heard(&self, server: usize, before_us: u64) -> Option<(u64, u64)> {
        let heard = self.heard.get(&server)?;
        heard.iter().rev().find(|(heard_us, _)| *heard_us < before_us).copied()
    }

    /// Whether writes that came over an earlier connection are on their way.
    pub fn owes_before(&self, conn: ConnId) -> bool {
        self.under_way.first().is_some_and(|(of, _)| *of < conn)
    }

    /// Whether its end may be on its way without our knowing.
    pub fn may_be_closing(&self, server: usize, now_us: u64) -> bool {
        let heard = self.heard.get(&server).map_or(&[][..], Vec::as_slice);
        let next = heard.iter().map(|(at, _)| *at).skip(1).chain([now_us]);
        let silent = heard.iter().zip(next).any(|((at, timeout), next)| next - at >= *timeout);
        let closes = |(_, xid): &(ConnId, i32)| self.writes[xid].request == Request::CloseSession;
        let asked = self.under_way.iter().any(closes);
        silent || asked
    }

    /// Those on their way for which `is_meant` holds will not come.
    pub fn lose(&mut self, is_meant: impl Fn(&Write) -> bool) {
        let meant: Vec<_> =
            self.under_way.iter().copied().filter(|(_, xid)| is_meant(&self.writes[xid])).collect();
        for (conn, xid) in meant {
            self.under_way.remove(&(conn, xid));
            self.writes.get_mut(&xid).expect("it was given").is_lost = true;
        }
    }
}
