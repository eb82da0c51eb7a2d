//! The load generator: one thread, one epoll loop, any number of connections.
//!
//! A run is warm-up, measured window, drain, close. Only replies that arrive within the window
//! count, and so do the CPU times, which are read at its two ends. Latency runs from queueing a
//! request in the client to having read its reply, so at depth D it holds the wait behind D-1 others;
//! at a rate it runs from when the request was due.

use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::alarm::{self, Alarms};
use super::fan::Member;
use super::link::{Link, Task};
use super::lock::{Arena, Lock};
use super::outcome::{Contention, Interim, Outcome, Tally};
use super::pace::Pace;
use super::plan::{Go, Length, Plan, Work};
use super::script::{self, Script};
use super::session::{self, Session};
use super::{Fault, count, files, proc, wire};

/// Longest silence of a server with requests outstanding; beyond it the run fails.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the loop's sockets, and time between two looks at what else there is to do.
const LOOK: Duration = Duration::from_millis(50);
/// Of connections that watch a znode, the one that changes it.
const WRITER: usize = 0;
/// Connections of one run at most.
pub const CONNECTIONS_MAX: usize = 20_000;
/// Requests in flight per connection at most.
pub const DEPTH_MAX: usize = 100_000;

/// Runs a plan, having prepared the znodes it needs. `look` is told how far it has come, some twenty
/// times a second, and can end it.
///
/// # Errors
/// A server cannot be reached, refuses, or errs; the znodes that were made remain.
pub fn run(plan: &Plan, look: &mut dyn FnMut(&Interim<'_>) -> Go) -> Result<Outcome, Fault> {
    let fault = |e: Fault| e.after(&format!("{} at {}", plan.work, plan.addrs[0]));
    files::allow(plan.connections)?;
    let tasks = prepare(plan).map_err(fault)?;
    let mut links = Vec::with_capacity(plan.connections);
    for (task, &addr) in tasks.into_iter().zip(plan.addrs.iter().cycle()) {
        links.push(Link::open(addr, task, plan.depth, &plan.auth).map_err(fault)?);
    }
    Loop::new(links, plan).and_then(|load| load.run(look)).map_err(fault)
}

/// Makes sure that the nodes of the plan are there and finds a task for each connection.
///
/// Sessions that are opened afterwards, at any server of an ensemble, see these nodes: to open a
/// session is a transaction behind those that made them.
fn prepare(plan: &Plan) -> Result<Vec<Task>, Fault> {
    let mut session = Session::open_as(plan.addrs[0], &plan.auth)?;
    session.ensure_all(&plan.room_path())?;
    let shares = plan.work.contends() || plan.work == Work::Watches;
    let nodes = if shares { 1 } else { plan.connections };
    let own = |connection: usize| {
        let path = plan.below_path(connection);
        let data = script::data(&path, plan.size);
        (path, data)
    };
    let creates = (0..nodes).map(own).map(|(path, data)| {
        let request = wire::create(&path, &data);
        (path, request)
    });
    session.call_all(creates, |path, answer| session::made(&format!("create {path}"), answer))?;
    let mut tasks = Vec::with_capacity(plan.connections);
    if plan.work == Work::Watches {
        let (path, data) = own(0);
        let (_, version) = session.read(&path)?;
        let members = Member::all(&path, &data, version, plan.connections - 1);
        tasks.extend(members.into_iter().map(|member| Task::Fan(Box::new(member))));
        session.close()?;
        return Ok(tasks);
    }
    let shared = Arena::new();
    for connection in 0..plan.connections {
        if plan.work.contends() {
            let naive = plan.work == Work::Herd;
            let lock = Lock::new(&plan.below_path(0), plan.hold, shared.clone(), naive);
            tasks.push(Task::Lock(Box::new(lock)));
            continue;
        }
        let (path, data) = own(connection);
        if plan.work == Work::Lock {
            let lock = Lock::new(&path, plan.hold, Arena::new(), false);
            tasks.push(Task::Lock(Box::new(lock)));
            continue;
        }
        let (_, version) = session.read(&path)?;
        let limit = match &plan.length {
            Length::Timed { .. } => None,
            Length::Counted(counts) => Some(counts[connection]),
        };
        tasks.push(Task::Script(Box::new(Script::new(plan.work, &path, data, version, limit))));
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
    alarms: Alarms,
    phase: Phase,
    phase_began: Instant,
    last_reply: Instant,
    last_look: Instant,
    stops: bool,
    tally: Tally,
    ops: u64,
    unsent: u64,
    /// The servers' count of events at the start, if they say.
    events_before: Option<u64>,
    opening: Reading,
    outcome: Option<Outcome>,
}

impl<'a> Loop<'a> {
    fn new(mut links: Vec<Link>, plan: &'a Plan) -> Result<Self, Fault> {
        let poll = Poll::new().map_err(Fault::epoll)?;
        for (number, link) in links.iter_mut().enumerate() {
            poll.registry()
                .register(&mut link.stream, Token(number), Interest::READABLE | Interest::WRITABLE)
                .map_err(Fault::epoll)?;
        }
        let phase = match plan.length {
            Length::Timed { .. } => Phase::WarmUp,
            Length::Counted(_) => Phase::Window,
        };
        let events_before = plan.asks_counts.then(|| count::events_sent(&plan.addrs)).flatten();
        let opening = read_counters(plan)?;
        Ok(Loop {
            plan,
            alarms: Alarms::new(&poll, links.len()).map_err(Fault::epoll)?,
            links,
            poll,
            phase,
            phase_began: opening.at,
            last_reply: opening.at,
            last_look: opening.at,
            stops: false,
            tally: Tally::new(),
            ops: 0,
            unsent: 0,
            events_before,
            opening,
            outcome: None,
        })
    }

    fn run(mut self, look: &mut dyn FnMut(&Interim<'_>) -> Go) -> Result<Outcome, Fault> {
        let mut events = Events::with_capacity(1024);
        let start = Instant::now();
        let connections = self.links.len();
        for number in 0..connections {
            if let Some(rate) = self.plan.rate {
                self.links[number].set_pace(Pace::new(start, rate, number, connections));
            }
            self.send(number, start)?;
        }
        loop {
            let now = Instant::now();
            let wake = self.alarms.arm(now).map_err(Fault::epoll)?;
            let wait = wake.map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
            match self.poll.poll(&mut events, Some(wait)) {
                Err(e) if e.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(Fault::epoll(e));
                }
                Ok(()) | Err(_) => {}
            }
            for event in &events {
                if event.token() != alarm::TOKEN {
                    self.serve(event.token().0)?;
                }
            }
            let now = Instant::now();
            while let Some(number) = self.alarms.next(now) {
                if matches!(self.phase, Phase::WarmUp | Phase::Window) {
                    self.send(number, now)?;
                }
            }
            if now.duration_since(self.last_look) >= LOOK {
                self.look(now, look)?;
            }
            if self.advance(now)? {
                break;
            }
        }
        Ok(self.outcome.expect("the window ended before the sessions were closed"))
    }

    /// Takes in what one connection received and sends what may follow.
    fn serve(&mut self, number: usize) -> Result<(), Fault> {
        let now = Instant::now();
        // At a rate, what was due within the window counts whenever it is answered.
        let measured = match self.phase {
            Phase::Window => true,
            Phase::Drain => self.plan.rate.is_some(),
            Phase::WarmUp | Phase::Close => false,
        };
        let link = &mut self.links[number];
        let count = link.receive(now, measured.then_some(&mut self.tally))?;
        if count > 0 {
            self.last_reply = now;
        }
        match self.phase {
            Phase::WarmUp => {}
            Phase::Window => self.ops += count,
            Phase::Drain | Phase::Close => return link.flush(now),
        }
        self.send(number, now)?;
        if self.plan.work == Work::Watches && number != WRITER {
            // Perhaps this was the last that it waited for.
            self.send(WRITER, now)?;
        }
        Ok(())
    }

    /// Sends what one connection may send now.
    fn send(&mut self, number: usize, now: Instant) -> Result<(), Fault> {
        let link = &mut self.links[number];
        link.top_up(now);
        self.alarms.set(number, link.wakes_at());
        link.flush(now)
    }

    /// What is done now and then.
    fn look(
        &mut self,
        now: Instant,
        look: &mut dyn FnMut(&Interim<'_>) -> Go,
    ) -> Result<(), Fault> {
        self.last_look = now;
        let measured = self.phase != Phase::WarmUp;
        let since = if measured { self.opening.at } else { self.phase_began };
        let go = look(&Interim {
            measured,
            elapsed: now.duration_since(since),
            ops: self.ops,
            latencies: &self.tally.latencies,
        });
        self.stops |= go == Go::Stop;
        if self.phase != Phase::Close {
            for link in &mut self.links {
                link.keep_alive(now);
                link.flush(now)?;
            }
        }
        Ok(())
    }

    /// Moves from phase to phase; true when the last is over.
    fn advance(&mut self, now: Instant) -> Result<bool, Fault> {
        let idle = |links: &[Link]| links.iter().all(Link::idle);
        if now.duration_since(self.last_reply) > SILENCE_MAX + self.plan.hold {
            return Err(Fault::Unreachable(format!("no reply for {} s", SILENCE_MAX.as_secs())));
        }
        match (self.phase, &self.plan.length) {
            (Phase::WarmUp, Length::Timed { warm_up, .. }) => {
                if self.stops || now.duration_since(self.phase_began) >= *warm_up {
                    self.opening = read_counters(self.plan)?;
                    self.phase = Phase::Window;
                }
            }
            (Phase::Window, Length::Timed { window, .. }) => {
                if self.stops || now.duration_since(self.opening.at) >= *window {
                    self.end_window(now)?;
                }
            }
            (Phase::WarmUp | Phase::Window, Length::Counted(_)) => {
                if self.stops || idle(&self.links) {
                    self.end_window(now)?;
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

    fn end_window(&mut self, now: Instant) -> Result<(), Fault> {
        let end = read_counters(self.plan)?;
        let server_cpu = end.server - self.opening.server;
        let client_cpu = end.client - self.opening.client;
        let machine_cpu = end.machine - self.opening.machine;
        if self.plan.rate.is_some() {
            for link in &mut self.links {
                self.unsent += link.give_up(now, &mut self.tally);
            }
        }
        self.outcome = Some(Outcome {
            ops: self.ops,
            seconds: (end.at - self.opening.at).as_secs_f64(),
            latencies: self.tally.latencies.clone(),
            server_cpu,
            client_cpu,
            other_cpu: (machine_cpu - server_cpu - client_cpu).max(0.0),
            server_rss_mib: proc::rss_mib_of(&self.plan.pids)?,
            answered: Vec::new(),
            unsent: self.unsent,
            contention: self.plan.work.locks().then(|| Contention {
                acquires: self.tally.acquires.clone(),
                handoffs: self.tally.handoffs.clone(),
                events: self.tally.events,
                all_releases: 0,
                all_events: 0,
                server_events: None,
            }),
        });
        self.phase = Phase::Drain;
        Ok(())
    }

    fn end_sessions(&mut self, now: Instant) -> Result<(), Fault> {
        let outcome = self.outcome.as_mut().expect("the window is over");
        outcome.latencies.clone_from(&self.tally.latencies);
        outcome.answered = self.links.iter().map(Link::answered).collect();
        if let Some(contention) = &mut outcome.contention {
            for (completed, events) in self.links.iter().map(Link::totals) {
                contention.all_releases += completed;
                contention.all_events += events;
            }
            let before = self.events_before;
            let after = before.and_then(|_| count::events_sent(&self.plan.addrs));
            contention.server_events =
                after.zip(before).map(|(after, before)| after.saturating_sub(before));
        }
        for link in &mut self.links {
            assert_eq!(link.answered(), link.issued(), "drained, so all are answered");
            link.close(now);
            link.flush(now)?;
        }
        self.phase = Phase::Close;
        Ok(())
    }
}

fn read_counters(plan: &Plan) -> Result<Reading, Fault> {
    Ok(Reading {
        server: proc::cpu_seconds_of(&plan.pids)?,
        client: proc::cpu_seconds(std::process::id())?,
        machine: proc::machine_cpu_seconds()?,
        at: Instant::now(),
    })
}
