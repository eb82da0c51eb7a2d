//! Histories: what clients do to a replica, made up from bytes.
//!
//! *Owns* the rules that hold whatever clients send: the replica goes on; every request of an open
//! connection is answered, in order; zxids of replies never fall; two replicas given the same agree;
//! what reaches the disk gives the same state back.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};
use lockkeeper::internals::proto::response::ReplyHeader;
use lockkeeper::internals::proto::{
    ConnectRequest, ConnectResponse, OpCode, Reader, Writer, frame,
};
use lockkeeper::internals::replica::{
    ClientRequest, ConnId, Drained, Input, Mark, Outgoing, Replica, Restore, Restored, Setup,
};

use super::bodies::machine;

/// Connections of a history.
const CONNECTIONS: u8 = 3;
/// Steps of a history.
const STEPS_MAX: usize = 400;

/// Bytes that decide what happens; zeros when they are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// True once in `times`.
    fn rarely(&mut self, times: u8) -> bool {
        self.byte().is_multiple_of(times)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::from(self.byte()) % list.len()]
    }
}

/// What is known of one connection.
#[derive(Default)]
struct Seen {
    unanswered: VecDeque<i32>,
    last_zxid: i64,
    shaken: bool,
    closed: bool,
}

struct World {
    replica: Replica,
    now_us: u64,
    next_conn: ConnId,
    /// The current connection of each client, and the session it has or had.
    clients: Vec<(ConnId, Option<ConnectResponse>)>,
    seen: BTreeMap<ConnId, Seen>,
    disk: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

/// Plays the history that the bytes say, on two replicas, and compares them.
pub fn history(data: &[u8]) {
    let (one, other) = (play(data, 1), play(data, 2));
    assert_eq!(one.replica.machine().digest(), other.replica.machine().digest());
    assert_eq!(one.replica.status().zxid, other.replica.status().zxid);
    assert!(one.disk == other.disk, "two disks differ");
}

fn play(data: &[u8], hash_seed: u64) -> World {
    let setup = Setup {
        durable: true,
        session_timeout_ms_min: 200,
        container_check_interval_ms: 500,
        ..Setup::default()
    };
    let mut world = World {
        replica: Replica::new(setup, machine(hash_seed), Restored::default())
            .expect("nothing fits together with nothing"),
        now_us: 0,
        next_conn: 0,
        clients: vec![(0, None); usize::from(CONNECTIONS)],
        seen: BTreeMap::new(),
        disk: BTreeMap::new(),
    };
    world.advance(50);
    assert!(world.replica.is_serving());
    for client in 0..usize::from(CONNECTIONS) {
        world.connect(client, true);
    }
    world.drive();
    let mut choices = Choices(data);
    for _ in 0..STEPS_MAX {
        if choices.0.is_empty() {
            break;
        }
        world.turn(&mut choices);
    }
    world.checkpoint();
    world
}

impl World {
    /// One step of the history.
    fn turn(&mut self, choices: &mut Choices<'_>) {
        let client = usize::from(choices.byte() % CONNECTIONS);
        match choices.byte() % 16 {
            _ if !self.is_open(client) => self.connect(client, choices.rarely(4)),
            0 => self.connect(client, choices.rarely(2)),
            1 => {
                let (conn, _) = self.clients[client];
                self.seen.entry(conn).or_default().closed = true;
                self.replica.step(Input::Closed { conn });
            }
            2 => self.advance(u64::from(choices.byte()) * 4),
            3 => self.checkpoint(),
            _ => {
                let count = 1 + choices.byte() % 4;
                let requests = (0..count).map(|_| request(choices)).collect();
                self.request(client, requests);
            }
        }
        self.drive();
    }

    fn is_open(&self, client: usize) -> bool {
        let (conn, _) = self.clients[client];
        self.seen.get(&conn).is_some_and(|seen| seen.shaken && !seen.closed)
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..=ms / 50 {
            self.now_us += 50_000;
            let wall_ms = i64::try_from(self.now_us / 1000).expect("a short history");
            self.replica.step(Input::Tick { now_us: self.now_us, wall_ms });
            self.drive();
        }
    }

    fn connect(&mut self, client: usize, anew: bool) {
        self.next_conn += 1;
        let conn = self.next_conn;
        let before = self.clients[client].1.clone().filter(|_| !anew);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 3000,
            session_id: before.as_ref().map_or(0, |session| session.session_id),
            password: before
                .map_or(Bytes::new(), |session| Bytes::copy_from_slice(&session.password)),
            read_only: Some(false),
        };
        self.clients[client].0 = conn;
        self.seen.insert(conn, Seen::default());
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.replica.step(Input::Connected {
            conn,
            remote,
            remote_port: 1,
            proven: Vec::new(),
            request,
        });
    }

    fn request(&mut self, client: usize, requests: Vec<ClientRequest>) {
        let (conn, _) = self.clients[client];
        let Some(seen) = self.seen.get_mut(&conn) else { return };
        for request in &requests {
            // The reply to a ping has an xid of its own.
            let xid = if request.op == OpCode::Ping as i32 { -2 } else { request.xid };
            seen.unanswered.push_back(xid);
        }
        self.replica.step(Input::Requests { conn, requests });
    }

    /// Does what the replica wants done; its disk is instant.
    fn drive(&mut self) {
        loop {
            while let Some(ready) = self.replica.ready().expect("clients break no invariant") {
                for outgoing in ready.client {
                    self.receive(&outgoing);
                }
                if let Some(append) = ready.append {
                    self.replica.persisted(append.number);
                }
            }
            if !self.replica.owes_answers() {
                break;
            }
            // What a turn has no room for, the next one has.
            let wall_ms = i64::try_from(self.now_us / 1000).expect("a short history");
            self.replica.step(Input::Tick { now_us: self.now_us, wall_ms });
        }
        for (conn, seen) in &self.seen {
            let waiting = &seen.unanswered;
            assert!(seen.closed || waiting.is_empty(), "connection {conn} waits for {waiting:?}");
        }
    }

    fn receive(&mut self, outgoing: &Outgoing) {
        let Some(seen) = self.seen.get_mut(&outgoing.conn) else { return };
        let mut bytes = BytesMut::from(&outgoing.frames[..]);
        while let Some(payload) = frame::next(&mut bytes, usize::MAX).expect("whole frames") {
            if !std::mem::replace(&mut seen.shaken, true) {
                let answer = ConnectResponse::decode(payload).expect("an answer");
                let client = self.clients.iter_mut().find(|(conn, _)| *conn == outgoing.conn);
                if let Some((_, session)) = client {
                    *session = (answer.session_id != 0).then_some(answer);
                }
                continue;
            }
            let header = ReplyHeader::decode(&mut Reader::new(payload)).expect("a header");
            if header.xid == -1 && seen.unanswered.front() != Some(&-1) {
                continue;
            }
            assert_eq!(Some(header.xid), seen.unanswered.pop_front(), "{header:?}");
            if header.zxid > 0 {
                assert!(header.zxid >= seen.last_zxid, "{header:?} after {}", seen.last_zxid);
                seen.last_zxid = header.zxid;
            }
        }
        assert!(bytes.is_empty(), "half a frame");
        seen.closed |= outgoing.close;
    }

    /// Takes all changes to the disk, and a state back from it.
    fn checkpoint(&mut self) {
        while let Drained::Changes(changes) = self.replica.drain_changes(7) {
            if changes.begins_full_pass {
                self.disk.clear();
            }
            for record in changes.records.iter() {
                match record.value {
                    Some(value) => drop(self.disk.insert(record.key.into(), value.into())),
                    None => drop(self.disk.remove(record.key)),
                }
            }
            if let Some(mark) = changes.mark {
                self.restore(&mark);
                return;
            }
        }
    }

    fn restore(&self, mark: &Mark) {
        let mut restored = machine(3);
        for (key, value) in &self.disk {
            restored.record(key, value).expect("a record of our own");
        }
        restored.finish(mark).expect("the state of the mark");
        assert_eq!(restored.digest(), self.replica.machine().digest());
    }
}

const PATHS: [&str; 14] = [
    "/",
    "/a",
    "/a/b",
    "/a/b/c",
    "/a/e",
    "/a/e/x",
    "/c",
    "/c/x",
    "/t",
    "/a/n-",
    "/zookeeper",
    "/zookeeper/quota/a",
    "/a/",
    "nope",
];

/// What is asked most of the time.
const USUAL: [OpCode; 12] = [
    OpCode::Create,
    OpCode::Create2,
    OpCode::CreateContainer,
    OpCode::CreateTtl,
    OpCode::Delete,
    OpCode::SetData,
    OpCode::SetAcl,
    OpCode::Multi,
    OpCode::Exists,
    OpCode::GetChildren2,
    OpCode::AddWatch,
    OpCode::SetWatches2,
];

/// A request that may make sense.
fn request(choices: &mut Choices<'_>) -> ClientRequest {
    let mut out = Vec::new();
    out.put_int(i32::from(choices.byte()));
    let op = if choices.rarely(16) { choices.of(&OpCode::ALL) } else { choices.of(&USUAL) };
    // auth may overtake what was asked before it.
    let op = if matches!(op, OpCode::Auth | OpCode::Sasl) { OpCode::Create } else { op };
    out.put_int(op as i32);
    if choices.rarely(32) {
        let count = usize::from(choices.byte() % 64);
        out.extend((0..count).map(|_| choices.byte()));
    } else {
        body(op, choices, &mut out);
    }
    ClientRequest::decode(Bytes::from(out)).expect("it has a header")
}

fn body(op: OpCode, choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            create(op, choices, out);
        }
        OpCode::Multi => {
            for _ in 0..choices.byte() % 5 {
                let op = choices.of(&[
                    OpCode::Create,
                    OpCode::Create2,
                    OpCode::CreateContainer,
                    OpCode::CreateTtl,
                    OpCode::Delete,
                    OpCode::SetData,
                    OpCode::Check,
                ]);
                multi_header(op as i32, false, out);
                body(op, choices, out);
            }
            multi_header(-1, true, out);
        }
        OpCode::SetWatches | OpCode::SetWatches2 => {
            out.put_long(i64::from(choices.byte()));
            for _ in 0..if op == OpCode::SetWatches { 3 } else { 5 } {
                out.put_int(1);
                out.put_string(choices.of(&PATHS));
            }
        }
        OpCode::SetData => {
            out.put_string(choices.of(&PATHS));
            out.put_buffer(choices.of(&[None, Some(&b""[..]), Some(b"data")]));
            out.put_int(choices.of(&[-1, -1, 0, 1]));
        }
        OpCode::SetAcl => {
            out.put_string(choices.of(&PATHS));
            acl(choices, out);
            out.put_int(choices.of(&[-1, 0, 1]));
        }
        OpCode::Delete | OpCode::Check | OpCode::AddWatch | OpCode::RemoveWatches => {
            out.put_string(choices.of(&PATHS));
            out.put_int(choices.of(&[-1, -1, 0, 1, 2, 3, 4, 5]));
        }
        // A path, and zeros for whatever else it takes.
        _ => {
            out.put_string(choices.of(&PATHS));
            out.push(choices.byte() % 2);
            out.put_long(0);
        }
    }
}

fn create(op: OpCode, choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    out.put_string(choices.of(&PATHS));
    out.put_buffer(choices.of(&[None, Some(&b""[..]), Some(b"data")]));
    acl(choices, out);
    out.put_int(i32::from(choices.byte() % 8));
    if op == OpCode::CreateTtl {
        out.put_long(choices.of(&[-1, 0, 100, 5000]));
    }
}

/// Mostly open.
fn acl(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let (perms, scheme, id) = choices.of(&[
        (31, "world", "anyone"),
        (31, "world", "anyone"),
        (31, "world", "anyone"),
        (31, "ip", "127.0.0.1"),
        (1, "world", "anyone"),
        (30, "world", "anyone"),
        (31, "auth", ""),
        (31, "digest", "u:p"),
    ]);
    out.put_int(1);
    out.put_int(perms);
    out.put_string(scheme);
    out.put_string(id);
}

fn multi_header(kind: i32, done: bool, out: &mut Vec<u8>) {
    out.put_int(kind);
    out.put_bool(done);
    out.put_int(-1);
}
