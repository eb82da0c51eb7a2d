//! One connection of the load generator: requests in flight, replies checked as they come.
//!
//! Every reply must carry the xid that is due, error 0, a zxid not below the one before, and the
//! body the script expects; anything else ends the measurement.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::access::Access;
use super::fan::Member;
use super::frames::{Frames, Source};
use super::lock::Lock;
use super::outcome::{self, Tally};
use super::pace::Pace;
use super::script::Script;
use super::session::Session;
use super::step::Step;
use super::{Fault, wire};
use crate::tls::ClientLine;

/// What decides about the requests of a connection.
#[derive(Debug)]
pub(super) enum Task {
    /// Known beforehand, any number in flight.
    Script(Box<Script>),
    /// One at a time.
    Lock(Box<Lock>),
    /// The same.
    Fan(Box<Member>),
}

impl Task {
    fn next(&mut self, now: Instant, due: Instant, xid: i32, out: &mut Vec<u8>) -> bool {
        match self {
            Task::Script(script) => script.next(xid, out),
            Task::Lock(lock) => lock.next(now, due, xid, out),
            Task::Fan(member) => member.next(now, xid, out),
        }
    }

    /// Whether the next request begins an operation.
    fn begins(&self) -> bool {
        match self {
            Task::Script(_) | Task::Fan(_) => true,
            Task::Lock(lock) => lock.begins(),
        }
    }

    /// Judges the answer to request number `index`, which was due, or sent, at `sent`.
    fn check(
        &mut self,
        index: u64,
        reply: &wire::Reply<'_>,
        sent: Instant,
        now: Instant,
    ) -> Result<Step, Fault> {
        match self {
            Task::Script(script) if reply.err == 0 => {
                script.check(index, reply.body).map(|()| Step::Done(sent))
            }
            Task::Script(_) => Err(Fault::refused("request", reply.err)),
            Task::Lock(lock) => lock.check(now, reply),
            Task::Fan(member) => member.check(reply),
        }
    }

    fn event(&mut self) -> Result<Step, Fault> {
        match self {
            Task::Script(_) => Err(Fault::wrong("a watch event that no client waits for")),
            Task::Lock(lock) => lock.event(),
            Task::Fan(member) => member.event(),
        }
    }
}

/// A session in the loop.
#[derive(Debug)]
pub(super) struct Link {
    pub stream: ClientLine<TcpStream>,
    task: Task,
    depth: usize,
    pace: Option<Pace>,
    frames: Frames,
    unsent: Vec<u8>,
    sent: usize,
    /// When each unanswered request was due, or handed to the socket's queue, oldest first.
    in_flight: VecDeque<Instant>,
    next_xid: i32,
    answered: u64,
    issued: u64,
    /// Operations completed, and events received, since it was opened.
    completed: u64,
    events: u64,
    last_zxid: i64,
    /// After so long without a request the server is told that the session lives.
    idle_max: Duration,
    last_sent: Instant,
    closing: bool,
    ended: bool,
}

impl Link {
    /// Opens a session at `addr` that will keep `depth` requests of `task` in flight.
    pub(super) fn open(
        addr: SocketAddr,
        task: Task,
        depth: usize,
        access: &Access,
    ) -> Result<Self, Fault> {
        let mut parts = Session::open_as(addr, access)?.into_parts();
        let fault = |e| Fault::Unreachable(format!("{addr}: {e}"));
        parts.stream.socket().set_nonblocking(true).map_err(fault)?;
        Ok(Link {
            stream: parts.stream.without_waiting(TcpStream::from_std),
            task,
            depth,
            pace: None,
            frames: Frames::default(),
            unsent: Vec::new(),
            sent: 0,
            in_flight: VecDeque::new(),
            next_xid: parts.last_xid + 1,
            answered: 0,
            issued: 0,
            completed: 0,
            events: 0,
            last_zxid: 0,
            idle_max: parts.timeout / 3,
            last_sent: Instant::now(),
            closing: false,
            ended: false,
        })
    }

    /// Operations begin at their moments from now on, whatever became of those before.
    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    /// Hands out requests until `depth` are in flight or the task has none now.
    pub(super) fn top_up(&mut self, now: Instant) {
        while self.in_flight.len() < self.depth {
            let pace = self.pace.as_mut().filter(|_| self.task.begins());
            let due = pace.as_ref().map_or(now, |pace| pace.due());
            if due > now || !self.task.next(now, due, self.next_xid, &mut self.unsent) {
                return;
            }
            if let Some(pace) = pace {
                pace.advance();
            }
            self.next_xid += 1;
            self.issued += 1;
            self.in_flight.push_back(due);
        }
    }

    /// When it has something to do although nothing arrives.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        if self.in_flight.len() >= self.depth {
            return None;
        }
        match &self.task {
            Task::Lock(lock) if !lock.begins() => lock.held_until(),
            Task::Lock(_) | Task::Script(_) | Task::Fan(_) => self.pace.as_ref().map(Pace::due),
        }
    }

    /// Operations that are due and not sent, which count as having waited until now.
    pub(super) fn give_up(&mut self, now: Instant, tally: &mut Tally) -> u64 {
        let mut count = 0;
        while let Some(pace) = self.pace.as_mut().filter(|pace| pace.due() < now) {
            outcome::record(&mut tally.latencies, pace.due(), now);
            pace.advance();
            count += 1;
        }
        count
    }

    /// Asks the server to end the session. All replies must be in.
    pub(super) fn close(&mut self, now: Instant) {
        assert!(self.in_flight.is_empty(), "a session is closed after its last reply");
        let mut request = wire::bare(wire::CLOSE);
        wire::patch_xid(&mut request, self.next_xid);
        self.unsent.extend_from_slice(&request);
        self.next_xid += 1;
        self.in_flight.push_back(now);
        self.closing = true;
    }

    /// Tells the server that the session lives, if it has not heard of it for long.
    pub(super) fn live_on(&mut self, now: Instant) -> Result<(), Fault> {
        if self.in_flight.is_empty() && now.duration_since(self.last_sent) >= self.idle_max {
            self.unsent.extend_from_slice(&wire::ping());
            self.last_sent = now;
        }
        self.flush(now)
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self, now: Instant) -> Result<(), Fault> {
        if self.unsent.is_empty() {
            // What was encrypted and did not fit may be left.
            return self.stream.flush().map_err(|e| Fault::Unreachable(format!("send: {e}")));
        }
        self.last_sent = now;
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(Fault::Unreachable("send: the connection is gone".into())),
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::Unreachable(format!("send: {e}"))),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads and checks the replies that have come; returns how many operations they complete.
    /// What they took goes to `tally` if there is one.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        mut tally: Option<&mut Tally>,
    ) -> Result<u64, Fault> {
        let lost = |e: io::Error| Fault::Unreachable(format!("receive: {e}"));
        let source = self.frames.fill(&mut self.stream).map_err(lost)?;
        let mut count = 0;
        while let Some(frame) = self.frames.next_frame().map_err(|e| Fault::wrong(e.to_string()))? {
            let reply = wire::reply(frame).ok_or_else(|| Fault::wrong("reply too short"))?;
            if reply.xid == wire::PING_XID {
                continue;
            }
            if reply.xid == wire::EVENT_XID {
                // While the sessions are closed the nodes go, and with them what was waited for.
                if !self.closing {
                    let step = self.task.event()?;
                    self.events += 1;
                    count += u64::from(matches!(step, Step::Done(_)));
                    if let Some(tally) = tally.as_deref_mut() {
                        tally.events += 1;
                        tally.note(&step, now);
                    }
                }
                continue;
            }
            let Some(sent) = self.in_flight.pop_front() else {
                return Err(Fault::wrong("a reply that nothing was asked for"));
            };
            let due = self.next_xid - 1 - self.in_flight.len() as i32;
            if reply.xid != due || reply.zxid < self.last_zxid {
                return Err(Fault::wrong(format!(
                    "reply xid {} error {} zxid {:#x}, where xid {due} and zxid {:#x} or above \
                     were due",
                    reply.xid, reply.err, reply.zxid, self.last_zxid
                )));
            }
            self.last_zxid = reply.zxid;
            if self.closing {
                match reply.err {
                    0 => continue,
                    err => return Err(Fault::refused("close", err)),
                }
            }
            let step = self.task.check(self.answered, &reply, sent, now)?;
            self.answered += 1;
            count += u64::from(matches!(step, Step::Done(_)));
            if let Some(tally) = tally.as_deref_mut() {
                tally.note(&step, now);
            }
        }
        self.completed += count;
        self.ended |= source == Source::Ended;
        if self.ended && !(self.closing && self.in_flight.is_empty()) {
            return Err(Fault::Unreachable("the server closed the connection".into()));
        }
        Ok(count)
    }

    pub(super) fn idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Requests of the task that have been answered.
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// Requests of the task that have been handed out.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Operations completed, and events received, since it was opened.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.completed, self.events)
    }
}
