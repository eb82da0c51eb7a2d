//! A client that speaks bytes: one blocking socket, every wait with a deadline.
//!
//! *Owns* [`Wire`] (frames over a socket) and [`Client`] (a session over a wire: it counts xids,
//! takes replies strictly in the order of its requests and keeps the events it met between them).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::bytes::{AclEntry, Body, Fields, MultiResult, Stat, acl, length, mode, op, open_acl};

/// How long any single answer may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Frames over a socket.
pub struct Wire {
    stream: TcpStream,
}

impl Wire {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes bytes");
    }

    /// Sends bytes, and does not mind a server that has closed already.
    pub fn send_if_open(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) if is_close(error.kind()) => {}
            Err(error) => panic!("sending: {error}"),
        }
    }

    /// Sends one frame.
    pub fn send_frame(&mut self, payload: &[u8]) {
        self.send(&frame(payload));
    }

    /// Says that nothing more will be sent, while still reading.
    pub fn shut_write(&mut self) {
        // The server may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next frame's payload; `None` when the server closed between two frames.
    pub fn frame(&mut self) -> Option<Vec<u8>> {
        let mut prefix = [0; 4];
        if !self.fill(&mut prefix) {
            return None;
        }
        let count = usize::try_from(i32::from_be_bytes(prefix)).expect("a length from the server");
        let mut payload = vec![0; count];
        assert!(count == 0 || self.fill(&mut payload), "closed after the length of a frame");
        Some(payload)
    }

    /// Fills `buffer`, or says that the server closed before its first byte.
    fn fill(&mut self, buffer: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => {
                    assert_eq!(filled, 0, "the server closed inside a frame");
                    return false;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_close(error.kind()) => return false,
                Err(error) => panic!("no answer within {PATIENCE:?}: {error}"),
            }
        }
        true
    }

    /// Everything until the server closes, as raw bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if is_close(error.kind()) => {}
            Err(error) => panic!("not closed within {PATIENCE:?}: {error}"),
        }
        bytes
    }

    /// The server must close without sending another byte.
    pub fn assert_closed(&mut self) {
        let bytes = self.rest();
        assert!(bytes.is_empty(), "the server sent {bytes:?} instead of closing at once");
    }

    /// Whether a byte (or the end) is there to be read within `wait`.
    pub fn is_readable_within(&mut self, wait: Duration) -> bool {
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let readable = match self.stream.peek(&mut [0]) {
            Ok(_) => true,
            Err(error) => is_close(error.kind()),
        };
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        readable
    }
}

/// A payload with its length in front.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    Body::new().buffer(payload).0
}

/// A request's payload: header and body.
pub fn request(xid: i32, opcode: i32, body: &Body) -> Vec<u8> {
    Body::new().int(xid).int(opcode).raw(&body.0).0
}

fn is_close(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

/// Polls until `condition` gives a value. Fails the test after `patience`.
pub fn wait_for<T>(what: &str, patience: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The first frame of a client.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    pub protocol_version: i32,
    pub last_zxid_seen: i64,
    pub timeout_ms: i32,
    pub session_id: i64,
    pub password: Option<Vec<u8>>,
    /// `None`: the byte is not sent at all.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// A new session.
    pub fn fresh(timeout_ms: i32) -> Self {
        Self {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms,
            session_id: 0,
            password: Some(vec![0; 16]),
            read_only: Some(false),
        }
    }

    /// The session that `answer` gave.
    pub fn again(answer: &ConnectResponse) -> Self {
        Self {
            session_id: answer.session_id,
            password: Some(answer.password.clone()),
            ..Self::fresh(answer.timeout_ms)
        }
    }

    pub fn payload(&self) -> Vec<u8> {
        let body = Body::new()
            .int(self.protocol_version)
            .long(self.last_zxid_seen)
            .int(self.timeout_ms)
            .long(self.session_id)
            .buffer_or_null(self.password.as_deref());
        match self.read_only {
            Some(flag) => body.boolean(flag).0,
            None => body.0,
        }
    }
}

/// The first frame of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    pub timeout_ms: i32,
    pub session_id: i64,
    pub password: Vec<u8>,
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    pub fn parse(payload: &[u8]) -> Self {
        let mut fields = Fields(payload);
        assert_eq!(fields.int(), 0, "the protocol version");
        let timeout_ms = fields.int();
        let session_id = fields.long();
        let password = fields.buffer().expect("a password");
        assert_eq!(password.len(), 16, "the length of the password");
        let read_only = (!fields.0.is_empty()).then(|| fields.boolean());
        fields.end();
        Self { timeout_ms, session_id, password, read_only }
    }
}

/// What a watch said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub zxid: i64,
    pub kind: EventKind,
    pub path: String,
}

/// The four events that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
}

/// An answer: the header's fields and the bytes behind it.
#[derive(Clone, Debug)]
pub struct Reply {
    pub xid: i32,
    pub zxid: i64,
    pub err: i32,
    pub body: Vec<u8>,
}

impl Reply {
    /// The body's fields, when the answer is no error.
    pub fn fields(&self) -> Result<Fields<'_>, i32> {
        if self.err == 0 { Ok(Fields(&self.body)) } else { Err(self.err) }
    }

    /// Reads the body with `read`; nothing may be left of it.
    pub fn parse<'a, T>(&'a self, read: impl FnOnce(&mut Fields<'a>) -> T) -> Result<T, i32> {
        let mut fields = self.fields()?;
        let value = read(&mut fields);
        fields.end();
        Ok(value)
    }

    /// Nothing but success or an error code.
    pub fn done(&self) -> Result<(), i32> {
        self.parse(|_| ())
    }
}

/// A session over a connection.
pub struct Client {
    pub wire: Wire,
    /// The server's answer to the connect request.
    pub session: ConnectResponse,
    /// The highest zxid of any reply.
    pub last_zxid: i64,
    next_xid: i32,
    /// xid of each request without a reply, oldest first.
    outstanding: VecDeque<i32>,
    events: Vec<Event>,
}

impl Client {
    /// Opens a connection and a session.
    pub fn open(address: SocketAddr, connect: &ConnectRequest) -> Self {
        let mut wire = Wire::open(address);
        wire.send_frame(&connect.payload());
        Self::shake_hands(wire)
    }

    /// Takes the answer to a connect request that was sent already.
    pub fn shake_hands(mut wire: Wire) -> Self {
        let payload = wire.frame().expect("an answer to the connect request");
        Self {
            wire,
            session: ConnectResponse::parse(&payload),
            last_zxid: 0,
            next_xid: 1,
            outstanding: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// Whether the handshake gave a session.
    pub fn has_session(&self) -> bool {
        self.session.session_id != 0
    }

    /// Sends a request with the next xid, without waiting.
    pub fn send(&mut self, opcode: i32, body: &Body) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.send_as(xid, opcode, body);
        xid
    }

    /// Sends a request with a given xid, without waiting.
    pub fn send_as(&mut self, xid: i32, opcode: i32, body: &Body) {
        self.wire.send_frame(&request(xid, opcode, body));
        self.outstanding.push_back(xid);
    }

    /// Notes that bytes sent by other means hold a request with this xid.
    pub fn expect_reply_to(&mut self, xid: i32) {
        self.outstanding.push_back(xid);
    }

    /// The next reply, which must answer the oldest request.
    pub fn receive(&mut self) -> Reply {
        let reply = self.receive_any();
        let expected = self.outstanding.pop_front().expect("a request waits for its reply");
        assert_eq!(reply.xid, expected, "the xid of the reply: {reply:?}");
        reply
    }

    /// The next reply, whatever its xid.
    pub fn receive_any(&mut self) -> Reply {
        loop {
            let payload = self.wire.frame().expect("a reply, but the server closed");
            if let Some(reply) = self.sort(&payload) {
                return reply;
            }
        }
    }

    /// Parses a payload; an event is put aside.
    fn sort(&mut self, payload: &[u8]) -> Option<Reply> {
        let mut fields = Fields(payload);
        let (xid, zxid, err) = (fields.int(), fields.long(), fields.int());
        if xid != -1 || self.outstanding.front() == Some(&-1) {
            self.last_zxid = self.last_zxid.max(zxid);
            return Some(Reply { xid, zxid, err, body: fields.0.to_vec() });
        }
        assert_eq!(err, 0, "the header of an event");
        let kind = match fields.int() {
            1 => EventKind::Created,
            2 => EventKind::Deleted,
            3 => EventKind::DataChanged,
            4 => EventKind::ChildrenChanged,
            other => panic!("an event of type {other}"),
        };
        assert_eq!(fields.int(), 3, "the state of an event");
        self.events.push(Event { zxid, kind, path: fields.string() });
        fields.end();
        None
    }

    /// Sends a request and takes its reply.
    pub fn call(&mut self, opcode: i32, body: &Body) -> Reply {
        self.send(opcode, body);
        self.receive()
    }

    /// The events met so far, without asking for more.
    pub fn events_so_far(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// All events of what was answered to anyone before this call: a round trip pushes them out.
    pub fn events(&mut self) -> Vec<(EventKind, String)> {
        self.events_with_zxid().into_iter().map(|event| (event.kind, event.path)).collect()
    }

    /// As [`Client::events`], with all that an event says.
    pub fn events_with_zxid(&mut self) -> Vec<Event> {
        self.call(op::SYNC, &Body::new().string("/")).done_or_body();
        self.events_so_far()
    }

    /// Waits for one event.
    pub fn wait_event(&mut self) -> Event {
        while self.events.is_empty() {
            let payload = self.wire.frame().expect("an event, but the server closed");
            assert!(self.sort(&payload).is_none(), "an event expected, not a reply");
        }
        self.events.remove(0)
    }

    /// The server must close now, having sent nothing more than events.
    pub fn assert_closed(&mut self) {
        while let Some(payload) = self.wire.frame() {
            assert!(self.sort(&payload).is_none(), "a reply instead of a close: {payload:?}");
        }
    }

    /// Connects again with this session's id and password.
    pub fn reattach(&self, address: SocketAddr) -> Client {
        let connect = ConnectRequest {
            last_zxid_seen: self.last_zxid,
            ..ConnectRequest::again(&self.session)
        };
        Client::open(address, &connect)
    }
}

impl Reply {
    /// Success, with or without a body.
    fn done_or_body(&self) {
        assert_eq!(self.err, 0, "{self:?}");
    }
}

/// The operations, each as one call.
impl Client {
    /// A persistent znode with empty data that everyone may use.
    pub fn create(&mut self, path: &str) -> String {
        self.create_as(path, mode::PERSISTENT).unwrap()
    }

    pub fn create_as(&mut self, path: &str, flags: i32) -> Result<String, i32> {
        self.create_with(path, Some(b""), &open_acl(), flags)
    }

    pub fn create_with(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        acl: &[AclEntry],
        flags: i32,
    ) -> Result<String, i32> {
        self.call(op::CREATE, &Body::new().create(path, data, acl, flags)).parse(Fields::string)
    }

    /// create2 and createContainer: path and Stat.
    pub fn create2(&mut self, opcode: i32, path: &str, flags: i32) -> Result<(String, Stat), i32> {
        let body = Body::new().create(path, Some(b""), &open_acl(), flags);
        self.call(opcode, &body).parse(|fields| (fields.string(), fields.stat()))
    }

    pub fn create_container(&mut self, path: &str) -> Result<(String, Stat), i32> {
        self.create2(op::CREATE_CONTAINER, path, mode::CONTAINER)
    }

    pub fn create_ttl(&mut self, path: &str, flags: i32, ttl_ms: i64) -> Result<Stat, i32> {
        let body = Body::new().create(path, Some(b""), &open_acl(), flags).long(ttl_ms);
        self.call(op::CREATE_TTL, &body).parse(|fields| {
            fields.string();
            fields.stat()
        })
    }

    pub fn delete(&mut self, path: &str, version: i32) -> Result<(), i32> {
        self.call(op::DELETE, &Body::new().string(path).int(version)).done()
    }

    pub fn set_data(&mut self, path: &str, data: &[u8], version: i32) -> Result<Stat, i32> {
        let body = Body::new().string(path).buffer(data).int(version);
        self.call(op::SET_DATA, &body).parse(Fields::stat)
    }

    pub fn exists(&mut self, path: &str, watch: bool) -> Result<Stat, i32> {
        self.call(op::EXISTS, &Body::new().string(path).boolean(watch)).parse(Fields::stat)
    }

    /// The Stat of a znode that must be there.
    pub fn stat(&mut self, path: &str) -> Stat {
        self.exists(path, false).unwrap_or_else(|err| panic!("exists {path}: {err}"))
    }

    pub fn data(&mut self, path: &str, watch: bool) -> Result<(Option<Vec<u8>>, Stat), i32> {
        let body = Body::new().string(path).boolean(watch);
        self.call(op::DATA, &body).parse(|fields| (fields.buffer(), fields.stat()))
    }

    /// The children's names, sorted.
    pub fn children(&mut self, path: &str, watch: bool) -> Result<Vec<String>, i32> {
        let body = Body::new().string(path).boolean(watch);
        let mut names = self.call(op::CHILDREN, &body).parse(Fields::strings)?;
        names.sort();
        Ok(names)
    }

    pub fn acl(&mut self, path: &str) -> Result<(Vec<AclEntry>, Stat), i32> {
        self.call(op::ACL, &Body::new().string(path)).parse(|fields| (fields.acl(), fields.stat()))
    }

    pub fn set_acl(&mut self, path: &str, acl: &[AclEntry], version: i32) -> Result<Stat, i32> {
        let body = Body::new().string(path).acl(acl).int(version);
        self.call(op::SET_ACL, &body).parse(Fields::stat)
    }

    /// Gives everyone these permissions on a znode.
    pub fn allow(&mut self, path: &str, perms: i32) {
        self.set_acl(path, &acl(perms, "world", "anyone"), -1).unwrap();
    }

    pub fn multi(&mut self, body: &Body) -> Result<Vec<MultiResult>, i32> {
        self.call(op::MULTI, body).parse(Fields::multi_results)
    }

    pub fn multi_read(&mut self, body: &Body) -> Result<Vec<MultiResult>, i32> {
        self.call(op::MULTI_READ, body).parse(Fields::multi_results)
    }

    /// Adds an identity to the connection; the server must agree.
    pub fn add_digest(&mut self, user_and_password: &str) {
        let reply = self.auth(&Body::new().int(0).string("digest").string(user_and_password));
        assert_eq!(reply.err, 0, "digest authentication");
    }

    /// Sends an auth packet, with its xid of -4, and takes the reply.
    pub fn auth(&mut self, body: &Body) -> Reply {
        self.send_as(-4, op::AUTH, body);
        self.receive()
    }

    /// addWatch; `recursive` chooses the mode.
    pub fn add_watch(&mut self, path: &str, recursive: bool) {
        let reply = self.call(op::ADD_WATCH, &Body::new().string(path).int(i32::from(recursive)));
        assert_eq!(reply.parse(Fields::int), Ok(0), "addWatch {path}");
    }

    pub fn check_watches(&mut self, path: &str, kind: i32) -> Result<(), i32> {
        self.call(op::CHECK_WATCHES, &Body::new().string(path).int(kind)).done()
    }

    pub fn remove_watches(&mut self, path: &str, kind: i32) -> Result<(), i32> {
        self.call(op::REMOVE_WATCHES, &Body::new().string(path).int(kind)).done()
    }

    /// Sends a ping, with its xid of -2, and takes the reply.
    pub fn ping(&mut self) -> Reply {
        self.send_as(-2, op::PING, &Body::new());
        self.receive()
    }

    /// Closes the session; the reply and the close must follow.
    pub fn close_session(mut self) -> Reply {
        let reply = self.call(op::CLOSE_SESSION, &Body::new());
        self.assert_closed();
        reply
    }
}

/// The length prefix that a frame of `count` bytes would have.
pub fn prefix(count: usize) -> [u8; 4] {
    length(count).to_be_bytes()
}
