//! What very many clients cost in the core, where no socket, file or clock is: bytes of each session, and the
//! time of each hand-over of a lock that all wait for.
//!
//! `cargo bench --bench core -- --count 100000`. Memory is the process's own, with the binary's allocator.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use lockkeeper::internals::proto::request::{Create, CreateKind};
use lockkeeper::internals::proto::{Acl, ConnectRequest, Request, RequestHeader, Text, frame};
use lockkeeper::internals::replica::{
    ClientRequest, ConnId, Input, Machine, Replica, Restored, Setup, TICK_MS,
};
use lockkeeper::internals::tree::Options;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The connection that prepares, and the one that looks.
const FIRST: ConnId = 1;
/// Between two ticks so many clients do something.
const PER_TICK: usize = 1_000;
/// The session timeout that all ask for.
const TIMEOUT_MS: i32 = 40_000;
/// Hand-overs that are measured by each recipe.
const LISTED: usize = 100;
/// An event's xid.
const EVENT_XID: i32 = -1;

/// Measures sessions and waiters in the core.
#[derive(Parser)]
#[command(name = "core")]
struct Cli {
    /// Given by `cargo bench`; without a meaning here.
    #[arg(long, hide = true)]
    bench: bool,
    /// Clients.
    #[arg(long, default_value_t = 100_000)]
    count: usize,
    /// Only this. Default: both, each in a process of its own, because memory that one has freed would be
    /// the other's.
    #[arg(long, value_enum)]
    only: Option<Part>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Sessions,
    Waiters,
}

fn main() -> ExitCode {
    let Cli { count, only, .. } = Cli::parse();
    let outcome = match only {
        Some(Part::Sessions) => sessions(count),
        Some(Part::Waiters) => waiters(count),
        None => apart("sessions", count).and_then(|()| apart("waiters", count)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("core: {message}");
            ExitCode::FAILURE
        }
    }
}

/// A part in a process of its own.
fn apart(part: &str, count: usize) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let arguments = ["--only", part, "--count", &count.to_string()];
    let status = Command::new(this).args(arguments).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{part}: {status}")) }
}

/// A standalone replica whose disk is instant.
struct Core {
    replica: Replica,
    now_us: u64,
    /// Payloads of what clients were sent since they were last taken.
    heard: Vec<(ConnId, Vec<u8>)>,
}

impl Core {
    fn new() -> Self {
        let options = Options { hash_seed: 0x5eed, ..Options::default() };
        let machine = Machine::fresh(options);
        let replica = Replica::new(Setup::default(), machine, Restored::default());
        let replica = replica.expect("nothing was restored, so it fits together");
        let mut core = Core { replica, now_us: 0, heard: Vec::new() };
        core.tick();
        assert!(core.replica.is_serving());
        core
    }

    /// Lets the time between two ticks pass.
    fn tick(&mut self) {
        self.now_us += TICK_MS * 1000;
        let wall_ms = 1_000_000 + (self.now_us / 1000) as i64;
        self.replica.step(Input::Tick { now_us: self.now_us, wall_ms });
        self.drive();
    }

    fn connect(&mut self, conn: ConnId) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: TIMEOUT_MS,
            session_id: 0,
            password: Bytes::from_static(&[0; 16]),
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

    /// Asks for one thing; returns the answer's body.
    fn ask(&mut self, conn: ConnId, request: &Request) -> Result<Vec<u8>, String> {
        self.heard.clear();
        self.send(conn, request);
        let own = self.heard.iter().find(|(to, payload)| *to == conn && xid(payload) == 1);
        let payload = own.map(|(_, payload)| payload).ok_or("a request is not answered")?;
        match payload[12..16] {
            [0, 0, 0, 0] => Ok(payload[16..].to_vec()),
            _ => Err(format!("{:?} is refused: {:?}", request.op(), &payload[12..16])),
        }
    }

    fn send(&mut self, conn: ConnId, request: &Request) {
        let mut payload = Vec::new();
        RequestHeader { xid: 1, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        let request = ClientRequest::decode(Bytes::from(payload)).expect("it has a header");
        self.replica.step(Input::Requests { conn, requests: vec![request] });
        self.drive();
    }

    fn drive(&mut self) {
        while let Some(ready) = self.replica.ready().expect("a replica in order") {
            for outgoing in &ready.client {
                let mut at = 0;
                for length in frame::lengths(&outgoing.frames) {
                    let payload = outgoing.frames[at + 4..at + 4 + length].to_vec();
                    self.heard.push((outgoing.conn, payload));
                    at += 4 + length;
                }
            }
            if let Some(append) = ready.append {
                self.replica.persisted(append.number);
            }
            for outgoing in ready.client.iter().filter(|outgoing| outgoing.more) {
                self.replica.step(Input::Room { conn: outgoing.conn });
            }
        }
    }

    /// The clients that have been sent an event since they were last asked.
    fn notified(&mut self) -> Vec<ConnId> {
        let heard = std::mem::take(&mut self.heard);
        let events = heard.iter().filter(|(_, payload)| xid(payload) == EVENT_XID);
        events.map(|(conn, _)| *conn).collect()
    }
}

fn xid(payload: &[u8]) -> i32 {
    payload.first_chunk::<4>().map_or(0, |bytes| i32::from_be_bytes(*bytes))
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create(Create {
        kind: CreateKind::Create,
        path: Text::from(path),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
    })
}

fn watch(path: &str) -> Request {
    Request::GetData { path: Text::from(path), watch: true }
}

/// Children of a znode: the number in its Stat.
fn children(core: &mut Core, path: &str) -> Result<i32, String> {
    let stat = core.ask(FIRST, &Request::Exists { path: Text::from(path), watch: false })?;
    let count = stat.get(56..60).and_then(|bytes| bytes.first_chunk::<4>());
    count.map(|bytes| i32::from_be_bytes(*bytes)).ok_or_else(|| "no Stat".to_owned())
}

/// Bytes that this process has in memory.
fn memory() -> Result<f64, String> {
    let text = fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_ascii_whitespace().next());
    let kib = kib.and_then(|kib| kib.parse::<f64>().ok()).ok_or("no VmRSS")?;
    Ok(kib * 1024.0)
}

fn each(taken: Duration, count: usize) -> String {
    format!("{:.2} us each", taken.as_secs_f64() * 1e6 / count as f64)
}

/// Each with an ephemeral znode and a watch: memory, and the time until all have expired.
fn sessions(count: usize) -> Result<(), String> {
    let mut core = Core::new();
    core.connect(FIRST);
    core.ask(FIRST, &create("/sessions", 0))?;
    core.ask(FIRST, &create("/watched", 0))?;
    let before = memory()?;
    let began = Instant::now();
    for number in 0..count {
        let conn = FIRST + 1 + number as ConnId;
        core.connect(conn);
        core.ask(conn, &create(&format!("/sessions/s{number:08}"), 1))?;
        core.ask(conn, &watch("/watched"))?;
        if number % PER_TICK == 0 {
            core.tick();
        }
    }
    core.heard = Vec::new();
    let (taken, bytes) = (began.elapsed(), memory()? - before);
    println!(
        "{count} sessions, each with an ephemeral znode and a watch: {:.0} bytes each, opened in {}",
        bytes / count as f64,
        each(taken, count)
    );
    let began = Instant::now();
    core.send(FIRST, &Request::SetData { path: Text::from("/watched"), data: None, version: -1 });
    let (taken, told) = (began.elapsed(), core.notified().len());
    if told != count {
        return Err(format!("{told} of {count} watches have fired"));
    }
    println!("  the watched znode changes: {:.1} ms, {}", ms(taken), each(taken, count));
    for number in 0..count {
        core.replica.step(Input::Closed { conn: FIRST + 1 + number as ConnId });
        if number % PER_TICK == 0 {
            core.tick();
        }
    }
    if children(&mut core, "/sessions")? as usize != count {
        return Err("a session has ended before its timeout".to_owned());
    }
    let (mut whole, mut longest, mut ticks) = (Duration::ZERO, Duration::ZERO, 0);
    while children(&mut core, "/sessions")? > 0 {
        let began = Instant::now();
        core.tick();
        let taken = began.elapsed();
        ticks += 1;
        if ticks > 10 * u64::from(TIMEOUT_MS.unsigned_abs()) / TICK_MS {
            return Err("sessions outlast their timeouts".to_owned());
        }
        longest = longest.max(taken);
        whole += taken;
    }
    let longest = ms(longest);
    println!(
        "  all expire: {:.1} ms, {}, the longest tick {longest:.1} ms",
        ms(whole),
        each(whole, count)
    );
    Ok(())
}

/// Each with a place in the queue of one lock, watching the one before it.
fn waiters(count: usize) -> Result<(), String> {
    let mut core = Core::new();
    core.connect(FIRST);
    core.ask(FIRST, &create("/lock", 0))?;
    let path = |number: usize| format!("/lock/lock-{number:010}");
    let conn_of = |number: usize| FIRST + 1 + number as ConnId;
    let before = memory()?;
    let began = Instant::now();
    for number in 0..count {
        core.connect(conn_of(number));
        let body = core.ask(conn_of(number), &create("/lock/lock-", 3))?;
        if body.get(4..) != Some(path(number).as_bytes()) {
            return Err("a place in the queue is not the next one".to_owned());
        }
        if let Some(predecessor) = number.checked_sub(1) {
            core.ask(conn_of(number), &watch(&path(predecessor)))?;
        }
        if number % PER_TICK == 0 {
            core.tick();
        }
    }
    core.heard = Vec::new();
    let (taken, bytes) = (began.elapsed(), memory()? - before);
    println!(
        "{count} waiters for one lock: {:.0} bytes each, queued in {}",
        bytes / count as f64,
        each(taken, count)
    );
    // By the recipe, with a list of all that wait; and then all others, who know whom they wait for.
    let listed = LISTED.min(count.saturating_sub(2));
    let (mut lists, mut list_bytes) = (Duration::ZERO, 0);
    let began = Instant::now();
    for number in 0..count - 1 {
        core.heard.clear();
        let request = Request::Delete { path: Text::from(path(number)), version: -1 };
        core.send(conn_of(number), &request);
        let told = core.notified();
        if told != [conn_of(number + 1)] {
            return Err(format!("after {number}, {told:?} are told that the lock is theirs"));
        }
        if number < listed {
            let list =
                Request::GetChildren { path: Text::from("/lock"), watch: false, stat: false };
            let began = Instant::now();
            let body = core.ask(conn_of(number + 1), &list)?;
            lists += began.elapsed();
            list_bytes = body.len();
        }
        if number % PER_TICK == 0 {
            core.tick();
        }
    }
    let handed = began.elapsed().saturating_sub(lists);
    println!(
        "  the lock is handed over {} times, in order: {}",
        count - 1,
        each(handed, count - 1)
    );
    println!(
        "  the list that the recipe asks for: {list_bytes} bytes, {}",
        each(lists, listed.max(1))
    );
    Ok(())
}

fn ms(taken: Duration) -> f64 {
    taken.as_secs_f64() * 1e3
}
