//! The learner against a model of ZooKeeper's leader: seeds of worlds in which clients write, learners join and leave,
//! and leaders die.

use std::collections::{BTreeMap, VecDeque};

use lockkeeper_core::learner::packet::kind;
use lockkeeper_core::learner::{Ended, Event, Joining, Learner};
use lockkeeper_core::proto::request::{Create, CreateKind};
use lockkeeper_core::proto::{Acl, MultiOp, Request, Text, Writer as _};
use lockkeeper_core::replica::{ForeignLoad, Machine};
use lockkeeper_core::tree::Identity;
use lockkeeper_core::zookeeper::txn::kind as txn_kind;
use lockkeeper_core::zookeeper::{Item, SnapshotDecoder, Txn, TxnBody};

use lockkeeper_simulation::rng::Rng;
use lockkeeper_simulation::zookeeper::decider::options;
use lockkeeper_simulation::zookeeper::leader::Owner;
use lockkeeper_simulation::zookeeper::{Leader, Lie, LinkId, Ticks};

use super::seeds::{least_of, share_of};

/// As the gate plays them; `cargo test` plays a share of them (seeds.rs).
const SEEDS: u64 = 500;
const STEPS: usize = 1000;
const TICKS: Ticks = Ticks { tick_ms: 1000, init_limit: 5, sync_limit: 3 };
const TIMEOUT_MS: i32 = 6000;

/// What all seeds must have seen, or they prove less than they say.
const SEEN_AT_LEAST: [(&str, u64); 14] = [
    ("transactions", 100_000),
    ("snapshots", 2000),
    ("snapshots that repeat", 1500),
    ("differences", 800),
    ("truncations", 300),
    ("leaders", 500),
    ("cuts", 2000),
    ("syncs", 600),
    ("sessions moved", 500),
    ("writes of an old owner", 5000),
    ("sessions that ended", 3000),
    ("failed multis", 5000),
    ("failed requests", 20_000),
    ("reconfigurations", 500),
];

type Seen = BTreeMap<&'static str, u64>;

/// A server that follows: what a replica makes of the learner's events.
struct Follower {
    id: u8,
    link: Option<(LinkId, Learner)>,
    loading: Option<(ForeignLoad, SnapshotDecoder, i64)>,
    state: Option<Machine>,
    /// Whether the state is that of a moment, not yet one of a snapshot that was being written.
    is_caught_up: bool,
    /// Whether a snapshot came over this connection.
    is_loaded: bool,
    accepted_epoch: i64,
    /// Of each sync that was asked for: what had been committed then.
    syncs: VecDeque<i64>,
    /// Its clients.
    sessions: Vec<i64>,
    sessions_made: i64,
    cxid: i32,
}

impl Follower {
    fn new(id: u8) -> Self {
        Self {
            id,
            link: None,
            loading: None,
            state: None,
            is_caught_up: false,
            is_loaded: false,
            accepted_epoch: 0,
            syncs: VecDeque::new(),
            sessions: Vec::new(),
            sessions_made: 0,
            cxid: 0,
        }
    }

    fn last_zxid(&self) -> i64 {
        self.state.as_ref().map_or(0, Machine::last_zxid)
    }

    fn join(&mut self, leader: &mut Leader, now_us: u64) {
        if !self.is_caught_up {
            self.state = None;
        }
        self.loading = None;
        self.syncs.clear();
        let joining = Joining {
            server_id: self.id,
            from_zxid: self.last_zxid(),
            accepted_epoch: self.accepted_epoch,
            login: None,
        };
        self.link = Some((leader.connect(), Learner::new(joining, now_us)));
    }

    fn leave(&mut self, leader: &mut Leader) {
        if let Some((link, _)) = self.link.take() {
            leader.close(link);
        }
    }

    fn next_session(&mut self) -> i64 {
        self.sessions_made += 1;
        (i64::from(self.id) << 56) + self.sessions_made
    }

    fn take(&mut self, event: Event, leader: &Leader, seen: &mut Seen) -> Result<(), String> {
        match event {
            Event::Led { epoch } => {
                self.accepted_epoch = epoch;
                self.is_loaded = false;
            }
            Event::SnapshotBegins { zxid } => {
                self.is_caught_up = false;
                self.is_loaded = true;
                self.state = None;
                self.loading =
                    Some((ForeignLoad::new(options()), SnapshotDecoder::default(), zxid));
                *seen.entry("snapshots").or_default() += 1;
            }
            Event::SnapshotBytes(bytes) => {
                let (load, decoder, _) = self.loading.as_mut().expect("it has begun");
                decoder.feed(&bytes);
                while let Some(item) = decoder.next_item().expect("it was checked") {
                    match item {
                        Item::Session { id, timeout_ms } => load.session(id, timeout_ms),
                        Item::Node(node) => load.node(&node)?,
                        Item::End => {}
                    }
                }
            }
            Event::SnapshotEnds => {
                let (load, decoder, zxid) = self.loading.take().expect("it has begun");
                assert!(decoder.has_ended() && decoder.rest().is_empty());
                self.state = Some(load.finish(zxid)?);
            }
            Event::Committed { txn, bytes, designated } => {
                let known = leader.find_committed(txn.header.zxid).ok_or("it is not committed")?;
                let state = self.state.as_mut().expect("there is one");
                if !self.is_caught_up && txn.header.zxid <= state.last_zxid() {
                    *seen.entry("snapshots that repeat").or_default() += 1;
                }
                self.count(&txn, seen);
                let state = self.state.as_mut().expect("there is one");
                state.apply_foreign(&txn);
                self.compare(&txn)?;
                // Who is brought up to date is not told who was to lead.
                let is_told = designated.is_none() || designated == known.designated;
                if known.bytes != bytes || !is_told {
                    return Err(format!("{txn:?} is another one than was committed"));
                }
            }
            Event::CaughtUp { .. } => {
                self.is_caught_up = true;
                if !self.is_loaded {
                    *seen.entry("differences").or_default() += 1;
                }
                let state = self.state.as_ref().ok_or("there is no state")?;
                if let Some(known) = leader.find_committed(state.last_zxid())
                    && state.tree().legacy_digest() != Some(known.digest)
                {
                    return Err("caught up, and with another tree".to_owned());
                }
            }
            Event::UpToDate => {}
            Event::Revalidated { session, is_valid } => {
                if is_valid {
                    *seen.entry("sessions moved").or_default() += 1;
                    self.sessions.push(session);
                }
            }
            Event::Synced => {
                *seen.entry("syncs").or_default() += 1;
                let committed = self.syncs.pop_front().ok_or("not asked for")?;
                if self.last_zxid() < committed {
                    return Err(format!("synced, and {committed:x} was committed before"));
                }
            }
        }
        Ok(())
    }

    /// The digest, as ZooKeeper has it.
    fn compare(&self, txn: &Txn) -> Result<(), String> {
        let ours = self.state.as_ref().and_then(|state| state.tree().legacy_digest());
        match txn.digest.map(|digest| digest.digest) {
            Some(digest) if self.is_caught_up && ours != Some(digest) => {
                Err(format!("behind {txn:?} the tree is another one: {ours:x?}, not {digest:x}"))
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, txn: &Txn, seen: &mut Seen) {
        let what = match &txn.body {
            TxnBody::Error { code: -118 } => "writes of an old owner",
            TxnBody::Error { .. } => "failed requests",
            TxnBody::CloseSession { .. } => {
                self.sessions.retain(|session| *session != txn.header.client_id);
                "sessions that ended"
            }
            TxnBody::Multi(subs) if subs.iter().any(|sub| sub.kind == txn_kind::ERROR) => {
                "failed multis"
            }
            _ if txn.header.kind == txn_kind::RECONFIG => "reconfigurations",
            _ => "others",
        };
        *seen.entry(what).or_default() += 1;
        *seen.entry("transactions").or_default() += 1;
    }
}

/// An ensemble of ZooKeeper, its clients, and servers that follow it.
struct World {
    rng: Rng,
    leader: Leader,
    followers: Vec<Follower>,
    now_ms: i64,
    elsewhere: Vec<i64>,
    sessions_made: i64,
    cxid: i32,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0);
        let mut leader = Leader::new(TICKS, 1_000_000);
        leader.set_log_max(rng.of(&[0, 3, 20, 500]));
        let followers = (0..rng.range(1, 3)).map(|at| Follower::new(201 + at as u8)).collect();
        Self {
            rng,
            leader,
            followers,
            now_ms: 1_000_000,
            elsewhere: Vec::new(),
            sessions_made: 0,
            cxid: 0,
            seen: Seen::new(),
        }
    }

    fn now_us(&self) -> u64 {
        self.now_ms as u64 * 1000
    }

    fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn path(&mut self) -> Text {
        let name = self.rng.of(&["a", "b", "c", "d"]);
        let below = self.rng.of(&["", "", "/x", "/y", "/x/z"]);
        Text::from(format!("/{name}{below}"))
    }

    fn acl(&mut self) -> Vec<Acl> {
        match self.rng.index(6) {
            0 => vec![Acl { perms: self.rng.range(1, 31) as i32, ..Acl::open() }],
            1 => vec![Acl { perms: 31, scheme: Text::from("ip"), id: Text::from("10.0.0.1") }],
            _ => vec![Acl::open()],
        }
    }

    fn create(&mut self) -> Create {
        let kind = self.rng.of(&[
            CreateKind::Create,
            CreateKind::Create,
            CreateKind::Create2,
            CreateKind::Container,
            CreateKind::Ttl,
        ]);
        let flags = match kind {
            CreateKind::Ttl => 5,
            CreateKind::Container => 4,
            _ => self.rng.of(&[0, 0, 0, 1, 1, 2, 3]),
        };
        let count = self.rng.index(40);
        Create {
            kind,
            path: self.path(),
            data: self.rng.chance(900).then(|| self.rng.bytes(count).into()),
            acl: Some(self.acl()),
            flags,
            ttl_ms: if kind == CreateKind::Ttl { 10_000 } else { 0 },
        }
    }

    fn version(&mut self) -> i32 {
        self.rng.of(&[-1, -1, -1, 0, 1])
    }

    fn request(&mut self) -> Request {
        match self.rng.index(20) {
            0..8 => Request::Create(self.create()),
            8..12 => Request::Delete { path: self.path(), version: self.version() },
            12..15 => {
                let count = self.rng.index(30);
                let data = Some(self.rng.bytes(count).into());
                Request::SetData { path: self.path(), data, version: self.version() }
            }
            15 => Request::SetAcl { path: self.path(), acl: Some(self.acl()), version: -1 },
            16..19 => {
                let count = self.rng.index(5);
                Request::Multi((0..count).map(|_| self.operation()).collect())
            }
            _ => Request::CloseSession,
        }
    }

    fn operation(&mut self) -> MultiOp {
        match self.rng.index(6) {
            0..3 => MultiOp::Create(self.create()),
            3 => MultiOp::Delete { path: self.path(), version: self.version() },
            4 => MultiOp::SetData { path: self.path(), data: None, version: self.version() },
            _ => MultiOp::Check { path: self.path(), version: self.version() },
        }
    }

    /// A client of a server of ZooKeeper does something.
    fn client_elsewhere(&mut self) {
        self.cxid += 1;
        let ids = [Identity::ip("127.0.0.1")];
        if self.elsewhere.is_empty() || self.rng.chance(50) {
            self.sessions_made += 1;
            let session = (1 << 56) + self.sessions_made;
            self.leader.open_elsewhere(session, TIMEOUT_MS);
            self.elsewhere.push(session);
            return;
        }
        let session = *self.rng.pick(&self.elsewhere);
        if self.rng.chance(10) {
            let members = Some(Text::from(format!("version={:x}", self.cxid)));
            let request = Request::Reconfig { joining: None, leaving: None, members, version: -1 };
            self.leader.ask_elsewhere(session, self.cxid, &request, &ids);
            return;
        }
        if self.rng.chance(20) {
            let path = self.path();
            self.leader.reap(path.as_str());
            return;
        }
        let request = self.request();
        self.leader.ask_elsewhere(session, self.cxid, &request, &ids);
        if self.leader.owner_of(session).is_none() {
            self.elsewhere.retain(|known| *known != session);
        }
    }

    /// A client of a server that follows does something.
    fn client_here(&mut self, at: usize) {
        let request = self.request();
        let choice = self.rng.index(20);
        let elsewhere = self.rng.index(self.elsewhere.len());
        let here = self.rng.index(self.followers[at].sessions.len());
        let follower = &mut self.followers[at];
        let Some((_, learner)) = &mut follower.link else { return };
        if !learner.may_request() {
            return;
        }
        follower.cxid += 1;
        let cxid = follower.cxid;
        let ids = [Identity::ip("127.0.0.1"), Identity::offers_sasl()];
        match (choice, follower.sessions.get(here).copied(), self.elsewhere.get(elsewhere)) {
            (0 | 1, ..) => {
                assert!(learner.sync(1, cxid));
                follower.syncs.push_back(self.leader.last_committed());
            }
            (2, _, Some(session)) => {
                learner.revalidate(*session, TIMEOUT_MS);
            }
            (3, Some(session), _) => {
                self.leader.move_elsewhere(session);
            }
            (4.., Some(session), _) => {
                let mut body = Vec::new();
                request.encode(&mut body);
                learner.request(session, cxid, request.op() as i32, &body, &ids);
                learner.heard(session, TIMEOUT_MS);
            }
            _ => {
                let session = follower.next_session();
                let (_, learner) = follower.link.as_mut().expect("it was there");
                let mut body = Vec::new();
                body.put_int(TIMEOUT_MS);
                learner.request(session, 0, txn_kind::CREATE_SESSION, &body, &[]);
                follower.sessions.push(session);
            }
        }
    }

    /// Moves bytes between a server and the leader.
    fn carry(&mut self, at: usize, max: usize) -> Result<(), String> {
        let now_us = self.now_us();
        let follower = &mut self.followers[at];
        let Some((link, learner)) = &mut follower.link else { return Ok(()) };
        let link = *link;
        if let Some(complaint) = self.leader.complaint(link) {
            return Err(format!("the leader complains: {complaint}"));
        }
        self.leader.feed(link, &learner.take_output());
        let bytes = self.leader.take_output(link, max);
        learner.feed(&bytes, now_us);
        loop {
            let Some((_, learner)) = &mut follower.link else { return Ok(()) };
            match learner.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => follower.take(event, &self.leader, &mut self.seen)?,
                // What the leader has told it is committed, but not applied there: it may try again.
                Err(Ended::Ahead { .. }) => {
                    follower.leave(&mut self.leader);
                    self.see("truncations");
                    return Ok(());
                }
                Err(ended) => return Err(ended.to_string()),
            }
        }
        if !self.leader.is_open(link) {
            follower.leave(&mut self.leader);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let at = self.rng.index(self.followers.len());
        match self.rng.index(100) {
            0..20 => self.client_elsewhere(),
            20..35 => self.client_here(at),
            35..45 => self.leader.commit(self.rng.index(6)),
            45..55 => self.leader.apply(self.rng.index(6)),
            55..62 => self.leader.write_snapshots(1 + self.rng.index(4)),
            62..88 => {
                let max = self.rng.of(&[1, 7, 50, 1000, 100_000]);
                self.carry(at, max)?;
            }
            88..94 => {
                let now_us = self.now_us();
                if self.followers[at].link.is_none() {
                    self.followers[at].join(&mut self.leader, now_us);
                }
            }
            94 => {
                if self.followers[at].link.is_some() {
                    self.see("cuts");
                    self.followers[at].leave(&mut self.leader);
                }
            }
            95 if self.rng.chance(200) => {
                let survivors = self.rng.index(self.leader.proposed() + 1);
                self.leader.replace(survivors);
                self.followers.iter_mut().for_each(|follower| follower.link = None);
                self.see("leaders");
            }
            _ => self.pass(300),
        }
        Ok(())
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        for session in self.elsewhere.clone() {
            if self.rng.chance(900) {
                self.leader.touch(session);
            }
        }
        self.leader.tick(self.now_ms);
    }

    /// Every server catches up; then all have what the leader has.
    fn end(&mut self) -> Result<(), String> {
        self.leader.settle();
        let now_us = self.now_us();
        for at in 0..self.followers.len() {
            self.followers[at].leave(&mut self.leader);
            for _ in 0..2 {
                if self.followers[at].link.is_none() {
                    self.followers[at].join(&mut self.leader, now_us);
                }
                for _ in 0..10 {
                    self.carry(at, usize::MAX)?;
                    self.leader.write_snapshots(usize::MAX);
                }
            }
            let Some((_, learner)) = &self.followers[at].link else {
                return Err("it has not joined".to_owned());
            };
            assert!(learner.may_request());
        }
        let last = self.leader.last_committed();
        for follower in &self.followers {
            let (ours, theirs) = (follower.state.as_ref().expect("one"), self.leader.applied());
            // A snapshot may have the zxid of a new epoch, which no transaction has.
            assert!(ours.last_zxid() == last || ours.last_zxid() == self.leader.epoch() << 32);
            assert_eq!(ours.tree().legacy_digest(), theirs.tree().legacy_digest());
            assert_eq!(ours.tree().legacy_digest(), Some(ours.tree().compute_legacy_digest()));
            let sessions = |state: &Machine| state.foreign_sessions().collect::<Vec<_>>();
            assert_eq!(sessions(ours), sessions(theirs));
            assert_eq!(znodes(ours), znodes(theirs));
        }
        Ok(())
    }
}

/// Every znode with its list, which no digest has.
fn znodes(state: &Machine) -> Vec<String> {
    let mut znodes = Vec::new();
    let seen: Result<(), ()> = state.tree().for_each_persisted(|path, data, acl, stat| {
        znodes.push(format!("{path} {data:?} {acl:?} {stat:?}"));
        Ok(())
    });
    seen.expect("nothing stops it");
    znodes.sort();
    znodes
}

fn play(seed: u64) -> Result<Seen, String> {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.end()?;
    Ok(world.seen)
}

#[test]
fn learners_follow_whatever_happens_to_the_ensemble() {
    let mut all = Seen::new();
    let seeds = share_of(SEEDS);
    for seed in 1..=seeds {
        match play(seed) {
            Ok(seen) => seen.into_iter().for_each(|(what, count)| {
                *all.entry(what).or_default() += count;
            }),
            Err(reason) => panic!("seed {seed}: {reason}"),
        }
    }
    println!("{seeds} seeds have seen {all:?}");
    for (what, least) in SEEN_AT_LEAST {
        let count = all.get(what).copied().unwrap_or_default();
        let least = least_of(least);
        assert!(count >= least, "{what}: {count}, which is less than {least}, of {all:?}");
    }
}

/// A server that follows an ensemble with one open session of a client elsewhere.
fn following() -> World {
    let mut world = World::new(7);
    world.followers.truncate(1);
    world.leader.open_elsewhere(70, TIMEOUT_MS);
    world.elsewhere.push(70);
    world.leader.settle();
    world.followers[0].join(&mut world.leader, 0);
    carried(&mut world).unwrap();
    assert!(world.followers[0].link.as_ref().is_some_and(|(_, learner)| learner.may_request()));
    world
}

fn carried(world: &mut World) -> Result<(), String> {
    for _ in 0..10 {
        world.carry(0, usize::MAX)?;
        world.leader.write_snapshots(usize::MAX);
    }
    Ok(())
}

fn set(world: &mut World, path: &str) {
    let request = Request::Create(Create {
        kind: CreateKind::Create,
        path: Text::from(path),
        data: None,
        acl: Some(vec![Acl::open()]),
        flags: 0,
        ttl_ms: 0,
    });
    world.leader.ask_elsewhere(70, 1, &request, &[]);
    world.leader.settle();
}

#[test]
fn a_digest_that_is_another_one_is_seen_at_once() {
    let mut world = following();
    set(&mut world, "/one");
    carried(&mut world).unwrap();
    let link = world.followers[0].link.as_ref().unwrap().0;
    world.leader.lie(link, Lie::Digest);
    set(&mut world, "/two");
    let reason = carried(&mut world).unwrap_err();
    assert!(reason.contains("the tree is another one"), "{reason}");
}

#[test]
fn a_transaction_that_is_left_out_ends_the_connection() {
    let mut world = following();
    let link = world.followers[0].link.as_ref().unwrap().0;
    world.leader.lie(link, Lie::Gap);
    set(&mut world, "/one");
    carried(&mut world).unwrap();
    set(&mut world, "/two");
    let reason = carried(&mut world).unwrap_err();
    assert!(reason.contains("comes next"), "{reason}");
}

#[test]
fn a_server_that_is_told_to_cut_off_what_it_has_is_not_brought_up_to_date() {
    let mut world = following();
    world.followers[0].leave(&mut world.leader);
    world.leader.force(kind::TRUNC);
    world.followers[0].join(&mut world.leader, 0);
    carried(&mut world).unwrap();
    assert_eq!(world.seen.get("truncations"), Some(&1));
    assert!(world.followers[0].link.is_none());
}

#[test]
fn sessions_that_are_heard_live_and_others_end() {
    let mut world = following();
    for session in [8, 9] {
        let (_, learner) = world.followers[0].link.as_mut().unwrap();
        learner.request(session, 0, txn_kind::CREATE_SESSION, &TIMEOUT_MS.to_be_bytes(), &[]);
    }
    for _ in 0..40 {
        let (_, learner) = world.followers[0].link.as_mut().unwrap();
        learner.heard(8, TIMEOUT_MS);
        world.now_ms += 500;
        let now_ms = world.now_ms;
        world.leader.tick(now_ms);
        world.leader.settle();
        carried(&mut world).unwrap();
    }
    let link = world.followers[0].link.as_ref().unwrap().0;
    assert_eq!(world.leader.owner_of(8), Some(Some(Owner::Learner(link))));
    assert_eq!(world.leader.owner_of(9), None);
    assert_eq!(world.leader.owner_of(70), None);
}

#[test]
fn a_session_that_moved_away_is_no_longer_written_for() {
    let mut world = following();
    let (_, learner) = world.followers[0].link.as_mut().unwrap();
    learner.revalidate(70, TIMEOUT_MS);
    carried(&mut world).unwrap();
    assert_eq!(world.seen.get("sessions moved"), Some(&1));
    set(&mut world, "/from-elsewhere");
    carried(&mut world).unwrap();
    assert_eq!(world.seen.get("writes of an old owner"), Some(&1));
    world.leader.move_elsewhere(70);
    set(&mut world, "/from-elsewhere");
    carried(&mut world).unwrap();
    assert_eq!(world.seen.get("others"), Some(&1));
}
