//! Where a test gets its server from.
//!
//! By itself every test runs against an embedded Lockkeeper of its own, in memory, with
//! `LOCKKEEPER_TEST_IO_THREADS` threads for sockets if that is given. Two environment variables turn
//! the same tests into a control of themselves against another server, such as Apache ZooKeeper:
//!
//! - `LOCKKEEPER_WIRE_TARGET=host:port`: tests that need nothing special share that running server
//!   (tickTime 2000, whitelist `*`, extendedTypesEnabled, super:test); the others say that they are
//!   skipped.
//! - `LOCKKEEPER_WIRE_COMMAND=program`: `program [-Dkey=value ...] zoo.cfg` starts a server in the
//!   foreground; every test that the target does not serve gets a process of its own.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::Server;
use tokio::runtime::Runtime;

use crate::raw::{Client, ConnectRequest, Wire, wait_for};

/// What every server that these tests start is configured with.
const CONFIG: &[&str] = &[
    "tickTime=100",
    "minSessionTimeout=200",
    "maxSessionTimeout=40000",
    "maxClientCnxns=0",
    "4lw.commands.whitelist=*",
    "admin.enableServer=false",
    "extendedTypesEnabled=true",
    // super:test
    "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=",
];

/// Keys that ZooKeeper reads as JVM properties only.
const JVM_ONLY: &[&str] = &["jute.", "znode.container.", JAAS_FILE];

/// A key of Lockkeeper's own, and the property of the JVM that says the same.
const JAAS_FILE: &str = "lockkeeper.jaasFile=";
const JAAS_PROPERTY: &str = "java.security.auth.login.config=";

/// A server under test. Dropping it stops it, unless it is the shared target.
pub struct TestServer {
    pub address: SocketAddr,
    pub tick: Duration,
    pub session_timeout_ms_min: i32,
    pub session_timeout_ms_max: i32,
    _running: Running,
}

enum Running {
    Target,
    Process {
        child: Child,
        _directory: tempfile::TempDir,
    },
    /// A server in this process, in a runtime of its own.
    Embedded {
        server: Option<Box<Server>>,
        runtime: Runtime,
    },
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Target => {}
            Self::Process { child, .. } => {
                // It may have ended by itself; then there is nothing to end.
                let _ = child.kill();
                let _ = child.wait();
            }
            Self::Embedded { server, runtime } => {
                let server = server.take().expect("dropped once");
                let ended = runtime.block_on(server.stop());
                assert!(ended.is_ok() || std::thread::panicking(), "the server: {ended:?}");
            }
        }
    }
}

/// A server with nothing special about it, perhaps shared with other tests: use
/// [`TestServer::scratch`].
pub fn server() -> TestServer {
    match std::env::var("LOCKKEEPER_WIRE_TARGET") {
        Ok(target) => TestServer {
            address: target.to_socket_addrs().expect("host:port").next().expect("an address"),
            tick: Duration::from_secs(2),
            session_timeout_ms_min: 4000,
            session_timeout_ms_max: 40_000,
            _running: Running::Target,
        },
        Err(_) => server_with(&[]).expect("only a shared target lacks servers of one's own"),
    }
}

/// A server of one's own, new and empty, with these lines in its configuration. `None`, and a note
/// on the terminal, when the tests run against a shared target that cannot be configured.
pub fn server_with(lines: &[&str]) -> Option<TestServer> {
    if let Some(program) = std::env::var_os("LOCKKEEPER_WIRE_COMMAND") {
        return Some(start_process(&program, lines));
    }
    if std::env::var_os("LOCKKEEPER_WIRE_TARGET").is_some() {
        println!("skipped: needs a server of its own, with {lines:?}");
        return None;
    }
    Some(start_embedded(lines))
}

pub fn start_embedded(lines: &[&str]) -> TestServer {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut builder = Server::builder().in_memory();
    // As tests/testkit has it.
    if let Ok(count) = std::env::var("LOCKKEEPER_TEST_IO_THREADS") {
        builder = builder.set("lockkeeper.ioThreads", &count);
    }
    for line in CONFIG.iter().chain(lines) {
        let (key, value) = line.split_once('=').expect("key=value");
        builder = builder.set(key, value);
    }
    let server = runtime.block_on(builder.start()).expect("the server starts");
    let address = server.local_addr();
    own(address, Running::Embedded { server: Some(Box::new(server)), runtime })
}

/// Whether the tests run against another server than Lockkeeper, where this test cannot hold.
pub fn differs_from_zookeeper(reason: &str) -> bool {
    let control = std::env::var_os("LOCKKEEPER_WIRE_TARGET").is_some()
        || std::env::var_os("LOCKKEEPER_WIRE_COMMAND").is_some();
    if control {
        println!("skipped: differs from ZooKeeper on purpose: {reason}");
    }
    control
}

fn start_process(program: &std::ffi::OsStr, lines: &[&str]) -> TestServer {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let port = testkit::ports::port();
    let (jvm, plain): (Vec<&str>, Vec<&str>) =
        lines.iter().partition(|line| JVM_ONLY.iter().any(|prefix| line.starts_with(prefix)));
    let mut text = String::new();
    for line in CONFIG.iter().copied().chain(plain) {
        writeln!(text, "{line}").unwrap();
    }
    let data = directory.path().join("data");
    writeln!(text, "clientPort={port}\nclientPortAddress=127.0.0.1\ndataDir={}", data.display())
        .unwrap();
    let config = directory.path().join("zoo.cfg");
    std::fs::write(&config, text).expect("zoo.cfg is written");
    let child = Command::new(program)
        .args(jvm.iter().map(|line| format!("-D{}", line.replacen(JAAS_FILE, JAAS_PROPERTY, 1))))
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program of LOCKKEEPER_WIRE_COMMAND starts");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let server = own(address, Running::Process { child, _directory: directory });
    wait_for("the server's start", Duration::from_secs(60), || serves(address).then_some(()));
    server
}

fn own(address: SocketAddr, running: Running) -> TestServer {
    TestServer {
        address,
        tick: Duration::from_millis(100),
        session_timeout_ms_min: 200,
        session_timeout_ms_max: 40_000,
        _running: running,
    }
}

/// Whether `srvr` says that the server is in business.
fn serves(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = String::new();
    stream.write_all(b"srvr").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains("\nMode: ")
}

impl TestServer {
    /// A new session that outlives the test.
    pub fn connect(&self) -> Client {
        self.connect_for(30_000)
    }

    /// A new session with a given timeout.
    pub fn connect_for(&self, timeout_ms: i32) -> Client {
        self.open(&ConnectRequest::fresh(timeout_ms))
    }

    pub fn open(&self, connect: &ConnectRequest) -> Client {
        Client::open(self.address, connect)
    }

    /// A connection that has said nothing yet.
    pub fn wire(&self) -> Wire {
        Wire::open(self.address)
    }

    /// The path of a new, empty znode that no other test uses.
    pub fn scratch(&self) -> String {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let path = format!("/wire-{:x}-{number}", since.as_nanos());
        let mut client = self.connect();
        client.create(&path);
        client.close_session();
        path
    }

    /// What the server answers to a four-letter word.
    pub fn four_letters(&self, word: &str) -> String {
        let mut wire = self.wire();
        wire.send(word.as_bytes());
        String::from_utf8(wire.rest()).expect("UTF-8")
    }

    /// The server must serve another client.
    pub fn assert_serves(&self) {
        let mut client = self.connect();
        assert!(client.has_session(), "a new session");
        assert!(client.exists("/", false).is_ok(), "exists /");
        client.close_session();
    }

    /// Waits until a znode is gone.
    pub fn wait_gone(&self, observer: &mut Client, path: &str, patience: Duration) {
        wait_for(&format!("the end of {path}"), patience, || {
            observer
                .exists(path, false)
                .err()
                .map(|err| assert_eq!(err, crate::bytes::err::NO_NODE))
        });
    }
}
