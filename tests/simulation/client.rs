//! A client: frames out, frames in, and what it remembers between connections.
//!
//! *Owns* the session's id and password, the last zxid seen, identities and watches to be sent again.
//! *Invariants*: xids are never used twice in a session; what was not answered when a connection
//! ended has an unknown outcome and is not sent again.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use bytes::{Bytes, BytesMut};
use lockkeeper_core::proto::connect::{ConnectRequest, ConnectResponse};
use lockkeeper_core::proto::request::{AddWatchMode, RequestHeader, SetWatches};
use lockkeeper_core::proto::response::ReplyHeader;
use lockkeeper_core::proto::{Reader, Request, Response, Text, frame};
use lockkeeper_core::replica::ConnId;

use super::config::{Config, KINDS};
use super::conn::Violation;
use super::lock::{Grant, Lock};
use super::model::NO_NODE;
use super::model::quota::QUOTA;
use super::ops::{Draw, quota};
use super::rng::Rng;

/// How many paths of replies a client remembers.
const RECENT_MAX: usize = 8;

#[derive(Clone, Debug)]
struct Session {
    id: i64,
    password: [u8; 16],
    timeout_us: u64,
}

/// What a client wants done now.
#[derive(Debug, Default)]
pub struct Act {
    pub connect: bool,
    /// The connection is to end, without a word.
    pub drop: bool,
    pub bytes: Vec<u8>,
    /// When to ask again.
    pub again_in_us: u64,
}

#[derive(Debug, Default)]
struct Watched {
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
}

/// What clients are told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Whatever the seed says.
    Wild,
    /// Work, without a fault of one's own.
    Tame,
    /// Close the session.
    Leave,
    /// Never say anything again.
    Dead,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    pub ip: Ipv4Addr,
    rng: Rng,
    /// Chance, for what came to be drawn later: so that the rest of a seed stays what it is.
    whim: Rng,
    /// The server that it is, or will next be, connected to.
    pub server: usize,
    servers: usize,
    pub conn: Option<ConnId>,
    /// The handshake was answered.
    is_attached: bool,
    /// The last server had nothing for it: it waits a little before it asks the next one.
    was_sent_away: bool,
    session: Option<Session>,
    last_zxid: i64,
    next_xid: i32,
    buffer: BytesMut,
    outstanding: VecDeque<(i32, Request)>,
    auths: Vec<Bytes>,
    watched: Watched,
    recent: Vec<String>,
    pub lock: Option<Lock>,
    silent_until_us: u64,
    /// It says no more than it must.
    is_quiet: bool,
    sent_us: u64,
    heard_us: u64,
    pub mood: Mood,
    /// Answers since the mood last changed.
    pub answers: u64,
    pub operations: u64,
    pub has_left: bool,
}

impl Client {
    pub fn new(number: usize, config: &Config) -> Self {
        let mut rng = Rng::new(config.seed, 100 + number as u64);
        let lock = (number < config.lock_clients)
            .then(|| Lock::new(format!("/lock{}", rng.below(config.locks))));
        Self {
            ip: Ipv4Addr::new(10, 0, 0, 1 + number as u8),
            server: number % config.servers,
            servers: config.servers,
            rng,
            whim: Rng::new(config.seed, 1000 + number as u64),
            conn: None,
            is_attached: false,
            was_sent_away: false,
            session: None,
            last_zxid: 0,
            next_xid: 1,
            buffer: BytesMut::new(),
            outstanding: VecDeque::new(),
            auths: Vec::new(),
            watched: Watched::default(),
            recent: Vec::new(),
            lock,
            silent_until_us: 0,
            is_quiet: number >= config.clients + config.lock_clients,
            sent_us: 0,
            heard_us: 0,
            mood: Mood::Wild,
            answers: 0,
            operations: 0,
            has_left: false,
        }
    }

    /// Changes what it is told to do.
    pub fn be(&mut self, mood: Mood) {
        self.mood = mood;
        self.answers = 0;
        self.silent_until_us = 0;
    }

    /// Its turn.
    pub fn act(&mut self, now_us: u64, config: &Config) -> Act {
        let mut act =
            Act { again_in_us: 1 + self.rng.below(config.think_us_max), ..Act::default() };
        if self.mood == Mood::Dead || self.has_left || now_us < self.silent_until_us {
            act.again_in_us += self.silent_until_us.saturating_sub(now_us).max(10_000);
            return act;
        }
        if std::mem::take(&mut self.was_sent_away) {
            act.again_in_us += 10_000;
            return act;
        }
        if self.conn.is_none() {
            act.connect = true;
            self.handshake(now_us, config, &mut act.bytes);
            return act;
        }
        if self.servers > 1 && self.has_no_answer(now_us, config) {
            act.drop = true;
            return act;
        }
        if !self.is_attached {
            act.again_in_us += if self.servers > 1 { 2000 } else { 0 };
            return act;
        }
        if self.mood == Mood::Wild && !self.is_quiet && self.misbehave(now_us, config, &mut act) {
            return act;
        }
        if self.mood == Mood::Leave {
            if !self.outstanding.iter().any(|(_, r)| *r == Request::CloseSession) {
                self.ask(Request::CloseSession, now_us, &mut act.bytes);
            }
            return act;
        }
        if self.is_quiet {
            self.show_life(now_us, &mut act);
        } else {
            self.work(now_us, config, &mut act.bytes);
        }
        if act.bytes.is_empty() {
            // It waits for answers.
            act.again_in_us += 1000;
        }
        act
    }

    /// Whether a server that was asked something is silent for too long: there are others.
    fn has_no_answer(&self, now_us: u64, config: &Config) -> bool {
        let timeout_us = match &self.session {
            Some(session) => session.timeout_us,
            None => config.timeouts_ms.0 as u64 * 1000,
        };
        let waits = !self.is_attached || !self.outstanding.is_empty();
        waits && now_us.saturating_sub(self.heard_us) > timeout_us * 2 / 3
    }

    /// Sends requests, or a ping.
    fn work(&mut self, now_us: u64, config: &Config, out: &mut Vec<u8>) {
        if let Some(lock) = &mut self.lock {
            if let Some(request) = lock.next(now_us) {
                self.ask(request, now_us, out);
            }
        } else {
            let room = config.pipeline_max.saturating_sub(self.outstanding.len() as u64);
            for _ in 0..room.min(1 + self.rng.below(config.pipeline_max)) {
                let kind = KINDS[self.rng.weighted(&config.op_weights)];
                let mut draw = Draw { rng: &mut self.rng, config, recent: &self.recent };
                let request = draw.request(kind);
                self.ask(request, now_us, out);
                if config.has_quotas && self.whim.chance(30) {
                    let request = quota(&mut self.whim);
                    self.ask(request, now_us, out);
                }
                if self.mood == Mood::Wild && self.rng.chance(config.malformed) {
                    self.malformed(out);
                }
            }
        }
        let idle_us = now_us - self.sent_us;
        if self.session.as_ref().is_some_and(|session| idle_us > session.timeout_us / 3) {
            self.ask(Request::Ping, now_us, out);
        }
    }

    /// Says something, and nothing more before it is nearly too late. It may lose its connection meanwhile, and
    /// does not come back earlier.
    fn show_life(&mut self, now_us: u64, act: &mut Act) {
        let timeout_us = self.session.as_ref().map_or(0, |session| session.timeout_us);
        if !self.outstanding.is_empty() {
            return;
        }
        let request = match self.rng.below(4) {
            0 => Request::Exists { path: Text::from_static("/n0"), watch: false },
            1 => Request::Sync { path: Some(Text::from_static("/")) },
            _ => Request::Ping,
        };
        self.ask(request, now_us, &mut act.bytes);
        let rests_us = timeout_us * self.rng.range(200, 960) / 1000;
        self.silent_until_us = now_us + rests_us;
    }

    /// Drops the connection, falls silent, or closes the session. True: nothing else now.
    fn misbehave(&mut self, now_us: u64, config: &Config, act: &mut Act) -> bool {
        if self.rng.chance(config.drops) {
            act.drop = true;
            return true;
        }
        if self.rng.chance(config.silences) {
            let timeout_us = self.session.as_ref().map_or(0, |session| session.timeout_us);
            self.silent_until_us = now_us + self.rng.below(2 * timeout_us + 1);
            act.drop = self.rng.chance(500);
            return true;
        }
        if self.rng.chance(config.closes) {
            self.ask(Request::CloseSession, now_us, &mut act.bytes);
            return true;
        }
        false
    }

    /// A ConnectRequest, and behind it at once whatever must be said first.
    fn handshake(&mut self, now_us: u64, config: &Config, out: &mut Vec<u8>) {
        let (min, max) = config.timeouts_ms;
        let wish = self.rng.range(min as u64 / 2, max as u64 + 500) as i32;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid,
            timeout_ms: wish,
            session_id: self.session.as_ref().map_or(0, |session| session.id),
            password: match &self.session {
                Some(session) => Bytes::copy_from_slice(&session.password),
                None => Bytes::new(),
            },
            read_only: self.rng.chance(700).then_some(false),
        };
        let mut request = request;
        if self.mood == Mood::Wild && self.session.is_some() && self.rng.chance(config.closes) {
            // Somebody else, who knows the session but not its password.
            request.password = Bytes::from_static(&[7; 16]);
        }
        frame::append(out, |out| request.encode(out));
        self.buffer.clear();
        self.is_attached = false;
        self.sent_us = now_us;
        self.heard_us = now_us;
        for auth in self.auths.clone() {
            let scheme = Some(Text::from_static("digest"));
            self.ask(Request::Auth { scheme, auth: Some(auth) }, now_us, out);
        }
        if self.session.is_some() {
            self.send_watches(now_us, out);
        }
    }

    fn send_watches(&mut self, now_us: u64, out: &mut Vec<u8>) {
        let texts = |set: &BTreeSet<String>| set.iter().map(|path| path.as_str().into()).collect();
        let watched = &self.watched;
        let watches = SetWatches {
            relative_zxid: self.last_zxid,
            data: texts(&watched.data),
            exist: texts(&watched.exist),
            child: texts(&watched.child),
            persistent: texts(&watched.persistent),
            persistent_recursive: texts(&watched.recursive),
        };
        let two = !(watches.persistent.is_empty() && watches.persistent_recursive.is_empty());
        if watches != (SetWatches { relative_zxid: self.last_zxid, ..SetWatches::default() }) {
            self.ask(Request::SetWatches { watches, two }, now_us, out);
        }
    }

    fn ask(&mut self, request: Request, now_us: u64, out: &mut Vec<u8>) {
        let xid = match &request {
            Request::Ping => -2,
            Request::Auth { .. } => -4,
            Request::SetWatches { .. } => -8,
            _ => {
                self.next_xid += 1;
                self.next_xid
            }
        };
        frame::append(out, |out| {
            RequestHeader { xid, op: request.op() as i32 }.encode(out);
            request.encode(out);
        });
        self.sent_us = now_us;
        if self.outstanding.is_empty() {
            self.heard_us = now_us;
        }
        self.operations += 1;
        self.outstanding.push_back((xid, request));
    }

    /// Something that no request looks like.
    fn malformed(&mut self, out: &mut Vec<u8>) {
        self.next_xid += 1;
        let xid = self.next_xid;
        let header = |op| move |out: &mut Vec<u8>| RequestHeader { xid, op }.encode(out);
        match self.rng.below(6) {
            // A read and a write that end too early; their replies need no memory of the request.
            0 => frame::append(out, header(4)),
            1 => frame::append(out, |out| {
                header(1)(out);
                out.extend_from_slice(&[0, 0, 0, 200, 1]);
            }),
            2 => frame::append(out, header(14)),
            3 => frame::append(out, header(999)),
            4 => frame::append(out, |out| out.extend_from_slice(&[1, 2, 3])),
            _ => out.extend_from_slice(&[0xff; 4]),
        }
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        let was_connected = self.conn.take().is_some();
        self.was_sent_away |= self.servers > 1 && was_connected && !self.is_attached;
        if self.servers > 1 && self.rng.chance(700) {
            self.server = self.rng.index(self.servers);
        }
        self.is_attached = false;
        self.outstanding.clear();
        if let Some(lock) = &mut self.lock {
            lock.disconnected();
        }
    }

    /// Bytes of the server arrive.
    ///
    /// # Errors
    /// They take back what this client has seen before.
    pub fn receive(&mut self, bytes: &[u8], now_us: u64) -> Result<Vec<Grant>, Violation> {
        self.buffer.extend_from_slice(bytes);
        self.heard_us = now_us;
        let mut grants = Vec::new();
        while let Ok(Some(payload)) = frame::next(&mut self.buffer, usize::MAX) {
            if self.is_attached {
                grants.extend(self.frame(payload, now_us)?);
            } else {
                self.connected(payload);
            }
        }
        Ok(grants)
    }

    fn connected(&mut self, payload: Bytes) {
        let response = ConnectResponse::decode(payload).expect("the checker decoded it");
        if response.session_id == 0 {
            self.session_ended();
            return;
        }
        self.is_attached = true;
        self.session = Some(Session {
            id: response.session_id,
            password: response.password,
            timeout_us: response.timeout_ms as u64 * 1000,
        });
    }

    fn session_ended(&mut self) {
        self.session = None;
        self.watched = Watched::default();
        self.auths.clear();
        self.has_left = self.mood == Mood::Leave;
        if let Some(lock) = &mut self.lock {
            lock.expired();
        }
    }

    fn frame(&mut self, payload: Bytes, now_us: u64) -> Result<Option<Grant>, Violation> {
        let mut reader = Reader::new(payload);
        let header = ReplyHeader::decode(&mut reader).expect("the checker decoded it");
        if header.zxid > 0 && header.zxid < self.last_zxid {
            let last = self.last_zxid;
            return Err(format!("a client has seen {last:#x}, and is sent {header:?}"));
        }
        self.last_zxid = self.last_zxid.max(header.zxid);
        if header.xid == -1 {
            let kind = reader.int("type").expect("the checker decoded it");
            reader.int("state").expect("the checker decoded it");
            let path = reader.string("path").expect("the checker decoded it");
            self.event(kind, path.as_str());
            return Ok(None);
        }
        // Malformed requests are not remembered: their replies find nothing.
        let Some(at) = self.outstanding.iter().position(|(xid, _)| *xid == header.xid) else {
            return Ok(None);
        };
        let (_, request) = self.outstanding.remove(at).expect("it was just found");
        self.answers += 1;
        let outcome = match header.err {
            0 => Ok(Response::decode(request.op(), &mut reader).expect("the checker decoded it")),
            code => Err(code),
        };
        self.remember(&request, &outcome);
        let is_lock = self.lock.is_some() && header.xid > 0 && request != Request::CloseSession;
        if request == Request::CloseSession {
            self.session_ended();
        }
        let until_us = now_us + self.rng.below(30_000);
        let lock = self.lock.as_mut().filter(|_| is_lock);
        Ok(lock.and_then(|lock| lock.answer(outcome, header.zxid, until_us)))
    }

    fn remember(&mut self, request: &Request, outcome: &Result<Response, i32>) {
        match (request, outcome) {
            (Request::Auth { auth: Some(auth), .. }, Ok(_)) if !self.auths.contains(auth) => {
                self.auths.push(auth.clone());
            }
            (_, Ok(Response::Path(path) | Response::PathStat(path, _)))
                if !path.as_str().starts_with(QUOTA) =>
            {
                if self.recent.len() == RECENT_MAX {
                    self.recent.remove(0);
                }
                self.recent.push(path.to_string());
            }
            (Request::Exists { path, watch: true }, Ok(_))
            | (Request::GetData { path, watch: true }, Ok(_)) => {
                self.watched.data.insert(path.to_string());
            }
            (Request::Exists { path, watch: true }, Err(NO_NODE)) => {
                self.watched.exist.insert(path.to_string());
            }
            (Request::GetChildren { path, watch: true, .. }, Ok(_)) => {
                self.watched.child.insert(path.to_string());
            }
            (Request::AddWatch { path, mode }, Ok(_)) => {
                match mode {
                    AddWatchMode::Persistent => &mut self.watched.persistent,
                    AddWatchMode::PersistentRecursive => &mut self.watched.recursive,
                }
                .insert(path.to_string());
            }
            (Request::RemoveWatches { path, .. }, Ok(_)) => {
                let Watched { data, exist, child, persistent, recursive } = &mut self.watched;
                for set in [data, exist, child, persistent, recursive] {
                    set.remove(path.as_str());
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, kind: i32, path: &str) {
        let Watched { data, exist, child, .. } = &mut self.watched;
        if kind == super::model::CHILDREN_CHANGED {
            child.remove(path);
        } else {
            data.remove(path);
            exist.remove(path);
        }
        if kind == super::model::DELETED {
            child.remove(path);
        }
        if let Some(lock) = &mut self.lock {
            lock.event(kind, path);
        }
    }
}
