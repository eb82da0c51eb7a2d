//! The load generator: one epoll loop, any number of connections. `crew.rs` runs one or several.
//!
//! A run is warm-up, measured window, drain, close. Only replies that arrive within the window
//! count, and so do the CPU times, which are read at its two ends. Latency runs from queueing a
//! request in the client to having read its reply, so at depth D it holds the wait behind D-1 others;
//! at a rate it runs from when the request was due.

use std::time::Instant;

use mio::Poll;

use super::alarm::{self, Alarms};
use super::arena::Arena;
use super::crew::{self, Common};
use super::fan::Member;
use super::link::{Link, Task};
use super::lock::Lock;
use super::outcome::{Interim, Outcome, Tally};
use super::pace::Pace;
use super::plan::{Go, Length, Plan, Work};
use super::proc::{self, Processors};
use super::script::{self, Script};
use super::session::{self, Session};
use super::sockets::{self, LOOK};
use super::threads::Threads;
use super::{Fault, files, wire};

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
    crew::run(plan, tasks, look).map_err(fault)
}

/// Makes sure that the nodes of the plan are there and finds a task for each connection.
///
/// Sessions that are opened afterwards, at any server of an ensemble, see these nodes: to open a
/// session is a transaction behind those that made them.
fn prepare(plan: &Plan) -> Result<Vec<Task>, Fault> {
    let mut session = Session::open_as(plan.addrs[0], &plan.access)?;
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
        let script = Script::new(plan.work, &path, data, version, limit).scattered(plan.scatter);
        tasks.push(Task::Script(Box::new(script)));
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
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub at: Instant,
    pub server: f64,
    pub threads: Threads,
    pub client: f64,
    pub machine: Processors,
}

/// What is known when the window ends, and kept until the last answer is in.
#[derive(Debug)]
pub(super) struct Closing {
    pub reading: Reading,
    pub rss_mib: f64,
    /// Watch events within the window.
    pub events: u64,
    pub unsent: u64,
}

/// What one loop has measured.
#[derive(Debug)]
pub(super) struct Part {
    pub opening: Reading,
    pub closing: Closing,
    pub tally: Tally,
    pub ops: u64,
    /// Requests answered on each of its connections, in their order.
    pub answered: Vec<u64>,
    /// Operations completed, and events received, since the connections were opened.
    pub completed: u64,
    pub all_events: u64,
}

/// One thread's share of a run.
pub(super) struct Loop<'a> {
    plan: &'a Plan,
    common: &'a Common,
    /// The number of this thread; it has every connection whose number leaves it as the remainder.
    thread: usize,
    links: Vec<Link>,
    poll: Poll,
    alarms: Alarms,
    phase: Phase,
    phase_began: Instant,
    last_reply: Instant,
    last_look: Instant,
    /// Whether the other threads know that it has drained.
    told: bool,
    tally: Tally,
    ops: u64,
    opening: Reading,
    closing: Option<Closing>,
    part: Option<Part>,
}

impl<'a> Loop<'a> {
    pub(super) fn new(
        mut links: Vec<Link>,
        plan: &'a Plan,
        common: &'a Common,
        thread: usize,
    ) -> Result<Self, Fault> {
        let poll = Poll::new().map_err(Fault::epoll)?;
        for (number, link) in links.iter_mut().enumerate() {
            sockets::register(&poll, link.stream.socket(), number)?;
        }
        let phase = match plan.length {
            Length::Timed { .. } => Phase::WarmUp,
            Length::Counted(_) => Phase::Window,
        };
        let opening = read_counters(plan)?;
        Ok(Loop {
            plan,
            common,
            thread,
            alarms: Alarms::new(&poll, links.len()).map_err(Fault::epoll)?,
            links,
            poll,
            phase,
            phase_began: opening.at,
            last_reply: opening.at,
            last_look: opening.at,
            told: false,
            tally: Tally::new(),
            ops: 0,
            opening,
            closing: None,
            part: None,
        })
    }

    pub(super) fn run(mut self, look: &mut dyn FnMut(&Interim<'_>) -> Go) -> Result<Part, Fault> {
        let mut events = sockets::events();
        let start = Instant::now();
        let Plan { connections, depth, rate, .. } = *self.plan;
        for number in 0..self.links.len() {
            if let Some(rate) = rate {
                let of_all = number * self.common.threads() + self.thread;
                self.links[number].set_pace(Pace::new(start, rate, of_all, connections, depth));
            }
            self.send(number, start)?;
        }
        loop {
            let now = Instant::now();
            let wake = self.alarms.arm(now).map_err(Fault::epoll)?;
            let wait = wake.map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
            sockets::wait(&mut self.poll, &mut events, wait)?;
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
        Ok(self.part.expect("the window ended before the sessions were closed"))
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
            ops: self.common.count(self.thread, self.ops),
            latencies: &self.tally.latencies,
        });
        if go == Go::Stop {
            self.common.stop();
        }
        if self.phase != Phase::Close {
            self.links.iter_mut().try_for_each(|link| link.live_on(now))?;
        }
        Ok(())
    }

    /// Moves from phase to phase; true when the last is over.
    fn advance(&mut self, now: Instant) -> Result<bool, Fault> {
        let idle = |links: &[Link]| links.iter().all(Link::idle);
        if !self.told {
            sockets::check_silence(self.last_reply, now, self.plan.hold)?;
        }
        match (self.phase, &self.plan.length) {
            (Phase::WarmUp, Length::Timed { warm_up, .. }) => {
                if self.common.stops() || now.duration_since(self.phase_began) >= *warm_up {
                    self.opening = read_counters(self.plan)?;
                    self.phase = Phase::Window;
                }
            }
            (Phase::Window, Length::Timed { window, .. }) => {
                if self.common.stops() || now.duration_since(self.opening.at) >= *window {
                    self.end_window(now)?;
                }
            }
            (Phase::WarmUp | Phase::Window, Length::Counted(_)) => {
                if self.common.stops() || idle(&self.links) {
                    self.end_window(now)?;
                }
            }
            (Phase::Drain, _) => {
                if !self.told && idle(&self.links) {
                    self.told = true;
                    self.common.drained(&self.plan.addrs);
                }
                if self.told && self.common.may_close() {
                    self.last_reply = now;
                    self.end_sessions(now)?;
                }
            }
            (Phase::Close, _) => return Ok(idle(&self.links)),
        }
        Ok(false)
    }

    fn end_window(&mut self, now: Instant) -> Result<(), Fault> {
        let reading = read_counters(self.plan)?;
        let mut unsent = 0;
        if self.plan.rate.is_some() {
            for link in &mut self.links {
                unsent += link.give_up(now, &mut self.tally);
            }
        }
        let rss_mib = proc::rss_mib_of(&self.plan.pids)?;
        self.closing = Some(Closing { reading, rss_mib, events: self.tally.events, unsent });
        self.phase = Phase::Drain;
        Ok(())
    }

    fn end_sessions(&mut self, now: Instant) -> Result<(), Fault> {
        let totals = || self.links.iter().map(Link::totals);
        self.part = Some(Part {
            opening: self.opening.clone(),
            closing: self.closing.take().expect("the window is over"),
            tally: self.tally.clone(),
            ops: self.ops,
            answered: self.links.iter().map(Link::answered).collect(),
            completed: totals().map(|(completed, _)| completed).sum(),
            all_events: totals().map(|(_, events)| events).sum(),
        });
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
        threads: Threads::read(&plan.pids)?,
        client: proc::cpu_seconds(std::process::id())?,
        machine: proc::processors()?,
        at: Instant::now(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::super::fake::Fake;
    use super::*;

    /// The path of the only contender.
    const NODE: &[u8] = b"/bench/x/c00000/lock-0000000000";

    /// Serves one session to its end. A list that is `asked` for is answered, after a watch event,
    /// once it `may` be.
    fn serve(mut fake: Fake, asked: &Sender<()>, may: &Receiver<()>) {
        loop {
            let (xid, op) = fake.request();
            let mut body = Vec::new();
            match op {
                wire::CREATE => wire::buffer(&mut body, NODE),
                wire::CHILDREN => {
                    asked.send(()).expect("the test goes on");
                    may.recv().expect("the window ends");
                    fake.event();
                    wire::int(&mut body, 1);
                    wire::buffer(&mut body, b"lock-0000000000");
                }
                _ => assert_eq!(op, wire::CLOSE),
            }
            fake.answer(xid, &body);
            if op == wire::CLOSE {
                return;
            }
        }
    }

    #[test]
    fn at_a_rate_a_lock_that_is_granted_after_the_window_counts_and_an_event_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let ((asked, is_asked), (list, may)) = (channel(), channel());
        let server = std::thread::spawn(move || {
            // The first session prepares the znodes, the second takes the lock.
            for _ in 0..2 {
                serve(Fake::accept(&listener, 40_000, Duration::ZERO), &asked, &may);
            }
        });
        let hour = Duration::from_secs(3600);
        let plan = Plan {
            length: Length::Timed { warm_up: Duration::ZERO, window: hour },
            rate: Some(1.0),
            room: "x".to_owned(),
            asks_counts: false,
            ..Plan::new(vec![addr], Work::Herd, 1, 1)
        };
        let (mut stops, mut list) = (false, Some(list));
        let outcome = run(&plan, &mut |_| {
            // By the look after the one that stops it, the window is over.
            if let Some(list) = list.take_if(|_| stops) {
                list.send(()).expect("the server waits");
            }
            stops |= is_asked.try_recv().is_ok();
            if stops { Go::Stop } else { Go::On }
        });
        let contention = outcome.expect("it is measured").contention.expect("locks contend");
        server.join().expect("the server is content");
        assert_eq!(contention.acquires.len(), 1);
        assert_eq!((contention.events, contention.all_events), (0, 1));
    }
}
