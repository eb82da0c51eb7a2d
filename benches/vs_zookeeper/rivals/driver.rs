//! The loop that has clients take and release locks: warm-up, measured window, drain.

use std::time::{Duration, Instant};

use lockkeeper::internals::bench::{ALARM, Alarms, Contention, Outcome, histogram, proc, record};
use mio::{Events, Interest, Poll, Token};

use super::socket::Socket;

/// Longest time without any answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Longest wait for sockets.
const LOOK: Duration = Duration::from_millis(50);

/// What an answer has brought about.
pub enum Step {
    /// It goes on.
    Within,
    /// The lock is held, by a right that is higher than that of every holder before, if it is known.
    Granted(Option<i64>),
    /// Somebody else has it: to be tried again then.
    Again(Instant),
    /// The cycle is over.
    Released,
}

/// A client's way through a lock cycle.
pub trait Course {
    /// Its connections, always the same.
    fn sockets(&mut self) -> &mut [Socket];
    /// Tries to take the lock.
    fn take(&mut self, now: Instant);
    /// Gives it back.
    fn release(&mut self);
    /// Takes the next whole answer from the connection `at`; `None` if there is none yet.
    fn next(&mut self, at: usize, now: Instant) -> Result<Option<Step>, String>;
}

/// Who has a lock.
#[derive(Clone, Default)]
struct Holder {
    client: Option<usize>,
    right: Option<i64>,
    /// When the last release was sent.
    released: Option<Instant>,
}

/// What was measured: an outcome as of a ZooKeeper's locks, and how often a lock was tried to be had
/// once, if a server refuses instead of queueing.
pub struct Driven {
    pub outcome: Outcome,
    pub tries_per_lock: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    WarmUp,
    Window,
    Drain,
}

struct Cycle {
    began: Instant,
    /// When somebody else's release was the last one before this began.
    seen: Option<Instant>,
    runs: bool,
    /// The lock is held, until the client's alarm.
    holds: bool,
}

/// What clients are driven for.
pub struct Drive<'a> {
    /// All want one lock, instead of each its own.
    pub shares: bool,
    /// How long a lock is held. Only a lock that is held for a while shows a second holder.
    pub hold: Duration,
    /// The servers' processes.
    pub pids: &'a [u32],
    pub warm_up: Duration,
    pub window: Duration,
}

/// Drives clients from their first cycle to the end of their last.
pub fn drive<C: Course>(clients: Vec<C>, drive: &Drive<'_>) -> Result<Driven, String> {
    Driver::new(clients, drive)?.run()
}

struct Driver<'a, C> {
    clients: Vec<C>,
    cycles: Vec<Cycle>,
    /// The client and its connection of each token.
    places: Vec<(usize, usize)>,
    holders: Vec<Holder>,
    poll: Poll,
    alarms: Alarms,
    drive: &'a Drive<'a>,
    phase: Phase,
    /// Whether a server has refused the lock.
    refusals: bool,
    tries: u64,
    grants: u64,
    releases: u64,
    outcome: Outcome,
}

impl<'a, C: Course> Driver<'a, C> {
    fn new(mut clients: Vec<C>, drive: &'a Drive<'a>) -> Result<Self, String> {
        let poll = Poll::new().map_err(|e| format!("epoll: {e}"))?;
        let mut places = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            for (at, socket) in client.sockets().iter_mut().enumerate() {
                let both = Interest::READABLE | Interest::WRITABLE;
                poll.registry()
                    .register(&mut socket.stream, Token(places.len()), both)
                    .map_err(|e| format!("epoll: {e}"))?;
                places.push((number, at));
            }
        }
        let now = Instant::now();
        let cycle = || Cycle { began: now, seen: None, runs: false, holds: false };
        let contention = Contention {
            acquires: histogram(),
            handoffs: histogram(),
            events: 0,
            all_releases: 0,
            all_events: 0,
            server_events: None,
        };
        Ok(Driver {
            cycles: clients.iter().map(|_| cycle()).collect(),
            holders: vec![Holder::default(); if drive.shares { 1 } else { clients.len() }],
            alarms: Alarms::new(&poll, clients.len()).map_err(|e| format!("timer: {e}"))?,
            clients,
            places,
            poll,
            drive,
            phase: Phase::WarmUp,
            refusals: false,
            tries: 0,
            grants: 0,
            releases: 0,
            outcome: Outcome {
                ops: 0,
                seconds: 0.0,
                latencies: histogram(),
                server_cpu: 0.0,
                server_threads: Vec::new(),
                client_cpu: 0.0,
                other_cpu: 0.0,
                stolen_cpu: 0.0,
                server_rss_mib: 0.0,
                answered: Vec::new(),
                unsent: 0,
                contention: Some(contention),
            },
        })
    }

    fn run(mut self) -> Result<Driven, String> {
        let mut events = Events::with_capacity(1024);
        let began = Instant::now();
        let mut opening = self.read()?;
        let mut last_answer = began;
        for number in 0..self.clients.len() {
            self.begin(number, began)?;
        }
        loop {
            let now = Instant::now();
            let wake = self.alarms.arm(now).map_err(|e| format!("timer: {e}"))?;
            let wait = wake.map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
            match self.poll.poll(&mut events, Some(wait)) {
                Err(e) if e.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(format!("epoll: {e}"));
                }
                Ok(()) | Err(_) => {}
            }
            for event in events.iter().filter(|event| event.token() != ALARM) {
                last_answer = Instant::now();
                self.serve(self.places[event.token().0], last_answer)?;
            }
            let now = Instant::now();
            while let Some(number) = self.alarms.next(now) {
                if self.cycles[number].holds {
                    self.release(number, now)?;
                } else {
                    self.attempt(number, now)?;
                }
            }
            if now.duration_since(last_answer) > SILENCE_MAX {
                return Err(format!("no answer for {} s", SILENCE_MAX.as_secs()));
            }
            match self.phase {
                Phase::WarmUp if now.duration_since(began) >= self.drive.warm_up => {
                    opening = self.read()?;
                    self.phase = Phase::Window;
                }
                Phase::Window if now.duration_since(opening.0) >= self.drive.window => {
                    self.end(&opening)?;
                }
                Phase::Drain if self.cycles.iter().all(|cycle| !cycle.runs) => break,
                Phase::WarmUp | Phase::Window | Phase::Drain => {}
            }
        }
        if let Some(contention) = &mut self.outcome.contention {
            contention.all_releases = self.releases;
        }
        let tries_per_lock = self.refusals.then(|| self.tries as f64 / self.grants.max(1) as f64);
        Ok(Driven { outcome: self.outcome, tries_per_lock })
    }

    /// The time, and the CPU seconds of servers, client and machine, and those its host took.
    fn read(&self) -> Result<(Instant, [f64; 4]), String> {
        let server = proc::cpu_seconds_of(self.drive.pids).map_err(|e| e.to_string())?;
        let client = proc::cpu_seconds(std::process::id()).map_err(|e| e.to_string())?;
        let machine = proc::processors().map_err(|e| e.to_string())?;
        Ok((Instant::now(), [server, client, machine.used, machine.stolen]))
    }

    fn end(&mut self, opening: &(Instant, [f64; 4])) -> Result<(), String> {
        let (now, cpu) = self.read()?;
        let [server, client, machine, stolen] = [0, 1, 2, 3].map(|at| cpu[at] - opening.1[at]);
        self.outcome.seconds = now.duration_since(opening.0).as_secs_f64();
        self.outcome.server_cpu = server;
        self.outcome.client_cpu = client;
        self.outcome.other_cpu = (machine - server - client).max(0.0);
        self.outcome.stolen_cpu = stolen;
        self.outcome.server_rss_mib =
            proc::rss_mib_of(self.drive.pids).map_err(|e| e.to_string())?;
        self.phase = Phase::Drain;
        Ok(())
    }

    fn begin(&mut self, number: usize, now: Instant) -> Result<(), String> {
        let seen = self.holder(number).released;
        self.cycles[number] = Cycle { began: now, seen, runs: true, holds: false };
        self.attempt(number, now)
    }

    fn attempt(&mut self, number: usize, now: Instant) -> Result<(), String> {
        self.tries += u64::from(self.phase == Phase::Window);
        self.clients[number].take(now);
        self.flush(number)
    }

    fn release(&mut self, number: usize, now: Instant) -> Result<(), String> {
        self.cycles[number].holds = false;
        let holder = self.holder(number);
        (holder.client, holder.released) = (None, Some(now));
        self.clients[number].release();
        self.flush(number)
    }

    fn flush(&mut self, number: usize) -> Result<(), String> {
        self.clients[number].sockets().iter_mut().try_for_each(Socket::flush)
    }

    /// Takes in what one connection has received, and goes on.
    fn serve(&mut self, (number, at): (usize, usize), now: Instant) -> Result<(), String> {
        self.clients[number].sockets()[at].fill()?;
        while let Some(step) = self.clients[number].next(at, now)? {
            match step {
                Step::Within => {}
                Step::Again(at) => {
                    self.refusals = true;
                    self.alarms.set(number, Some(at));
                }
                Step::Granted(right) => {
                    self.grant(number, right, now)?;
                    if self.drive.hold.is_zero() {
                        self.release(number, now)?;
                    } else {
                        self.cycles[number].holds = true;
                        self.alarms.set(number, Some(now + self.drive.hold));
                    }
                }
                Step::Released => {
                    self.releases += 1;
                    self.cycles[number].runs = false;
                    if self.phase == Phase::Window {
                        self.outcome.ops += 1;
                        record(&mut self.outcome.latencies, self.cycles[number].began, now);
                    }
                    if self.phase != Phase::Drain {
                        self.begin(number, now)?;
                    }
                }
            }
        }
        self.flush(number)
    }

    fn holder(&mut self, number: usize) -> &mut Holder {
        let at = number.min(self.holders.len() - 1);
        &mut self.holders[at]
    }

    fn grant(&mut self, number: usize, right: Option<i64>, now: Instant) -> Result<(), String> {
        let holder = self.holder(number);
        if let Some(other) = holder.client {
            return Err(format!("clients {number} and {other} hold the lock at a time"));
        }
        if right.is_some() && right <= holder.right {
            return Err(format!("{right:?} holds the lock after {:?}", holder.right));
        }
        (holder.client, holder.right) = (Some(number), right);
        let released = holder.released;
        if self.phase == Phase::Window
            && let Some(contention) = &mut self.outcome.contention
        {
            self.grants += 1;
            let cycle = &self.cycles[number];
            record(&mut contention.acquires, cycle.began, now);
            // Somebody else has released since this one began to want it.
            if let Some(released) = released.filter(|_| released != cycle.seen) {
                record(&mut contention.handoffs, released, now);
            }
        }
        Ok(())
    }
}
