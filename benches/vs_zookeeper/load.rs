//! The load generator: one thread, one epoll loop, any number of connections.
//!
//! A run is warm-up, measured window, drain, close. Only replies that arrive within the window
//! count, and so do the CPU times, which are read at its two ends. Latency runs from queueing a
//! request in the client to having read its reply, so at depth D it holds the wait behind D-1 others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use crate::link::{Link, Task};
use crate::lock::{Grants, Lock};
use crate::proc;
use crate::session::{self, Session};
use crate::work::{self, Script, Work};

/// Longest silence of a server with requests outstanding; beyond it the run fails.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Latencies above this are counted as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Connections of one run at most.
pub const CONNECTIONS_MAX: usize = 20_000;
/// Requests in flight per connection at most.
pub const DEPTH_MAX: usize = 100_000;

/// What to ask of which server.
pub struct Plan {
    /// The servers; connections go to them in turn.
    pub addrs: Vec<SocketAddr>,
    /// The servers' processes, for CPU time and memory; may be empty.
    pub pids: Vec<u32>,
    pub connections: usize,
    pub depth: usize,
    pub work: Work,
    pub length: Length,
    /// Name of the node below `/bench` that takes the numbered paths, one child per connection.
    pub room: String,
}

/// How long a run is.
pub enum Length {
    /// Unmeasured warm-up, then the measured window.
    Timed { warm_up: Duration, window: Duration },
    /// So many requests on each connection, all measured.
    Counted(Vec<u64>),
}

/// What was measured.
pub struct Outcome {
    pub ops: u64,
    pub seconds: f64,
    /// Nanoseconds.
    pub latencies: Histogram<u64>,
    /// CPU seconds within the window, of the server, of this process, of everything else.
    pub server_cpu: f64,
    pub client_cpu: f64,
    pub other_cpu: f64,
    pub server_rss_mib: f64,
    /// Requests answered per connection, warm-up and drain included.
    pub answered: Vec<u64>,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// Microseconds of server CPU per operation.
    pub fn server_us(&self) -> f64 {
        self.server_cpu * 1e6 / self.ops.max(1) as f64
    }

    /// Microseconds of client CPU per operation.
    pub fn client_us(&self) -> f64 {
        self.client_cpu * 1e6 / self.ops.max(1) as f64
    }

    /// The latency that `quantile` of the operations did not exceed, in milliseconds.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// Runs a plan on a server, having prepared the nodes it needs.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    let fault = |e: String| format!("{} at {}: {e}", plan.work.name(), plan.addrs[0]);
    let tasks = prepare(plan).map_err(fault)?;
    let mut links = Vec::with_capacity(plan.connections);
    for (task, &addr) in tasks.into_iter().zip(plan.addrs.iter().cycle()) {
        links.push(Link::open(addr, task, plan.depth).map_err(fault)?);
    }
    Loop::new(links, plan).and_then(Loop::run).map_err(fault)
}

/// The node of connection number `connection`.
fn own_path(connection: usize) -> String {
    format!("/bench/c{connection:05}")
}

/// The node below which a connection's numbered paths are.
pub fn below_path(room: &str, connection: usize) -> String {
    format!("/bench/{room}/c{connection:05}")
}

/// Makes sure that the nodes of the plan are there and finds a task for each connection.
///
/// Sessions that are opened afterwards, at any server of an ensemble, see these nodes: to open a
/// session is a transaction behind those that made them.
fn prepare(plan: &Plan) -> Result<Vec<Task>, String> {
    let mut session = Session::open(plan.addrs[0], session::PATIENCE)?;
    session.ensure("/bench", b"")?;
    session.ensure(&format!("/bench/{}", plan.room), b"")?;
    let mut tasks = Vec::with_capacity(plan.connections);
    let shared = Grants::new((-1).into());
    for connection in 0..plan.connections {
        let (own, below) = (own_path(connection), below_path(&plan.room, connection));
        session.ensure(&below, b"")?;
        if plan.work == Work::Contended {
            tasks.push(Task::Lock(Lock::new(&below_path(&plan.room, 0), Grants::clone(&shared))));
            continue;
        }
        if plan.work == Work::Lock {
            tasks.push(Task::Lock(Lock::new(&below, Grants::new((-1).into()))));
            continue;
        }
        session.ensure(&own, &work::data(&own))?;
        let (_, version) = session.read(&own)?;
        tasks.push(Task::Script(match &plan.length {
            Length::Timed { .. } => Script::endless(plan.work, &own, version, &below),
            Length::Counted(counts) => {
                Script::limited(plan.work, &own, version, &below, counts[connection])
            }
        }));
    }
    session.close()?;
    Ok(tasks)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Window,
    Drain,
    Close,
}

/// Times and counters at one end of the window.
struct Reading {
    at: Instant,
    server: f64,
    client: f64,
    machine: f64,
}

struct Loop<'a> {
    plan: &'a Plan,
    links: Vec<Link>,
    poll: Poll,
    phase: Phase,
    phase_began: Instant,
    last_reply: Instant,
    latencies: Histogram<u64>,
    ops: u64,
    opening: Reading,
    outcome: Option<Outcome>,
}

impl<'a> Loop<'a> {
    fn new(mut links: Vec<Link>, plan: &'a Plan) -> Result<Self, String> {
        let poll = Poll::new().map_err(|e| format!("epoll: {e}"))?;
        for (number, link) in links.iter_mut().enumerate() {
            poll.registry()
                .register(&mut link.stream, Token(number), Interest::READABLE | Interest::WRITABLE)
                .map_err(|e| format!("epoll: {e}"))?;
        }
        let latencies = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("the bounds are constants the histogram accepts");
        let phase = match plan.length {
            Length::Timed { .. } => Phase::WarmUp,
            Length::Counted(_) => Phase::Window,
        };
        let opening = read_counters(plan)?;
        Ok(Loop {
            plan,
            links,
            poll,
            phase,
            phase_began: opening.at,
            last_reply: opening.at,
            latencies,
            ops: 0,
            opening,
            outcome: None,
        })
    }

    fn run(mut self) -> Result<Outcome, String> {
        let mut events = Events::with_capacity(1024);
        let start = Instant::now();
        for link in &mut self.links {
            link.top_up(start);
            link.flush().map_err(|e| format!("send: {e}"))?;
        }
        loop {
            match self.poll.poll(&mut events, Some(Duration::from_millis(50))) {
                Err(e) if e.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(format!("epoll: {e}"));
                }
                Ok(()) | Err(_) => {}
            }
            for event in &events {
                self.serve(event.token().0)?;
            }
            if self.advance(Instant::now())? {
                break;
            }
        }
        Ok(self.outcome.expect("the window ended before the sessions were closed"))
    }

    /// Takes in what one connection received and sends what may follow.
    fn serve(&mut self, number: usize) -> Result<(), String> {
        let now = Instant::now();
        let measured = self.phase == Phase::Window;
        let link = &mut self.links[number];
        let count = link.receive(now, measured.then_some(&mut self.latencies))?;
        if count > 0 {
            self.last_reply = now;
        }
        match self.phase {
            Phase::WarmUp => link.top_up(now),
            Phase::Window => {
                self.ops += count;
                link.top_up(now);
            }
            Phase::Drain | Phase::Close => {}
        }
        link.flush().map_err(|e| format!("send: {e}"))
    }

    /// Moves from phase to phase; true when the last is over.
    fn advance(&mut self, now: Instant) -> Result<bool, String> {
        let idle = |links: &[Link]| links.iter().all(Link::idle);
        if now.duration_since(self.last_reply) > SILENCE_MAX {
            return Err(format!("no reply for {} s", SILENCE_MAX.as_secs()));
        }
        match (self.phase, &self.plan.length) {
            (Phase::WarmUp, Length::Timed { warm_up, .. }) => {
                if now.duration_since(self.phase_began) >= *warm_up {
                    self.opening = read_counters(self.plan)?;
                    self.phase = Phase::Window;
                }
            }
            (Phase::Window, Length::Timed { window, .. }) => {
                if now.duration_since(self.opening.at) >= *window {
                    self.end_window()?;
                }
            }
            (Phase::WarmUp | Phase::Window, Length::Counted(_)) => {
                if idle(&self.links) {
                    self.end_window()?;
                }
            }
            (Phase::Drain, _) => {
                if idle(&self.links) {
                    self.end_sessions(now)?;
                }
            }
            (Phase::Close, _) => return Ok(idle(&self.links)),
        }
        Ok(false)
    }

    fn end_window(&mut self) -> Result<(), String> {
        let end = read_counters(self.plan)?;
        let server_cpu = end.server - self.opening.server;
        let client_cpu = end.client - self.opening.client;
        let machine_cpu = end.machine - self.opening.machine;
        self.outcome = Some(Outcome {
            ops: self.ops,
            seconds: (end.at - self.opening.at).as_secs_f64(),
            latencies: self.latencies.clone(),
            server_cpu,
            client_cpu,
            other_cpu: (machine_cpu - server_cpu - client_cpu).max(0.0),
            server_rss_mib: proc::rss_mib_of(&self.plan.pids)?,
            answered: Vec::new(),
        });
        self.phase = Phase::Drain;
        Ok(())
    }

    fn end_sessions(&mut self, now: Instant) -> Result<(), String> {
        let outcome = self.outcome.as_mut().expect("the window is over");
        outcome.answered = self.links.iter().map(Link::answered).collect();
        for link in &mut self.links {
            assert_eq!(link.answered(), link.issued(), "drained, so all are answered");
            link.close(now);
            link.flush().map_err(|e| format!("send: {e}"))?;
        }
        self.phase = Phase::Close;
        Ok(())
    }
}

fn read_counters(plan: &Plan) -> Result<Reading, String> {
    Ok(Reading {
        server: proc::cpu_seconds_of(&plan.pids)?,
        client: proc::cpu_seconds(std::process::id())?,
        machine: proc::machine_cpu_seconds()?,
        at: Instant::now(),
    })
}
