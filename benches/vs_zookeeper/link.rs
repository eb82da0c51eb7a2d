//! One connection of the load generator: requests in flight, replies checked as they come.
//!
//! Every reply must carry the xid that is due, error 0, a zxid not below the one before, and the
//! body the script expects; anything else ends the measurement.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Instant;

use hdrhistogram::Histogram;
use mio::net::TcpStream;

use crate::frames::{Frames, Source};
use crate::lock::{Lock, Progress};
use crate::session::{self, Session};
use crate::wire;
use crate::work::Script;

/// What decides about the requests of a connection.
pub enum Task {
    /// Known beforehand, any number in flight.
    Script(Script),
    /// One at a time.
    Lock(Lock),
}

impl Task {
    fn next(&mut self, now: Instant, xid: i32, out: &mut Vec<u8>) -> bool {
        match self {
            Task::Script(script) => script.next(xid, out),
            Task::Lock(lock) => lock.next(now, xid, out),
        }
    }

    /// Judges the answer to request number `index`, which was sent at `sent`. Returns when the
    /// operation that it completes began, if it completes one.
    fn check(
        &mut self,
        index: u64,
        reply: &wire::Reply<'_>,
        sent: Instant,
    ) -> Result<Option<Instant>, String> {
        match self {
            Task::Script(script) if reply.err == 0 => {
                script.check(index, reply.body).map(|()| Some(sent))
            }
            Task::Script(_) => Err(format!("error {}", reply.err)),
            Task::Lock(lock) => match lock.check(reply.err, reply.body)? {
                Progress::Step => Ok(None),
                Progress::Cycle(began) => Ok(Some(began)),
            },
        }
    }

    fn event(&mut self) -> Result<(), String> {
        match self {
            Task::Script(_) => Err("a watch event that nobody waits for".into()),
            Task::Lock(lock) => lock.event(),
        }
    }

    fn issued(&self) -> u64 {
        match self {
            Task::Script(script) => script.issued(),
            Task::Lock(lock) => lock.issued(),
        }
    }
}

pub struct Link {
    pub stream: TcpStream,
    task: Task,
    depth: usize,
    frames: Frames,
    unsent: Vec<u8>,
    sent: usize,
    /// When each unanswered request was handed to the socket's queue, oldest first.
    in_flight: VecDeque<Instant>,
    next_xid: i32,
    answered: u64,
    last_zxid: i64,
    closing: bool,
    ended: bool,
}

impl Link {
    /// Opens a session at `addr` that will keep `depth` requests of `task` in flight.
    pub fn open(addr: SocketAddr, task: Task, depth: usize) -> Result<Self, String> {
        let (stream, last_xid) = Session::open(addr, session::PATIENCE)?.into_parts();
        stream.set_nonblocking(true).map_err(|e| format!("{addr}: {e}"))?;
        Ok(Link {
            stream: TcpStream::from_std(stream),
            task,
            depth,
            frames: Frames::default(),
            unsent: Vec::new(),
            sent: 0,
            in_flight: VecDeque::with_capacity(depth),
            next_xid: last_xid + 1,
            answered: 0,
            last_zxid: 0,
            closing: false,
            ended: false,
        })
    }

    /// Hands out requests until `depth` are in flight or the task has none now.
    pub fn top_up(&mut self, now: Instant) {
        while self.in_flight.len() < self.depth {
            if !self.task.next(now, self.next_xid, &mut self.unsent) {
                return;
            }
            self.next_xid += 1;
            self.in_flight.push_back(now);
        }
    }

    /// Asks the server to end the session. All replies must be in.
    pub fn close(&mut self, now: Instant) {
        assert!(self.in_flight.is_empty(), "a session is closed after its last reply");
        let mut request = wire::bare(wire::CLOSE);
        wire::patch_xid(&mut request, self.next_xid);
        self.unsent.extend_from_slice(&request);
        self.next_xid += 1;
        self.in_flight.push_back(now);
        self.closing = true;
    }

    /// Writes what the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads and checks the replies that have come; returns how many operations they complete.
    /// Their latencies go to `latencies` if there is one.
    pub fn receive(
        &mut self,
        now: Instant,
        mut latencies: Option<&mut Histogram<u64>>,
    ) -> Result<u64, String> {
        let source = self.frames.fill(&mut self.stream).map_err(|e| format!("receive: {e}"))?;
        let mut count = 0;
        while let Some(frame) = self.frames.next().map_err(|e| format!("receive: {e}"))? {
            let reply = wire::reply(frame).ok_or("reply too short")?;
            if reply.xid == wire::EVENT_XID {
                // While the sessions are closed the nodes go, and with them what was waited for.
                if !self.closing {
                    self.task.event()?;
                }
                continue;
            }
            let Some(sent) = self.in_flight.pop_front() else {
                return Err("a reply that nothing was asked for".into());
            };
            let due = self.next_xid - 1 - self.in_flight.len() as i32;
            if reply.xid != due || reply.zxid < self.last_zxid {
                return Err(format!(
                    "reply xid {} error {} zxid {:#x}, where xid {due} and zxid {:#x} or above \
                     were due",
                    reply.xid, reply.err, reply.zxid, self.last_zxid
                ));
            }
            self.last_zxid = reply.zxid;
            if self.closing {
                match reply.err {
                    0 => continue,
                    err => return Err(format!("close: error {err}")),
                }
            }
            let completed = self.task.check(self.answered, &reply, sent)?;
            self.answered += 1;
            let Some(began) = completed else { continue };
            if let Some(latencies) = latencies.as_deref_mut() {
                let nanos = u64::try_from(now.duration_since(began).as_nanos()).unwrap_or(u64::MAX);
                latencies.saturating_record(nanos.max(1));
            }
            count += 1;
        }
        self.ended |= source == Source::Ended;
        if self.ended && !(self.closing && self.in_flight.is_empty()) {
            return Err("the server closed the connection".into());
        }
        Ok(count)
    }

    pub fn idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Requests of the task that have been answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Requests of the task that have been handed out.
    pub fn issued(&self) -> u64 {
        self.task.issued()
    }
}
