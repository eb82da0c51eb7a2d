//! Many sessions: how fast they are opened, and how soon they are gone after their clients are.
//!
//! Each session is a connection with one ephemeral znode. When all are there, all connections are
//! dropped without a word, and the znodes are counted until none is left. *Invariant*, checked: no
//! session ends before its timeout.

use std::io::Write as _;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Poll};

use super::frames::{Frames, Source};
use super::outcome::{self, Interim};
use super::plan::{Go, Plan};
use super::session::Session;
use super::sockets::{self, LOOK};
use super::{Fault, files, proc, wire};

/// How much longer than their timeout all sessions may last together.
const EXPIRY_MAX: Duration = Duration::from_secs(120);
/// Time between two counts of the znodes that are left.
const COUNT_INTERVAL: Duration = Duration::from_millis(10);

/// What was measured.
#[derive(Clone, Debug)]
pub struct Lives {
    /// Sessions with their ephemeral znodes.
    pub opened: u64,
    /// Seconds that this took.
    pub seconds: f64,
    /// Nanoseconds from connecting to having a session.
    pub opens: Histogram<u64>,
    /// Nanoseconds of creating the ephemeral znode then.
    pub creates: Histogram<u64>,
    /// CPU seconds of the servers while sessions were opened.
    pub server_cpu: f64,
    /// CPU seconds of this process in that time.
    pub client_cpu: f64,
    /// Resident memory of the servers with all sessions.
    pub server_rss_mib: f64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// How long after the connections were dropped the first and the last ephemeral znode were gone;
    /// `None` if it was stopped before.
    pub gone: Option<(Duration, Duration)>,
}

/// Opens as many sessions as the plan has connections, with `plan.depth` under way at a time, and asks
/// for this session timeout; then lets them expire. What else the plan says of work is not looked at.
///
/// # Errors
/// A server cannot be reached, refuses, or errs; the znodes that were made remain.
pub fn live(
    plan: &Plan,
    timeout: Duration,
    look: &mut dyn FnMut(&Interim<'_>) -> Go,
) -> Result<Lives, Fault> {
    let fault = |e: Fault| e.after(&format!("sessions at {}", plan.addrs[0]));
    files::allow(plan.connections)?;
    let open = || Session::open_as(plan.addrs[0], &plan.access).map_err(fault);
    let mut first = open()?;
    first.ensure_all(&plan.room_path()).and_then(|()| first.close()).map_err(fault)?;
    let mut crowd = Crowd::new(plan, timeout)?;
    let mut lives = crowd.gather(look).map_err(fault)?;
    if lives.opened == plan.connections as u64 {
        // Not before, for nothing would keep it alive while the others are opened.
        let mut counter = open()?;
        crowd.call_roll().map_err(fault)?;
        let earliest = crowd.dies();
        lives.gone = see_off(plan, &mut counter, earliest, &lives, look).map_err(fault)?;
        counter.close().map_err(fault)?;
    }
    Ok(lives)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Greeting,
    Creating,
    Held,
}

struct Life {
    stream: TcpStream,
    frames: Frames,
    state: State,
    began: Instant,
    last_sent: Instant,
    /// Pings without an answer.
    pings: u32,
}

struct Crowd<'a> {
    plan: &'a Plan,
    poll: Poll,
    lives: Vec<Life>,
    held: usize,
    greeting: Vec<u8>,
    create: Vec<u8>,
    ping: Vec<u8>,
    opens: Histogram<u64>,
    creates: Histogram<u64>,
    granted: Duration,
    last_event: Instant,
}

impl<'a> Crowd<'a> {
    fn new(plan: &'a Plan, timeout: Duration) -> Result<Self, Fault> {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let mut create =
            wire::create_ephemeral_sequential(&format!("{}/session-", plan.room_path()));
        wire::patch_xid(&mut create, 1);
        let mut greeting = wire::connect(timeout_ms);
        for (scheme, secret) in &plan.access.auth {
            greeting.extend(wire::auth(scheme, secret));
        }
        Ok(Crowd {
            plan,
            poll: Poll::new().map_err(Fault::epoll)?,
            lives: Vec::with_capacity(plan.connections),
            held: 0,
            greeting,
            create,
            ping: wire::ping(),
            opens: outcome::histogram(),
            creates: outcome::histogram(),
            granted: timeout,
            last_event: Instant::now(),
        })
    }

    fn gather(&mut self, look: &mut dyn FnMut(&Interim<'_>) -> Go) -> Result<Lives, Fault> {
        let client_before = proc::cpu_seconds(std::process::id())?;
        let server_before = proc::cpu_seconds_of(&self.plan.pids)?;
        let began = Instant::now();
        let mut looked = began;
        let mut events = sockets::events();
        self.last_event = began;
        while self.held < self.plan.connections {
            while self.lives.len() < self.plan.connections
                && self.lives.len() - self.held < self.plan.depth
            {
                self.begin()?;
            }
            let now = self.wait(&mut events)?;
            if now.duration_since(looked) >= LOOK {
                looked = now;
                self.ping(now, self.granted / 3)?;
                let interim = Interim {
                    measured: true,
                    elapsed: now.duration_since(began),
                    ops: self.held as u64,
                    latencies: &self.opens,
                };
                if look(&interim) == Go::Stop {
                    break;
                }
            }
        }
        Ok(Lives {
            opened: self.held as u64,
            seconds: began.elapsed().as_secs_f64(),
            opens: self.opens.clone(),
            creates: self.creates.clone(),
            server_cpu: proc::cpu_seconds_of(&self.plan.pids)? - server_before,
            client_cpu: proc::cpu_seconds(std::process::id())? - client_before,
            server_rss_mib: proc::rss_mib_of(&self.plan.pids)?,
            timeout: self.granted,
            gone: None,
        })
    }

    /// Waits a moment for what arrives, and takes it in; returns the time.
    fn wait(&mut self, events: &mut Events) -> Result<Instant, Fault> {
        sockets::wait(&mut self.poll, events, LOOK)?;
        for event in &*events {
            self.serve(event.token().0, event.is_writable())?;
        }
        let now = Instant::now();
        sockets::check_silence(self.last_event, now, Duration::ZERO)?;
        Ok(now)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let addr = self.plan.addrs[self.lives.len() % self.plan.addrs.len()];
        let fault = |e: std::io::Error| Fault::Unreachable(format!("{addr}: {e}"));
        let mut stream = TcpStream::connect(addr).map_err(fault)?;
        sockets::register(&self.poll, &mut stream, self.lives.len())?;
        let now = Instant::now();
        let frames = Frames::default();
        self.lives.push(Life {
            stream,
            frames,
            state: State::Connecting,
            began: now,
            last_sent: now,
            pings: 0,
        });
        Ok(())
    }

    fn serve(&mut self, number: usize, writable: bool) -> Result<(), Fault> {
        let now = Instant::now();
        let life = &mut self.lives[number];
        let lost = |e: std::io::Error| Fault::Unreachable(format!("session {number}: {e}"));
        if life.state == State::Connecting {
            if let Some(error) = life.stream.take_error().map_err(lost)? {
                return Err(lost(error));
            }
            if !writable {
                return Ok(());
            }
            life.stream.set_nodelay(true).map_err(lost)?;
            life.stream.write_all(&self.greeting).map_err(lost)?;
            life.state = State::Greeting;
            return Ok(());
        }
        let source = life.frames.fill(&mut life.stream).map_err(lost)?;
        while let Some(frame) = life.frames.next_frame().map_err(|e| Fault::wrong(e.to_string()))? {
            self.last_event = now;
            match life.state {
                State::Connecting => return Err(Fault::wrong("an answer before the question")),
                State::Greeting => {
                    self.granted = wire::connect_reply(frame)
                        .and_then(|granted| granted.timeout())
                        .ok_or_else(|| Fault::Unreachable("session refused".into()))?;
                    outcome::record(&mut self.opens, life.began, now);
                    life.stream.write_all(&self.create).map_err(lost)?;
                    (life.state, life.last_sent, life.began) = (State::Creating, now, now);
                }
                State::Creating => {
                    let reply =
                        wire::reply(frame).ok_or_else(|| Fault::wrong("reply too short"))?;
                    if reply.err != 0 {
                        return Err(Fault::refused("an ephemeral znode", reply.err));
                    }
                    if reply.xid == wire::AUTH_XID {
                        continue;
                    }
                    outcome::record(&mut self.creates, life.began, now);
                    life.state = State::Held;
                    self.held += 1;
                }
                State::Held => {
                    life.pings = life
                        .pings
                        .checked_sub(1)
                        .ok_or_else(|| Fault::wrong("a reply that nothing was asked for"))?;
                }
            }
        }
        if source == Source::Ended {
            return Err(Fault::Unreachable("the server closed the connection".into()));
        }
        Ok(())
    }

    /// Has each session heard of, so that their timeouts begin at about one moment.
    fn call_roll(&mut self) -> Result<(), Fault> {
        self.ping(Instant::now(), Duration::ZERO)?;
        let mut events = sockets::events();
        while self.lives.iter().any(|life| life.pings > 0) {
            self.wait(&mut events)?;
        }
        Ok(())
    }

    /// Pings each session of which the server has not heard for so long.
    fn ping(&mut self, now: Instant, silence: Duration) -> Result<(), Fault> {
        for life in self.lives.iter_mut().filter(|life| life.state == State::Held) {
            if now.duration_since(life.last_sent) >= silence {
                life.last_sent = now;
                life.pings += 1;
                life.stream
                    .write_all(&self.ping)
                    .map_err(|e| Fault::Unreachable(format!("ping: {e}")))?;
            }
        }
        Ok(())
    }

    /// Drops all connections. No session may end before the moment that is returned.
    fn dies(&mut self) -> Instant {
        let heard = self.lives.iter().map(|life| life.last_sent).min();
        self.lives.clear();
        heard.unwrap_or_else(Instant::now) + self.granted
    }
}

/// Counts the znodes until none is left; returns when the first and the last were gone.
fn see_off(
    plan: &Plan,
    counter: &mut Session,
    earliest: Instant,
    lives: &Lives,
    look: &mut dyn FnMut(&Interim<'_>) -> Go,
) -> Result<Option<(Duration, Duration)>, Fault> {
    let began = Instant::now();
    let mut first = None;
    loop {
        let left = counter.children(&plan.room_path())?;
        let now = Instant::now();
        let since = now.duration_since(began);
        if left < plan.connections as u32 && first.is_none() {
            if now < earliest {
                return Err(Fault::wrong("a session has ended before its timeout"));
            }
            first = Some(since);
        }
        match first {
            Some(first) if left == 0 => return Ok(Some((first, since))),
            Some(_) | None if since > lives.timeout + EXPIRY_MAX => {
                return Err(Fault::wrong(format!(
                    "{left} ephemeral znodes are left {} s after their clients went",
                    since.as_secs()
                )));
            }
            Some(_) | None => {}
        }
        let interim = Interim {
            measured: true,
            elapsed: since,
            ops: plan.connections as u64 - u64::from(left),
            latencies: &lives.opens,
        };
        if look(&interim) == Go::Stop {
            return Ok(None);
        }
        std::thread::sleep(COUNT_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::fake::Fake;
    use super::super::plan::Work;
    use super::*;

    /// Answers until the session is closed, `delay` after each request.
    fn serve(fake: &mut Fake, body: &[u8], delay: Duration) {
        loop {
            let (xid, op) = fake.request();
            std::thread::sleep(delay);
            fake.answer(xid, body);
            if op == wire::CLOSE {
                return;
            }
        }
    }

    #[test]
    fn the_session_that_counts_is_opened_when_all_others_are_there() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let mut first = Fake::accept(&listener, 40_000, Duration::ZERO);
            serve(&mut first, b"", Duration::ZERO);
            let mut one = Fake::accept(&listener, 1, Duration::ZERO);
            let (xid, op) = one.request();
            assert_eq!(op, wire::CREATE);
            one.answer(xid, b"");
            let mut counter = Fake::accept(&listener, 40_000, Duration::ZERO);
            assert_eq!(one.request(), (wire::PING_XID, wire::PING));
            one.answer(wire::PING_XID, b"");
            // No data, and a Stat without children, when the timeout of the other is over.
            serve(&mut counter, &[0; 4 + 68], Duration::from_millis(5));
        });
        let plan = Plan { room: "x".to_owned(), ..Plan::new(vec![addr], Work::Get, 1, 1) };
        let lives = live(&plan, Duration::from_millis(1), &mut |_| Go::On).expect("measured");
        server.join().expect("the server is content");
        assert_eq!(lives.opened, 1);
        assert!(lives.gone.is_some());
    }
}
