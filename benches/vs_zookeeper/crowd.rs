//! Many sessions that behave as real clients do: each has an ephemeral znode and a watch, pings when it must,
//! and comes back by itself, with its watch, when its connection is lost.
//!
//! One thread, one epoll loop, and some hundred bytes for each. *Invariants*, checked: a session that comes
//! back is the one that it was; nothing is answered that was not asked. That a session was lost is counted,
//! and no fault. *Never* lives by itself: the caller has it [`Crowd::step`] all the time.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockkeeper::internals::bench::wire::Granted;
use lockkeeper::internals::bench::{Fault, files, histogram, record, sockets, wire};
use mio::net::TcpStream;
use mio::{Events, Poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::bystanders::AT_ONCE;

/// Sessions that are being opened at one time.
const OPENING_MAX: usize = 256;
/// Between two groups of [`AT_ONCE`] that connect or go.
const PAUSE: Duration = Duration::from_millis(1);
/// Pause before a client tries the next server: this, and up to as much again.
const RETRY: Duration = Duration::from_millis(100);
/// Bytes asked of the kernel at once.
const READ_SIZE: usize = 64 * 1024;
/// The xid of the read that sets the watch, and of the create before it.
const WATCH_XID: i32 = 2;
const CREATE_XID: i32 = 1;
/// Operation: watch again what a lost connection has watched; and the xid of that.
const SET_WATCHES: i32 = 101;
const SET_WATCHES_XID: i32 = -8;
/// The flag of znodes that go with the session.
const EPHEMERAL: i32 = 1;
/// From one look at who must ping to the next.
const ROUND: Duration = Duration::from_millis(50);

/// What the sessions are.
#[derive(Clone, Debug)]
pub struct Gathering {
    /// The servers; sessions go to them in turn, and to the next one when a connection is lost.
    pub addrs: Vec<SocketAddr>,
    /// How many sessions, at most what this process may have open files.
    pub count: usize,
    /// Which crowd of several this is. On one machine each connects from addresses of its own, because
    /// there are but 28,000 ports to one server from each.
    pub number: u8,
    /// The znode for the ephemeral ones.
    pub room: String,
    /// The znode that all watch.
    pub watched: String,
    /// The session timeout to ask for.
    pub timeout: Duration,
}

/// How it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Sessions with a connection, a znode and a watch.
    pub held: usize,
    /// Sessions that a server has called expired.
    pub expired: usize,
    /// Connections lost since the crowd was last [`Crowd::mark`]ed, without those that were dropped.
    pub lost: u64,
    /// Events received since then.
    pub events: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Without a connection, until then.
    Away(Instant),
    /// Without one for good: it was dropped, or the session has expired.
    Gone,
    Expired,
    Connecting,
    Greeting,
    Creating,
    Watching,
    Held,
}

#[derive(Debug)]
struct Member {
    stream: Option<TcpStream>,
    state: State,
    /// The server that it is at, or goes to.
    server: usize,
    granted: Option<Granted>,
    has_znode: bool,
    /// The last transaction that it has seen.
    zxid: i64,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// When it lost its connection, or began to open its session.
    began: Instant,
    /// When it began to connect.
    tried: Instant,
    last_sent: Instant,
    pinged: Option<Instant>,
}

/// The sessions.
#[derive(Debug)]
pub struct Crowd {
    plan: Gathering,
    poll: Poll,
    events: Events,
    scratch: Vec<u8>,
    members: Vec<Member>,
    /// Those that are on their way to a session, and how many may be.
    coming: usize,
    coming_max: usize,
    /// How often all have been dropped: each time they come from another address.
    generation: u8,
    /// The member at which the next look for members that are away begins.
    next: usize,
    looked: Instant,
    standing: Standing,
    returns: Histogram<u64>,
    pings: Histogram<u64>,
}

impl Crowd {
    /// A crowd whose sessions are opened by the next steps.
    ///
    /// # Errors
    /// This machine does not allow so many connections.
    pub fn new(plan: Gathering) -> Result<Self, Fault> {
        files::allow(plan.count)?;
        let now = Instant::now();
        let member = |number: usize| Member {
            stream: None,
            state: State::Away(now),
            server: number % plan.addrs.len(),
            granted: None,
            has_znode: false,
            zxid: 0,
            partial: Vec::new(),
            began: now,
            tried: now,
            last_sent: now,
            pinged: None,
        };
        Ok(Crowd {
            members: (0..plan.count).map(member).collect(),
            plan,
            poll: Poll::new().map_err(Fault::epoll)?,
            events: sockets::events(),
            scratch: vec![0; READ_SIZE],
            coming: 0,
            coming_max: OPENING_MAX,
            generation: 0,
            next: 0,
            looked: now,
            standing: Standing::default(),
            returns: histogram(),
            pings: histogram(),
        })
    }

    /// How it stands now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Since the last mark: nanoseconds from losing its connection, or from the first attempt, until a
    /// client had its session, its znode and its watch.
    #[must_use]
    pub fn returns(&self) -> &Histogram<u64> {
        &self.returns
    }

    /// Since the last mark: nanoseconds from each ping to its answer.
    #[must_use]
    pub fn pings(&self) -> &Histogram<u64> {
        &self.pings
    }

    /// Counts and measures anew.
    pub fn mark(&mut self) {
        self.returns.reset();
        self.pings.reset();
        (self.standing.lost, self.standing.events) = (0, 0);
    }

    /// Drops all connections without a word, 64,000 a second. They come back with the next steps, all at
    /// one time, each to the next server, or else are gone for good. Returns the earliest moment at which a
    /// session of theirs may end.
    pub fn drop_all(&mut self, come_back: bool) -> Instant {
        let heard = self.members.iter().map(|member| member.last_sent).min();
        let timeout = self.members.iter().find_map(|member| member.granted.as_ref()?.timeout());
        self.generation = self.generation.wrapping_add(1);
        self.coming_max = usize::MAX;
        for (number, member) in self.members.iter_mut().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                std::thread::sleep(PAUSE);
            }
            if matches!(member.state, State::Gone | State::Expired) {
                continue;
            }
            let now = Instant::now();
            member.disconnect(now);
            member.state = if come_back { State::Away(now) } else { State::Gone };
            member.server = (member.server + 1) % self.plan.addrs.len();
        }
        self.standing.held = 0;
        self.coming = 0;
        heard.unwrap_or_else(Instant::now) + timeout.unwrap_or(self.plan.timeout)
    }

    /// Does what there is to do, and waits for no longer than so long.
    ///
    /// # Errors
    /// A server errs, or this machine lacks something.
    pub fn step(&mut self, most: Duration) -> Result<(), Fault> {
        let now = Instant::now();
        let all_away = self.connect_some(now)?;
        let wait = if all_away { most.min(PAUSE) } else { most.min(ROUND) };
        sockets::wait(&mut self.poll, &mut self.events, wait)?;
        let ready: Vec<(usize, bool)> =
            self.events.iter().map(|event| (event.token().0, event.is_writable())).collect();
        for (number, writable) in ready {
            self.serve(number, writable)?;
        }
        let now = Instant::now();
        if now.duration_since(self.looked) >= ROUND {
            self.looked = now;
            self.look(now);
        }
        Ok(())
    }

    /// Has some of those that are away connect; true if more of them wait for that.
    fn connect_some(&mut self, now: Instant) -> Result<bool, Fault> {
        let mut begun = 0;
        for _ in 0..self.members.len() {
            if begun == AT_ONCE || self.coming >= self.coming_max {
                return Ok(true);
            }
            let number = self.next;
            self.next = (self.next + 1) % self.members.len();
            let member = &mut self.members[number];
            if !matches!(member.state, State::Away(at) if at <= now) {
                continue;
            }
            begun += 1;
            member.tried = now;
            let source = self.plan.source(self.generation);
            match connect_from(source, self.plan.addrs[member.server]) {
                Ok(mut stream) => {
                    sockets::register(&self.poll, &mut stream, number)?;
                    member.stream = Some(stream);
                    member.state = State::Connecting;
                    self.coming += 1;
                }
                Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::TIMEDOUT) => {
                    member.retry(number, now, self.plan.addrs.len());
                }
                Err(e) => return Err(Fault::Machine(format!("connect: {e}"))),
            }
        }
        Ok(false)
    }

    /// Has those ping that must, and gives up connections on which nothing is answered.
    fn look(&mut self, now: Instant) {
        for number in 0..self.members.len() {
            let member = &mut self.members[number];
            let timeout = member.granted.as_ref().and_then(Granted::timeout);
            let timeout = timeout.unwrap_or(self.plan.timeout);
            match (member.state, member.pinged) {
                (State::Held, None) => {
                    // From a quarter to a third of the timeout, so that they do not stay together.
                    let due = timeout.mul_f64(0.25 + spread(number) / 12.0);
                    if now.duration_since(member.last_sent) >= due {
                        member.pinged = Some(now);
                        if !member.send(&wire::ping(), now) {
                            self.lose(number, now);
                        }
                    }
                }
                // As ZooKeeper's own client does it.
                (State::Held, Some(pinged)) if now.duration_since(pinged) > timeout / 3 => {
                    self.lose(number, now);
                }
                (State::Connecting | State::Greeting | State::Creating | State::Watching, _)
                    if now.duration_since(member.tried)
                        > timeout / self.plan.addrs.len() as u32 =>
                {
                    self.lose(number, now);
                }
                _ => {}
            }
        }
    }

    /// A connection has ended.
    fn lose(&mut self, number: usize, now: Instant) {
        let member = &mut self.members[number];
        self.standing.lost += 1;
        match member.state {
            State::Held => {
                self.standing.held -= 1;
                self.coming_max = usize::MAX;
                member.disconnect(now);
            }
            State::Connecting | State::Greeting | State::Creating | State::Watching => {
                self.coming -= 1;
                let began = member.began;
                member.disconnect(began);
            }
            State::Away(_) | State::Gone | State::Expired => return,
        }
        member.retry(number, now, self.plan.addrs.len());
    }

    fn serve(&mut self, number: usize, writable: bool) -> Result<(), Fault> {
        let now = Instant::now();
        let member = &mut self.members[number];
        let Some(stream) = &mut member.stream else { return Ok(()) };
        if member.state == State::Connecting {
            if !matches!(stream.take_error(), Ok(None)) {
                self.lose(number, now);
                return Ok(());
            }
            if !writable {
                return Ok(());
            }
            let request = match &member.granted {
                Some(granted) => reconnect(granted),
                None => {
                    let timeout = i32::try_from(self.plan.timeout.as_millis());
                    wire::connect(timeout.unwrap_or(i32::MAX))
                }
            };
            let sent = stream.set_nodelay(true).is_ok() && member.send(&request, now);
            member.state = State::Greeting;
            if !sent {
                self.lose(number, now);
            }
            return Ok(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.receive(number, &mut scratch, now);
        self.scratch = scratch;
        if !outcome? {
            self.lose(number, now);
        }
        Ok(())
    }

    /// Takes in what has come; false if the connection has ended.
    fn receive(&mut self, number: usize, scratch: &mut [u8], now: Instant) -> Result<bool, Fault> {
        loop {
            let member = &mut self.members[number];
            let Some(stream) = &mut member.stream else { return Ok(true) };
            let count = match stream.read(scratch) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Ok(false),
            };
            let mut waiting = std::mem::take(&mut member.partial);
            waiting.extend_from_slice(&scratch[..count]);
            let mut at = 0;
            while let Some(length) = wire::int_at(&waiting, at) {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > wire::FRAME_MAX {
                    return Err(Fault::wrong("frame length out of range"));
                }
                let Some(frame) = waiting.get(at + 4..at + 4 + length) else { break };
                if !self.take(number, frame, now)? {
                    return Ok(false);
                }
                at += 4 + length;
            }
            if at < waiting.len() {
                self.members[number].partial = waiting.split_off(at);
            }
        }
    }

    /// Takes in one frame; false if the connection is of no use any more.
    fn take(&mut self, number: usize, frame: &[u8], now: Instant) -> Result<bool, Fault> {
        let member = &mut self.members[number];
        if member.state == State::Greeting {
            return self.take_greeting(number, frame, now);
        }
        let reply = wire::reply(frame).ok_or_else(|| Fault::wrong("reply too short"))?;
        if reply.xid == wire::EVENT_XID {
            self.standing.events += 1;
            let mut watch = wire::get_and_watch(&self.plan.watched);
            wire::patch_xid(&mut watch, WATCH_XID);
            return Ok(member.send(&watch, now));
        }
        member.zxid = member.zxid.max(reply.zxid);
        match (reply.xid, member.state) {
            (CREATE_XID, State::Creating) if matches!(reply.err, 0 | wire::NODE_EXISTS) => {
                member.has_znode = true;
                let mut watch = wire::get_and_watch(&self.plan.watched);
                wire::patch_xid(&mut watch, WATCH_XID);
                member.state = State::Watching;
                Ok(member.send(&watch, now))
            }
            (WATCH_XID | SET_WATCHES_XID, State::Watching) if reply.err == 0 => {
                member.state = State::Held;
                record(&mut self.returns, member.began, now);
                self.coming -= 1;
                self.standing.held += 1;
                Ok(true)
            }
            // The watch, set again after an event.
            (WATCH_XID, State::Held) if reply.err == 0 => Ok(true),
            (wire::PING_XID, State::Held) => {
                let pinged = member.pinged.take();
                let pinged = pinged.ok_or_else(|| Fault::wrong("an answer to no ping"))?;
                record(&mut self.pings, pinged, now);
                Ok(true)
            }
            (CREATE_XID | WATCH_XID | SET_WATCHES_XID, _) if reply.err != 0 => {
                Err(Fault::refused("a session of a crowd", reply.err))
            }
            (xid, state) => Err(Fault::wrong(format!("a reply with xid {xid} while {state:?}"))),
        }
    }

    fn take_greeting(&mut self, number: usize, frame: &[u8], now: Instant) -> Result<bool, Fault> {
        let member = &mut self.members[number];
        let granted =
            wire::connect_reply(frame).ok_or_else(|| Fault::wrong("connect reply too short"))?;
        if granted.timeout().is_none() {
            // A session that is not there any more; a new one is refused by servers that do not serve.
            if member.granted.is_some() {
                self.coming -= 1;
                self.standing.expired += 1;
                member.disconnect(now);
                member.state = State::Expired;
                return Ok(true);
            }
            return Ok(false);
        }
        if member.granted.as_ref().is_some_and(|before| before.session != granted.session) {
            return Err(Fault::wrong("another session than the one that came back"));
        }
        member.granted = Some(granted);
        let request = if member.has_znode {
            member.state = State::Watching;
            set_watches(member.zxid, &self.plan.watched)
        } else {
            member.state = State::Creating;
            let path = self.plan.znode(number);
            let mut create = wire::create_as(&path, b"", EPHEMERAL);
            wire::patch_xid(&mut create, CREATE_XID);
            create
        };
        Ok(member.send(&request, now))
    }
}

impl Member {
    /// Has no connection any more; it was lost at `began`.
    fn disconnect(&mut self, began: Instant) {
        self.stream = None;
        self.pinged = None;
        self.partial = Vec::new();
        self.began = began;
    }

    /// Goes to the next server in a moment.
    fn retry(&mut self, number: usize, now: Instant, servers: usize) {
        self.server = (self.server + 1) % servers;
        self.state = State::Away(now + RETRY.mul_f64(1.0 + spread(number)));
    }

    /// Sends a few bytes; false if the connection does not take them.
    fn send(&mut self, request: &[u8], now: Instant) -> bool {
        self.last_sent = now;
        self.stream.as_mut().is_some_and(|stream| stream.write_all(request).is_ok())
    }
}

impl Gathering {
    /// The ephemeral znode of a session.
    fn znode(&self, number: usize) -> String {
        format!("{}/s{:03}-{number:05}", self.room, self.number)
    }

    /// Where the connections come from, if it is not for the system to say.
    fn source(&self, generation: u8) -> Option<Ipv4Addr> {
        let on_this_machine =
            self.addrs.iter().all(|addr| addr.ip().is_loopback() && addr.is_ipv4());
        on_this_machine.then(|| Ipv4Addr::new(127, 1, self.number, generation % 200 + 1))
    }
}

/// A number from 0 to 1 for each.
fn spread(number: usize) -> f64 {
    (number.wrapping_mul(0x9e37_79b1) % 1024) as f64 / 1024.0
}

/// Begins to connect.
fn connect_from(source: Option<Ipv4Addr>, to: SocketAddr) -> rustix::io::Result<TcpStream> {
    let family = match to.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(source) = source {
        bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from_std(socket.into())),
        Err(e) => Err(e),
    }
}

/// The connect request of a session that is there already, with another connection for it.
pub fn reconnect(granted: &Granted) -> Vec<u8> {
    wire::connect_as(granted.timeout_ms, granted.session, &granted.password)
}

/// Watches the data of a node again; whether it has changed since that transaction is told at once.
fn set_watches(since: i64, path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    wire::frame(&mut out, |f| {
        wire::int(f, SET_WATCHES_XID);
        wire::int(f, SET_WATCHES);
        wire::long(f, since);
        wire::int(f, 1);
        wire::buffer(f, path.as_bytes());
        wire::int(f, 0);
        wire::int(f, 0);
    });
    out
}
