//! Kit that tests share: a client over the crate's own codec, for tests that need a server and little of the protocol;
//! servers in processes, ports, certificates, networks that fail, and the stage of the examples.
//!
//! What stays apart, and why: the tests of the protocol itself speak in bytes and share nothing with the codec
//! that they judge (tests/wire/raw.rs); the simulation's clients have no sockets; those of jepsen/ share nothing
//! with the product.

#![allow(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "its users are the programs of this repository, not the public"
)]

pub mod account;
pub mod authority;
pub mod digest_md5;
pub mod hanging;
pub mod judge;
pub mod left_out;
pub mod ports;
pub mod process;
pub mod proxy;
#[path = "../simulation/rng.rs"]
pub mod rng;
pub mod stage;
pub mod three;
pub mod trio;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper::internals::proto::ErrorCode;
use lockkeeper::internals::proto::request::{AddWatchMode, Create, CreateKind};
use lockkeeper::internals::proto::response::ReplyHeader;
use lockkeeper::internals::proto::{
    Acl, ConnectRequest, ConnectResponse, EventType, Reader, Request, RequestHeader, Response,
    Text, frame,
};
use lockkeeper::internals::replica::inspect::Mode;
use lockkeeper::{Builder, Server};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest time that anything in a test may take before the test fails: far longer than it takes, so that a machine
/// that is busy with other work fails none.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Time within which something may be seen that is promised within `time` where processors are free: longer by the
/// number of threads that each processor of this machine has to run now, or had in the last minute.
///
/// # Panics
///
/// Where `/proc/loadavg` is not what Linux writes.
#[must_use]
pub fn at_this_load(time: Duration) -> Duration {
    let text = std::fs::read_to_string("/proc/loadavg").expect("of Linux");
    let mut words = text.split([' ', '/']);
    let minute: f64 = words.next().and_then(|word| word.parse().ok()).expect("the last minute's");
    let now: f64 = words.nth(2).and_then(|word| word.parse().ok()).expect("those that run now");
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    time.mul_f64((minute.max(now) / processors as f64).max(1.0)).min(PATIENCE)
}

/// Path of the program that cargo built for this test.
///
/// # Panics
///
/// When it is not there: `cargo test` builds it.
#[must_use]
pub fn binary() -> PathBuf {
    built("lockkeeper")
}

/// Path of a file that cargo built beside this test: a program, or `examples/` and the name of an example.
///
/// # Panics
///
/// When it is not there.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this test runs");
    let folder = this.ancestors().nth(2).expect("it is in target/<profile>/deps");
    let program = folder.join(name);
    assert!(program.is_file(), "{} is missing: cargo test --no-run", program.display());
    program
}

/// A server of this process. `LOCKKEEPER_TEST_IO_THREADS` has the same tests run with threads for sockets, of which a
/// machine with few cores has none by itself.
pub fn builder() -> Builder {
    let builder = Server::builder();
    match io_threads() {
        Some(count) => builder.set("lockkeeper.ioThreads", &count),
        None => builder,
    }
}

/// See [`builder`].
pub fn io_threads() -> Option<String> {
    std::env::var("LOCKKEEPER_TEST_IO_THREADS").ok()
}

/// What a connection is read from and written to: a socket, or what encrypts it.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to a server.
pub struct Client {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    xid: i32,
    events: VecDeque<Event>,
    /// What the server answered to the connect request.
    pub session: ConnectResponse,
}

/// A watch has fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `EventType` as a number.
    pub kind: i32,
    pub path: String,
    pub zxid: i64,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub xid: i32,
    pub zxid: i64,
    pub err: i32,
    pub body: Bytes,
}

impl Client {
    /// A new session of 20 s.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::open(address, &fresh(20_000)).await.expect("a session")
    }

    /// As any client, asks for a session of 4 s until the server gives it one: while leaders change it may close the
    /// connection instead.
    pub async fn served(address: SocketAddr) -> Self {
        let asks = async {
            loop {
                if let Some(client) = Self::open(address, &fresh(4000)).await {
                    return client;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, asks).await.expect("the server gives a session in the end")
    }

    /// The session that `request` asks for; `None` if the server closes instead of answering.
    pub async fn open(address: SocketAddr, request: &ConnectRequest) -> Option<Self> {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        Self::open_on(stream, request).await
    }

    /// As [`Client::open`], on a connection that is there already.
    pub async fn open_on(stream: TcpStream, request: &ConnectRequest) -> Option<Self> {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self::open_over(Box::new(stream), request).await
    }

    /// The same through anything.
    pub async fn open_over(stream: Box<dyn Stream>, request: &ConnectRequest) -> Option<Self> {
        let session =
            ConnectResponse { timeout_ms: 0, session_id: 0, password: [0; 16], read_only: None };
        let (buffer, events) = (BytesMut::new(), VecDeque::new());
        let mut client = Self { stream, buffer, xid: 0, events, session };
        client.send_bytes(&connect_frame(request)).await;
        let answer = client.frame().await?;
        client.session = ConnectResponse::decode(answer).expect("a connect response");
        Some(client)
    }

    /// What to ask for to take this session over.
    pub fn again(&self) -> ConnectRequest {
        ConnectRequest {
            session_id: self.session.session_id,
            password: Bytes::copy_from_slice(&self.session.password),
            ..fresh(self.session.timeout_ms)
        }
    }

    /// Sends bytes as they are. That the server has closed meanwhile is for the next read to find.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let sent = timeout(PATIENCE, self.stream.write_all(bytes)).await;
        let _ = sent.expect("the server reads what it is sent");
    }

    /// Sends a request and returns its xid.
    pub async fn send(&mut self, request: &Request) -> i32 {
        let mut bytes = Vec::new();
        let xid = self.put(request, &mut bytes);
        self.send_bytes(&bytes).await;
        xid
    }

    /// Appends a request to what is to be sent, and returns its xid.
    pub fn put(&mut self, request: &Request, out: &mut Vec<u8>) -> i32 {
        self.xid += 1;
        out.extend_from_slice(&request_frame(self.xid, request));
        self.xid
    }

    /// The next reply; events in front of it are kept. `None`: the server has closed.
    pub async fn receive(&mut self) -> Option<Reply> {
        loop {
            match self.packet().await? {
                Packet::Reply(reply) => return Some(reply),
                Packet::Event(event) => self.events.push_back(event),
            }
        }
    }

    /// Sends a request and waits for its reply. `Err` has the code of a refusal, or that of a lost connection.
    pub async fn call(&mut self, request: &Request) -> Result<Response, i32> {
        let xid = self.send(request).await;
        let Some(reply) = self.receive().await else { return Err(CONNECTION_LOSS) };
        assert_eq!(reply.xid, xid, "replies come in the order of the requests");
        match reply.err {
            0 => Ok(Response::decode(request.op(), &mut Reader::new(reply.body)).expect("decodes")),
            err => Err(err),
        }
    }

    /// The next event.
    pub async fn event(&mut self) -> Event {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        match self.packet().await.expect("an event, not a close") {
            Packet::Event(event) => event,
            Packet::Reply(reply) => panic!("an event was expected, not {reply:?}"),
        }
    }

    /// The next event; `None` if the server closes.
    pub async fn next_event(&mut self) -> Option<Event> {
        match self.packet().await? {
            Packet::Event(event) => Some(event),
            Packet::Reply(reply) => panic!("an event was expected, not {reply:?}"),
        }
    }

    /// Waits until the server has closed the connection; what arrives before that is thrown away.
    pub async fn closed(&mut self) {
        while self.frame().await.is_some() {}
    }

    /// Has an empty znode be there: one that an earlier try made, whose answer was lost, is as good.
    ///
    /// # Errors
    /// The code of any other refusal, or of a connection that ends.
    pub async fn make_sure_of(&mut self, path: &str) -> Result<(), i32> {
        match self.create(path, b"", 0).await {
            Err(code) if code != ErrorCode::NodeExists as i32 => Err(code),
            _ => Ok(()),
        }
    }

    pub async fn create(&mut self, path: &str, data: &[u8], flags: i32) -> Result<String, i32> {
        let create = Create {
            kind: CreateKind::Create,
            path: text(path),
            data: Some(Bytes::copy_from_slice(data)),
            acl: Some(vec![Acl::open()]),
            flags,
            ttl_ms: 0,
        };
        match self.call(&Request::Create(create)).await? {
            Response::Path(path) => Ok(path.as_str().to_string()),
            other => panic!("create was answered with {other:?}"),
        }
    }

    pub async fn exists(&mut self, path: &str) -> bool {
        match self.call(&Request::Exists { path: text(path), watch: false }).await {
            Ok(_) => true,
            Err(NO_NODE) => false,
            Err(err) => panic!("exists {path}: {err}"),
        }
    }

    pub async fn data(&mut self, path: &str) -> Result<Vec<u8>, i32> {
        match self.call(&get(path)).await? {
            Response::Data(data, _) => Ok(data.unwrap_or_default().to_vec()),
            other => panic!("getData was answered with {other:?}"),
        }
    }

    pub async fn set(&mut self, path: &str, data: &[u8]) -> Result<(), i32> {
        self.call(&set(path, data)).await.map(|_| ())
    }

    /// Watches a path with everything below it.
    pub async fn watch_all(&mut self, path: &str) {
        let mode = AddWatchMode::PersistentRecursive;
        self.call(&Request::AddWatch { path: text(path), mode }).await.expect("addWatch");
    }

    pub async fn ping(&mut self) {
        self.send_bytes(&request_frame(-2, &Request::Ping)).await;
        assert_eq!(self.receive().await.expect("a ping's reply").xid, -2);
    }

    async fn packet(&mut self) -> Option<Packet> {
        let mut reader = Reader::new(self.frame().await?);
        let header = ReplyHeader::decode(&mut reader).expect("a reply header");
        if header.xid != -1 {
            let ReplyHeader { xid, zxid, err } = header;
            return Some(Packet::Reply(Reply { xid, zxid, err, body: reader.rest() }));
        }
        let kind = reader.int("type").expect("an event's type");
        reader.int("state").expect("an event's state");
        let path = reader.string("path").expect("an event's path").as_str().to_string();
        Some(Packet::Event(Event { kind, path, zxid: header.zxid }))
    }

    /// The payload of the next frame; `None` at the end of the stream.
    async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(payload) = frame::next(&mut self.buffer, usize::MAX).expect("a length") {
                return Some(payload);
            }
            let read = self.stream.read_buf(&mut self.buffer);
            match timeout(PATIENCE, read).await.expect("the server answers in time") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

enum Packet {
    Reply(Reply),
    Event(Event),
}

/// Asks for a new session.
pub fn fresh(timeout_ms: i32) -> ConnectRequest {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms,
        session_id: 0,
        password: Bytes::new(),
        read_only: Some(false),
    }
}

/// A connect request as it is sent.
pub fn connect_frame(request: &ConnectRequest) -> Vec<u8> {
    let mut out = Vec::new();
    frame::append(&mut out, |out| request.encode(out));
    out
}

pub fn request_frame(xid: i32, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    frame::append(&mut out, |out| {
        RequestHeader { xid, op: request.op() as i32 }.encode(out);
        request.encode(out);
    });
    out
}

pub fn text(text: &str) -> Text {
    Text::copy_from(text)
}

pub fn get(path: &str) -> Request {
    Request::GetData { path: text(path), watch: false }
}

pub fn set(path: &str, data: &[u8]) -> Request {
    let data = Some(Bytes::copy_from_slice(data));
    Request::SetData { path: text(path), data, version: -1 }
}

/// What the server says to a four-letter word (or to anything else), up to the close.
pub async fn say(address: SocketAddr, bytes: &[u8]) -> String {
    ask(address, bytes).await.expect("the server listens and reads")
}

/// As [`say`], to a server that may not be there.
pub async fn ask(address: SocketAddr, bytes: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // A reset after the answer is a close as well.
    let _ = timeout(PATIENCE, read).await.expect("the server closes");
    Ok(String::from_utf8(answer).expect("UTF-8"))
}

/// How often what shows a margin is tried: `LOCKKEEPER_LOCK_TRIALS=50` for the figures of
/// docs/LOCKS.md.
pub fn trials() -> usize {
    std::env::var("LOCKKEEPER_LOCK_TRIALS").map_or(4, |count| count.parse().expect("a number"))
}

/// Waits until `condition` holds.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let patience = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, patience).await.unwrap_or_else(|_| panic!("waited too long: {what}"));
}

/// Waits until these servers, all of one ensemble, serve, and any one of them may be stopped: an ensemble begins with a
/// majority, and has the other votes later.
pub async fn all_vote<'a>(servers: impl IntoIterator<Item = &'a Server>) {
    let servers: Vec<&Server> = servers.into_iter().collect();
    wait_until("all vote", async || {
        let statuses: Vec<_> = servers.iter().map(|server| server.status()).collect();
        let leader = statuses.iter().find(|status| status.mode == Mode::Leader);
        statuses.iter().all(|status| status.serving)
            && leader.is_some_and(|leader| {
                leader.peers.len() + 1 == servers.len()
                    && leader.peers.iter().all(|peer| peer.votes && peer.is_synced)
            })
    })
    .await;
}

/// What clients say of a connection that has ended.
pub const CONNECTION_LOSS: i32 = -4;
pub const NO_NODE: i32 = -101;
pub const EPHEMERAL: i32 = 1;
pub const NODE_DATA_CHANGED: i32 = EventType::NodeDataChanged as i32;
