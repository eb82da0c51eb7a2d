//! The seam, driven by hand: one replica whose disk is instant, clients as frames.

mod following;
mod sasl;
mod turn;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};

use super::*;
use crate::proto::connect::{ConnectRequest, ConnectResponse};
use crate::proto::request::Request;
use crate::proto::response::ReplyHeader;
use crate::proto::{Acl, ErrorCode, OpCode, ReadOp, Reader, frame};
use crate::tree::Options;

struct Rig {
    replica: Replica,
    now_us: u64,
    /// Connections whose output said that there is more.
    more: Vec<ConnId>,
    /// Frames received and whether the connection was closed.
    seen: BTreeMap<ConnId, (Vec<Bytes>, bool)>,
    /// Every entry that was appended.
    log: Vec<Entry>,
    /// Tokens that were to be judged outside.
    tokens: Vec<(ConnId, Vec<u8>)>,
    /// Numbers of appends that the disk has not finished, while it is slow.
    unfinished: Option<Vec<u64>>,
}

impl Rig {
    fn new() -> Self {
        Self::with(Setup::default())
    }

    fn with(setup: Setup) -> Self {
        let machine = Machine::fresh(Options::default());
        let mut rig = Self {
            replica: Replica::new(setup, machine, Restored::default()).unwrap(),
            now_us: 0,
            more: Vec::new(),
            seen: BTreeMap::new(),
            log: Vec::new(),
            tokens: Vec::new(),
            unfinished: None,
        };
        rig.advance_ms(1);
        assert!(rig.replica.is_serving());
        rig
    }

    fn advance_ms(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(TICK_MS) {
            self.now_us += TICK_MS.min(ms) * 1000;
            let wall_ms = 1_000_000 + i64::try_from(self.now_us / 1000).unwrap();
            self.replica.step(Input::Tick { now_us: self.now_us, wall_ms });
            self.drive();
        }
    }

    fn drive(&mut self) {
        while let Some(ready) = self.replica.ready().unwrap() {
            for outgoing in ready.client {
                let (frames, closed) = self.seen.entry(outgoing.conn).or_default();
                let mut bytes = BytesMut::from(&outgoing.frames[..]);
                while let Some(payload) = frame::next(&mut bytes, usize::MAX).unwrap() {
                    frames.push(payload);
                }
                assert!(bytes.is_empty());
                *closed |= outgoing.close;
                if outgoing.more {
                    self.more.push(outgoing.conn);
                }
            }
            self.tokens.extend(ready.tokens);
            if let Some(append) = ready.append {
                self.log.extend(append.entries);
                match &mut self.unfinished {
                    Some(unfinished) => unfinished.push(append.number),
                    None => self.replica.persisted(append.number),
                }
            }
        }
    }

    fn finish_appends(&mut self) {
        for number in self.unfinished.take().expect("the disk is slow") {
            self.replica.persisted(number);
        }
        self.drive();
    }

    fn connect(&mut self, conn: ConnId, session_id: i64, password: &[u8]) -> ConnectResponse {
        self.ask(conn, session_id, password);
        self.response(conn).expect("an answer")
    }

    fn response(&mut self, conn: ConnId) -> Option<ConnectResponse> {
        let frames = &mut self.seen.get_mut(&conn)?.0;
        (!frames.is_empty()).then(|| ConnectResponse::decode(frames.remove(0)).unwrap())
    }

    fn ask(&mut self, conn: ConnId, session_id: i64, password: &[u8]) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 4000,
            session_id,
            password: Bytes::copy_from_slice(password),
            read_only: Some(false),
        };
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.replica.step(Input::Connected {
            conn,
            remote,
            remote_port: 1,
            proven: Vec::new(),
            request,
        });
        self.drive();
    }

    fn send(&mut self, conn: ConnId, requests: &[(i32, Request)]) {
        self.step(conn, requests);
        self.drive();
    }

    fn step(&mut self, conn: ConnId, requests: &[(i32, Request)]) {
        let requests = requests
            .iter()
            .map(|(xid, request)| {
                let mut payload = Vec::new();
                crate::proto::RequestHeader { xid: *xid, op: request.op() as i32 }
                    .encode(&mut payload);
                request.encode(&mut payload);
                ClientRequest::decode(Bytes::from(payload)).unwrap()
            })
            .collect();
        self.replica.step(Input::Requests { conn, requests });
    }

    /// (xid, err) of everything received since the last look.
    fn replies(&mut self, conn: ConnId) -> Vec<(i32, i32)> {
        let Some((frames, _)) = self.seen.get_mut(&conn) else { return Vec::new() };
        std::mem::take(frames)
            .into_iter()
            .map(|payload| ReplyHeader::decode(&mut Reader::new(payload)).unwrap())
            .map(|header| (header.xid, header.err))
            .collect()
    }

    /// The same, with room and turns for all that is held back.
    fn all_replies(&mut self, conn: ConnId) -> Vec<(i32, i32)> {
        let mut replies = self.replies(conn);
        loop {
            if let Some(conn) = self.more.pop() {
                self.replica.step(Input::Room { conn });
                self.drive();
            } else if self.replica.owes_answers() {
                self.advance_ms(1);
            } else {
                return replies;
            }
            replies.extend(self.replies(conn));
        }
    }

    fn closed(&self, conn: ConnId) -> bool {
        self.seen.get(&conn).is_some_and(|(_, closed)| *closed)
    }
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create(crate::proto::request::Create {
        kind: crate::proto::request::CreateKind::Create,
        path: path.into(),
        data: Some(Bytes::from_static(b"x")),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
    })
}

fn get(path: &str, watch: bool) -> Request {
    Request::GetData { path: path.into(), watch }
}

fn set(path: &str) -> Request {
    Request::SetData { path: path.into(), data: None, version: -1 }
}

#[test]
fn replies_come_in_the_order_of_requests() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    let requests: Vec<(i32, Request)> = (0..100)
        .map(|xid| {
            let path = format!("/n{}", xid / 3);
            (xid, if xid % 3 == 0 { create(&path, 0) } else { get(&path, false) })
        })
        .collect();
    rig.send(1, &requests);
    let expected: Vec<(i32, i32)> = (0..100).map(|xid| (xid, 0)).collect();
    assert_eq!(rig.replies(1), expected);
}

#[test]
fn output_is_counted_once_until_it_is_taken() {
    let mut rig = Rig::new();
    for conn in [1, 2] {
        rig.connect(conn, 0, &[]);
    }
    assert_eq!(rig.replica.output_bytes(), 0);
    let counted = [1, 2, 1].map(|conn| {
        rig.step(conn, &[(1, get("/", false))]);
        rig.replica.output_bytes()
    });
    assert_eq!(counted, [1, 2, 3].map(|answers| answers * counted[0]));
    assert!(counted[0] > 0);
    rig.drive();
    assert_eq!(rig.replica.output_bytes(), 0);
}

#[test]
fn an_event_comes_before_the_reply_that_shows_its_change() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    rig.send(
        1,
        &[(1, create("/a", 0)), (2, get("/a", true)), (3, set("/a")), (4, get("/a", false))],
    );
    assert_eq!(rig.replies(1), [(1, 0), (2, 0), (-1, 0), (3, 0), (4, 0)]);
}

#[test]
fn a_session_that_is_silent_is_closed_with_its_ephemerals_and_without_a_word() {
    let mut rig = Rig::new();
    let first = rig.connect(1, 0, &[]);
    rig.connect(2, 0, &[]);
    rig.send(1, &[(1, create("/e", 1))]);
    rig.send(2, &[(1, Request::Exists { path: "/e".into(), watch: true })]);
    rig.replies(1);
    rig.replies(2);
    for _ in 0..30 {
        rig.advance_ms(200);
        rig.send(2, &[(-2, Request::Ping)]);
    }
    assert!(rig.closed(1) && !rig.closed(2));
    assert_eq!(rig.replies(1), []);
    assert!(rig.replies(2).contains(&(-1, 0)), "the event of the deletion");
    let gone = rig.connect(3, first.session_id, &first.password);
    assert_eq!((gone.session_id, gone.timeout_ms), (0, 0));
}

#[test]
fn a_session_moves_to_a_new_connection_and_the_old_one_ends() {
    let mut rig = Rig::new();
    let first = rig.connect(1, 0, &[]);
    assert!(first.session_id > 0 && first.timeout_ms == 4000);
    let again = rig.connect(2, first.session_id, &first.password);
    assert_eq!(again.session_id, first.session_id);
    assert!(rig.closed(1));
    rig.send(2, &[(1, create("/e", 1))]);
    assert_eq!(rig.replies(2), [(1, 0)]);
}

#[test]
fn a_moved_session_is_answered_behind_what_its_old_connection_left_in_the_log() {
    for is_closed_first in [false, true] {
        let mut rig = Rig::new();
        let first = rig.connect(1, 0, &[]);
        rig.unfinished = Some(Vec::new());
        rig.send(1, &[(1, create("/a", 1))]);
        if is_closed_first {
            rig.replica.step(Input::Closed { conn: 1 });
        }
        rig.ask(2, first.session_id, &first.password);
        assert!(rig.response(2).is_none(), "the create may still fail or succeed");
        rig.finish_appends();
        assert_eq!(rig.response(2).unwrap().session_id, first.session_id);
        assert_eq!(rig.replies(1), if is_closed_first { vec![] } else { vec![(1, 0)] });
        rig.send(2, &[(1, get("/a", false)), (2, set("/a")), (3, get("/", false))]);
        assert_eq!(rig.replies(2), [(1, 0), (2, 0), (3, 0)]);
        assert_eq!(rig.replica.status().outstanding, 0);
    }
}

#[test]
fn a_session_that_moves_twice_belongs_to_its_last_connection() {
    let mut rig = Rig::new();
    let first = rig.connect(1, 0, &[]);
    rig.unfinished = Some(Vec::new());
    rig.ask(2, first.session_id, &first.password);
    rig.send(1, &[(1, create("/late", 1))]);
    rig.ask(3, first.session_id, &first.password);
    rig.finish_appends();
    assert!(rig.closed(1) && rig.closed(2) && !rig.closed(3));
    assert_eq!(rig.replies(1), [], "it was moved before its write: no reply");
    assert!(rig.response(3).is_some());
    rig.send(3, &[(1, get("/late", false))]);
    assert_eq!(rig.replies(3), [(1, ErrorCode::NoNode as i32)]);
    assert_eq!(rig.replica.status().outstanding, 0);
}

#[test]
fn a_session_closed_by_a_connection_that_is_gone_cannot_be_had_again() {
    let mut rig = Rig::new();
    let first = rig.connect(1, 0, &[]);
    rig.unfinished = Some(Vec::new());
    rig.send(1, &[(1, create("/e", 1)), (2, Request::CloseSession)]);
    rig.replica.step(Input::Closed { conn: 1 });
    rig.ask(2, first.session_id, &first.password);
    rig.finish_appends();
    assert_eq!(rig.response(2).unwrap().session_id, 0);
    assert!(rig.closed(2));
    assert_eq!(rig.replica.status().ephemerals_count, 0);
    assert_eq!(rig.replica.status().outstanding, 0);
}

#[test]
fn one_connection_proves_only_so_many_identities() {
    let auth = |user: &str| Request::Auth {
        scheme: Some("digest".into()),
        auth: Some(Bytes::copy_from_slice(user.as_bytes())),
    };
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    // One is the address.
    for number in 1..clients::IDENTITIES_MAX {
        rig.send(1, &[(-4, auth(&format!("u{number}:p"))), (-4, auth("u1:p"))]);
    }
    assert!(rig.replies(1).iter().all(|reply| *reply == (-4, 0)));
    assert!(!rig.closed(1));
    rig.send(1, &[(-4, auth("one-more:p"))]);
    assert_eq!(rig.replies(1), [(-4, ErrorCode::AuthFailed as i32)]);
    assert!(rig.closed(1));
    rig.connect(2, 0, &[]);
    rig.send(2, &[(-4, auth(&"u".repeat(clients::IDENTITIES_BYTES_MAX)))]);
    assert_eq!(rig.replies(2), [(-4, ErrorCode::AuthFailed as i32)]);
    assert!(rig.closed(2));
}

#[test]
fn a_multi_read_of_more_than_its_limit_is_refused_and_one_below_is_not() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    let bytes = 1 << 20;
    let big = Request::SetData { path: "/".into(), data: Some(vec![7; bytes].into()), version: -1 };
    let reads = |count| Request::MultiRead(vec![ReadOp::GetData { path: "/".into() }; count]);
    let fits = clients::MULTI_READ_BYTES_MAX / bytes;
    rig.send(1, &[(1, big), (2, reads(fits)), (3, reads(fits + 1)), (4, reads(4000))]);
    let refused = ErrorCode::Marshalling as i32;
    assert_eq!(rig.all_replies(1), [(1, 0), (2, 0), (3, refused), (4, refused)]);
    assert!(!rig.closed(1));
}

#[test]
fn a_wrong_password_does_not_disturb_the_owner() {
    let mut rig = Rig::new();
    let first = rig.connect(1, 0, &[]);
    let wrong = rig.connect(2, first.session_id, &[7; 16]);
    assert_eq!(wrong.session_id, 0);
    assert!(rig.closed(2) && !rig.closed(1));
}

#[test]
fn close_session_is_answered_and_then_the_connection_ends() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    rig.send(1, &[(1, create("/e", 1)), (2, Request::CloseSession), (3, get("/", false))]);
    assert_eq!(rig.replies(1), [(1, 0), (2, 0)]);
    assert!(rig.closed(1));
    assert_eq!(rig.replica.status().ephemerals_count, 0);
}

#[test]
fn an_unknown_opcode_is_answered_in_order_and_ends_the_connection() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    let unknown = ClientRequest::decode(Bytes::from_static(b"\0\0\0\x09\0\0\x03\xe7")).unwrap();
    let mut payload = Vec::new();
    crate::proto::RequestHeader { xid: 8, op: OpCode::Create as i32 }.encode(&mut payload);
    create("/a", 0).encode(&mut payload);
    let first = ClientRequest::decode(Bytes::from(payload)).unwrap();
    rig.replica.step(Input::Requests { conn: 1, requests: vec![first, unknown] });
    rig.drive();
    assert_eq!(rig.replies(1), [(8, 0), (9, -6)]);
    assert!(rig.closed(1));
}

#[test]
fn sync_waits_for_the_writes_in_front_of_it() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    let sync = Request::Sync { path: Some("/".into()) };
    rig.send(1, &[(1, create("/a", 0)), (2, sync.clone()), (3, get("/a", false)), (4, sync)]);
    assert_eq!(rig.replies(1), [(1, 0), (2, 0), (3, 0), (4, 0)]);
}

fn drain(replica: &mut Replica) -> Changes {
    match replica.drain_changes(64) {
        Drained::Changes(changes) => changes,
        other => panic!("{other:?} before the mark"),
    }
}

/// Drains up to the mark into what an earlier process left on the disk.
fn checkpoint(replica: &mut Replica, disk: &mut BTreeMap<Box<[u8]>, Box<[u8]>>) -> Mark {
    loop {
        let changes = drain(replica);
        for Record { key, value } in changes.records.iter() {
            match value {
                Some(value) => disk.insert(key.into(), value.into()),
                None => disk.remove(key),
            };
        }
        if let Some(mark) = changes.mark {
            return mark;
        }
    }
}

#[test]
fn what_a_replayed_log_deletes_is_deleted_on_the_disk() {
    let mut rig = Rig::new();
    rig.replica.setup.durable = true;
    rig.connect(1, 0, &[]);
    rig.send(1, &[(1, create("/replayed", 0)), (2, create("/later", 0)), (3, create("/kept", 0))]);
    let mut disk = BTreeMap::new();
    checkpoint(&mut rig.replica, &mut disk);
    rig.send(1, &[(4, Request::Delete { path: "/replayed".into(), version: -1 })]);

    let mut machine = Machine::fresh(Options::default());
    for entry in &rig.log {
        machine.entry(entry).unwrap();
    }
    let last = rig.log.last().unwrap();
    let restored = Restored {
        applied: last.index,
        applied_term: last.term,
        hard_state: HardState { term: last.term, vote: 1, commit: last.index },
        ..Restored::default()
    };
    let setup = Setup { durable: true, ..Setup::default() };
    let mut rig = Rig { replica: Replica::new(setup, machine, restored).unwrap(), ..Rig::new() };
    rig.advance_ms(1);
    rig.connect(2, 0, &[]);
    rig.send(2, &[(1, Request::Delete { path: "/later".into(), version: -1 })]);
    assert_eq!(rig.replies(2), [(1, 0)]);
    let mark = checkpoint(&mut rig.replica, &mut disk);
    let paths: Vec<_> = disk.keys().filter(|key| key[0] == b'/').map(|key| &key[..]).collect();
    assert_eq!(paths.len(), 5, "the root, three special ones and /kept");
    assert_eq!(disk.len() as u64, mark.records);
}

#[test]
fn the_state_drains_in_pieces_and_loads_back() {
    let mut rig = Rig::new();
    rig.replica.setup.durable = true;
    rig.connect(1, 0, &[]);
    let requests: Vec<(i32, Request)> =
        (0..500).map(|xid| (xid, create(&format!("/n{xid}"), xid % 2))).collect();
    rig.send(1, &requests);
    let mut records = BTreeMap::new();
    let mark = loop {
        let changes = drain(&mut rig.replica);
        for Record { key, value } in changes.records.iter() {
            records.insert(Box::from(key), value.map(Box::from));
        }
        if let Some(mark) = changes.mark {
            break mark;
        }
    };
    assert_eq!(rig.replica.drain_changes(64), Drained::Nothing);
    let mut machine = Machine::fresh(Options::default());
    let (record_digest, mut digest) = (machine.record_digest(), 0_u128);
    for (key, value) in &records {
        let value = value.as_deref().unwrap();
        machine.record(key, value).unwrap();
        digest = digest.wrapping_add(record_digest(key, value).unwrap());
    }
    machine.finish(&mark).unwrap();
    assert_eq!(machine.digest(), rig.replica.machine().digest());
    assert_eq!(digest, mark.digest, "the records alone tell which state they are");
}

#[test]
fn a_reset_starts_the_figures_again_and_keeps_the_state() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    rig.send(1, &[(1, create("/a", 0)), (2, get("/a", true)), (3, set("/a"))]);
    let before = rig.replica.status();
    assert_eq!(before.events_fired.iter().sum::<u64>(), 1);
    assert!(before.watch_bytes > 0 && before.writes_answered > 0 && before.proposals > 0);
    rig.replica.step(Input::Inspect { token: 1, what: Inspect::ResetServer });
    rig.drive();
    let after = rig.replica.status();
    assert_eq!(after.events_fired, [0; 4]);
    assert_eq!((after.watch_bytes, after.proposals), (0, 0));
    assert_eq!((after.writes_answered, after.reads_answered), (0, 0));
    assert_eq!((after.zxid, after.znode_count), (before.zxid, before.znode_count));
    assert_eq!((after.sessions, after.txns_applied), (before.sessions, before.txns_applied));
}

#[test]
fn answers_beyond_their_bound_wait_for_room_and_keep_their_order() {
    let mut rig = Rig::new();
    rig.connect(1, 0, &[]);
    let data = Some(Bytes::from(vec![7; 400 << 10]));
    let big = Request::SetData { path: "/big".into(), data, version: -1 };
    rig.send(1, &[(1, create("/big", 0)), (2, big)]);
    rig.replies(1);
    let mut requests: Vec<(i32, Request)> = (10..20).map(|xid| (xid, get("/big", false))).collect();
    requests.extend([(20, create("/a", 0)), (21, get("/a", false)), (22, Request::CloseSession)]);
    rig.send(1, &requests);
    assert_eq!(rig.replies(1), [(10, 0), (11, 0), (12, 0)], "a megabyte and no more");
    assert!(!rig.closed(1), "answers are owed");
    assert_eq!(rig.all_replies(1), (13..=22).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert!(rig.closed(1));
    assert_eq!(rig.replica.status().outstanding, 0);
}

#[test]
fn answers_beyond_the_bound_of_a_turn_wait_for_the_next_and_keep_their_order() {
    let mut rig = Rig::new();
    let conns = 1..=40;
    for conn in conns.clone() {
        rig.connect(conn, 0, &[]);
    }
    let data = Some(Bytes::from(vec![7; 400 << 10]));
    let big = Request::SetData { path: "/big".into(), data, version: -1 };
    rig.send(1, &[(1, create("/big", 0)), (2, big)]);
    rig.replies(1);
    for conn in conns.clone() {
        rig.step(conn, &[(3, get("/big", false)), (4, get("/", false))]);
    }
    assert!(rig.replica.output_bytes() < OUTPUT_BYTES_PER_TURN_MAX + (401 << 10));
    assert!(rig.replica.owes_answers());
    rig.drive();
    assert_eq!(rig.replies(40), [], "it waits");
    // What comes behind waits too, also a transaction that is applied, and one that is closed by then
    // disturbs no session.
    rig.send(39, &[(5, create("/a", 0)), (6, get("/a", false)), (7, Request::CloseSession)]);
    rig.replica.step(Input::Closed { conn: 38 });
    for _ in 0..3 {
        rig.advance_ms(1);
    }
    assert!(!rig.replica.owes_answers());
    assert_eq!(rig.replies(40), [(3, 0), (4, 0)]);
    assert_eq!(rig.replies(39), (3..=7).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert!(rig.closed(39));
    assert_eq!(rig.replies(38), []);
    assert_eq!(rig.replica.status().outstanding, 0);
}
