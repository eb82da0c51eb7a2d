//! The load generator: one epoll loop, any number of connections. `crew.rs` runs one or several.
//!
//! A run is warm-up, measured window, drain, close. Only replies that arrive within the window
//! count, and so do the CPU times, which are read at its two ends. Latency runs from queueing a
//! request in the client to having read its reply, so at depth D it holds the wait behind D-1 others;
//! at a rate it runs from when the request was due.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::Poll;

use super::alarm::{self, Alarms};
use super::link::Link;
use super::outcome::{Interim, Tally};
use super::pace::Pace;
use super::plan::{Go, Length, Plan, Work};
use super::proc::{self, Processors};
use super::sockets::{self, LOOK};
use super::threads::Threads;
use super::{Fault, count};

/// Of connections that watch a znode, the one that changes it.
const WRITER: usize = 0;
/// Time between two looks at whether the others have opened their connections.
const WAIT: Duration = Duration::from_millis(1);

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

/// State that the threads of a run share.
pub(super) struct Common {
    /// Threads that have all their connections, and threads that have all their answers.
    ready: AtomicUsize,
    drained: AtomicUsize,
    may_close: AtomicBool,
    stops: AtomicBool,
    failed: AtomicBool,
    /// Operations of each thread.
    ops: Vec<AtomicU64>,
    /// The servers' count of events at the start and at the end, if they say.
    events_before: Option<u64>,
    events_after: OnceLock<Option<u64>>,
}

impl Common {
    pub(super) fn new(plan: &Plan, threads: usize) -> Self {
        let events_before = plan.asks_counts.then(|| count::events_sent(&plan.addrs)).flatten();
        Common {
            ready: AtomicUsize::new(0),
            drained: AtomicUsize::new(0),
            may_close: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            ops: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            events_before,
            events_after: OnceLock::new(),
        }
    }

    fn threads(&self) -> usize {
        self.ops.len()
    }

    /// Ends the run before its time.
    fn stop(&self) {
        self.stops.store(true, Ordering::Release);
    }

    /// Whether it has been ended so.
    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.stop();
    }

    /// Waits until all threads have their connections, and keeps these alive; false if one has failed.
    pub(super) fn wait(&self, links: &mut [Link]) -> Result<bool, Fault> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        let mut looked = Instant::now();
        while self.ready.load(Ordering::Acquire) < self.threads() {
            if self.failed.load(Ordering::Acquire) {
                return Ok(false);
            }
            thread::sleep(WAIT);
            let now = Instant::now();
            if now.duration_since(looked) >= LOOK {
                looked = now;
                links.iter_mut().try_for_each(|link| link.live_on(now))?;
            }
        }
        Ok(true)
    }

    /// Notes how many operations a thread has done; returns those of all.
    fn count(&self, thread: usize, ops: u64) -> u64 {
        self.ops[thread].store(ops, Ordering::Relaxed);
        self.ops.iter().map(|ops| ops.load(Ordering::Relaxed)).sum()
    }

    /// Notes that a thread has its last answer. The last one has the servers' events counted.
    fn drained(&self, addrs: &[SocketAddr]) {
        if self.drained.fetch_add(1, Ordering::AcqRel) + 1 == self.threads() {
            let after = self.events_before.and_then(|_| count::events_sent(addrs));
            self.events_after.get_or_init(|| after);
            self.may_close.store(true, Ordering::Release);
        }
    }

    /// Whether sessions may be closed: all threads have their last answer, or one never will.
    fn may_close(&self) -> bool {
        self.may_close.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire)
    }

    pub(super) fn server_events(&self) -> Option<u64> {
        let after = self.events_after.get().copied().flatten()?;
        Some(after.saturating_sub(self.events_before?))
    }
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
