//! A client that writes without pause and remembers what it was promised.
//!
//! *Owns* the comparison of a recovered server with those promises. The requests of one session take
//! effect in order, so what a writer finds must be exactly its acknowledged requests and then the
//! first few of those that were in flight: nothing missing, nothing out of order, nothing invented.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use lockkeeper::internals::proto::request::{Create, CreateKind};
use lockkeeper::internals::proto::{Acl, MultiOp, MultiResult, Reader, Request, Response, Text};

use crate::crash::link::{Gone, Link, Session};
use crate::crash::model::{EPHEMERAL, Found, Nodes, SEQUENTIAL, SHARED, Sent, Write};
use testkit::Reply;
use testkit::rng::Rng;

/// What all writers share.
#[derive(Debug, Default)]
pub struct Promises {
    /// The highest zxid that any answer carried.
    pub zxid: AtomicI64,
    /// How many writes were acknowledged.
    pub acknowledged: AtomicU64,
    /// No answer is a promise from now on: the disk may have failed in such a way that the system
    /// tells the server of success.
    pub are_over: AtomicBool,
    /// Every sequential name ever seen.
    names: Mutex<HashSet<String>>,
    /// Every zxid of an acknowledged write.
    zxids: Mutex<HashSet<i64>>,
}

impl Promises {
    fn acknowledge(&self, zxid: i64, least: i64) {
        assert!(zxid > least, "a new write has zxid {zxid:#x}, but {least:#x} was acknowledged");
        assert!(self.zxids.lock().unwrap().insert(zxid), "two writes with zxid {zxid:#x}");
        self.zxid.fetch_max(zxid, Ordering::SeqCst);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    fn name(&self, path: &str) {
        let is_new = self.names.lock().unwrap().insert(path.to_string());
        assert!(is_new, "the sequence number of {path} was given out twice");
    }
}

#[derive(Debug)]
pub struct Writer {
    index: usize,
    random: Rng,
    number: u64,
    session: Option<Session>,
    /// What was acknowledged, all of it.
    acked: Nodes,
    /// With what is in flight besides, as far as its outcome is known.
    planned: Nodes,
    in_flight: VecDeque<Sent>,
    /// The session was closed, and that was acknowledged.
    closed: Option<Session>,
}

impl Writer {
    pub fn new(index: usize, seed: u64) -> Self {
        Self {
            index,
            random: Rng::new(seed, 1 + index as u64),
            number: 0,
            session: None,
            acked: Nodes::default(),
            planned: Nodes::default(),
            in_flight: VecDeque::new(),
            closed: None,
        }
    }

    fn home(&self) -> String {
        format!("/w{}", self.index)
    }

    /// How many znodes it knows to be there.
    pub fn len(&self) -> usize {
        self.acked.0.len()
    }

    /// Writes until the server is gone.
    pub fn run(&mut self, address: SocketAddr, promises: &Promises) -> Gone {
        loop {
            if let Err(gone) = self.run_session(address, promises) {
                return gone;
            }
        }
    }

    /// Writes until the session is closed by request.
    fn run_session(&mut self, address: SocketAddr, promises: &Promises) -> Result<(), Gone> {
        let before = promises.zxid.load(Ordering::SeqCst);
        let link = Link::open(address, self.session.as_ref(), before)?;
        let mut link = link.expect("a session that was not closed is alive");
        self.session = Some(link.session.clone());
        // Requests that were answered when answers were no promises any more.
        let mut unsure = 0;
        loop {
            let depth = unsure + 1 + self.random.below(IN_FLIGHT_MAX) as usize;
            while self.in_flight.len() < depth && !self.is_closing() {
                let write = self.choose();
                self.number += 1;
                let sent = Sent { writer: self.index, number: self.number, write };
                if !sent.is_sequential_create() {
                    self.planned.apply(&sent, link.session.id, None, None);
                }
                link.put(&request(&sent));
                self.in_flight.push_back(sent);
            }
            link.flush();
            let reply = link.take()?;
            if unsure > 0 || promises.are_over.load(Ordering::SeqCst) {
                unsure += 1;
                continue;
            }
            let sent = self.in_flight.pop_front().expect("one was in flight");
            self.acknowledged(&sent, reply, before, promises);
            if matches!(sent.write, Write::CloseSession) {
                self.closed = self.session.take();
                self.planned = self.acked.clone();
                return Ok(());
            }
        }
    }

    fn is_closing(&self) -> bool {
        self.in_flight.back().is_some_and(|sent| matches!(sent.write, Write::CloseSession))
    }

    fn acknowledged(&mut self, sent: &Sent, reply: Reply, before: i64, promises: &Promises) {
        assert_eq!(reply.err, 0, "writer {}: {sent:?}", self.index);
        let session = self.session.as_ref().expect("it writes in a session").id;
        let op = request(sent).op();
        let response =
            Response::decode(op, &mut Reader::new(reply.body)).expect("the answer decodes");
        let (name, zxid) = match response {
            Response::PathStat(path, stat) => (Some(path.as_str().to_string()), stat.czxid),
            Response::Stat(stat) => (None, stat.mzxid),
            Response::Multi(results) => match &results[..] {
                [_, MultiResult::SetData { stat }, _] => (None, stat.mzxid),
                other => panic!("a multi was answered with {other:?}"),
            },
            Response::Empty => (None, reply.zxid),
            other => panic!("{op:?} was answered with {other:?}"),
        };
        assert!(reply.zxid >= zxid, "the answer's zxid is behind its own write");
        promises.acknowledge(zxid, before);
        self.acked.apply(sent, session, name.as_deref(), Some(zxid));
        if sent.is_sequential_create() {
            promises.name(name.as_deref().expect("a create is answered with its path"));
            self.planned.apply(sent, session, name.as_deref(), Some(zxid));
        }
    }

    /// The next request: one that must succeed.
    fn choose(&mut self) -> Write {
        let home = self.home();
        let bytes = self.bytes();
        let slot = |random: &mut Rng| format!("{home}/n{}", random.below(SLOTS));
        match self.random.below(1000) {
            0 if self.number > 200 => Write::CloseSession,
            0..120 => {
                let flags = SEQUENTIAL | (self.random.below(2) as i32 * EPHEMERAL);
                Write::Create { path: format!("{SHARED}/s-"), flags, bytes: bytes.min(500) }
            }
            120..280 => match self.any(|path| path.starts_with(SHARED)) {
                Some(path) => Write::Delete { path },
                None => Write::Create { path: format!("{SHARED}/s-"), flags: SEQUENTIAL, bytes },
            },
            280..340 => {
                let path = format!("{home}/e{}", self.random.below(SLOTS / 4));
                if self.planned.0.contains_key(&path) {
                    return Write::Delete { path };
                }
                Write::Create { path, flags: EPHEMERAL, bytes }
            }
            340..400 => self.choose_multi(),
            400..700 => {
                let path = slot(&mut self.random);
                if self.planned.0.contains_key(&path) {
                    return Write::Set { path, bytes };
                }
                Write::Create { path, flags: 0, bytes }
            }
            _ => {
                let path = slot(&mut self.random);
                if self.planned.0.contains_key(&path) {
                    return Write::Delete { path };
                }
                Write::Create { path, flags: 0, bytes }
            }
        }
    }

    /// Lengths of values: most are small, some fill the log.
    fn bytes(&mut self) -> usize {
        match self.random.below(40) {
            0 => self.random.below(60_000) as usize,
            1..10 => self.random.below(3000) as usize,
            _ => self.random.below(200) as usize,
        }
    }

    fn choose_multi(&mut self) -> Write {
        let home = self.home();
        let free = (0..SLOTS)
            .map(|_| format!("{home}/n{}", self.random.below(SLOTS)))
            .find(|path| !self.planned.0.contains_key(path));
        let set = self.any(|path| path.starts_with(&home));
        let delete = self.any(|path| path.starts_with(&home) && Some(path) != set.as_deref());
        match (free, set, delete) {
            (Some(create), Some(set), Some(delete)) => Write::Multi { create, set, delete },
            (free, ..) => {
                let path = free.unwrap_or_else(|| format!("{home}/spare{}", self.number));
                Write::Create { path, flags: 0, bytes: 10 }
            }
        }
    }

    /// Any of the znodes that are there whatever is still in flight.
    fn any(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let paths: Vec<&String> = self.planned.0.keys().filter(|path| wanted(path)).collect();
        (!paths.is_empty()).then(|| (*self.random.pick(&paths)).clone())
    }

    /// Compares a recovered server with what was promised. `found` are all znodes that this writer
    /// made. Takes over the session, which must be alive unless it was being closed.
    pub fn verify(
        &mut self,
        address: SocketAddr,
        found: &BTreeMap<String, Found>,
        promises: &Promises,
    ) -> Result<usize, Gone> {
        let zxid = promises.zxid.load(Ordering::SeqCst);
        if let Some(closed) = &self.closed {
            assert!(
                Link::open(address, Some(closed), zxid)?.is_none(),
                "a closed session is alive"
            );
        }
        let id = self.session.as_ref().map_or(0, |session| session.id);
        let is_alive = match &self.session {
            Some(session) => Link::open(address, Some(session), zxid)?.is_some(),
            None => true,
        };
        assert!(
            is_alive || self.is_closing(),
            "writer {}: its session {id:#x} is gone",
            self.index
        );
        let mut nodes = self.acked.clone();
        let mut took_effect = 0;
        let mut difference = nodes.difference(found);
        let first = difference.clone();
        for sent in self.in_flight.clone() {
            let is_last = matches!(sent.write, Write::CloseSession);
            if difference.is_none() && (!is_last || is_alive) {
                break;
            }
            let name = path_of(&sent, found);
            if sent.is_sequential_create() && name.is_none() {
                if is_alive || !sent.is_ephemeral() {
                    // It did not take effect, nor did anything behind it.
                    break;
                }
                // It came, and went with its session.
                took_effect += 1;
                continue;
            }
            nodes.apply(&sent, id, name.as_deref(), None);
            took_effect += 1;
            difference = nodes.difference(found);
        }
        if let Some(last) = difference {
            panic!(
                "writer {}: {} with {} requests in flight; with the first {took_effect} of them: {last}",
                self.index,
                first.unwrap_or_default(),
                self.in_flight.len()
            );
        }
        for sent in self.in_flight.drain(..).take(took_effect) {
            if let Some(path) = path_of(&sent, found) {
                promises.name(&path);
            }
        }
        if !is_alive {
            self.closed = self.session.take();
        }
        self.acked = nodes;
        self.planned = self.acked.clone();
        Ok(took_effect)
    }
}

/// Where the znode is that a sequential create has made.
fn path_of(sent: &Sent, found: &BTreeMap<String, Found>) -> Option<String> {
    let value = sent.is_sequential_create().then(|| sent.value())?;
    found.iter().find(|(_, (there, _))| *there == value).map(|(path, _)| path.clone())
}

/// The request as it is sent.
fn request(sent: &Sent) -> Request {
    let data = Some(Bytes::from(sent.value()));
    let text = |path: &str| Text::copy_from(path);
    let create = |path: &str, flags: i32| Create {
        kind: CreateKind::Create2,
        path: text(path),
        data: data.clone(),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
    };
    match &sent.write {
        Write::Create { path, flags, .. } => Request::Create(create(path, *flags)),
        Write::Set { path, .. } => Request::SetData { path: text(path), data, version: -1 },
        Write::Delete { path } => Request::Delete { path: text(path), version: -1 },
        Write::Multi { create: path, set, delete } => Request::Multi(vec![
            MultiOp::Create(create(path, 0)),
            MultiOp::SetData { path: text(set), data: data.clone(), version: -1 },
            MultiOp::Delete { path: text(delete), version: -1 },
        ]),
        Write::CloseSession => Request::CloseSession,
    }
}

/// Makes the parents of all znodes that writers make.
pub fn make_parents(address: SocketAddr, writers: usize) {
    let mut link = Link::open(address, None, 0).expect("it runs").expect("a session");
    let paths = (0..writers).map(|index| format!("/w{index}")).chain([SHARED.to_string()]);
    let creates: Vec<Request> = paths
        .map(|path| {
            let write = Write::Create { path, flags: 0, bytes: 0 };
            request(&Sent { writer: usize::MAX, number: 0, write })
        })
        .collect();
    for answer in link.ask(&creates).expect("it runs") {
        answer.expect("a new znode");
    }
    link.ask(&[Request::CloseSession]).expect("it runs").remove(0).expect("closed");
}

/// Most requests in flight.
const IN_FLIGHT_MAX: u64 = 24;
/// Paths of a writer's own znodes.
const SLOTS: u64 = 120;
