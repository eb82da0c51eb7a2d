//! The leader: proposals, commits, sessions, and what each learner is told.
//!
//! *Invariants*: a transaction is told to learners when it is committed, before it is applied, as ZooKeeper does; every
//! learner is told all of them in their order. A session has one owner, and only that one's writes count.

mod deposed;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use lockkeeper_core::learner::packet::{self, PROTOCOL_VERSION, kind};
use lockkeeper_core::proto::{ErrorCode, Reader, Request, Text, Writer as _};
use lockkeeper_core::replica::{ForeignLoad, Machine};
use lockkeeper_core::tree::Identity;
use lockkeeper_core::zookeeper::txn::kind as txn_kind;
use lockkeeper_core::zookeeper::{Txn, TxnBody, TxnDigest, TxnHeader};

use super::decider::{Decider, options};
use super::link::{Link, LinkId, Received, Stage};
use super::snapshot::{Lists, Snapshot};

/// What stands behind a snapshot.
const SEAL: &[u8] = b"\0\0\0\x0aBenWasHere";
/// The wall clock of all servers when a world begins, ms since the epoch.
pub const BEGINS_MS: i64 = 1_700_000_000_000;
/// The opcode of a sync.
const SYNC: i32 = 9;

/// A transaction that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub zxid: i64,
    pub bytes: Bytes,
    /// ZooKeeper's digest of the tree behind it.
    pub digest: u64,
    /// Of a reconfiguration: who is to lead.
    pub designated: Option<i64>,
}

/// What a leader does wrong with the next transaction that it tells a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Its digest is another one.
    Digest,
    /// It is left out.
    Gap,
}

impl Lie {
    /// Whether it can be told about a transaction: one that failed has no digest.
    fn fits(self, committed: &Committed) -> bool {
        let kind = committed.bytes.get(28..32);
        self == Self::Gap || kind != Some(&txn_kind::ERROR.to_be_bytes()[..])
    }
}

/// The times of the ensemble.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    pub tick_ms: i64,
    pub init_limit: i64,
    pub sync_limit: i64,
}

/// Who may write for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A server of ZooKeeper.
    Elsewhere,
    /// A learner.
    Learner(LinkId),
}

#[derive(Debug)]
struct Session {
    timeout_ms: i32,
    /// Of the first that writes for it, under a new leader.
    owner: Option<Owner>,
    touched_ms: i64,
    is_closing: bool,
}

/// The ensemble, as its leader.
#[derive(Debug)]
pub struct Leader {
    ticks: Ticks,
    now_ms: i64,
    pinged_ms: i64,
    epoch: i64,
    counter: i64,
    decider: Decider,
    proposed: VecDeque<Committed>,
    committed: VecDeque<Committed>,
    applied: Machine,
    history: Vec<Committed>,
    /// How much of it a learner can be brought up to date from.
    log_max: usize,
    last_processed: i64,
    lists: Lists,
    sessions: BTreeMap<i64, Session>,
    links: BTreeMap<LinkId, Link>,
    links_made: LinkId,
    /// Syncs that wait for a commit.
    syncs: Vec<(i64, LinkId)>,
    lies: BTreeMap<LinkId, Lie>,
    forced: Option<i32>,
    is_deposed: bool,
}

impl Leader {
    /// A fresh ensemble in its first epoch.
    pub fn new(ticks: Ticks, now_ms: i64) -> Self {
        Self {
            ticks,
            now_ms,
            pinged_ms: now_ms,
            epoch: 1,
            counter: 0,
            decider: Decider::fresh(),
            proposed: VecDeque::new(),
            committed: VecDeque::new(),
            applied: ForeignLoad::fresh(options()),
            history: Vec::new(),
            log_max: 500,
            last_processed: 1 << 32,
            lists: Lists::default(),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            links_made: 0,
            syncs: Vec::new(),
            lies: BTreeMap::new(),
            forced: None,
            is_deposed: false,
        }
    }

    /// How many transactions the leader keeps for learners that are behind (`commitLogCount`).
    pub fn set_log_max(&mut self, log_max: usize) {
        self.log_max = log_max;
    }

    // What is true.

    /// The zxid of the last transaction that is committed.
    pub fn last_committed(&self) -> i64 {
        let last = self.committed.back().or(self.history.last());
        last.map_or(0, |committed| committed.zxid)
    }

    /// The transaction with this zxid, if it is committed.
    pub fn find_committed(&self, zxid: i64) -> Option<&Committed> {
        let at = self.history.binary_search_by_key(&zxid, |committed| committed.zxid);
        at.map_or_else(
            |_| self.committed.iter().find(|committed| committed.zxid == zxid),
            |at| self.history.get(at),
        )
    }

    /// What is committed behind this zxid.
    pub fn committed_after(&self, zxid: i64) -> impl Iterator<Item = &Committed> {
        let begun = self.history.partition_point(|committed| committed.zxid <= zxid);
        let applied = self.history[begun..].iter();
        applied.chain(self.committed.iter().filter(move |committed| committed.zxid > zxid))
    }

    /// How many are proposed and not committed.
    pub fn proposed(&self) -> usize {
        self.proposed.len()
    }

    /// The state with everything that is applied.
    pub fn applied(&self) -> &Machine {
        &self.applied
    }

    /// The epoch.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Whose a session is; `None`: it is not open. A new leader learns it from the first that writes.
    pub fn owner_of(&self, session: i64) -> Option<Option<Owner>> {
        self.sessions.get(&session).filter(|open| !open.is_closing).map(|open| open.owner)
    }

    // Clients of ZooKeeper's own servers.

    /// A client opens a session at another server.
    pub fn open_elsewhere(&mut self, session: i64, timeout_ms: i32) {
        self.open(Owner::Elsewhere, session, 0, timeout_ms);
    }

    /// A client of another server asks. The zxid of the transaction, if there is one.
    pub fn ask_elsewhere(
        &mut self,
        session: i64,
        cxid: i32,
        request: &Request,
        ids: &[Identity],
    ) -> Option<i64> {
        self.touch(session);
        self.ask(Owner::Elsewhere, session, cxid, request, ids)
    }

    /// A session moves to another server of ZooKeeper. False: it is not open.
    pub fn move_elsewhere(&mut self, session: i64) -> bool {
        self.move_to(session, Owner::Elsewhere)
    }

    /// A session is heard from.
    pub fn touch(&mut self, session: i64) {
        if let Some(open) = self.sessions.get_mut(&session) {
            open.touched_ms = self.now_ms;
        }
    }

    /// The leader removes a container, or a znode whose time is over.
    pub fn reap(&mut self, path: &str) {
        let header = self.next_header(0, 0);
        let (kind, body) = self.decider.reap(&header, &Text::from(path));
        self.propose(header, kind, body, None);
    }

    // Time, and what the ensemble does by itself.

    /// Time passes: pings, learners that were silent for too long, sessions that end.
    pub fn tick(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        let Ticks { tick_ms, init_limit, sync_limit } = self.ticks;
        if now_ms - self.pinged_ms >= tick_ms / 2 {
            self.pinged_ms = now_ms;
            let zxid = self.last_proposed();
            for link in self.links.values_mut().filter(|link| link.is_sending()) {
                link.send(kind::PING, zxid, None);
            }
        }
        self.links.retain(|_, link| {
            let ticks = if matches!(link.stage, Stage::Served) { sync_limit } else { init_limit };
            now_ms - link.heard_ms <= ticks * tick_ms
        });
        let is_over = |open: &Session| {
            now_ms - open.touched_ms > i64::from(open.timeout_ms) + tick_ms && !open.is_closing
        };
        let over: Vec<i64> =
            self.sessions.iter().filter(|(_, open)| is_over(open)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|session| self.close_session(session, 0));
    }

    /// A majority has acknowledged so many proposals more: learners are told of them.
    pub fn commit(&mut self, count: usize) {
        for _ in 0..count {
            let Some(committed) = self.proposed.pop_front() else { return };
            for (id, link) in &mut self.links {
                if link.is_forwarded {
                    let lie = self.lies.get(id).copied().filter(|lie| lie.fits(&committed));
                    inform(link, &committed, lie);
                    if lie.is_some() {
                        self.lies.remove(id);
                    }
                }
            }
            let zxid = committed.zxid;
            self.committed.push_back(committed);
            for (_, id) in self.syncs.extract_if(.., |(waits_for, _)| *waits_for == zxid) {
                if let Some(link) = self.links.get_mut(&id) {
                    link.send(kind::SYNC, 0, None);
                }
            }
        }
    }

    /// The leader applies so many of what is committed.
    ///
    /// # Panics
    /// Applied as a transaction of ZooKeeper, one has another result than its request had.
    pub fn apply(&mut self, count: usize) {
        for _ in 0..count {
            let Some(committed) = self.committed.pop_front() else { return };
            let txn = Txn::decode(committed.bytes.clone()).expect("it was encoded");
            self.applied.apply_foreign(&txn);
            let digest = self.applied.tree().legacy_digest();
            assert_eq!(digest, Some(committed.digest), "behind {txn:?}");
            if let TxnBody::CloseSession { .. } = txn.body {
                self.sessions.remove(&txn.header.client_id);
            }
            self.last_processed = committed.zxid;
            self.history.push(committed);
        }
    }

    /// Commits and applies everything.
    pub fn settle(&mut self) {
        self.commit(usize::MAX);
        self.apply(usize::MAX);
    }

    /// The leader dies. Of what it had proposed, so many survive; another one leads in the next epoch.
    pub fn replace(&mut self, survivors: usize) {
        self.links.clear();
        self.syncs.clear();
        self.lies.clear();
        self.commit(survivors);
        self.apply(usize::MAX);
        self.proposed.clear();
        self.decider = Decider::after(&self.applied);
        assert_eq!(Some(self.decider.digest()), self.applied.tree().legacy_digest());
        self.epoch += 1;
        self.counter = 0;
        self.last_processed = self.epoch << 32;
        let open = self.applied.foreign_sessions().map(|(id, timeout_ms, _)| {
            let touched_ms = self.now_ms;
            (id, Session { timeout_ms, owner: None, touched_ms, is_closing: false })
        });
        self.sessions = open.collect();
    }

    /// Lies to a learner about the next transaction that it is told of.
    pub fn lie(&mut self, link: LinkId, lie: Lie) {
        self.lies.insert(link, lie);
    }

    /// Answers the next learner that joins by SNAP or TRUNC, whatever it has.
    pub fn force(&mut self, kind: i32) {
        self.forced = Some(kind);
    }

    // Learners.

    /// A learner connects.
    pub fn connect(&mut self) -> LinkId {
        self.links_made += 1;
        self.links.insert(self.links_made, Link::new(self.now_ms));
        self.links_made
    }

    /// Whether a connection is open.
    pub fn is_open(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|link| link.broken.is_none())
    }

    /// Whether a snapshot is being written to a learner.
    pub fn is_writing(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|link| matches!(link.stage, Stage::Snapshot(_)))
    }

    /// Why the leader has closed a connection, if the learner broke a rule.
    pub fn complaint(&self, link: LinkId) -> Option<&str> {
        self.links.get(&link).and_then(|link| link.broken.as_deref())
    }

    /// A connection breaks.
    pub fn close(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    /// The next bytes for a learner, at most so many.
    pub fn take_output(&mut self, link: LinkId, max: usize) -> Vec<u8> {
        let Some(link) = self.links.get_mut(&link) else { return Vec::new() };
        let count = link.output.len().min(max);
        link.output.drain(..count).collect()
    }

    /// Writes so many znodes more of each snapshot that is being written.
    pub fn write_snapshots(&mut self, znodes: usize) {
        for link in self.links.values_mut() {
            let Stage::Snapshot(snapshot) = &mut link.stage else { continue };
            if !snapshot.has_begun() {
                // Transactions are sent from where the leader was before.
                packet::put(kind::SNAP, self.last_processed, None, None, &mut link.output);
            }
            if snapshot.write(&self.applied, &mut self.lists, znodes, &mut link.output) {
                link.output.extend_from_slice(SEAL);
                link.stage = Stage::Synced;
                let queue = std::mem::take(&mut link.queue);
                link.output.extend_from_slice(&queue);
                send_new_leader(link, self.epoch, self.applied.tree().config_text());
            }
        }
    }

    /// Takes what a learner has sent.
    pub fn feed(&mut self, id: LinkId, bytes: &[u8]) {
        if let Some(link) = self.links.get_mut(&id) {
            link.input.extend_from_slice(bytes);
        }
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            if link.broken.is_some() || matches!(link.stage, Stage::Snapshot(_)) {
                return;
            }
            let Some(received) = link.receive() else { return };
            link.heard_ms = self.now_ms;
            if !link.expects(received.kind) {
                link.broken = Some(format!("in {:?} came {received:?}", link.stage));
                return;
            }
            self.receive(id, &received);
        }
    }

    fn receive(&mut self, id: LinkId, received: &Received) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut reader = Reader::new(received.data.clone());
        match received.kind {
            kind::OBSERVER_INFO => {
                link.server_id = reader.long("serverid").expect("an id");
                assert_eq!(reader.int("protocolVersion"), Ok(PROTOCOL_VERSION));
                let is_known = received.zxid >> 32 <= self.epoch;
                assert!(is_known || self.is_deposed, "no epoch is raised by it");
                let version = PROTOCOL_VERSION.to_be_bytes();
                link.send(kind::LEADER_INFO, self.epoch << 32, Some(&version));
                link.stage = Stage::Led;
            }
            kind::ACK_EPOCH => {
                assert_eq!(reader.int("epoch"), Ok(-1), "it does not count");
                self.join(id, received.zxid);
            }
            kind::ACK if matches!(link.stage, Stage::Synced) => {
                assert_eq!(received.zxid, self.epoch << 32);
                link.stage = Stage::Served;
                link.send(kind::UP_TO_DATE, -1, None);
            }
            kind::PING => {
                while reader.remaining() > 0 {
                    let session = reader.long("session").expect("an id");
                    reader.int("timeout").expect("a timeout");
                    self.touch(session);
                }
            }
            kind::REVALIDATE => {
                let session = reader.long("session").expect("an id");
                let is_valid = self.move_to(session, Owner::Learner(id));
                self.touch(session);
                let mut data = Vec::new();
                data.put_long(session);
                data.push(u8::from(is_valid));
                if let Some(link) = self.links.get_mut(&id) {
                    link.send(kind::REVALIDATE, -1, Some(&data));
                }
            }
            kind::REQUEST => self.request(id, &mut reader, &received.ids),
            // An acknowledgement, or something that a leader only logs.
            _ => {}
        }
    }

    fn request(&mut self, id: LinkId, reader: &mut Reader, ids: &[Identity]) {
        let session = reader.long("session").expect("an id");
        let cxid = reader.int("cxid").expect("a number");
        let opcode = reader.int("type").expect("an opcode");
        match opcode {
            SYNC => match self.proposed.back() {
                Some(last) => self.syncs.push((last.zxid, id)),
                None => {
                    if let Some(link) = self.links.get_mut(&id) {
                        link.send(kind::SYNC, 0, None);
                    }
                }
            },
            txn_kind::CREATE_SESSION => {
                let timeout_ms = reader.int("timeout").expect("a timeout");
                self.open(Owner::Learner(id), session, cxid, timeout_ms);
            }
            txn_kind::CLOSE_SESSION => self.close_session(session, cxid),
            _ => match Request::decode(opcode, reader.rest()) {
                Ok(request) => {
                    self.ask(Owner::Learner(id), session, cxid, &request, ids);
                }
                Err(_) => self.fail(session, cxid, ErrorCode::Marshalling),
            },
        }
    }

    /// Brings a learner up to date that has everything up to a zxid.
    fn join(&mut self, id: LinkId, from: i64) {
        let max = self.history.last().map_or(self.last_processed, |last| last.zxid);
        let log = &self.history[self.history.len().saturating_sub(self.log_max)..];
        let min = log.first().map_or(self.last_processed, |first| first.zxid);
        let is_new_epoch = from & 0xffff_ffff == 0;
        let is_known = log.iter().any(|known| known.zxid == from);
        let Some(link) = self.links.get_mut(&id) else { return };
        let forced = self.forced.take();
        let current = if forced == Some(kind::TRUNC) {
            link.stage = Stage::Synced;
            link.send(kind::TRUNC, max, None);
            max
        } else if forced == Some(kind::SNAP) {
            begin_snapshot(link, self.last_processed)
        } else if from == self.last_processed {
            link.stage = Stage::Synced;
            link.send(kind::DIFF, from, None);
            from
        } else if from > max && !is_new_epoch {
            link.stage = Stage::Synced;
            link.send(kind::TRUNC, max, None);
            max
        } else if (min..=max).contains(&from) && (is_known || is_new_epoch) {
            link.stage = Stage::Synced;
            link.send(kind::DIFF, max, None);
            log.iter().filter(|known| known.zxid > from).for_each(|known| propose(link, known));
            max
        } else {
            begin_snapshot(link, self.last_processed)
        };
        for committed in self.committed.iter().filter(|committed| committed.zxid > current) {
            propose(link, committed);
        }
        link.is_forwarded = true;
        if !matches!(link.stage, Stage::Snapshot(_)) {
            send_new_leader(link, self.epoch, self.applied.tree().config_text());
        }
    }

    // Proposals.

    fn last_proposed(&self) -> i64 {
        self.epoch << 32 | self.counter
    }

    fn next_header(&mut self, session: i64, cxid: i32) -> TxnHeader {
        self.counter += 1;
        let (zxid, time_ms) = (self.last_proposed(), BEGINS_MS + self.now_ms);
        TxnHeader { client_id: session, cxid, zxid, time_ms, kind: 0 }
    }

    fn propose(&mut self, header: TxnHeader, kind: i32, body: TxnBody, designated: Option<i64>) {
        let header = TxnHeader { kind, ..header };
        let digest = self.decider.digest();
        let shown = (kind != txn_kind::ERROR).then_some(TxnDigest { version: 2, digest });
        let mut bytes = Vec::new();
        Txn { header, body, digest: shown }.encode(&mut bytes);
        let (zxid, bytes) = (header.zxid, bytes.into());
        self.proposed.push_back(Committed { zxid, bytes, digest, designated });
    }

    fn fail(&mut self, session: i64, cxid: i32, code: ErrorCode) {
        let header = self.next_header(session, cxid);
        let body = TxnBody::Error { code: code.wire() };
        self.propose(header, txn_kind::ERROR, body, None);
    }

    fn open(&mut self, owner: Owner, session: i64, cxid: i32, timeout_ms: i32) {
        let owner = Some(owner);
        let touched_ms = self.now_ms;
        self.sessions.insert(session, Session { timeout_ms, owner, touched_ms, is_closing: false });
        let header = self.next_header(session, cxid);
        let body = TxnBody::CreateSession { timeout_ms };
        self.propose(header, txn_kind::CREATE_SESSION, body, None);
    }

    fn close_session(&mut self, session: i64, cxid: i32) {
        if let Some(open) = self.sessions.get_mut(&session) {
            open.is_closing = true;
        }
        let header = self.next_header(session, cxid);
        let decided = self.decider.decide(&header, &Request::CloseSession, &[]);
        let (kind, body) = decided.expect("it is a write");
        self.propose(header, kind, body, None);
    }

    fn move_to(&mut self, session: i64, owner: Owner) -> bool {
        let open = self.sessions.get_mut(&session).filter(|open| !open.is_closing);
        open.map(|open| open.owner = Some(owner)).is_some()
    }

    fn ask(
        &mut self,
        owner: Owner,
        session: i64,
        cxid: i32,
        request: &Request,
        ids: &[Identity],
    ) -> Option<i64> {
        if !Decider::is_write(request) {
            return None;
        }
        if *request == Request::CloseSession {
            self.close_session(session, cxid);
            return Some(self.last_proposed());
        }
        let known = self.sessions.get_mut(&session).filter(|open| !open.is_closing);
        match known.map(|open| *open.owner.get_or_insert(owner)) {
            None => self.fail(session, cxid, ErrorCode::SessionExpired),
            Some(known) if known != owner => self.fail(session, cxid, ErrorCode::SessionMoved),
            Some(_) => {
                let header = self.next_header(session, cxid);
                let (kind, body) = self.decider.decide(&header, request, ids)?;
                let designated = (kind == txn_kind::RECONFIG).then_some(1);
                self.propose(header, kind, body, designated);
            }
        }
        Some(self.last_proposed())
    }
}

fn begin_snapshot(link: &mut Link, zxid: i64) -> i64 {
    link.stage = Stage::Snapshot(Snapshot::new());
    zxid
}

fn send_new_leader(link: &mut Link, epoch: i64, config: &str) {
    link.send(kind::NEW_LEADER, epoch << 32, Some(config.as_bytes()));
}

/// As what is committed is told to a learner that is brought up to date.
fn propose(link: &mut Link, committed: &Committed) {
    link.send(kind::PROPOSAL, committed.zxid, Some(&committed.bytes));
    link.send(kind::COMMIT, committed.zxid, None);
}

/// As what is being committed is told to an observer.
fn inform(link: &mut Link, committed: &Committed, lie: Option<Lie>) {
    let mut bytes = committed.bytes.to_vec();
    match lie {
        Some(Lie::Gap) => return,
        Some(Lie::Digest) => {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }
        None => {}
    }
    match committed.designated {
        None => link.send(kind::INFORM, committed.zxid, Some(&bytes)),
        Some(leader) => {
            let data = [&leader.to_be_bytes()[..], &bytes].concat();
            link.send(kind::INFORM_AND_ACTIVATE, committed.zxid, Some(&data));
        }
    }
}
